//! A control thread: it locks and unlocks in one partition, for transactions that others run (Ren et al. 2016, §3.1).

use foreshore_env::{sync::Arc, time::Duration};
use foreshore_txn::{Advance, LockError, Parted};

use crate::{
    bell::{Bell, LOOKS, pause},
    mesh::{Answer, Order, Outbox, Sign, count},
    partitions::{Member, Shared},
    ring::Receiver,
};

/// How long it sleeps at most: locks for which it waits may be given back by transactions that are not run here.
const NAP: Duration = Duration::from_millis(1);
/// The same while nothing is waited for.
const LONG_NAP: Duration = Duration::from_millis(50);

/// What a control thread has.
pub(crate) struct Control {
    /// Its partition.
    pub(crate) partition: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) orders: Vec<Receiver<Order>>,
    /// To the control threads of higher partitions, lowest first.
    pub(crate) higher: Vec<Outbox<Order>>,
    /// To the execution threads.
    pub(crate) answers: Vec<Outbox<Answer>>,
    /// Those who wait for a lock here, in the order in which they came.
    pub(crate) waiting: Vec<(Box<Parted>, Sign)>,
}

impl Control {
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
            let nap = if self.waiting.is_empty() && !self.has_mail_waiting() { LONG_NAP } else { NAP };
            let Control { bell, orders, shared, .. } = &mut self;
            bell.sleep(nap, || orders.iter_mut().any(|ring| !ring.is_empty()) || shared.has_stopped());
        }
    }

    fn has_mail_waiting(&self) -> bool {
        self.higher.iter().any(Outbox::is_waiting) || self.answers.iter().any(Outbox::is_waiting)
    }

    /// Does what there is to do; whether there was anything.
    fn turn(&mut self) -> bool {
        let mut worked = false;
        for outbox in &mut self.higher {
            worked |= outbox.flush();
        }
        for outbox in &mut self.answers {
            worked |= outbox.flush();
        }
        for ring in 0..self.orders.len() {
            while let Some(order) = self.orders[ring].receive() {
                worked = true;
                match order {
                    Order::Lock { parted, from } => self.advance(parted, from),
                    Order::Release(parted) => self.release(parted),
                }
            }
        }
        worked | self.look_at_waiting()
    }

    /// Looks which of those who wait can go on.
    fn look_at_waiting(&mut self) -> bool {
        let mut worked = false;
        for (mut parted, from) in std::mem::take(&mut self.waiting) {
            match self.step(&mut parted) {
                Ok(Advance::Waiting) => self.waiting.push((parted, from)),
                outcome => {
                    worked = true;
                    self.send_on(parted, from, outcome);
                }
            }
        }
        worked
    }

    fn step(&self, parted: &mut Parted) -> Result<Advance, LockError> {
        parted.advance(self.partition, self.shared.partitions())
    }

    fn advance(&mut self, mut parted: Box<Parted>, from: Sign) {
        match self.step(&mut parted) {
            Ok(Advance::Waiting) => {
                count(&self.counts().waits);
                self.waiting.push((parted, from));
            }
            outcome => self.send_on(parted, from, outcome),
        }
    }

    /// Forwards a footprint to the next partition, or answers.
    fn send_on(&mut self, parted: Box<Parted>, from: Sign, outcome: Result<Advance, LockError>) {
        let shared = Arc::clone(&self.shared);
        let counts = shared.counts(Member::Control(self.partition));
        count(&counts.messages);
        match outcome {
            // ORTHRUS-1: never to a lower one.
            Ok(Advance::Next(partition)) => {
                self.higher[partition - self.partition - 1].send(Order::Lock { parted, from }, counts);
            }
            outcome => {
                let answer = Answer { number: from.number, parted, outcome: outcome.map(drop) };
                self.answers[from.thread].send(answer, counts);
            }
        }
    }

    fn release(&mut self, mut parted: Box<Parted>) {
        let shared = Arc::clone(&self.shared);
        if let Advance::Next(partition) = parted.release(self.partition, shared.partitions()) {
            let counts = shared.counts(Member::Control(self.partition));
            count(&counts.releases);
            self.higher[partition - self.partition - 1].send(Order::Release(parted), counts);
        }
    }

    fn counts(&self) -> &crate::mesh::Counts {
        self.shared.counts(Member::Control(self.partition))
    }
}
