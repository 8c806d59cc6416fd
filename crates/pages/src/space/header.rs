//! The header page: page 0 of the data file. Body, from byte 64 on:
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 64 | 8 | magic, `FORESHOR` |
//! | 72 | 4 | format version |
//! | 76 | 4 | bytes in a page |
//! | 80 | 4 | pages that one bitmap page covers, the *span* |
//! | 88 | 8 | the redo horizon of the newest sweep |
//! | 96 | 8 | the count: so many pages the file has at least; 0, which older versions write: nobody knows |
//!
//! Only horizon and count change, and with them the checksum: all lie in the first sector, so the page is never torn. A
//! checkpoint whose horizon is newer proves that the file is an older copy (PAGE-12). A file with fewer pages than the
//! count was cut, and a bitmap page of zeros among them was lost (PAGE-19).

use std::{io, path::Path};

use foreshore_base::{Lsn, PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::disk::DiskFile;

use super::{BITMAP_SPAN, FORMAT_VERSION, SPAN_UNIT};
use crate::{
    layout::{KIND, PageKind, Seal},
    words::{PageBuffer, PageWords},
};

const MAGIC: &[u8; 8] = b"FORESHOR";
const MAGIC_AT: usize = 64;
const FORMAT_AT: usize = 72;
const PAGE_BYTES_AT: usize = 76;
const SPAN_AT: usize = 80;
const HORIZON_AT: usize = 88;
const COUNT_AT: usize = 96;

const SECTOR_BYTES: usize = 512;
const _: () = assert!(COUNT_AT + 8 <= SECTOR_BYTES);

/// What the header page of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Pages that a bitmap page covers.
    pub(crate) span: u32,
    /// The redo horizon of the newest sweep.
    pub(crate) horizon: Lsn,
    /// Pages that the file has at least, with the bitmap pages of their spans (PAGE-19); 0: nobody knows.
    pub(crate) count: u64,
}

impl Header {
    /// What salvage takes a header page for that cannot be read.
    pub(super) const LOST: Header = Header { span: BITMAP_SPAN, horizon: Lsn::MAX, count: 0 };

    /// Writes the header page; the caller syncs the file.
    pub(crate) fn write(&self, file: &dyn DiskFile, seal: Seal) -> io::Result<()> {
        let header = PageWords::default();
        header.set_u8(KIND, PageKind::Header as u8);
        header.write(MAGIC_AT, MAGIC);
        header.set_u32(FORMAT_AT, FORMAT_VERSION);
        header.set_u32(PAGE_BYTES_AT, PAGE_BYTES as u32);
        header.set_u32(SPAN_AT, self.span);
        header.set_u64(HORIZON_AT, self.horizon.0);
        header.set_u64(COUNT_AT, self.count);
        let mut page = header.snapshot();
        seal.set(&mut page.0);
        file.write_all_at(&page.0, 0)
    }

    /// Reads the header page of an existing file. Another format is believed only under a right checksum: whoever has
    /// the seal has it from a control file or a log of a format that this version reads, or from what most pages say.
    pub(crate) fn read(file: &dyn DiskFile, path: &Path, seal: Seal) -> Result<Header> {
        let mut page = PageBuffer::zeroed();
        match file.read_exact_at(&mut page.0, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(StorageError::corrupt_file(path, "it ends before its first page does"));
            }
            Err(error) => return Err(StorageError::io("read", path)(error)),
        }
        let header = PageWords::default();
        header.load_from(&page.0);
        if page.0[MAGIC_AT..MAGIC_AT + MAGIC.len()] != *MAGIC {
            return Err(StorageError::NotADatabase {
                path: path.to_owned(),
                detail: "its first page has another signature".to_owned(),
            });
        }
        // Before the format: a number in which a bit has changed is damage, and no other version reads it.
        seal.check(&page.0, PageId(0), Lsn::MAX)?;
        if header.u32(FORMAT_AT) != FORMAT_VERSION {
            return Err(StorageError::UpgradeRequired {
                path: path.to_owned(),
                found: header.u32(FORMAT_AT),
                supported: FORMAT_VERSION,
            });
        }
        let span = header.u32(SPAN_AT);
        let span_fits = span > 0 && span <= BITMAP_SPAN && span.is_multiple_of(SPAN_UNIT);
        if header.u32(PAGE_BYTES_AT) != PAGE_BYTES as u32 || !span_fits {
            return Err(StorageError::corrupt_page(PageId(0), "its page size or span makes no sense"));
        }
        Ok(Header { span, horizon: Lsn(header.u64(HORIZON_AT)), count: header.u64(COUNT_AT) })
    }
}
