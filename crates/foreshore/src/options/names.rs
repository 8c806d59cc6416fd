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
    parse: |text| units::bytes(text).ok_or_else(|| "a number of bytes, such as 4096 or 16MiB".to_owned()),
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
    parse: |text| units::duration(text).ok_or_else(|| "a time with its unit, such as 100ms or 1s".to_owned()),
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

/// Makes [`Options::NAMES`], [`Options::set`] and [`Options::get`] of a table: each option, and its [`Kind`].
macro_rules! named_options {
    ($($option:ident: $kind:expr,)+) => {
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
    create: FLAG,
    read_only: FLAG,
    pool_bytes: SIZE,
    translation: one_of(),
    transit: one_of(),
    free_space: one_of(),
    read_ahead: COUNT,
    cleaners: COUNT,
    latch_mode: one_of(),
    log_bytes: BYTES,
    log_segment_bytes: BYTES,
    log_buffer_bytes: SIZE,
    log_insert: one_of(),
    log_past_cache: FLAG,
    log_full: one_of(),
    flush_interval: POSITIVE_TIME,
    checkpoint_bytes: BYTES,
    recovery_target: TIME,
    early_lock_release: one_of(),
    pipeline_length: LENGTH,
    victim_policy: one_of(),
    log_latency: TIME,
    lock_table: one_of(),
    key_range_modes: one_of(),
    intent_locks: one_of(),
    deadlock_policy: one_of(),
    deadlock_digests: one_of(),
    deadlock_confirmation: FLAG,
    deadlock_timeout: POSITIVE_TIME,
    admission_control: FLAG,
    lock_timeout: TIME,
    lock_notes: FLAG,
    lock_buckets: COUNT,
    escalation_locks: COUNT,
    escalation_bytes: SIZE,
    max_locks_per_transaction: COUNT,
    max_locks: COUNT,
    durability: one_of(),
    isolation: one_of(),
    read_mode: one_of(),
    execution: one_of(),
    control_threads: COUNT,
    execution_threads: COUNT,
    automatic_threads: FLAG,
    execution_window: COUNT,
    submit_queue: COUNT,
    ring_capacity: COUNT,
    pin_threads: FLAG,
}
