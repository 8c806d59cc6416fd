//! Transactions that threads of the database draw themselves, beside those of the clients.

use foreshore::{
    CommitTicket, Database, Durability, Error, Plan, Procedure, ReadMode, Result, Serving, TransactOptions,
    Transaction,
};
use foreshore_env::sync::{Arc, Mutex, atomic::AtomicU64};

use super::{
    attempt::{Attempt, Run, Told, refusal, told},
    client::{Acts, Outcome, Shared, body, is_usual, options, table},
    hand::Hand,
    plan,
};

/// The most keys that a plan names.
const MOST_DECLARED: u64 = 4;

type Body = Box<dyn FnMut(&mut Transaction) -> Result<()> + Send>;

/// Draws random transactions, as a client does.
pub(super) struct Server {
    hand: Hand,
    order: Arc<AtomicU64>,
    read_mode: ReadMode,
    log_is_small: bool,
    /// How many are left, and the number of the next one.
    left: u64,
    serial: u64,
    body: Option<Body>,
    durability: Option<Durability>,
    notes: Arc<Mutex<Notes>>,
}

/// What became of a server's transactions. Written where they end, read when all have.
#[derive(Default)]
struct Notes {
    /// The last one, until it has ended.
    run: Option<Run>,
    attempts: Vec<Attempt>,
    /// Commits that wait for the disk, with their places among the attempts.
    tickets: Vec<(usize, CommitTicket)>,
    error: Option<Error>,
}

impl Procedure for Server {
    fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
        self.left = self.left.checked_sub(1)?;
        let options = TransactOptions { read_mode: Some(self.read_mode), ..options(&mut self.hand) };
        self.durability = options.durability;
        let (body, run) = body(&mut self.hand, &self.order, self.serial, told(&options), Acts::Anyhow);
        self.serial += 1;
        self.body = Some(Box::new(body));
        self.notes.lock().run = Some(run);
        // Some say nothing of what they touch, and some what they may touch or not.
        let declared = self.hand.random.below(MOST_DECLARED + 1);
        Some((0..declared).fold(plan.options(options), |plan, _| {
            let (number, key) = (self.hand.random.below(2) as u32, self.hand.key());
            if self.hand.random.below(2) == 0 {
                plan.read(table(number), &key)
            } else {
                plan.write(table(number), &key)
            }
        }))
    }

    fn run(&mut self, tx: &mut Transaction) -> Result<()> {
        self.body.as_mut().expect("it has drawn a transaction")(tx)
    }

    fn ended(&mut self, result: Result<CommitTicket>) {
        let mut notes = self.notes.lock();
        let Some(run) = notes.run.take() else { return };
        let place = notes.attempts.len();
        match result {
            Ok(ticket) => {
                // Nobody has waited for the disk.
                notes.attempts.extend(run.ended(Told::Lazy));
                if self.durability == Some(Durability::Sync) && notes.attempts.len() > place {
                    notes.tickets.push((place, ticket));
                }
            }
            Err(error) => {
                notes.attempts.extend(run.ended(refusal(&error)));
                let full = matches!(error, Error::LogFull { .. } | Error::LogHeld) && self.log_is_small;
                if !full && !is_usual(&error) {
                    self.left = 0;
                    notes.error.get_or_insert(error);
                }
            }
        }
    }
}

/// The servers of a life, at work.
pub(super) struct Served {
    serving: Serving<Server>,
    notes: Vec<Arc<Mutex<Notes>>>,
}

/// Lets the database draw transactions from as many servers as `plan` has; the first of them is as a client of number
/// `first` would be.
pub(super) fn serve(
    plan: &plan::Plan,
    db: &Database,
    shared: &Shared,
    hand: impl Fn(u64) -> Hand,
    first: u64,
) -> Result<Served> {
    let notes: Vec<Arc<Mutex<Notes>>> = (0..plan.servers).map(|_| Arc::default()).collect();
    let servers = (first..).zip(&notes).map(|(number, notes)| Server {
        hand: hand(number),
        order: Arc::clone(&shared.order),
        read_mode: db.options().read_mode,
        log_is_small: plan.is_log_small(),
        left: plan.transactions,
        serial: 0,
        body: None,
        durability: None,
        notes: Arc::clone(notes),
    });
    let serving = db.serve(&TransactOptions::default(), servers)?;
    Ok(Served { serving, notes })
}

impl Served {
    /// Waits for all of them, and for the disk.
    pub(super) fn wait(self) -> Vec<Outcome> {
        let mut lost = self.serving.wait().err();
        let outcome = |notes: &Arc<Mutex<Notes>>| {
            let mut notes = std::mem::take(&mut *notes.lock());
            let unheard = notes.run.take().and_then(|run| run.ended(Told::Unknown));
            notes.attempts.extend(unheard);
            for (place, ticket) in notes.tickets {
                match ticket.wait() {
                    Ok(()) => notes.attempts[place].confirm(),
                    Err(error) => _ = notes.error.get_or_insert(error),
                }
            }
            let error = notes.error.or_else(|| lost.take());
            Outcome { attempts: notes.attempts, error, ..Outcome::default() }
        };
        self.notes.iter().map(outcome).collect()
    }
}
