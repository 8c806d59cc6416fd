//! The same on machines that are a little different (`--bands`): what all of them agree on may be believed.

use std::process::ExitCode;

use foreshore_env::sim::Profile;
use serde::Serialize;
use serde_json::{Value, json};

use super::again::{again, described};
use crate::{
    output::{CliError, json_line, judged, line},
    simulate::MachineArgs,
};

/// Percent of a transfer for which the old owner of a line keeps it.
const RETENTIONS: [u64; 2] = [0, 50];
/// Percent of the costs of what is remote.
const REMOTE_COSTS: [u64; 3] = [50, 100, 150];
/// The same where all cores are near each other: other costs would make the same machine.
const NOTHING_REMOTE: [u64; 1] = [100];
/// What people are told there.
pub(super) const WITHOUT_REMOTE: &str = "all cores are near each other, so that remote costs play no part: the other machines differ in retention alone";

/// The machines of `--bands`, if they are asked for. The machine has as many cores as `threads` if nothing else was
/// said.
pub(super) fn machines(machine: &MachineArgs, threads: usize) -> Vec<MachineArgs> {
    let costs = if has_remote(machine, threads) { &REMOTE_COSTS[..] } else { &NOTHING_REMOTE };
    let all = costs.iter().flat_map(|&remote| RETENTIONS.map(|retention| (remote, retention)));
    let of = |(remote, retention)| MachineArgs {
        retention: Some(retention),
        remote,
        bands: false,
        ..machine.clone()
    };
    if machine.bands { all.map(of).collect() } else { Vec::new() }
}

/// Whether the machine has cores that are remote from each other. One that does not exist is taken to have some: it is
/// refused later.
pub(super) fn has_remote(machine: &MachineArgs, threads: usize) -> bool {
    let cores = machine.cores.unwrap_or(threads);
    Profile::named(&machine.profile).is_none_or(|profile| profile.has_remote(cores))
}

/// Where the rows of a report are, what tells them apart, and which of their figures people are shown.
pub(super) struct Rows {
    /// The array, as a JSON pointer.
    pub(super) place: &'static str,
    pub(super) names: &'static [&'static str],
    pub(super) figure: &'static str,
    pub(super) unit: &'static str,
}

/// Measures on the machine, of as many cores as `threads` if nothing else was said, and prints what came of it; with
/// `--bands` on the others, too, each in a process of its own, and each row has the rows of the others in it. `measure`
/// is told whether what it says meanwhile is for people who read it.
pub(super) fn show<R: Serialize>(
    rows: &Rows,
    (machine, threads): (&MachineArgs, usize),
    json: bool,
    measure: impl FnOnce(&MachineArgs, bool) -> Result<R, CliError>,
    print: impl FnOnce(&R) -> Result<ExitCode, CliError>,
) -> Result<ExitCode, CliError> {
    show_with(rows, (machine, threads), json, measure, |other| again(other, &[]), print)
}

/// The same, with another way to the reports of other machines.
fn show_with<R: Serialize>(
    rows: &Rows,
    (machine, threads): (&MachineArgs, usize),
    json: bool,
    measure: impl FnOnce(&MachineArgs, bool) -> Result<R, CliError>,
    elsewhere: impl Fn(&MachineArgs) -> Result<Value, CliError>,
    print: impl FnOnce(&R) -> Result<ExitCode, CliError>,
) -> Result<ExitCode, CliError> {
    let report = measure(machine, !json)?;
    let machines = machines(machine, threads);
    if machines.is_empty() {
        return print(&report);
    }
    let mut whole = value(&report)?;
    if !json {
        print(&report)?;
    }
    let mut inconsistent = Vec::new();
    for other in &machines {
        let measured = elsewhere(other)?;
        if !is_consistent(&measured) {
            inconsistent.push(described(other));
        }
        add(rows, &mut whole, &measured, other);
    }
    let printed = if json {
        json_line(&whole)
    } else {
        print_rows(rows, &whole)
            .and_then(|()| if has_remote(machine, threads) { Ok(()) } else { line(WITHOUT_REMOTE) })
            .and_then(|()| inconsistent.iter().try_for_each(|which| line(format!("INCONSISTENT: {which}"))))
    };
    judged(printed, is_consistent(&whole))
}

fn print_rows(rows: &Rows, whole: &Value) -> Result<(), CliError> {
    let Rows { figure, unit, .. } = rows;
    line(format!(
        "\n  {unit} on this machine, and the least and the most on it and on machines that are a little different"
    ))?;
    let mut found = whole.pointer(rows.place).and_then(Value::as_array).into_iter().flatten();
    found.try_for_each(|row| line(text(rows.names, figure, row)))
}

fn value(report: &impl Serialize) -> Result<Value, CliError> {
    serde_json::to_value(report).map_err(|error| CliError::Other(error.to_string()))
}

/// What has no checks has none that fail.
pub(super) fn is_consistent(report: &Value) -> bool {
    report.get("consistent").and_then(Value::as_bool) != Some(false)
}

/// Puts the rows of another machine into those of this one: they come in the same order. A check that fails there fails
/// all.
fn add(rows: &Rows, whole: &mut Value, measured: &Value, other: &MachineArgs) {
    if !is_consistent(measured) {
        whole["consistent"] = json!(false);
    }
    let theirs = measured.pointer(rows.place).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let own = whole.pointer_mut(rows.place).and_then(Value::as_array_mut).into_iter().flatten();
    for (row, theirs) in own.zip(theirs) {
        let mut band = theirs.clone();
        band["retention_percent"] = json!(other.retention);
        band["remote_percent"] = json!(other.remote);
        match row.get_mut("bands").and_then(Value::as_array_mut) {
            Some(bands) => bands.push(band),
            None => row["bands"] = json!([band]),
        }
    }
}

fn text(names: &[&str], figure: &str, row: &Value) -> String {
    let number = |row: &Value| row[figure].as_f64().unwrap_or(f64::NAN);
    let bands = row["bands"].as_array().map_or(&[][..], Vec::as_slice).iter().map(number);
    let own = number(row);
    let (least, most) = bands.fold((own, own), |(least, most), it| (least.min(it), most.max(it)));
    let name = |name: &&str| row[*name].as_str().map_or_else(|| row[*name].to_string(), str::to_owned);
    let names: Vec<String> = names.iter().map(name).collect();
    let digits = if own.abs() < 100.0 { 4 } else { 0 };
    format!("  {:<48}{:>16.digits$} ({least:.digits$} to {most:.digits$})", names.join(", "), own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::CHECK_FAILED;

    const ROWS: Rows = Rows { place: "/rows", names: &["kind", "threads"], figure: "rate", unit: "/s" };

    fn machine(bands: bool) -> MachineArgs {
        MachineArgs {
            cores: None,
            profile: "vm2".to_owned(),
            device: "plp".to_owned(),
            retention: None,
            remote: 100,
            bands,
        }
    }

    #[test]
    fn six_other_machines_are_measured_where_they_are_asked_for() {
        let of = |machine: &MachineArgs, threads| -> Vec<_> {
            machines(machine, threads).iter().map(|it| (it.retention.unwrap(), it.remote)).collect()
        };
        assert!(of(&machine(false), 129).is_empty());
        let two_sockets = of(&machine(true), 129);
        assert_eq!(two_sockets.len(), 6);
        assert!(two_sockets.contains(&(0, 150)) && two_sockets.contains(&(50, 50)));
        // One was measured three times with each retention.
        assert_eq!(of(&machine(true), 128), [(0, 100), (50, 100)]);
        assert_eq!(of(&MachineArgs { cores: Some(129), ..machine(true) }, 2), two_sockets);
    }

    #[test]
    fn each_row_has_those_of_the_other_machines() {
        let mut whole = json!({"rows": [{"kind": "a", "threads": 1, "rate": 200.0}, {"kind": "b", "threads": 1, "rate": 0.5}]});
        for (rate, other) in [(100.0, 0.25), (400.0, 0.75)] {
            let measured = json!({"rows": [{"kind": "a", "rate": rate}, {"kind": "b", "rate": other}]});
            add(&ROWS, &mut whole, &measured, &machine(true));
        }
        assert!(whole.get("consistent").is_none(), "{whole}");
        add(&ROWS, &mut whole, &json!({"consistent": false}), &machine(true));
        assert_eq!(whole["consistent"], false);
        assert_eq!(whole["rows"][0]["bands"][1]["rate"], 400.0);
        assert_eq!(whole["rows"][1]["bands"][0]["remote_percent"], 100);
        // Within the band whatever the others say.
        whole["rows"][1]["rate"] = json!(1.5);
        let told = |row: usize| text(ROWS.names, ROWS.figure, &whole["rows"][row]);
        assert!(told(0).contains("a, 1") && told(0).contains("200 (100 to 400)"), "{}", told(0));
        assert!(told(1).contains("1.5000 (0.2500 to 1.5000)"), "{}", told(1));
    }

    #[test]
    fn a_check_that_fails_on_another_machine_fails_all() {
        let run = |bands| {
            let report = |on: &MachineArgs| {
                Ok(
                    json!({"consistent": on.retention != Some(50), "rows": [{"kind": "a", "threads": 1, "rate": 1}]}),
                )
            };
            let printed = |_: &Value| Ok(ExitCode::SUCCESS);
            show_with(&ROWS, (&machine(bands), 2), true, |on, _| report(on), report, printed).ok()
        };
        assert_eq!(run(false), Some(ExitCode::SUCCESS));
        assert_eq!(run(true), Some(ExitCode::from(CHECK_FAILED)));
    }
}
