//! The board of a script: who has what to do, and standard output.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Write},
    sync::mpsc::Sender,
};

use foreshore::{CancelHandle, TxnId};
use foreshore_env::thread;
use serde_json::Value as Json;

use super::{answer::Answer, command::Statement};

/// Guarded by its mutex.
pub(super) struct Board {
    pub(super) members: BTreeMap<String, Member>,
    /// Of all commands that are not answered.
    pub(super) pending_bytes: usize,
    pub(super) output: Box<dyn Write + Send>,
    /// Why nothing can be said any more.
    pub(super) failure: Option<io::Error>,
    /// Whether a statement has met damage.
    pub(super) met_damage: bool,
    /// There are no more commands; what is left is not done.
    pub(super) ended: bool,
}

/// A session.
pub(super) struct Member {
    /// Until the end of the script.
    pub(super) sender: Option<Sender<(Json, Statement)>>,
    pub(super) thread: Option<thread::JoinHandle<()>>,
    /// The sizes of commands that are not answered, the one that runs first.
    pub(super) pending: VecDeque<usize>,
    pub(super) running: Option<Running>,
    /// Statements begun so far.
    pub(super) serial: u64,
    pub(super) transaction: Option<TxnId>,
    pub(super) cancel: Option<CancelHandle>,
}

/// A statement.
pub(super) struct Running {
    pub(super) id: Json,
    pub(super) serial: u64,
    /// The wait that was told last.
    pub(super) reported: Option<u64>,
}

impl Board {
    /// Nobody has anything to do.
    pub(super) fn new(output: Box<dyn Write + Send>) -> Board {
        Board {
            members: BTreeMap::new(),
            pending_bytes: 0,
            output,
            failure: None,
            met_damage: false,
            ended: false,
        }
    }

    pub(super) fn say(&mut self, answer: Answer) {
        let mut line = answer.into_json().to_string();
        line.push('\n');
        let said = self.output.write_all(line.as_bytes()).and_then(|()| self.output.flush());
        if let Err(error) = said {
            self.failure.get_or_insert(error);
        }
    }

    /// Whether a statement is not answered.
    pub(super) fn is_busy(&self) -> bool {
        self.members.values().any(|member| !member.pending.is_empty())
    }

    pub(super) fn serials(&self) -> BTreeMap<String, u64> {
        let running =
            |(name, member): (&String, &Member)| Some((name.clone(), member.running.as_ref()?.serial));
        self.members.iter().filter_map(running).collect()
    }

    /// The sessions of transactions.
    pub(super) fn names(&self) -> BTreeMap<TxnId, String> {
        let named = |(name, member): (&String, &Member)| Some((member.transaction?, name.clone()));
        self.members.iter().filter_map(named).collect()
    }
}
