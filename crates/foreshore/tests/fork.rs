//! A fork of a process that has a database open: it is told so, whatever it tries, nothing of it hangs, and the process
//! itself goes on unharmed.
#![cfg(unix)]

use std::{
    fmt::Write,
    fs, io,
    os::unix::process::CommandExt,
    process::{Command, abort},
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use foreshore::{
    CommitTicket, Database, Durability, Error, Options, Plan, Procedure, Result, TableDefinition,
    TransactOptions, Transaction,
};
use foreshore_env::sync::Mutex;

const TABLE: TableDefinition<u32, u32> = TableDefinition::new("table");
/// `SIGABRT`.
const ABORTED: i32 = 6;
/// What hangs in the fork ends it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A procedure that does nothing but wait to be stopped.
struct Counts;

impl Procedure for Counts {
    fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
        thread::sleep(Duration::from_millis(1));
        Some(plan.read(TABLE, 0))
    }

    fn run(&mut self, tx: &mut Transaction) -> Result<()> {
        tx.get(TABLE, 0).map(drop)
    }

    fn ended(&mut self, _: Result<CommitTicket>) {}
}

/// Notes what was not told as it should be.
fn expect<R>(report: &mut String, what: &str, result: Result<R>) {
    match result {
        Err(Error::Forked { path }) if path.ends_with("db") => {}
        Err(error) => writeln!(report, "{what}: {error}").unwrap(),
        Ok(_) => writeln!(report, "{what} worked").unwrap(),
    }
}

/// With every option that brings a thread of its own.
fn open(path: &std::path::Path) -> Database {
    let mut options = Options {
        pool_bytes: 1 << 20,
        // Commits are on their way while the fork is made.
        log_latency: Duration::from_millis(300),
        // The flusher is asked, or nobody comes.
        flush_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    options.set("lock_table", "staged").unwrap();
    Database::builder().options(options).open(path).unwrap()
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: &mut i32, options: i32) -> i32;
    fn kill(process: i32, signal: i32) -> i32;
    fn unshare(flags: i32) -> i32;
    fn _exit(status: i32) -> !;
}

/// The status of a child of this process, which must end in time.
fn status_of(child: i32) -> i32 {
    /// `WNOHANG` and `SIGKILL`.
    const AT_ONCE: i32 = 1;
    const KILL: i32 = 9;
    let (begun, mut status) = (Instant::now(), 0);
    // SAFETY: it writes to `status` alone.
    while unsafe { waitpid(child, &mut status, AT_ONCE) } == 0 {
        if begun.elapsed() > PATIENCE {
            // SAFETY: it is this process's child, which nobody has waited for yet.
            unsafe { kill(child, KILL) };
            panic!("it goes on");
        }
        thread::sleep(Duration::from_millis(5));
    }
    status
}

/// Set for the process that is the first in its namespace.
const FIRST: &str = "FORESHORE_TEST_FORK";

/// A fork into another namespace of processes may have the number that its parent has in its own, here 1. It passed for
/// its parent, once it had opened a database itself. For whoever may make namespaces, which systems allow or not.
#[test]
#[cfg(target_os = "linux")]
fn a_fork_with_the_number_of_its_parent_is_one_all_the_same() {
    const NAME: &str = "a_fork_with_the_number_of_its_parent_is_one_all_the_same";
    if let Some(home) = std::env::var_os(FIRST) {
        return in_the_first_process(std::path::Path::new(&home));
    }
    let within = |program: &std::path::Path| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork"]).arg(program);
        command
    };
    if !within("true".as_ref()).output().is_ok_and(|output| output.status.success()) {
        println!("skipped: there is no `unshare`, or this system makes no namespaces for who runs this");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = within(&std::env::current_exe().unwrap());
    let output =
        command.args([NAME, "--exact", "--nocapture"]).env(FIRST, directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
}

#[cfg(target_os = "linux")]
fn in_the_first_process(home: &std::path::Path) {
    /// `CLONE_NEWPID`.
    const OTHER_NUMBERS: i32 = 0x2000_0000;
    assert_eq!(std::process::id(), 1);
    let path = home.join("db");
    let db = open(&path);
    db.transact(|tx| tx.put(TABLE, 1, 1).map(drop)).unwrap();
    // SAFETY: it changes in which namespace the next child lives, and nothing else.
    assert_eq!(unsafe { unshare(OTHER_NUMBERS) }, 0, "{}", io::Error::last_os_error());
    // SAFETY: what the fork does may allocate (glibc and musl see to that), and takes no lock that another thread may
    // have: that is what is tested. It ends without returning.
    let child = unsafe { fork() };
    if child == 0 {
        let alike = std::process::id() == 1;
        let own = open(&home.join("own"));
        let works = own.transact(|tx| tx.put(TABLE, 1, 1).map(drop)).is_ok() && own.close().is_ok();
        let refused = matches!(db.begin(), Err(Error::Forked { .. }));
        drop(db);
        let locked = matches!(Database::open(&path), Err(Error::AlreadyOpen { .. }));
        let found = [alike, works, refused, locked];
        // SAFETY: it ends this process, with nothing to be undone.
        unsafe { _exit((0..).zip(found).map(|(bit, holds)| i32::from(!holds) << bit).sum()) };
    }
    assert_eq!(status_of(child), 0, "its status is in the second byte");
    db.transact(|tx| tx.put(TABLE, 2, 2).map(drop)).unwrap();
    db.close().unwrap();
}

/// A fork that a submitted transaction makes has the thread that ran it, and nobody who would tell that thread what to
/// do next: it went on waiting for ever. One that has returned from the body ends at once, as by an abort; its parent
/// goes on. A body that has not said what it touches runs twice, the first time to find that out.
#[test]
fn a_fork_that_returns_from_a_submitted_body_ends() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory.path().join("db"));
    for (panics, declared) in [(false, true), (true, true), (false, false), (true, false)] {
        let (forked, children) = mpsc::channel();
        let plan = if declared { db.plan().write(TABLE, 1) } else { db.plan() };
        let submitted = plan.submit(move |tx| {
            tx.put(TABLE, 1, 1)?;
            // SAFETY: what the fork does may allocate (glibc and musl see to that), and takes no lock that another
            // thread may have: that is what is tested.
            let child = unsafe { fork() };
            if child == 0 {
                assert!(!panics, "planted");
                assert!(matches!(tx.put(TABLE, 1, 2), Err(Error::Forked { .. })));
            }
            forked.send(child).unwrap();
            Ok(())
        });
        submitted.unwrap().wait().unwrap();
        let children: Vec<_> = children.iter().collect();
        assert_eq!(children.len(), if declared { 1 } else { 2 });
        for child in children {
            assert!(child > 0, "there was no fork");
            let status = status_of(child);
            assert_eq!(status & 0x7F, ABORTED, "{status:x}");
        }
    }
    assert_eq!(db.transact(|tx| tx.get(TABLE, 1)).unwrap(), Some(1));
    db.close().unwrap();
}

/// The same of what else is called on these threads: where a procedure draws or is told, and where somebody is woken.
#[test]
fn a_fork_that_returns_from_a_procedure_or_a_waker_ends() {
    /// Forks once, where it is told of its first transaction or where it draws the second one.
    struct Forks(bool, Option<mpsc::Sender<i32>>, u32);

    fn fork_once(told: &mut Option<mpsc::Sender<i32>>) {
        if let Some(told) = told.take() {
            // SAFETY: as above.
            let child = unsafe { fork() };
            if child != 0 {
                told.send(child).unwrap();
            }
        }
    }

    impl Procedure for Forks {
        fn draw<'d>(&mut self, plan: Plan<'d>) -> Option<Plan<'d>> {
            self.2 += 1;
            if self.2 > 1 && !self.0 {
                fork_once(&mut self.1);
            }
            (self.2 <= 3).then(|| plan.read(TABLE, 0))
        }

        fn run(&mut self, tx: &mut Transaction) -> Result<()> {
            tx.get(TABLE, 0).map(drop)
        }

        fn ended(&mut self, _: Result<CommitTicket>) {
            if self.0 {
                fork_once(&mut self.1);
            }
        }
    }

    struct ForksWoken(Mutex<Option<mpsc::Sender<i32>>>);

    impl Wake for ForksWoken {
        fn wake(self: Arc<Self>) {
            fork_once(&mut self.0.lock());
        }
    }

    let directory = tempfile::tempdir().unwrap();
    let db = open(&directory.path().join("db"));
    let (told, children) = mpsc::channel();
    for ended in [false, true] {
        let serving = db.serve(&TransactOptions::default(), [Forks(ended, Some(told.clone()), 0)]).unwrap();
        assert_eq!(serving.wait().unwrap()[0].2, 4);
    }
    let (go, may_go) = mpsc::channel::<()>();
    let body = move |_: &mut Transaction| {
        let _ = may_go.recv();
        Ok(())
    };
    let mut submitted = db.plan().write(TABLE, 1).submit(body).unwrap();
    let waker = Waker::from(Arc::new(ForksWoken(Mutex::new(Some(told)))));
    assert!(std::pin::Pin::new(&mut submitted).poll(&mut Context::from_waker(&waker)).is_pending());
    go.send(()).unwrap();
    submitted.wait().unwrap();
    drop(waker);
    for _ in 0..3 {
        let child = children.recv_timeout(PATIENCE).unwrap();
        assert!(child > 0, "there was no fork");
        assert_eq!(status_of(child) & 0x7F, ABORTED);
    }
    db.close().unwrap();
}

#[test]
fn a_fork_cannot_use_a_database_and_does_it_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = open(&path);
    db.transact(|tx| (0..100).try_for_each(|key| tx.put(TABLE, key, key).map(drop))).unwrap();
    let lazy = TransactOptions { durability: Some(Durability::Lazy), ..TransactOptions::default() };

    // All that a process may have in its hands when it forks.
    let mut kept = db.begin().unwrap();
    kept.put(TABLE, 1, 1000).unwrap();
    let mut open_there = db.begin().unwrap();
    open_there.put(TABLE, 2, 2000).unwrap();
    let mut dropped_there = db.begin().unwrap();
    dropped_there.put(TABLE, 3, 3000).unwrap();
    let mut prepared_there = db.begin().unwrap();
    prepared_there.put(TABLE, 4, 4000).unwrap();
    let mut pipeline = db.pipeline();
    let serving = db.serve(&lazy, [Counts]).unwrap();
    let submitted = db.plan().write(TABLE, 1).submit(|tx| tx.put(TABLE, 1, 5).map(drop)).unwrap();
    let polled = db.plan().write(TABLE, 1).submit(|tx| tx.put(TABLE, 1, 6).map(drop)).unwrap();
    while db.waiters().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }

    let (there, report_at) = (db.clone(), directory.path().join("report"));
    let (report, mut command) = (report_at.clone(), Command::new("true"));
    let mut tickets = Some([(); 3].map(|()| {
        let mut tx = db.begin_with(&lazy).unwrap();
        tx.put(TABLE, 10, 10).unwrap();
        tx.commit_pipelined().unwrap()
    }));
    let mut inherited =
        Some((there, open_there, dropped_there, prepared_there, serving, submitted, polled, path.clone()));
    let in_the_fork = move || {
        thread::spawn(|| {
            thread::sleep(PATIENCE);
            abort();
        });
        let Some((db, mut tx, dropped, prepared, serving, submitted, mut polled, path)) = inherited.take()
        else {
            return Err(io::ErrorKind::Other.into());
        };
        let mut said = String::new();
        let report_of = &mut said;
        let (mut context, soon) = (Context::from_waker(Waker::noop()), Instant::now() + PATIENCE);
        expect(report_of, "begin", db.begin());
        expect(report_of, "transact", db.transact(|tx| tx.get(TABLE, 1)));
        expect(report_of, "a plan", db.plan().read(TABLE, 1).run(|tx| tx.get(TABLE, 1)));
        expect(report_of, "submit", db.plan().read(TABLE, 1).submit(|tx| tx.get(TABLE, 1)).map(drop));
        expect(report_of, "serve", db.serve(&TransactOptions::default(), [Counts]).map(drop));
        expect(report_of, "a new pipeline", db.pipeline().transact(|tx| tx.get(TABLE, 1)));
        expect(report_of, "tables", db.tables());
        expect(report_of, "table", db.table("table"));
        expect(report_of, "create_table", db.create_table("other", "u32", "u32"));
        expect(report_of, "drop_table", db.drop_table("table"));
        expect(report_of, "checkpoint", db.checkpoint());
        expect(report_of, "verify", db.verify());
        expect(report_of, "compact", db.compact());
        expect(report_of, "backup", db.backup(path.with_extension("copy")));
        expect(report_of, "prepared", db.prepared());
        expect(report_of, "a read", tx.get(TABLE, 50));
        expect(report_of, "a write", tx.put(TABLE, 50, 1));
        expect(report_of, "commit", tx.commit());
        expect(report_of, "prepare", prepared.prepare("id"));
        drop(dropped);
        for (number, mut ticket) in tickets.take().into_iter().flatten().enumerate() {
            match number {
                // Since the fork it may be durable there, but nobody tells this process.
                _ if ticket.is_durable() => {}
                0 => expect(report_of, "a ticket", ticket.wait()),
                1 => expect(report_of, "a ticket, for a while", ticket.wait_until(soon)),
                _ => match std::pin::Pin::new(&mut ticket).poll(&mut context) {
                    Poll::Ready(outcome) => expect(report_of, "a polled ticket", outcome),
                    Poll::Pending => report_of.push_str("a ticket is pending\n"),
                },
            }
        }
        let waits = !db.waits_for().waits.is_empty() || !db.waiters().is_empty();
        if !db.locks().locks.is_empty() || waits || !db.deadlocks().is_empty() {
            report_of.push_str("locks are shown\n");
        }
        let none = (db.stats().commits, db.log_retention().used_bytes, db.stats().partitioned_messages);
        if none != (0, 0, 0) || submitted.has_run() {
            report_of.push_str("figures are shown\n");
        }
        if serving.wait_until(soon) {
            report_of.push_str("what is served has ended\n");
        }
        expect(report_of, "what is served", serving.wait().map(drop));
        expect(report_of, "what was submitted", submitted.wait());
        match std::pin::Pin::new(&mut polled).poll(&mut context) {
            Poll::Ready(outcome) => expect(report_of, "what was submitted and polled", outcome),
            Poll::Pending => report_of.push_str("what was submitted is pending\n"),
        }
        expect(report_of, "close", db.close());
        drop((db, polled));
        fs::write(&report, said + "done")
    };
    // SAFETY: what it does between fork and exec may allocate (glibc and musl see to that), and takes no lock that
    // another thread of this process may have: that is what is tested. The other threads of this test's process are
    // those of its database.
    unsafe { command.pre_exec(in_the_fork) };
    let status = command.status().unwrap();
    assert!(status.success(), "{status}: it hung, or could not report");
    assert_eq!(fs::read_to_string(&report_at).unwrap(), "done");

    // What the fork had is there still, and this process may go on with it.
    assert!(matches!(Database::open(&path), Err(Error::AlreadyOpen { .. })));
    kept.commit().unwrap();
    drop(command);
    let ((), ticket) = pipeline.transact(|tx| tx.put(TABLE, 11, 11).map(drop)).unwrap();
    ticket.wait().unwrap();
    assert_eq!(db.plan().read(TABLE, 11).submit(|tx| tx.get(TABLE, 11)).unwrap().wait().unwrap(), Some(11));
    assert!(db.verify().unwrap().is_sound());
    db.close().unwrap();
    drop((db, pipeline));
    let db = open(&path);
    assert!(db.verify().unwrap().is_sound());
    let now = |key| db.transact(|tx| tx.get(TABLE, key)).unwrap();
    assert_eq!([2, 3, 4, 10, 11, 50].map(now), [2, 3, 4, 10, 11, 50].map(Some));
    assert!([5, 6].map(Some).contains(&now(1)));
}

/// Two forks of one thread that made a database each gave both the same identity: what checksums are seeded with.
#[test]
fn databases_that_forks_make_are_strangers() {
    let directory = tempfile::tempdir().unwrap();
    // What this thread draws from is there before it forks.
    open(&directory.path().join("own")).close().unwrap();
    for (name, value) in [("one", 1), ("other", 2)] {
        let path = directory.path().join(name);
        // SAFETY: as above.
        let child = unsafe { fork() };
        if child == 0 {
            let db = open(&path);
            let made = db.transact(|tx| tx.put(TABLE, 1, value).map(drop)).is_ok() && db.close().is_ok();
            // SAFETY: it ends this process, with nothing to be undone.
            unsafe { _exit(i32::from(!made)) };
        }
        assert_eq!(status_of(child), 0);
    }
    let path = directory.path().join("one");
    fs::copy(directory.path().join("other/data"), path.join("data")).unwrap();
    let opened = Database::open(&path).and_then(|db| db.transact(|tx| tx.get(TABLE, 1)));
    assert!(opened.is_err(), "a stranger's file passed, and has {opened:?}");
}
