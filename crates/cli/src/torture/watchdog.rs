//! Whether threads that work still get on.
//!
//! A thread may commit nothing for long although nothing is wrong: of five hundred in long queues on a slow processor,
//! a thread that stands at the end of a chain waits for all before it, and others, which meet nobody, commit a thousand
//! times meanwhile. As long as its turn comes nearer it does not hang. So the watchdog follows the chain of those who
//! wait for each other, from the thread on: it hangs if nothing has changed there for as long again.
//!
//! Time in which the program is stopped is nobody's silence. Nor is it a fault of ours how long others keep the
//! processors to themselves: what is too long whatever changes is measured in time that the program has computed.

use foreshore::{Database, TxnId, WaitView};
use foreshore_env::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, computed},
};

/// A thread that commits nothing for this long, longer than any wait may take, hangs, if nobody else commits either; if
/// the others do, it is looked at.
const LONGEST_SILENCE: Duration = Duration::from_secs(20);
/// How often each of the others commits, on average, while a thread that is looked at commits nothing. All may be slow.
const OVERTAKEN: u64 = 20;
/// How many times the longest silence the program may compute, on all processors together, while a thread is looked at.
/// More is too long whatever changes: a bound that no queue explains.
const TOO_LONG: u32 = 9;
/// Between two looks no more time passes than this. They come more often, unless the program is stopped or has no
/// processor.
const LONGEST_GAP: Duration = Duration::from_secs(2);
/// [`Watchdog::last`]: it need not get on any more.
const ENDED: u64 = u64::MAX;
/// Waits that are told of.
const MOST_WAITS: usize = 10;

/// Transactions that wait for each other, one after another, each with the number of its wait; the last waits for no
/// lock, and has none.
type Chain = Vec<(TxnId, Option<u64>)>;

/// A thread that is looked at.
#[derive(Debug)]
struct Watched {
    thread: usize,
    /// How long the program had computed when that began.
    computed: Duration,
    /// Whom it waits for.
    chain: Chain,
    /// Since when that is so, in milliseconds since the beginning.
    since: u64,
}

/// Looks after threads that work on a database.
#[derive(Debug)]
pub(crate) struct Watchdog {
    begun: Instant,
    /// When each thread got on last, in milliseconds since the beginning, or `ENDED`. Written by that thread, relaxed:
    /// a late look is no harm.
    last: Vec<AtomicU64>,
    /// How often all had got on together when each did last. As `last`.
    steps_then: Vec<AtomicU64>,
    /// How often all have got on together. Counted by all of them, relaxed.
    steps: AtomicU64,
    /// How often each has run a transaction since it got on last. As `last`.
    runs: Vec<AtomicU64>,
    /// The engine's number of each one's last run. As `last`.
    numbers: Vec<AtomicU64>,
    /// When somebody looked last. Guarded by the mutex.
    looked: Mutex<Instant>,
    /// Milliseconds since the beginning that do not count, for [`LONGEST_GAP`]. Written by the thread that looks,
    /// relaxed, as `last`.
    lost: AtomicU64,
    /// The thread that is looked at.
    watched: Mutex<Option<Watched>>,
    /// The longest that a thread committed nothing. Guarded by the mutex.
    longest: Mutex<Duration>,
    patience: Duration,
}

impl Watchdog {
    pub(crate) fn new(threads: usize) -> Watchdog {
        Watchdog::with_patience(threads, LONGEST_SILENCE)
    }

    pub(crate) fn with_patience(threads: usize, patience: Duration) -> Watchdog {
        let begun = Instant::now();
        Watchdog {
            begun,
            last: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            steps_then: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            steps: AtomicU64::new(0),
            runs: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            numbers: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            looked: Mutex::new(begun),
            lost: AtomicU64::new(0),
            watched: Mutex::default(),
            longest: Mutex::default(),
            patience,
        }
    }

    fn now(&self) -> u64 {
        (self.begun.elapsed().as_millis() as u64).saturating_sub(self.lost.load(Ordering::Relaxed))
    }

    /// Takes note that somebody looks now.
    fn looks(&self, now: Instant) {
        let gap = now.saturating_duration_since(std::mem::replace(&mut *self.looked.lock(), now));
        let lost = gap.saturating_sub(LONGEST_GAP).as_millis() as u64;
        self.lost.fetch_add(lost, Ordering::Relaxed);
    }

    /// A thread runs its transaction, for the first time or again; the engine calls this run by a number.
    pub(crate) fn runs(&self, thread: usize, number: Option<u64>) {
        self.runs[thread].fetch_add(1, Ordering::Relaxed);
        self.numbers[thread].store(number.unwrap_or(0), Ordering::Relaxed);
    }

    /// A thread has got on.
    pub(crate) fn progress(&self, thread: usize) {
        let steps = self.steps.fetch_add(1, Ordering::Relaxed);
        self.steps_then[thread].store(steps, Ordering::Relaxed);
        self.runs[thread].store(0, Ordering::Relaxed);
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
        self.looks(Instant::now());
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
        if silence < self.patience || !(was_overtaken || silence_of_all >= self.patience) {
            *self.watched.lock() = None;
            return None;
        }
        let [runs, number] = [&self.runs, &self.numbers].map(|of| of[thread].load(Ordering::Relaxed));
        let waits = database.waits_for().waits;
        let chain = chain(TxnId(number), &waits);
        // Where nobody counts what is computed, the time that passes counts.
        let computed = computed().unwrap_or(silence);
        let hangs = silence_of_all >= self.patience || self.stands_still(thread, &chain, now, computed);
        hangs.then(|| {
            let whose = format!("HANGS: thread {thread} has done nothing for {:.1} s", silence.as_secs_f64());
            let others = format!("all have got on {since} times meanwhile, it has run {runs} times");
            format!("{whose}; {others}; {}", report(&chain, waits, database))
        })
    }

    /// Whether those whom a thread waits for are the same for so long, in the same waits; or the program has computed
    /// too long since it is looked at.
    fn stands_still(&self, thread: usize, chain: &Chain, now: u64, computed: Duration) -> bool {
        let mut watched = self.watched.lock();
        match &mut *watched {
            Some(watched) if watched.thread == thread => {
                if watched.chain != *chain {
                    (watched.chain, watched.since) = (chain.clone(), now);
                }
                Duration::from_millis(now.saturating_sub(watched.since)) >= self.patience
                    || computed.saturating_sub(watched.computed) >= self.patience * TOO_LONG
            }
            _ => {
                *watched = Some(Watched { thread, computed, chain: chain.clone(), since: now });
                false
            }
        }
    }

    /// Whether all threads have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.last.iter().all(|last| last.load(Ordering::Relaxed) == ENDED)
    }
}

/// Whom a transaction waits for, and whom that one waits for, and so on: of those in the way the first each time.
fn chain(first: TxnId, waits: &[WaitView]) -> Chain {
    let mut chain = Chain::new();
    let mut next = Some(first);
    // A cycle ends where it began.
    while let Some(id) = next.filter(|next| chain.iter().all(|(id, _)| id != next)) {
        let wait = waits.iter().find(|wait| wait.transaction.id == id);
        chain.push((id, wait.map(|wait| wait.number)));
        next = wait.and_then(|wait| wait.blockers.first()).map(|blocker| blocker.transaction.id);
    }
    chain
}

/// Who waits for whom, in lines: first the chain, then those who have waited longest.
fn report(chain: &Chain, mut waits: Vec<WaitView>, database: &Database) -> String {
    let stats = database.stats();
    let mut text = format!(
        "{} transactions wait for locks, {} to be let in (at most {} are); {} deadlocks so far; {} in a chain",
        waits.len(),
        stats.admission_waiting,
        stats.admission_limit,
        stats.deadlocks,
        chain.len()
    );
    waits.sort_by_key(|wait| {
        let place = chain.iter().position(|(id, _)| *id == wait.transaction.id);
        (place.unwrap_or(usize::MAX), std::cmp::Reverse(wait.waited))
    });
    for wait in waits.iter().take(MOST_WAITS) {
        text.push_str(&format!("\n  {wait}"));
    }
    if let Some((last, None)) = chain.last() {
        text.push_str(&format!("\n  transaction {last}, the last of the chain, waits for no lock"));
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
        let hang = loop {
            (0..3 * OVERTAKEN).for_each(|_| watchdog.progress(1));
            if let Some(hang) = watchdog.look(&database) {
                break hang;
            }
            thread::sleep(Duration::from_millis(10));
        };
        assert!(hang.contains("thread 0") || hang.contains("thread 2"), "{hang}");
    }

    #[test]
    fn who_comes_nearer_does_not_hang() {
        let watchdog = Watchdog::with_patience(1, Duration::from_millis(100));
        let stands_still = |chain: &Chain, now| watchdog.stands_still(0, chain, now, Duration::ZERO);
        let behind_one = vec![(TxnId(3), Some(1)), (TxnId(2), Some(1)), (TxnId(1), None)];
        assert!(!stands_still(&behind_one, 0) && !stands_still(&behind_one, 99));
        assert!(stands_still(&behind_one, 100));
        let nearer = [
            vec![(TxnId(3), Some(1)), (TxnId(2), None)],
            vec![(TxnId(3), Some(2)), (TxnId(2), None)],
            vec![(TxnId(3), None)],
        ];
        for (chain, now) in nearer.iter().zip([200, 300, 400]) {
            assert!(!stands_still(chain, now) && !stands_still(chain, now + 99), "{chain:?}");
        }
    }

    /// Beside others that keep the processors to themselves a queue takes as long as they please: five hundred threads
    /// that came to four hundred commits a second had one that waited for three minutes.
    #[test]
    fn whatever_changes_so_much_computing_is_too_much() {
        let watchdog = Watchdog::with_patience(2, Duration::from_secs(1));
        let looks = |thread, wait, computed| {
            watchdog.stands_still(
                thread,
                &vec![(TxnId(1), Some(wait)), (TxnId(2), None)],
                wait * 900,
                Duration::from_secs(computed),
            )
        };
        assert!(!looks(0, 1, 100) && !looks(0, 2, 108), "others compute");
        assert!(looks(0, 3, 109));
        assert!(!looks(1, 4, 109) && !looks(1, 5, 117), "another thread");
        assert!(looks(1, 6, 118));
    }

    /// A program that is stopped for a while, and goes on, has not hung.
    #[test]
    fn nobody_is_silent_while_the_program_is_stopped() {
        let watchdog = Watchdog::new(1);
        let silence = || watchdog.now().saturating_sub(watchdog.last[0].load(Ordering::Relaxed));
        watchdog.progress(0);
        let stopped = Instant::now() + Duration::from_secs(3600);
        watchdog.looks(stopped);
        assert_eq!(watchdog.lost.load(Ordering::Relaxed) / 1000, 3600 - LONGEST_GAP.as_secs());
        assert_eq!(silence(), 0);
        watchdog.looks(stopped + LONGEST_GAP);
        assert_eq!(watchdog.lost.load(Ordering::Relaxed) / 1000, 3600 - LONGEST_GAP.as_secs());
    }

    #[test]
    fn a_chain_ends_with_who_waits_for_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path().join("db")).unwrap();
        let mut first = database.begin().unwrap();
        first.put(TABLE, "a", 1).unwrap();
        let mut second = database.begin().unwrap();
        second.put(TABLE, "b", 1).unwrap();
        let mut third = database.begin().unwrap();
        let [id, next, last] = [third.id(), second.id(), first.id()];
        thread::scope(|scope| {
            let waiting =
                scope.spawn(|| second.put(TABLE, "a", 2).map(drop).and_then(|()| second.rollback()));
            let last_waiting =
                scope.spawn(|| third.put(TABLE, "b", 2).map(drop).and_then(|()| third.rollback()));
            while database.waits_for().waits.len() < 2 {
                thread::sleep(Duration::from_millis(1));
            }
            let waits = database.waits_for().waits;
            let chain = chain(id, &waits);
            assert_eq!(chain.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id, next, last]);
            assert_eq!(chain.iter().map(|(_, wait)| wait.is_some()).collect::<Vec<_>>(), [true, true, false]);
            let text = report(&chain, waits, &database);
            assert!(
                text.contains("3 in a chain") && text.contains(&format!("transaction {last}, the last")),
                "{text}"
            );
            first.rollback().unwrap();
            waiting.join().unwrap().unwrap();
            last_waiting.join().unwrap().unwrap();
        });
    }
}
