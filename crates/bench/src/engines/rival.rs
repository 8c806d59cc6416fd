//! What rivals share: their options, and how they are retried.

use std::{error::Error, ops::Bound};

use foreshore_env::{random::jittered_pause, thread};

use super::{Durability, EngineOptions, Execution, Isolation};
#[cfg(any(feature = "bdb", feature = "rocksdb"))]
use crate::engine::{Outcome, Stop};
use crate::{
    BenchError,
    engine::{AbortCause, Attempts, EngineTxn, Failure, Order, Reader, TableIndex, Visit},
    named::Named,
};

/// Memory for a rival's cache if nothing else is said: what Foreshore's buffer pool has.
const CACHE_BYTES: usize = 256 << 20;
/// How often a transaction is run again, as Foreshore's `transact` does.
const RETRIES: u32 = 1000;

/// A rival's failure that no retry cures.
#[cold]
pub(super) fn fatal(error: impl Error + Send + Sync + 'static) -> Failure {
    Failure { cause: AbortCause::Other, source: Box::new(error) }
}

/// A transaction that refuses to write.
pub(super) struct ReadOnly<R>(pub(super) R);

#[cold]
fn read_only<T>() -> Result<T, Failure> {
    Err(Failure::fatal("a transaction that only reads cannot write"))
}

impl<R: Reader> Reader for ReadOnly<R> {
    fn get(&mut self, table: TableIndex, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Failure> {
        self.0.get(table, key, value)
    }

    fn scan(
        &mut self,
        table: TableIndex,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Failure> {
        self.0.scan(table, range, order, visit)
    }
}

impl<R: Reader> EngineTxn for ReadOnly<R> {
    fn get_for_update(&mut self, _: TableIndex, _: &[u8], _: &mut Vec<u8>) -> Result<bool, Failure> {
        read_only()
    }

    fn insert(&mut self, _: TableIndex, _: &[u8], _: &[u8]) -> Result<bool, Failure> {
        read_only()
    }

    fn put(&mut self, _: TableIndex, _: &[u8], _: &[u8]) -> Result<(), Failure> {
        read_only()
    }

    fn delete(&mut self, _: TableIndex, _: &[u8]) -> Result<bool, Failure> {
        read_only()
    }
}

/// The options of a rival, taken one by one; what is left in the end is refused.
pub(super) struct Settings<'o> {
    engine: &'static str,
    left: Vec<&'o (String, String)>,
    known: Vec<&'static str>,
}

impl<'o> Settings<'o> {
    /// The options for `engine`, which runs every transaction serializably.
    pub(super) fn new(engine: &'static str, options: &'o EngineOptions) -> Result<Settings<'o>, BenchError> {
        if options.isolation != Isolation::Serializable {
            return Err(BenchError::invalid(format!(
                "{engine} runs every transaction serializable here; leave out --isolation {}",
                options.isolation.name()
            )));
        }
        if options.durability == Durability::Pipelined {
            return Err(BenchError::invalid(format!(
                "{engine} has no pipelines; use --durability sync or lazy"
            )));
        }
        if options.execution != Execution::Dynamic {
            return Err(BenchError::invalid(format!(
                "{engine} has one way of execution; leave out --execution"
            )));
        }
        Ok(Settings { engine, left: options.settings.iter().collect(), known: Vec::new() })
    }

    /// The last value given for an option.
    fn take(&mut self, name: &'static str) -> Option<&'o str> {
        self.known.push(name);
        let value =
            self.left.iter().rev().find(|setting| setting.0 == name).map(|setting| setting.1.as_str());
        self.left.retain(|setting| setting.0 != name);
        value
    }

    /// A number of bytes.
    pub(super) fn bytes(&mut self, name: &'static str, default: usize) -> Result<usize, BenchError> {
        let Some(value) = self.take(name) else { return Ok(default) };
        // Written as those of Foreshore itself.
        let mut options = ::foreshore::Options::default();
        match options.set("pool_bytes", value) {
            Ok(()) => Ok(options.pool_bytes),
            Err(_) => {
                Err(BenchError::invalid(format!("{name} is a number of bytes, such as 16MiB, not {value:?}")))
            }
        }
    }

    /// Memory for the cache, in bytes.
    pub(super) fn cache_bytes(&mut self) -> Result<usize, BenchError> {
        self.bytes("cache_bytes", CACHE_BYTES)
    }

    /// One of a few values, the first of which is the default.
    pub(super) fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        values: &[(&'static str, T)],
    ) -> Result<T, BenchError> {
        let Some(value) = self.take(name) else { return Ok(values[0].1) };
        values.iter().find(|known| known.0 == value).map(|known| known.1).ok_or_else(|| {
            let names: Vec<&str> = values.iter().map(|known| known.0).collect();
            BenchError::invalid(format!("{name} is one of {}, not {value:?}", names.join(", ")))
        })
    }

    /// Refuses what nobody took.
    pub(super) fn finish(self) -> Result<(), BenchError> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => Err(BenchError::invalid(format!(
                "the engine {} has no option {name:?}; it has {}",
                self.engine,
                self.known.join(", ")
            ))),
        }
    }
}

/// Counts how often a transaction was aborted, and pauses before it runs again.
#[derive(Default)]
pub(super) struct Retries {
    aborts: u32,
}

impl Retries {
    /// An attempt was aborted. Returns when it is time for the next one; the failure comes back when there is none.
    #[cold]
    pub(super) fn again(&mut self, attempts: &mut Attempts, failure: Failure) -> Result<(), Failure> {
        attempts.aborts.count(failure.cause);
        self.aborts += 1;
        if self.aborts > RETRIES {
            return Err(failure);
        }
        attempts.retries += 1;
        thread::sleep(jittered_pause(self.aborts));
        Ok(())
    }
}

/// Runs a transaction that may be aborted by others until it ends; an attempt that fails must have been undone.
#[cfg(any(feature = "bdb", feature = "rocksdb"))]
pub(super) fn retried(
    attempts: &mut Attempts,
    mut attempt: impl FnMut() -> Result<(), Stop>,
) -> Result<Outcome, Failure> {
    let mut retries = Retries::default();
    loop {
        match attempt() {
            Err(Stop::Failed(failure)) if failure.cause != AbortCause::Other => {
                if let Err(failure) = retries.again(attempts, failure) {
                    return Ok(Outcome::GaveUp(failure));
                }
            }
            ended => return attempts.ended(ended),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(settings: &[(&str, &str)]) -> EngineOptions {
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        EngineOptions { settings, ..EngineOptions::default() }
    }

    #[test]
    fn settings_are_taken_and_the_rest_is_refused() {
        let given = options(&[("cache_bytes", "1MiB"), ("mode", "b"), ("cache_bytes", "2MiB")]);
        let mut settings = Settings::new("it", &given).unwrap();
        assert_eq!(settings.cache_bytes().unwrap(), 2 << 20);
        assert_eq!(settings.choice("mode", &[("a", 1), ("b", 2)]).unwrap(), 2);
        assert_eq!(settings.bytes("map_bytes", 7).unwrap(), 7);
        settings.finish().unwrap();

        let given = options(&[("cache_bytes", "big"), ("mode", "c"), ("cash", "1")]);
        let mut settings = Settings::new("it", &given).unwrap();
        assert!(settings.cache_bytes().unwrap_err().to_string().contains("16MiB"));
        let wrong = settings.choice("mode", &[("a", 1), ("b", 2)]).unwrap_err().to_string();
        assert!(wrong.contains("a, b"), "{wrong}");
        let unknown = settings.finish().unwrap_err().to_string();
        assert!(unknown.contains("\"cash\"") && unknown.contains("cache_bytes, mode"), "{unknown}");

        let weak = EngineOptions { isolation: Isolation::ReadCommitted, ..options(&[]) };
        assert!(Settings::new("it", &weak).is_err());
        let pipelined = EngineOptions { durability: Durability::Pipelined, ..options(&[]) };
        assert!(Settings::new("it", &pipelined).is_err());
    }

    #[test]
    fn an_aborted_transaction_is_given_up_in_the_end() {
        let mut retries = Retries { aborts: RETRIES - 1 };
        let mut attempts = Attempts::default();
        let conflict = || Failure { cause: AbortCause::Conflict, source: "changed".into() };
        retries.again(&mut attempts, conflict()).unwrap();
        assert!(retries.again(&mut attempts, conflict()).is_err());
        assert_eq!((attempts.aborts.conflict, attempts.retries), (2, 1));
    }
}
