//! What a run answered, as it is stored.

use serde::{Deserialize, Serialize};

/// The machine on which a program ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name, if the system tells.
    pub processor: String,
    /// How many threads run at the same time.
    pub processors: usize,
    /// The operating system and the architecture.
    pub system: String,
}

/// The stored answer of a run. Its field names are stable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The command, as a user types it.
    pub command: String,
    /// A checksum of the program's file: another program is another run.
    pub program: String,
    /// The program's version.
    pub version: String,
    /// The commit that the program is built from, with `+` and a checksum of the sources if these had changed;
    /// `unknown` where it was built outside a checkout.
    pub commit: String,
    /// Where.
    pub machine: Machine,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// How long it took.
    pub seconds: f64,
    /// How long processors computed for it: what it would take on a machine that does nothing else. `None` where the
    /// system does not tell.
    #[serde(default)]
    pub computed_seconds: Option<f64>,
    /// What the program printed.
    pub answer: serde_json::Value,
}

/// What answers took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spent {
    /// The time that passed, one command after the other.
    pub seconds: f64,
    /// The time that processors computed; `None` if it is not known of all.
    pub computed_seconds: Option<f64>,
}

impl Spent {
    /// For these answers.
    pub fn of<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> Spent {
        let none = Spent { seconds: 0.0, computed_seconds: Some(0.0) };
        answers.into_iter().fold(none, |sum, answer| Spent {
            seconds: sum.seconds + answer.seconds,
            computed_seconds: sum.computed_seconds.zip(answer.computed_seconds).map(|(sum, more)| sum + more),
        })
    }
}
