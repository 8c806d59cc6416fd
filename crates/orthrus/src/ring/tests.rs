use super::*;

/// Counts that wrap on the way, capacities 1 and 2.
const STARTS: [usize; 2] = [0, usize::MAX - 1];

#[cfg(foreshore_loom)]
mod models {
    //! Every interleaving, with every value that weak memory allows; where both ends sleep, every one in which a thread
    //! is interrupted three times at most:
    //!
    //! ```text
    //! RUSTFLAGS="--cfg foreshore_loom" cargo test -p foreshore-orthrus --release --lib --target-dir target/loom
    //! ```
    //!
    //! Loom also checks that no place is accessed by both ends at a time.

    use foreshore_env::{
        sync::atomic::{Ordering, fence},
        thread,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::bell::Bell;

    #[test]
    fn messages_come_once_and_in_order() {
        for capacity in [1, 2] {
            for start in STARTS {
                loom::model(move || {
                    let (mut sender, mut receiver) = starting_at(capacity, start);
                    let sending = thread::spawn(move || {
                        let mut sent = 0;
                        while sent < 3 {
                            match sender.send(Box::new(sent)) {
                                Ok(()) => sent += 1,
                                Err(_) => thread::yield_now(),
                            }
                        }
                    });
                    let mut expected = 0;
                    while expected < 3 {
                        match receiver.receive() {
                            Some(message) => {
                                assert_eq!(*message, expected);
                                expected += 1;
                            }
                            None => thread::yield_now(),
                        }
                    }
                    assert!(receiver.receive().is_none());
                    sending.join().unwrap();
                });
            }
        }
    }

    /// Sends one message more than there is room for, from a thread that sleeps when the ring is full to one that
    /// sleeps when it is empty. Loom has no time: who sleeps and is not rung for never wakes, and that is a deadlock.
    /// `fenced`: with the fence of the receiver.
    fn sleep_at_both_ends(capacity: usize, start: usize, fenced: bool) {
        const LONG: Duration = Duration::from_secs(3600);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let (mut sender, mut receiver) = starting_at(capacity, start);
            let bells = Arc::new([Bell::default(), Bell::default()]);
            let theirs = Arc::clone(&bells);
            let sending = thread::spawn(move || {
                for number in 0..=capacity {
                    let mut message = Box::new(number);
                    while let Err(refused) = sender.send(message) {
                        message = refused;
                        sender.await_room(true);
                        theirs[0].sleep(Instant::now() + LONG, false, false, || sender.has_room());
                        sender.await_room(false);
                    }
                    theirs[1].ring();
                }
            });
            for expected in 0..=capacity {
                let message = loop {
                    match receiver.receive() {
                        Some(message) => break message,
                        None => bells[1].sleep(Instant::now() + LONG, false, false, || !receiver.is_empty()),
                    }
                };
                assert_eq!(*message, expected);
                if fenced {
                    fence(Ordering::SeqCst);
                }
                if receiver.is_awaited() {
                    bells[0].ring_after_fence();
                }
            }
            sending.join().unwrap();
        });
    }

    #[test]
    fn who_waits_for_room_is_woken_by_whoever_makes_it() {
        for capacity in [1, 2] {
            STARTS.into_iter().for_each(|start| sleep_at_both_ends(capacity, start, true));
        }
    }

    /// The model finds who is forgotten.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn without_the_fence_somebody_sleeps_on() {
        sleep_at_both_ends(1, 0, false);
    }

    /// What nobody received is dropped with the ring, whoever lets go last.
    #[test]
    fn messages_left_behind_are_dropped() {
        loom::model(|| {
            let (mut sender, mut receiver) = starting_at(2, usize::MAX);
            let message = Arc::new(());
            let left = Arc::clone(&message);
            let sending = thread::spawn(move || {
                let _ = sender.send(Arc::clone(&left));
                let _ = sender.send(left);
            });
            drop(receiver.receive());
            drop(receiver);
            sending.join().unwrap();
            assert_eq!(Arc::strong_count(&message), 1);
        });
    }
}

#[cfg(not(foreshore_loom))]
mod real {
    use foreshore_env::{hint::spin_loop, thread};

    use super::*;

    #[test]
    fn a_full_ring_gives_the_message_back() {
        for start in STARTS {
            for (capacity, places) in [(0, 1), (1, 1), (2, 2), (3, 4)] {
                let (mut sender, mut receiver) = starting_at(capacity, start);
                for round in 0..5 {
                    assert!(receiver.is_empty());
                    for number in 0..places {
                        assert_eq!(sender.send((round, number)), Ok(()));
                    }
                    assert_eq!(sender.send((round, 99)), Err((round, 99)));
                    for number in 0..places {
                        assert_eq!(receiver.receive(), Some((round, number)));
                    }
                    assert_eq!(receiver.receive(), None);
                }
            }
        }
    }

    /// A thread that has said so is seen to wait, until it has said otherwise.
    #[test]
    fn the_receiver_learns_who_waits_for_room() {
        let (mut sender, mut receiver) = ring(1);
        assert!(sender.has_room() && !receiver.is_awaited());
        assert_eq!(sender.send(1), Ok(()));
        assert!(!sender.has_room());
        sender.await_room(true);
        assert!(receiver.is_awaited());
        assert_eq!(receiver.receive(), Some(1));
        assert!(sender.has_room() && receiver.is_awaited());
        sender.await_room(false);
        assert!(!receiver.is_awaited());
    }

    #[test]
    fn many_messages_come_in_order() {
        for capacity in [1, 2, 64] {
            let (mut sender, mut receiver) = starting_at(capacity, usize::MAX - 100);
            thread::scope(|scope| {
                scope.spawn(move || {
                    for number in 0..20_000_u32 {
                        while sender.send(number).is_err() {
                            thread::yield_now();
                        }
                    }
                });
                for number in 0..20_000 {
                    loop {
                        if let Some(message) = receiver.receive() {
                            assert_eq!(message, number);
                            break;
                        }
                        spin_loop();
                        thread::yield_now();
                    }
                }
            });
            assert!(receiver.is_empty());
        }
    }
}
