//! How a log is set up.

use foreshore_base::Lsn;
use foreshore_env::{disk::BLOCK_BYTES, time::Duration};

use crate::frame::MAX_RECORD_BYTES;
use crate::insert::LogInsert;
use crate::segment::{MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES, SEGMENT_HEADER_BYTES};

/// The LSN of the first record of a new log.
pub const FIRST_LSN: Lsn = Lsn(SEGMENT_HEADER_BYTES);

/// The smallest circular buffer: a block that is not full yet, what is left of a segment, a header and the longest record fit together,
/// and as much for a mark.
const MIN_BUFFER_BYTES: usize = 256 << 10;
const _: () = assert!(BLOCK_BYTES + 3 * MAX_RECORD_BYTES + SEGMENT_HEADER_BYTES as usize <= MIN_BUFFER_BYTES);
/// The bounds of [`LogOptions::flush_interval`].
const INTERVALS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(24 * 3600));

/// How a log is set up. Sizes out of range are brought into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes in a segment file, up to the next power of two, 128 KiB to 256 MiB. For a new log; an existing one keeps
    /// the size that it was made with.
    pub segment_bytes: u64,
    /// Bytes in the circular buffer, up to the next power of two, 256 KiB to 1 GiB.
    pub buffer_bytes: usize,
    /// The most that the log may hold between the low-water mark and its tail. Ordinary appends are refused past
    /// [`LogOptions::work_bytes`]; the rest is for rollbacks, commits and checkpoints. Files may take two
    /// segments more (WAL-15), up to [`LogOptions::SPARE_SEGMENTS`] that wait for their next use among them.
    pub capacity_bytes: u64,
    /// What every sync takes longer than the disk needs: another disk's latency, to measure with. None by default.
    pub latency: Duration,
    /// How long a record waits at most for its flush to begin if nobody asks for one, and how long the log is quiet before
    /// a mark is put under it, which tells later damage from a torn tail; 1 ms to a day.
    pub flush_interval: Duration,
    /// How those who append agree on where their records go.
    pub insert: LogInsert,
    /// Whether what is written goes past the system's cache, where the file system allows it.
    pub past_cache: bool,
}

impl LogOptions {
    /// The largest circular buffer.
    pub const MAX_BUFFER_BYTES: usize = 1 << 30;
    /// The largest segment.
    pub const MAX_SEGMENT_BYTES: u64 = MAX_SEGMENT_BYTES;
    /// Recycled segments that are kept for their next use.
    pub const SPARE_SEGMENTS: usize = 16;

    /// The most that ordinary appends may fill: three eighths of the capacity. What takes a change back may be longer than
    /// the change (by 8 bytes for 48 at worst), and may have to log pages anew.
    pub fn work_bytes(&self) -> u64 {
        self.capacity_bytes / 8 * 3
    }

    pub(crate) fn segment(&self) -> u64 {
        self.segment_bytes.clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES).next_power_of_two()
    }

    pub(crate) fn interval(&self) -> Duration {
        self.flush_interval.clamp(INTERVALS.0, INTERVALS.1)
    }

    pub(crate) fn buffer(&self) -> usize {
        self.buffer_bytes.clamp(MIN_BUFFER_BYTES, LogOptions::MAX_BUFFER_BYTES).next_power_of_two()
    }
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            segment_bytes: 16 << 20,
            buffer_bytes: 8 << 20,
            capacity_bytes: 4 << 30,
            latency: Duration::ZERO,
            flush_interval: Duration::from_millis(100),
            insert: LogInsert::default(),
            past_cache: true,
        }
    }
}
