//! Which thread does what: who looks after which partition, and who runs transactions.
//!
//! Ren, Faleiro, Abadi 2016, §4.2, count threads of both kinds by hand and leave their adjustment to prior work; here
//! it is SEDA's idea (Welsh, Culler, Brewer 2001): each stage is watched, and threads move to the one that has more to
//! do than its threads can do.
//!
//! The threads of the lowest numbers control, the others execute (in automatic mode the same threads may do both, one
//! after the other). Partitions are dealt out to those who control, in turn. When their number changes, whoever has a
//! partition that is now another's puts it into its seat, between two turns, and the other takes it from there
//! (ORTHRUS-5).
//!
//! A thread that is wanted for control joins those who control by itself, between two turns: it may be in the middle of
//! a long transaction, and partitions that were put down for it would be nobody's until that has ended.

use foreshore_env::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::control::Control;

/// How often it is looked whether a thread should move.
const INTERVAL: Duration = Duration::from_millis(10);
/// A stage whose threads are busier than this share of the time, in percent, needs another one.
const FULL: u64 = 85;
/// What a stage may have to do, in percent of the time of those that remain, when one is taken from it.
const LEFT: u64 = 70;

/// See the module.
pub(crate) struct Roles {
    /// Threads that control now, 1 to the number of partitions; in the upper half those that are to, no fewer. Raised
    /// by whoever joins them, else written under `watch` or by a test; read by all, sequentially consistent: see
    /// [`Roles::owner`].
    controllers: AtomicU64,
    /// Partitions on their way from one thread to another.
    seats: Box<[Mutex<Option<Control>>]>,
    /// How all threads spend their time, in automatic mode.
    activities: Box<[Activity]>,
    /// Whoever looks has it.
    watch: Mutex<Watch>,
    begin: Instant,
    /// Threads that began to control, and that began to execute. Written by whoever changes `controllers`; no order:
    /// figures.
    to_control: AtomicU64,
    to_execution: AtomicU64,
}

/// How long a thread had nothing to do. Written by the thread; read by whoever looks. No order: figures.
#[derive(Debug, Default)]
struct Activity {
    idle_ns: AtomicU64,
    /// Since when it has nothing to do, in nanoseconds since the beginning; 0 while it has.
    idle_since: AtomicU64,
}

/// What was seen the last time.
struct Watch {
    at_ns: u64,
    idle_ns: Box<[u64]>,
}

/// What is to be done about the number of threads that control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Stay,
    MoreControl,
    MoreExecution,
}

/// By the share of the time that threads of both stages were busy, in percent, and the number of those that control:
/// now, and at most.
pub(crate) fn decide(control: u64, execution: u64, controllers: usize, most: usize) -> Decision {
    let now = controllers as u64;
    if control > FULL && execution < FULL && controllers < most {
        Decision::MoreControl
    } else if controllers > 1 && execution > FULL && control * now < LEFT * (now - 1) {
        Decision::MoreExecution
    } else {
        Decision::Stay
    }
}

/// Threads that control, and those that are to, in one word.
fn both(controllers: usize, wanted: usize) -> u64 {
    (wanted as u64) << 32 | controllers as u64
}

fn halves(word: u64) -> (usize, usize) {
    ((word & u64::from(u32::MAX)) as usize, (word >> 32) as usize)
}

impl Roles {
    /// So many `controllers` at first.
    pub(crate) fn new(partitions: usize, controllers: usize, threads: usize) -> Roles {
        Roles {
            controllers: AtomicU64::new(both(controllers, controllers)),
            seats: (0..partitions).map(|_| Mutex::new(None)).collect(),
            // Until they begin they have nothing to do.
            activities: (0..threads)
                .map(|_| Activity { idle_since: AtomicU64::new(1), ..Activity::default() })
                .collect(),
            watch: Mutex::new(Watch { at_ns: 0, idle_ns: vec![0; threads].into() }),
            begin: Instant::now(),
            to_control: AtomicU64::new(0),
            to_execution: AtomicU64::new(0),
        }
    }

    pub(crate) fn partitions(&self) -> usize {
        self.seats.len()
    }

    /// How many threads control.
    pub(crate) fn controllers(&self) -> usize {
        halves(self.controllers.load(Ordering::SeqCst)).0
    }

    /// The thread that looks after a partition, or soon will. A thread that sends it something reads this after a fence
    /// that follows the sending, and rings this thread's bell. If that is the thread of before, the new one takes the
    /// partition later, and looks at its rings before it sleeps.
    pub(crate) fn owner(&self, partition: usize) -> usize {
        partition % self.controllers()
    }

    /// Lets so many threads control: if these are fewer, from now on, else as soon as they come by ([`Roles::join`]).
    /// Whether that is a change. Those who sleep are to be woken then.
    pub(crate) fn set_controllers(&self, wanted: usize) -> bool {
        let wanted = wanted.clamp(1, self.most());
        let set = |word| Some(both(halves(word).0.min(wanted), wanted));
        let before = match self.controllers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, set) {
            Ok(before) | Err(before) => before,
        };
        let left = halves(before).0.saturating_sub(wanted);
        self.to_execution.fetch_add(left as u64, Ordering::Relaxed);
        halves(before).1 != wanted
    }

    /// Whether a thread is to join those who control.
    pub(crate) fn is_wanted(&self, thread: usize) -> bool {
        let (controllers, wanted) = halves(self.controllers.load(Ordering::SeqCst));
        thread == controllers && controllers < wanted
    }

    /// The same, and it does. All are to be woken then: some have partitions for it, and it may not be the last to
    /// join.
    pub(crate) fn join(&self, thread: usize) -> bool {
        let joins = |word| {
            let (controllers, wanted) = halves(word);
            (thread == controllers && controllers < wanted).then(|| both(controllers + 1, wanted))
        };
        let joined = self.is_wanted(thread)
            && self.controllers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, joins).is_ok();
        if joined {
            self.to_control.fetch_add(1, Ordering::Relaxed);
        }
        joined
    }

    /// The most threads that may control: one executes at least.
    fn most(&self) -> usize {
        self.seats.len().min(self.activities.len() - 1).max(1)
    }

    /// Threads that began to control, and to execute, since the beginning.
    pub(crate) fn moves(&self) -> (u64, u64) {
        (self.to_control.load(Ordering::Relaxed), self.to_execution.load(Ordering::Relaxed))
    }

    /// Puts a partition down for the thread that looks after it now.
    pub(crate) fn put_down(&self, control: Control) {
        let partition = control.partition;
        *self.seats[partition].lock() = Some(control);
    }

    /// Takes a partition, if it has been put down.
    pub(crate) fn take_up(&self, partition: usize) -> Option<Control> {
        self.seats[partition].lock().take()
    }

    /// Whether it lies there.
    pub(crate) fn is_put_down(&self, partition: usize) -> bool {
        self.seats[partition].lock().is_some()
    }

    fn now_ns(&self) -> u64 {
        // Never 0, which means that somebody is busy.
        self.begin.elapsed().as_nanos() as u64 | 1
    }

    /// A thread has nothing to do from now on.
    pub(crate) fn rests(&self, thread: usize) {
        self.rests_from(thread, self.now_ns());
    }

    fn rests_from(&self, thread: usize, now: u64) {
        self.activities[thread].idle_since.store(now, Ordering::Relaxed);
    }

    /// It has something to do again.
    pub(crate) fn works(&self, thread: usize) {
        self.works_from(thread, self.now_ns());
    }

    fn works_from(&self, thread: usize, now: u64) {
        let Activity { idle_ns, idle_since } = &self.activities[thread];
        let rested = now.saturating_sub(idle_since.load(Ordering::Relaxed));
        idle_ns.store(idle_ns.load(Ordering::Relaxed) + rested, Ordering::Relaxed);
        idle_since.store(0, Ordering::Relaxed);
    }

    /// Looks, if it is time, whether a thread should move, and has it moved; whether that is so.
    pub(crate) fn balance(&self) -> bool {
        self.balance_at(self.now_ns())
    }

    fn balance_at(&self, now: u64) -> bool {
        let Some(mut watch) = self.watch.try_lock() else { return false };
        let passed = now.saturating_sub(watch.at_ns);
        if passed < INTERVAL.as_nanos() as u64 {
            return false;
        }
        let controllers = self.controllers();
        let mut busy = [0, 0];
        for (thread, (activity, before)) in self.activities.iter().zip(watch.idle_ns.iter_mut()).enumerate() {
            let since = activity.idle_since.load(Ordering::Relaxed);
            let resting = if since == 0 { 0 } else { now.saturating_sub(since) };
            let idle = activity.idle_ns.load(Ordering::Relaxed) + resting;
            // The two are not read at one moment.
            let rested = idle.saturating_sub(*before).min(passed);
            *before = idle;
            busy[usize::from(thread >= controllers)] += (passed - rested) * 100 / passed;
        }
        watch.at_ns = now;
        let executors = self.activities.len() - controllers;
        let share = |sum: u64, threads: usize| sum / threads.max(1) as u64;
        let decision =
            decide(share(busy[0], controllers), share(busy[1], executors), controllers, self.most());
        match decision {
            Decision::Stay => false,
            Decision::MoreControl => self.set_controllers(controllers + 1),
            Decision::MoreExecution => self.set_controllers(controllers - 1),
        }
    }
}

impl std::fmt::Debug for Roles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Roles").field("controllers", &self.controllers()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_go_where_there_is_more_to_do() {
        // Control has too much to do, and execution waits for it.
        assert_eq!(decide(95, 40, 1, 4), Decision::MoreControl);
        assert_eq!(decide(95, 40, 4, 4), Decision::Stay, "there are no more partitions");
        assert_eq!(decide(95, 95, 1, 4), Decision::Stay, "everybody has");
        // Execution has too much to do, and those who control could do with one less.
        assert_eq!(decide(30, 95, 2, 4), Decision::MoreExecution);
        assert_eq!(decide(50, 95, 2, 4), Decision::Stay, "one alone could not do it");
        assert_eq!(decide(5, 95, 1, 4), Decision::Stay, "somebody has to");
        assert_eq!(decide(10, 10, 3, 4), Decision::Stay, "nobody has much to do");
        // What one decision leads to is not undone by the next: 1 of 100 % becomes 2 of 50 %.
        assert_eq!(decide(50, 90, 2, 4), Decision::Stay);
    }

    const PERIOD: u64 = INTERVAL.as_nanos() as u64;

    /// Threads whose share of a period was as said, one period after the other.
    fn pass(roles: &Roles, period: u64, busy_percent: &[u64]) -> bool {
        let (from, to) = (period * PERIOD + 1, (period + 1) * PERIOD + 1);
        for (thread, percent) in busy_percent.iter().enumerate() {
            roles.rests_from(thread, from);
            roles.works_from(thread, to - PERIOD * percent / 100);
        }
        assert!(!roles.balance_at(to - 2), "it is not time yet");
        roles.balance_at(to)
    }

    /// One after the other moves to where there is more to do, as far as it goes, and back when that changes; each move
    /// is counted.
    #[test]
    fn what_threads_did_decides_where_they_go() {
        let roles = Roles::new(4, 2, 6);
        assert_eq!((roles.controllers(), roles.moves()), (2, (0, 0)));
        assert!(pass(&roles, 0, &[20, 30, 100, 100, 95, 100]), "two of four could go");
        assert_eq!((roles.controllers(), roles.moves()), (1, (0, 1)));
        assert!(!pass(&roles, 1, &[50, 100, 100, 100, 100, 100]), "one has to stay");
        assert!(!pass(&roles, 2, &[100, 90, 100, 100, 100, 100]), "all have enough to do");
        assert!(!pass(&roles, 3, &[60, 40, 50, 30, 30, 40]), "nobody has");
        for (period, controllers) in (4..).zip(2..=4) {
            let busy: Vec<u64> =
                (0..6).map(|thread| if thread < controllers - 1 { 100 } else { 30 }).collect();
            assert!(pass(&roles, period, &busy));
            assert_eq!(roles.controllers(), controllers - 1, "it has not come by");
            assert!(!roles.join(controllers) && roles.join(controllers - 1) && !roles.join(controllers));
            assert_eq!((roles.controllers(), roles.moves()), (controllers, (controllers as u64 - 1, 1)));
        }
        assert!(!pass(&roles, 7, &[100, 100, 100, 100, 30, 30]), "there are no more partitions");
        assert!(pass(&roles, 8, &[10, 10, 10, 10, 100, 90]));
        assert_eq!((roles.controllers(), roles.moves()), (3, (3, 2)));
        // Nobody joins who is not wanted any more.
        assert!(roles.set_controllers(4) && roles.is_wanted(3) && !roles.set_controllers(4));
        assert!(roles.set_controllers(3) && !roles.join(3));
        // A thread that has had nothing to do since long before is idle, though it says nothing in between.
        (0..3).for_each(|thread| roles.rests_from(thread, 9 * PERIOD + 1));
        assert!(roles.balance_at(11 * PERIOD));
        roles.works_from(2, 11 * PERIOD);
        assert!(roles.balance_at(12 * PERIOD + 2));
        assert_eq!((roles.controllers(), roles.moves()), (1, (3, 4)));
    }
}
