//! The handle of a tree, and how a tree begins.

use std::ops::Bound;

use foreshore_base::{
    PageId, Result, SlotIndex, StorageError, TableId, limits::MAX_KEY_BYTES, limits::MAX_VALUE_BYTES,
};
use foreshore_env::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
use foreshore_latch::Patience;
use foreshore_lock::KeyMode;
use foreshore_pages::{NodeHeader, PageBuilder, PageWords};
use foreshore_wal::Urgency;

use crate::{
    cursor::{Cursor, Direction, LockKind},
    env::TreeEnv,
    error::TreeError,
    image::misfit,
    node::{self, Target},
    record,
    session::{Isolation, Session},
    verify::{self, VerifyReport},
    write::Verb,
};

/// A foster B-tree: the ordered records of one table. A cheap handle; clones are the same tree.
#[derive(Clone, Debug)]
pub struct BTree(Arc<Handle>);

/// What the clones of a handle share.
#[derive(Debug)]
struct Handle {
    env: Arc<TreeEnv>,
    table: TableId,
    /// The root's page id. Changed by [`BTree::relocate_root`] alone, while nobody else has a lock on the tree: what
    /// keeps the others out orders it, so it is relaxed. A transaction that reads without any lock, and is not
    /// believed, may have either.
    root: AtomicU32,
}

/// A tree, borrowed for an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree<'a> {
    pub(crate) env: &'a TreeEnv,
    pub(crate) table: TableId,
    /// Does not change while the tree is used: growth moves the root's content to a new child.
    pub(crate) root: PageId,
}

impl BTree {
    /// Makes an empty tree: a system transaction, redone after a crash if its record is durable.
    pub fn create(env: &Arc<TreeEnv>, table: TableId) -> Result<BTree> {
        let mut page = env.pool.allocate(PageId::NONE)?;
        let root = page.id();
        let leaf = PageBuilder::new(&NodeHeader { table, ..NodeHeader::default() }).map_err(misfit(root))?;
        let lsn =
            env.append_system(Urgency::Work, record::CREATE, &[&record::structure(table, &[root], None)])?;
        leaf.store(page.page().words());
        drop(page.commit(lsn));
        Ok(BTree::open(env, table, root))
    }

    /// The tree of `table` whose root is `root`.
    pub fn open(env: &Arc<TreeEnv>, table: TableId, root: PageId) -> BTree {
        BTree(Arc::new(Handle { env: Arc::clone(env), table, root: AtomicU32::new(root.0) }))
    }

    /// Whether it is one of the trees of `env`.
    #[inline]
    pub(crate) fn is_of(&self, env: &TreeEnv) -> bool {
        std::ptr::eq(&*self.0.env, env)
    }

    /// The table.
    pub fn table(&self) -> TableId {
        self.0.table
    }

    /// The root page. It does not change while the tree is used: see [`BTree::relocate_root`].
    #[inline]
    pub fn root(&self) -> PageId {
        PageId(self.0.root.load(Ordering::Relaxed))
    }

    pub(crate) fn set_root(&self, root: PageId) {
        self.0.root.store(root.0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn tree(&self) -> Tree<'_> {
        Tree { env: &self.0.env, table: self.0.table, root: self.root() }
    }

    /// Reads the value of `key` (Kimura et al. 2012, Algorithm 2). `read` sees it once.
    #[inline]
    pub fn get<R>(
        &self,
        session: &mut impl Session,
        key: &[u8],
        isolation: Isolation,
        read: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>, TreeError> {
        self.tree().get(session, key, KeyMode::SN, isolation, read)
    }

    /// As [`BTree::get`], but the key is locked for a change that follows.
    pub fn get_for_update<R>(
        &self,
        session: &mut impl Session,
        key: &[u8],
        isolation: Isolation,
        read: impl FnMut(&[u8]) -> R,
    ) -> Result<Option<R>, TreeError> {
        self.tree().get(session, key, KeyMode::XN, isolation, read)
    }

    /// Whether `key` is there, with the locks of [`BTree::get`]: a value in other leaves is not read.
    pub fn contains(
        &self,
        session: &mut impl Session,
        key: &[u8],
        isolation: Isolation,
    ) -> Result<bool, TreeError> {
        self.tree().look(session, key, KeyMode::SN, isolation, &mut |_, _| {})
    }

    /// As [`BTree::get`] of one key after the other, or [`BTree::get_for_update`] for [`LockKind::Exclusive`]. `read`
    /// is called with each one's number and value, in this order; what a call that fails has read counts for nothing.
    #[inline]
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        session: &mut impl Session,
        keys: &[K],
        kind: LockKind,
        isolation: Isolation,
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), TreeError> {
        let mode = match kind {
            LockKind::Shared => KeyMode::SN,
            LockKind::Exclusive => KeyMode::XN,
        };
        self.tree().get_many(session, keys, mode, isolation, read)
    }

    /// Adds a record (Algorithm 1). False when the key exists: then it stays locked in a shared mode at least, so that
    /// the answer can be repeated.
    pub fn insert(&self, session: &mut impl Session, key: &[u8], value: &[u8]) -> Result<bool, TreeError> {
        check_lengths(key, value)?;
        Ok(!self.tree().write(session, key, value, Verb::Insert)?)
    }

    /// Replaces the value of an existing key. False when there is none: then its absence is locked.
    pub fn update(&self, session: &mut impl Session, key: &[u8], value: &[u8]) -> Result<bool, TreeError> {
        check_lengths(key, value)?;
        self.tree().write(session, key, value, Verb::Update)
    }

    /// Adds a record or replaces its value. True when the key existed.
    pub fn put(&self, session: &mut impl Session, key: &[u8], value: &[u8]) -> Result<bool, TreeError> {
        check_lengths(key, value)?;
        self.tree().write(session, key, value, Verb::Put)
    }

    /// Deletes a record: it becomes a ghost. False when there is none: then its absence is locked.
    pub fn delete(&self, session: &mut impl Session, key: &[u8]) -> Result<bool, TreeError> {
        check_lengths(key, &[])?;
        self.tree().write(session, key, &[], Verb::Delete)
    }

    /// A cursor over the records in `range`, not yet positioned.
    pub fn cursor(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        kind: LockKind,
        isolation: Isolation,
    ) -> Cursor {
        Cursor::new(self.clone(), range, direction, kind, isolation)
    }

    /// Purges the ghosts beside `key` that nobody needs any more, and merges its leaf with a neighbour if it is nearly
    /// empty, as the write path does where it needs room.
    #[cfg(test)]
    pub(crate) fn maintain(&self, session: &mut impl Session, key: &[u8]) -> Result<(), TreeError> {
        check_lengths(key, &[])?;
        self.tree().maintain(session, Target::Key(key))?;
        Ok(())
    }

    /// Walks the whole tree and checks it; adds what it counts to `report`. Nobody may change the tree meanwhile.
    pub fn verify(&self, report: &mut VerifyReport) -> Result<()> {
        verify::verify(&self.tree(), report, &mut |_, _| Ok(()), &mut Err)
    }

    /// As [`BTree::verify`], and shows every page that is sound; `damage` is told of the others, and the walk goes on
    /// beside them: what lies below a damaged page is not met.
    pub fn examine(
        &self,
        report: &mut VerifyReport,
        visit: &mut dyn FnMut(PageId, &PageWords) -> Result<()>,
        damage: &mut dyn FnMut(StorageError),
    ) -> Result<()> {
        let mut note = |error| {
            damage(error);
            Ok(())
        };
        verify::verify(&self.tree(), report, visit, &mut note)
    }

    /// Names every page of the tree, checking it on the way. Nobody may change the tree meanwhile.
    pub fn pages(&self, visit: &mut dyn FnMut(PageId)) -> Result<()> {
        let mut visit = |page, _: &PageWords| {
            visit(page);
            Ok(())
        };
        verify::verify(&self.tree(), &mut VerifyReport::default(), &mut visit, &mut Err)
    }

    /// The highest id of a long value in the overflow table with this root; 0 when there is none.
    pub fn last_overflow_id(env: &Arc<TreeEnv>, root: PageId) -> Result<u64> {
        let tree = BTree::open(env, TableId::OVERFLOW, root);
        let key = tree.tree().last_key(Patience::ENDLESS)?;
        Ok(key.and_then(|key| key.first_chunk().map(|id| u64::from_be_bytes(*id))).unwrap_or(0))
    }
}

impl Tree<'_> {
    /// The highest key, a ghost's too. Nobody may change the tree meanwhile; but pages may leave their frames to
    /// others.
    pub(crate) fn last_key(&self, patience: Patience<'_>) -> Result<Option<Vec<u8>>> {
        let mut bound: Option<Vec<u8>> = None;
        loop {
            let target = bound.as_deref().map_or(Target::Last, Target::Below);
            let leaf = self.leaf(patience, target)?.page;
            let view = leaf.view();
            let last = view.slot_count().checked_sub(1).map(|last| node::key_of(view, SlotIndex(last)));
            let low = node::low_fence(view);
            match (leaf.validate(), last, low) {
                (false, ..) => {}
                (true, None, Some(low)) => bound = Some(low),
                (true, last, _) => return Ok(last),
            }
        }
    }
}

#[inline]
pub(crate) fn check_lengths(key: &[u8], value: &[u8]) -> Result<()> {
    let (what, limit, got) = if key.len() > MAX_KEY_BYTES {
        ("length of a key in bytes", MAX_KEY_BYTES, key.len())
    } else if value.len() > MAX_VALUE_BYTES {
        ("length of a value in bytes", MAX_VALUE_BYTES, value.len())
    } else {
        return Ok(());
    };
    Err(StorageError::beyond_limit(what, limit as u64, got as u64))
}
