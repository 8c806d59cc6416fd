//! Identifiers: index, count and size are different types, so that none is taken for another.

use std::fmt;

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

identifier! {
    /// A page of the data file; its byte offset there is `page id × PAGE_BYTES`. Page 0 is the file's header and
    /// never part of a tree, so [`PageId::NONE`] (0) can stand for "no page" in a pointer.
    PageId(u32)
}
identifier! {
    /// A log sequence number: the byte offset of a record in the endless log. 0 is before every record.
    Lsn(u64)
}
identifier! {
    /// A transaction. Drawn in ascending order, never reused; 0 stands for system transactions.
    TxnId(u64)
}
identifier! {
    /// A table: one B-tree. 0 is the catalogue.
    TableId(u32)
}
identifier! {
    /// A frame of the buffer pool.
    FrameIndex(u32)
}
identifier! {
    /// A slot of a slotted page.
    SlotIndex(u16)
}

impl PageId {
    /// "No page" where a page pointer may be absent.
    pub const NONE: PageId = PageId(0);

    /// Whether this points at a page at all.
    #[inline]
    pub fn is_some(self) -> bool {
        self != PageId::NONE
    }
}

impl Lsn {
    /// Before every record: the LSN of a page that no logged change has touched.
    pub const ZERO: Lsn = Lsn(0);
    /// After every record.
    pub const MAX: Lsn = Lsn(u64::MAX);

    /// The LSN `bytes` further on. Saturates: no log reaches 2⁶⁴ bytes, but a hostile length field may ask for it.
    #[inline]
    #[must_use]
    pub fn advance(self, bytes: u64) -> Lsn {
        Lsn(self.0.saturating_add(bytes))
    }
}

impl TxnId {
    /// The transaction id of records that belong to no user transaction (system transactions, checkpoints).
    pub const SYSTEM: TxnId = TxnId(0);
}

impl TableId {
    /// The catalogue: table name → table id and root page.
    pub const CATALOG: TableId = TableId(0);
    /// The chunks of values too long for a leaf.
    pub const OVERFLOW: TableId = TableId(1);
    /// The first id given to a user's table.
    pub const FIRST_USER: TableId = TableId(16);
    /// No table, but the whole database as a lockable thing: everybody who locks a table has an intent lock here.
    pub const VOLUME: TableId = TableId(u32::MAX);
}
