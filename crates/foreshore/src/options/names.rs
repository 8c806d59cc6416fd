//! The options by name: which there are, and how their values are written as text.

use foreshore_env::time::Duration;
use foreshore_txn::MAX_PIPELINE_LENGTH;

use super::{Options, choices::Choice, invalid, units};
use crate::error::{Error, Result};

/// How the values of some options are written.
struct Kind<T> {
    /// The value, or what is expected in the place of this text.
    parse: fn(&str) -> Result<T, String>,
    /// The value as `parse` reads it.
    show: fn(T) -> String,
}

const FLAG: Kind<bool> = Kind {
    parse: |text| units::flag(text).ok_or_else(|| "true or false".to_owned()),
    show: |value| value.to_string(),
};

const COUNT: Kind<usize> = Kind {
    parse: |text| text.replace('_', "").parse().map_err(|_| "a whole number".to_owned()),
    show: |value| value.to_string(),
};

/// Of a pipeline.
const LENGTH: Kind<u32> = Kind {
    parse: |text| (COUNT.parse)(text)?.try_into().map_err(|_| format!("1 to {MAX_PIPELINE_LENGTH}")),
    show: |value| value.to_string(),
};

/// In a file.
const BYTES: Kind<u64> = Kind {
    parse: |text| {
        units::bytes(text).ok_or_else(|| "a number of bytes below 16 EiB, such as 4096 or 16MiB".to_owned())
    },
    show: units::format_bytes,
};

/// Bytes in memory.
const SIZE: Kind<usize> = Kind {
    parse: |text| {
        let expected = |_| "a number of bytes that this machine can address".to_owned();
        (BYTES.parse)(text)?.try_into().map_err(expected)
    },
    show: |value| units::format_bytes(value as u64),
};

const TIME: Kind<Duration> = Kind {
    parse: |text| {
        units::duration(text)
            .ok_or_else(|| "a time below 584 years with its unit, such as 100ms or 1s".to_owned())
    },
    show: units::format_duration,
};

const POSITIVE_TIME: Kind<Duration> = Kind {
    parse: |text| match (TIME.parse)(text)? {
        time if time.is_zero() => Err("more than 0".to_owned()),
        time => Ok(time),
    },
    show: TIME.show,
};

/// One of a few values that have names.
const fn one_of<C: Choice>() -> Kind<C> {
    Kind { parse: |text| C::named(text).ok_or_else(C::names), show: C::name }
}

/// Makes [`Options::NAMES`], [`Options::set`], [`Options::get`] and [`Options::default`] of a table: each option, its
/// [`Kind`], and what it is unless somebody says otherwise. Options for tests have no names.
macro_rules! named_options {
    ($($option:ident: $kind:expr, $default:expr;)+) => {
        impl Default for Options {
            fn default() -> Options {
                Options {
                    $($option: $default,)+
                    locking: true,
                    release_tags: true,
                    read_validation: true,
                    node_capacity: usize::MAX,
                }
            }
        }

        impl Options {
            /// The names that [`Options::set`] knows: those of the fields.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($option)),+];

            /// Sets an option by its name, from text: `16MiB`, `100ms`, `true`, `global_mutex`. Whether the values make
            /// sense together is looked at when a database is opened with them.
            ///
            /// # Errors
            /// [`Error::UnknownOption`], with the names of those that there are; [`Error::InvalidOption`] for a text
            /// that is not a value of it. The option is then as it was.
            pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
                let refused = |expected: String| invalid(name, value, &expected);
                match name {
                    $(stringify!($option) => self.$option = ($kind.parse)(value).map_err(refused)?,)+
                    _ => return Err(Error::UnknownOption { name: name.to_owned(), known: Options::NAMES.join(", ") }),
                }
                Ok(())
            }

            /// The value of an option by its name, as [`Options::set`] reads it; `None` when there is no such option.
            pub fn get(&self, name: &str) -> Option<String> {
                match name {
                    $(stringify!($option) => Some(($kind.show)(self.$option)),)+
                    _ => None,
                }
            }
        }
    };
}

named_options! {
    create: FLAG, true;
    read_only: FLAG, false;
    pool_bytes: SIZE, 256 << 20;
    prefault: FLAG, false;
    translation: one_of(), Default::default();
    transit: one_of(), Default::default();
    free_space: one_of(), Default::default();
    read_ahead: COUNT, 32;
    cleaners: COUNT, 1;
    latch_mode: one_of(), Default::default();
    log_bytes: BYTES, 4 << 30;
    log_segment_bytes: BYTES, 16 << 20;
    log_buffer_bytes: SIZE, 16 << 20;
    log_insert: one_of(), Default::default();
    log_past_cache: FLAG, true;
    log_full: one_of(), Default::default();
    flush_interval: POSITIVE_TIME, Duration::from_millis(100);
    checkpoint_bytes: BYTES, 256 << 20;
    recovery_target: TIME, Duration::from_secs(30);
    early_lock_release: one_of(), Default::default();
    pipeline_length: LENGTH, MAX_PIPELINE_LENGTH;
    victim_policy: one_of(), Default::default();
    log_latency: TIME, Duration::ZERO;
    lock_table: one_of(), Default::default();
    key_range_modes: one_of(), Default::default();
    intent_locks: one_of(), Default::default();
    deadlock_policy: one_of(), Default::default();
    deadlock_digests: one_of(), Default::default();
    deadlock_confirmation: FLAG, true;
    deadlock_timeout: POSITIVE_TIME, Duration::from_secs(1);
    admission_control: FLAG, true;
    lock_timeout: TIME, Duration::ZERO;
    lock_notes: FLAG, false;
    lock_buckets: COUNT, 0;
    escalation_locks: COUNT, 100_000;
    escalation_bytes: SIZE, 16 << 20;
    max_locks_per_transaction: COUNT, 1_000_000;
    max_locks: COUNT, 8_000_000;
    durability: one_of(), Default::default();
    isolation: one_of(), Default::default();
    read_mode: one_of(), Default::default();
    execution: one_of(), Default::default();
    control_threads: COUNT, 1;
    execution_threads: COUNT, 2;
    automatic_threads: FLAG, false;
    execution_window: COUNT, 16;
    submit_queue: COUNT, 1 << 16;
    ring_capacity: COUNT, 64;
    pin_threads: FLAG, false;
}
