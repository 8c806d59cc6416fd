//! What is measured beside the workloads: latches, and variants of the engine side by side.

use std::{path::Path, process::ExitCode};

use foreshore_bench::{Report, Silent};
use foreshore_env::sim::{self, World};

use super::{REMOTE_COSTS, RETENTIONS, settings};
use crate::{
    bench::{
        commit::Trial,
        ladder::{self, LadderArgs},
        latch::{self, LatchArgs},
    },
    output::{CliError, json_line, line},
    simulate::{MachineArgs, speed::tell_speed},
};

/// A comparison cannot run on several machines in turn.
fn check_one_machine(machine: &MachineArgs) -> Result<(), CliError> {
    if machine.bands {
        return Err(CliError::usage("this is itself a comparison", "leave out --bands"));
    }
    Ok(())
}

/// One run of a comparison, on a machine of its own, which has as many cores as the run has threads if nothing else was said.
pub(super) fn trial(trial: &Trial, machine: &MachineArgs) -> Result<Report, CliError> {
    check_one_machine(machine)?;
    let settings = settings(machine, machine.cores.unwrap_or(trial.threads()), trial.seed())?;
    let run = || trial.run(Path::new("/bench"), &Silent).map_err(|error| error.to_string());
    let simulated = sim::simulate(&settings, run);
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    simulated.result.map_err(CliError::Other)
}

/// The ladder, all steps on one machine.
pub(super) fn climb(args: &LadderArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    check_one_machine(machine)?;
    let cores = machine.cores.unwrap_or_else(|| args.comparison.most_threads());
    let settings = settings(machine, cores, args.comparison.seed())?;
    let simulated = sim::simulate(&settings, || args.measure().map_err(|error| error.to_string()));
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    tell_speed(simulated.accesses, 0.0);
    ladder::print(args, &simulated.result.map_err(CliError::Other)?)
}

/// Latches on the simulated machine; with `--bands` on all of them.
pub(super) fn latches(args: &LatchArgs, machine: &MachineArgs) -> Result<ExitCode, CliError> {
    let cores = machine.cores.unwrap_or_else(|| args.most_threads());
    let machines: Vec<MachineArgs> = if machine.bands {
        let all = REMOTE_COSTS.iter().flat_map(|&remote| RETENTIONS.map(|retention| (remote, retention)));
        all.map(|(remote, retention)| MachineArgs { retention: Some(retention), remote, ..machine.clone() })
            .collect()
    } else {
        vec![machine.clone()]
    };
    for machine in machines {
        let settings = settings(&machine, cores, 1)?;
        let simulated = sim::simulate(&settings, || latch::measure(args).map_err(|error| error.to_string()));
        let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
        tell_speed(simulated.accesses, 0.0);
        let report = simulated.result.map_err(CliError::Other)?;
        if args.json() {
            json_line(&report)?;
            continue;
        }
        let World::Machine { profile, .. } = &settings.world else { unreachable!("made above") };
        line(format!(
            "{cores} cores of {} at {} GHz, retention {} %, remote {} %",
            profile.name, profile.gigahertz, profile.retention_percent, machine.remote
        ))?;
        line(latch::text(&report).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}
