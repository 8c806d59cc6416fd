//! How a specification goes under the policies that do not look for cycles. It says who waits for whom, and from that
//! and the order of ages it follows who gives way instead.

use std::collections::BTreeMap;

/// How a step goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// As it is written.
    AsWritten,
    /// As it is written; but somebody will have to give way who does not yet, so nothing is known of what follows.
    AsWrittenTheLastTime,
    /// Who makes it gives way where it is written that it waits; nothing is known of what follows.
    GivesWay,
    /// Nothing is known.
    Unknown,
}

/// What specifications have met with under a policy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Met {
    waits: usize,
    gave_way: usize,
    wounds: usize,
}

impl Met {
    pub(crate) fn add(&mut self, other: Met) {
        self.waits += other.waits;
        self.gave_way += other.gave_way;
        self.wounds += other.wounds;
    }

    /// All that the policy does has been seen, and nothing that it does not do.
    pub(crate) fn assert_all_of(&self, policy: &str) {
        let met = [self.waits, self.gave_way, self.wounds].map(|count| count > 0);
        let expected = match policy {
            "wait_die" => [true, true, false],
            "wound_wait" => [true, false, true],
            "timeout" => [true, false, false],
            "no_wait" => [false, true, false],
            _ => [false; 3],
        };
        assert_eq!(met, expected, "{policy}");
    }
}

/// Looks ahead, a step at a time.
pub(crate) struct Foresight {
    policy: &'static str,
    /// Of the sessions' transactions; smaller is older.
    ages: BTreeMap<String, (i64, usize)>,
    waiting: usize,
    met: Met,
}

impl Foresight {
    pub(crate) fn under(policy: &'static str) -> Foresight {
        Foresight { policy, ages: BTreeMap::new(), waiting: 0, met: Met::default() }
    }

    pub(crate) fn met(&self) -> Met {
        self.met
    }

    /// How the next step goes, by the line that is written of it. `session_of`: whose a step is.
    pub(crate) fn next<'s>(
        &mut self,
        session: &str,
        command: &[String],
        written: &'s str,
        session_of: impl Fn(&str) -> &'s str,
    ) -> Course {
        if !["wait_die", "wound_wait", "timeout", "no_wait"].contains(&self.policy) {
            return Course::AsWritten;
        }
        let (_, outcomes) = written.split_once(": ").expect("a step and what becomes of it");
        let mut outcomes = outcomes.split("; ");
        let own = outcomes.next().expect("its own outcome");
        let others: Vec<(&str, &str)> =
            outcomes.map(|other| other.split_once(' ').expect("a step and its outcome")).collect();
        if own == "deadlock" || others.iter().any(|(_, outcome)| *outcome == "deadlock") {
            return Course::Unknown;
        }
        // Who is granted something may get into the way of those who wait: that is not written down.
        let ends = ["commit", "rollback", "cancel", "await"].contains(&command[0].as_str());
        if self.goes_by_age() && self.waiting > 0 && !ends {
            return Course::Unknown;
        }
        if command[0] == "begin" {
            let priority = command.iter().find_map(|option| option.strip_prefix("priority="));
            let priority = priority.map_or(0, |priority| priority.parse().expect("a number"));
            self.ages.insert(session.to_owned(), (-priority, self.ages.len()));
        }
        for (step, outcome) in others {
            match blockers(outcome) {
                None => self.waiting -= 1,
                Some(blockers) if self.wait(session_of(step), &blockers) == Course::AsWritten => {}
                Some(_) => return Course::Unknown,
            }
        }
        let Some(blockers) = blockers(own) else { return Course::AsWritten };
        let course = self.wait(session, &blockers);
        match course {
            Course::AsWritten => {
                self.waiting += 1;
                self.met.waits += 1;
            }
            Course::AsWrittenTheLastTime => self.met.wounds += 1,
            Course::GivesWay => self.met.gave_way += 1,
            Course::Unknown => {}
        }
        course
    }

    fn goes_by_age(&self) -> bool {
        ["wait_die", "wound_wait"].contains(&self.policy)
    }

    /// What comes of a wait for these.
    fn wait(&self, waiter: &str, blockers: &[&str]) -> Course {
        let age = |session: &str| self.ages[session];
        match self.policy {
            "wait_die" if blockers.iter().any(|other| age(other) < age(waiter)) => Course::GivesWay,
            "wound_wait" if blockers.iter().any(|other| age(other) > age(waiter)) => {
                Course::AsWrittenTheLastTime
            }
            "no_wait" => Course::GivesWay,
            _ => Course::AsWritten,
        }
    }
}

/// Whom an outcome waits for, if it does.
fn blockers(outcome: &str) -> Option<Vec<&str>> {
    outcome.strip_prefix("blocked by ").map(|sessions| sessions.split(' ').collect())
}
