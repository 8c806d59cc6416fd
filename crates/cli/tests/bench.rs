//! The program `foreshore bench` from outside: exit status, output for people and for programs.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

fn foreshore(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foreshore")).args(arguments.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs successfully and returns the JSON object on the last line.
fn report(arguments: &str) -> serde_json::Value {
    let output = foreshore(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments}: {}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert_eq!(printed.lines().count(), 1, "{printed}");
    serde_json::from_str(printed.lines().last().unwrap()).unwrap()
}

#[test]
fn every_workload_reports_json_with_stable_names() {
    let quick = "--engine btreemap --seconds 0.1 --warm-up 0 --json";
    for workload in [
        "tpcb --branches 1 --accounts 100",
        "ycsb --records 1000 --distribution zipf:0.8",
        "insert --threads 2 --commit-every 10",
        "scan --records 2000 --length 100",
    ] {
        let report = report(&format!("bench {workload} {quick}"));
        assert_eq!(report["workload"], workload.split(' ').next().unwrap());
        assert_eq!(
            (&report["engine"], &report["consistent"]),
            (&"btreemap".into(), &true.into()),
            "{report}"
        );
        assert!(report["commits_per_s"].as_f64().unwrap() > 0.0);
        assert!(report["latency_us"]["p99"].is_number() && report["aborts"]["deadlock"].is_number());
        assert_eq!(report["options"]["durability"], "sync");
    }
}

#[test]
fn foreshore_keeps_its_directory_when_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let run = format!(
        "bench tpcb --branches 1 --accounts 100 --seconds 0.1 --durability lazy --set pool_bytes=2MiB --json --dir {}",
        path.display()
    );
    let report = report(&run);
    assert_eq!((&report["engine"], &report["consistent"]), (&"foreshore".into(), &true.into()));
    assert_eq!(report["options"]["pool_bytes"], "2MiB");
    assert!(path.join("control").exists());
    let again = foreshore(&run);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("name a new directory"));
}

#[test]
fn a_temporary_directory_does_not_stay() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .args("bench insert --threads 1 --commit-every 10 --seconds 0.1 --durability lazy --quiet".split(' '))
        .env("TMPDIR", directory.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn iterations_are_exact() {
    let report = report("bench tpcb --engine btreemap --branches 1 --accounts 100 --iterations 500 --json");
    assert_eq!((&report["commits"], &report["threads"]), (&500.into(), &1.into()));
}

#[test]
fn transactions_can_be_planned() {
    for workload in ["ycsb --records 500 --distribution hot:4:50", "tpcb --branches 1 --accounts 100"] {
        for execution in ["planned", "reconnaissance"] {
            let report = report(&format!(
                "bench {workload} --execution {execution} --seconds 0.1 --warm-up 0 --durability lazy --set pool_bytes=2MiB --json"
            ));
            assert_eq!(report["options"]["execution"], execution);
            assert_eq!((&report["consistent"], &report["counters"]["deadlocks"]), (&true.into(), &0.into()));
            assert!(report["commits"].as_u64().unwrap() > 0);
        }
    }
}

#[test]
fn the_summary_names_the_checks() {
    let output = foreshore("bench tpcb --engine btreemap --branches 1 --accounts 100 --seconds 0.1");
    assert_eq!(output.status.code(), Some(0));
    let printed = text(&output.stdout);
    for part in ["commits/s", "p99", "holds  branches", "consistent: all 4 checks hold"] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    assert!(text(&output.stderr).contains("running"), "phases are told on standard error");
    let quiet = foreshore("bench tpcb --engine btreemap --branches 1 --accounts 100 --seconds 0.1 --quiet");
    assert_eq!(text(&quiet.stderr), "");
}

#[test]
fn wrong_usage_is_status_2_and_says_what_to_do() {
    for (arguments, part) in [
        ("bench", "Usage"),
        ("bench tpcd", "tpcc"),
        ("bench tpcb --engine oracle", "btreemap"),
        ("bench tpcb --engine btreemap --set pool_bytes", "option=value"),
        ("bench tpcb --engine btreemap --set pool_bytes=1MiB", "pool_bytes"),
        ("bench tpcb --engine btreemap --dir /nowhere", "leave out --dir"),
        ("bench tpcb --set pool_size=1MiB", "pool_bytes"),
        ("bench tpcb --set pool_bytes=big", "16MiB"),
        ("bench tpcb --branches 0", "1..=10000"),
        ("bench tpcc --mix all", "neworder-payment"),
        ("bench ycsb --execution conventional", "reconnaissance"),
        ("bench ycsb --engine btreemap --execution planned", "leave out --execution"),
        ("bench tpcc --seconds=-3", "seconds"),
        ("bench tpcc --iterations 5 --threads 2", "cannot be used with"),
        ("bench ycsb --distribution zipf:2", "(0, 1)"),
    ] {
        let output = foreshore(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", text(&output.stdout));
        let message = text(&output.stderr);
        assert!(message.contains(part), "{arguments}: {part:?} is not in {message}");
    }
}

#[test]
fn help_has_examples() {
    for arguments in ["--help", "bench --help", "bench txbench --help"] {
        let output = foreshore(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("Examples:"), "{arguments}");
    }
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what} takes too long");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_interruption_ends_the_run_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .args("bench tpcb --seconds 60 --durability lazy --set pool_bytes=2MiB".split(' '))
        .env("TMPDIR", directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("making a database", || entries(directory.path()) == 1);
    let interrupted =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success();
    assert!(interrupted);
    let mut status = None;
    wait_for("ending the run", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(130));
    assert_eq!(entries(directory.path()), 0);
}

#[test]
fn latches_report_a_result_for_each_combination() {
    let report = report(
        "bench latch --latch all --threads 1,2 --mix read-only,contended --seconds 0.004 --rounds 2 --json",
    );
    assert_eq!(report["experiment"], "latch");
    let results = report["results"].as_array().unwrap();
    for latch in ["hybrid", "mcs", "parking_lot_rwlock"] {
        let own: Vec<_> = results.iter().filter(|result| result["latch"] == latch).collect();
        assert_eq!(own.len(), 4, "{latch}");
        assert!(own.iter().all(|result| result["ns"].as_f64().unwrap() > 0.0));
    }
    let output =
        foreshore("bench latch --latch hybrid --threads 1 --mix mixed --seconds 0.002 --rounds 1 --quiet");
    assert!(text(&output.stdout).contains("hybrid"), "{}", text(&output.stdout));
    let output = foreshore("bench latch --latch none --mix write-only --iterations 10");
    assert_eq!(text(&output.stdout), "none write-only: 10 acquisitions\n");
    let output = foreshore("bench latch --latch spinlock");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("queuing_rw"), "{}", text(&output.stderr));
}

#[test]
fn txbench_compares_lock_tables() {
    let quick = "--keys 400 --threads 1,4 --seconds 0.06 --rounds 2 --warm-up 0.01 --set pool_bytes=4MiB";
    let compared = report(&format!("bench txbench --rows 10 --updates 0.2 --hot 0.5 {quick} --json"));
    assert_eq!((&compared["experiment"], &compared["consistent"]), (&"txbench".into(), &true.into()));
    assert_eq!(
        (&compared["options"]["hot"], &compared["options"]["durability"]),
        (&0.5.into(), &"lazy".into())
    );
    let results = compared["results"].as_array().unwrap();
    let found: Vec<_> = (results.iter())
        .map(|row| (row["threads"].as_u64().unwrap(), row["variant"].as_str().unwrap()))
        .collect();
    let tables = ["latched", "staged", "global_mutex"];
    assert_eq!(found, [1, 4].map(|threads| tables.map(|table| (threads, table))).concat());
    for row in results {
        assert!(row["commits_per_s"].as_f64().unwrap() > 0.0 && row["abort_ratio"].is_number(), "{row}");
        assert!(row["by_kind"]["read_only"]["latency_us"]["p99"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["counters"]["locks_released"].as_u64().unwrap() > 0, "{row}");
    }
    let output = foreshore(&format!("bench txbench --set lock_table=staged {quick} --quiet"));
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(printed.contains("staged") && !printed.contains("global_mutex"), "{printed}");
    assert!(
        printed.contains("read_only p50") && printed.contains("consistent: all 2 checks hold"),
        "{printed}"
    );
    for (arguments, part) in [
        ("bench txbench --rows 0", "1..=1000"),
        ("bench txbench --hot 2", "at most 1"),
        ("bench txbench --lock-tables listed", "global_mutex"),
        ("bench txbench --lock-tables latched --set lock_table=latched", "leave out"),
        ("bench txbench --lock-tables latched,latched", "itself"),
    ] {
        let output = foreshore(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(part), "{arguments}: {}", text(&output.stderr));
    }
}
