//! `foreshore simulate`.

use std::process::{Command, Output};

fn simulate(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_foreshore");
    Command::new(program).arg("simulate").args(args).output().unwrap()
}

#[cfg(not(foreshore_sim))]
#[test]
fn the_usual_build_says_how_to_simulate() {
    let output = simulate(&["bench", "tpcb", "--cores", "4"]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("cargo sim simulate"), "{message}");
}

/// One seed gives one run, to the byte: in two processes, whose addresses and environments differ.
#[cfg(foreshore_sim)]
#[test]
fn the_whole_engine_runs_the_same_again() {
    let tpcb =
        "bench tpcb --branches 4 --accounts 200 --threads 6 --cores 4 --seconds 0.002 --warm-up 0.001 --json";
    let run = |seed: &str, seen: &str| {
        let args: Vec<&str> = tpcb.split(' ').chain(["--seed", seed]).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_foreshore"));
        let output = command.arg("simulate").args(args).env("SOMETHING", seen).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let first = run("1", "short");
    assert!(first.contains("\"consistent\":true") && first.contains("\"hottest_lines\":[{"), "{first}");
    assert_eq!(first, run("1", "something much longer than that"));
    assert_ne!(first, run("2", "short"));
}

#[cfg(foreshore_sim)]
#[test]
fn impossible_machines_are_refused() {
    for args in [["--profile", "abacus"], ["--device", "drum"], ["--cores", "5000"]] {
        let output = simulate(&[&["bench", "insert", "--threads", "1"], &args[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}
