//! Checksums made right again, so that damage gets past them. Written from the formats as they are described
//! (`layout.rs` of `pages`, `frame.rs` and `segment.rs` of `wal`, `control.rs` of `txn`), not from their code.

use std::path::Path;

use foreshore_testkit::FaultyDisk;

use crate::sample::{PAGE_BYTES, Sample};

/// Bytes of a slot of the control file, and how many of them its checksum covers.
const SLOT_BYTES: usize = 4096;
const SLOT_COVERED_BYTES: usize = 512;
/// Bytes of a segment's header, and where the first record may start.
const SEGMENT_HEADER_BYTES: usize = 64;
const FIRST_RECORD: usize = 4096;
/// Bytes of a record before its payload, and of the longest record.
pub(crate) const RECORD_HEADER_BYTES: usize = 32;
/// Where in its header a record says of which kind it is.
pub(crate) const KIND: usize = 30;
const MAX_RECORD_BYTES: usize = 64 << 10;

/// The seed of the checksums of a database.
pub(crate) fn seed(database_id: u64) -> u32 {
    crc32c::crc32c(&database_id.to_le_bytes())
}

/// The database's id, in the first slot of its control file.
///
/// # Panics
/// When there is no control file.
pub fn database_id(disk: &FaultyDisk) -> u64 {
    let control = disk.read_file(&Sample::file("control")).expect("a control file");
    u64::from_le_bytes(control[24..32].try_into().expect("eight bytes"))
}

/// Makes all checksums of a file right: those of its pages, its records, its slots, whatever it is.
pub fn seal(file: &Path, bytes: &mut [u8], database_id: u64) {
    if file.ends_with("data") {
        bytes.chunks_exact_mut(PAGE_BYTES).for_each(|page| seal_page(page, database_id));
    } else if file.ends_with("control") {
        bytes.chunks_exact_mut(SLOT_BYTES).for_each(seal_slot);
    } else if file.extension().is_some_and(|extension| extension == "log") {
        seal_segment(bytes, database_id);
    }
}

/// A page that was never written stays so.
pub(crate) fn seal_page(page: &mut [u8], database_id: u64) {
    if page.iter().any(|&byte| byte != 0) {
        let checksum = crc32c::crc32c_append(seed(database_id), &page[4..]);
        page[..4].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn seal_slot(slot: &mut [u8]) {
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&slot[..12]), &slot[16..SLOT_COVERED_BYTES]);
    slot[12..16].copy_from_slice(&checksum.to_le_bytes());
}

/// The header and all records of a segment, as far as their lengths lead.
fn seal_segment(bytes: &mut [u8], database_id: u64) {
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..SEGMENT_HEADER_BYTES]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    for (start, length) in records(bytes) {
        seal_record(&mut bytes[start..start + length], database_id);
    }
}

pub(crate) fn seal_record(record: &mut [u8], database_id: u64) {
    let begun = crc32c::crc32c_append(seed(database_id), &record[..4]);
    let checksum = crc32c::crc32c_append(begun, &record[8..]);
    record[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Where the records of a segment start, and how long they are, as far as their lengths lead.
pub fn records(segment: &[u8]) -> Vec<(usize, usize)> {
    let mut records = Vec::new();
    let mut start = FIRST_RECORD;
    while let Some(head) = segment.get(start..start + 4) {
        let length = u32::from_le_bytes(head.try_into().expect("four bytes")) as usize;
        if !(RECORD_HEADER_BYTES..=MAX_RECORD_BYTES).contains(&length) || start + length > segment.len() {
            break;
        }
        records.push((start, length));
        start += length.next_multiple_of(8);
    }
    records
}
