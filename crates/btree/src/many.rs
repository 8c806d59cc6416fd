//! Reading several keys at a time. One read after the other waits for memory, or for the disk, twice each: for its
//! leaf, and for its record there. Here all leaves are asked for, then all records, and what is read last came while
//! the others were looked for.

use foreshore_base::{PageId, SlotIndex};
use foreshore_latch::Patience;
use foreshore_lock::{KeyMode, KeyRef};
use foreshore_pages::OptimisticPage;

use crate::{
    descend::Landing,
    error::Result,
    look::{Place, Seen},
    node::Target,
    session::{Isolation, Session},
    tree::Tree,
};

/// Keys that [`BTree::get_many`](crate::BTree::get_many) has on their way at a time: what they ask for, a dozen lines
/// each, should still be in the nearest caches when it is used. A caller that gives it this many at a time loses
/// nothing.
pub const KEYS_TOGETHER: usize = 16;

impl<'a> Tree<'a> {
    /// As [`Tree::get`] of one key after the other; all that goes before is a hint.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &self,
        session: &mut impl Session,
        keys: &[K],
        mode: KeyMode,
        isolation: Isolation,
        mut read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        for (part, keys) in keys.chunks(KEYS_TOGETHER).enumerate() {
            let (mut leaves, mut places) = ([PageId::NONE; KEYS_TOGETHER], [None; KEYS_TOGETHER]);
            let mut all_there = true;
            for (leaf, key) in leaves.iter_mut().zip(keys) {
                session.prefetch_lock(self.table, KeyRef::Key(key.as_ref()), mode);
                *leaf = self.leaf_ahead(session.patience(), key.as_ref());
                all_there &= self.env.pool.prefetch(*leaf);
            }
            if !all_there {
                self.env.pool.read_ahead(&leaves);
            }
            for ((place, leaf), key) in places.iter_mut().zip(leaves).zip(keys) {
                *place = self.place_ahead(leaf, key.as_ref());
            }
            for (number, (place, key)) in places.into_iter().zip(keys).enumerate() {
                let (number, key) = (part * KEYS_TOGETHER + number, key.as_ref());
                let seen = place.map(|place| seen(place, key));
                let value = |value: &[u8]| read(number, Some(value));
                if self.get_from(session, key, mode, isolation, seen, value)?.is_none() {
                    read(number, None);
                }
            }
        }
        Ok(())
    }

    /// The leaf that the parent names. None where the root is a leaf, or anything else is in the way: a thread that
    /// reads the key will see.
    #[inline]
    fn leaf_ahead(&self, patience: Patience<'_>, key: &[u8]) -> PageId {
        if !self.is_optimistic() {
            return PageId::NONE;
        }
        let Ok(Some(parent)) = self.descend(patience, Target::Key(key), 1) else { return PageId::NONE };
        parent.page.view().child_for(key).1
    }

    /// That leaf, if it is the key's, and where the key may be there; the first lines of that record are on their way
    /// then.
    #[inline]
    fn place_ahead(&self, leaf: PageId, key: &[u8]) -> Option<(OptimisticPage<'a>, SlotIndex)> {
        let page = self.leaf_by_hint(leaf, Target::Key(key))?;
        Some((page, page.view().approach(key)))
    }
}

/// The key at the place where it was expected, or where else it is in the leaf.
#[inline]
fn seen<'a>((page, slot): (OptimisticPage<'a>, SlotIndex), key: &[u8]) -> Seen<'a> {
    let place = Place::at(page.view(), slot, key).unwrap_or_else(|| Place::of(page.view(), key));
    (Landing { page, foster: None }, place)
}
