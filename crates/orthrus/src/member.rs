//! One thread: it looks after partitions, or runs transactions, or finishes what it began before its role changed.

use foreshore_env::{
    sync::Arc,
    time::{Duration, Instant, earlier},
};

use crate::{
    bell::{LOOKS, pause},
    control::Control,
    execution::Execution,
    partitions::Shared,
};

/// How long it sleeps at most while somebody waits for a lock: it may be given back by a transaction that is not run
/// here, or is undone. The tests of this crate have no such belt beside the bells: a thread that is not rung for stays
/// asleep.
const LOCK_NAP: Duration = if cfg!(test) { LONG_NAP } else { Duration::from_millis(1) };
/// The same while there is no such thing.
const LONG_NAP: Duration = if cfg!(test) { Duration::from_secs(3600) } else { Duration::from_millis(50) };
/// Turns after which the thread that balances looks at the clock, if it has something to do all the time.
const TURNS: u32 = 8;

/// What a thread has.
pub(crate) struct Member {
    pub(crate) number: usize,
    pub(crate) shared: Arc<Shared>,
    /// The partitions that it looks after.
    pub(crate) controls: Vec<Control>,
    /// If it may run transactions.
    pub(crate) execution: Option<Execution>,
}

impl Member {
    /// Works until all are stopped.
    pub(crate) fn run(mut self) {
        let automatic = self.shared.options().automatic;
        let (mut idle, mut turns) = (0, 0_u32);
        if automatic {
            self.shared.roles.works(self.number);
        }
        while !self.shared.has_stopped() {
            if automatic {
                turns = turns.wrapping_add(1);
                self.follow_roles(turns.is_multiple_of(TURNS) || idle >= LOOKS);
            }
            if self.turn() {
                if automatic && idle > 0 {
                    self.shared.roles.works(self.number);
                }
                idle = 0;
                continue;
            }
            if automatic && idle == 0 {
                self.shared.roles.rests(self.number);
            }
            idle += 1;
            if idle < LOOKS {
                pause();
            } else {
                self.sleep();
            }
        }
    }

    /// Does what there is to do; whether there was anything.
    fn turn(&mut self) -> bool {
        #[cfg(test)]
        {
            let doomed = &self.shared.doomed;
            assert_ne!(doomed.load(foreshore_env::sync::atomic::Ordering::SeqCst), self.number, "planted");
        }
        let mut worked = false;
        for control in &mut self.controls {
            worked |= control.turn();
        }
        let takes = executes(&self.shared, self.number);
        if let Some(execution) = &mut self.execution {
            worked |= execution.turn(takes);
        }
        worked
    }

    fn sleep(&mut self) {
        let Member { number, shared, controls, execution } = self;
        let restless = controls.iter().any(Control::is_restless);
        let longest = Instant::now() + if restless { LOCK_NAP } else { LONG_NAP };
        let wakes_at = |execution: &Option<Execution>| {
            execution.as_ref().and_then(|execution| execution.wakes_at(executes(shared, *number)))
        };
        let until = earlier(longest, wakes_at(execution));
        let has_room = |execution: &Option<Execution>| {
            executes(shared, *number) && execution.as_ref().is_some_and(Execution::has_room)
        };
        let hungry = has_room(execution);
        controls.iter_mut().for_each(Control::announce);
        if let Some(execution) = execution {
            execution.announce();
        }
        // What is looked at again here is all that a bell may have been rung for before anybody slept.
        shared.bell(*number).sleep(until, hungry, restless, || {
            let takes = executes(shared, *number);
            controls.iter_mut().any(|control| control.has_work())
                || execution.as_mut().is_some_and(|execution| execution.has_work(takes))
                || wakes_at(execution).is_some_and(|next| next < until)
                || missing(shared, *number, controls).any(|partition| shared.roles.is_put_down(partition))
                || controls.iter().any(|control| shared.roles.owner(control.partition) != *number)
                || shared.roles.is_wanted(*number)
                || shared.has_stopped()
        });
        // Whoever rang it for a job rang nobody else, perhaps in a sleep of before.
        if execution.is_some() && !has_room(execution) && shared.has_jobs() {
            shared.ring_for_a_job(*number);
        }
    }

    /// Joins those who control, if it is wanted there; puts down the partitions that are another's now, and takes up
    /// its own; `looks`: whether it also looks if somebody should move.
    fn follow_roles(&mut self, looks: bool) {
        let Member { number, shared, controls, .. } = self;
        let roles = &shared.roles;
        // The first thread always controls: no transaction keeps it from looking.
        if looks && *number == 0 && roles.balance() {
            shared.ring_all();
        }
        if roles.join(*number) {
            shared.ring_all();
        }
        let mut place = 0;
        while place < controls.len() {
            let owner = roles.owner(controls[place].partition);
            if owner == *number {
                place += 1;
            } else {
                let partition = controls[place].partition;
                roles.put_down(controls.swap_remove(place));
                // Whose it is may have changed again: then all bells are rung after this.
                shared.bell(roles.owner(partition)).ring();
            }
        }
        let come: Vec<_> =
            missing(shared, *number, controls).filter_map(|partition| roles.take_up(partition)).collect();
        controls.extend(come);
    }
}

impl Drop for Member {
    /// ORTHRUS-4: nobody comes any more for a partition that lies in its seat, with locks in its rings. The thread that
    /// puts one down comes here later.
    fn drop(&mut self) {
        (0..self.shared.partitions()).for_each(|partition| drop(self.shared.roles.take_up(partition)));
    }
}

/// Whether a thread begins transactions.
fn executes(shared: &Shared, number: usize) -> bool {
    !shared.options().automatic || number >= shared.roles.controllers()
}

/// The partitions that a thread is to look after and has not got yet.
fn missing<'m>(
    shared: &'m Shared,
    number: usize,
    controls: &'m [Control],
) -> impl Iterator<Item = usize> + 'm {
    let controllers = shared.roles.controllers();
    let last = if number < controllers { shared.partitions() } else { 0 };
    (number..last)
        .step_by(controllers)
        .filter(|partition| controls.iter().all(|control| control.partition != *partition))
}
