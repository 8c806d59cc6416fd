//! What a thread knows of the crowds that it is in.

use std::cell::RefCell;

use foreshore_env::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread_local,
    time::{Duration, Instant, computed_here},
};

use super::limit::Runs;

/// Runs after which a thread has left the crowd if it was in nobody's way in them, and the time that must have passed.
pub(super) const PROBATION: u32 = 16;
pub(super) const MEMORY: Duration = Duration::from_secs(1);
/// How long a thread runs one transaction after another before it lets in a thread that waits: to switch between
/// threads for each transaction costs more than the transaction, and a thread that has locks but no processor keeps
/// others waiting.
pub(super) const TURN: Duration = Duration::from_millis(1);
/// A thread that comes back within this time keeps its turn meanwhile. It costs as long to let in another.
const AT_ONCE: Duration = Duration::from_micros(20);
/// Databases whose crowds a thread remembers to be in.
const CROWDS: usize = 8;

thread_local! {
    /// The crowds that this thread is in.
    static CROWDS_OF_THREAD: RefCell<Vec<Member>> = const { RefCell::new(Vec::new()) };
}

/// A thread in the crowd of one database.
#[derive(Debug)]
pub(super) struct Member {
    /// Of the [`Admission`](super::Admission).
    number: u64,
    pub(super) turn: Arc<Turn>,
    /// Runs since it was last in somebody's way, and when that was.
    pub(super) runs: u32,
    pub(super) met_at: Instant,
    /// When its turn began, and what it had computed by then.
    began: Instant,
    computed: Option<Duration>,
    /// When its last run ended.
    ended: Instant,
    /// The thread came back at once after its last run: within [`AT_ONCE`].
    hurries: bool,
    /// Runs that the limit has not been told of.
    untold: Runs,
}

/// The right of a thread to run its transactions, one at a time and after another. At first it is over.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// [`OVER`], [`RUNS`] or [`RESTS`]. From [`RESTS`] it is taken by the thread, or by those who want to end it; the
    /// other changes are the thread's own, or made for one that waits. Relaxed: nothing is handed over with it.
    state: AtomicU32,
}

/// The turn is over: its thread must ask for another one before it runs a transaction.
const OVER: u32 = 0;
/// The thread whose turn it is runs a transaction.
const RUNS: u32 = 1;
/// The thread whose turn it is is between two transactions: others may end the turn.
const RESTS: u32 = 2;

impl Turn {
    pub(super) fn runs(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RUNS
    }

    pub(super) fn begin(&self) {
        self.state.store(RUNS, Ordering::Relaxed);
    }

    fn rest(&self) {
        self.state.store(RESTS, Ordering::Relaxed);
    }

    fn go_on(&self) -> bool {
        self.state.compare_exchange(RESTS, RUNS, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(super) fn end(&self) {
        self.state.store(OVER, Ordering::Relaxed);
    }

    /// Ends the turn if its thread is between two transactions.
    pub(super) fn end_at_rest(&self) -> bool {
        self.state.compare_exchange(RESTS, OVER, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// How a member comes to the door.
#[derive(Debug)]
pub(super) enum Arrival {
    /// The member's turn goes on.
    GoesOn(Arc<Turn>),
    /// The member is inside already, or has left the crowd.
    Passes,
    /// The member needs a turn.
    Asks(Arc<Turn>),
}

impl Member {
    fn new(number: u64, now: Instant) -> Member {
        Member {
            number,
            turn: Arc::default(),
            runs: 0,
            met_at: now,
            began: now,
            computed: None,
            ended: now,
            hurries: false,
            untold: Runs::default(),
        }
    }

    pub(super) fn arrive(&mut self, now: Instant) -> Arrival {
        if self.turn.runs() {
            // It would wait for itself.
            return Arrival::Passes;
        }
        self.hurries = now.saturating_duration_since(self.ended) < AT_ONCE;
        if self.turn.go_on() {
            Arrival::GoesOn(Arc::clone(&self.turn))
        } else if self.runs >= PROBATION && now.saturating_duration_since(self.met_at) >= MEMORY {
            Arrival::Passes
        } else {
            Arrival::Asks(Arc::clone(&self.turn))
        }
    }

    /// Notes that the member's turn begins.
    pub(super) fn begin(&mut self) {
        (self.began, self.computed) = (Instant::now(), computed_here());
    }

    /// A run is over. What the limit is to be told, if its turn is over, too.
    pub(super) fn end_run(&mut self, victim: bool, now: Instant) -> Option<Runs> {
        self.runs = self.runs.saturating_add(1);
        self.untold.ended += 1;
        self.ended = now;
        if victim {
            self.untold.victims += 1;
            (self.runs, self.met_at) = (0, now);
        }
        let lasted = now.saturating_duration_since(self.began);
        if !victim && self.hurries && lasted < TURN {
            self.turn.rest();
            return None;
        }
        let computed = computed_here().zip(self.computed);
        self.untold.computed = computed.map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before));
        Some(std::mem::take(&mut self.untold))
    }

    /// Notes that the member has let in the next. A thread that was woken may have had its processor meanwhile: that is
    /// not its own time.
    pub(super) fn left(&mut self, now: Instant) {
        self.ended = now;
    }
}

/// Changes what this thread knows of its crowds; `None`: the thread is ending and knows nothing any more.
fn with_crowds<R>(change: impl FnOnce(&mut Vec<Member>) -> R) -> Option<R> {
    CROWDS_OF_THREAD.try_with(|crowds| change(&mut crowds.borrow_mut())).ok()
}

/// Changes what this thread knows of itself in the crowd of that number; `None`: it is not in it.
pub(super) fn with_member<R>(number: u64, change: impl FnOnce(&mut Member) -> R) -> Option<R> {
    with_crowds(|crowds| crowds.iter_mut().find(|member| member.number == number).map(change)).flatten()
}

/// This thread was in somebody's way, or somebody in its: it belongs to the crowd.
pub(super) fn join(number: u64) {
    let now = Instant::now();
    let known = with_member(number, |member| (member.runs, member.met_at) = (0, now));
    if known.is_none() {
        with_crowds(|crowds| {
            if crowds.len() == CROWDS {
                crowds.retain(|member| member.turn.runs());
            }
            crowds.push(Member::new(number, now));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it was, a thread that had let in another got a turn of a single run the next time.
    #[test]
    fn the_way_out_does_not_count_as_being_away() {
        let goes_on_after = |on_the_way: Duration, away: Duration| {
            let now = Instant::now();
            let mut member = Member::new(0, now);
            member.end_run(false, now).expect("its turn is over");
            member.left(now + on_the_way);
            assert!(matches!(member.arrive(now + on_the_way + away), Arrival::Asks(_)));
            member.begin();
            member.end_run(false, member.began).is_none()
        };
        assert!(goes_on_after(10 * TURN, AT_ONCE / 2));
        assert!(!goes_on_after(10 * TURN, 2 * AT_ONCE));
        assert!(!goes_on_after(Duration::ZERO, 2 * AT_ONCE));
    }
}
