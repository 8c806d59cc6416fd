//! Images: whole pages in the log, against pages torn by a power cut.
//!
//! The payload of a [`PAGE_IMAGE`] record:
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | page id |
//! | 4 | 2 | hole start: bytes of the page before it follow |
//! | 6 | 2 | hole length: so many bytes are left out and read as zeros |
//! | 8 | – | the page without its hole |

use foreshore_base::{Lsn, PageId, Result, StorageError, TxnId, limits::PAGE_BYTES};
use foreshore_env::words::WORD_BYTES;
use foreshore_wal::{MAX_RECORD_BYTES, RecordHeader, RecordKind, Urgency};

use super::BufferPool;
use crate::{
    layout::{HEAP_START, KIND, PAGE_HEADER_BYTES, PageKind},
    slotted::SlottedView,
    words::{PageBuffer, PageWords},
};

/// The kind of records that hold a page whole.
pub const PAGE_IMAGE: RecordKind = RecordKind(1);
/// The kind of records that make a bitmap page; the payload is its page id.
pub const BITMAP_FORMAT: RecordKind = RecordKind(2);

const IMAGE_HEADER_BYTES: usize = 8;

const _: () = assert!(IMAGE_HEADER_BYTES + PAGE_BYTES + 64 <= MAX_RECORD_BYTES);

/// Bytes that mean nothing, as start and length: the hole of a node, the zeros at the end of a bitmap. Of a page that
/// makes no sense nothing is left out. Whole words, so that what is copied behind it lies in its word as it does in the
/// page.
fn hole(words: &PageWords) -> (usize, usize) {
    match PageKind::from_byte(words.u8(KIND)) {
        Some(PageKind::Node) => {
            let (start, length) = SlottedView::new(words).hole();
            if usize::from(words.u16(HEAP_START)) == start + length {
                let (first, end) =
                    (start.next_multiple_of(WORD_BYTES), (start + length) / WORD_BYTES * WORD_BYTES);
                (first, end.saturating_sub(first))
            } else {
                (PAGE_BYTES, 0)
            }
        }
        Some(PageKind::Bitmap) => {
            let used = (PAGE_HEADER_BYTES..PAGE_BYTES)
                .step_by(WORD_BYTES)
                .rev()
                .find(|offset| words.u64(*offset) != 0);
            let start = used.map_or(PAGE_HEADER_BYTES, |offset| offset + WORD_BYTES);
            (start, PAGE_BYTES - start)
        }
        _ => (PAGE_BYTES, 0),
    }
}

impl BufferPool {
    /// Logs a page as it is. The caller holds its latch exclusively.
    pub(super) fn log_image(&self, id: PageId, words: &PageWords, urgency: Urgency) -> Result<Lsn> {
        let (start, length) = hole(words);
        // In one piece: checksum and log take that word by word.
        let mut payload = [0; IMAGE_HEADER_BYTES + PAGE_BYTES];
        let payload = &mut payload[..IMAGE_HEADER_BYTES + PAGE_BYTES - length];
        let (header, page) = payload.split_at_mut(IMAGE_HEADER_BYTES);
        header[..4].copy_from_slice(&id.0.to_le_bytes());
        header[4..6].copy_from_slice(&(start as u16).to_le_bytes());
        header[6..].copy_from_slice(&(length as u16).to_le_bytes());
        words.copy_words(0, &mut page[..start]);
        words.copy_words((start + length) / WORD_BYTES, &mut page[start..]);
        self.counters.images.add(1);
        self.counters.image_bytes.add(payload.len() as u64);
        self.log.append(urgency, TxnId::SYSTEM, Lsn::ZERO, PAGE_IMAGE, &[payload])
    }
}

/// The page id and the page of an image record.
pub(super) fn decode(header: &RecordHeader, payload: &[u8]) -> Result<(PageId, Box<PageBuffer>)> {
    let damaged = || StorageError::corrupt_log(header.lsn, "its page image makes no sense");
    let (fields, rest) = payload.split_first_chunk::<IMAGE_HEADER_BYTES>().ok_or_else(damaged)?;
    let [a, b, c, d, start_low, start_high, length_low, length_high] = *fields;
    let id = PageId(u32::from_le_bytes([a, b, c, d]));
    let start = usize::from(u16::from_le_bytes([start_low, start_high]));
    let length = usize::from(u16::from_le_bytes([length_low, length_high]));
    if !id.is_some() || start + length > PAGE_BYTES || rest.len() != PAGE_BYTES - length {
        return Err(damaged());
    }
    let mut page = PageBuffer::boxed();
    page.0[..start].copy_from_slice(&rest[..start]);
    page.0[start + length..].copy_from_slice(&rest[start..]);
    Ok((id, page))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hostile_images_are_refused_or_a_page(payload in prop::collection::vec(any::<u8>(), 0..9000)) {
            let header = RecordHeader { lsn: Lsn(4096), prev: Lsn::ZERO, txn: TxnId::SYSTEM, kind: PAGE_IMAGE };
            if let Ok((id, _)) = decode(&header, &payload) {
                prop_assert!(id.is_some());
            }
        }

        /// Also with fields that fit the length.
        #[test]
        fn the_hole_is_where_it_says(start in 0..=PAGE_BYTES, length in 0..=PAGE_BYTES, extra in 0..3_usize) {
            let mut payload = vec![9; IMAGE_HEADER_BYTES + PAGE_BYTES.saturating_sub(length) + extra];
            payload[4..6].copy_from_slice(&(start as u16).to_le_bytes());
            payload[6..8].copy_from_slice(&(length as u16).to_le_bytes());
            let header = RecordHeader { lsn: Lsn(4096), prev: Lsn::ZERO, txn: TxnId::SYSTEM, kind: PAGE_IMAGE };
            let decoded = decode(&header, &payload);
            prop_assert_eq!(decoded.is_ok(), start + length <= PAGE_BYTES && extra == 0);
            if let Ok((_, page)) = decoded {
                for (index, byte) in page.0.iter().enumerate() {
                    prop_assert_eq!(*byte == 0, (start..start + length).contains(&index));
                }
            }
        }
    }
}
