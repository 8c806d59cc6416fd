//! Closing a database where commits are told, when the system gives no thread for it. In a program of its own: there is
//! no memory for more in it.
#![cfg(all(target_os = "linux", not(foreshore_loom), not(foreshore_sim)))]

use std::{
    fs,
    future::Future,
    path::Path,
    pin::Pin,
    process::{self, Command},
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

/// How much this process may map, in all.
fn limit_address_space(bytes: &str) {
    let limits = format!("--as={bytes}:unlimited");
    let status = Command::new("prlimit").arg(format!("--pid={}", process::id())).arg(limits).status();
    assert!(status.unwrap().success());
}

fn mapped() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmSize:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Closes the engine when it is woken.
struct Closer {
    engine: Arc<Engine>,
    /// Whether a thread could be started, and whether the engine was closed then.
    said: OnceLock<(bool, bool)>,
}

impl Wake for Closer {
    fn wake(self: Arc<Self>) {
        limit_address_space(&(mapped() + SPARE).to_string());
        let starts = thread::Builder::new().spawn(|| ()).is_ok();
        self.engine.close().unwrap();
        let closed = self.engine.check_open().is_err();
        limit_address_space("unlimited");
        self.said.set((starts, closed)).unwrap();
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
    assert_eq!(closer.said.get(), Some(&(false, true)));
    let again = open().unwrap();
    let table = again.table("table").unwrap().unwrap();
    let mut reader = again.begin(BeginOptions::default()).unwrap();
    assert_eq!(reader.get(&table, b"key", <[u8]>::to_vec).unwrap().as_deref(), Some(&b"value"[..]));
    drop(reader);
    assert!(again.begin(BeginOptions::default()).unwrap().commit(Durability::Sync).is_ok());
}
