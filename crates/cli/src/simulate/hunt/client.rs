//! One thread of a run: random transactions on few keys, whose results are remembered for the judge.

use foreshore::{
    CancelHandle, CommitTicket, Database, Durability, Error, Execution, Isolation, Pipeline, Result,
    Submitted, TableDefinition, TableLock, TransactOptions, Transaction,
};
use foreshore_env::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use foreshore_testkit::history::Op;

use super::{
    attempt::{Attempt, Did, Run, Told, refusal, told, unprepared},
    copies::Copy,
    hand::{Course, Hand},
    plan::{Way, Ways},
    scratch::{self, Drop},
    wide_client::awaited,
};

pub(super) type Bytes<'b> = TableDefinition<'static, &'b [u8], &'b [u8]>;

/// The tables of the history: two of data, and one in which each transaction that writes leaves a row of its own.
pub(super) const TABLES: [&str; 3] = ["one", "two", "ledger"];
/// The number of the table of rows.
const LEDGER: u32 = 2;
/// What the row in the ledger says.
const WRITTEN: &[u8] = b"committed";
/// Commits of a pipeline that are waited for together.
const TICKETS: usize = 4;
/// Transactions that a client has submitted and not waited for, at most, but for those with a declared plan.
const SUBMITTED: u64 = 5;
/// How long a thread waits for the moment at which nobody writes.
const VERIFY_WAIT: Duration = Duration::from_millis(200);
/// What is said of a dropped table with a damaged page, and by an error that the disk was told to give.
const CANNOT_BE_FREED: &str = "cannot be freed";
const FAILED_BY_PLAN: &str = "input/output error (simulated)";

/// A table by its number.
pub(super) fn table<'b>(number: u32) -> Bytes<'b> {
    TableDefinition::new(TABLES[number as usize])
}

/// What the threads of a run share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The next place in the order of commits.
    pub(super) order: Arc<AtomicU64>,
    /// Transactions that may be cancelled by anybody; some are over.
    cancellable: Mutex<Vec<CancelHandle>>,
}

/// One thread of one life.
pub(super) struct Client<'s> {
    pub(super) db: Database,
    pub(super) shared: &'s Shared,
    pub(super) hand: Hand,
    /// How its transactions may run.
    pub(super) ways: Ways,
    /// Whether some of them are committed in two phases.
    pub(super) prepares: bool,
    /// Of so many transactions one is a checkpoint.
    pub(super) checkpoint_every: u64,
    pub(super) attempts: Vec<Attempt>,
    /// What it did to drop the table that comes and goes.
    pub(super) drops: Vec<Drop>,
    /// Commits on their way to the disk, with their places among the attempts.
    pub(super) tickets: Vec<(usize, CommitTicket)>,
    /// Transactions that threads of the database run, oldest first.
    pub(super) submitted: Vec<(Submitted<()>, Run)>,
    /// Somebody closes the database while others work.
    pub(super) closes: bool,
    /// Backups that it made.
    pub(super) copies: Vec<Copy>,
}

/// What a client leaves.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) attempts: Vec<Attempt>,
    pub(super) drops: Vec<Drop>,
    pub(super) copies: Vec<Copy>,
    /// What made it stop before its end.
    pub(super) error: Option<Error>,
    /// What must not be, whatever the disk does.
    pub(super) wrong: Option<String>,
}

/// What a transaction is ended by.
enum How {
    Commit,
    Pipelined,
    TwoPhases,
    Rollback,
}

impl Client<'_> {
    /// Runs so many transactions.
    pub(super) fn run(mut self, transactions: u64, log_is_small: bool) -> Outcome {
        let mut pipeline = (self.hand.random.below(3) == 0).then(|| self.db.pipeline());
        let mut wrong = None;
        let mut error = None;
        for serial in 0..transactions {
            let result = match self.hand.random.below(60) {
                _ if self.hand.random.below(self.checkpoint_every) == 0 => self.db.checkpoint(),
                1 => self.verify(pipeline.as_ref(), &mut wrong),
                2..5 => self.scratch(serial),
                _ if self.closes && self.hand.number == 0 && serial > transactions / 2 => self.close(),
                _ if self.hand.wide && self.hand.random.below(6) == 0 => self.wide_act(serial),
                _ => match self.ways.draw(&mut self.hand.random) {
                    Way::Stepwise => self.transaction(serial, pipeline.as_mut()),
                    Way::Planned => self.planned(serial),
                    Way::Submitted => self.submit(serial),
                },
            };
            match result {
                Err(Error::LogFull { .. }) if log_is_small => {}
                Err(Error::Closed { .. }) if self.closes => break,
                Err(why) if self.hand.wide && self.is_usual_when_wide(&why) => {}
                Err(why) if !is_usual(&why) => {
                    error = Some(why);
                    break;
                }
                _ => {}
            }
        }
        let mut settled = self.settle();
        while !self.submitted.is_empty() {
            let ended = self.wait_for_oldest();
            let is_usual = |why: &Error| is_usual(why) || (self.hand.wide && self.is_usual_when_wide(why));
            settled = settled.and(ended.or_else(|why| if is_usual(&why) { Ok(()) } else { Err(why) }));
        }
        let Client { attempts, drops, copies, .. } = self;
        Outcome { attempts, drops, copies, error: error.or(settled.err()), wrong }
    }

    pub(super) fn options(&mut self) -> TransactOptions {
        let read_mode = Some(self.db.options().read_mode);
        let mut drawn = TransactOptions { read_mode, ..options(&mut self.hand) };
        if self.hand.wide {
            self.vary(&mut drawn);
        }
        drawn
    }

    fn transaction(&mut self, serial: u64, pipeline: Option<&mut Pipeline>) -> Result<()> {
        let options = self.options();
        let pipelined = pipeline.is_some();
        let mut tx = match pipeline {
            Some(pipeline) => pipeline.begin_with(&options)?,
            None => self.db.begin_with(&options)?,
        };
        self.lend_and_cancel(&mut tx);
        let reads_only = self.hand.random.below(4) == 0;
        if self.hand.random.below(10) == 0 {
            let lock = if reads_only || self.hand.random.below(2) == 0 {
                TableLock::Shared
            } else {
                TableLock::Exclusive
            };
            tx.lock_table(table(self.hand.random.below(2) as u32), lock)?;
        }
        let mut course = Course::new(reads_only, serial);
        let reads_twice = !reads_only && self.hand.random.below(10) == 0;
        if reads_twice {
            self.hand.read_twice(&mut tx, &mut course.ops, serial)?;
        }
        let others = if reads_twice { 0..0 } else { 0..1 + self.hand.random.below(6) };
        for _ in others {
            if self.hand.random.below(8) == 0 {
                self.hand.rest();
            }
            match self.hand.operation(&mut tx, &mut course) {
                // What failed has changed nothing, and the transaction may go on.
                Err(Error::WouldBlock(_) | Error::LockTimeout(_)) if self.hand.random.below(2) == 0 => {}
                result => result?,
            }
        }
        let how = match self.hand.random.below(10) {
            0 => How::Rollback,
            _ if pipelined => How::Pipelined,
            _ if self.prepares && !reads_only && self.hand.random.below(3) == 0 => How::TwoPhases,
            _ => How::Commit,
        };
        if matches!(how, How::Rollback) {
            return tx.rollback();
        }
        let row =
            (!reads_only).then(|| format!("{}-{}-{serial}", self.hand.life, self.hand.number).into_bytes());
        let mut ops = course.ops;
        let position = enter(&mut tx, &mut ops, row.as_deref(), &self.shared.order)?;
        let (told, result) = match (how, &row) {
            (How::TwoPhases, Some(row)) => self.two_phases(tx, row),
            (How::Pipelined, _) => match tx.commit_pipelined() {
                Ok(ticket) => {
                    self.tickets.push((self.attempts.len(), ticket));
                    (Told::Lazy, Ok(()))
                }
                Err(error) => (refusal(&error), Err(error)),
            },
            _ => {
                let (told, committed) = self.commit(tx, &options);
                (committed.as_ref().err().map_or(told, refusal), committed)
            }
        };
        self.attempts.push(Attempt::new(position, ops, row, told, &self.shared.order));
        result?;
        if self.tickets.len() >= TICKETS { self.settle() } else { Ok(()) }
    }

    /// Prepares a transaction, lets others meet its locks, and decides about it.
    fn two_phases(&mut self, tx: Transaction, id: &[u8]) -> (Told, Result<()>) {
        if let Err(error) = tx.prepare(id) {
            return (unprepared(&error), Err(error));
        }
        self.hand.rest();
        let commits = self.hand.random.below(3) > 0;
        let decided = if commits { self.db.commit_prepared(id) } else { self.db.rollback_prepared(id) };
        let told = match (&decided, commits) {
            (Ok(()), true) => Told::Durable,
            (Ok(()), false) => Told::Refused,
            (Err(Error::OutcomeUnknown { .. }), true) => Told::Deciding,
            (Err(Error::OutcomeUnknown { .. }), false) => Told::Undone,
            (Err(_), _) => Told::Prepared,
        };
        (told, decided)
    }

    /// Remembers what became of such a transaction.
    pub(super) fn note(&mut self, run: &Run, result: Result<()>) -> Result<()> {
        let told = match &result {
            Ok(()) => run.committed,
            Err(error) => refusal(error),
        };
        self.attempts.extend(run.ended(told));
        result
    }

    /// A transaction that gets its locks first.
    fn planned(&mut self, serial: u64) -> Result<()> {
        let options = TransactOptions { execution: Some(Execution::Planned), ..self.options() };
        let (body, run) = body(&mut self.hand, &self.shared.order, serial, told(&options), Acts::Anyhow);
        let result = self.db.transact_with(&options, body);
        self.note(&run, result)
    }

    /// A transaction that threads of the database run, beside others of this client.
    fn submit(&mut self, serial: u64) -> Result<()> {
        let options = self.options();
        let (body, run) = body(&mut self.hand, &self.shared.order, serial, told(&options), Acts::Anyhow);
        let submitted = self.db.plan().options(options).submit(body)?;
        self.submitted.push((submitted, run));
        if self.submitted.len() > self.hand.random.below(SUBMITTED) as usize {
            return self.wait_for_oldest();
        }
        Ok(())
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        let (submitted, run) = self.submitted.remove(0);
        let awaits = self.hand.wide && self.hand.random.below(2) == 0;
        let result = if awaits { awaited(submitted) } else { submitted.wait() };
        self.note(&run, result)
    }

    /// Lends the transaction to whoever wants to cancel one, and cancels one, perhaps its own.
    fn lend_and_cancel(&mut self, tx: &mut Transaction) {
        if self.hand.random.below(8) != 0 {
            return;
        }
        let mut cancellable = self.shared.cancellable.lock();
        cancellable.push(tx.cancel_handle());
        if self.hand.random.below(3) == 0 {
            let place = self.hand.random.below(cancellable.len() as u64) as usize;
            let handle = cancellable.swap_remove(place);
            drop(cancellable);
            handle.cancel();
        }
    }

    /// Waits for the commits on their way.
    fn settle(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for (place, ticket) in self.tickets.drain(..) {
            match ticket.wait() {
                Ok(()) => self.attempts[place].confirm(),
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    fn verify(&mut self, pipeline: Option<&Pipeline>, wrong: &mut Option<String>) -> Result<()> {
        // The session's own locks would be waited for.
        if let Some(pipeline) = pipeline {
            pipeline.flush()?;
        }
        let report = match self.db.verify_within(VERIFY_WAIT) {
            // Somebody is between the two phases of a commit.
            Err(Error::Busy { .. }) if self.prepares => return Ok(()),
            report => report?,
        };
        // A dropped table with a page that could not be read is left until the next opening.
        let is_left =
            |problem: &&String| problem.contains(CANNOT_BE_FREED) && problem.contains(FAILED_BY_PLAN);
        if report.problems.iter().filter(is_left).count() < report.problems.len()
            || report.problems_dropped > 0
        {
            *wrong = Some(format!("unsound while it runs: {:?}", report.problems));
        }
        Ok(())
    }
}

/// How a transaction runs.
pub(super) fn options(hand: &mut Hand) -> TransactOptions {
    let durable = hand.random.below(2) == 0;
    TransactOptions {
        isolation: Some(Isolation::Serializable),
        durability: Some(if durable { Durability::Sync } else { Durability::Lazy }),
        deadline: (hand.random.below(6) == 0).then(|| Duration::from_micros(hand.random.below(5000))),
        no_wait: hand.random.below(12) == 0,
        ..TransactOptions::default()
    }
}

/// What a transaction that is a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acts {
    /// Any operations, in the tables that stay.
    Anyhow,
    /// It fills the table that comes and goes.
    InScratch,
}

/// A transaction that is a function: what it does in each of its runs, and where it leaves what that was.
pub(super) fn body(
    hand: &mut Hand,
    order: &Arc<AtomicU64>,
    serial: u64,
    told: Told,
    acts: Acts,
) -> (impl FnMut(&mut Transaction) -> Result<()> + Send + use<>, Run) {
    let mut drawn = hand.clone();
    // The next one draws other numbers.
    hand.random.next_u64();
    drawn.random.next_u64();
    let reads_only = drawn.random.below(4) == 0 && acts == Acts::Anyhow;
    let row = (!reads_only).then(|| format!("{}-{}-{serial}", hand.life, hand.number).into_bytes());
    let run = Run { last: Arc::default(), committed: told, order: Arc::clone(order) };
    let (last, order) = (Arc::clone(&run.last), Arc::clone(order));
    let body = move |tx: &mut Transaction| {
        *last.lock() = None;
        let mut hand = drawn.clone();
        let mut course = Course::new(reads_only, serial);
        match acts {
            Acts::Anyhow => {
                for _ in 0..=hand.random.below(6) {
                    hand.operation(tx, &mut course)?;
                }
            }
            Acts::InScratch => scratch::fill(tx, &mut hand, &mut course.ops, serial)?,
        }
        let mut ops = course.ops;
        let position = enter(tx, &mut ops, row.as_deref(), &order)?;
        *last.lock() = Some(Did { position, ops, row: row.clone() });
        Ok(())
    };
    (body, run)
}

/// Leaves a transaction's row in the ledger, if it has one; gives its place in the order of commits. That is drawn
/// while all locks are held: whoever depends on this transaction draws later.
pub(super) fn enter(
    tx: &mut Transaction,
    ops: &mut Vec<Op>,
    row: Option<&[u8]>,
    order: &AtomicU64,
) -> Result<u64> {
    if let Some(row) = row {
        let inserted = tx.insert(table(LEDGER), row, WRITTEN)?;
        ops.push(Op::Insert { table: LEDGER, key: row.to_vec(), value: WRITTEN.to_vec(), inserted });
    }
    Ok(order.fetch_add(1, Ordering::SeqCst))
}

/// Whether an error is one of concurrency's, and leaves the database as healthy as before.
pub(super) fn is_usual(error: &Error) -> bool {
    use Error::{Cancelled, Deadlock, LockTimeout, RetriesExhausted, StaleReads, WouldBlock};
    match error {
        // That is by its deadline; a transaction that has none ends at some time.
        RetriesExhausted { attempts, .. } => *attempts <= TransactOptions::default().retries,
        _ => matches!(error, Deadlock(_) | StaleReads | LockTimeout(_) | WouldBlock(_) | Cancelled),
    }
}
