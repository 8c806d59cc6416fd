//! A tree with everything under it, and sessions for it.

use std::{collections::BTreeMap, ops::Bound, path::Path};

use foreshore_base::{Lsn, PageId, TableId, TxnId};
use foreshore_env::{
    disk::Disk,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_lock::{
    Age, CancelToken, KeyMode, KeyRangeModes, KeyRef, LockError, LockManager, LockOptions, LockOwner,
    WaitPolicy,
};
use foreshore_pages::{BufferPool, PageBuffer, PoolOptions};
use foreshore_testkit::FaultyDisk;
use foreshore_wal::{FIRST_LSN, Log, LogOptions, RecordKind, Urgency};

use crate::{
    BTree, Direction, Isolation, LatchMode, LockKind, NoLocks, Patience, Session, TreeEnv, TreeError,
    TxnChain, VerifyReport, is_undoable, undo, undo_next,
};

pub(super) const TABLE: TableId = TableId::FIRST_USER;

pub(super) const LATCH_MODES: [LatchMode; 4] =
    [LatchMode::Hybrid, LatchMode::Optimistic, LatchMode::AlwaysShared, LatchMode::AlwaysExclusive];

/// How long a test is patient with what should come about.
const FAR: Duration = Duration::from_secs(60);

/// A log, a pool, a tree and its overflow table, on a disk in memory.
pub(super) struct Rig {
    pub(super) faults: FaultyDisk,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) log: Arc<Log>,
    pub(super) env: Arc<TreeEnv>,
    pub(super) tree: BTree,
    pub(super) overflow: BTree,
}

pub(super) fn pool_options(frames: usize) -> PoolOptions {
    PoolOptions { bytes: frames * 8192, cleaners: 0, ..PoolOptions::default() }
}

impl Rig {
    pub(super) fn new(node_capacity: usize) -> Rig {
        Rig::with_frames(node_capacity, 1024)
    }

    pub(super) fn with_frames(node_capacity: usize, frames: usize) -> Rig {
        Rig::with_mode(node_capacity, frames, LatchMode::Hybrid)
    }

    pub(super) fn with_mode(node_capacity: usize, frames: usize, latch_mode: LatchMode) -> Rig {
        let faults = FaultyDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(faults.clone());
        let log_options = LogOptions { buffer_bytes: 1 << 20, ..LogOptions::default() };
        disk.create_directory(Path::new("db")).unwrap();
        let log = Log::create(Arc::clone(&disk), Path::new("db/log"), 7, &log_options).unwrap();
        let pool =
            BufferPool::create(&disk, Path::new("db/data"), Arc::clone(&log), &pool_options(frames)).unwrap();
        let env = TreeEnv::new(pool, Arc::clone(&log), node_capacity, latch_mode);
        let overflow = BTree::create(&env, TableId::OVERFLOW).unwrap();
        env.set_overflow(&overflow);
        let tree = BTree::create(&env, TABLE).unwrap();
        Rig { faults, disk, log, env, tree, overflow }
    }

    /// Comes by at this key, with room in the log: whoever comes by waits for none.
    pub(super) fn maintain(&self, session: &mut impl Session, key: &[u8]) {
        self.log.flush(Lsn(self.log.tail().0 - 1)).unwrap();
        self.env.pool.await_log_room(self.tree.root(), Urgency::Work, Patience::ENDLESS).unwrap();
        self.tree.maintain(session, key).unwrap();
    }

    /// Runs this while work has no room in the log, and for no longer than `limit`; whether it came to its end in that
    /// time, and the log had no room until then.
    pub(super) fn ends_without_room(&self, limit: Duration, run: impl FnOnce() + Send) -> bool {
        let happens = |done: &dyn Fn() -> bool, limit| {
            let begun = Instant::now();
            while !done() && begun.elapsed() < limit {
                thread::sleep(Duration::from_millis(1));
            }
            done()
        };
        let is_over = AtomicBool::new(false);
        self.faults.hold_syncs(true);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    self.env.append_system(Urgency::Work, RecordKind(200), &[&[0; 64]]).unwrap();
                }
            });
            // No spare segment is made while nothing is synced.
            let stands_still = || {
                let tail = self.log.tail();
                thread::sleep(Duration::from_millis(100));
                !self.env.has_room() && self.log.tail() == tail
            };
            let is_full = happens(&stands_still, FAR);
            let runs = scope.spawn(run);
            let ends = happens(&|| runs.is_finished(), limit);
            let is_full = is_full && !self.env.has_room();
            is_over.store(true, Ordering::Relaxed);
            self.faults.hold_syncs(false);
            runs.join().unwrap();
            assert!(is_full, "the log has room");
            ends
        })
    }

    /// Checks both trees, and that exactly their pages are allocated.
    pub(super) fn verify(&self) -> VerifyReport {
        let mut report = VerifyReport::default();
        self.tree.verify(&mut report).unwrap();
        self.overflow.verify(&mut VerifyReport::default()).unwrap();
        let mut pages = self.pages();
        pages.sort_unstable();
        let mut allocated = Vec::new();
        self.env.pool.visit_allocated(&mut |page| allocated.push(page)).unwrap();
        assert_eq!(pages, allocated, "pages of trees, pages allocated");
        self.env.pool.verify_quiescent().unwrap();
        report
    }

    pub(super) fn pages(&self) -> Vec<PageId> {
        let mut pages = Vec::new();
        self.tree.pages(&mut |page| pages.push(page)).unwrap();
        self.overflow.pages(&mut |page| pages.push(page)).unwrap();
        pages
    }

    /// Everything in the tree, without locks.
    pub(super) fn contents(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut session = NoLocks::new(TxnId(1));
        scan(&self.tree, &mut session, (Bound::Unbounded, Bound::Unbounded), Direction::Ascending)
            .unwrap()
            .into_iter()
            .collect()
    }

    /// Takes back everything in a chain after `until`.
    pub(super) fn roll_back(&self, chain: &mut TxnChain, until: Lsn) {
        let tables = self.tables();
        let (mut lsn, mut payload) = (chain.last, Vec::new());
        while lsn > until {
            let header = self.log.read(lsn, &mut payload).unwrap();
            lsn = match undo_next(&header, &payload) {
                Some(next) => next,
                None => {
                    if is_undoable(header.kind) {
                        undo(&self.env, &tables, &header, &payload, chain).unwrap();
                    }
                    header.prev
                }
            };
        }
    }

    pub(super) fn tables(&self) -> impl Fn(TableId) -> Option<PageId> + use<> {
        let (tree, overflow) = (self.tree.root(), self.overflow.root());
        move |table| match table {
            TABLE => Some(tree),
            TableId::OVERFLOW => Some(overflow),
            _ => None,
        }
    }

    /// A new data file, into which the whole log is redone: twice, because the second time must change nothing.
    pub(super) fn redone(&self, name: &str, node_capacity: usize) -> Rig {
        self.redone_until(name, node_capacity, Lsn::MAX)
    }

    /// The same with what the log says before `end`, as if a crash had lost the rest.
    pub(super) fn redone_until(&self, name: &str, node_capacity: usize, end: Lsn) -> Rig {
        let pool =
            BufferPool::create(&self.disk, Path::new(name), Arc::clone(&self.log), &pool_options(1024))
                .unwrap();
        let env = TreeEnv::new(pool, Arc::clone(&self.log), node_capacity, LatchMode::Hybrid);
        for _ in 0..2 {
            let mut reader = self.log.reader(FIRST_LSN);
            let mut payload = Vec::new();
            while let Some(header) = reader.next(&mut payload).unwrap().filter(|header| header.lsn < end) {
                if !env.pool.redo_record(&header, &payload).unwrap() && (16..64).contains(&header.kind.0) {
                    crate::redo(&env, &header, &payload).unwrap();
                }
            }
            env.pool.finish_redo().unwrap();
        }
        let overflow = BTree::open(&env, TableId::OVERFLOW, self.overflow.root());
        env.set_overflow(&overflow);
        let tree = BTree::open(&env, TABLE, self.tree.root());
        let (disk, log) = (Arc::clone(&self.disk), Arc::clone(&self.log));
        Rig { faults: self.faults.clone(), disk, log, env, tree, overflow }
    }

    /// A page's bytes without the checksum and the image LSN.
    pub(super) fn page(&self, page: PageId) -> Box<PageBuffer> {
        let mut bytes = self.env.pool.shared(page).unwrap().words().snapshot();
        bytes.0[..4].fill(0);
        bytes.0[48..56].fill(0);
        bytes
    }
}

/// Key and value.
pub(super) type Record = (Vec<u8>, Vec<u8>);

/// All records of a range.
pub(super) fn scan(
    tree: &BTree,
    session: &mut impl Session,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    direction: Direction,
) -> Result<Vec<Record>, TreeError> {
    let mut cursor = tree.cursor(range, direction, LockKind::Shared, Isolation::Serializable);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut records = Vec::new();
    while cursor.next(session, &mut key, &mut value)? {
        records.push((key.clone(), value.clone()));
    }
    Ok(records)
}

/// A transaction with locks. `gaps` off: gaps are not locked, which isolation tests must notice.
pub(super) struct Locking {
    pub(super) owner: LockOwner,
    pub(super) chain: TxnChain,
    pub(super) manager: Arc<LockManager>,
    pub(super) no_wait: bool,
    pub(super) gaps: bool,
    /// How long it waits for a latch.
    pub(super) deadline: Option<Instant>,
    pub(super) cancel: CancelToken,
    /// How often it asked for a lock that could be awaited.
    pub(super) acquires: usize,
    /// Names with a later tag are in use (TXN-6).
    pub(super) durable: Lsn,
}

pub(super) fn lock_manager() -> Arc<LockManager> {
    lock_manager_with(KeyRangeModes::default())
}

pub(super) fn lock_manager_with(key_ranges: KeyRangeModes) -> Arc<LockManager> {
    LockManager::new(&LockOptions { buckets: 1 << 12, key_ranges, ..LockOptions::default() })
}

impl Locking {
    pub(super) fn begin(manager: &Arc<LockManager>, txn: u64) -> Locking {
        let owner = manager.begin(TxnId(txn), Age::new(txn, 0), None).unwrap();
        let chain = TxnChain::new(TxnId(txn));
        let manager = Arc::clone(manager);
        let cancel = CancelToken::new();
        let durable = Lsn::MAX;
        Locking {
            owner,
            chain,
            manager,
            no_wait: false,
            gaps: true,
            deadline: None,
            cancel,
            acquires: 0,
            durable,
        }
    }

    fn reduced(&self, mode: KeyMode) -> KeyMode {
        if self.gaps { mode } else { mode.key() }
    }
}

impl Session for Locking {
    fn acquire(&mut self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<(), LockError> {
        self.acquires += 1;
        let mode = self.reduced(mode);
        if mode == KeyMode::N {
            return Ok(());
        }
        let deadline = Some(Instant::now() + Duration::from_secs(60));
        self.owner.acquire(
            table,
            key,
            mode,
            &WaitPolicy { deadline, no_wait: self.no_wait, ..WaitPolicy::default() },
        )
    }

    fn try_acquire(&mut self, table: TableId, key: KeyRef<'_>, mode: KeyMode) -> Result<bool, LockError> {
        let mode = self.reduced(mode);
        if mode == KeyMode::N { Ok(true) } else { self.owner.try_acquire(table, key, mode) }
    }

    fn held(&self, table: TableId, key: KeyRef<'_>) -> Result<KeyMode, LockError> {
        self.owner.held(table, key)
    }

    fn held_and_check(
        &self,
        table: TableId,
        key: KeyRef<'_>,
        mode: KeyMode,
    ) -> Result<(KeyMode, bool), LockError> {
        match self.reduced(mode) {
            KeyMode::N => Ok((self.held(table, key)?, true)),
            mode => self.owner.held_and_check(table, key, mode),
        }
    }

    fn has_requests(&self, table: TableId, key: KeyRef<'_>) -> bool {
        self.manager.has_requests(table, key) || self.manager.tag(table, key) > self.durable
    }

    fn patience(&self) -> Patience<'_> {
        Patience { deadline: self.deadline, cancelled: Some(self.cancel.flag()) }
    }

    fn chain(&mut self) -> &mut TxnChain {
        &mut self.chain
    }
}
