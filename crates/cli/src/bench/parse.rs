//! Values of options, from text.

use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use foreshore_bench::{Distribution, Named};
use foreshore_env::time::Duration;

/// Parses one of a few names, and lists them in the help and in the error.
pub(crate) fn names<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: Named + Send + Sync,
{
    PossibleValuesParser::new(names).try_map(|name| T::chosen(&name))
}

/// As [`names`], of all that there are.
pub(crate) fn any_name<T>() -> impl TypedValueParser<Value = T>
where
    T: Named + Send + Sync,
{
    PossibleValuesParser::new(T::ALL.iter().map(|choice| choice.name())).try_map(|name| T::chosen(&name))
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give seconds between 0 and 1000000, such as 10 or 0.5".to_owned()),
    }
}

/// As [`parse_seconds`], for a time in which something is to happen.
pub(crate) fn parse_measured(text: &str) -> Result<Duration, String> {
    match parse_seconds(text) {
        Ok(seconds) if !seconds.is_zero() => Ok(seconds),
        _ => Err("give seconds, more than 0 and at most 1000000, such as 10 or 0.5".to_owned()),
    }
}

/// An option of a database or an engine, and its value.
pub(crate) fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("give option=value, such as pool_bytes=16MiB".to_owned()),
    }
}

pub(super) fn parse_distribution(text: &str) -> Result<Distribution, String> {
    let mut parts = text.split(':');
    let kind = parts.next().unwrap_or_default();
    let (first, second, excess) = (parts.next(), parts.next(), parts.next());
    let wrong = || "give uniform, zipf, zipf:0.9, hot, hot:64 or hot:64:90".to_owned();
    fn number<T: FromStr>(text: Option<&str>, default: T, wrong: impl Fn() -> String) -> Result<T, String> {
        text.map_or(Ok(default), |text| text.parse().map_err(|_| wrong()))
    }
    match (kind, first, second, excess) {
        ("uniform", None, None, None) => Ok(Distribution::Uniform),
        ("zipf", exponent, None, None) => Ok(Distribution::Zipf(number(exponent, 0.99, wrong)?)),
        ("hot", records, share, None) => Ok(Distribution::HotSet {
            records: number(records, 64, wrong)?,
            share: number(share, 90, wrong)?,
        }),
        _ => Err(wrong()),
    }
}

/// Partitions of a transaction, if they are a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Touched(pub(super) Option<u32>);

pub(super) fn parse_touched(text: &str) -> Result<Touched, String> {
    match (text, text.parse()) {
        ("random", _) => Ok(Touched(None)),
        (_, Ok(number)) if number > 0 => Ok(Touched(Some(number))),
        _ => Err("give a number of partitions, such as 1 or 2, or random".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_parsed() {
        assert_eq!(parse_distribution("uniform"), Ok(Distribution::Uniform));
        assert_eq!(parse_distribution("zipf:0.5"), Ok(Distribution::Zipf(0.5)));
        assert_eq!(parse_distribution("hot:7"), Ok(Distribution::HotSet { records: 7, share: 90 }));
        assert_eq!(parse_distribution("hot:7:50"), Ok(Distribution::HotSet { records: 7, share: 50 }));
        for wrong in ["", "zipf:x", "zipf:1:2", "uniform:1", "hot:1:2:3", "pareto"] {
            assert!(parse_distribution(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn partitions_of_a_transaction_are_parsed() {
        assert_eq!(parse_touched("random"), Ok(Touched(None)));
        assert_eq!(parse_touched("2"), Ok(Touched(Some(2))));
        for wrong in ["0", "-1", "all", ""] {
            assert!(parse_touched(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_and_seconds_are_parsed() {
        assert_eq!(parse_setting("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(parse_setting("a").is_err() && parse_setting("=b").is_err());
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("0"), Ok(Duration::ZERO));
        assert_eq!(parse_measured("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["-1", "NaN", "inf", "1e9", "ten"] {
            assert!(parse_seconds(wrong).is_err() && parse_measured(wrong).is_err(), "{wrong}");
        }
        for nothing in ["0", "0.0", "1e-12"] {
            assert!(parse_measured(nothing).is_err(), "{nothing}");
        }
    }
}
