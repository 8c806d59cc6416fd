//! What can happen to a file.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use foreshore_env::disk::Disk;
use foreshore_testkit::FaultyDisk;

/// Damage to one file, or to two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One bit is the other way round.
    Flip {
        /// The file.
        file: PathBuf,
        /// Which of its bytes.
        byte: u64,
        /// Which bit of that.
        bit: u8,
    },
    /// All bits of a byte are the other way round.
    Invert {
        /// The file.
        file: PathBuf,
        /// Which of its bytes.
        byte: u64,
    },
    /// Bytes are replaced.
    Overwrite {
        /// The file.
        file: PathBuf,
        /// From where on. Nothing is written past the file's end.
        byte: u64,
        /// By what.
        with: Vec<u8>,
    },
    /// The file ends early.
    Cut {
        /// The file.
        file: PathBuf,
        /// Its new length.
        length: u64,
    },
    /// Something follows the file's end.
    Append {
        /// The file.
        file: PathBuf,
        /// What.
        bytes: Vec<u8>,
    },
    /// Two pieces of a file of the same length have changed places: writes that went astray.
    Swap {
        /// The file.
        file: PathBuf,
        /// Bytes of each piece.
        length: u64,
        /// Where one begins.
        one: u64,
        /// Where the other begins.
        other: u64,
    },
    /// A piece is there twice, the second time over another one.
    Repeat {
        /// The file.
        file: PathBuf,
        /// Bytes of the piece.
        length: u64,
        /// Where it is.
        from: u64,
        /// Where it is, too.
        to: u64,
    },
    /// Two files have changed names.
    Rename {
        /// One.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// The file is gone.
    Remove {
        /// The file.
        file: PathBuf,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Flip { file, byte, bit } => {
                write!(f, "bit {bit} of byte {byte} of {} flipped", file.display())
            }
            Damage::Invert { file, byte } => write!(f, "byte {byte} of {} inverted", file.display()),
            Damage::Overwrite { file, byte, with } => {
                write!(f, "{} bytes from {byte} on of {} overwritten", with.len(), file.display())
            }
            Damage::Cut { file, length } => write!(f, "{} cut to {length} bytes", file.display()),
            Damage::Append { file, bytes } => {
                write!(f, "{} bytes appended to {}", bytes.len(), file.display())
            }
            Damage::Swap { file, length, one, other } => {
                write!(f, "{length} bytes at {one} and at {other} of {} swapped", file.display())
            }
            Damage::Repeat { file, length, from, to } => {
                write!(f, "{length} bytes at {from} of {} written to {to}, too", file.display())
            }
            Damage::Rename { one, other } => {
                write!(f, "{} and {} swapped", one.display(), other.display())
            }
            Damage::Remove { file } => write!(f, "{} removed", file.display()),
        }
    }
}

impl Damage {
    /// Does it. False where it changes nothing.
    ///
    /// # Panics
    /// When a file is not there, or not that long: a test that damages nothing would prove nothing.
    pub fn inflict(&self, disk: &FaultyDisk) -> bool {
        match self {
            Damage::Flip { file, byte, bit } => {
                disk.flip_bit(file, *byte, *bit);
                true
            }
            Damage::Invert { file, byte } => {
                (0..8).for_each(|bit| disk.flip_bit(file, *byte, bit));
                true
            }
            Damage::Overwrite { file, byte, with } => edit(disk, file, |bytes| {
                let start = (*byte as usize).min(bytes.len());
                let count = with.len().min(bytes.len() - start);
                bytes[start..start + count].copy_from_slice(&with[..count]);
            }),
            Damage::Cut { file, length } => edit(disk, file, |bytes| bytes.truncate(*length as usize)),
            Damage::Append { file, bytes: more } => edit(disk, file, |bytes| bytes.extend_from_slice(more)),
            Damage::Swap { file, length, one, other } => edit(disk, file, |bytes| {
                let (low, high) = (*one.min(other) as usize, *one.max(other) as usize);
                let (before, after) = bytes.split_at_mut(high);
                before[low..low + *length as usize].swap_with_slice(&mut after[..*length as usize]);
            }),
            Damage::Repeat { file, length, from, to } => edit(disk, file, |bytes| {
                let from = *from as usize;
                bytes.copy_within(from..from + *length as usize, *to as usize);
            }),
            Damage::Rename { one, other } => {
                let (first, second) = (read(disk, one), read(disk, other));
                write(disk, one, &second);
                write(disk, other, &first);
                first != second
            }
            Damage::Remove { file } => {
                disk.remove(file).expect("the file to remove");
                true
            }
        }
    }
}

fn read(disk: &FaultyDisk, file: &Path) -> Vec<u8> {
    disk.read_file(file).expect("the file to damage")
}

fn write(disk: &FaultyDisk, file: &Path, bytes: &[u8]) {
    disk.write_file(file, bytes).expect("a disk in memory");
}

fn edit(disk: &FaultyDisk, file: &Path, change: impl FnOnce(&mut Vec<u8>)) -> bool {
    let before = read(disk, file);
    let mut bytes = before.clone();
    change(&mut bytes);
    if bytes != before {
        write(disk, file, &bytes);
    }
    bytes != before
}

/// A file of a sample, and which of its sectors say something.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The file.
    pub file: PathBuf,
    /// Its length.
    pub length: u64,
    /// Where sectors of 512 bytes begin that are not all zeros.
    pub sectors: Vec<u64>,
}

/// Bytes of a sector.
const SECTOR_BYTES: usize = 512;

/// The files of a disk that are not empty.
pub fn extents(disk: &FaultyDisk) -> Vec<Extent> {
    let files = disk.files().into_iter().map(|file| {
        let bytes = read(disk, &file);
        let full = |sector: &[u8]| sector.iter().any(|&byte| byte != 0);
        let sectors = (0..).step_by(SECTOR_BYTES).zip(bytes.chunks(SECTOR_BYTES));
        let sectors = sectors.filter(|(_, sector)| full(sector)).map(|(start, _)| start).collect();
        Extent { file, length: bytes.len() as u64, sectors }
    });
    files.filter(|extent| extent.length > 0).collect()
}
