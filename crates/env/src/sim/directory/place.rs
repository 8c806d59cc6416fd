//! Places in the source: whether they lie in a latch.

use std::panic::Location;

/// The sources whose accesses are those of latches, with few instructions between them; and the loop that measures those.
const LATCHES: [&str; 3] = ["crates/latch/", "crates/env/", "crates/bench/src/latch.rs"];
/// Places that are remembered. A place that shares another's slot takes it over.
const SLOTS: usize = 1024;

/// What kind of place the places of the last accesses were.
pub(super) struct PlaceKinds(Vec<(Option<&'static Location<'static>>, bool)>);

impl PlaceKinds {
    pub(super) fn new() -> PlaceKinds {
        PlaceKinds(vec![(None, false); SLOTS])
    }

    #[inline]
    pub(super) fn is_latch(&mut self, at: &'static Location<'static>) -> bool {
        // Locations lie one after the other; where the program lies decides about the time only that this takes.
        let slot = &mut self.0[std::ptr::from_ref(at).addr() / size_of::<Location<'_>>() % SLOTS];
        match slot {
            (Some(known), is_latch) if std::ptr::eq(*known, at) => *is_latch,
            _ => {
                let is_latch = LATCHES.iter().any(|folder| at.file().contains(folder));
                *slot = (Some(at), is_latch);
                is_latch
            }
        }
    }
}
