//! `foreshore bench keyrange`: the modes of key-range locks under ranges of a small table (Kimura et al. 2012,
//! Figure 3).

use clap::{Args, builder::PossibleValuesParser};
use foreshore_bench::{TellerRanges, Variant};

use crate::{
    bench::comparison::{ComparisonArgs, SideBySide},
    output::CliError,
};

#[derive(Args)]
#[command(after_help = EXAMPLES, mut_arg("threads", |threads| threads.default_value("6")))]
pub(crate) struct KeyrangeArgs {
    /// The modes, as the option key_range_modes has them.
    #[arg(long, value_name = "MODES,…", value_delimiter = ',', default_value = "orthogonal,lomet,next_key",
          value_parser = PossibleValuesParser::new(["orthogonal", "lomet", "next_key"]))]
    modes: Vec<String>,
    /// Tellers.
    #[arg(long, value_name = "N", default_value_t = 200)]
    tellers: u32,
    /// Percent of the ranges that begin and end at keys that exist; the others, between keys.
    #[arg(long, value_name = "P", default_value_t = 50)]
    existing: u32,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

const EXAMPLES: &str = "\
Examples:
  foreshore bench keyrange                                   6 threads, half of the ranges at keys that exist
  foreshore bench keyrange --existing 0 --seconds 10 --json
  cargo sim simulate bench keyrange --cores 6 --seconds 0.02 --warm-up 0.005 --rounds 1

Each transaction searches four ranges of up to five tellers and updates one teller. waits: requests that found somebody in
their way; the more precise the modes, the fewer.

Interrupted, it prints what was measured until then: with --json there is \"partial\":true, beside the error.";

impl KeyrangeArgs {
    /// What is compared.
    pub(crate) fn side_by_side(&self) -> Result<SideBySide<'_>, CliError> {
        if self.comparison.setting("key_range_modes").is_some() {
            let message = "--set key_range_modes=… is what this compares";
            return Err(CliError::usage(message, "choose by --modes"));
        }
        Ok(SideBySide {
            experiment: "keyrange",
            workload: Box::new(TellerRanges::new(self.tellers, self.existing)?),
            variants: self.modes.iter().map(|modes| Variant::of("key_range_modes", modes)).collect(),
            args: &self.comparison,
        })
    }
}
