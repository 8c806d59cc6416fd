//! Pages on their way between file and pool: the seam between the ways of knowing about them.
//!
//! The contract, which the pool's tests check over every way: a page is loaded by one thread at a time, one that wants
//! it meanwhile waits and then finds it, and nobody places a page that is being loaded.

pub(super) mod baseline;

use foreshore_base::PageId;
use foreshore_env::time::Instant;
use foreshore_latch::Patience;

use self::baseline::{Lists, Passage};

/// How the pool knows of pages on their way in and out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransitKind {
    /// A page being read is in its frame at once, latched exclusively; a page being written stays in its frame.
    #[default]
    InFrame,
    /// One list of pages, which every miss goes through: Shore-MT before its last step.
    OneList,
    /// 128 lists, by page.
    ManyLists,
}

impl TransitKind {
    /// All of them.
    pub const ALL: [TransitKind; 3] = [TransitKind::InFrame, TransitKind::OneList, TransitKind::ManyLists];
}

/// The pages on their way.
#[derive(Debug)]
pub(super) enum Transit {
    InFrame,
    Lists(Lists),
}

/// Permission to bring a page into a frame.
#[derive(Debug)]
pub(super) enum Permit<'p> {
    /// It may be placed, and is announced by being placed.
    InFrame,
    /// It is in its list as long as this lives.
    Listed {
        /// Its drop takes the page out of the list.
        _passage: Passage<'p>,
    },
}

impl Permit<'_> {
    /// Whether the page is announced already, so that it may be read before it is placed.
    pub(super) fn is_listed(&self) -> bool {
        matches!(self, Permit::Listed { .. })
    }
}

impl Transit {
    pub(super) fn new(kind: TransitKind) -> Transit {
        match kind {
            TransitKind::InFrame => Transit::InFrame,
            TransitKind::OneList => Transit::Lists(Lists::new(1)),
            TransitKind::ManyLists => Transit::Lists(Lists::new(128)),
        }
    }

    /// Permission to bring in a page that is in no frame; `None` when it was on its way, and no longer is, or when
    /// `limit` has passed, or the caller's patience has ended. The caller holds nothing that somebody who loads a page
    /// could wait for.
    pub(super) fn enter(&self, page: PageId, limit: Instant, patience: Patience<'_>) -> Option<Permit<'_>> {
        match self {
            Transit::InFrame => Some(Permit::InFrame),
            Transit::Lists(lists) => {
                lists.enter(page, limit, patience).map(|passage| Permit::Listed { _passage: passage })
            }
        }
    }

    /// Permission to bring in a page, unless it is on its way. Waits for nobody.
    pub(super) fn try_enter(&self, page: PageId) -> Option<Permit<'_>> {
        match self {
            Transit::InFrame => Some(Permit::InFrame),
            Transit::Lists(_) => self.try_leave(page),
        }
    }

    /// Announces that a page is on its way out, if that is how it is done and the page is not on its way yet.
    pub(super) fn try_leave(&self, page: PageId) -> Option<Permit<'_>> {
        match self {
            Transit::InFrame => None,
            Transit::Lists(lists) => {
                lists.try_enter(page).map(|passage| Permit::Listed { _passage: passage })
            }
        }
    }
}
