//! The ways in which a transaction may run. The suites take each.

use foreshore::{
    CommitTicket, Database, Durability, Execution, Plan, Procedure, ReadMode, Result, Serving,
    TransactOptions, Transaction,
};

/// How a transaction comes to its locks, and whose thread runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Each lock when it is needed, in the caller's thread.
    Dynamic,
    /// As `Dynamic`, and reads need no locks where they can do without.
    Hybrid,
    /// Planned by reconnaissance, in the caller's thread.
    Planned,
    /// Planned by reconnaissance, in a thread of partitioned execution.
    Submitted,
    /// Drawn by a thread of partitioned execution itself, and planned by reconnaissance.
    Served,
}

impl Way {
    pub(crate) const ALL: [Way; 5] = [Way::Dynamic, Way::Hybrid, Way::Planned, Way::Submitted, Way::Served];

    /// Runs a body to its end. Planned or submitted it runs twice at least, and only its last run counts.
    pub(crate) fn run<R: Send + 'static>(
        self,
        db: &Database,
        body: impl FnMut(&mut Transaction) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.run_with(db, &TransactOptions::default(), body)
    }

    pub(crate) fn run_with<R: Send + 'static>(
        self,
        db: &Database,
        options: &TransactOptions,
        body: impl FnMut(&mut Transaction) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let (execution, read_mode) = match self {
            Way::Dynamic => (Execution::Dynamic, ReadMode::Locking),
            Way::Hybrid => (Execution::Dynamic, ReadMode::Hybrid),
            Way::Planned => (Execution::Planned, ReadMode::Locking),
            Way::Submitted => return db.plan().options(options.clone()).submit(body)?.wait(),
            Way::Served => return serve(db, options, |plan| plan, body)?(),
        };
        let (execution, read_mode) = (Some(execution), Some(read_mode));
        db.transact_with(&TransactOptions { execution, read_mode, ..options.clone() }, body)
    }
}

/// A procedure of a single transaction: what tells its footprint, until it has been drawn; its body; and what came of
/// it.
struct Single<R, D, F> {
    foresee: Option<D>,
    body: F,
    value: Option<R>,
    ended: Option<Result<CommitTicket>>,
}

impl<R, D, F> Procedure for Single<R, D, F>
where
    R: Send + 'static,
    D: FnOnce(Plan<'_>) -> Plan<'_> + Send + 'static,
    F: FnMut(&mut Transaction) -> Result<R> + Send + 'static,
{
    fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
        self.foresee.take().map(|foresee| foresee(plan))
    }

    fn run(&mut self, tx: &mut Transaction) -> Result<()> {
        self.value = None;
        self.value = Some((self.body)(tx)?);
        Ok(())
    }

    fn ended(&mut self, result: Result<CommitTicket>) {
        self.ended = Some(result);
    }
}

/// Lets a thread of partitioned execution draw this one transaction; gives what waits for its result, durable as the
/// options say.
pub(crate) fn serve<R: Send + 'static>(
    db: &Database,
    options: &TransactOptions,
    foresee: impl FnOnce(Plan<'_>) -> Plan<'_> + Send + 'static,
    body: impl FnMut(&mut Transaction) -> Result<R> + Send + 'static,
) -> Result<Box<dyn FnOnce() -> Result<R>>> {
    let single = Single { foresee: Some(foresee), body, value: None, ended: None };
    let serving: Serving<_> = db.serve(options, [single])?;
    let durability = options.durability.unwrap_or(db.options().durability);
    Ok(Box::new(move || {
        let single = serving.wait()?.pop().expect("it comes back");
        let ticket = single.ended.expect("it was drawn")?;
        if durability == Durability::Sync {
            ticket.wait()?;
        }
        Ok(single.value.expect("it has run"))
    }))
}
