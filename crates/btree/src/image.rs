//! A node's content as bytes of a log record.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | level |
//! | 1 | 1: there is a low fence; 2: there is a high key |
//! | 2, 2 | bytes of the low fence, of the high key |
//! | 4, 4 | foster child, leftmost child |
//! | 2 | records |
//! | … | low fence, high key |
//!
//! then for each record: bytes of the key after the prefix that the two fences share (2), bytes of the value (2), flags
//! (1: ghost, 2: overflow, 4: slack), bytes of slack (2, if that is said), key after the prefix, value.
//!
//! A structure change encodes the node first and builds the page from the encoding, as redo will: both are the same
//! code.

use foreshore_base::{PageId, SlotIndex, StorageError, TableId};
use foreshore_pages::{NodeHeader, PageBuilder, PageFull, RecordFlags, SlottedMut, SlottedView};

use crate::{
    node::{self, CHILD_BYTES},
    record::Reader,
};

const HAS_LOW: u8 = 1;
const HAS_HIGH: u8 = 2;
const GHOST: u8 = 1;
const OVERFLOW: u8 = 2;
const SLACK: u8 = 4;
/// Where the number of records is.
const COUNT_AT: usize = 14;

/// What a node's header says, owned.
#[derive(Clone, Debug)]
pub(crate) struct Outline {
    pub(crate) table: TableId,
    pub(crate) level: u8,
    pub(crate) low: Option<Vec<u8>>,
    pub(crate) high: Option<Vec<u8>>,
    pub(crate) foster: PageId,
    pub(crate) leftmost: PageId,
}

impl Outline {
    pub(crate) fn of(view: SlottedView<'_>) -> Outline {
        Outline {
            table: view.table(),
            level: view.level(),
            low: node::low_fence(view),
            high: node::high_key(view),
            foster: view.foster_child(),
            leftmost: view.leftmost_child(),
        }
    }

    pub(crate) fn header(&self) -> NodeHeader<'_> {
        NodeHeader {
            table: self.table,
            level: self.level,
            flags: 0,
            low: self.low.as_deref(),
            high: self.high.as_deref(),
            foster: self.foster,
            leftmost: self.leftmost,
        }
    }
}

/// Encodes a node with the records in `slots` of `view`.
pub(crate) fn encode(outline: &Outline, view: SlottedView<'_>, slots: std::ops::Range<u16>) -> Vec<u8> {
    let header = outline.header();
    let prefix = header.prefix_len();
    let length = |key: Option<&[u8]>| (key.map_or(0, <[u8]>::len) as u16).to_le_bytes();
    let flag = |key: Option<&[u8]>, flag| if key.is_some() { flag } else { 0 };
    let mut bytes = vec![header.level, flag(header.low, HAS_LOW) | flag(header.high, HAS_HIGH)];
    bytes.extend_from_slice(&length(header.low));
    bytes.extend_from_slice(&length(header.high));
    bytes.extend_from_slice(&header.foster.0.to_le_bytes());
    bytes.extend_from_slice(&header.leftmost.0.to_le_bytes());
    debug_assert_eq!(bytes.len(), COUNT_AT);
    bytes.extend_from_slice(&(slots.len() as u16).to_le_bytes());
    [header.low, header.high].into_iter().flatten().for_each(|key| bytes.extend_from_slice(key));
    let mut key = Vec::new();
    for slot in slots.map(SlotIndex) {
        view.key_into(slot, &mut key);
        let suffix = key.get(prefix..).unwrap_or(&[]);
        let (flags, slack) = (view.slot(slot).flags(), view.slack_of(view.slot(slot)));
        bytes.extend_from_slice(&(suffix.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(view.value_len(slot) as u16).to_le_bytes());
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        bytes.push(bit(flags.ghost, GHOST) | bit(flags.overflow, OVERFLOW) | bit(slack > 0, SLACK));
        if slack > 0 {
            bytes.extend_from_slice(&(slack as u16).to_le_bytes());
        }
        bytes.extend_from_slice(suffix);
        view.value_into(slot, &mut bytes);
    }
    bytes
}

/// A whole node: what its header says, its encoding, and the page that is built from that.
pub(crate) fn whole(view: SlottedView<'_>) -> Result<(Outline, Vec<u8>, PageBuilder), StorageError> {
    node::inspect(view)?;
    let (page, outline) = (view.page_id(), Outline::of(view));
    let node = encode(&outline, view, 0..view.slot_count());
    let image = Image::parse(outline.table, &node);
    let image = image.ok_or_else(|| node::damaged(page, "its content cannot be encoded"))?;
    let content = image.build().map_err(misfit(page))?;
    Ok((outline, node, content))
}

/// An encoded node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image<'p> {
    pub(crate) header: NodeHeader<'p>,
    count: u16,
    records: Reader<'p>,
}

impl<'p> Image<'p> {
    /// `None` when the bytes are no node.
    pub(crate) fn parse(table: TableId, bytes: &'p [u8]) -> Option<Image<'p>> {
        let mut reader = Reader(bytes);
        let (level, present) = (reader.u8()?, reader.u8()?);
        let (low_bytes, high_bytes) = (reader.u16()?, reader.u16()?);
        let (foster, leftmost, count) = (reader.page()?, reader.page()?, reader.u16()?);
        let (low, high) = (reader.bytes(usize::from(low_bytes))?, reader.bytes(usize::from(high_bytes))?);
        let header = NodeHeader {
            table,
            level,
            flags: 0,
            low: (present & HAS_LOW != 0).then_some(low),
            high: (present & HAS_HIGH != 0).then_some(high),
            foster,
            leftmost,
        };
        Some(Image { header, count, records: reader })
    }

    /// The node as a page.
    pub(crate) fn build(&self) -> Result<PageBuilder, PageFull> {
        let mut builder = PageBuilder::new(&self.header)?;
        self.push_all(&mut builder)?;
        Ok(builder)
    }

    /// Appends the node's records to a page.
    pub(crate) fn push_all(&self, builder: &mut PageBuilder) -> Result<(), PageFull> {
        let prefix = self.header.low.map_or(&[][..], |low| &low[..self.header.prefix_len()]);
        let as_it_is = builder.prefix_len() == prefix.len();
        let mut key = prefix.to_vec();
        let mut reader = self.records;
        for _ in 0..self.count {
            let (suffix, value, slack, flags) = record(&mut reader).ok_or(PageFull)?;
            if as_it_is {
                builder.push_suffix(suffix, value, slack, flags)?;
                continue;
            }
            key.truncate(prefix.len());
            key.extend_from_slice(suffix);
            builder.push_with_slack(&key, value, slack, flags)?;
        }
        Ok(())
    }
}

/// A key after the prefix, its value, how much slack is behind that, and what the record is.
fn record<'p>(reader: &mut Reader<'p>) -> Option<(&'p [u8], &'p [u8], usize, RecordFlags)> {
    let (suffix, value, flags) = (reader.u16()?, reader.u16()?, reader.u8()?);
    let slack = if flags & SLACK != 0 { reader.u16()? } else { 0 };
    let flags = RecordFlags { ghost: flags & GHOST != 0, overflow: flags & OVERFLOW != 0 };
    Some((reader.bytes(usize::from(suffix))?, reader.bytes(usize::from(value))?, usize::from(slack), flags))
}

/// The left half of a split: the first `kept` records, up to the new node's low fence.
pub(crate) fn left_half(
    view: SlottedView<'_>,
    kept: u16,
    separator: Option<&[u8]>,
    foster: PageId,
) -> Result<PageBuilder, PageFull> {
    let outline = Outline { foster, high: separator.map(<[u8]>::to_vec), ..Outline::of(view) };
    let mut builder = PageBuilder::new(&outline.header())?;
    builder.push_all_from(view, 0..kept.min(view.slot_count()))?;
    Ok(builder)
}

/// What makes the left half of a split of a page that keeps all of its records: they need not move if the separator
/// finds room beside them.
pub(crate) fn stays_in_place(view: SlottedView<'_>, kept: u16, separator: &[u8]) -> bool {
    kept == view.slot_count() && view.room().1 >= separator.len()
}

/// Makes a page the left half of its split, as [`left_half`] does.
pub(crate) fn cut_left(
    page: &mut SlottedMut<'_>,
    kept: u16,
    separator: Option<&[u8]>,
    foster: PageId,
) -> Result<(), PageFull> {
    match separator {
        Some(separator) if stays_in_place(page.view(), kept, separator) => {
            page.narrow(separator)?;
            page.set_foster(foster);
        }
        _ => left_half(page.view(), kept, separator, foster)?.store(page.view().words()),
    }
    Ok(())
}

/// A node and its right neighbour as one.
pub(crate) fn joined(left: SlottedView<'_>, right: &Image<'_>) -> Result<PageBuilder, PageFull> {
    let outline = Outline {
        high: right.header.high.map(<[u8]>::to_vec),
        foster: right.header.foster,
        ..Outline::of(left)
    };
    let mut builder = PageBuilder::new(&outline.header())?;
    builder.push_all_from(left, 0..left.slot_count())?;
    if outline.level > 0 {
        let separator = right.header.low.unwrap_or(&[]);
        builder.push(separator, &child_value(right.header.leftmost), RecordFlags::default())?;
    }
    right.push_all(&mut builder)?;
    Ok(builder)
}

/// The value that names a child.
pub(crate) fn child_value(child: PageId) -> [u8; CHILD_BYTES] {
    child.0.to_le_bytes()
}

/// For a page that a change does not fit although the fit was checked, or although it was made once already.
#[cold]
pub(crate) fn misfit(page: PageId) -> impl FnOnce(PageFull) -> StorageError {
    move |full| node::damaged(page, format!("a logged change does not apply: {full}"))
}
