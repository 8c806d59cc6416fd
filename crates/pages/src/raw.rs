//! The pages of a data file that may be damaged, one by one, without a pool, a log, or a control file: for salvage.
//!
//! The checksum of a page is seeded with a number that follows from the database's id. Where nobody knows the id any
//! more, the pages themselves tell the seed: a CRC is linear, so from a page and its checksum the seed can be computed
//! for which it is right, and the seed on which most pages agree is the database's.

use std::{collections::BTreeMap, io, path::PathBuf};

use foreshore_base::{Lsn, PageId, Result, StorageError, limits::MAX_PAGES, limits::PAGE_BYTES};
use foreshore_env::{
    disk::{Disk, DiskFile, OpenMode},
    sync::{Arc, Mutex},
};

use crate::{
    layout::{KIND, PageKind, Seal},
    space::{BITMAP_SPAN, Header, bitmap, bitmap_page, hole_end},
    words::{PageBuffer, PageWords},
};

/// Pages that are asked for the seed, at most.
const ASKED_PAGES: u64 = 4096;
/// How many of them must agree: two pages that are both damaged do not.
const LEAST_VOTES: usize = 2;

/// A data file, read page by page.
#[derive(Debug)]
pub struct RawPages {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    pages: u64,
    seal: Seal,
    /// The bitmap page that was asked last, if it could be read. Guarded by its mutex.
    bitmap: Mutex<Option<(PageId, Option<Box<PageWords>>)>>,
}

impl RawPages {
    /// Opens a data file to read it. Without an id the seed of its checksums is found by what most pages say.
    ///
    /// # Errors
    /// When it cannot be opened, or no two pages agree about the seed.
    pub fn open(disk: &dyn Disk, path: PathBuf, database_id: Option<u64>) -> Result<RawPages> {
        let file = disk.open(&path, OpenMode::Read).map_err(StorageError::io("open", &path))?;
        let bytes = file.len().map_err(StorageError::io("measure", &path))?;
        // A last page that is cut off has no right checksum.
        let pages = (bytes / PAGE_BYTES as u64).min(MAX_PAGES);
        let seal = Seal::new(database_id.unwrap_or(0));
        let mut raw = RawPages { file, path, pages, seal, bitmap: Mutex::new(None) };
        if database_id.is_none() {
            raw.seal = raw.elect()?;
        }
        Ok(raw)
    }

    /// Whole pages in the file, the header page and bitmap pages among them.
    pub fn page_count(&self) -> u64 {
        self.pages
    }

    /// The redo horizon of the newest sweep, as the header page says; `None` if that cannot be read.
    pub fn horizon(&self) -> Option<Lsn> {
        Header::read(&*self.file, &self.path, self.seal).ok().map(|header| header.horizon)
    }

    /// Copies a page. False for one that was never written.
    ///
    /// # Errors
    /// [`StorageError::Corrupted`] when its checksum or its id is not its own, or it cannot be read.
    pub fn read(&self, id: PageId, into: &PageWords) -> Result<bool> {
        let mut page = PageBuffer::zeroed();
        self.load(id, &mut page)?;
        if page.0.iter().all(|&byte| byte == 0) {
            return Ok(false);
        }
        // Of the log's end nothing is known here.
        self.seal.check(&page.0, id, Lsn::MAX)?;
        into.load_from(&page.0);
        Ok(true)
    }

    /// The first page from `from` on, which may be the end, of which there is something, or a mark that it is in use.
    /// Holes of the file are passed over without being read.
    pub fn next_page(&self, from: u64) -> u64 {
        let end = hole_end(&*self.file, from, self.pages);
        (from..end).find(|number| self.is_allocated(PageId(*number as u32)) == Some(true)).unwrap_or(end)
    }

    /// What its bitmap page says of a page; `None` if that cannot be read.
    pub fn is_allocated(&self, id: PageId) -> Option<bool> {
        let mut bitmap = self.bitmap.lock();
        let page = bitmap_page(id);
        if bitmap.as_ref().is_none_or(|(kept, _)| *kept != page) {
            let words = Box::<PageWords>::default();
            let sound =
                matches!(self.read(page, &words), Ok(true)) && words.u8(KIND) == PageKind::Bitmap as u8;
            *bitmap = Some((page, sound.then_some(words)));
        }
        let words = bitmap.as_ref()?.1.as_ref()?;
        Some(bitmap::get(words, u64::from(id.0) % u64::from(BITMAP_SPAN)))
    }

    fn load(&self, id: PageId, page: &mut PageBuffer) -> Result<()> {
        let read = self.file.read_exact_at(&mut page.0, u64::from(id.0) * PAGE_BYTES as u64);
        read.map_err(|error: io::Error| {
            StorageError::corrupt_page(id, format!("it cannot be read from {}: {error}", self.path.display()))
        })
    }

    /// The seal that most pages have.
    fn elect(&self) -> Result<Seal> {
        let undo = Unshift::new(PAGE_BYTES - size_of::<u32>());
        let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
        let mut page = PageBuffer::zeroed();
        let stride = self.pages.div_ceil(ASKED_PAGES).max(1);
        for id in (0..self.pages).step_by(stride as usize) {
            if self.load(PageId(id as u32), &mut page).is_ok() && page.0.iter().any(|&byte| byte != 0) {
                *votes.entry(Seal::seed_of(&page.0, &undo)).or_default() += 1;
            }
        }
        match votes.into_iter().max_by_key(|&(_, votes)| votes) {
            Some((seed, votes)) if votes >= LEAST_VOTES => Ok(Seal::from_seed(seed)),
            _ => Err(StorageError::corrupt_file(&self.path, "no two pages are of the same database")),
        }
    }
}

/// The inverse of what `length` zero bytes do to a CRC, as a matrix over the field of two elements.
#[derive(Debug)]
pub(crate) struct Unshift {
    /// What each bit of the result came from.
    columns: [u32; 32],
}

impl Unshift {
    pub(crate) fn new(length: usize) -> Unshift {
        // What each bit becomes; beside it, which bits it is a sum of. Gauss and Jordan make the left side the
        // identity.
        let mut rows: [(u32, u32); 32] =
            std::array::from_fn(|bit| (crc32c::crc32c_combine(1 << bit, 0, length), 1 << bit));
        for bit in 0..32 {
            let pivot = (bit..32).find(|&row| rows[row].0 >> bit & 1 == 1);
            // To go through a byte of zeros can be undone, so the matrix has full rank.
            rows.swap(bit, pivot.unwrap_or(bit));
            let (left, right) = rows[bit];
            for (row, cells) in rows.iter_mut().enumerate() {
                if row != bit && cells.0 >> bit & 1 == 1 {
                    *cells = (cells.0 ^ left, cells.1 ^ right);
                }
            }
        }
        Unshift { columns: rows.map(|(_, right)| right) }
    }

    /// The number that became this one.
    pub(crate) fn apply(&self, shifted: u32) -> u32 {
        (0..32).filter(|bit| shifted >> bit & 1 == 1).fold(0, |sum, bit| sum ^ self.columns[bit])
    }
}

#[cfg(test)]
mod tests {
    use foreshore_env::random::Xorshift;

    use super::*;

    #[test]
    fn the_seed_follows_from_a_page() {
        let undo = Unshift::new(PAGE_BYTES - size_of::<u32>());
        let mut random = Xorshift::new(7);
        for _ in 0..50 {
            let database_id = random.next_u64();
            let mut page = PageBuffer::zeroed();
            page.0.fill_with(|| random.next_u64() as u8);
            Seal::new(database_id).set(&mut page.0);
            let seed = Seal::seed_of(&page.0, &undo);
            assert_eq!(seed, crc32c::crc32c(&database_id.to_le_bytes()));
            page.0[500] ^= 4;
            assert_ne!(Seal::seed_of(&page.0, &undo), seed);
        }
    }
}
