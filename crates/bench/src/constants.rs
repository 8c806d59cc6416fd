//! The constants of the papers, as this program has them.

use foreshore::Options;
use foreshore_env::time::Duration;
use foreshore_latch::parking;
use foreshore_lock::{BLOOM_BITS, BLOOM_FINGERPRINT, NAP};
use serde::Serialize;

/// A constant of a paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Constant {
    /// What it is.
    pub name: &'static str,
    /// Its value here.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// Where the papers have it.
    pub source: &'static str,
}

/// Constants of papers. As JSON its field names are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConstantsReport {
    /// `constants`.
    pub experiment: &'static str,
    /// The version of this program.
    pub version: &'static str,
    /// The constants, paper by paper.
    pub results: Vec<Constant>,
}

/// All of them.
pub fn constants() -> ConstantsReport {
    let of = |name, value, unit, source| Constant { name, value, unit, source };
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
    let kimura = "Kimura et al. 2012, §4.2";
    ConstantsReport {
        experiment: "constants",
        version: env!("CARGO_PKG_VERSION"),
        results: vec![
            of("bits of a digest that is a Bloom filter", BLOOM_BITS as f64, "bits", kimura),
            of("bits of a transaction in it", BLOOM_FINGERPRINT as f64, "bits", kimura),
            of("sleep of who waits for a lock", milliseconds(NAP), "ms", kimura),
            of(
                "longest pipeline",
                f64::from(Options::default().pipeline_length),
                "transactions",
                "Kimura et al. 2012, §6",
            ),
            of("parking spaces", parking::SPACES as f64, "spaces", "Böttcher et al. 2020, §3.4"),
            of(
                "between two looks around of who waits for a latch",
                milliseconds(parking::LOOK_INTERVAL),
                "ms",
                "Böttcher et al. 2020, §3.4",
            ),
        ],
    }
}
