//! The sessions, and the order of what they say.
//!
//! Everything shared is on one board (`board.rs`) under one mutex. A statement's end and its answer, and a wait and the
//! report of it, happen under it together, so that "blocked" never follows the result.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Write},
    sync::mpsc::channel,
};

use foreshore::{CancelHandle, Database, DeadlockView, TxnId};
use foreshore_env::{
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};
use serde_json::Value as Json;

use super::{
    answer::{Answer, report, view},
    board::{Board, Member, Running},
    command::{Command, Op, Statement},
    session::{Change, Session},
};
use crate::output::CliError;

/// The most sessions, each of which is a thread.
const MAX_SESSIONS: usize = 1000;

/// The most commands that a session has not answered.
const MAX_PENDING: usize = 1000;

/// The most bytes of all commands that are not answered; but one of these is always taken by a session without others.
const MAX_PENDING_BYTES: usize = 64 << 20;
const SHORT_BYTES: usize = 64 << 10;

/// The most waits in an answer to `waits_for`, each with up to a hundred of those in its way.
const MAX_WAITS_SHOWN: usize = 64;

/// Stack of a session's thread.
const STACK_BYTES: usize = 1 << 20;

/// Between two looks at who waits, while commands arrive: first, and at most.
const GLANCE: Duration = Duration::from_millis(1);
const LONGEST_GLANCE: Duration = Duration::from_millis(8);

/// Between two looks at who waits, while no command arrives.
const WATCH: Duration = Duration::from_millis(20);

/// How long a statement that neither ends nor waits for a lock may keep the next command from being read.
const LONGEST_HOLD: Duration = Duration::from_secs(10);

/// All sessions of a script.
pub(super) struct Stage {
    play: Arc<Play>,
    watcher: Option<thread::JoinHandle<()>>,
}

/// What the threads share.
pub(super) struct Play {
    pub(super) db: Database,
    board: Mutex<Board>,
    /// Something on the board has changed.
    changed: Condvar,
}

impl Stage {
    pub(super) fn new(db: Database, output: Box<dyn Write + Send>) -> Stage {
        let board = Board::new(output);
        let play = Arc::new(Play { db, board: Mutex::new(board), changed: Condvar::new() });
        let watching = Arc::clone(&play);
        // Without it only what blocks while the script sleeps would be told late.
        let watcher = thread::Builder::new().name("watch".to_owned()).spawn(move || watching.watch()).ok();
        Stage { play, watcher }
    }

    /// Does what a command says, and returns when every statement has ended or waits.
    pub(super) fn take(&self, command: Command) {
        let Command { bytes, id, session, op } = command;
        let play = &self.play;
        match op {
            Op::Session(statement) => {
                if let Err(answer) = self.hand_over(&id, &session, statement, bytes) {
                    play.say(answer.with("session", session));
                }
            }
            Op::Cancel => {
                let mut board = play.board.lock();
                let handle = board.members.get(&session).and_then(|member| member.cancel.clone());
                // First, since what it ends is answered at once.
                board.say(Answer::ok(&id).with("session", session).with("cancelled", handle.is_some()));
                drop(board);
                if let Some(handle) = handle {
                    handle.cancel();
                }
            }
            Op::Explain => {
                let transaction =
                    play.board.lock().members.get(&session).and_then(|member| member.transaction);
                let wait = transaction.and_then(|transaction| play.db.explain_wait(transaction));
                let answer = Answer::ok(&id).with("session", session).with("waits", wait.is_some());
                play.say(match wait {
                    Some(wait) => answer.with("why", wait.to_string()).with_view(&wait.to_json()),
                    None => answer,
                });
            }
            Op::Locks => play.say(Answer::ok(&id).with_view(&play.db.locks().to_json())),
            Op::WaitsFor => {
                let mut waits = play.db.waits_for();
                let omitted = waits.waits.len().saturating_sub(MAX_WAITS_SHOWN);
                waits.waits.truncate(MAX_WAITS_SHOWN);
                let answer = Answer::ok(&id).with_view(&waits.to_json()).with("dot", waits.to_dot());
                play.say(if omitted > 0 { answer.with("waits_omitted", omitted) } else { answer });
            }
            Op::Deadlocks => {
                let shown = |deadlock: &DeadlockView| {
                    let mut json = view(&deadlock.to_json());
                    json["text"] = deadlock.to_string().into();
                    json["dot"] = deadlock.to_dot().into();
                    json
                };
                let deadlocks: Vec<Json> = play.db.deadlocks().iter().map(shown).collect();
                play.say(Answer::ok(&id).with("deadlocks", deadlocks));
            }
        }
        self.settle();
    }

    /// Gives a statement to its session, which is made if it is new.
    fn hand_over(&self, id: &Json, name: &str, statement: Statement, bytes: usize) -> Result<(), Answer> {
        let refuse = |code, message: String| Answer::error(id, code, &message, false);
        let mut guard = self.play.board.lock();
        let board: &mut Board = &mut guard;
        if !board.members.contains_key(name) {
            if board.members.len() >= MAX_SESSIONS {
                return Err(refuse("too_many_sessions", format!("sessions are limited to {MAX_SESSIONS}")));
            }
            let member = self.start(name).map_err(|error| refuse("too_many_sessions", error.to_string()))?;
            board.members.insert(name.to_owned(), member);
        }
        let Some(member) = board.members.get_mut(name) else { return Ok(()) };
        if member.pending.len() >= MAX_PENDING {
            let message = format!("commands that wait for a session are limited to {MAX_PENDING}");
            return Err(refuse("too_many_pending", message));
        }
        // A short one for a session that has nothing to do may be what all others wait for.
        let urgent = member.pending.is_empty() && bytes <= SHORT_BYTES;
        if board.pending_bytes + bytes > MAX_PENDING_BYTES && !urgent {
            let message =
                format!("commands that wait for their sessions are limited to {MAX_PENDING_BYTES} bytes");
            return Err(refuse("too_many_pending", message));
        }
        member.pending.push_back(bytes);
        let sent = member.sender.as_ref().is_some_and(|sender| sender.send((id.clone(), statement)).is_ok());
        if !sent {
            member.pending.pop_back();
            return Err(refuse("session_ended", "the session's thread has ended".to_owned()));
        }
        board.pending_bytes += bytes;
        drop(guard);
        self.play.changed.notify_all();
        Ok(())
    }

    fn start(&self, name: &str) -> io::Result<Member> {
        let (sender, statements) = channel();
        let session = Session::new(Arc::clone(&self.play), name.to_owned());
        let builder = thread::Builder::new().name("session".to_owned()).stack_size(STACK_BYTES);
        let thread = builder.spawn(move || session.run(&statements))?;
        Ok(Member {
            sender: Some(sender),
            thread: Some(thread),
            pending: VecDeque::new(),
            running: None,
            serial: 0,
            transaction: None,
            cancel: None,
        })
    }

    /// Waits until every statement has ended or waits for a lock.
    fn settle(&self) {
        let limit = Instant::now() + LONGEST_HOLD;
        let mut glance = GLANCE;
        loop {
            let until = (Instant::now() + glance).min(limit);
            let mut board = self.play.board.lock();
            while board.is_busy() && Instant::now() < until {
                board = self.play.changed.wait_until(board, until);
            }
            let busy = board.is_busy();
            drop(board);
            if !busy || self.play.look() || Instant::now() >= limit {
                return;
            }
            glance = (2 * glance).min(LONGEST_GLANCE);
        }
    }

    pub(super) fn say(&self, answer: Answer) {
        self.play.say(answer);
    }

    /// Whether answers still reach somebody.
    pub(super) fn check_output(&self) -> Result<(), CliError> {
        match self.play.board.lock().failure.take() {
            Some(error) => Err(CliError::io("write to standard output")(error)),
            None => Ok(()),
        }
    }

    /// Whether all that was looked at is sound, as far as those know who have ended.
    pub(super) fn is_sound(&self) -> bool {
        !self.play.board.lock().met_damage
    }

    /// Rolls everything back that is open, and ends the sessions.
    pub(super) fn end(&mut self) -> Result<(), CliError> {
        let mut board = self.play.board.lock();
        board.ended = true;
        for handle in board.members.values().filter_map(|member| member.cancel.as_ref()) {
            handle.cancel();
        }
        // Before anything is rolled back: a transaction that waits shall not be granted what others gave up for this
        // reason alone.
        let limit = Instant::now() + LONGEST_HOLD;
        while board.is_busy() && Instant::now() < limit {
            board = self.play.changed.wait_until(board, limit);
        }
        let mut threads = Vec::new();
        for member in board.members.values_mut() {
            member.sender = None;
            threads.extend(member.thread.take());
        }
        drop(board);
        self.play.changed.notify_all();
        for thread in threads.into_iter().chain(self.watcher.take()) {
            // A panic in it has been reported.
            let _ = thread.join();
        }
        self.check_output()
    }
}

impl Play {
    pub(super) fn note_damage(&self) {
        self.board.lock().met_damage = true;
    }

    fn say(&self, answer: Answer) {
        self.board.lock().say(answer);
    }

    /// A session begins a statement. `false` if it is not to be done any more.
    pub(super) fn begin(&self, name: &str, id: &Json) -> bool {
        let mut board = self.board.lock();
        let ended = board.ended;
        if let Some(member) = board.members.get_mut(name) {
            member.serial += 1;
            member.running = Some(Running { id: id.clone(), serial: member.serial, reported: None });
        }
        !ended
    }

    /// A session has done a statement.
    pub(super) fn finish(&self, name: &str, answer: Answer, change: Change) {
        let mut board = self.board.lock();
        let (ended, mut done) = (board.ended, None);
        if let Some(member) = board.members.get_mut(name) {
            match change {
                Change::None => {}
                Change::Ended => (member.transaction, member.cancel) = (None, None),
                Change::Begun(transaction, cancel) => {
                    if ended {
                        cancel.cancel();
                    }
                    (member.transaction, member.cancel) = (Some(transaction), Some(cancel));
                }
            }
            member.running = None;
            done = member.pending.pop_front();
        }
        board.pending_bytes -= done.unwrap_or(0);
        board.say(answer.with("session", name));
        drop(board);
        self.changed.notify_all();
    }

    /// Looks who waits for a lock, and tells it once for each wait; whether all that run do.
    fn look(&self) -> bool {
        let board = self.board.lock();
        let before: BTreeMap<String, u64> = board.serials();
        drop(board);
        let waits: BTreeMap<TxnId, u64> = self.db.waiters().into_iter().collect();
        let mut board = self.board.lock();
        let board: &mut Board = &mut board;
        let mut settled = true;
        let mut blocked = Vec::new();
        let names: BTreeMap<TxnId, String> = board.names();
        for (name, member) in board.members.iter_mut().filter(|(_, member)| !member.pending.is_empty()) {
            // A session that is cancelled waits no longer than until it sees that.
            let transaction = member
                .transaction
                .filter(|_| !member.cancel.as_ref().is_some_and(CancelHandle::is_cancelled));
            let wait = transaction.and_then(|transaction| Some((transaction, *waits.get(&transaction)?)));
            match (wait, &mut member.running) {
                // The wait is that of this statement only if it is the one of before.
                (Some((transaction, number)), Some(running)) if before.get(name) == Some(&running.serial) => {
                    if running.reported != Some(number) {
                        match self.db.explain_wait(transaction).filter(|wait| wait.number == number) {
                            Some(wait) => {
                                running.reported = Some(number);
                                blocked.push(report(&running.id, name, &wait, &names));
                            }
                            None => settled = false,
                        }
                    }
                }
                _ => settled = false,
            }
        }
        blocked.into_iter().for_each(|answer| board.say(answer));
        settled
    }

    /// Looks now and then, for statements that come to wait while no command arrives.
    fn watch(&self) {
        let mut board = self.board.lock();
        while !board.ended {
            if board.is_busy() {
                board = self.changed.wait_until(board, Instant::now() + WATCH);
                drop(board);
                self.look();
                board = self.board.lock();
            } else {
                board = self.changed.wait(board);
            }
        }
    }
}
