//! The gallery: intent locks as requests in the lock table, as they were before Kimura et al. 2012.

mod inherited;

use super::EntryIndex;
use super::entries::{Entries, Tags};
pub(crate) use inherited::{Heritage, Inherited};

/// Intent locks are ordinary requests in the lock table, under a name of the table's own. Here are only the tags, of
/// which a table needs two.
#[derive(Debug)]
pub(crate) struct InTable {
    tags: Entries<Tags>,
}

impl InTable {
    pub(super) fn new() -> InTable {
        InTable { tags: Entries::new() }
    }

    pub(crate) fn tags(&self, index: EntryIndex) -> &Tags {
        self.tags.get(index)
    }
}
