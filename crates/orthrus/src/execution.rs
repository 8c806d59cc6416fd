//! An execution thread: it runs transactions whose locks others get, many at a time (Ren et al. 2016, §3.1).

use std::collections::{HashMap, VecDeque};

use foreshore_env::{
    sync::Arc,
    time::{Duration, Instant},
};
use foreshore_txn::{Advance, Parted};

use crate::{
    bell::{Bell, LOOKS, pause},
    job::{Job, Next},
    mesh::{Answer, Order, Outbox, Sign, count},
    partitions::{Member, Shared},
    ring::Receiver,
};

/// Before what could not be done is tried again.
const LATER: Duration = Duration::from_millis(1);
/// How long it sleeps at most.
const LONG_NAP: Duration = Duration::from_millis(50);

/// What an execution thread has.
pub(crate) struct Execution {
    pub(crate) thread: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) answers: Vec<Receiver<Answer>>,
    /// To the control threads.
    pub(crate) orders: Vec<Outbox<Order>>,
    /// Transactions whose locks are away, by number.
    pub(crate) away: HashMap<u64, Box<dyn Job>>,
    /// Those to be begun again, with the time.
    pub(crate) later: VecDeque<(Instant, Box<dyn Job>)>,
    pub(crate) next_number: u64,
}

impl Execution {
    /// Works until they are stopped.
    pub(crate) fn run(mut self) {
        let mut idle = 0;
        while !self.shared.has_stopped() {
            if self.turn() {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle < LOOKS {
                pause();
                continue;
            }
            let restless = !self.later.is_empty() || self.orders.iter().any(Outbox::is_waiting);
            let Execution { bell, answers, shared, away, later, .. } = &mut self;
            let has_room = away.len() + later.len() < shared.window();
            bell.sleep(if restless { LATER } else { LONG_NAP }, || {
                answers.iter_mut().any(|ring| !ring.is_empty())
                    || (has_room && shared.has_jobs())
                    || shared.has_stopped()
            });
        }
    }

    /// Does what there is to do; whether there was anything.
    fn turn(&mut self) -> bool {
        let mut worked = false;
        for outbox in &mut self.orders {
            worked |= outbox.flush();
        }
        for ring in 0..self.answers.len() {
            while let Some(Answer { number, parted, outcome }) = self.answers[ring].receive() {
                worked = true;
                if let Some(mut job) = self.away.remove(&number) {
                    let next = job.locked(parted, outcome);
                    self.go_on(job, next);
                }
            }
        }
        let now = Instant::now();
        while self.later.front().is_some_and(|(when, _)| *when <= now) {
            if let Some((_, job)) = self.later.pop_front() {
                worked = true;
                self.begin(job);
            }
        }
        // The window: what came back goes first, and no more is begun than can be kept in mind.
        if self.away.len() + self.later.len() < self.shared.window()
            && let Some(job) = self.shared.take_job()
        {
            worked = true;
            self.begin(job);
        }
        worked
    }

    fn begin(&mut self, mut job: Box<dyn Job>) {
        let next = job.begin();
        self.go_on(job, next);
    }

    fn go_on(&mut self, mut job: Box<dyn Job>, mut next: Next) {
        let shared = Arc::clone(&self.shared);
        let counts = shared.counts(Member::Execution(self.thread));
        loop {
            match next {
                Next::Locks(parted) => match parted.next(shared.partitions()) {
                    Advance::Next(partition) => {
                        let number = self.next_number;
                        self.next_number += 1;
                        self.away.insert(number, job);
                        count(&counts.messages);
                        let from = Sign { thread: self.thread, number };
                        self.orders[partition].send(Order::Lock { parted, from }, counts);
                        return;
                    }
                    // It needs no locks on keys.
                    Advance::Complete | Advance::Waiting => next = job.locked(parted, Ok(())),
                },
                Next::Later => {
                    count(&counts.later);
                    self.later.push_back((Instant::now() + LATER, job));
                    return;
                }
                Next::Done(left) => {
                    count(&counts.done);
                    if let Some(parted) = left {
                        self.give_back(parted);
                    }
                    return;
                }
            }
        }
    }

    fn give_back(&mut self, mut parted: Box<Parted>) {
        let shared = Arc::clone(&self.shared);
        if let Advance::Next(partition) = parted.next_release(shared.partitions()) {
            let counts = shared.counts(Member::Execution(self.thread));
            count(&counts.releases);
            self.orders[partition].send(Order::Release(parted), counts);
        }
    }
}
