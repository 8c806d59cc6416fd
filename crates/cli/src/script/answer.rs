//! Answers.

use std::collections::BTreeMap;

use foreshore::{Error, TxnId, WaitView};
use serde_json::{Map, Value as Json, json};

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Answer(Map<String, Json>);

impl Answer {
    fn new(id: &Json, status: &str) -> Answer {
        Answer(Map::new()).with("id", id.clone()).with("status", status)
    }

    pub(super) fn ok(id: &Json) -> Answer {
        Answer::new(id, "ok")
    }

    pub(super) fn blocked(id: &Json) -> Answer {
        Answer::new(id, "blocked")
    }

    pub(super) fn error(id: &Json, code: &str, message: &str, retryable: bool) -> Answer {
        Answer::new(id, "error").with("error", code).with("message", message).with("retryable", retryable)
    }

    /// The database's error, with the cycle and the reason if the transaction had to give way.
    pub(super) fn failure(id: &Json, error: &Error) -> Answer {
        let answer = Answer::error(id, error.code(), &error.to_string(), error.is_retryable());
        match error {
            Error::Deadlock(report) => {
                let mut deadlock = view(&report.to_json());
                ["cycle", "victim", "kind", "reason"]
                    .into_iter()
                    .fold(answer, |answer, name| answer.with(name, deadlock[name].take()))
            }
            _ => answer,
        }
    }

    /// The answer with a field more.
    pub(super) fn with(mut self, name: &str, value: impl Into<Json>) -> Answer {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// The answer with the fields of a view.
    pub(super) fn with_view(self, json: &str) -> Answer {
        match view(json) {
            Json::Object(fields) => {
                fields.into_iter().fold(self, |answer, (name, value)| answer.with(&name, value))
            }
            other => self.with("view", other),
        }
    }

    pub(super) fn into_json(self) -> Json {
        Json::Object(self.0)
    }
}

/// A view of the database, which is JSON already.
pub(super) fn view(json: &str) -> Json {
    serde_json::from_str(json).expect("views are JSON")
}

/// That a statement waits, with the sessions that it waits for.
pub(super) fn report(id: &Json, session: &str, wait: &WaitView, names: &BTreeMap<TxnId, String>) -> Answer {
    let mut shown = view(&wait.to_json());
    let mut blockers = shown["blockers"].take();
    for (json, blocker) in blockers.as_array_mut().into_iter().flatten().zip(&wait.blockers) {
        json["session"] = json!(names.get(&blocker.transaction.id));
    }
    let answer = Answer::blocked(id)
        .with("session", session)
        .with("why", wait.to_string())
        .with("target", shown["target"].take())
        .with("wanted", shown["wanted"].take())
        .with("waits_for", blockers);
    match wait.blockers_omitted {
        0 => answer,
        omitted => answer.with("waits_for_omitted", omitted),
    }
}
