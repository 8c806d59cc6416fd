//! How nodes are latched for reading: what a descent holds when it does not read optimistically.

use foreshore_base::{PageId, Result};
use foreshore_latch::Patience;
use foreshore_pages::{ExclusivePage, OptimisticPage, SharedPage, SlottedView};

use crate::{
    node::{Target, damaged},
    tree::Tree,
};

/// How the latches of nodes are taken by those who read. A thread that changes a node holds it exclusively in any mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LatchMode {
    /// Optimistically, and shared when that keeps failing (Böttcher et al. 2020).
    #[default]
    Hybrid,
    /// Optimistically, and exclusively when that keeps failing (there, Listing 1). A baseline.
    Optimistic,
    /// Shared, hand over hand: each node on the way is written to. A baseline.
    AlwaysShared,
    /// Exclusively, hand over hand: one thread at a time passes the root. A baseline.
    AlwaysExclusive,
}

/// A node that nobody changes while this lives.
#[derive(Debug)]
pub(crate) enum Held<'a> {
    Shared(SharedPage<'a>),
    Exclusive(ExclusivePage<'a>),
}

impl<'a> Held<'a> {
    pub(crate) fn id(&self) -> PageId {
        match self {
            Held::Shared(page) => page.id(),
            Held::Exclusive(page) => page.id(),
        }
    }

    pub(crate) fn view(&self) -> SlottedView<'_> {
        match self {
            Held::Shared(page) => page.view(),
            Held::Exclusive(page) => page.view(),
        }
    }

    /// Lets the latch go, and keeps what is needed to find out later whether the node is still the same.
    pub(crate) fn release(self) -> OptimisticPage<'a> {
        match self {
            Held::Shared(page) => page.release(),
            Held::Exclusive(page) => page.downgrade().release(),
        }
    }
}

/// A node where a descent has ended, still latched for reading.
#[derive(Debug)]
pub(crate) struct HeldNode<'a> {
    pub(crate) page: Held<'a>,
    /// As [`Landing::foster`](crate::descend::Landing::foster).
    pub(crate) foster: Option<u8>,
}

impl<'a> Tree<'a> {
    /// Whether nodes are read optimistically.
    #[inline]
    pub(crate) fn is_optimistic(&self) -> bool {
        matches!(self.env.latch_mode, LatchMode::Hybrid | LatchMode::Optimistic)
    }

    /// Latches a node for reading.
    pub(crate) fn hold(&self, patience: Patience<'_>, id: PageId) -> Result<Held<'a>> {
        Ok(match self.env.latch_mode {
            LatchMode::Hybrid | LatchMode::AlwaysShared => {
                Held::Shared(self.env.pool.shared_within(id, patience)?)
            }
            LatchMode::Optimistic | LatchMode::AlwaysExclusive => {
                Held::Exclusive(self.env.pool.exclusive_within(id, patience)?)
            }
        })
    }

    /// The leaf of `target`, latched for reading. Latches are coupled all the way, in any mode: whoever has failed
    /// optimistically must not fail once more between the way and its end (BTREE-12).
    #[cold]
    pub(crate) fn leaf_held(&self, patience: Patience<'_>, target: Target<'_>) -> Result<HeldNode<'a>> {
        let held = self.descend_held(patience, target, 0)?;
        held.ok_or_else(|| damaged(self.root, "the tree has no leaves"))
    }
}
