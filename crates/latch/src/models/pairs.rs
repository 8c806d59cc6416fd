//! Every pair of operations, on two threads.

use foreshore_env::time::Instant;

use super::{Content, pair, pair_bounded, two};
use crate::WaitEnded;

fn change(content: &Content) {
    content.add_exclusively();
}

fn change_twice(content: &Content) {
    content.add_exclusively();
    content.add_exclusively();
}

fn share(content: &Content) {
    content.read_shared();
}

fn look_optimistically(content: &Content) {
    if let Some((version, (first, second))) = content.read_optimistically()
        && content.latch.validate(version)
    {
        assert_eq!(first, second, "torn, and validated");
    }
}

fn upgrade(content: &Content) {
    if let Some((version, seen)) = content.read_optimistically()
        && let Some(guard) = content.latch.upgrade(version)
    {
        assert_eq!(seen, content.read(), "upgraded from a version that does not stand");
        content.add_under(&guard);
    }
}

fn share_if(content: &Content) {
    if let Some((version, seen)) = content.read_optimistically()
        && let Some(guard) = content.latch.shared_if(version)
    {
        assert_eq!(guard.version(), version);
        assert_eq!(seen, content.read(), "shared from a version that does not stand");
    }
}

fn downgrade(content: &Content) {
    let guard = content.latch.exclusive();
    content.add_under(&guard);
    let after = guard.version();
    let guard = guard.downgrade();
    let seen = content.read();
    assert_eq!(guard.version(), after);
    assert_eq!(seen.0, seen.1, "changed under a shared latch");
    assert_eq!(seen, content.read(), "changed under a shared latch");
}

fn change_before_deadline(content: &Content) {
    match content.latch.exclusive_until(Some(Instant::now()), &mut || true) {
        Ok(guard) => content.add_under(&guard),
        Err(ended) => assert_eq!(ended, WaitEnded::Deadline),
    }
}

fn share_before_deadline(content: &Content) {
    match content.latch.shared_until(Some(Instant::now()), &mut || true) {
        Ok(_guard) => {
            let (first, second) = content.read();
            assert_eq!(first, second);
        }
        Err(ended) => assert_eq!(ended, WaitEnded::Deadline),
    }
}

fn give_up_sharing(content: &Content) {
    match content.latch.shared_until(None, &mut || false) {
        Ok(_guard) => {
            let (first, second) = content.read();
            assert_eq!(first, second);
        }
        Err(ended) => assert_eq!(ended, WaitEnded::GaveUp),
    }
}

/// So many changes as versions; how many is up to the interleaving.
fn consistent(content: &Content) {
    let (first, second) = content.read();
    assert_eq!(first, second);
    content.assert_rest(first, first);
}

#[test]
fn exclusive_with_exclusive() {
    pair("exclusive/exclusive", change, change, |content| content.assert_rest(2, 2));
}

/// The woken thread can lose the race to the second change and is given the latch then.
#[test]
fn exclusive_with_two_exclusives() {
    pair_bounded("exclusive/exclusive twice", change, change_twice, |content| content.assert_rest(3, 3));
}

#[test]
fn exclusive_with_shared() {
    pair("exclusive/shared", change, share, |content| content.assert_rest(1, 1));
}

#[test]
fn two_exclusives_with_shared() {
    pair_bounded("exclusive twice/shared", change_twice, share, |content| content.assert_rest(2, 2));
}

#[test]
fn shared_with_shared() {
    pair("shared/shared", share, share, |content| content.assert_rest(0, 0));
}

#[test]
fn exclusive_with_optimistic() {
    pair("exclusive/optimistic", change, look_optimistically, |content| content.assert_rest(1, 1));
}

#[test]
fn two_exclusives_with_optimistic() {
    pair("exclusive twice/optimistic", change_twice, look_optimistically, |content| {
        content.assert_rest(2, 2)
    });
}

#[test]
fn exclusive_with_upgrade() {
    pair("exclusive/upgrade", change, upgrade, consistent);
}

#[test]
fn two_exclusives_with_upgrade() {
    pair_bounded("exclusive twice/upgrade", change_twice, upgrade, consistent);
}

#[test]
fn upgrade_with_upgrade() {
    pair("upgrade/upgrade", upgrade, upgrade, |content| {
        consistent(content);
        // The thread that comes first finds its version standing; nobody is refused for the sake of somebody who is
        // refused too.
        assert!(content.read().0 >= 1, "both were refused");
    });
}

#[test]
fn upgrade_with_shared() {
    pair("upgrade/shared", upgrade, share, consistent);
}

#[test]
fn exclusive_with_shared_if() {
    pair("exclusive/shared_if", change, share_if, |content| content.assert_rest(1, 1));
}

#[test]
fn two_exclusives_with_shared_if() {
    pair_bounded("exclusive twice/shared_if", change_twice, share_if, |content| content.assert_rest(2, 2));
}

#[test]
fn upgrade_with_shared_if() {
    pair("upgrade/shared_if", upgrade, share_if, consistent);
}

#[test]
fn downgrade_with_exclusive() {
    pair("downgrade/exclusive", downgrade, change, |content| content.assert_rest(2, 2));
}

#[test]
fn downgrade_with_shared() {
    pair("downgrade/shared", downgrade, share, |content| content.assert_rest(1, 1));
}

#[test]
fn downgrade_with_optimistic() {
    pair("downgrade/optimistic", downgrade, look_optimistically, |content| content.assert_rest(1, 1));
}

#[test]
fn downgrade_with_upgrade() {
    pair("downgrade/upgrade", downgrade, upgrade, consistent);
}

#[test]
fn downgrade_with_downgrade() {
    pair("downgrade/downgrade", downgrade, downgrade, |content| content.assert_rest(2, 2));
}

#[test]
fn exclusive_with_exclusive_deadline() {
    pair("exclusive/exclusive deadline", change, change_before_deadline, |content| {
        consistent(content);
        assert!(content.read().0 >= 1);
    });
}

#[test]
fn exclusive_with_shared_deadline() {
    pair("exclusive/shared deadline", change, share_before_deadline, |content| content.assert_rest(1, 1));
}

#[test]
fn shared_with_exclusive_deadline() {
    pair("shared/exclusive deadline", share, change_before_deadline, consistent);
}

#[test]
fn downgrade_with_shared_deadline() {
    pair("downgrade/shared deadline", downgrade, share_before_deadline, |content| content.assert_rest(1, 1));
}

#[test]
fn exclusive_with_giving_up() {
    pair("exclusive/giving up", change, give_up_sharing, |content| content.assert_rest(1, 1));
}

fn try_to_change(content: &Content) {
    if let Some(guard) = content.latch.try_exclusive() {
        content.add_under(&guard);
    }
}

fn try_to_share(content: &Content) {
    if let Some(_guard) = content.latch.try_shared() {
        let (first, second) = content.read();
        assert_eq!(first, second);
    }
}

fn give_up_changing(content: &Content) {
    match content.latch.exclusive_until(None, &mut || false) {
        Ok(guard) => content.add_under(&guard),
        Err(ended) => assert_eq!(ended, WaitEnded::GaveUp),
    }
}

/// What it is called, and the operation.
type Operation = (&'static str, fn(&Content));

/// All of them, also those that have no test of their own above, with a bound: nothing is torn, lost or left.
#[test]
fn every_pair_of_operations() {
    const OPERATIONS: [Operation; 12] = [
        ("exclusive", change),
        ("shared", share),
        ("optimistic", look_optimistically),
        ("upgrade", upgrade),
        ("shared_if", share_if),
        ("downgrade", downgrade),
        ("exclusive deadline", change_before_deadline),
        ("shared deadline", share_before_deadline),
        ("giving up exclusive", give_up_changing),
        ("giving up shared", give_up_sharing),
        ("try_exclusive", try_to_change),
        ("try_shared", try_to_share),
    ];
    for (place, (one, run_one)) in OPERATIONS.into_iter().enumerate() {
        for (other, run_other) in OPERATIONS.into_iter().skip(place) {
            two(&format!("{one}/{other}"), Some(3), run_one, run_other, consistent);
        }
    }
}
