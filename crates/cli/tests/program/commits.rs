//! `foreshore bench elr` and `foreshore bench killpolicy` from outside.

use std::process::{Command, Output};

fn foreshore(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foreshore")).args(arguments.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn comparisons_of_commits_have_a_row_for_each_side() {
    let tiny =
        "--log-latency 0 --branches 2 --accounts 50 --threads 3 --seconds 0.1 --warm-up 0 --rounds 1 --json";
    let elr = |seconds: &str| -> serde_json::Value {
        let tiny = tiny.replace("--seconds 0.1", &format!("--seconds {seconds}"));
        let output = foreshore(&format!("bench elr --read-ratio 0,1 --elr off,shared_and_exclusive {tiny}"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    // On a slow machine nothing may come about in so short a time.
    let is_enough = |report: &serde_json::Value| {
        report["rows"].as_array().unwrap().iter().all(|row| row["commits"].as_u64() > Some(0))
    };
    let mut report = elr("0.1");
    for seconds in ["1", "10"] {
        if !is_enough(&report) {
            report = elr(seconds);
        }
    }
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((&report["workload"], &report["consistent"], rows.len()), (&"elr".into(), &true.into(), 4));
    assert_eq!((&rows[1]["side"], &rows[1]["read_ratio"]), (&"shared_and_exclusive".into(), &0.0.into()));
    assert!(rows.iter().all(|row| row["commits_per_s"].as_f64().unwrap() > 0.0), "{report}");
    assert!(rows.iter().all(|row| row["commits"].as_u64().unwrap() > 0), "{report}");
    assert_eq!(rows[0]["ratio"], 1.0);
    let deadlocks = |row: &serde_json::Value| row["deadlocks_per_1000"].as_f64().unwrap();
    assert_eq!(
        (deadlocks(&rows[1]), deadlocks(&rows[3])),
        (0.0, 0.0),
        "one transaction alone never deadlocks"
    );

    // Threads that wait for their commits: no pipeline, no deadlock, no more commits in a flush than threads.
    let sync = |seconds: &str| -> serde_json::Value {
        let tiny = tiny.replace("--seconds 0.1", &format!("--seconds {seconds}"));
        let output = foreshore(&format!(
            "bench elr --durability sync --read-ratio 0 --elr off,shared_and_exclusive {tiny}"
        ));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    // On a slow disk there are too few flushes in so short a time: one at its edge counts for much.
    let is_shared = |row: &serde_json::Value| row["commits_per_flush"].as_f64().is_some_and(|all| all <= 3.5);
    let are_shared = |report: &serde_json::Value| report["rows"].as_array().unwrap().iter().all(is_shared);
    let mut report = sync("0.1");
    for seconds in ["1", "10"] {
        if !are_shared(&report) {
            report = sync(seconds);
        }
    }
    assert_eq!((&report["durability"], &report["consistent"]), (&"sync".into(), &true.into()));
    assert!(are_shared(&report), "{report}");
    assert!(report["rows"].as_array().unwrap().iter().all(|row| deadlocks(row) == 0.0), "{report}");

    let output = foreshore(&format!(
        "bench killpolicy --policy shortest_pipeline {}",
        tiny.replace("--json", "--quiet")
    ));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("shortest_pipeline"));
    let wrong = foreshore("bench elr --log-latency 30");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        text(&wrong.stderr).contains("30us") || text(&wrong.stderr).contains("100ms"),
        "{}",
        text(&wrong.stderr)
    );
}
