//! The newest reports, for those who ask afterwards why a transaction had to give way.

use std::collections::VecDeque;

use foreshore_env::sync::{Arc, Mutex};

use super::DeadlockReport;

/// Reports for which there is room from the beginning; more is made when it is needed.
const ROOM: usize = 128;

/// A bounded number of reports, the oldest first. Only who gives way comes here: a lock that is free, or waited for and
/// granted, costs nothing.
#[derive(Debug)]
pub(super) struct History {
    limit: usize,
    reports: Mutex<VecDeque<Arc<DeadlockReport>>>,
}

impl History {
    pub(super) fn new(limit: usize) -> History {
        History { limit, reports: Mutex::new(VecDeque::with_capacity(limit.min(ROOM))) }
    }

    /// Keeps a report in place of the oldest one if there are as many as may be.
    pub(super) fn remember(&self, report: &Arc<DeadlockReport>) {
        if self.limit == 0 {
            return;
        }
        let mut reports = self.reports.lock();
        let forgotten = if reports.len() < self.limit { None } else { reports.pop_front() };
        reports.push_back(Arc::clone(report));
        drop(reports);
        // Its memory is given back when the next one may come already.
        drop(forgotten);
    }

    pub(super) fn all(&self) -> Vec<Arc<DeadlockReport>> {
        self.reports.lock().iter().cloned().collect()
    }
}
