//! Who gets a turn, who is woken for it, and what panics where all end.

use super::*;

/// A job that does this.
struct Does<F>(F);

impl<F: FnMut() -> Next + Send> Job for Does<F> {
    fn begin(&mut self) -> Next {
        (self.0)()
    }

    fn locked(&mut self, _: Box<Parted>, _: Result<(), LockError>) -> Next {
        unreachable!("it has asked for no locks")
    }
}

/// Tells that it has begun, and is in the middle of it until it may end.
fn long_body(begun: &Arc<AtomicBool>, may_end: &Arc<AtomicBool>) -> Box<dyn Job> {
    let (begun, may_end) = (Arc::clone(begun), Arc::clone(may_end));
    Box::new(Does(move || {
        begun.store(true, Ordering::SeqCst);
        assert!(wait_for(|| may_end.load(Ordering::SeqCst)));
        Next::Done
    }))
}

/// What repeats itself gets its turn though there are new jobs all the time, each of which is over at once.
#[test]
fn what_is_new_keeps_nobody_out() {
    /// Puts another one into the queue before it is over.
    fn feed(shared: &Arc<Shared>, ends: &Arc<AtomicBool>) {
        let again = (Arc::clone(shared), Arc::clone(ends));
        shared.submit(Box::new(Does(move || {
            if !again.1.load(Ordering::SeqCst) {
                feed(&again.0, &again.1);
            }
            Next::Done
        })));
    }
    let options = PartitionOptions { execution_threads: 1, window: 8, pin_threads: false, ..OPTIONS };
    let partitions = Partitions::start(options).unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    (0..3).for_each(|_| feed(&partitions.shared, &ends));
    let repeated = Arc::new(AtomicU64::new(0));
    let (count, over) = (Arc::clone(&repeated), Arc::clone(&ends));
    partitions.submit(Box::new(Does(move || {
        count.fetch_add(1, Ordering::SeqCst);
        if over.load(Ordering::SeqCst) { Next::Done } else { Next::Again }
    })));
    assert!(wait_for(|| repeated.load(Ordering::SeqCst) >= 100), "{partitions:?}");
    ends.store(true, Ordering::SeqCst);
    assert!(wait_for(|| partitions.stats().in_flight == 0 && partitions.stats().queued == 0));
}

/// A thread runs a long one, and the others are full of jobs that repeat themselves: what lay in the queue of the first
/// stayed there until that one was over.
#[test]
fn nobody_is_forgotten_behind_a_long_one_while_the_others_are_full() {
    let options = PartitionOptions { execution_threads: 3, window: 1, pin_threads: false, ..OPTIONS };
    let partitions = Partitions::start(options).unwrap();
    let may_end = Arc::new(AtomicBool::new(false));
    let long = Arc::new(AtomicBool::new(false));
    partitions.submit(long_body(&long, &may_end));
    assert!(wait_for(|| long.load(Ordering::SeqCst)));
    let repeating: [Arc<AtomicBool>; 2] = Default::default();
    for begun in repeating.clone() {
        let over = Arc::clone(&may_end);
        partitions.submit(Box::new(Does(move || {
            begun.store(true, Ordering::SeqCst);
            if over.load(Ordering::SeqCst) { Next::Done } else { Next::Again }
        })));
    }
    assert!(wait_for(|| repeating.iter().all(|begun| begun.load(Ordering::SeqCst))), "{partitions:?}");
    let quick = Arc::new(AtomicU64::new(0));
    for number in 1..=12 {
        let count = Arc::clone(&quick);
        partitions.submit(Box::new(Does(move || {
            count.fetch_add(1, Ordering::SeqCst);
            Next::Done
        })));
        assert!(wait_for(|| quick.load(Ordering::SeqCst) == number), "{partitions:?}");
    }
    may_end.store(true, Ordering::SeqCst);
    assert!(wait_for(|| partitions.stats().in_flight == 0));
}

/// Of two jobs that come one right after the other, each wakes a thread of its own. No thread here wakes by itself.
#[test]
fn each_job_wakes_another_sleeper() {
    let options = PartitionOptions { execution_threads: 4, window: 1, pin_threads: false, ..OPTIONS };
    let partitions = Partitions::start(options).unwrap();
    for round in 0..200 {
        let (running, may_end) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let busy = || {
            let (running, may_end) = (Arc::clone(&running), Arc::clone(&may_end));
            Box::new(Does(move || {
                running.fetch_add(1, Ordering::SeqCst);
                assert!(wait_for(|| may_end.load(Ordering::SeqCst)));
                Next::Done
            }))
        };
        (0..2).for_each(|_| partitions.submit(busy()));
        assert!(wait_for(|| running.load(Ordering::SeqCst) == 2), "round {round}: {partitions:?}");
        // Time enough, mostly, for the other two to fall asleep.
        thread::sleep(Duration::from_millis(1));
        (0..2).for_each(|_| partitions.submit(busy()));
        assert!(wait_for(|| running.load(Ordering::SeqCst) == 4), "round {round}: {partitions:?}");
        may_end.store(true, Ordering::SeqCst);
        assert!(wait_for(|| partitions.stats().in_flight == 0));
    }
}

/// Panics where it is dropped.
struct Fatal(Arc<AtomicU64>);

impl Drop for Fatal {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("planted, in a destructor");
    }
}

/// ORTHRUS-4: where all end, destructors that panic keep no other job from its end, and do not meet: not those of jobs
/// that nobody has begun, nor those of jobs that a dying thread had in hand.
#[test]
fn destructors_that_panic_end_nothing_but_their_jobs() {
    for dies in [false, true] {
        let options = PartitionOptions { execution_threads: 1, pin_threads: false, ..OPTIONS };
        let partitions = Partitions::start(options).unwrap();
        let (begun, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        for _ in 0..6 {
            let (fatal, begun) = (Fatal(Arc::clone(&dropped)), Arc::clone(&begun));
            partitions.submit(Box::new(Does(move || {
                let _captured = &fatal;
                begun.fetch_add(1, Ordering::SeqCst);
                Next::Later(Duration::from_millis(1))
            })));
        }
        // Some are in hand, the others have no room.
        assert!(wait_for(|| begun.load(Ordering::SeqCst) >= 2 && partitions.stats().in_flight == 2));
        if dies {
            partitions.shared.doomed.store(options.control_threads, Ordering::SeqCst);
        } else {
            partitions.stop();
        }
        assert!(wait_for(|| dropped.load(Ordering::SeqCst) == 6), "{dies}: {partitions:?}");
        assert_eq!(partitions.is_poisoned(), dies);
    }
}

/// A job that counts how it ends: with 100 when it is begun, with 1 at its deadline.
struct Waits {
    deadline: Option<Instant>,
    ends: Arc<AtomicU64>,
    again: bool,
}

impl Job for Waits {
    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn overdue(&mut self) -> bool {
        assert!(Instant::now() >= self.deadline.take().unwrap());
        self.ends.fetch_add(1, Ordering::SeqCst);
        self.again
    }

    fn begin(&mut self) -> Next {
        self.ends.fetch_add(100, Ordering::SeqCst);
        Next::Done
    }

    fn locked(&mut self, _: Box<Parted>, _: Result<(), LockError>) -> Next {
        unreachable!("it has asked for no locks")
    }
}

/// Both threads sleep without room, for as long as the tests' threads sleep, and are told of each deadline that is
/// nearer than the ones that they know; one that has passed is not begun.
#[test]
fn what_nobody_has_room_for_ends_at_its_deadline() {
    let partitions = Partitions::start(PartitionOptions { window: 1, queue: 5, ..OPTIONS }).unwrap();
    let free = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let free = Arc::clone(&free);
        partitions.submit(Box::new(Does(move || {
            if free.load(Ordering::SeqCst) { Next::Done } else { Next::Later(Duration::from_secs(5)) }
        })));
    }
    assert!(wait_for(|| partitions.stats().later == 2), "{partitions:?}");
    let ends = Arc::new(AtomicU64::new(0));
    let job = |milliseconds: Option<u64>, again| {
        let deadline = milliseconds.map(|until| Instant::now() + Duration::from_millis(until));
        Box::new(Waits { deadline, ends: Arc::clone(&ends), again })
    };
    let begun = Instant::now();
    for until in [Some(300_000), None, Some(40), Some(20)] {
        partitions.try_submit(job(until, false)).unwrap();
    }
    partitions.try_submit(job(Some(30), true)).unwrap();
    assert!(partitions.try_submit(job(Some(10), false)).is_err(), "there are as many as may be");
    assert!(wait_for(|| ends.load(Ordering::SeqCst) == 3), "{partitions:?}");
    assert!(begun.elapsed() < Duration::from_secs(4), "not when they had room");
    // The one that goes on has no deadline any more.
    assert_eq!(partitions.stats().queued, 3);
    free.store(true, Ordering::SeqCst);
    assert!(wait_for(|| ends.load(Ordering::SeqCst) == 303), "{partitions:?}");
    assert!(wait_for(|| (partitions.stats().in_flight, partitions.stats().queued) == (0, 0)));
}

/// A thread in the middle of a long body takes nothing. What the other had given to it, because it seemed to have less,
/// stood still until that body was over.
#[test]
fn what_goes_to_a_thread_in_a_long_body_goes_on() {
    let options = PartitionOptions { window: 4, pin_threads: false, ..OPTIONS };
    let partitions = Partitions::start(options).unwrap();
    let (begun, may_end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    partitions.submit(long_body(&begun, &may_end));
    assert!(wait_for(|| begun.load(Ordering::SeqCst)));
    let counts: [Arc<AtomicU64>; 4] = Default::default();
    for count in counts.clone() {
        let over = Arc::clone(&may_end);
        partitions.submit(Box::new(Does(move || {
            count.fetch_add(1, Ordering::SeqCst);
            if over.load(Ordering::SeqCst) { Next::Done } else { Next::Again }
        })));
    }
    let all_go_on = || counts.iter().all(|count| count.load(Ordering::SeqCst) >= 1000);
    assert!(wait_for(all_go_on), "{counts:?} {partitions:?}");
    may_end.store(true, Ordering::SeqCst);
    assert!(wait_for(|| (partitions.stats().in_flight, partitions.stats().queued) == (0, 0)));
}

/// Its deadline counts there, too: the other thread, which sleeps without room, is told.
#[test]
fn what_goes_to_a_thread_in_a_long_body_ends_at_its_deadline() {
    let partitions = Partitions::start(PartitionOptions { window: 1, ..OPTIONS }).unwrap();
    partitions.submit(Box::new(Does(|| Next::Later(Duration::from_secs(3600)))));
    let is_full =
        |number| partitions.shared.counts(Actor::Execution(number)).in_hand.load(Ordering::Relaxed) == 1;
    assert!(wait_for(|| is_full(0) || is_full(1)), "{partitions:?}");
    let full = usize::from(is_full(1));
    let (begun, may_end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    partitions.submit(long_body(&begun, &may_end));
    assert!(wait_for(|| begun.load(Ordering::SeqCst)), "{partitions:?}");
    let ends = Arc::new(AtomicU64::new(0));
    let deadline = Some(Instant::now() + Duration::from_millis(40));
    let job = Box::new(Waits { deadline, ends: Arc::clone(&ends), again: false });
    // As the other one does it.
    assert!(partitions.shared.hand_over(job, full, 2).is_none());
    assert!(wait_for(|| ends.load(Ordering::SeqCst) == 1), "{partitions:?}");
    may_end.store(true, Ordering::SeqCst);
}
