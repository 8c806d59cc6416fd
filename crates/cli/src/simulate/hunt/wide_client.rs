//! What clients do beside transactions in the seeds that are wide: copies of the database and compactions while others
//! work, plans that name ranges and tables, transactions that are lent only to read, looks at who waits for whom.

use std::{
    path::PathBuf,
    pin::pin,
    task::{Context, Poll, Wake, Waker},
};

use foreshore::{Durability, Error, ReadMode, Result, Submitted, TableLock, TransactOptions, Transaction};
use foreshore_env::{
    random::Xorshift,
    sync::{Arc, atomic::Ordering},
    thread::{self, Thread},
    time::Duration,
};

use super::{
    attempt::{Did, Run, Told, told},
    client::{Acts, Client, body, is_usual, table},
    copies::Copy,
    wide::{LONGEST_WAIT_US, ReadOrWrite},
};

/// The seeds that are wide, by what is left of them when they are divided: about one in four, beside each other choice
/// that is made so. They are chosen without a draw, and draw apart, so that the other seeds stay as they were.
const WIDE: [(u64, &[u64]); 2] = [(11, &[5]), (13, &[5, 10])];
/// The most steps of a declared plan.
const MOST_DECLARED: u64 = 5;

/// Options that only wide seeds have other than by default, each in one seed of two.
const CHOICES: [(&str, &[&str]); 9] = [
    ("free_space", &["uncached", "global_mutex", "global_mcs"]),
    ("read_ahead", &["0", "3"]),
    ("log_full", &["end_oldest"]),
    ("escalation_bytes", &["1KiB", "4KiB"]),
    ("lock_buckets", &["16"]),
    ("recovery_target", &["0s", "10ms"]),
    ("lock_timeout", &["2ms", "50ms"]),
    ("submit_queue", &["1", "3"]),
    ("log_past_cache", &["false"]),
];

/// Whether a seed is wide.
pub(super) fn is_wide(seed: u64) -> bool {
    WIDE.iter().any(|(divisor, left)| left.contains(&(seed % divisor)))
}

/// Draws what is other in a wide seed; gives whether its last life that is closed is closed while clients work.
pub(super) fn draw(
    seed: u64,
    options: &mut foreshore::Options,
    settings: &mut Vec<(&'static str, &'static str)>,
) -> bool {
    let mut random = Xorshift::new(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1);
    for _ in 0..8 {
        random.next_u64();
    }
    for (name, values) in CHOICES {
        let value = values[random.below(values.len() as u64) as usize];
        if random.below(2) == 0 {
            options.set(name, value).expect("the values above are values of their options");
            settings.push((name, value));
        }
    }
    random.below(2) == 0
}

/// Wakes a thread that awaits a submitted transaction.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The result of a submitted transaction, as a task of some runtime gets it.
pub(super) fn awaited(submitted: Submitted<()>) -> Result<()> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut submitted = pin!(submitted);
    loop {
        match submitted.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

impl Client<'_> {
    /// Something that is no plain transaction.
    pub(super) fn wide_act(&mut self, serial: u64) -> Result<()> {
        match self.hand.random.below(12) {
            0 => self.copy(serial),
            1 => self.db.compact().map(drop),
            2 => self.look_around(),
            3..7 => self.read(),
            _ => self.declared(serial),
        }
    }

    /// Whether it may meet this error only in a wide seed.
    pub(super) fn is_usual_when_wide(&self, error: &Error) -> bool {
        let log_is_small = self.db.options().log_bytes < 16 << 20;
        match error {
            Error::Busy { .. } | Error::SubmitQueueFull { .. } => true,
            Error::LogHeld | Error::BackupStopped { .. } => log_is_small,
            Error::Closed { .. } => self.closes,
            _ => false,
        }
    }

    fn copy(&mut self, serial: u64) -> Result<()> {
        let path = PathBuf::from(format!("/copy-{}-{}-{serial}", self.hand.life, self.hand.number));
        let from = self.shared.order.load(Ordering::SeqCst);
        let result = self.db.backup(&path);
        self.copies.push(Copy { path, from, made: result.is_ok() });
        result.map(drop)
    }

    /// Whoever looks is in nobody's way, and gets an answer.
    fn look_around(&mut self) -> Result<()> {
        let texts =
            [self.db.locks().to_string(), self.db.waits_for().to_string(), self.db.waits_for().to_dot()];
        let _ = (texts, self.db.stats(), self.db.log_retention(), self.db.tables()?, self.db.prepared()?);
        self.db.flush()
    }

    /// A transaction that has nothing to write with.
    fn read(&mut self) -> Result<()> {
        let read_mode =
            [None, Some(ReadMode::Hybrid), Some(ReadMode::Locking)][self.hand.random.below(3) as usize];
        let options = TransactOptions { read_mode, ..self.options() };
        let drawn = self.hand.clone();
        self.hand.random.next_u64();
        let run =
            Run { last: Arc::default(), committed: told(&options), order: Arc::clone(&self.shared.order) };
        let result = self.db.read_with(&options, |tx| {
            *run.last.lock() = None;
            let (mut hand, mut ops) = (drawn.clone(), Vec::new());
            if hand.random.below(12) == 0 {
                tx.lock_table(table(hand.random.below(2) as u32))?;
            }
            for _ in 0..=hand.random.below(6) {
                hand.look(&mut ReadOrWrite::Read(tx), &mut ops)?;
            }
            let position = run.order.fetch_add(1, Ordering::SeqCst);
            *run.last.lock() = Some(Did { position, ops, row: None });
            Ok(())
        });
        self.note(&run, result)
    }

    /// A transaction that says, more or less, what it will touch.
    fn declared(&mut self, serial: u64) -> Result<()> {
        let options = self.options();
        let (body, run) = body(&mut self.hand, &self.shared.order, serial, told(&options), Acts::Anyhow);
        let mut plan = self.db.plan().options(options);
        for _ in 0..self.hand.random.below(MOST_DECLARED) {
            let (number, key) = (self.hand.random.below(2) as u32, self.hand.key());
            let (low, high) = (self.hand.bound(), self.hand.bound());
            let range = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
            plan = match self.hand.random.below(8) {
                0 | 1 => plan.read(table(number), &key),
                2 | 3 => plan.write(table(number), &key),
                4 => plan.read_range(table(number), range),
                5 => plan.write_range(table(number), range),
                6 => plan.lock_table(table(number), TableLock::Shared),
                _ => plan.lock_table(table(number), TableLock::SharedIntentExclusive),
            };
        }
        if self.hand.random.below(3) == 0 {
            self.submitted.push((plan.submit(body)?, run));
            return Ok(());
        }
        let result = plan.run(body);
        self.note(&run, result)
    }

    /// Who gives way, and when, is up to more than what all seeds draw.
    pub(super) fn vary(&mut self, options: &mut TransactOptions) {
        let short = Duration::from_micros(self.hand.random.below(LONGEST_WAIT_US));
        options.priority = self.hand.random.below(3) as i8 - 1;
        options.lock_timeout = (self.hand.random.below(6) == 0).then_some(short);
        options.label =
            (self.hand.random.below(3) == 0).then(|| format!("client {}", self.hand.number).into());
    }

    /// Commits a transaction as durably as its options say or, in wide seeds, as is said now; gives what that promises.
    pub(super) fn commit(&mut self, tx: Transaction, options: &TransactOptions) -> (Told, Result<()>) {
        if self.hand.wide && self.hand.random.below(3) == 0 {
            let (durability, told) = match self.hand.random.below(2) {
                0 => (Durability::Sync, Told::Durable),
                _ => (Durability::Lazy, Told::Lazy),
            };
            return (told, tx.commit_with(durability));
        }
        (told(options), tx.commit())
    }

    /// Closes the database while others work.
    pub(super) fn close(&mut self) -> Result<()> {
        match self.db.close() {
            Err(error) if !is_usual(&error) => Err(error),
            _ => Ok(()),
        }
    }
}
