//! `foreshore bench dreadlocks` and `foreshore bench nodeadlock`: policies against deadlocks where there are none
//! (Kimura et al. 2012, Figures 5 and 6).

use clap::{Args, builder::PossibleValuesParser};
use foreshore_bench::{Tellers, Tpcb, Variant};

use crate::{
    bench::comparison::{ComparisonArgs, SideBySide},
    output::CliError,
};

#[derive(Args)]
#[command(after_help = DREADLOCKS_EXAMPLES)]
pub(crate) struct DreadlocksArgs {
    /// How waiters pass their time: as on the road, or as in the paper (digests are Bloom filters there, and a
    /// transaction that finds itself in one gives way at once).
    #[arg(long, value_name = "WAY,…", value_delimiter = ',', default_value = "road,spin,sleep,backoff,hybrid",
          value_parser = PossibleValuesParser::new(["road", "spin", "sleep", "backoff", "hybrid"]))]
    wait: Vec<String>,
    /// Branches of TPC-B.
    #[arg(long, value_name = "B", default_value_t = 20)]
    branches: u32,
    /// Accounts of each branch; the paper has 100,000.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    accounts: u32,
    /// Confirm what is suspected before anybody gives way, in the paper's ways of waiting, too.
    #[arg(long)]
    confirm: bool,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

const DREADLOCKS_EXAMPLES: &str = "\
Examples:
  foreshore bench dreadlocks                                 original TPC-B, 1 to 500 threads
  foreshore bench dreadlocks --threads 1,2,3,4,6,8 --seconds 10
  foreshore bench dreadlocks --wait sleep,backoff --branches 1 --confirm

Transactions lock account, teller and branch in this order: there are no deadlocks. So whoever gives way (aborts, precaut.)
does so for nothing; with --confirm nobody does, and refuted counts the suspicions.

Interrupted, it prints what was measured until then: with --json there is \"partial\":true, beside the error.";

#[derive(Args)]
#[command(after_help = NODEADLOCK_EXAMPLES)]
pub(crate) struct NodeadlockArgs {
    /// Policies: those of the option deadlock_policy (the first is the road's), or ways of waiting of `bench
    /// dreadlocks`.
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',',
          default_value = "dreadlocks,backoff,wait_for_graph,wound_wait,wait_die",
          value_parser = PossibleValuesParser::new(["dreadlocks", "wait_for_graph", "wound_wait", "wait_die", "timeout",
                                                    "no_wait", "spin", "sleep", "backoff", "hybrid"]))]
    policies: Vec<String>,
    /// Tellers.
    #[arg(long, value_name = "N", default_value_t = 200)]
    tellers: u32,
    /// Tellers that a transaction updates, in the order of their keys.
    #[arg(long, value_name = "N", default_value_t = 5)]
    updates: u32,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

const NODEADLOCK_EXAMPLES: &str = "\
Examples:
  foreshore bench nodeadlock                                 5 of 200 tellers, 1 to 500 threads
  foreshore bench nodeadlock --policies dreadlocks,wait_die --threads 1,2,10,60 --tellers 50

Everybody updates tellers in the same order: there are no deadlocks, and whoever gives way (aborts) does so for nothing.

Interrupted, it prints what was measured until then: with --json there is \"partial\":true, beside the error.";

/// The engine with a policy, or with a way of waiting. `confirm`: what the latter suspect.
fn variant(name: &str, confirm: bool) -> Variant {
    let policy = match name {
        "road" => "dreadlocks",
        "spin" => "dreadlocks_spin",
        "sleep" => "dreadlocks_sleep",
        "backoff" => "dreadlocks",
        "hybrid" => "dreadlocks_hybrid",
        policy => policy,
    };
    let mut settings = vec![("deadlock_policy", policy)];
    if matches!(name, "spin" | "sleep" | "backoff" | "hybrid") {
        settings.push(("deadlock_digests", "bloom"));
        settings.push(("deadlock_confirmation", if confirm { "true" } else { "false" }));
    }
    let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Variant { name: name.to_owned(), settings, locking: true }
}

/// Refuses settings that would make another variant of each.
fn check(comparison: &ComparisonArgs, instead: &str) -> Result<(), CliError> {
    for option in ["deadlock_policy", "deadlock_digests", "deadlock_confirmation"] {
        if comparison.setting(option).is_some() {
            let message = format!("--set {option}=… is what this compares");
            return Err(CliError::usage(message, format!("choose by {instead}")));
        }
    }
    Ok(())
}

impl DreadlocksArgs {
    /// What is compared.
    pub(crate) fn side_by_side(&self) -> Result<SideBySide<'_>, CliError> {
        check(&self.comparison, "--wait and --confirm")?;
        Ok(SideBySide {
            experiment: "dreadlocks",
            workload: Box::new(Tpcb::new(self.branches, self.accounts, 0)?),
            variants: self.wait.iter().map(|name| variant(name, self.confirm)).collect(),
            args: &self.comparison,
        })
    }
}

impl NodeadlockArgs {
    /// What is compared.
    pub(crate) fn side_by_side(&self) -> Result<SideBySide<'_>, CliError> {
        check(&self.comparison, "--policies")?;
        Ok(SideBySide {
            experiment: "nodeadlock",
            workload: Box::new(Tellers::new(self.tellers, self.updates)?),
            variants: self.policies.iter().map(|name| variant(name, false)).collect(),
            args: &self.comparison,
        })
    }
}
