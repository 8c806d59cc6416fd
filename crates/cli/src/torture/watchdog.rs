//! Whether threads that work still get on.

use foreshore::Database;
use foreshore_env::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Whoever commits nothing for so long hangs, longer than any wait may take, if nobody else commits either, or if he was overtaken.
const LONGEST_SILENCE: Duration = Duration::from_secs(20);
/// Overtaken is whoever commits nothing while the others do so often each, on average. Of many threads on a slow machine, with many
/// before them in every queue, it may take long for each to have its turn.
const OVERTAKEN: u64 = 20;
/// [`Watchdog::last`]: it need not get on any more.
const ENDED: u64 = u64::MAX;
/// Waits that are told of.
const MOST_WAITS: usize = 10;

/// Looks after threads that work on a database.
#[derive(Debug)]
pub(crate) struct Watchdog {
    begun: Instant,
    /// When each thread got on last, in milliseconds since the beginning, or `ENDED`. Written by that thread, relaxed: a late look is
    /// no harm.
    last: Vec<AtomicU64>,
    /// How often all had got on together when each did last. As `last`.
    steps_then: Vec<AtomicU64>,
    /// How often all have got on together. Counted by all of them, relaxed.
    steps: AtomicU64,
    /// The longest that a thread committed nothing. Guarded by the mutex.
    longest: Mutex<Duration>,
    patience: Duration,
}

impl Watchdog {
    pub(crate) fn new(threads: usize) -> Watchdog {
        Watchdog::with_patience(threads, LONGEST_SILENCE)
    }

    pub(crate) fn with_patience(threads: usize, patience: Duration) -> Watchdog {
        Watchdog {
            begun: Instant::now(),
            last: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            steps_then: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            steps: AtomicU64::new(0),
            longest: Mutex::default(),
            patience,
        }
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// A thread has got on.
    pub(crate) fn progress(&self, thread: usize) {
        let steps = self.steps.fetch_add(1, Ordering::Relaxed);
        self.steps_then[thread].store(steps, Ordering::Relaxed);
        self.last[thread].store(self.now(), Ordering::Relaxed);
    }

    /// A thread has ended.
    pub(crate) fn ended(&self, thread: usize) {
        self.last[thread].store(ENDED, Ordering::Relaxed);
    }

    /// The longest that a thread did not get on, as far as was seen.
    pub(crate) fn longest_silence(&self) -> Duration {
        *self.longest.lock()
    }

    /// Looks once; gives who waits for whom if a thread hangs.
    pub(crate) fn look(&self, database: &Database) -> Option<String> {
        let now = self.now();
        let last = self.last.iter().map(|last| last.load(Ordering::Relaxed));
        let at_work: Vec<(u64, usize)> = last.zip(0..).filter(|(last, _)| *last != ENDED).collect();
        let &(longest_ago, thread) = at_work.iter().min()?;
        let &(latest, _) = at_work.iter().max()?;
        let [silence, silence_of_all] =
            [longest_ago, latest].map(|last| Duration::from_millis(now.saturating_sub(last)));
        let steps = self.steps.load(Ordering::Relaxed);
        let since = steps.saturating_sub(self.steps_then[thread].load(Ordering::Relaxed));
        let was_overtaken = since / self.last.len() as u64 >= OVERTAKEN;
        {
            let mut longest = self.longest.lock();
            *longest = silence.max(*longest);
        }
        let hangs = silence >= self.patience && (was_overtaken || silence_of_all >= self.patience);
        hangs.then(|| report(thread, silence, database))
    }

    /// Whether all threads have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.last.iter().all(|last| last.load(Ordering::Relaxed) == ENDED)
    }
}

/// Who waits for whom, in lines.
fn report(thread: usize, silence: Duration, database: &Database) -> String {
    let waits = database.waits_for().waits;
    let mut text = format!(
        "HANGS: thread {thread} has done nothing for {:.1} s; {} transactions wait for locks",
        silence.as_secs_f64(),
        waits.len()
    );
    for wait in waits.iter().take(MOST_WAITS) {
        text.push_str(&format!("\n  {wait}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use foreshore::TableDefinition;
    use foreshore_env::thread;

    use super::*;

    const TABLE: TableDefinition<&str, u32> = TableDefinition::new("t");

    #[test]
    fn a_thread_that_hangs_is_reported_with_what_it_waits_for() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path().join("db")).unwrap();
        let mut holder = database.begin().unwrap();
        holder.put(TABLE, "key", 1).unwrap();
        let watchdog = Watchdog::with_patience(2, Duration::from_millis(200));
        watchdog.ended(1);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| database.transact(|tx| tx.put(TABLE, "key", 2).map(|_| ())));
            let patient = Watchdog::with_patience(1, Duration::from_secs(600));
            assert_eq!(patient.look(&database), None);
            while database.waits_for().waits.is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(200));
            let hang = watchdog.look(&database).unwrap();
            assert!(hang.contains("HANGS: thread 0") && hang.contains("1 transactions wait"), "{hang}");
            assert!(hang.contains("key \"key\" of t, to change the key; in its way"), "{hang}");
            // The machine may be busy for once between the two.
            let gets_on = (0..1000).any(|_| {
                watchdog.progress(0);
                watchdog.look(&database).is_none()
            });
            assert!(gets_on);
            holder.rollback().unwrap();
            waiter.join().unwrap().unwrap();
        });
        assert!(watchdog.longest_silence() >= Duration::from_millis(200) && !watchdog.is_over());
        watchdog.ended(0);
        assert!(watchdog.is_over());
    }

    #[test]
    fn where_all_are_slow_nobody_hangs_but_who_is_overtaken_does() {
        const PATIENCE: Duration = Duration::from_secs(1);
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path().join("db")).unwrap();
        let watchdog = Watchdog::with_patience(3, PATIENCE);
        thread::sleep(PATIENCE);
        assert!(watchdog.look(&database).is_some(), "nobody gets on");
        // The machine may be busy for once between the two.
        let is_slow = (0..50).any(|_| {
            watchdog.progress(1);
            watchdog.look(&database).is_none()
        });
        assert!(is_slow);
        (0..3 * OVERTAKEN).for_each(|_| watchdog.progress(1));
        let hang = watchdog.look(&database).unwrap();
        assert!(hang.contains("thread 0") || hang.contains("thread 2"), "{hang}");
    }
}
