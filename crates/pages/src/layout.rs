//! The header that every page begins with, and the checksum over it.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | CRC32C of bytes 4 to 8191, seeded with the database's id; set in the copy that is written, never in memory |
//! | 4 | 4 | page id: a page that was read from or written to a wrong place is found out |
//! | 8 | 8 | page LSN: the newest record whose change the page shows |
//! | 16 | 4 | table id |
//! | 20 | 1 | level in its tree; 0 is a leaf |
//! | 21 | 1 | kind, a [`PageKind`] |
//! | 22 | 2 | flags, the tree's |
//! | 24 | 2 | slot count |
//! | 26 | 2 | heap start: the heap of records lies between here and the page's end; 0 stands for the page's end |
//! | 28 | 2 | garbage: bytes of the heap that no record uses |
//! | 30 | 2 | prefix length: so many first bytes of the low fence are left out of every key |
//! | 32 | 4 | foster child, or 0 |
//! | 36 | 4 | low fence: offset, length (16 bits each); offset 0 is −∞ |
//! | 40 | 4 | high key: offset, length; offset 0 is +∞ |
//! | 44 | 4 | leftmost child of an inner node, or 0 |
//! | 48 | 8 | image LSN: the newest record that holds the page whole |
//! | 56 | 2 | skipped: so many first bytes of what is stored of its key does each record share with all others; heads begin behind them |
//! | 58 | 6 | zero |
//!
//! From byte 64 on: the slots of a slotted page (see `slotted`), the bits of an allocation bitmap (see `space`), or the
//! body of the header page (see `space`).

use foreshore_base::{Lsn, PageId, Result, StorageError, TableId, limits::PAGE_BYTES};

use crate::{raw::Unshift, words::PageWords};

/// Bytes of the header.
pub const PAGE_HEADER_BYTES: usize = 64;

pub(crate) const CHECKSUM: usize = 0;
pub(crate) const PAGE_ID: usize = 4;
pub(crate) const PAGE_LSN: usize = 8;
pub(crate) const TABLE: usize = 16;
pub(crate) const LEVEL: usize = 20;
pub(crate) const KIND: usize = 21;
pub(crate) const FLAGS: usize = 22;
pub(crate) const SLOT_COUNT: usize = 24;
pub(crate) const HEAP_START: usize = 26;
pub(crate) const GARBAGE: usize = 28;
pub(crate) const PREFIX_LENGTH: usize = 30;
pub(crate) const FOSTER_CHILD: usize = 32;
pub(crate) const LOW_FENCE: usize = 36;
pub(crate) const HIGH_FENCE: usize = 40;
pub(crate) const LEFTMOST_CHILD: usize = 44;
pub(crate) const IMAGE_LSN: usize = 48;
pub(crate) const SKIPPED: usize = 56;

// Offsets and lengths are 16 bits.
const _: () = assert!(PAGE_BYTES <= 1 << 15);
// The LSNs are read in one load each.
const _: () = assert!(PAGE_LSN.is_multiple_of(8) && IMAGE_LSN.is_multiple_of(8));

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Nothing yet.
    Empty = 0,
    /// Page 0.
    Header = 1,
    /// Bits that say which pages are in use.
    Bitmap = 2,
    /// A node of a B-tree.
    Node = 3,
}

impl PageKind {
    /// The kind that a byte stands for.
    pub(crate) fn from_byte(byte: u8) -> Option<PageKind> {
        [PageKind::Empty, PageKind::Header, PageKind::Bitmap, PageKind::Node]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

impl PageWords {
    /// The page's own id, as stored in it.
    pub fn page_id(&self) -> PageId {
        PageId(self.u32(PAGE_ID))
    }

    /// The newest record whose change the page shows.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        Lsn(self.u64(PAGE_LSN))
    }

    /// The newest record that holds the page whole.
    #[inline]
    pub fn image_lsn(&self) -> Lsn {
        Lsn(self.u64(IMAGE_LSN))
    }

    #[inline]
    pub(crate) fn set_lsn(&self, lsn: Lsn) {
        self.set_u64(PAGE_LSN, lsn.0);
    }

    #[inline]
    pub(crate) fn set_image_lsn(&self, lsn: Lsn) {
        self.set_u64(IMAGE_LSN, lsn.0);
    }

    pub(crate) fn set_page_id(&self, page: PageId) {
        self.set_u32(PAGE_ID, page.0);
    }
}

fn number<const N: usize>(page: &[u8; PAGE_BYTES], offset: usize) -> [u8; N] {
    std::array::from_fn(|index| page[offset + index])
}

/// The page LSN in a private copy.
pub(crate) fn lsn_of(page: &[u8; PAGE_BYTES]) -> Lsn {
    Lsn(u64::from_le_bytes(number(page, PAGE_LSN)))
}

/// Table and flags of a private copy of a page, if it is a node.
pub(crate) fn node_of(page: &[u8; PAGE_BYTES]) -> Option<(TableId, u16)> {
    let node = page[KIND] == PageKind::Node as u8;
    node.then(|| (TableId(u32::from_le_bytes(number(page, TABLE))), u16::from_le_bytes(number(page, FLAGS))))
}

/// The image LSN in a private copy.
#[cfg(test)]
pub(crate) fn image_lsn_of(page: &[u8; PAGE_BYTES]) -> Lsn {
    Lsn(u64::from_le_bytes(number(page, IMAGE_LSN)))
}

/// The checksum of the pages of one database: seeded with its id, so that no page of another one passes (PAGE-6).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    seed: u32,
}

impl Seal {
    pub(crate) fn new(database_id: u64) -> Seal {
        Seal { seed: crc32c::crc32c(&database_id.to_le_bytes()) }
    }

    pub(crate) fn from_seed(seed: u32) -> Seal {
        Seal { seed }
    }

    /// The seed for which the checksum of this page is right (`raw.rs`).
    pub(crate) fn seed_of(page: &[u8; PAGE_BYTES], undo: &Unshift) -> u32 {
        let stored = u32::from_le_bytes(number(page, CHECKSUM));
        undo.apply(stored ^ crc32c::crc32c(&page[PAGE_ID..]))
    }

    fn checksum(self, page: &[u8; PAGE_BYTES]) -> u32 {
        crc32c::crc32c_append(self.seed, &page[PAGE_ID..])
    }

    /// Sets the checksum in a private copy.
    pub(crate) fn set(self, page: &mut [u8; PAGE_BYTES]) {
        let checksum = self.checksum(page);
        page[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Checks what was read as page `id` of a database whose log ends at `log_end` (PAGE-6).
    pub(crate) fn check(self, page: &[u8; PAGE_BYTES], id: PageId, log_end: Lsn) -> Result<()> {
        let stored = u32::from_le_bytes(number(page, CHECKSUM));
        let computed = self.checksum(page);
        let found = PageId(u32::from_le_bytes(number(page, PAGE_ID)));
        let detail = if stored != computed {
            if page.iter().all(|byte| *byte == 0) {
                "it was never written".to_owned()
            } else {
                format!(
                    "its checksum is {computed:08x}, {stored:08x} is stored: it is damaged or another database's"
                )
            }
        } else if found != id {
            format!("it holds page {found}")
        } else if lsn_of(page) >= log_end {
            // Not the page is damaged: a log that was durable has lost its end.
            let detail = format!("page {id} shows a change from here, but the log ends at {log_end}");
            return Err(StorageError::corrupt_log(lsn_of(page), detail));
        } else {
            return Ok(());
        };
        Err(StorageError::corrupt_page(id, detail))
    }
}
