//! A partition: whoever looks after it locks and unlocks in it, for transactions that others run (Ren et al. 2016,
//! §3.1).

use foreshore_env::{
    sabotage::{Fault, planted},
    sync::Arc,
};
use foreshore_txn::{Advance, LockError, Parted};

use crate::{
    mesh::{Answer, Inbox, Order, Origin, Outbox, count, tell_of_room},
    partitions::{Actor, Shared},
    waiters::{Waiter, Waiters},
};

/// Messages of one sender in a turn. There are others, those who wait, and the end of all: a sender that sends without
/// pause keeps nobody from them. After a turn with a message there is another turn.
const ORDERS: usize = 64;

/// A partition, with what whoever looks after it has. It moves between threads.
pub(crate) struct Control {
    /// Its number.
    pub(crate) partition: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) orders: Vec<Inbox<Order>>,
    /// To the higher partitions, lowest first.
    pub(crate) higher: Vec<Outbox<Order>>,
    /// To the execution threads.
    pub(crate) answers: Vec<Outbox<Answer>>,
    /// Those who wait for a lock here.
    pub(crate) waiting: Waiters,
}

impl Control {
    /// Whether somebody waits for a lock here. Not all who give one back ring a bell.
    pub(crate) fn is_restless(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Before its thread sleeps: see [`Outbox::announce`].
    pub(crate) fn announce(&mut self) {
        self.higher.iter_mut().for_each(Outbox::announce);
        self.answers.iter_mut().for_each(Outbox::announce);
    }

    /// Whether somebody has sent it something, made room for something, or given back what was waited for.
    pub(crate) fn has_work(&mut self) -> bool {
        self.orders.iter_mut().any(|inbox| !inbox.is_empty())
            || self.higher.iter_mut().any(Outbox::can_send)
            || self.answers.iter_mut().any(Outbox::can_send)
            || self.waiting.has_answered()
    }

    /// Does what there is to do; whether there was anything.
    pub(crate) fn turn(&mut self) -> bool {
        let mut worked = false;
        for outbox in &mut self.higher {
            worked |= outbox.flush(&self.shared);
        }
        for outbox in &mut self.answers {
            worked |= outbox.flush(&self.shared);
        }
        let mut received = false;
        for inbox in 0..self.orders.len() {
            for _ in 0..ORDERS {
                let Some(order) = self.orders[inbox].receive() else { break };
                received = true;
                match order {
                    Order::Lock { parted, from } => self.advance(parted, from),
                    Order::Release(parted) => self.release(parted),
                }
            }
        }
        if received {
            tell_of_room(&mut self.orders, &self.shared);
        }
        worked | received | self.look_at_waiting()
    }

    /// Looks which of those who wait can go on, of those who may, or whose time has come.
    fn look_at_waiting(&mut self) -> bool {
        let mut worked = false;
        for Waiter { mut parted, from } in self.waiting.take_due() {
            match self.step(&mut parted) {
                Ok(Advance::Waiting) => self.waiting.put(Waiter { parted, from }),
                outcome => {
                    worked = true;
                    self.send_on(parted, from, outcome);
                }
            }
        }
        worked
    }

    fn step(&self, parted: &mut Parted) -> Result<Advance, LockError> {
        #[cfg(test)]
        self.shared.looks.fetch_add(1, foreshore_env::sync::atomic::Ordering::Relaxed);
        parted.advance(self.partition, self.shared.partitions())
    }

    fn advance(&mut self, mut parted: Box<Parted>, from: Origin) {
        match self.step(&mut parted) {
            Ok(Advance::Waiting) => {
                count(&self.shared.counts(Actor::Control(self.partition)).waits);
                self.waiting.put(Waiter { parted, from });
            }
            outcome => self.send_on(parted, from, outcome),
        }
    }

    /// Forwards a footprint to the next partition, or answers.
    fn send_on(&mut self, parted: Box<Parted>, from: Origin, outcome: Result<Advance, LockError>) {
        let Control { partition, shared, higher, answers, .. } = self;
        let counts = shared.counts(Actor::Control(*partition));
        count(&counts.messages);
        count(&counts.visits);
        match outcome {
            // ORTHRUS-1: never to a lower one.
            Ok(Advance::Next(next)) => {
                higher[next - *partition - 1].send(Order::Lock { parted, from }, shared, counts);
            }
            outcome => {
                let answer = Answer { number: from.number, parted, outcome: outcome.map(drop) };
                answers[from.thread].send(answer, shared, counts);
            }
        }
    }

    fn release(&mut self, mut parted: Box<Parted>) {
        if planted(Fault::ReleaseForgotten) {
            // Dropped, it would give them back.
            return std::mem::forget(parted);
        }
        let Control { partition, shared, higher, .. } = self;
        if let Advance::Next(next) = parted.release(*partition, shared.partitions()) {
            let counts = shared.counts(Actor::Control(*partition));
            count(&counts.releases);
            higher[next - *partition - 1].send(Order::Release(parted), shared, counts);
        }
    }
}
