//! Closing a database where commits are told, when the system gives no thread for it. In a program of its own: there is
//! no memory for more in it.
#![cfg(all(target_os = "linux", not(foreshore_loom), not(foreshore_sim)))]

use std::{
    fs,
    future::Future,
    io::Write,
    iter,
    path::Path,
    pin::Pin,
    process::{self, Child, Command, Stdio},
    task::{Context, Wake, Waker},
};

use foreshore_env::{
    disk::Disk,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::FaultyDisk;
use foreshore_txn::{BeginOptions, Durability, Engine, EngineOptions};

/// Bytes that may still be mapped: less than a thread's stack.
const SPARE: u64 = 1 << 20;

/// While it lives, this process may map hardly more than it has.
struct Limited {
    /// Takes the limit back when it is told: who has no memory starts no process.
    frees: Child,
}

impl Limited {
    fn new() -> Limited {
        let limit = |bytes: &str| format!("prlimit --pid={} --as={bytes}:unlimited", process::id());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("read line; {}", limit("unlimited"))).stdin(Stdio::piped());
        let frees = shell.spawn().unwrap();
        let mut shell = Command::new("sh");
        assert!(shell.arg("-c").arg(limit(&(mapped() + SPARE).to_string())).status().unwrap().success());
        Limited { frees }
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.frees.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(self.frees.wait().unwrap().success());
    }
}

fn mapped() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmSize:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Closes the engine when it is woken.
struct Closer {
    engine: Arc<Engine>,
    /// Whether the engine was closed then.
    said: OnceLock<bool>,
}

impl Wake for Closer {
    fn wake(self: Arc<Self>) {
        let limited = Limited::new();
        // The stacks of threads that are over are used again: until there are no more.
        let sleepers: Vec<_> = iter::from_fn(|| thread::Builder::new().spawn(thread::park).ok()).collect();
        self.engine.close().unwrap();
        let closed = self.engine.check_open().is_err();
        drop(limited);
        sleepers.iter().for_each(|sleeper| sleeper.thread().unpark());
        self.said.set(closed).unwrap();
    }
}

/// The lock of a database that was still open was given back, and whoever opened it next had it beside this engine:
/// both wrote, and destroyed it.
#[test]
fn who_closes_and_gets_no_thread_closes_all_the_same() {
    let disk = FaultyDisk::new();
    let open = || {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        Engine::open(disk, Path::new("db"), &EngineOptions::default())
    };
    let engine = open().unwrap();
    let table = engine.create_table("table", b"").unwrap();
    let mut txn = engine.begin(BeginOptions::default()).unwrap();
    txn.put(&table, b"key", b"value").unwrap();
    disk.hold_syncs(true);
    let mut ticket = txn.commit_pipelined().unwrap();
    let closer = Arc::new(Closer { engine, said: OnceLock::new() });
    let waker = Waker::from(Arc::clone(&closer));
    assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
    disk.hold_syncs(false);
    let begun = Instant::now();
    while closer.said.get().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody was woken");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(closer.said.get(), Some(&true));
    let again = open().unwrap();
    let table = again.table("table").unwrap().unwrap();
    let mut reader = again.begin(BeginOptions::default()).unwrap();
    assert_eq!(reader.get(&table, b"key", <[u8]>::to_vec).unwrap().as_deref(), Some(&b"value"[..]));
    drop(reader);
    assert!(again.begin(BeginOptions::default()).unwrap().commit(Durability::Sync).is_ok());
}
