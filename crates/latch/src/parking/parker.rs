//! What one thread sleeps on.

use foreshore_env::sync::{Arc, Condvar, Mutex};
use foreshore_env::thread_local;
use foreshore_env::time::Instant;

thread_local! {
    static CURRENT: Arc<Parker> = Arc::new(Parker::default());
}

/// One sleep of one thread. An answer to an earlier sleep that comes late is told apart by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ticket(u64);

/// A thread's bed. The thread itself and, while it is in a queue, its waker know it.
#[derive(Default)]
pub(super) struct Parker {
    /// Its mutex guards the tickets. Taken without any other mutex being held.
    tickets: Mutex<Tickets>,
    /// Signalled when `tickets.answered` changes; only the owner waits.
    condvar: Condvar,
}

#[derive(Default)]
struct Tickets {
    /// The newest ticket; written by the owner.
    issued: Ticket,
    /// The newest ticket that was answered, and whether the answer was that the owner holds what it waited for; written
    /// by whoever took the owner out of a queue.
    answered: Ticket,
    granted: bool,
}

impl Tickets {
    fn answer(&self, ticket: Ticket) -> Option<bool> {
        (self.answered == ticket).then_some(self.granted)
    }
}

impl Parker {
    /// The parker of this thread. A thread that is being taken down has lost its own and gets a new one.
    pub(super) fn current() -> Arc<Parker> {
        CURRENT.try_with(Arc::clone).unwrap_or_default()
    }

    /// A ticket for the next sleep.
    pub(super) fn issue(&self) -> Ticket {
        let mut tickets = self.tickets.lock();
        tickets.issued.0 += 1;
        tickets.issued
    }

    /// Sleeps until the ticket is answered, until `until`, or until woken for no reason. Whether it was granted, if it
    /// was answered.
    pub(super) fn sleep(&self, ticket: Ticket, until: Instant) -> Option<bool> {
        let tickets = self.tickets.lock();
        if let Some(granted) = tickets.answer(ticket) {
            return Some(granted);
        }
        self.condvar.wait_until(tickets, until).answer(ticket)
    }

    /// Waits for an answer that is on its way.
    pub(super) fn await_answer(&self, ticket: Ticket) -> bool {
        let mut tickets = self.tickets.lock();
        loop {
            if let Some(granted) = tickets.answer(ticket) {
                return granted;
            }
            tickets = self.condvar.wait(tickets);
        }
    }

    /// Answers a ticket. Each is answered at most once, by whoever took it out of the queue.
    pub(super) fn answer(&self, ticket: Ticket, granted: bool) {
        let mut tickets = self.tickets.lock();
        (tickets.answered, tickets.granted) = (ticket, granted);
        drop(tickets);
        self.condvar.notify_one();
    }
}
