//! Plays a script: sends commands and takes answers.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use serde_json::{Value as Json, json};

/// Until an answer has to be there, on a machine that may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The program at work on a database of its own.
pub(crate) struct Player {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: Receiver<Json>,
    fences: u64,
    directory: tempfile::TempDir,
}

impl Player {
    pub(crate) fn new() -> Player {
        Player::with("pool_bytes=4MiB")
    }

    /// With options of the database, with spaces between them.
    pub(crate) fn with(options: &str) -> Player {
        Player::start(tempfile::tempdir().unwrap(), options)
    }

    /// In a directory whose `db` may be a database already.
    pub(crate) fn in_directory(directory: tempfile::TempDir) -> Player {
        Player::start(directory, "pool_bytes=4MiB")
    }

    fn start(directory: tempfile::TempDir, options: &str) -> Player {
        let mut child = Command::new(env!("CARGO_BIN_EXE_foreshore"))
            .args(["script", "db"])
            .args(options.split_whitespace().flat_map(|option| ["--set", option]))
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = channel();
        thread::spawn(move || {
            for line in stdout.lines() {
                let answer = serde_json::from_str(&line.unwrap()).expect("answers are JSON");
                if sender.send(answer).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        Player { child, stdin, answers, fences: 0, directory }
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("the input is open").write_all(bytes).unwrap();
    }

    pub(crate) fn send(&mut self, command: &Json) {
        self.send_bytes(format!("{command}\n").as_bytes());
    }

    /// The next answer.
    pub(crate) fn next(&self) -> Json {
        self.answers.recv_timeout(PATIENCE).expect("an answer")
    }

    /// Everything that is answered until every statement has ended or waits: a command is read no sooner, unless that
    /// takes ten seconds.
    pub(crate) fn settled(&mut self) -> Vec<Json> {
        self.fences += 1;
        let fence = format!("fence {}", self.fences);
        self.send(&json!({"op": "explain", "session": "nobody", "id": fence}));
        let mut answers = Vec::new();
        loop {
            let answer = self.next();
            if answer["id"] == fence.as_str() {
                return answers;
            }
            answers.push(answer);
        }
    }

    /// What comes of one command: its answer, and those of others that it sets free.
    pub(crate) fn play(&mut self, command: &Json) -> Vec<Json> {
        self.send(command);
        self.settled()
    }

    /// The one answer of a command.
    #[track_caller]
    pub(crate) fn one(&mut self, command: &Json) -> Json {
        let mut answers = self.play(command);
        assert_eq!(answers.len(), 1, "{command}: {answers:?}");
        answers.remove(0)
    }

    /// The one answer of a command of a session, which succeeds.
    #[track_caller]
    pub(crate) fn ok(&mut self, session: &str, op: &str, mut fields: Json) -> Json {
        fields["session"] = session.into();
        fields["op"] = op.into();
        let answer = self.one(&fields);
        assert_eq!(answer["status"], "ok", "{fields}: {answer}");
        answer
    }

    /// The one answer of a command of a session, which fails with this word.
    #[track_caller]
    pub(crate) fn fails(&mut self, session: &str, op: &str, mut fields: Json, code: &str) -> Json {
        fields["session"] = session.into();
        fields["op"] = op.into();
        let answer = self.one(&fields);
        assert_eq!(
            (&answer["status"], &answer["error"]),
            (&json!("error"), &json!(code)),
            "{fields}: {answer}"
        );
        answer
    }

    /// The answer of a command of a session that gives way to another: whether it is seen to wait before is a matter of
    /// time.
    #[track_caller]
    pub(crate) fn gives_way(&mut self, session: &str, op: &str, mut fields: Json) -> Json {
        fields["session"] = session.into();
        fields["op"] = op.into();
        let mut answers = self.play(&fields);
        while answers.iter().all(|answer| answer["status"] == "blocked") {
            answers.push(self.next());
        }
        let answer = answers.pop().expect("it has been answered");
        assert!(answers.len() <= 1 && answers.iter().all(|seen| seen["status"] == "blocked"), "{answers:?}");
        assert_eq!(answer["error"], "deadlock", "{fields}: {answer}");
        answer
    }

    /// Ends the input; the last answers, the exit status, and the directory.
    pub(crate) fn end(mut self) -> (Vec<Json>, i32, tempfile::TempDir) {
        drop(self.stdin.take());
        let mut answers = Vec::new();
        while let Ok(answer) = self.answers.recv_timeout(PATIENCE) {
            answers.push(answer);
        }
        let status = self.child.wait().unwrap().code().expect("an exit status");
        let directory = std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap());
        (answers, status, directory)
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // A failed assertion must not leave it behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
