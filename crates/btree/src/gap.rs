//! Names of gaps. A gap is named by the key below it (prior-key locking): the record before it in its leaf, ghost or
//! not, or the leaf's low fence.

use foreshore_base::SlotIndex;
use foreshore_lock::{KeyMode, KeyRef};
use foreshore_pages::{ExclusivePage, Fence, SlottedView};

use crate::{bytes::SmallKey, session::Session, tree::Tree};

/// The name of a gap, copied out of a leaf.
#[derive(Debug)]
pub(crate) struct Name {
    infinite: bool,
    bytes: SmallKey,
}

impl Name {
    #[inline]
    pub(crate) fn new() -> Name {
        Name { infinite: true, bytes: SmallKey::new() }
    }

    #[inline]
    pub(crate) fn key(&self) -> KeyRef<'_> {
        if self.infinite { KeyRef::NegativeInfinity } else { KeyRef::Key(self.bytes.as_slice()) }
    }

    /// Becomes the name of the gap that ends at `slot`, into which `key` belongs.
    #[inline]
    pub(crate) fn set_below(&mut self, view: SlottedView<'_>, slot: SlotIndex, key: &[u8]) {
        match slot.0.checked_sub(1) {
            Some(before) => self.set_slot(view, SlotIndex(before), key),
            None => self.set_low_fence(view),
        }
    }

    /// Becomes the key of `slot`. `near` is any key that belongs to the leaf: they all begin alike.
    #[inline]
    fn set_slot(&mut self, view: SlottedView<'_>, slot: SlotIndex, near: &[u8]) {
        let prefix = &near[..view.prefix_len().min(near.len())];
        let slot = view.slot(slot);
        self.infinite = false;
        let target = self.bytes.resize(prefix.len() + slot.suffix_len());
        target[..prefix.len()].copy_from_slice(prefix);
        view.words().copy_to(slot.offset(), &mut target[prefix.len()..]);
    }

    #[cold]
    fn set_low_fence(&mut self, view: SlottedView<'_>) {
        let mut bytes = Vec::new();
        self.infinite = view.low_fence(&mut bytes) == Fence::Infinite;
        self.bytes.resize(bytes.len()).copy_from_slice(&bytes);
    }
}

impl Tree<'_> {
    /// What the session holds on the gap below `slot` if that may be cut, and the key of the finger names it, as where
    /// keys ascend: the name is neither copied nor looked up. Nothing may have been changed under this latch.
    #[inline]
    pub(crate) fn free_behind_finger(
        &self,
        session: &impl Session,
        page: &ExclusivePage<'_>,
        slot: SlotIndex,
        key: &[u8],
    ) -> Option<KeyMode> {
        let finger = session.finger(self.table)?;
        if slot.0.checked_sub(1) != Some(finger.slot.0) || !page.was(finger.found?) {
            return None;
        }
        let (held, free) = session.held_and_check_at_finger(self.table, KeyMode::NX)?;
        debug_assert!(
            {
                let mut gap = Name::new();
                gap.set_below(page.view(), slot, key);
                session.held(self.table, gap.key()).map_or(true, |by_name| by_name == held)
            },
            "the finger is not on the key below the gap"
        );
        free.then_some(held)
    }
}
