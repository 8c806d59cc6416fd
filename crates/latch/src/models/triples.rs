//! Three threads: two that leave and one that waits, one that leaves and two that wait, and one that stops waiting.

use foreshore_env::time::Instant;

use super::{Content, triple};

fn change(content: &Content) {
    content.add_exclusively();
}

fn share(content: &Content) {
    content.read_shared();
}

fn share_for_once(content: &Content) {
    if let Some(_guard) = content.latch.try_shared() {
        let (first, second) = content.read();
        assert_eq!(first, second);
    }
}

fn downgrade(content: &Content) {
    let guard = content.latch.exclusive();
    content.add_under(&guard);
    let _guard = guard.downgrade();
    let (first, second) = content.read();
    assert_eq!(first, second);
}

/// Waits to be alone, but not for long, and changes nothing.
fn stop_waiting(content: &Content) {
    drop(content.latch.shared_until(Some(Instant::now()), &mut || true));
}

fn stop_waiting_to_change(content: &Content) {
    if let Ok(guard) = content.latch.exclusive_until(Some(Instant::now()), &mut || true) {
        content.add_under(&guard);
    }
}

fn at_least_two(content: &Content) {
    let (first, second) = content.read();
    assert_eq!(first, second);
    assert!((2..=3).contains(&first));
    content.assert_rest(first, first);
}

#[test]
fn three_exclusives() {
    triple("three exclusives", 2, [change, change, change], |content| content.assert_rest(3, 3));
}

/// Two sharers leave at the same time while a writer waits (PostgreSQL and others have lost this wake-up).
#[test]
fn two_sharers_and_a_writer() {
    triple("shared, shared, exclusive", 2, [share, share, change], |content| content.assert_rest(1, 1));
}

#[test]
fn two_writers_and_a_sharer() {
    triple("exclusive, exclusive, shared", 2, [change, change, share], |content| content.assert_rest(2, 2));
}

#[test]
fn downgrade_with_a_sharer_and_a_writer() {
    triple("downgrade, shared, exclusive", 2, [downgrade, share, change], |content| {
        content.assert_rest(2, 2)
    });
}

/// A writer stops waiting while a sharer stands behind it.
#[test]
fn a_writer_that_gives_up_before_a_sharer() {
    triple("exclusive deadline, shared, shared", 2, [stop_waiting_to_change, share, share], |content| {
        let (first, second) = content.read();
        assert_eq!(first, second);
        content.assert_rest(first, first);
    });
}

#[test]
fn a_writer_that_gives_up_before_a_writer() {
    triple(
        "exclusive, exclusive deadline, exclusive",
        2,
        [change, stop_waiting_to_change, change],
        at_least_two,
    );
}

#[test]
fn a_sharer_that_gives_up_before_a_writer() {
    triple("exclusive, shared deadline, exclusive", 2, [change, stop_waiting, change], |content| {
        content.assert_rest(2, 2);
    });
}

/// An attempt that does not wait must not disturb those who do.
#[test]
fn an_attempt_among_waiters() {
    triple("exclusive, exclusive, try shared", 2, [change, change, share_for_once], |content| {
        content.assert_rest(2, 2);
    });
}
