//! Which values of options make sense.

use std::ops::RangeInclusive;

use foreshore_base::limits::PAGE_BYTES;
use foreshore_orthrus::MAX_THREADS;
use foreshore_txn::{LogOptions, MAX_PIPELINE_LENGTH};

use super::{Options, invalid, units};
use crate::error::Result;

/// The least memory for pages, in frames.
const MIN_POOL_FRAMES: usize = 64;
/// Nearly as many frames as there are numbers for.
const MAX_POOL_BYTES: u64 = (1 << 45) - (1 << 30);
/// More would wait for one another, and for the disk.
const MAX_CLEANERS: usize = 64;
/// Segments that the smallest log has: one to write, one to recycle, and as much for rolling back.
const MIN_LOG_SEGMENTS: u64 = 4;
const MIN_SEGMENT_BYTES: u64 = 256 << 10;
const MIN_LOG_BUFFER_BYTES: usize = 256 << 10;
/// More would only take memory: what does not fit waits at its sender.
const MAX_RING_CAPACITY: usize = 1 << 16;
/// Of all rings together, which take their memory at once: less than a gigabyte.
const MAX_RING_PLACES: usize = 1 << 24;
/// As many as there can be locks, roughly: half a gigabyte.
pub(super) const MAX_LOCK_BUCKETS: usize = 1 << 24;

impl Options {
    /// Whether the values make sense alone and together, for a database whose log's files have the size that
    /// `made_with` gives, if it is there.
    pub(crate) fn check(&self, made_with: impl FnOnce() -> Option<u64>) -> Result<()> {
        let number = |count: usize| count.to_string();
        let pool = (MIN_POOL_FRAMES * PAGE_BYTES) as u64..=MAX_POOL_BYTES;
        self.between("pool_bytes", self.pool_bytes as u64, pool, units::format_bytes)?;
        self.between("cleaners", self.cleaners, 1..=MAX_CLEANERS, number)?;
        let segments = MIN_SEGMENT_BYTES..=LogOptions::MAX_SEGMENT_BYTES;
        self.between("log_segment_bytes", self.log_segment_bytes, segments, units::format_bytes)?;
        let least_log = self.log_segment_bytes.next_power_of_two() * MIN_LOG_SEGMENTS;
        if self.log_bytes < least_log {
            // That of a database that is there was fixed when it was made, whatever the option says.
            let made_with =
                made_with().map(|bytes| bytes * MIN_LOG_SEGMENTS).filter(|least| *least < least_log);
            let least = made_with.unwrap_or(least_log);
            self.require("log_bytes", self.log_bytes >= least, || {
                let of = match made_with {
                    Some(_) => "the size of the log's files, which was fixed when the database was made",
                    None => "log_segment_bytes as a power of two",
                };
                format!("at least {}, {MIN_LOG_SEGMENTS} times {of}", units::format_bytes(least))
            })?;
        }
        let (least, most) = (MIN_LOG_BUFFER_BYTES, LogOptions::MAX_BUFFER_BYTES);
        let fits = (least..=most).contains(&self.log_buffer_bytes);
        self.require("log_buffer_bytes", fits && self.log_buffer_bytes.is_power_of_two(), || {
            let [least, most] = [least, most].map(|bytes| units::format_bytes(bytes as u64));
            format!("a power of two, {least} to {most}")
        })?;
        for (name, time) in
            [("flush_interval", self.flush_interval), ("deadlock_timeout", self.deadlock_timeout)]
        {
            self.require(name, !time.is_zero(), || "more than 0".to_owned())?;
        }
        let lengths = 1..=MAX_PIPELINE_LENGTH;
        self.between("pipeline_length", self.pipeline_length, lengths, |length| length.to_string())?;
        self.between("control_threads", self.control_threads, 1..=MAX_THREADS, number)?;
        self.between("execution_threads", self.execution_threads, 1..=MAX_THREADS, number)?;
        let at_least_one = |name, count: usize| self.require(name, count > 0, || "at least 1".to_owned());
        at_least_one("execution_window", self.execution_window)?;
        at_least_one("submit_queue", self.submit_queue)?;
        self.between("ring_capacity", self.ring_capacity, 1..=MAX_RING_CAPACITY, number)?;
        let rings = self.partitions().rings();
        let places = rings * self.ring_capacity.next_power_of_two();
        self.require("ring_capacity", places <= MAX_RING_PLACES, || {
            let most = 1_usize << (MAX_RING_PLACES / rings).ilog2();
            format!("at most {most} for {rings} rings, or take fewer control_threads or execution_threads")
        })?;
        self.require("lock_buckets", self.lock_buckets <= MAX_LOCK_BUCKETS, || {
            format!("at most {MAX_LOCK_BUCKETS}")
        })?;
        at_least_one("max_locks_per_transaction", self.max_locks_per_transaction)?;
        at_least_one("max_locks", self.max_locks)
    }

    fn between<T: PartialOrd + Copy>(
        &self,
        name: &str,
        value: T,
        range: RangeInclusive<T>,
        show: impl Fn(T) -> String,
    ) -> Result<()> {
        self.require(name, range.contains(&value), || {
            format!("{} to {}", show(*range.start()), show(*range.end()))
        })
    }

    fn require(&self, name: &str, holds: bool, expected: impl FnOnce() -> String) -> Result<()> {
        if holds { Ok(()) } else { Err(invalid(name, &self.get(name).unwrap_or_default(), &expected())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    /// One below, at, and one above either end. Whether a database opens with them: `tests/facade/limits.rs`.
    #[test]
    fn both_ends_of_what_is_bounded() {
        const GIB: u64 = 1 << 30;
        for (name, least, most) in [
            ("pool_bytes", MIN_POOL_FRAMES as u64 * PAGE_BYTES as u64, Some(MAX_POOL_BYTES)),
            ("cleaners", 1, Some(64)),
            ("log_segment_bytes", MIN_SEGMENT_BYTES, Some(256 << 20)),
            ("log_bytes", 4 << 20, None),
            ("flush_interval", 1, None),
            ("deadlock_timeout", 1, None),
            ("pipeline_length", 1, Some(100_000)),
            ("control_threads", 1, Some(256)),
            ("execution_threads", 1, Some(256)),
            ("execution_window", 1, None),
            ("submit_queue", 1, None),
            ("ring_capacity", 1, Some(65_536)),
            ("max_locks_per_transaction", 1, None),
            ("max_locks", 1, None),
        ] {
            let unit = if matches!(name, "flush_interval" | "deadlock_timeout") { "us" } else { "" };
            let refused = |value: u64| {
                let mut options = Options { log_segment_bytes: 1 << 20, ..Options::default() };
                match options.set(name, &format!("{value}{unit}")).and_then(|()| options.check(|| None)) {
                    Ok(()) => false,
                    Err(Error::InvalidOption { name: named, .. }) if named == name => true,
                    Err(error) => panic!("{name} {value}: {error}"),
                }
            };
            assert_eq!(
                [least - 1, least, least + 1].map(refused),
                [true, false, false],
                "{name} from {least}"
            );
            if let Some(most) = most {
                assert_eq!([most - 1, most, most + 1].map(refused), [false, false, true], "{name} to {most}");
            }
        }
        let refused =
            |buckets| Options { lock_buckets: buckets, ..Options::default() }.check(|| None).is_err();
        assert_eq!([0, 16_777_216, 16_777_217].map(refused), [false, false, true]);
        // Powers of two only: the next ones are twice as large, or half.
        let refused = |bytes: u64| {
            let options = Options { log_buffer_bytes: bytes as usize, ..Options::default() };
            options.check(|| None).is_err()
        };
        let least = MIN_LOG_BUFFER_BYTES as u64;
        assert_eq!(
            [least / 2, least - 1, least, least + 1, 2 * least].map(refused),
            [true, true, false, true, false]
        );
        assert_eq!([GIB / 2, GIB - 1, GIB, GIB + 1, 2 * GIB].map(refused), [false, true, false, true, true]);
    }

    /// All rings take their memory at the first transaction: a few hundred threads with large rings ended the process.
    #[test]
    fn rings_have_a_limit_together() {
        let refused = |threads: usize, automatic_threads, ring_capacity| {
            let options = Options {
                control_threads: threads,
                execution_threads: threads,
                automatic_threads,
                ring_capacity,
                ..Options::default()
            };
            match options.check(|| None) {
                Ok(()) => None,
                Err(Error::InvalidOption { name, expected, .. }) => {
                    assert_eq!(name, "ring_capacity");
                    Some(expected.split(' ').nth(2).unwrap().parse::<usize>().unwrap())
                }
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(refused(256, false, 64), None);
        assert_eq!([128, 65_536].map(|capacity| refused(256, false, capacity)), [Some(64); 2]);
        assert_eq!([32, 33].map(|capacity| refused(256, true, capacity)), [None, Some(32)]);
        assert_eq!([4096, 4097].map(|capacity| refused(40, false, capacity)), [None, Some(4096)]);
        assert_eq!(refused(8, false, MAX_RING_CAPACITY), None);
    }
}
