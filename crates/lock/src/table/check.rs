//! What must be true of a queue whenever its latch is released, in debug builds.

use std::ops::ControlFlow;

use super::list::{Linked, List};
use super::queue::Queue;
use crate::mode::KeyMode;
use crate::name::LockName;
use crate::request::Requests;

/// Requests of a bucket that are looked at.
const CHECKED: usize = 48;

impl Queue<Linked> {
    /// LOCK-3 for the name, the count, and that a list which says so is shared.
    #[inline]
    pub(super) fn check_state(&self, requests: &Requests, name: LockName) {
        if cfg!(debug_assertions) {
            self.check_requests(requests, |one, other| one.compatible(other), name);
            let mut looks = if self.list.is_shared() { CHECKED } else { 0 };
            self.list.each(requests, |request| {
                if looks == 0 {
                    return ControlFlow::Break(());
                }
                looks -= 1;
                assert!(request.modes().is_shared(), "{:?} in a list that is shared", request.modes());
                ControlFlow::Continue(())
            });
        }
    }
}

impl<L: List> Queue<L> {
    /// The count. What is granted cannot be seen at one moment: others release and lock beside the latch.
    #[inline]
    pub(super) fn check_count(&self, requests: &Requests, name: LockName) {
        if cfg!(debug_assertions) {
            self.check_requests(requests, |_, _| true, name);
        }
    }

    fn check_requests(&self, requests: &Requests, fit: impl Fn(KeyMode, KeyMode) -> bool, name: LockName) {
        // An array: not even here is anything allocated under a latch (LOCK-5).
        let mut granted = [KeyMode::N; CHECKED];
        let (mut seen, mut waiting) = (0, 0);
        self.list.each(requests, |request| {
            if seen == CHECKED {
                return ControlFlow::Break(());
            }
            let modes = request.modes();
            // One that has been made obsolete meanwhile has no modes.
            assert!(modes.requested.covers(modes.granted), "{modes:?}");
            if request.name() == name {
                let fits = granted[..seen].iter().all(|&other| fit(other, modes.granted));
                assert!(fits, "LOCK-3: {modes:?} beside {granted:?}");
                granted[seen] = modes.granted;
            }
            seen += 1;
            waiting += u32::from(modes.is_waiting());
            ControlFlow::Continue(())
        });
        let counted = self.waiting();
        assert!(waiting == counted || seen == CHECKED && waiting < counted, "{waiting} of {counted} wait");
    }
}
