//! Transactions that threads of the database draw and run.

use foreshore_env::sync::Arc;

use super::{ForeshoreEngine, Runs, Txn, facade, failure, foresee};
use crate::engine::{Attempts, Client, Failure, Server, Serving, TableIndex};
use facade::{CommitTicket, Plan, Procedure, Transaction};

/// A client as the facade takes it.
struct Drawn {
    client: Box<dyn Client>,
    tables: Arc<[String]>,
    everywhere: &'static [TableIndex],
    runs: Runs,
}

impl Procedure for Drawn {
    fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
        if !self.client.draw() {
            return None;
        }
        let (plan, known) = foresee(plan, self.client.worker(), &self.tables, self.everywhere);
        self.runs = Runs::after(u64::from(!known));
        Some(if known { plan } else { plan.by_reconnaissance() })
    }

    fn run(&mut self, tx: &mut Transaction) -> facade::Result<()> {
        let worker = self.client.worker();
        self.runs.run(&mut Txn { tx, tables: &self.tables }, &mut |txn| worker.run(txn))
    }

    fn ended(&mut self, result: facade::Result<CommitTicket>) {
        let mut attempts = Attempts::default();
        let outcome = self.runs.outcome(&mut attempts, result.map(drop));
        self.client.ended(outcome, &attempts);
    }
}

impl Server for ForeshoreEngine {
    fn threads(&self) -> usize {
        self.database.options().execution_threads
    }

    fn places(&self) -> usize {
        self.threads() * self.in_flight.max(1)
    }

    fn serve(&self, clients: Vec<Box<dyn Client>>) -> Result<Box<dyn Serving>, Failure> {
        let drawn = clients.into_iter().map(|client| Drawn {
            client,
            tables: Arc::clone(&self.tables),
            everywhere: self.everywhere,
            runs: Runs::default(),
        });
        let serving = self.database.serve(&self.run, drawn).map_err(failure)?;
        Ok(Box::new(serving))
    }
}

impl Serving for facade::Serving<Drawn> {
    fn wait(self: Box<Self>) -> Result<(), Failure> {
        facade::Serving::wait(*self).map(drop).map_err(failure)
    }
}
