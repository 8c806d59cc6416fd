//! How a log is set up.

use foreshore_base::Lsn;
use foreshore_env::{disk::BLOCK_BYTES, time::Duration};

use crate::frame::MAX_RECORD_BYTES;
use crate::insert::LogInsert;
use crate::segment::{MAX_SEGMENT_BYTES, MIN_SEGMENT_BYTES, SEGMENT_HEADER_BYTES};

/// The LSN of the first record of a new log.
pub const FIRST_LSN: Lsn = Lsn(SEGMENT_HEADER_BYTES);

/// The smallest circular buffer: a block that is not full yet, what is left of a segment, a header and the longest
/// record fit together, and as much for a mark.
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
    /// three eighths of it; the rest is for rollbacks, commits and checkpoints. Files may take two
    /// segments more (WAL-15), up to [`LogOptions::SPARE_SEGMENTS`] that wait for their next use among them. A log of
    /// which more than three eighths are needed when it is opened may hold eight thirds of that until it is closed, so
    /// that there is room to take it back.
    pub capacity_bytes: u64,
    /// No more segments count for the capacity, because each is an open file:
    /// [`Log::capacity_bytes`](crate::Log::capacity_bytes) says how much that is. No bound by default.
    pub most_segments: u64,
    /// What every sync takes longer than the disk needs: another disk's latency, to measure with. None by default.
    pub latency: Duration,
    /// How long a record waits at most for its flush to begin if nobody asks for one, and how long the log is quiet
    /// before a mark is put under it, which tells later damage from a torn tail; 1 ms to a day.
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

    /// The most that a log of such segments may hold that has `used` when it is opened. One that was made under larger
    /// limits can still take that back.
    pub(crate) fn capacity(&self, segment_bytes: u64, used: u64) -> u64 {
        let most = self.capacity_bytes.min(self.most_segments.saturating_mul(segment_bytes));
        most.max(used.div_ceil(3).saturating_mul(8))
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

/// The most that ordinary appends may fill of a log that may hold so much: three eighths. What takes a change back may
/// be longer than the change (by 8 bytes for 48 at worst), and may have to log pages anew.
pub(crate) fn work_bytes(capacity_bytes: u64) -> u64 {
    capacity_bytes / 8 * 3
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            segment_bytes: 16 << 20,
            buffer_bytes: 16 << 20,
            capacity_bytes: 4 << 30,
            most_segments: u64::MAX,
            latency: Duration::ZERO,
            flush_interval: Duration::from_millis(100),
            insert: LogInsert::default(),
            past_cache: true,
        }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    /// One that was made without the bound, or under a larger limit, may be longer than they allow.
    #[test]
    fn what_a_log_has_when_it_is_opened_can_be_taken_back() {
        let options = LogOptions { capacity_bytes: 1 << 40, most_segments: 512, ..LogOptions::default() };
        let most = 512 * MIN_SEGMENT_BYTES;
        assert_eq!(options.capacity(MIN_SEGMENT_BYTES, most / 8 * 3), most);
        for used in [most / 2, most, 5 * most + 1] {
            let capacity = options.capacity(MIN_SEGMENT_BYTES, used);
            assert!(work_bytes(capacity + 8) >= used && capacity > most, "{used}");
        }
        let options = LogOptions { capacity_bytes: 1 << 20, ..LogOptions::default() };
        assert_eq!(options.capacity(MIN_SEGMENT_BYTES, 3 << 17), 1 << 20);
        for used in [(3 << 17) + 1, 1 << 20, 1 << 40] {
            let capacity = options.capacity(MIN_SEGMENT_BYTES, used);
            assert!(work_bytes(capacity + 8) >= used && capacity > 1 << 20, "{used}");
        }
    }
}
