//! The same command in a process of its own, on another machine or for a part of it. A machine that comes after others
//! in one process is not what it is by itself: blocks that statics still have lie in its memory, and statics remember
//! what the others did.

use std::{
    ffi::OsString,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::Left;
use crate::{
    output::{CHECK_FAILED, CliError, refusal},
    own,
    simulate::MachineArgs,
};

/// Runs the command that this process was given on one of the machines of `--bands`, or on its own machine, with some
/// `more` arguments. Gives its report.
pub(super) fn again(machine: &MachineArgs, more: &[String]) -> Result<Value, CliError> {
    let program = own::program().map_err(CliError::io("find this program"))?;
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut command = Command::new(program);
    command.args(arguments(&given, machine)).args(more);
    let child = own::leash(&mut command).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
    let mut child = child.map_err(CliError::io("start another process"))?;
    // It ends when this does, which would be dropped before it is waited for.
    let _leash = child.stdin.take();
    let output = child.wait_with_output().map_err(CliError::io("watch another process"))?;
    let understood = understand(&String::from_utf8_lossy(&output.stdout), output.status.code());
    understood.map_err(|left| {
        let message = format!("{}: {}", described(machine), left.message);
        Left { message, ..left }.into()
    })
}

/// The arguments for another machine than that of the command, if it has `--bands` and the machine is one of those.
fn arguments(given: &[OsString], machine: &MachineArgs) -> Vec<OsString> {
    let is_other = given.iter().any(|it| it == "--bands") && machine.retention.is_some();
    let mut arguments: Vec<OsString> =
        given.iter().filter(|it| *it != "--bands" && *it != "--json").cloned().collect();
    arguments.push("--json".into());
    if let (true, Some(retention)) = (is_other, machine.retention) {
        let options = [("--retention", retention), ("--remote", machine.remote)];
        arguments
            .extend(options.into_iter().flat_map(|(name, value)| [name.into(), value.to_string().into()]));
    }
    arguments
}

/// A report, which is the last line, or why there is none.
fn understand(text: &str, status: Option<i32>) -> Result<Value, Left> {
    let last = text.trim_end().lines().last().unwrap_or_default();
    let has_found = status == Some(i32::from(CHECK_FAILED));
    if let Some((code, message)) = refusal(last) {
        return Err(Left { code, is_finding: has_found, message });
    }
    let broken = |why: &str| Left { code: String::new(), is_finding: false, message: why.to_owned() };
    let report = serde_json::from_str(last).map_err(|_| broken("it ended without a report"))?;
    if has_found || status == Some(0) { Ok(report) } else { Err(broken("it failed after its report")) }
}

pub(super) fn described(machine: &MachineArgs) -> String {
    match machine.retention {
        Some(retention) => {
            format!("the machine with retention {retention} % and remote {} %", machine.remote)
        }
        None => "a machine of its own".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(retention: Option<u64>, remote: u64) -> MachineArgs {
        MachineArgs {
            cores: None,
            profile: "vm2".to_owned(),
            device: "plp".to_owned(),
            retention,
            remote,
            bands: false,
        }
    }

    #[test]
    fn the_command_is_the_same_but_for_the_machine() {
        let of = |given: &str, machine| {
            let given: Vec<OsString> = given.split(' ').map(OsString::from).collect();
            let arguments = arguments(&given, &machine);
            arguments.iter().map(|it| it.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            of("simulate bench elr --json --bands --cores 2", machine(None, 100)),
            "simulate bench elr --cores 2 --json"
        );
        assert_eq!(
            of("simulate bench elr --bands --cores 2", machine(Some(50), 150)),
            "simulate bench elr --cores 2 --json --retention 50 --remote 150"
        );
        assert_eq!(
            of("simulate bench elr --retention 50", machine(Some(50), 100)),
            "simulate bench elr --retention 50 --json"
        );
    }

    #[test]
    fn a_process_without_a_report_says_why() {
        assert_eq!(understand("loading\n{\"rows\": [0.1]}\n", Some(1)).unwrap()["rows"][0], 0.1);
        assert!(understand("", Some(0)).is_err() && understand("{\"rows\": []}", Some(2)).is_err());
        assert!(understand("{\"rows\": []}", None).is_err());
    }

    /// All of them were told as any other trouble.
    #[test]
    fn what_another_process_has_met_keeps_its_kind() {
        for (code, status, kept) in [
            ("usage", 2, "usage"),
            ("inconsistent", 1, "inconsistent"),
            ("io", 2, "other"),
            ("corrupted", 1, "inconsistent"),
        ] {
            let text = format!("{{\"error\": {{\"code\": \"{code}\", \"message\": \"no such thing\"}}}}");
            let error = CliError::from(understand(&text, Some(status)).unwrap_err());
            assert_eq!((error.code(), error.is_finding()), (kept, status == 1), "{code}");
            assert_eq!(error.to_string(), "no such thing");
        }
    }
}
