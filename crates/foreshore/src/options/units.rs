//! Values of options as people write them: `16MiB`, `100ms`, `true`.

use foreshore_env::time::Duration;

const BYTE_UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const TIME_UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A number with a unit, in the smallest unit. Whole numbers only: `1.5GiB` is `1536MiB`.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit.trim_start())?.1;
    number.replace('_', "").parse::<u64>().ok()?.checked_mul(factor)
}

pub(super) fn bytes(text: &str) -> Option<u64> {
    scaled(text, &BYTE_UNITS)
}

pub(super) fn duration(text: &str) -> Option<Duration> {
    scaled(text, &TIME_UNITS).map(Duration::from_nanos)
}

pub(super) fn flag(text: &str) -> Option<bool> {
    match text.trim() {
        "true" | "on" | "yes" => Some(true),
        "false" | "off" | "no" => Some(false),
        _ => None,
    }
}

/// Bytes in the largest unit that divides them, as [`bytes`] reads it.
pub(super) fn format_bytes(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// A duration in the largest of these units that divides it, as [`duration`] reads it.
pub(super) fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    match units.iter().find(|(_, size)| nanos.is_multiple_of(*size)) {
        Some((unit, size)) => format!("{}{unit}", nanos / size),
        None => format!("{nanos}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        for (text, expected) in [
            ("0", Some(0)),
            ("16MiB", Some(16 << 20)),
            (" 16 MiB ", Some(16 << 20)),
            ("1_000", Some(1000)),
            ("3GB", Some(3_000_000_000)),
            ("17000000TiB", None),
            ("1.5GiB", None),
            ("-1", None),
            ("MiB", None),
            ("16mib", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(bytes(text), expected, "{text:?}");
        }
        assert_eq!(duration("100ms"), Some(Duration::from_millis(100)));
        assert_eq!(duration("2min"), Some(Duration::from_secs(120)));
        assert_eq!(duration("100"), None, "a time without a unit is ambiguous");
        assert_eq!((flag("on"), flag("no"), flag("1")), (Some(true), Some(false), None));
    }

    #[test]
    fn what_is_printed_is_read_back() {
        for number in [0, 1, 1023, 1024, 16 << 20, 3 << 30, (1 << 40) + 1, u64::MAX] {
            assert_eq!(bytes(&format_bytes(number)), Some(number));
        }
        for nanos in [0, 500, 1_000, 1_500, 100_000_000, 9_000_000_000] {
            let time = Duration::from_nanos(nanos);
            assert_eq!(duration(&format_duration(time)), Some(time));
        }
    }
}
