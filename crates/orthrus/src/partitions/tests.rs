use foreshore_env::{
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};
use foreshore_txn::{LockError, Parted};

use super::*;
use crate::job::Next;

/// A job that is never done, or has a defect.
struct Endless {
    dropped: Arc<AtomicU64>,
    begun: Arc<AtomicU64>,
    dies: bool,
}

impl Job for Endless {
    fn begin(&mut self) -> Next {
        self.begun.fetch_add(1, Ordering::SeqCst);
        assert!(!self.dies, "planted");
        Next::Later
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
    let deadline = Instant::now() + Duration::from_secs(20);
    while !what() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    what()
}

const OPTIONS: PartitionOptions =
    PartitionOptions { control_threads: 2, execution_threads: 2, window: 2, ring_capacity: 1 };

/// ORTHRUS-4: begun or not, jobs are dropped.
#[test]
fn a_thread_that_dies_ends_all_and_every_job_is_told() {
    for dies in [true, false] {
        let (dropped, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let job = |dies| Endless { dropped: Arc::clone(&dropped), begun: Arc::clone(&begun), dies };
        let partitions = Partitions::start(OPTIONS).unwrap();
        for _ in 0..3 {
            partitions.submit(Box::new(job(false)));
        }
        assert!(wait_for(|| begun.load(Ordering::SeqCst) >= 3));
        partitions.submit(Box::new(job(dies)));
        // More than the windows have room for.
        for _ in 0..6 {
            partitions.submit(Box::new(job(false)));
        }
        if !dies {
            assert!(!partitions.is_poisoned());
            partitions.stop();
        }
        assert!(wait_for(|| dropped.load(Ordering::SeqCst) == 10), "{dies} {partitions:?}");
        assert_eq!(partitions.is_poisoned(), dies);
        partitions.submit(Box::new(job(false)));
        assert!(wait_for(|| dropped.load(Ordering::SeqCst) == 11));
    }
}

/// Jobs are begun by whoever has room, up to the windows and no further.
#[test]
fn no_more_is_begun_than_the_windows_have_room_for() {
    let (dropped, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let partitions = Partitions::start(OPTIONS).unwrap();
    for _ in 0..9 {
        let job = Endless { dropped: Arc::clone(&dropped), begun: Arc::clone(&begun), dies: false };
        partitions.submit(Box::new(job));
    }
    assert!(wait_for(|| partitions.stats().later >= 20), "they are begun again and again");
    assert_eq!(partitions.shared.jobs.lock().len(), 5);
    assert_eq!((partitions.stats().done, dropped.load(Ordering::SeqCst)), (0, 0));
}
