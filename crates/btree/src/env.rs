//! What all trees of a database share.

use foreshore_base::{Lsn, PageId, Result, StorageError, TableId, TxnId};
use foreshore_env::{
    CachePadded,
    sync::{Arc, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic::AtomicU64},
};
use foreshore_latch::Patience;
use foreshore_pages::{BufferPool, FREE_IN_USE, NewPage, PageFull};
use foreshore_wal::{Log, RecordKind, Urgency};

use crate::{deserted::Deserted, hold::LatchMode, image::misfit, node::RETIRED};

/// The fewest records that a node may be limited to: below, splitting would not make room.
const MIN_NODE_CAPACITY: usize = 3;

/// What all trees of a database share.
#[derive(Debug)]
pub struct TreeEnv {
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) log: Arc<Log>,
    /// Records in a node at most. `usize::MAX`: as many as fit.
    pub(crate) node_capacity: usize,
    /// How nodes are latched by those who read.
    pub(crate) latch_mode: LatchMode,
    /// The newest id given to a value in the overflow table: no id in use is above it. Any thread adds to it; Relaxed,
    /// because only the difference of the ids counts.
    pub next_overflow: AtomicU64,
    /// The root of the overflow table, once it is known.
    overflow: OnceLock<PageId>,
    /// Shared by those who tidy on their way, for as long as that takes. Written by all of them, beside what everybody
    /// reads.
    tidying: CachePadded<RwLock<()>>,
    /// To be tidied by those who come by.
    pub(crate) deserted: Deserted,
    /// Set when nobody is to tidy any more.
    at_rest: OnceLock<()>,
}

impl TreeEnv {
    /// The environment of the trees in `pool`. `node_capacity` limits the records in a node (at least 3), for tests
    /// in which structure changes are to be constant.
    pub fn new(
        pool: Arc<BufferPool>,
        log: Arc<Log>,
        node_capacity: usize,
        latch_mode: LatchMode,
    ) -> Arc<TreeEnv> {
        Arc::new(TreeEnv {
            pool,
            log,
            node_capacity: node_capacity.max(MIN_NODE_CAPACITY),
            latch_mode,
            next_overflow: AtomicU64::new(0),
            overflow: OnceLock::new(),
            tidying: CachePadded::new(RwLock::new(())),
            deserted: Deserted::default(),
            at_rest: OnceLock::new(),
        })
    }

    /// Says where long values are stored. The first call counts.
    pub fn set_overflow(&self, tree: &crate::BTree) {
        let _ = self.overflow.set(tree.root());
    }

    /// From now on nobody tidies who only comes by: the database was opened to be read (BTREE-13). Changes are still
    /// made as ever, those of a recovery.
    pub fn rest(&self) {
        let _ = self.at_rest.set(());
    }

    /// Whether it may be that somebody tidies.
    pub(crate) fn is_tidied(&self) -> bool {
        self.at_rest.get().is_none()
    }

    /// Keeps those who only come by from tidying, once those who are at it are done (BTREE-13). Waited for under no
    /// latch.
    pub fn without_tidying(&self) -> RwLockWriteGuard<'_, ()> {
        foreshore_latch::rank::assert_none();
        self.tidying.write()
    }

    /// Leave to tidy on the way (BTREE-13); `None`: not now.
    pub(crate) fn may_tidy(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let may = self.is_tidied() && self.log.poisoned().is_none() && self.has_room();
        if may { self.tidying.try_read() } else { None }
    }

    /// Whether the log has room for a change of some pages: a hint. Whoever only tidies waits for none (BTREE-13).
    pub(crate) fn has_room(&self) -> bool {
        self.pool.has_log_room(Urgency::Work)
    }

    /// The root of the overflow table.
    pub(crate) fn overflow_root(&self) -> Option<PageId> {
        self.overflow.get().copied()
    }

    /// Appends the record of a system transaction.
    pub(crate) fn append_system(&self, urgency: Urgency, kind: RecordKind, payload: &[&[u8]]) -> Result<Lsn> {
        self.log.append(urgency, TxnId::SYSTEM, Lsn::ZERO, kind, payload)
    }

    /// A change that was logged, and whose fit was checked before. Should it not fit all the same, log and page
    /// disagree: the database stops.
    #[inline]
    pub(crate) fn as_logged(&self, page: PageId, done: std::result::Result<(), PageFull>) -> Result<()> {
        done.map_err(|full| {
            let error = misfit(page)(full);
            self.log.poison(&error.to_string());
            error
        })
    }

    /// A new page for the tree of `table`, near another one of it.
    pub(crate) fn allocate(
        &self,
        patience: Patience<'_>,
        urgency: Urgency,
        table: TableId,
        near: PageId,
    ) -> Result<NewPage<'_>> {
        not_in_use(self.pool.allocate_for(near, urgency, patience)?, table)
    }
}

/// A new page for the tree of `table`, unless it is in use there.
///
/// A page that leaves a tree which is in use says that it is retired (BTREE-6). So one that the bitmap calls free, and
/// that is a node of this very tree, is in use: the bitmap is damaged, and to write there would lose what the node
/// holds. The pool tells what it still has of the page; nothing is read for that.
pub(crate) fn not_in_use(page: NewPage<'_>, table: TableId) -> Result<NewPage<'_>> {
    match page.former_node() {
        Some((owner, flags)) if owner == table && flags & RETIRED == 0 => {
            Err(StorageError::corrupt_page(page.id(), FREE_IN_USE))
        }
        _ => Ok(page),
    }
}
