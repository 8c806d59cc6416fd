//! Transactions that threads of the database run.

use foreshore_env::sync::{Arc, Mutex};

use super::{ForeshoreEngine, Runs, Txn, facade, failure};
use crate::{
    engine::{Attempts, Failure, Submission, Submitted, Submitter},
    workload::Worker,
};
use facade::Error;

/// A worker while its transaction is on its way, with what came of it so far.
struct Lent {
    /// `None` once the client has taken it back.
    worker: Option<Box<dyn Worker>>,
    runs: Runs,
}

/// A transaction that was submitted.
struct OnItsWay {
    submitted: facade::Submitted<()>,
    lent: Arc<Mutex<Lent>>,
}

impl Submission for OnItsWay {
    fn wait(self: Box<Self>) -> Result<Submitted, Failure> {
        let result = self.submitted.wait();
        let mut lent = self.lent.lock();
        let mut attempts = Attempts::default();
        let outcome = lent.runs.outcome(&mut attempts, result)?;
        let worker = lent.worker.take().ok_or_else(|| Failure::fatal("the worker was taken back twice"))?;
        Ok(Submitted { worker, outcome, attempts })
    }
}

impl Submitter for ForeshoreEngine {
    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit(&self, worker: Box<dyn Worker>) -> Result<Box<dyn Submission>, Failure> {
        let plan = self.plan(worker.as_ref());
        let rehearsals = u64::from(plan.is_none());
        let plan = plan.unwrap_or_else(|| self.database.plan().options(self.run.clone()));
        let runs = Runs::after(rehearsals);
        let lent = Arc::new(Mutex::new(Lent { worker: Some(worker), runs }));
        let (theirs, tables) = (Arc::clone(&lent), Arc::clone(&self.tables));
        let submitted = plan.submit(move |tx| {
            let Lent { worker, runs } = &mut *theirs.lock();
            match worker {
                Some(worker) => runs.run(&mut Txn { tx, tables: &tables }, &mut |txn| worker.run(txn)),
                None => Err(Error::application("the worker was taken back")),
            }
        });
        Ok(Box::new(OnItsWay { submitted: submitted.map_err(failure)?, lent }))
    }
}
