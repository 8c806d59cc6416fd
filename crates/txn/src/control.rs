//! The control file: what must be known before anything else of a database can be read.
//!
//! Two slots of 4 KiB with the same content. A change writes and syncs the first, then the second (TXN-8), so a torn or
//! rotten slot leaves the other; a slot's content lies in one sector. All numbers are little-endian.
//!
//! | offset | bytes | slot |
//! | --- | --- | --- |
//! | 0 | 8 | magic |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC32C of bytes 0 to 11 and 16 to 511 |
//! | 16 | 8 | sequence number: grows with every change |
//! | 24 | 8 | database id: log id and seed of lock names |
//! | 32 | 4 | bytes of a page |
//! | 36 | 4 | bit 0: closed in order |
//! | 40 | 8 | LSN of the last checkpoint's record |
//! | 48 | 8 | LSN from which redo starts |
//! | 56 | 8 | LSN from which the log is needed |
//! | 64 | 4 | root page of the catalogue |
//! | 68 | 4 | root page of the overflow table |
//! | 72 | 440 | zero |
//!
//! Magic, format version and their places are the same in every format there will be.
//!
//! TXN-33: this version opens the formats from [`OLDEST_FORMAT`] to [`FORMAT_VERSION`], and no other. Whoever changes
//! what is written so that an older version would misread it raises [`FORMAT_VERSION`], keeps what reads the older
//! ones, and keeps a sample of each (the facade's `tests/facade/formats`). A database takes on the format of the
//! version that opens it before any page of it is changed; the older version refuses it then. Its pages and log may be
//! of older formats for as long as it lives.
//!
//! | format | what was new |
//! | --- | --- |
//! | 1 | |
//! | 2 | nodes say how many bytes their heads skip (`foreshore-pages`, `slotted.rs`); zeros in format 1 |
//! | 3 | what takes an append back buries many records at once (`foreshore-btree`, `record.rs`); one in format 2 |
//! | 4 | records keep what shorter values leave, as slack (`foreshore-pages`, `slotted.rs`); none in format 3 |

use std::{
    io,
    path::{Path, PathBuf},
};

use foreshore_base::{Lsn, PageId, Result, StorageError, limits::PAGE_BYTES};
use foreshore_env::{
    disk::{Disk, DiskFile, OpenMode, is_out_of_files},
    sabotage::{Fault, planted},
    sync::Arc,
};

/// The version of all files of a database, log and pages included, as they are written.
pub const FORMAT_VERSION: u32 = 4;

/// The oldest version that is read.
pub(crate) const OLDEST_FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"FORESHOR";
const SLOT_BYTES: usize = 4096;
/// All that a slot says lies in its first sector.
const SECTOR_BYTES: usize = 512;
const SLOTS: usize = 2;
const CLEAN_BIT: u32 = 1;

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    /// The version that wrote it.
    pub(crate) format: u32,
    pub(crate) sequence: u64,
    pub(crate) database_id: u64,
    /// Closed in order: the checkpoint was the last thing that happened.
    pub(crate) clean: bool,
    /// The last checkpoint's record.
    pub(crate) checkpoint: Lsn,
    /// Where redo starts.
    pub(crate) redo: Lsn,
    /// From where the log is needed: by redo, by analysis, by the oldest open transaction.
    pub(crate) log_from: Lsn,
    pub(crate) catalog_root: PageId,
    pub(crate) overflow_root: PageId,
}

impl Control {
    /// A database in the making: it has an id and nothing else.
    pub(crate) fn new(database_id: u64) -> Control {
        Control {
            format: FORMAT_VERSION,
            sequence: 1,
            database_id,
            clean: false,
            checkpoint: Lsn::ZERO,
            redo: Lsn::ZERO,
            log_from: Lsn::ZERO,
            catalog_root: PageId::NONE,
            overflow_root: PageId::NONE,
        }
    }

    fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        let mut put = |offset: usize, bytes: &[u8]| slot[offset..offset + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &self.format.to_le_bytes());
        put(16, &self.sequence.to_le_bytes());
        put(24, &self.database_id.to_le_bytes());
        put(32, &(PAGE_BYTES as u32).to_le_bytes());
        put(36, &(if self.clean { CLEAN_BIT } else { 0 }).to_le_bytes());
        put(40, &self.checkpoint.0.to_le_bytes());
        put(48, &self.redo.0.to_le_bytes());
        put(56, &self.log_from.0.to_le_bytes());
        put(64, &self.catalog_root.0.to_le_bytes());
        put(68, &self.overflow_root.0.to_le_bytes());
        let checksum = checksum(&slot);
        slot[12..16].copy_from_slice(&checksum.to_le_bytes());
        slot
    }

    /// Reads a slot. Takes any bytes.
    fn decode(slot: &[u8]) -> Slot {
        let u32_at = |offset| u32::from_le_bytes(bytes_at(slot, offset));
        let u64_at = |offset| u64::from_le_bytes(bytes_at(slot, offset));
        if bytes_at::<8>(slot, 0) != MAGIC {
            return Slot::Foreign;
        }
        let sound = u32_at(12) == checksum(slot);
        let format = u32_at(8);
        if !(OLDEST_FORMAT..=FORMAT_VERSION).contains(&format) {
            return Slot::OtherFormat { format, sound, sequence: u64_at(16) };
        }
        if !sound || u32_at(32) != PAGE_BYTES as u32 {
            return Slot::Damaged;
        }
        Slot::Valid(Control {
            format,
            sequence: u64_at(16),
            database_id: u64_at(24),
            clean: u32_at(36) & CLEAN_BIT != 0,
            checkpoint: Lsn(u64_at(40)),
            redo: Lsn(u64_at(48)),
            log_from: Lsn(u64_at(56)),
            catalog_root: PageId(u32_at(64)),
            overflow_root: PageId(u32_at(68)),
        })
    }
}

/// The bytes at an offset; zeros where there are none.
fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn checksum(slot: &[u8]) -> u32 {
    let piece = |from: usize, to: usize| slot.get(from..to).unwrap_or_default();
    crc32c::crc32c_append(crc32c::crc32c(piece(0, 12)), piece(16, SECTOR_BYTES))
}

/// What the bytes of a slot turn out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Valid(Control),
    /// Without our magic.
    Foreign,
    /// With our magic and another format; `sound` if today's checksum fits.
    OtherFormat {
        format: u32,
        sound: bool,
        sequence: u64,
    },
    Damaged,
}

/// The open control file.
#[derive(Debug)]
pub(crate) struct ControlFile {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    content: Control,
}

impl ControlFile {
    /// Makes (or makes anew) a control file with this content, durable but for its name.
    pub(crate) fn create(disk: &dyn Disk, path: &Path, content: Control) -> Result<ControlFile> {
        let there = disk.exists(path).map_err(StorageError::io("look for", path))?;
        let mode = if there { OpenMode::ReadWrite } else { OpenMode::CreateNew };
        let file = disk.open(path, mode).map_err(StorageError::io("create", path))?;
        let mut control = ControlFile { file, path: path.to_owned(), content };
        control.write(content)?;
        Ok(control)
    }

    /// Opens a control file; the newest sound slot counts. One that cannot be read is as good as damaged if the other
    /// is sound.
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<ControlFile> {
        let file = disk.open(path, OpenMode::ReadWrite).map_err(StorageError::io("open", path))?;
        let read = [0, 1].map(|index| read_slot::<SECTOR_BYTES>(&*file, index));
        let slots =
            [0, 1].map(|index| read[index].as_ref().map_or(Slot::Damaged, |slot| Control::decode(slot)));
        let chosen = match (choose(slots, path), read) {
            // What cannot be read may be sound.
            (Err(StorageError::Corrupted { .. }), [Err(error), _] | [_, Err(error)]) => {
                return Err(StorageError::io("read", path)(error));
            }
            (chosen, _) => chosen?,
        };
        // An upgrade may have ended between the two slots.
        let formats = slots
            .iter()
            .filter_map(|slot| if let Slot::Valid(control) = slot { Some(control.format) } else { None });
        let content = Control { format: formats.min().unwrap_or(chosen.format), ..chosen };
        Ok(ControlFile { file, path: path.to_owned(), content })
    }

    /// What the newest slot says that can be read and is sound, whatever became of the other: for salvage.
    ///
    /// # Errors
    /// This process gets no more files.
    pub(crate) fn read_slots(disk: &dyn Disk, path: &Path) -> Result<Option<Control>> {
        let file = match disk.open(path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if is_out_of_files(&error) => return Err(StorageError::io("open", path)(error)),
            Err(_) => return Ok(None),
        };
        let slots = (0..SLOTS).filter_map(|index| {
            let slot: [u8; SECTOR_BYTES] = read_slot(&*file, index).ok()?;
            if let Slot::Valid(control) = Control::decode(&slot) { Some(control) } else { None }
        });
        Ok(slots.max_by_key(|control| control.sequence))
    }

    /// Whether a file begins like a control file, or like one whose first write was lost.
    pub(crate) fn may_be_ours(disk: &dyn Disk, path: &Path) -> Result<bool> {
        let file = disk.open(path, OpenMode::Read).map_err(StorageError::io("open", path))?;
        // Nobody knows what one is that cannot be read.
        let slots = [0, 1].map(|index| read_slot::<SLOT_BYTES>(&*file, index).ok());
        let may_begin_ours =
            |slot: &Option<_>| slot.is_none_or(|slot: [u8; SLOT_BYTES]| bytes_at::<8>(&slot, 0) == MAGIC);
        Ok(slots.iter().any(may_begin_ours) || slots.iter().flatten().flatten().all(|&byte| byte == 0))
    }

    pub(crate) fn content(&self) -> Control {
        self.content
    }

    /// Sets what a database in the making learns late; written with the next change.
    pub(crate) fn set_roots(&mut self, catalog_root: PageId, overflow_root: PageId) {
        self.content = Control { catalog_root, overflow_root, ..self.content };
    }

    /// Takes on this version's format, durably, if the file is of an older one (TXN-33).
    pub(crate) fn upgrade(&mut self) -> Result<()> {
        if self.content.format < FORMAT_VERSION { self.write(self.content) } else { Ok(()) }
    }

    /// Gives the file its final name, not yet durably.
    pub(crate) fn rename(&mut self, disk: &dyn Disk, to: &Path) -> Result<()> {
        disk.rename(&self.path, to).map_err(StorageError::io("rename", &self.path))?;
        self.path = to.to_owned();
        Ok(())
    }

    /// Makes durable what was read: whoever wrote it may have died before its sync, or that has failed, after which
    /// another sync does nothing. In its own format.
    pub(crate) fn write_again(&mut self) -> Result<()> {
        self.replace(self.content)
    }

    /// Replaces the content; durable when this returns. After an error one of the two contents is there.
    pub(crate) fn write(&mut self, content: Control) -> Result<()> {
        self.replace(Control { format: FORMAT_VERSION, ..content })
    }

    fn replace(&mut self, mut content: Control) -> Result<()> {
        content.sequence = self.content.sequence.wrapping_add(1);
        let slot = content.encode();
        for index in 0..SLOTS {
            let offset = (index * SLOT_BYTES) as u64;
            self.file.write_all_at(&slot, offset).map_err(StorageError::io("write", &self.path))?;
            if !planted(Fault::ControlUnsynced) {
                self.file.sync().map_err(StorageError::io("sync", &self.path))?;
            }
        }
        self.content = content;
        Ok(())
    }
}

/// The first bytes of a slot, zeros where the file has ended.
fn read_slot<const N: usize>(file: &dyn DiskFile, index: usize) -> io::Result<[u8; N]> {
    let (mut slot, mut filled) = ([0; N], 0);
    while filled < N {
        match file.read_at(&mut slot[filled..], (index * SLOT_BYTES + filled) as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(slot)
}

fn choose(slots: [Slot; SLOTS], path: &Path) -> Result<Control> {
    let newest = slots
        .iter()
        .filter_map(|slot| if let Slot::Valid(control) = slot { Some(*control) } else { None })
        .max_by_key(|control| control.sequence);
    for slot in slots {
        if let Slot::OtherFormat { format, sound, sequence } = slot {
            // Another format may have another checksum: its number is believed when nothing speaks against it.
            let newer = newest.is_none_or(|control| sound && sequence > control.sequence);
            let agreed = slots.iter().all(|other| match other {
                Slot::OtherFormat { format: number, .. } => *number == format,
                Slot::Valid(_) => true,
                Slot::Foreign | Slot::Damaged => sound,
            });
            if newer && agreed {
                let path = path.to_owned();
                return Err(StorageError::UpgradeRequired { path, found: format, supported: FORMAT_VERSION });
            }
        }
    }
    match newest {
        Some(control) => Ok(control),
        None if slots == [Slot::Foreign; SLOTS] => Err(StorageError::NotADatabase {
            path: path.to_owned(),
            detail: "the control file does not begin with the magic number".to_owned(),
        }),
        None => {
            Err(StorageError::corrupt_file(path, "neither of the two slots of the control file is sound"))
        }
    }
}

#[cfg(test)]
mod tests;
