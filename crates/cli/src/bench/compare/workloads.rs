//! The workloads that engines are compared by.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// A workload of `foreshore bench` in one shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Preset {
    /// What selects it.
    pub(super) name: &'static str,
    /// The subcommand of `bench`, and its options but for the size.
    words: &'static str,
    /// The option that says its size, and the size; for a comparison that is only tried out, a smaller one.
    size: (&'static str, &'static str, &'static str),
}

const fn preset(
    name: &'static str,
    words: &'static str,
    option: &'static str,
    full: &'static str,
    small: &'static str,
) -> Preset {
    Preset { name, words, size: (option, full, small) }
}

const RECORDS: &str = "--records";
const MILLION: &str = "1000000";
const PRESETS: [Preset; 10] = [
    preset("tpcb", "tpcb --branches 20", "--accounts", "100000", "1000"),
    preset("read", "ycsb --read-percent 100", RECORDS, MILLION, "10000"),
    preset("read-together", "ycsb --read-percent 100 --together", RECORDS, MILLION, "10000"),
    preset("rmw", "ycsb --read-percent 0", RECORDS, MILLION, "10000"),
    preset("rmw-zipf", "ycsb --read-percent 0 --distribution zipf:0.99", RECORDS, MILLION, "10000"),
    preset("rmw-hot", "ycsb --read-percent 0 --distribution hot:64:90", RECORDS, MILLION, "10000"),
    preset("tpcc", "tpcc --mix neworder-payment", "--warehouses", "4", "1"),
    preset("insert", "insert", "--commit-every", "1000", "100"),
    preset("insert-together", "insert --together", "--commit-every", "1000", "100"),
    preset("scan", "scan --length 100", RECORDS, MILLION, "10000"),
];

impl Preset {
    /// Their names, in the order in which they run if nothing else is said.
    pub(super) const NAMES: [&'static str; 10] = [
        "tpcb",
        "read",
        "read-together",
        "rmw",
        "rmw-zipf",
        "rmw-hot",
        "tpcc",
        "insert",
        "insert-together",
        "scan",
    ];

    /// Takes one by its name.
    pub(super) fn parser() -> impl TypedValueParser<Value = Preset> {
        PossibleValuesParser::new(Preset::NAMES).try_map(|name| {
            PRESETS.into_iter().find(|preset| preset.name == name).ok_or("there is no such workload")
        })
    }

    /// What to tell `bench`.
    pub(super) fn arguments(&self, small: bool) -> Vec<String> {
        let (option, full, smaller) = self.size;
        let words = self.words.split(' ').chain([option, if small { smaller } else { full }]);
        words.map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_preset() {
        assert_eq!(PRESETS.map(|preset| preset.name), Preset::NAMES);
        assert_eq!(PRESETS[7].arguments(true).join(" "), "insert --commit-every 100");
    }
}
