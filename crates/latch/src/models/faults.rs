//! Planted faults: variants of single steps of the latch, each wrong in one way that ports of the paper's listing get
//! wrong, put beside the real rest. The models must catch every one, or they prove nothing.

use std::mem;

use super::{Content, must_fail, pair, triple};
use crate::hybrid::faulty;

fn change(content: &Content) {
    content.add_exclusively();
}

fn share(content: &Content) {
    content.read_shared();
}

fn read_with(content: &Content, validate: impl Fn(&Content, crate::Version) -> bool) {
    if let Some((version, (first, second))) = content.read_optimistically()
        && validate(content, version)
    {
        assert_eq!(first, second, "torn, and validated");
    }
}

fn look_optimistically(content: &Content) {
    read_with(content, |content, version| content.latch.validate(version));
}

fn no_check(_: &Content) {}

/// The same parts without a fault pass: what is caught below is the fault.
#[test]
fn the_harness_is_sound() {
    pair("no fault", change, look_optimistically, no_check);
}

#[test]
fn version_raised_after_the_release() {
    fn faulty_change(content: &Content) {
        let guard = content.latch.exclusive();
        content.add();
        mem::forget(guard);
        faulty::release_without_version(&content.latch);
        faulty::raise_version(&content.latch);
    }
    must_fail("faults::version_raised_after_the_release", "torn, and validated", || {
        pair("", faulty_change, look_optimistically, no_check);
    });
}

#[test]
fn version_never_raised() {
    fn faulty_change(content: &Content) {
        let guard = content.latch.exclusive();
        content.add();
        mem::forget(guard);
        faulty::release_without_version(&content.latch);
    }
    must_fail("faults::version_never_raised", "torn, and validated", || {
        pair("", faulty_change, look_optimistically, no_check)
    });
}

#[test]
fn no_release_fence_after_entering() {
    fn faulty_change(content: &Content) {
        assert!(faulty::enter_without_fence(&content.latch));
        content.add();
        faulty::raise_version(&content.latch);
        faulty::release_without_version(&content.latch);
    }
    must_fail("faults::no_release_fence_after_entering", "torn, and validated", || {
        pair("", faulty_change, look_optimistically, no_check)
    });
}

#[test]
fn no_acquire_fence_in_validate() {
    fn faulty_look(content: &Content) {
        read_with(content, |content, version| faulty::validate_without_fence(&content.latch, version));
    }
    must_fail("faults::no_acquire_fence_in_validate", "torn, and validated", || {
        pair("", change, faulty_look, no_check)
    });
}

/// The paper's order of loads with the word loaded relaxed: the version may be older than the word.
#[test]
fn no_acquire_of_the_word_in_validate() {
    fn faulty_look(content: &Content) {
        read_with(content, |content, version| faulty::validate_word_relaxed(&content.latch, version));
    }
    must_fail("faults::no_acquire_of_the_word_in_validate", "torn, and validated", || {
        pair("", change, faulty_look, no_check)
    });
}

#[test]
fn word_not_looked_at_in_validate() {
    fn faulty_look(content: &Content) {
        read_with(content, |content, version| faulty::validate_version_only(&content.latch, version));
    }
    must_fail("faults::word_not_looked_at_in_validate", "torn, and validated", || {
        pair("", change, faulty_look, no_check)
    });
}

#[test]
fn version_loaded_relaxed_at_the_beginning() {
    fn change_twice(content: &Content) {
        change(content);
        change(content);
    }
    fn faulty_look(content: &Content) {
        if let Some(version) = faulty::optimistic_relaxed(&content.latch) {
            let (first, second) = content.read();
            if content.latch.validate(version) {
                assert_eq!(first, second, "torn, and validated");
            }
        }
    }
    must_fail("faults::version_loaded_relaxed_at_the_beginning", "torn, and validated", || {
        pair("", change_twice, faulty_look, no_check)
    });
}

#[test]
fn parked_bit_dropped_by_the_release() {
    fn faulty_change(content: &Content) {
        let guard = content.latch.exclusive();
        content.add();
        mem::forget(guard);
        faulty::raise_version(&content.latch);
        faulty::free_the_word(&content.latch);
    }
    must_fail("faults::parked_bit_dropped_by_the_release", "deadlock", || {
        pair("", faulty_change, share, no_check)
    });
}

#[test]
fn parked_bit_dropped_by_downgrade() {
    fn faulty_downgrade(content: &Content) {
        let guard = content.latch.exclusive();
        content.add();
        mem::forget(guard);
        faulty::raise_version(&content.latch);
        faulty::set_word_to_one_sharer(&content.latch);
        faulty::release_shared(&content.latch);
    }
    must_fail("faults::parked_bit_dropped_by_downgrade", "deadlock", || {
        pair("", faulty_downgrade, change, no_check)
    });
}

/// A thread that sleeps without making sure that its note stands misses the release that came in between.
#[test]
fn no_look_before_sleeping() {
    must_fail("faults::no_look_before_sleeping", "deadlock", || pair("", change, faulty_wait, no_check));
    fn faulty_wait(content: &Content) {
        faulty::wait_without_validation(&content.latch);
        faulty::release_shared(&content.latch);
    }
}

/// Two sharers that both think the other one is the last.
#[test]
fn last_sharer_decided_before_leaving() {
    fn faulty_share(content: &Content) {
        let guard = content.latch.shared();
        mem::forget(guard);
        faulty::leave_by_an_old_look(&content.latch);
    }
    must_fail("faults::last_sharer_decided_before_leaving", "deadlock", || {
        triple("", 3, [faulty_share, faulty_share, change], no_check);
    });
}

#[test]
fn release_of_the_word_relaxed() {
    fn faulty_change(content: &Content) {
        let guard = content.latch.exclusive();
        content.add();
        mem::forget(guard);
        faulty::raise_version(&content.latch);
        faulty::release_relaxed(&content.latch);
    }
    must_fail("faults::release_of_the_word_relaxed", "torn under an exclusive latch", || {
        pair("", faulty_change, change, no_check)
    });
}
