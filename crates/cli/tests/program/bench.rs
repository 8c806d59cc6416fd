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

/// The report of a short run. One in which too little came about, on a slow machine or disk, is done again, and lasts
/// longer.
fn long_enough(arguments: &str, is_enough: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let mut found = report(arguments);
    for factor in [8.0, 64.0] {
        if is_enough(&found) {
            break;
        }
        found = report(&lengthened(arguments, factor));
    }
    found
}

/// The same with more seconds.
fn lengthened(arguments: &str, factor: f64) -> String {
    let mut words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
    let place = words.iter().position(|word| word == "--seconds").unwrap() + 1;
    words[place] = (words[place].parse::<f64>().unwrap() * factor).to_string();
    words.join(" ")
}

/// Whether this figure of all these rows is more than 0.
fn have_all(rows: &serde_json::Value, figure: &str) -> bool {
    rows.as_array().unwrap().iter().all(|row| row[figure].as_f64() > Some(0.0))
}

fn has_commits(report: &serde_json::Value) -> bool {
    report["commits"].as_u64() > Some(0)
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
        let report = long_enough(&format!("bench {workload} {quick}"), has_commits);
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

/// It said that it had measured for the time that is the default.
#[test]
fn records_of_the_log_are_counted_or_timed() {
    let counted = report("bench log --insert mutex --threads 1 --iterations 500 --json");
    assert_eq!((&counted["seconds"], &counted["iterations"]), (&serde_json::Value::Null, &500.into()));
    let timed = report("bench log --insert mutex --threads 1 --seconds 0.03 --json");
    assert_eq!((&timed["seconds"], timed.get("iterations")), (&0.03.into(), None));
    let output = foreshore("bench log --insert mutex --threads 2 --iterations 500");
    assert!(text(&output.stdout).contains("records of 120 bytes, 500 by each thread"));
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
            let arguments = format!(
                "bench {workload} --execution {execution} --seconds 0.1 --warm-up 0 --durability lazy --set pool_bytes=2MiB --json"
            );
            let report = long_enough(&arguments, has_commits);
            assert_eq!(report["options"]["execution"], execution);
            assert_eq!((&report["consistent"], &report["counters"]["deadlocks"]), (&true.into(), &0.into()));
            assert!(report["commits"].as_u64().unwrap() > 0);
        }
    }
}

/// Threads of the engine run the transactions; each footprint takes one message more than it has partitions.
#[test]
fn transactions_can_be_given_to_threads_of_the_engine() {
    let arguments = "bench ycsb --records 500 --distribution hot:4:50 --execution partitioned --in-flight 8 --threads 2 \
                     --set control_threads=3 --seconds 0.2 --warm-up 0 --durability lazy --set pool_bytes=2MiB";
    let report = long_enough(&format!("{arguments} --json"), has_commits);
    assert_eq!((&report["options"]["in_flight"], &report["consistent"]), (&8.into(), &true.into()));
    let counter = |name: &str| report["counters"][format!("partitioned_{name}")].as_u64().unwrap();
    assert!(counter("done") >= report["commits"].as_u64().unwrap() && counter("done") > 0);
    assert_eq!(counter("messages"), counter("visits") + counter("footprints"));
    assert!(
        counter("visits") > counter("footprints"),
        "ten records lie in more than one of three partitions"
    );
    assert_eq!((counter("in_flight"), counter("queued")), (0, 0));
    let printed = text(&foreshore(arguments).stdout);
    assert!(printed.contains("for each footprint"), "{printed}");
    let report = self::report(
        "bench tpcb --branches 1 --accounts 100 --execution partitioned --iterations 300 --json",
    );
    assert_eq!((&report["commits"], &report["consistent"]), (&300.into(), &true.into()));
}

/// The engine's threads draw the transactions themselves: of all workloads, foreseen and not, split and not; what they
/// count is what the checks find.
#[test]
fn threads_of_the_engine_can_draw_transactions_themselves() {
    for workload in [
        "ycsb --records 500 --read-percent 0 --partitions 3 --partitions-per-transaction 1 --split",
        "ycsb --records 500 --distribution hot:4:50 --set automatic_threads=true",
        "tpcb --branches 1 --accounts 100",
        "tpcc --warehouses 2 --customers 20 --items 50 --by-name 0",
        "tpcc --warehouses 2 --customers 20 --items 50 --partitions 2 --mix neworder-payment",
    ] {
        let arguments = format!(
            "bench {workload} --execution partitioned --drawn-by engine --in-flight 4 --set execution_threads=3 --seconds 0.2 \
             --warm-up 0.05 --durability lazy --set pool_bytes=8MiB --json"
        );
        let report = long_enough(&arguments, has_commits);
        assert_eq!((&report["consistent"], &report["options"]["drawn_by"]), (&true.into(), &"engine".into()));
        assert_eq!(report["threads"], 3, "the engine's, which draw and run");
        let counter = |name: &str| report["counters"][format!("partitioned_{name}")].as_u64().unwrap();
        let commits = report["commits"].as_u64().unwrap();
        // Each of three times four clients draws its first transaction before time counts.
        assert!(counter("done") >= commits.max(12), "{workload}");
        assert_eq!((counter("in_flight"), counter("queued")), (0, 0));
        assert_eq!(counter("messages"), counter("visits") + counter("footprints"), "{workload}");
    }
}

/// Transactions stay in as many partitions as is asked for, and take one message more; in the other ways of running
/// them, and with a table for each partition, the same transactions are as consistent.
#[test]
fn transactions_touch_as_many_partitions_as_is_asked_for() {
    let run = |more: &str| {
        let arguments = format!(
            "bench ycsb --records 600 --read-percent 0 --partitions 4 --threads 2 --seconds 0.1 --warm-up 0 --durability lazy \
             --set pool_bytes=2MiB --json {more}"
        );
        long_enough(&arguments, has_commits)
    };
    for touched in [1, 2, 4] {
        let report = run(&format!("--execution partitioned --partitions-per-transaction {touched}"));
        assert_eq!(report["consistent"], true);
        let counter = |name: &str| report["counters"][format!("partitioned_{name}")].as_u64().unwrap();
        assert_eq!(counter("visits"), touched * counter("footprints"));
        assert_eq!(counter("messages"), (touched + 1) * counter("footprints"));
    }
    for execution in ["dynamic", "planned", "partitioned-store", "partitioned --set automatic_threads=true"] {
        for split in ["", "--split"] {
            let report = run(&format!("--execution {execution} --partitions-per-transaction 2 {split}"));
            assert_eq!(report["consistent"], true, "{execution} {split}");
            assert!(report["commits"].as_u64().unwrap() > 0);
            assert_eq!(report["options"]["partitions"], 4);
        }
    }
}

/// TPC-C whose warehouses are divided among partitions, with tables of their own: all its conditions hold.
#[test]
fn tpcc_can_be_split() {
    let split = "bench tpcc --warehouses 3 --customers 20 --items 50 --partitions 3 --split --threads 2 --seconds 0.2 \
                 --warm-up 0 --durability lazy --set pool_bytes=8MiB --json";
    for execution in ["dynamic", "planned", "partitioned", "partitioned-store"] {
        let arguments = format!("{split} --mix neworder-payment --execution {execution}");
        let report = long_enough(&arguments, has_commits);
        assert_eq!((&report["consistent"], &report["options"]["split"]), (&true.into(), &true.into()));
        assert!(report["commits"].as_u64().unwrap() > 0, "{execution}");
    }
    assert_eq!(report(split)["consistent"], true, "with the transactions that have to look rows up");
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
        ("bench compare --workloads tpcd", "rmw-zipf"),
        ("bench compare --engines oracle", "btreemap"),
        ("bench compare --set pool_bytes=1MiB", "engine.option=value"),
        ("bench compare --cache nan", "foreshore cannot be measured like this"),
        ("bench compare --set foreshore.nope=1", "there is no option \"nope\""),
        (
            "bench compare --engines btreemap,foreshore --set btreemap.nope=1",
            "btreemap cannot be measured like this",
        ),
        ("bench tpcb --set read_only=true", "leave out --set read_only=true"),
        ("bench tpcb --set create=false", "leave out --set create=false"),
        ("bench checkpoint tpcb --set create=false", "leave out --set create=false"),
        ("bench keyrange --set read_only=true", "leave out --set read_only=true"),
        ("bench tpcb --set durability=lazy", "overruled by --durability"),
        ("bench tpcb --set isolation=read_committed", "overruled by --isolation"),
        ("bench tpcb --execution planned --set execution=dynamic", "overruled by --execution"),
        ("bench compare --set foreshore.durability=sync", "overruled by --durability"),
        ("bench checkpoint tpcb --warm-up 1", "leave out --warm-up"),
        ("bench tpcb --set pool_size=1MiB", "pool_bytes"),
        ("bench tpcb --set pool_bytes=big", "16MiB"),
        ("bench tpcb --branches 0", "1..=10000"),
        ("bench tpcc --mix all", "neworder-payment"),
        ("bench ycsb --execution conventional", "reconnaissance"),
        ("bench ycsb --engine btreemap --execution planned", "leave out --execution"),
        ("bench ycsb --execution planned --in-flight 3", "--execution partitioned"),
        ("bench ycsb --drawn-by engine", "--execution partitioned"),
        ("bench ycsb --execution partitioned --drawn-by engine", "--durability lazy"),
        ("bench ycsb --execution partitioned --drawn-by engine --threads 2", "execution_threads"),
        ("bench tpcc --by-name 101", "0..=100"),
        ("bench ycsb --execution partitioned-store", "--partitions"),
        ("bench ycsb --partitions 2 --partitions-per-transaction 3", "1..=2"),
        ("bench ycsb --partitions-per-transaction random --multi-partition-percent 50", "say from how many"),
        (
            "bench ycsb --partitions 16 --partitions-per-transaction 1 --distribution hot:16 --hot-operations 2",
            "1..=1",
        ),
        ("bench elr --read-ratio 0.004", "whole percents"),
        ("bench elr --zipf 1,3", "0..=2"),
        ("bench elr --set log_latency=5ms", "use --log-latency"),
        ("bench killpolicy --set pipeline_length=5", "use --pipeline-length"),
        ("bench ycsb --split", "--partitions"),
        ("bench tpcc --split", "--partitions"),
        ("bench tpcb --partitions 2", "leave out --partitions"),
        ("bench tpcc --seconds=-3", "seconds"),
        ("bench tpcc --iterations 5 --threads 2", "cannot be used with"),
        ("bench ycsb --distribution zipf:2", "(0, 1)"),
    ] {
        let output = foreshore(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", text(&output.stdout));
        let message = text(&output.stderr);
        assert!(message.contains(part), "{arguments}: {part:?} is not in {message}");
        assert!(output.stdout.is_empty(), "{arguments}: {}", text(&output.stdout));
    }
    for arguments in [
        "bench tpcb --branches 0 --json",
        "bench txbench --rows 0 --json",
        "bench intent --absolute 200 --transactions 1000 --json",
        "bench tpcb --threads 1025 --json",
    ] {
        let output = foreshore(arguments);
        let told: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
        assert_eq!(told["error"]["code"], "usage", "{arguments}: {told}");
    }
}

/// That no directory can be made was an error of the benchmark, and what to do was not said.
#[test]
fn a_directory_that_cannot_be_made_is_told_alike_by_all() {
    for run in ["tpcb", "ladder", "log", "nodeadlock", "checkpoint tpcb"] {
        let output = foreshore(&format!("bench {run} --dir /no/such/place --json"));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &told["error"]["code"]), (Some(2), &"io".into()), "{run}: {told}");
        assert!(told["error"]["message"].as_str().unwrap().contains("check the path"), "{run}: {told}");
    }
}

#[test]
fn help_has_examples() {
    for arguments in [
        "--help",
        "bench --help",
        "bench compare --help",
        "bench txbench --help",
        "bench ladder --help",
        "compact --help",
        "drop --help",
        "bench locks --help",
        "bench intent --help",
        "bench nodeadlock --help",
    ] {
        let output = foreshore(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("Examples:"), "{arguments}");
    }
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < deadline, "{what} takes too long");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Interrupts a run once it has made its database in `directory`, which is for temporary ones, too; what it has
/// printed, and said.
#[track_caller]
fn interrupted(arguments: &str, directory: &Path) -> (String, String) {
    interrupted_when(arguments, directory, |_| entries(directory) == 1)
}

/// Interrupts a run, in `directory`, once its process is `ready`; what it has printed, and said.
#[track_caller]
fn interrupted_when(arguments: &str, directory: &Path, ready: impl Fn(u32) -> bool) -> (String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_foreshore"))
        .args(arguments.split(' '))
        .env("TMPDIR", directory)
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("getting ready", || ready(child.id()));
    let interrupted =
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success();
    assert!(interrupted);
    let mut status = None;
    wait_for("ending the run", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(130));
    let output = child.wait_with_output().unwrap();
    (text(&output.stdout), text(&output.stderr))
}

const LONG_RUNS: [&str; 2] =
    ["bench tpcb --seconds 60 --durability lazy --set pool_bytes=2MiB", "torture --seconds 60 --threads 2"];

#[test]
fn an_interruption_ends_the_run_and_leaves_nothing_behind() {
    for run in LONG_RUNS {
        let directory = tempfile::tempdir().unwrap();
        let (printed, said) = interrupted(run, directory.path());
        assert_eq!(entries(directory.path()), 0, "{run}");
        assert!(printed.is_empty() && said.contains("error: interrupted"), "{run}: {printed}{said}");
        let (printed, _) = interrupted(&format!("{run} --json"), directory.path());
        let told: serde_json::Value =
            serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
        assert_eq!(told["error"]["code"], "interrupted", "{run}");
    }
}

/// A signal that comes to the program alone, as of whoever supervises it, left the run that was under way to itself.
#[cfg(target_os = "linux")]
#[test]
fn an_interruption_ends_the_run_of_an_engine() {
    let directory = tempfile::tempdir().unwrap();
    let runs = std::cell::Cell::new(None);
    let run =
        "bench compare --engines foreshore --workloads read --small --rounds 1 --threads 1 --seconds 60";
    let (_, said) = interrupted_when(run, directory.path(), |program| {
        runs.set(child_of(program));
        runs.get().is_some()
    });
    assert!(said.contains("error: interrupted"), "{said}");
    // It was waited for before the program ended.
    let run = runs.take().unwrap();
    assert!(!Path::new(&format!("/proc/{run}")).exists(), "the run goes on");
    assert_eq!(entries(directory.path()), 0);
}

/// Who is killed cannot end the run that is under way, which went on for as long as it was told. Both would take longer
/// than is waited for.
#[cfg(target_os = "linux")]
#[test]
fn a_run_ends_with_whoever_started_it() {
    for starter in [
        "bench compare --engines foreshore --workloads read --small --rounds 1 --threads 1 --seconds 1000",
        "experiment run 3.3 --full --out answers",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut starter = Command::new(env!("CARGO_BIN_EXE_foreshore"))
            .args(starter.split(' '))
            .env("TMPDIR", directory.path())
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut run = None;
        wait_for("starting a run", || {
            run = child_of(starter.id());
            run.is_some()
        });
        starter.kill().unwrap();
        starter.wait().unwrap();
        let stat = format!("/proc/{}/stat", run.unwrap());
        // Who waits for it now may not do so soon: till then its state is Z (`proc(5)`).
        wait_for("the end of the run", || {
            fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
        });
    }
}

/// All was lost that had been measured.
#[cfg(target_os = "linux")]
#[test]
fn a_comparison_that_is_interrupted_tells_what_there_is() {
    let run = "bench compare --engines btreemap,foreshore --workloads read --small --rounds 1000 --threads 1 \
               --seconds 0.01 --warm-up 0 --cache 4MiB --json";
    let directory = tempfile::tempdir().unwrap();
    let runs = std::cell::RefCell::new(std::collections::BTreeSet::new());
    // The first round is over when there have been more runs than that has.
    let (printed, said) = interrupted_when(run, directory.path(), |program| {
        let mut runs = runs.borrow_mut();
        runs.extend(child_of(program));
        runs.len() > 3
    });
    assert!(said.contains("error: interrupted"), "{said}");
    let told: serde_json::Value =
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    assert_eq!((&told["error"]["code"], &told["partial"]), (&"interrupted".into(), &true.into()), "{told}");
    for (result, engine) in told["results"].as_array().unwrap().iter().zip(["btreemap", "foreshore"]) {
        assert!(result["engine"] == engine && result["commits_per_s"].is_number(), "{told}");
        assert!((1..1000).contains(&result["rounds"].as_array().unwrap().len()), "{told}");
    }
    assert_eq!((told["results"].as_array().unwrap().len(), entries(directory.path())), (2, 0));
}

/// By those that compare variants all was lost that had been measured.
#[test]
fn variants_that_are_interrupted_are_told_of_as_far_as_they_have_come() {
    let shared = "--threads 1 --rounds 1000 --warm-up 0";
    let commits = "--log-latency 0 --accounts 10 --seconds 0.02";
    for (run, rows, name) in [
        ("bench txbench --keys 1000 --lock-tables latched,staged --seconds 20", "/results", "staged"),
        ("bench ladder --steps final,road --commit-every 10 --seconds 20", "/ladder", "road"),
        (&format!("bench elr --elr off,shared --read-ratio 0 {commits}"), "/rows", "shared"),
        (
            &format!("bench killpolicy --policy youngest,longest_pipeline {commits}"),
            "/rows",
            "longest_pipeline",
        ),
    ] {
        // What it has printed when it has gone on for as long as that after it has made its directory, or for longer,
        // if it had not come to the end of a round then.
        let interrupted = |more: &str, has_come: &dyn Fn(&str) -> bool| {
            let directory = tempfile::tempdir().unwrap();
            let mut seconds = 1;
            loop {
                let begun = std::cell::Cell::new(None);
                let ready = |_| {
                    begun.set(begun.get().or((entries(directory.path()) > 0).then(Instant::now)));
                    begun.get().is_some_and(|begun| begun.elapsed() > Duration::from_secs(seconds))
                };
                let (printed, said) =
                    interrupted_when(&format!("{run} {shared} {more}"), directory.path(), ready);
                assert!(said.contains("error: interrupted"), "{run}: {said}");
                assert_eq!(entries(directory.path()), 0, "{run}");
                if has_come(&printed) || seconds > 60 {
                    break printed;
                }
                seconds *= 4;
            }
        };
        let printed = interrupted("--json", &|printed| printed.contains("\"partial\""));
        let told: serde_json::Value =
            serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{run}: {error}: {printed}"));
        let error = (&told["error"]["code"], &told["partial"]);
        assert_eq!(error, (&"interrupted".into(), &true.into()), "{run}: {told}");
        let rows = told.pointer(rows).unwrap().as_array().unwrap();
        assert!(rows.len() == 2 && rows.iter().all(|row| row["commits_per_s"].is_number()), "{run}: {told}");
        // What is checked at the end was not.
        assert_eq!(told["consistent"].is_null(), told.get("checks").is_some(), "{run}: {told}");
        let printed = interrupted("--quiet", &|printed| printed.contains(name));
        assert!(printed.contains(name) && !printed.contains("hold"), "{run}: {printed}");
    }
}

/// A process that this one has started (`proc(5)`: the fourth field of `stat`, whose second one, in brackets, may have
/// spaces in it).
#[cfg(target_os = "linux")]
fn child_of(parent: u32) -> Option<u32> {
    fs::read_dir("/proc").unwrap().find_map(|entry| {
        let process = entry.unwrap().file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let by: u32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        (by == parent).then_some(process)
    })
}

/// Whether the process catches the signal of Ctrl-C.
fn catches_interruptions(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (2 - 1) != 0
}

/// What has no directory: it ended by the signal itself, and said nothing.
#[test]
fn an_interruption_ends_what_measures_a_part() {
    for run in [
        "bench latch --seconds 60",
        "bench granularity --seconds 60",
        "bench locks --seconds 60",
        "bench intent",
        "bench memory",
        "bench log --seconds 60",
        "bench log --seconds 60 --dir log",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (printed, said) =
            interrupted_when(&format!("{run} --json"), directory.path(), catches_interruptions);
        assert!(said.contains("error: interrupted"), "{run}: {said}");
        let told: serde_json::Value =
            serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{run}: {error}: {printed}"));
        assert_eq!(told["error"]["code"], "interrupted", "{run}");
    }
}

#[test]
fn an_interruption_says_what_it_leaves() {
    for run in LONG_RUNS {
        let directory = tempfile::tempdir().unwrap();
        let (printed, said) = interrupted(&format!("{run} --dir kept --json"), directory.path());
        assert_eq!(entries(directory.path()), 1, "{run}");
        assert!(said.contains("what is in kept stays there"), "{run}: {said}");
        let told: serde_json::Value =
            serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
        assert_eq!(told["error"]["code"], "interrupted", "{run}");
    }
}

/// Each thread takes 1 GiB of what the process may have: as many as that can be started, and not one more. Those that
/// were started waited for the others.
#[test]
fn threads_that_cannot_be_started_are_an_error() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("numbers.csv"), "key,value\n1,2\n").unwrap();
    for (run, can_be_started) in [
        ("bench latch --latch hybrid --mix mixed --threads 8 --rounds 1", 3),
        ("bench locks --threads 8", 3),
        ("bench intent --threads 8", 3),
        ("bench granularity --threads 8", 3),
        ("bench memory --access hand --rounds 1", 1),
        ("bench memory --access hand --rounds 1 --bind", 2),
        ("bench latch --latch hybrid --mix mixed --threads 2 --rounds 1 --bind", 2),
        ("bench log --threads 8", 5),
        ("bench tpcb --engine btreemap --threads 8", 3),
        ("load db numbers.csv", 1),
    ] {
        // On one processor two threads are neither bound nor measured together.
        let takes_two = run.contains("--bind") || run.contains("memory");
        if takes_two && thread::available_parallelism().map_or(1, usize::from) < 2 {
            continue;
        }
        let shell =
            format!("ulimit -v {} && exec \"$0\" {run} --json", can_be_started * (1 << 20) + (1 << 19));
        let mut child = Command::new("sh")
            .args(["-c", &shell, env!("CARGO_BIN_EXE_foreshore")])
            .env("RUST_MIN_STACK", (1 << 30).to_string())
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(run, || child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{run}: {said}");
        assert!(said.contains("error: cannot start ") && !said.contains("panicked"), "{run}: {said}");
    }
}

/// It was an abort.
#[test]
fn lines_for_which_there_is_no_memory_are_an_error() {
    let shell = "ulimit -v 3000000; exec \"$0\" bench memory --access store --kib 256,16777216 --json";
    let output = Command::new("sh").args(["-c", shell, env!("CARGO_BIN_EXE_foreshore")]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("16777216 KiB") && said.contains("--kib"), "{said}");
}

#[test]
fn latches_report_a_result_for_each_combination() {
    let report = long_enough(
        "bench latch --latch all --threads 1,2 --mix read-only,contended --seconds 0.004 --rounds 2 --json",
        |report| have_all(&report["results"], "ns"),
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

/// What one thread does: two that hand a line to each other would have to wait for processors that others use.
#[test]
fn memory_reports_a_result_for_each_kind_of_access() {
    let report = report("bench memory --access line --kib 64,65536 --rounds 1 --json");
    assert_eq!(report["experiment"], "memory", "{report}");
    let results: Vec<_> =
        (report["results"].as_array().unwrap().iter()).filter(|result| result["kib"].is_u64()).collect();
    let takes = |access: &str, kib: u64| {
        let found = results.iter().find(|result| result["access"] == access && result["kib"] == kib);
        let (least, median) = (&found.unwrap()["least_ns"], &found.unwrap()["ns"]);
        assert!(least.as_f64() > Some(0.0) && least == median, "{report}");
        median.as_f64().unwrap()
    };
    assert_eq!(results.len(), 6, "{report}");
    for access in ["load of any line", "store to any line", "change of any line"] {
        assert!(takes(access, 64) < takes(access, 65536), "{report}");
    }
    let told = text(&foreshore("bench memory --access pause --quiet").stdout);
    assert!(told.contains("pause of a spinning loop"), "{told}");
    for refused in ["--rounds 0", "--kib 0", "--access nothing"] {
        assert_eq!(foreshore(&format!("bench memory {refused}")).status.code(), Some(2), "{refused}");
    }
}

#[test]
fn granularity_and_constants_are_told() {
    let compared = long_enough(
        "bench granularity --latch hybrid,std_rwlock --tuples 1000 --per-latch 10,1000 --writes 0,10 --threads 2 --seconds 0.01 \
         --rounds 2 --json",
        |report| have_all(&report["results"], "tuples_per_s"),
    );
    assert_eq!((&compared["experiment"], &compared["consistent"]), (&"granularity".into(), &true.into()));
    let results = compared["results"].as_array().unwrap();
    assert_eq!(results.len(), 8);
    assert!(results.iter().all(|result| result["tuples_per_s"].as_f64().unwrap() > 0.0), "{compared}");
    let output = foreshore(
        "bench granularity --tuples 10 --per-latch 5 --writes 10 --seconds 0.002 --rounds 1 --quiet",
    );
    assert!(text(&output.stdout).contains("10 % updates"), "{}", text(&output.stdout));
    for wrong in ["--latch all", "--latch wood", "--tuples 5 --per-latch 6", "--writes 100", "--tuples 0"] {
        let output = foreshore(&format!("bench granularity --seconds 0.002 {wrong}"));
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
    let constants = report("bench constants --json");
    let named = |name: &str| {
        let all = constants["results"].as_array().unwrap();
        all.iter().find(|constant| constant["name"] == name).unwrap()["value"].as_f64().unwrap()
    };
    assert_eq!((named("parking spaces"), named("longest pipeline")), (512.0, 100_000.0));
}

#[test]
fn txbench_compares_lock_tables() {
    let quick = "--keys 400 --threads 1,4 --seconds 0.2 --rounds 2 --warm-up 0.01 --set pool_bytes=4MiB";
    let arguments = format!("bench txbench --rows 10 --updates 0.2 --hot 0.5 {quick} --json");
    let compared = long_enough(&arguments, |report| {
        let reads =
            |row: &serde_json::Value| row["by_kind"]["read_only"]["latency_us"]["p99"].as_f64() > Some(0.0);
        report["results"].as_array().unwrap().iter().all(reads)
            && have_all(&report["results"], "commits_per_s")
    });
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
    let control = format!("bench txbench --lock-tables latched,none {quick} --json");
    let control = long_enough(&control, |report| have_all(&report["results"], "commits_per_s"));
    let released = |row: &serde_json::Value| row["counters"]["locks_released"].as_u64().unwrap();
    let [locked, unlocked] = [0, 1].map(|row| released(&control["results"][row]));
    assert!(locked > 0 && unlocked == 0, "{control}");
    for (arguments, part) in [
        ("bench txbench --rows 0", "1..=1000"),
        ("bench txbench --lock-tables none --updates 0.1", "updates are lost"),
        ("bench txbench --hot 2", "at most 1"),
        ("bench txbench --lock-tables listed", "global_mutex"),
        ("bench txbench --lock-tables latched --set lock_table=latched", "leave out"),
        ("bench txbench --lock-tables latched,latched", "'latched' occurs twice"),
    ] {
        let output = foreshore(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(part), "{arguments}: {}", text(&output.stderr));
    }
}

#[test]
fn locks_report_a_result_for_each_combination() {
    let measured = long_enough(
        "bench locks --policies dreadlocks,wait_die --locks 1,20 --mix x,mixed --threads 1,3 --seconds 0.02 --rounds 2 \
         --json",
        |report| have_all(&report["results"], "locks_per_s"),
    );
    assert_eq!((&measured["experiment"], &measured["consistent"]), (&"locks".into(), &true.into()));
    assert_eq!(measured["checks"].as_array().unwrap().len(), 4);
    let results = measured["results"].as_array().unwrap();
    assert_eq!(results.len(), 3 * 2 * 2 * 2 * 2 * 2);
    for result in results {
        assert!(result["locks_per_s"].as_f64().unwrap() > 0.0, "{result}");
        assert!(result["threads"] != 1 || result["abort_ratio"] == 0.0, "{result}");
    }
    for table in ["latched", "staged", "global_mutex"] {
        assert_eq!(results.iter().filter(|result| result["table"] == table).count(), 32, "{table}");
    }
    let output =
        foreshore("bench locks --hot --locks 3 --mix s --threads 1,2 --seconds 0.01 --rounds 1 --quiet");
    let printed = text(&output.stdout);
    for part in ["3 s, hot", "staged, dreadlocks", "2 threads", "consistent: all 4 checks hold"] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    let output = foreshore("bench locks --lock-tables latched --cold --locks 10 --mix x --iterations 20");
    assert_eq!(text(&output.stdout), "latched, dreadlocks: 200 cold x locks by 10\n");
    for (arguments, part) in [
        ("bench locks --lock-tables listed", "global_mutex"),
        ("bench locks --policies hope", "wound_wait"),
        ("bench locks --locks 0", "give 1 to"),
        ("bench locks --mix y", "mixed"),
        ("bench locks --hot --cold", "cannot be used with"),
    ] {
        let output = foreshore(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(part), "{arguments}: {}", text(&output.stderr));
    }
}

#[test]
fn intent_locks_report_a_result_for_each_combination() {
    let measured = report("bench intent --absolute 0,40 --transactions 1000 --threads 4 --rounds 2 --json");
    assert_eq!((&measured["experiment"], &measured["consistent"]), (&"intent".into(), &true.into()));
    let results = measured["results"].as_array().unwrap();
    let found: Vec<_> = (results.iter())
        .map(|result| (result["absolute"].as_u64().unwrap(), result["kind"].as_str().unwrap()))
        .collect();
    let kinds = ["in_table", "inherited", "lightweight", "private"];
    assert_eq!(found, [0, 40].map(|absolute| kinds.map(|kind| (absolute, kind))).concat());
    assert!(results.iter().all(|result| result["transactions_per_s"].as_f64().unwrap() > 0.0));
    let output = foreshore(
        "bench intent --kind private --absolute 5 --transactions 100 --threads 2 --rounds 1 --quiet",
    );
    let printed = text(&output.stdout);
    assert!(printed.contains("private") && printed.contains("consistent: all 2 checks hold"), "{printed}");
    let output = foreshore("bench intent --kind private --iterations 20");
    assert_eq!(text(&output.stdout), "private: 20 transactions\n");
    for (arguments, part) in [
        ("bench intent --kind hopeful", "inherited"),
        ("bench intent --absolute 200 --transactions 1000", "a tenth"),
    ] {
        let output = foreshore(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(part), "{arguments}: {}", text(&output.stderr));
    }
}

/// Nobody deadlocks there, so whoever waits exactly (the road, the graph) never gives way, nor does who confirms.
#[test]
fn policies_against_deadlocks_are_compared_where_there_are_none() {
    let quick = "--threads 1,6 --seconds 0.12 --rounds 2 --warm-up 0.01 --set pool_bytes=4MiB --json";
    for (arguments, names, harmless) in [
        (
            "bench dreadlocks --branches 1 --accounts 50 --confirm",
            vec!["road", "spin", "sleep", "backoff", "hybrid"],
            vec!["road", "spin", "sleep", "backoff", "hybrid"],
        ),
        (
            "bench nodeadlock --tellers 8",
            vec!["dreadlocks", "backoff", "wait_for_graph", "wound_wait", "wait_die"],
            vec!["dreadlocks", "wait_for_graph"],
        ),
    ] {
        let compared = long_enough(&format!("{arguments} {quick}"), |report| {
            let met = |row: &serde_json::Value| {
                row["threads"] == 1 || row["counters"]["lock_waits"].as_u64() > Some(0)
            };
            report["results"].as_array().unwrap().iter().all(met)
                && have_all(&report["results"], "commits_per_s")
        });
        assert_eq!(compared["consistent"], true, "{compared}");
        let results = compared["results"].as_array().unwrap();
        let found: Vec<_> = (results.iter())
            .map(|row| (row["threads"].as_u64().unwrap(), row["variant"].as_str().unwrap()))
            .collect();
        let expected = [1, 6].map(|threads| names.iter().map(|name| (threads, *name)).collect::<Vec<_>>());
        assert_eq!(found, expected.concat());
        for row in results {
            assert!(row["commits_per_s"].as_f64().unwrap() > 0.0, "{row}");
            let (aborts, counters) = (&row["aborts"]["deadlock"], &row["counters"]);
            if row["threads"] == 1 || harmless.contains(&row["variant"].as_str().unwrap()) {
                assert_eq!((aborts, &counters["deadlock_precautions"]), (&0.into(), &0.into()), "{row}");
            }
            assert_eq!(counters["deadlocks"], 0, "{row}");
            assert!(row["threads"] == 1 || counters["lock_waits"].as_u64().unwrap() > 0, "{row}");
        }
    }
    for (arguments, part) in [
        ("bench dreadlocks --wait dream", "backoff"),
        ("bench nodeadlock --policies hope", "wound_wait"),
        ("bench nodeadlock --tellers 3", "tellers must be in 5"),
        ("bench nodeadlock --set deadlock_policy=no_wait", "--policies"),
        ("bench dreadlocks --set deadlock_digests=exact", "--wait"),
    ] {
        let output = foreshore(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(part), "{arguments}: {}", text(&output.stderr));
    }
}

#[test]
fn checkpoint_tells_latencies_with_and_without() {
    let quick = "bench checkpoint --rounds 1 --rest 0.01 tpcb --branches 1 --accounts 500 --seconds 0.2";
    let measured = long_enough(&format!("{quick} --json"), |report| {
        let has = |side: &str| report[side]["transactions"].as_u64() > Some(0);
        has("without") && has("during") && report["checkpoints"].as_u64() > Some(0)
    });
    assert_eq!((&measured["workload"], &measured["own_checkpoints"]), (&"tpcb".into(), &0.into()));
    for side in ["without", "during"] {
        assert!(measured[side]["transactions"].as_u64().unwrap() > 0, "{measured}");
        assert!(measured[side]["p50"].as_f64() <= measured[side]["p999"].as_f64(), "{measured}");
    }
    assert!(measured["p999_ratio"].as_f64().unwrap() > 0.0 && measured["checkpoints"].as_u64() > Some(0));
    let output = foreshore(&format!("{quick} --quiet"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("p99.9 during checkpoints: ") && printed.contains("pages each"), "{printed}");
    for (arguments, part) in [
        ("bench checkpoint tpcb --engine btreemap", "takes checkpoints"),
        ("bench checkpoint tpcb --iterations 5", "--seconds"),
        ("bench checkpoint --rounds 0 tpcb", "1..=1000"),
    ] {
        let output = foreshore(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(part), "{arguments}: {}", text(&output.stderr));
    }
}

#[test]
fn engines_are_compared_in_processes_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let small = format!(
        "bench compare --small --rounds 2 --seconds 0.05 --warm-up 0 --cache 16MiB --dir {}",
        directory.path().display()
    );
    let arguments =
        format!("{small} --engines foreshore,btreemap --workloads tpcb,scan --threads 1,2 --json");
    let compared = long_enough(&arguments, |report| have_all(&report["results"], "commits_per_s"));
    assert_eq!((&compared["experiment"], &compared["rounds"]), (&"compare".into(), &2.into()));
    assert_eq!((&compared["partial"], compared.get("error")), (&false.into(), None));
    let results = compared["results"].as_array().unwrap();
    let named = |result: &serde_json::Value| {
        format!("{} {} {}", result["workload"], result["threads"], result["engine"]).replace('"', "")
    };
    let names: Vec<String> = results.iter().map(named).collect();
    assert_eq!(names[..3], ["tpcb 1 foreshore", "tpcb 1 btreemap", "tpcb 2 foreshore"]);
    assert_eq!((names.len(), names[7].as_str()), (8, "scan 2 btreemap"));
    for result in results {
        assert!(result["commits_per_s"].as_f64().unwrap() > 0.0 && result["consistent"] == true, "{result}");
        assert!(result["peak_memory_bytes"].as_u64().unwrap() > 1 << 20, "{result}");
        assert!(result["first_engine_ratio"].is_number() && result["p99_us"].is_number(), "{result}");
    }
    assert_eq!(entries(directory.path()), 0, "what was made is removed");

    // What fails in one engine does not end the comparison; here, in which transactions are larger than they may be.
    let one = format!("{small} --workloads insert --threads 1");
    let limits = "--set foreshore.max_locks_per_transaction=16 --set foreshore.escalation_locks=1000000";
    let output = foreshore(&format!("{one} --engines btreemap,foreshore {limits}"));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    for part in ["insert: bench insert --commit-every 100", "btreemap is", "FAILED: locks are limited to 16"]
    {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    // What cannot work is said before.
    let output = foreshore(&format!("{one} --engines foreshore,btreemap --set btreemap.cash=1"));
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
    assert!(text(&output.stderr).contains("the engine btreemap has no"), "{}", text(&output.stderr));
    assert_eq!(entries(directory.path()), 0);
}

#[test]
fn the_ladder_s_steps_are_compared() {
    let quick = "--threads 1,2 --commit-every 20 --seconds 0.12 --rounds 1 --warm-up 0 --set pool_bytes=2MiB";
    let report = long_enough(&format!("bench ladder {quick} --json"), |report| {
        report["ladder"].as_array().unwrap().iter().any(|row| row["commits_per_s"].as_f64() > Some(0.0))
    });
    assert_eq!((&report["experiment"], &report["consistent"]), (&"ladder".into(), &true.into()));
    let steps = ["baseline", "bpool1", "caching", "log", "lock", "bpool2", "final", "road"];
    let ladder = report["ladder"].as_array().unwrap();
    let found: Vec<_> = (ladder.iter())
        .map(|row| (row["threads"].as_u64().unwrap(), row["step"].as_str().unwrap()))
        .collect();
    assert_eq!(found, [1, 2].map(|threads| steps.map(|step| (threads, step))).concat());
    // On a busy machine a step may have had no turn in so short a time.
    let rate = |row: usize| ladder[row]["commits_per_s"].as_f64().unwrap();
    let ratio = |one: f64, other: f64| if other > 0.0 { one / other } else { 0.0 };
    assert!((0..16).any(|row| rate(row) > 0.0), "{report}");
    let results = report["results"].as_array().unwrap();
    let commits = |step: &serde_json::Value| {
        let same = |row: &&serde_json::Value| {
            (&row["variant"], &row["threads"]) == (&step["step"], &step["threads"])
        };
        results.iter().find(same).map(|row| &row["commits"])
    };
    assert!(ladder.iter().all(|step| Some(&step["commits"]) == commits(step)), "{report}");
    for (number, row) in ladder.iter().enumerate() {
        let (lowest, before) = (number / 8 * 8, if number % 8 == 0 { number } else { number - 1 });
        let expected = [lowest, before, number % 8].map(|other| ratio(rate(number), rate(other)));
        let found = ["of_baseline", "of_step_before", "scaled"].map(|field| row[field].as_f64().unwrap());
        // Numbers go through text, and lose their last bit there.
        let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9);
        assert!(near, "{expected:?} {row}");
    }
    assert_eq!(ladder[1]["paper_of_step_before"], 2.0);
    assert_eq!(report["steps"][0]["changes"][0], serde_json::json!(["translation", "global_mutex"]));
    let output = foreshore(&format!("bench ladder --steps baseline,road {quick} --quiet"));
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(printed.contains("of lowest") && printed.contains("translation=global_mutex"), "{printed}");
    assert!(printed.contains("consistent: all 6 checks hold") && !printed.contains("bpool1"), "{printed}");
}
