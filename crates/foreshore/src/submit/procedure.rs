//! Procedures: the threads of partitioned execution draw the transactions themselves, as those of the paper do (Ren,
//! Faleiro, Abadi 2016, §4).

use std::{
    any::Any,
    mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use foreshore_env::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use foreshore_orthrus::Partitions;

use super::{
    Ended, end_of_a_fork, lost,
    task::{Again, Client, Task},
};
use crate::{
    database::Database,
    error::{Error, Result},
    nested,
    pipeline::CommitTicket,
    plan::{Plan, Planner, Steps},
    transact::TransactOptions,
    transaction::Transaction,
};

/// A source of transactions that are run one after another by the threads of partitioned execution: see
/// [`Database::serve`].
///
/// All three methods are called by these threads, one at a time, but for the first draw, which [`Database::serve`]
/// makes. They should be quick: other transactions of the thread wait meanwhile. They must not wait for anything that
/// these threads do.
pub trait Procedure: Send + 'static {
    /// Draws the next transaction: `plan` comes back with what it will touch, or as it is, to be found out by a first
    /// run of [`Procedure::run`] without effect (see [`Execution::Planned`](crate::Execution::Planned)). `None`: there
    /// are no more.
    fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>>;

    /// Runs the transaction that was drawn last; again, with the same inputs, after a deadlock or a miss.
    ///
    /// # Errors
    /// Whatever ends the transaction: it is undone, and [`Procedure::ended`] is told.
    fn run(&mut self, tx: &mut Transaction) -> Result<()>;

    /// Is told that the transaction has ended: committed, with a ticket that tells when it is durable, or undone.
    /// Nobody has waited for the disk: [`CommitTicket::is_durable`] asks; whoever has promised something to somebody
    /// waits for the ticket, on another thread.
    ///
    /// After [`Error::Closed`] and [`Error::Poisoned`] no more is drawn. If a thread of partitioned execution dies
    /// ([`Error::ThreadDied`]), nobody is told of what was drawn last: it is not committed.
    fn ended(&mut self, result: Result<CommitTicket>);
}

/// Procedures that are being served. Made by [`Database::serve`]. Dropping it stops them.
#[derive(Debug)]
#[must_use = "dropping it stops the procedures"]
pub struct Serving<P> {
    desk: Arc<Desk<P>>,
}

/// Where procedures are told to stop, and come to when they have.
struct Desk<P> {
    /// Written once, by whoever stops them; read between two transactions. No order: it carries no data.
    stopped: AtomicBool,
    back: Mutex<Back<P>>,
    changed: Condvar,
    database: std::path::PathBuf,
    partitions: Arc<Partitions>,
}

/// What came back.
struct Back<P> {
    procedures: Vec<P>,
    /// How many procedures have not ended.
    left: usize,
    /// What one of them panicked with.
    panic: Option<Box<dyn Any + Send>>,
    /// The threads ended while one of them had a transaction.
    lost: bool,
}

impl<P> Drop for Back<P> {
    /// Nobody has asked: see the `Drop` of a submitted transaction's cell.
    fn drop(&mut self) {
        mem::forget(self.panic.take());
        nested::within(|| drop(mem::take(&mut self.procedures)));
    }
}

impl<P> std::fmt::Debug for Desk<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl<P> Serving<P> {
    /// Lets each procedure end the transaction that it has, and draw no more. Does not wait.
    pub fn stop(&self) {
        self.desk.stopped.store(true, Ordering::Relaxed);
    }

    /// Waits, until `deadline` at most, until all have ended: there were no more transactions, or they were stopped.
    /// Whether they have; at once, in a fork of the process that began: [`Serving::wait`] says so.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        if self.desk.partitions.is_forked() {
            return false;
        }
        let mut back = self.desk.back.lock();
        while back.left > 0 && Instant::now() < deadline {
            back = self.desk.changed.wait_until(back, deadline);
        }
        back.left == 0
    }

    /// Waits until all have ended (not for the disk), and gives them back, in the order in which they ended.
    ///
    /// # Errors
    /// [`Error::Closed`] or [`Error::ThreadDied`] if the threads ended before; [`Error::Forked`] in a fork of the
    /// process; [`Error::WaitInBody`] if it would have to wait on one of these threads (see
    /// [`Submitted::wait`](crate::Submitted::wait)): the procedures are stopped, as where the handle is dropped.
    ///
    /// # Panics
    /// If a procedure has panicked under locks, or where it draws or is told, with what it said. Its transaction has
    /// left no trace. The others go on, and the panic is passed on when they have ended, too ([`Serving::stop`]).
    pub fn wait(self) -> Result<Vec<P>> {
        if self.desk.partitions.is_forked() {
            return Err(lost(&self.desk.database, &self.desk.partitions));
        }
        let mut back = self.desk.back.lock();
        while back.left > 0 {
            // DB-11.
            if Partitions::are_here() {
                return Err(Error::WaitInBody);
            }
            back = self.desk.changed.wait(back);
        }
        if let Some(panic) = back.panic.take() {
            drop(back);
            resume_unwind(panic);
        }
        if back.lost {
            return Err(lost(&self.desk.database, &self.desk.partitions));
        }
        Ok(mem::take(&mut back.procedures))
    }
}

impl<P> Drop for Serving<P> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A procedure on the side of those who run it.
struct Served<P> {
    /// Until it has ended.
    procedure: Option<P>,
    /// How its transactions run, unless their plans say otherwise.
    options: TransactOptions,
    desk: Arc<Desk<P>>,
}

/// How a procedure ends.
enum End {
    /// There are no more transactions, or it was stopped.
    Done,
    Panicked(Box<dyn Any + Send>),
    /// The threads have ended before.
    Lost,
}

impl<P: Procedure> Served<P> {
    /// Draws a transaction; the memory of the last one's plan is used again. What is wrong with its plan is told when
    /// it runs.
    fn draw(
        &mut self,
        database: &Database,
        steps: Steps<'static>,
    ) -> Option<(TransactOptions, Planner<'static>)> {
        if self.desk.stopped.load(Ordering::Relaxed) {
            return None;
        }
        let plan = Plan::over(database, self.options.clone(), steps);
        let (options, steps) = self.procedure.as_mut()?.draw(plan)?.into_parts();
        Some((options, Planner::checked(steps)))
    }

    /// Tells how the last transaction ended, and draws another one.
    fn next(
        &mut self,
        ended: Ended<()>,
        database: Option<&Database>,
        steps: Steps<'static>,
    ) -> Result<(TransactOptions, Planner<'static>), End> {
        let result = match ended {
            Ended::Committed((), ticket, _) => Ok(ticket),
            Ended::Failed(error) => Err(error),
            Ended::Panicked(panic) => return Err(End::Panicked(panic)),
            Ended::Lost => return Err(End::Lost),
        };
        // All that it could draw would meet the same.
        let over =
            matches!(result, Err(Error::Closed { .. } | Error::Poisoned { .. } | Error::Forked { .. }));
        let drawn = catch_unwind(AssertUnwindSafe(|| {
            nested::within(|| {
                if let Some(procedure) = &mut self.procedure {
                    procedure.ended(result);
                }
                if over { None } else { self.draw(database?, steps) }
            })
        }));
        end_of_a_fork(self.desk.partitions.is_forked());
        drawn.map_err(End::Panicked)?.ok_or(End::Done)
    }

    /// Brings the procedure back, which has ended.
    fn leave(&mut self, end: End) {
        let mut back = self.desk.back.lock();
        back.procedures.extend(self.procedure.take());
        back.left -= 1;
        match end {
            End::Done => {}
            End::Panicked(panic) if back.panic.is_none() => back.panic = Some(panic),
            // One is told. What another one carries may panic where it is dropped.
            End::Panicked(panic) => mem::forget(panic),
            End::Lost => back.lost = true,
        }
        drop(back);
        self.desk.changed.notify_all();
    }
}

impl<P: Procedure> Client for Served<P> {
    type Output = ();

    fn run(&mut self, tx: &mut Transaction) -> Result<()> {
        match &mut self.procedure {
            Some(procedure) => procedure.run(tx),
            None => Err(Error::application("the procedure has ended")),
        }
    }

    fn end(&mut self, ended: Ended<()>, database: Option<Database>, steps: Steps<'static>) -> Option<Again> {
        match self.next(ended, database.as_ref(), steps) {
            Ok((options, planner)) => database.map(|database| Again { database, planner, options }),
            Err(end) => {
                // Whoever waits may open the database again.
                drop(database);
                self.leave(end);
                None
            }
        }
    }
}

impl Database {
    /// Gives procedures to the threads of partitioned execution, which draw transactions from them and run these, until
    /// there are no more: for programs whose transactions come from somewhere that these threads can look at
    /// themselves, a queue, a connection, a generator. No transaction is handed over between threads then, only locks
    /// are; between two of its transactions a procedure may go to a thread that has fewer. For transactions that come
    /// one by one there is [`Plan::submit`].
    ///
    /// Each procedure has one transaction under way at a time. An execution thread takes as many procedures as
    /// [`Options::execution_window`](crate::Options::execution_window) says, and goes to another while locks are on
    /// their way: give it several for each. They keep the database open until they have ended, unless
    /// [`Database::close`] is called, which ends them.
    ///
    /// ```
    /// # use foreshore::{CommitTicket, Database, Durability, Plan, Procedure, Result, TableDefinition};
    /// # use foreshore::{TransactOptions, Transaction};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let db = Database::open(directory.path())?;
    /// const VOTES: TableDefinition<u32, u64> = TableDefinition::new("votes");
    ///
    /// struct Votes {
    ///     cast: Vec<u32>,
    ///     party: u32,
    /// }
    ///
    /// impl Procedure for Votes {
    ///     fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
    ///         self.party = self.cast.pop()?;
    ///         Some(plan.write(VOTES, self.party))
    ///     }
    ///
    ///     fn run(&mut self, tx: &mut Transaction) -> Result<()> {
    ///         let votes = tx.get(VOTES, self.party)?.unwrap_or(0) + 1;
    ///         tx.put(VOTES, self.party, votes).map(drop)
    ///     }
    ///
    ///     fn ended(&mut self, result: Result<CommitTicket>) {
    ///         result.expect("every vote counts");
    ///     }
    /// }
    ///
    /// let options = TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() };
    /// let boxes = [vec![0, 1, 2, 0], vec![1, 0, 0]].map(|cast| Votes { cast, party: 0 });
    /// db.serve(&options, boxes)?.wait()?;
    /// # assert_eq!(db.transact(|tx| tx.get(VOTES, 0))?, Some(4));
    /// # Ok::<(), foreshore::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] if the threads cannot be started; [`Error::Closed`], [`Error::Poisoned`], [`Error::Forked`].
    #[track_caller]
    pub fn serve<P: Procedure>(
        &self,
        options: &TransactOptions,
        procedures: impl IntoIterator<Item = P>,
    ) -> Result<Serving<P>> {
        let partitions = self.partitions()?;
        let mut options = options.clone();
        let body_limit = nested::bound(&mut options, self);
        let procedures: Vec<P> = procedures.into_iter().collect();
        let desk = Arc::new(Desk {
            stopped: AtomicBool::new(false),
            back: Mutex::new(Back {
                procedures: Vec::with_capacity(procedures.len()),
                left: procedures.len(),
                panic: None,
                lost: false,
            }),
            changed: Condvar::default(),
            database: self.path().to_path_buf(),
            partitions: Arc::clone(partitions),
        });
        // If drawing panics, those that were drawn from before are stopped.
        let serving = Serving { desk };
        for procedure in procedures {
            let desk = Arc::clone(&serving.desk);
            let mut served = Served { procedure: Some(procedure), options: options.clone(), desk };
            match served.draw(self, Steps::default()) {
                Some((options, planner)) => {
                    let task = Task::new(self.clone(), options, planner, served).with_body_limit(body_limit);
                    partitions.submit(Box::new(task));
                }
                None => served.leave(End::Done),
            }
        }
        Ok(serving)
    }
}
