//! One thread of a run: random transactions on few keys, whose results are remembered for the judge.

use std::ops::Bound;

use foreshore::{
    CancelHandle, CommitTicket, Database, Direction, Durability, Error, Isolation, Pipeline, Result,
    Savepoint, TableDefinition, TableLock, TransactOptions, Transaction,
};
use foreshore_env::{
    random::Xorshift,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use foreshore_testkit::history::Op;

pub(super) type Bytes<'b> = TableDefinition<'static, &'b [u8], &'b [u8]>;

/// The tables of the history: two of data, and one in which each transaction that writes leaves a row of its own.
pub(super) const TABLES: [&str; 3] = ["one", "two", "ledger"];
/// The number of the table of rows.
const LEDGER: u32 = 2;
/// A table that comes and goes, outside of the history.
const SCRATCH: &str = "scratch";
/// What the row in the ledger says.
const WRITTEN: &[u8] = b"committed";
/// Commits of a pipeline that are waited for together.
const TICKETS: usize = 4;
/// How long a thread waits for the moment at which nobody writes.
const VERIFY_WAIT: Duration = Duration::from_millis(200);

/// The longest that a transaction rests between two operations, in microseconds: checkpoints pass meanwhile.
const LONGEST_REST_US: u64 = 1000;

/// A table by its number.
pub(super) fn table<'b>(number: u32) -> Bytes<'b> {
    TableDefinition::new(TABLES[number as usize])
}

/// What a client was told of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It is on the disk.
    Durable,
    /// It has happened, and reaches the disk soon.
    Lazy,
    /// It may have happened.
    Unknown,
    /// It has not happened.
    Refused,
}

/// A transaction that tried to commit.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Its place in the order of commits: drawn while it held all its locks.
    pub(super) position: u64,
    pub(super) ops: Vec<Op>,
    /// Its key in the ledger; one that only read has none.
    pub(super) row: Option<Vec<u8>>,
    pub(super) told: Told,
}

impl Attempt {
    pub(super) fn name(&self) -> String {
        let row = self.row.as_ref().map(|row| String::from_utf8_lossy(row).into_owned());
        row.unwrap_or_else(|| format!("reader {}", self.position))
    }
}

/// What the threads of a run share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The next place in the order of commits.
    pub(super) order: AtomicU64,
    /// Transactions that may be cancelled by anybody; some are over.
    cancellable: Mutex<Vec<CancelHandle>>,
}

/// One thread of one life.
pub(super) struct Client<'s> {
    pub(super) db: Database,
    pub(super) shared: &'s Shared,
    pub(super) random: Xorshift,
    /// Which life, and which thread: part of the names of its transactions.
    pub(super) life: usize,
    pub(super) number: u64,
    pub(super) keys: u64,
    pub(super) long_values: u64,
    pub(super) attempts: Vec<Attempt>,
    /// Commits on their way to the disk, with their places among the attempts.
    pub(super) tickets: Vec<(usize, CommitTicket)>,
}

/// What a client leaves.
pub(super) struct Outcome {
    pub(super) attempts: Vec<Attempt>,
    /// What made it stop before its end.
    pub(super) error: Option<Error>,
    /// What must not be, whatever the disk does.
    pub(super) wrong: Option<String>,
}

/// What a transaction is ended by.
enum How {
    Commit,
    Pipelined,
    Rollback,
}

impl Client<'_> {
    /// Runs so many transactions.
    pub(super) fn run(mut self, transactions: u64, log_is_small: bool) -> Outcome {
        let mut pipeline = (self.random.below(3) == 0).then(|| self.db.pipeline());
        let mut wrong = None;
        let mut error = None;
        for serial in 0..transactions {
            let result = match self.random.below(60) {
                0 => self.db.checkpoint(),
                1 => self.verify(pipeline.as_ref(), &mut wrong),
                2..5 => self.scratch(serial),
                _ => self.transaction(serial, pipeline.as_mut()),
            };
            match result {
                Err(Error::LogFull { .. }) if log_is_small => {}
                Err(why) if !is_usual(&why) => {
                    error = Some(why);
                    break;
                }
                _ => {}
            }
        }
        let settled = self.settle();
        Outcome { attempts: self.attempts, error: error.or(settled.err()), wrong }
    }

    fn key(&mut self) -> Vec<u8> {
        // Two lengths, so that one key may be the prefix of another.
        let number = self.random.below(self.keys);
        let mut key = vec![b'k', b'0' + (number / 2 % 64) as u8];
        key.extend((number >= 128).then_some((number / 128) as u8));
        if number % 2 == 1 {
            key.push(b'x');
        }
        key
    }

    /// A value that nobody else writes; now and then one that needs the overflow table.
    fn value(&mut self, serial: u64) -> Vec<u8> {
        let mut value =
            format!("{}-{}-{serial}-{}", self.life, self.number, self.random.below(10_000)).into_bytes();
        if self.random.below(self.long_values) == 0 {
            value.resize(3000 + self.random.below(4000) as usize, b'.');
        }
        value
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.random.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }

    fn options(&mut self) -> TransactOptions {
        let durable = self.random.below(2) == 0;
        TransactOptions {
            isolation: Some(Isolation::Serializable),
            durability: Some(if durable { Durability::Sync } else { Durability::Lazy }),
            deadline: (self.random.below(6) == 0).then(|| Duration::from_micros(self.random.below(5000))),
            no_wait: self.random.below(12) == 0,
            ..TransactOptions::default()
        }
    }

    fn transaction(&mut self, serial: u64, pipeline: Option<&mut Pipeline>) -> Result<()> {
        let options = self.options();
        let pipelined = pipeline.is_some();
        let mut tx = match pipeline {
            Some(pipeline) => pipeline.begin_with(&options)?,
            None => self.db.begin_with(&options)?,
        };
        self.lend_and_cancel(&mut tx);
        let reads_only = self.random.below(4) == 0;
        if self.random.below(10) == 0 {
            let lock = if reads_only || self.random.below(2) == 0 {
                TableLock::Shared
            } else {
                TableLock::Exclusive
            };
            tx.lock_table(table(self.random.below(2) as u32), lock)?;
        }
        let (mut ops, mut savepoints) = (Vec::new(), Vec::new());
        for _ in 0..=self.random.below(6) {
            if self.random.below(8) == 0 {
                thread::sleep(Duration::from_micros(self.random.below(LONGEST_REST_US)));
            }
            match self.operation(&mut tx, &mut ops, &mut savepoints, reads_only, serial) {
                // What failed has changed nothing, and the transaction may go on.
                Err(Error::WouldBlock(_) | Error::LockTimeout(_)) if self.random.below(2) == 0 => {}
                result => result?,
            }
        }
        let how = match self.random.below(10) {
            0 => How::Rollback,
            _ if pipelined => How::Pipelined,
            _ => How::Commit,
        };
        if matches!(how, How::Rollback) {
            return tx.rollback();
        }
        let row = (!reads_only).then(|| format!("{}-{}-{serial}", self.life, self.number).into_bytes());
        if let Some(row) = &row {
            let inserted = tx.insert(table(LEDGER), &row[..], WRITTEN)?;
            ops.push(Op::Insert { table: LEDGER, key: row.clone(), value: WRITTEN.to_vec(), inserted });
        }
        // Drawn while all locks are held: whoever depends on this transaction draws later.
        let position = self.shared.order.fetch_add(1, Ordering::SeqCst);
        let (told, result) = match how {
            How::Pipelined => match tx.commit_pipelined() {
                Ok(ticket) => {
                    self.tickets.push((self.attempts.len(), ticket));
                    (Told::Lazy, Ok(()))
                }
                Err(error) => (refusal(&error), Err(error)),
            },
            _ => match tx.commit() {
                Ok(()) if options.durability == Some(Durability::Sync) => (Told::Durable, Ok(())),
                Ok(()) => (Told::Lazy, Ok(())),
                Err(error) => (refusal(&error), Err(error)),
            },
        };
        self.attempts.push(Attempt { position, ops, row, told });
        result?;
        if self.tickets.len() >= TICKETS { self.settle() } else { Ok(()) }
    }

    /// Lends the transaction to whoever wants to cancel one, and cancels one, perhaps its own.
    fn lend_and_cancel(&mut self, tx: &mut Transaction) {
        if self.random.below(8) != 0 {
            return;
        }
        let mut cancellable = self.shared.cancellable.lock();
        cancellable.push(tx.cancel_handle());
        if self.random.below(3) == 0 {
            let place = self.random.below(cancellable.len() as u64) as usize;
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
                Ok(()) => self.attempts[place].told = Told::Durable,
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
        let report = self.db.verify_within(VERIFY_WAIT)?;
        if !report.is_sound() {
            *wrong = Some(format!("unsound while it runs: {:?}", report.problems));
        }
        Ok(())
    }

    /// Fills the table that comes and goes, or drops it.
    fn scratch(&mut self, serial: u64) -> Result<()> {
        if self.random.below(3) == 0 {
            return self.db.drop_table(SCRATCH).map(|_| ());
        }
        let scratch = Bytes::new(SCRATCH);
        let keys: Vec<(Vec<u8>, Vec<u8>)> = (0..12).map(|_| (self.key(), self.value(serial))).collect();
        let options = self.options();
        let result = self.db.transact_with(&options, |tx| {
            keys.iter().try_for_each(|(key, value)| tx.put(scratch, &key[..], &value[..]).map(|_| ()))
        });
        match result {
            // It was dropped meanwhile.
            Err(Error::NoSuchTable { .. }) => Ok(()),
            result => result,
        }
    }

    fn operation(
        &mut self,
        tx: &mut Transaction,
        ops: &mut Vec<Op>,
        savepoints: &mut Vec<(usize, Savepoint)>,
        reads_only: bool,
        serial: u64,
    ) -> Result<()> {
        let number = self.random.below(2) as u32;
        let key = self.key();
        let op = match self.random.below(if reads_only { 8 } else { 20 }) {
            0..4 => {
                let for_update = !reads_only && self.random.below(3) == 0;
                let result = if for_update {
                    tx.get_for_update(table(number), &key)?
                } else {
                    tx.get(table(number), &key)?
                };
                Op::Get { table: number, key, result }
            }
            4..8 => self.scan(tx, number, reads_only)?,
            8..11 => {
                let value = self.value(serial);
                let inserted = tx.insert(table(number), &key, &value[..])?;
                Op::Insert { table: number, key, value, inserted }
            }
            11..13 => {
                let value = self.value(serial);
                let existed = tx.put(table(number), &key, &value[..])?;
                Op::Put { table: number, key, value, existed }
            }
            13 => {
                let value = self.value(serial);
                let updated = tx.update(table(number), &key, &value[..])?;
                Op::Update { table: number, key, value, updated }
            }
            14..18 => {
                let existed = tx.delete(table(number), &key)?;
                Op::Delete { table: number, key, existed }
            }
            18 => {
                let made = ops.iter().filter(|op| matches!(op, Op::Savepoint)).count();
                savepoints.push((made, tx.savepoint()?));
                Op::Savepoint
            }
            _ => {
                if savepoints.is_empty() {
                    return Ok(());
                }
                let place = self.random.below(savepoints.len() as u64) as usize;
                let (made, savepoint) = savepoints[place];
                tx.rollback_to(savepoint)?;
                savepoints.truncate(place + 1);
                Op::RollbackTo(made)
            }
        };
        ops.push(op);
        Ok(())
    }

    fn scan(&mut self, tx: &mut Transaction, number: u32, reads_only: bool) -> Result<Op> {
        let (low, high, descending) = (self.bound(), self.bound(), self.random.below(2) == 0);
        let direction = if descending { Direction::Descending } else { Direction::Ascending };
        let most = self.random.below(12) as usize;
        let slices = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        let mut cursor = if !reads_only && self.random.below(4) == 0 {
            tx.cursor_for_update(table(number), slices, direction)?
        } else {
            tx.cursor(table(number), slices, direction)?
        };
        let (mut result, mut complete) = (Vec::new(), false);
        while result.len() < most && !complete {
            match cursor.next(tx)? {
                Some(entry) => result.push(entry),
                None => complete = true,
            }
        }
        Ok(Op::Scan { table: number, low, high, descending, complete, result })
    }
}

/// What a failed commit says of itself.
fn refusal(error: &Error) -> Told {
    if matches!(error, Error::OutcomeUnknown { .. }) { Told::Unknown } else { Told::Refused }
}

/// Whether an error is one of concurrency's, and leaves the database as healthy as before.
pub(super) fn is_usual(error: &Error) -> bool {
    matches!(error, Error::Deadlock(_) | Error::LockTimeout(_) | Error::WouldBlock(_) | Error::Cancelled)
}
