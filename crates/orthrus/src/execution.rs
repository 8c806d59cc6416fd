//! An execution thread: it runs transactions whose locks others get, many at a time (Ren et al. 2016, §3.1).

use std::collections::{BTreeMap, VecDeque};

use foreshore_env::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};
use foreshore_txn::Advance;

use crate::{
    job::{Job, Next},
    mesh::{Answer, Inbox, Order, Origin, Outbox, count, tell_of_room},
    partitions::{Actor, Shared},
    queue::discard,
};

/// How many jobs repeat themselves for one that goes to a thread that has fewer, or lets in a job that waits elsewhere;
/// more, if there are more threads to look at.
const LOOK_EVERY: usize = 8;

/// What a thread has that runs transactions.
pub(crate) struct Execution {
    /// Among those that may.
    number: usize,
    shared: Arc<Shared>,
    /// From the partitions.
    answers: Vec<Inbox<Answer>>,
    /// To the partitions.
    orders: Vec<Outbox<Order>>,
    /// Transactions whose locks are away, by number.
    away: BTreeMap<u64, Box<dyn Job>>,
    /// Those to be begun again, by time and number.
    later: BTreeMap<(Instant, u64), Box<dyn Job>>,
    /// Those that have ended one transaction and are to begin another.
    again: VecDeque<Box<dyn Job>>,
    next_number: u64,
    /// The queue that it takes from next, modulo their number.
    next_queue: usize,
    /// Whether what repeats itself is before what is new.
    again_first: bool,
    /// Jobs that have repeated themselves since it was looked at what others have.
    repeated: usize,
    /// What it has told of the jobs that it has.
    told: u64,
}

impl Execution {
    pub(crate) fn new(
        number: usize,
        shared: &Arc<Shared>,
        answers: Vec<Inbox<Answer>>,
        orders: Vec<Outbox<Order>>,
    ) -> Execution {
        Execution {
            number,
            shared: Arc::clone(shared),
            answers,
            orders,
            away: BTreeMap::new(),
            later: BTreeMap::new(),
            again: VecDeque::new(),
            next_number: 0,
            next_queue: number,
            again_first: false,
            repeated: 0,
            told: 0,
        }
    }

    /// When something is to be begun again, which rings no bell.
    fn next_time(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((when, _), _)| *when)
    }

    /// The same, or when something is overdue for which it has no room, if it `takes` any.
    pub(crate) fn wakes_at(&self, takes: bool) -> Option<Instant> {
        let overdue = (takes && !self.has_room()).then(|| self.shared.next_deadline()).flatten();
        self.next_time().into_iter().chain(overdue).min()
    }

    /// Before its thread sleeps: see [`Outbox::announce`].
    pub(crate) fn announce(&mut self) {
        self.orders.iter_mut().for_each(Outbox::announce);
    }

    /// Whether somebody has sent it something, or made room for something, or it has room for a transaction that is
    /// there, and `takes` any.
    pub(crate) fn has_work(&mut self, takes: bool) -> bool {
        self.answers.iter_mut().any(|inbox| !inbox.is_empty())
            || self.orders.iter_mut().any(Outbox::can_send)
            || !self.again.is_empty()
            || (takes && self.has_room() && self.shared.has_jobs())
    }

    /// The window: no more is begun than can be kept in mind.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room_beside(0)
    }

    /// The same, if so many more were begun.
    fn has_room_beside(&self, more: usize) -> bool {
        self.in_hand() + more < self.shared.options().window
    }

    fn in_hand(&self) -> usize {
        self.away.len() + self.later.len() + self.again.len()
    }

    /// Does what there is to do; whether there was anything. Whether it `takes` transactions that nobody has begun.
    pub(crate) fn turn(&mut self, takes: bool) -> bool {
        let mut worked = false;
        for outbox in &mut self.orders {
            worked |= outbox.flush(&self.shared);
        }
        let mut received = false;
        for inbox in 0..self.answers.len() {
            while let Some(Answer { number, parted, outcome }) = self.answers[inbox].receive() {
                received = true;
                if let Some(mut job) = self.away.remove(&number) {
                    let next = job.locked(parted, outcome);
                    self.go_on(job, next);
                }
            }
        }
        if received {
            worked = true;
            tell_of_room(&mut self.answers, &self.shared);
        }
        if !self.later.is_empty() {
            worked |= self.begin_again();
        }
        if !takes {
            // Others begin what is begun from now on.
            for job in self.again.drain(..) {
                worked = true;
                self.shared.submit(job);
            }
        } else if let Some(job) = self.next_job() {
            worked = true;
            count(&self.shared.counts(Actor::Execution(self.number)).begun);
            self.begin(job);
        }
        if takes && !self.has_room() {
            worked |= self.end_overdue();
        }
        let in_hand = self.in_hand() as u64;
        if in_hand != self.told {
            self.told = in_hand;
            self.shared.counts(Actor::Execution(self.number)).in_hand.store(in_hand, Ordering::Relaxed);
        }
        worked
    }

    /// What to begin next: in turn what is new, as long as there is room for it, and what was here before, so that
    /// neither keeps the other out.
    fn next_job(&mut self) -> Option<Box<dyn Job>> {
        self.again_first = !self.again_first && !self.again.is_empty();
        if !self.again_first
            && self.has_room()
            && let Some(job) = self.shared.take_job(self.next_queue)
        {
            self.next_queue = self.next_queue.wrapping_add(1);
            return Some(job);
        }
        self.again.pop_front()
    }

    /// A job wants to begin another transaction. It stays, unless that keeps others out: then it lines up behind them;
    /// or another thread has fewer: now and then it is looked, and one goes there. Now and then it is also looked for
    /// those who wait in the queue of another thread, which may run a long one.
    fn repeat(&mut self, job: Box<dyn Job>) {
        self.repeated += 1;
        let looks = self.repeated >= LOOK_EVERY.max(self.shared.queues.len());
        if looks {
            self.repeated = 0;
        }
        let others_wait =
            || if looks { self.shared.has_jobs() } else { !self.shared.queues[self.number].is_empty() };
        if !self.has_room_beside(1) && others_wait() {
            return self.shared.submit(job);
        }
        if !looks {
            return self.again.push_back(job);
        }
        let kept = self.shared.hand_over(job, self.number, self.in_hand() as u64 + 1);
        self.again.extend(kept);
    }

    /// Begins what waits for its time; whether anything.
    fn begin_again(&mut self) -> bool {
        let now = Instant::now();
        let mut worked = false;
        while self.next_time().is_some_and(|when| when <= now) {
            if let Some((_, job)) = self.later.pop_first() {
                worked = true;
                self.begin(job);
            }
        }
        worked
    }

    /// Ends a job that nobody has begun before its deadline; whether there was one. Those who have room begin it
    /// instead, late as it is: it may have to wait for nobody.
    fn end_overdue(&mut self) -> bool {
        let Some(mut job) = self.shared.take_overdue() else { return false };
        let counts = self.shared.counts(Actor::Execution(self.number));
        count(&counts.begun);
        let begins = job.overdue();
        count(&counts.done);
        if begins {
            self.shared.submit(job);
        }
        true
    }

    fn begin(&mut self, mut job: Box<dyn Job>) {
        let next = job.begin();
        self.go_on(job, next);
    }

    fn go_on(&mut self, mut job: Box<dyn Job>, mut next: Next) {
        let Execution { number: thread, shared, orders, away, later, next_number, .. } = self;
        let counts = shared.counts(Actor::Execution(*thread));
        let mut counted = false;
        loop {
            match next {
                Next::Locks(parted) => match parted.next(shared.partitions()) {
                    Advance::Next(partition) => {
                        let number = draw(next_number);
                        away.insert(number, job);
                        count(&counts.footprints);
                        count(&counts.messages);
                        let from = Origin { thread: *thread, number };
                        orders[partition].send(Order::Lock { parted, from }, shared, counts);
                        return;
                    }
                    // It needs no locks on keys.
                    Advance::Complete | Advance::Waiting => next = job.locked(parted, Ok(())),
                },
                Next::Later(after) => {
                    count(&counts.later);
                    later.insert((Instant::now() + after, draw(next_number)), job);
                    return;
                }
                Next::Release { mut parted, ends } => {
                    if ends {
                        count(&counts.done);
                        counted = true;
                    }
                    let passed = |partition| shared.ring_restless(partition);
                    parted.release_own(shared.partitions(), passed);
                    if let Advance::Next(partition) = parted.next_release(shared.partitions()) {
                        if orders[partition].has_room(shared) {
                            count(&counts.releases);
                            orders[partition].send(Order::Release(parted), shared, counts);
                        } else {
                            // It would wait here until the next body has ended, however long that takes.
                            parted.release_here(shared.partitions(), passed);
                        }
                    }
                    next = job.released();
                }
                Next::Done | Next::Again => {
                    if !counted {
                        count(&counts.done);
                    }
                    if matches!(next, Next::Again) {
                        self.repeat(job);
                    }
                    return;
                }
            }
        }
    }
}

/// The next of these numbers.
fn draw(next_number: &mut u64) -> u64 {
    let number = *next_number;
    *next_number += 1;
    number
}

impl Drop for Execution {
    /// What it has in hand is dropped, and so told of it.
    fn drop(&mut self) {
        let away = std::mem::take(&mut self.away).into_values();
        let later = std::mem::take(&mut self.later).into_values();
        away.chain(later).chain(self.again.drain(..)).for_each(discard);
    }
}
