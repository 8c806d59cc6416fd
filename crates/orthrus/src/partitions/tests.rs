mod beside;
mod carried;
mod turns;

use foreshore_env::{
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};
use foreshore_txn::{LockError, Parted};

use super::*;
use crate::job::Next;

/// A job that is never done, and has a defect when it is told.
struct Endless {
    dropped: Arc<AtomicU64>,
    begun: Arc<AtomicU64>,
    dies: Arc<AtomicBool>,
}

impl Job for Endless {
    fn begin(&mut self) -> Next {
        self.begun.fetch_add(1, Ordering::SeqCst);
        assert!(!self.dies.load(Ordering::SeqCst), "planted");
        Next::Later(Duration::from_millis(1))
    }

    fn locked(&mut self, _: Box<Parted>, _: Result<(), LockError>) -> Next {
        unreachable!("it has asked for no locks")
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

fn wait_for(what: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !what() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    what()
}

const OPTIONS: PartitionOptions = PartitionOptions {
    control_threads: 2,
    execution_threads: 2,
    automatic: false,
    window: 2,
    queue: 1 << 16,
    ring_capacity: 1,
    pin_threads: true,
};

/// ORTHRUS-4: begun or not, jobs are dropped.
#[test]
fn a_thread_that_dies_ends_all_and_every_job_is_told() {
    for dies in [true, false] {
        let (dropped, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let told = Arc::new(AtomicBool::new(false));
        let job =
            || Endless { dropped: Arc::clone(&dropped), begun: Arc::clone(&begun), dies: Arc::clone(&told) };
        let partitions = Partitions::start(OPTIONS).unwrap();
        // More than the windows have room for.
        for _ in 0..10 {
            partitions.submit(Box::new(job()));
        }
        assert!(wait_for(|| begun.load(Ordering::SeqCst) >= 4));
        assert!(!partitions.is_poisoned());
        if dies {
            told.store(true, Ordering::SeqCst);
        } else {
            partitions.stop();
        }
        assert!(wait_for(|| dropped.load(Ordering::SeqCst) == 10), "{dies} {partitions:?}");
        assert_eq!(partitions.is_poisoned(), dies);
        partitions.submit(Box::new(job()));
        assert!(wait_for(|| dropped.load(Ordering::SeqCst) == 11));
    }
}

/// Jobs are begun by whoever has room, up to the windows and no further.
#[test]
fn no_more_is_begun_than_the_windows_have_room_for() {
    let (dropped, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let partitions = Partitions::start(OPTIONS).unwrap();
    for _ in 0..9 {
        let dies = Arc::default();
        let job = Endless { dropped: Arc::clone(&dropped), begun: Arc::clone(&begun), dies };
        partitions.submit(Box::new(job));
    }
    assert!(wait_for(|| partitions.stats().in_flight == 4), "both windows are filled: {partitions:?}");
    let before = partitions.stats().later;
    assert!(wait_for(|| partitions.stats().later >= before + 20), "they are begun again and again");
    let stats = partitions.stats();
    assert_eq!((stats.queued, stats.in_flight), (5, 4));
    assert_eq!((stats.done, dropped.load(Ordering::SeqCst)), (0, 0));
}

/// The limit is one for all queues, also for those of threads that control by now.
#[test]
fn no_more_wait_than_may_where_roles_change() {
    let options = PartitionOptions {
        control_threads: 3,
        execution_threads: 1,
        automatic: true,
        window: 1,
        queue: 8,
        ring_capacity: 1,
        pin_threads: false,
    };
    let partitions = Partitions::start(options).unwrap();
    let dropped = Arc::new(AtomicU64::new(0));
    let job = || Endless { dropped: Arc::clone(&dropped), begun: Arc::default(), dies: Arc::default() };
    let fill = || while partitions.try_submit(Box::new(job())).is_ok() {};
    for controllers in [3, 2, 1, 2, 3] {
        partitions.set_controllers(controllers);
        assert!(wait_for(|| partitions.shared.roles.controllers() == controllers));
        fill();
        // Each thread that executes has begun one, and has no more room.
        assert!(wait_for(|| partitions.stats().in_flight >= 4 - controllers as u64), "{partitions:?}");
        fill();
        assert_eq!(partitions.stats().queued, 8, "{controllers}");
    }
}

/// ORTHRUS-4: where threads end while partitions go from one to another, none stays behind with the locks in its rings.
#[test]
fn no_partition_stays_behind_on_its_way_to_another_thread() {
    let mut left = Vec::new();
    for round in 0..200 {
        let options = PartitionOptions { control_threads: 3, automatic: true, pin_threads: false, ..OPTIONS };
        let partitions = Partitions::start(options).unwrap();
        for controllers in 0..round % 20 {
            partitions.set_controllers(1 + controllers % 4);
        }
        left.push(Arc::downgrade(&partitions.shared));
    }
    assert!(wait_for(|| left.iter().all(|shared| shared.strong_count() == 0)), "a partition is left");
}

/// A job is begun by whoever has room, also when it was given to a thread that has none and others get new ones all the
/// time.
#[test]
fn nobody_is_forgotten_in_the_queue_of_a_thread_without_room() {
    struct Quick(Arc<AtomicU64>);
    impl Job for Quick {
        fn begin(&mut self) -> Next {
            self.0.fetch_add(1, Ordering::SeqCst);
            Next::Done
        }

        fn locked(&mut self, _: Box<Parted>, _: Result<(), LockError>) -> Next {
            unreachable!("it has asked for no locks")
        }
    }
    let partitions = Partitions::start(PartitionOptions { window: 1, ..OPTIONS }).unwrap();
    let endless = Endless { dropped: Arc::default(), begun: Arc::default(), dies: Arc::default() };
    // One of the two threads has no room from now on.
    partitions.submit(Box::new(endless));
    assert!(wait_for(|| partitions.stats().in_flight == 1));
    let done = Arc::new(AtomicU64::new(0));
    for number in 1..200 {
        partitions.submit(Box::new(Quick(Arc::clone(&done))));
        // A few are always there.
        assert!(wait_for(|| done.load(Ordering::SeqCst) + 4 >= number), "{partitions:?}");
    }
    assert!(wait_for(|| done.load(Ordering::SeqCst) == 199), "{partitions:?}");
}

/// A job that repeats itself stays where it is as long as nobody else wants its place: those who come are begun, and it
/// goes on.
#[test]
fn what_repeats_itself_keeps_nobody_out() {
    struct Repeats(Arc<AtomicU64>, Arc<AtomicBool>);
    impl Job for Repeats {
        fn begin(&mut self) -> Next {
            self.0.fetch_add(1, Ordering::SeqCst);
            if self.1.load(Ordering::SeqCst) { Next::Done } else { Next::Again }
        }

        fn locked(&mut self, _: Box<Parted>, _: Result<(), LockError>) -> Next {
            unreachable!("it has asked for no locks")
        }
    }
    for automatic in [false, true] {
        let partitions = Partitions::start(PartitionOptions { window: 1, automatic, ..OPTIONS }).unwrap();
        let (begun, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        // More than there are places.
        for _ in 0..5 {
            partitions.submit(Box::new(Repeats(Arc::clone(&begun), Arc::clone(&ends))));
        }
        let done = Arc::new(AtomicBool::new(true));
        for round in 0..50 {
            let others = Arc::new(AtomicU64::new(0));
            for _ in 0..4 {
                partitions.submit(Box::new(Repeats(Arc::clone(&others), Arc::clone(&done))));
            }
            partitions.set_controllers(1 + round % 2);
            assert!(wait_for(|| others.load(Ordering::SeqCst) == 4), "{partitions:?}");
            let before = begun.load(Ordering::SeqCst);
            assert!(wait_for(|| begun.load(Ordering::SeqCst) > before + 5), "{partitions:?}");
        }
        ends.store(true, Ordering::SeqCst);
        let at_rest = || {
            let stats = partitions.stats();
            (stats.in_flight, stats.queued, stats.done) == (0, 0, begun.load(Ordering::SeqCst) + 200)
        };
        assert!(wait_for(at_rest), "{:?}", partitions.stats());
    }
}

/// Asked to, every thread stays on one processor, and says so; the system confirms it of those that run jobs.
#[test]
fn threads_stay_where_they_are_told_to() {
    struct Asks(Arc<AtomicU64>);
    impl Job for Asks {
        fn begin(&mut self) -> Next {
            self.0.store(thread::processors() as u64, Ordering::SeqCst);
            Next::Done
        }

        fn locked(&mut self, _: Box<Parted>, _: Result<(), LockError>) -> Next {
            unreachable!("it has asked for no locks")
        }
    }
    let can = thread::Builder::new().spawn(|| thread::pin(0)).unwrap().join().unwrap();
    if !can {
        println!("this machine keeps no thread on a processor");
    }
    let everywhere = thread::processors() as u64;
    for pin_threads in [true, false] {
        let partitions = Partitions::start(PartitionOptions { pin_threads, ..OPTIONS }).unwrap();
        let pinned = pin_threads && can;
        for _ in 0..20 {
            let seen = Arc::new(AtomicU64::new(u64::MAX));
            partitions.submit(Box::new(Asks(Arc::clone(&seen))));
            assert!(wait_for(|| seen.load(Ordering::SeqCst) != u64::MAX));
            assert_eq!(seen.load(Ordering::SeqCst), if pinned { 1 } else { everywhere });
        }
        let all = || partitions.threads().iter().all(|thread| thread.pinned == pinned);
        assert!(wait_for(all), "{:?}", partitions.threads());
    }
}
