//! The curves of the literature, on simulated machines of as many cores (`crates/env/MEASURED.md`, "Curves"): which
//! fall, which do not, and how far, on the machine as it is.
#![cfg(foreshore_sim)]

use std::process::Command;

use serde_json::Value;

fn simulate(command: &str) -> Value {
    let arguments = ["simulate", "bench"].into_iter().chain(command.split_whitespace());
    let output =
        Command::new(env!("CARGO_BIN_EXE_foreshore")).args(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn commits_per_s(command: &str) -> f64 {
    let report = simulate(command);
    assert_eq!(report["consistent"], true, "{command}: {report}");
    report["commits_per_s"].as_f64().unwrap()
}

/// Contended latches by 1, 10 and 80 threads: spinlocks collapse, the ticket lock falls with the number of those that
/// look, and the queue goes on where the first hand-over has left it. The optimistic latch, whose writers back off, is
/// as fast as ever by ten; what it does by 80 depends on the machine.
#[test]
fn spinlocks_collapse_and_queues_do_not() {
    let curve = |latch: &str| {
        let report = simulate(&format!(
            "latch --latch {latch} --mix contended --profile westmere8x10 --cores 81 --threads 1,10,80 --seconds 0.0002 --quiet"
        ));
        let results = report["results"].as_array().unwrap();
        let per_s = |threads: u64| {
            let found = results.iter().find(|result| result["threads"] == threads);
            found.unwrap()["acquisitions_per_s"].as_f64().unwrap()
        };
        [per_s(1), per_s(10), per_s(80)]
    };
    let [tas, ttas, ticket, mcs, optimistic] = ["tas", "ttas", "ticket", "mcs", "optimistic"].map(curve);
    for (latch, [alone, ten, eighty]) in [("tas", tas), ("ttas", ttas)] {
        assert!(ten < 0.4 * alone && eighty < 0.5 * ten, "{latch}: {alone}, {ten}, {eighty}");
    }
    assert!(ticket[2] < 0.25 * ticket[0] && ticket[2] < 0.5 * ticket[1], "{ticket:?}");
    assert!(ticket[2] > ttas[2], "{ticket:?}, {ttas:?}");
    assert!(mcs[2] > 0.5 * mcs[1] && mcs[1] < 0.7 * mcs[0], "{mcs:?}");
    assert!(mcs[2] > 3.0 * tas[2].max(ttas[2]) && mcs[2] > 1.5 * ticket[2], "{mcs:?}");
    assert!(optimistic[1] > 0.7 * optimistic[0], "{optimistic:?}");
}

/// Jung et al., Figure 1, 64 threads: one mutex around the lock table does less with 32 cores than with 8, the staged
/// table three times as much, and the road's, too.
#[test]
fn the_lock_table_under_one_mutex_collapses() {
    let by = |table: &str, cores: u32| {
        commits_per_s(&format!(
            "txbench --rows 10 --threads 64 --cores {cores} --profile r810 --durability lazy --set lock_table={table} --seconds 0.004 \
             --warm-up 0.002 --quiet"
        ))
    };
    let [mutex, staged, latched] =
        ["global_mutex", "staged", "latched"].map(|table| [by(table, 8), by(table, 32)]);
    assert!(mutex[1] < 0.75 * mutex[0], "{mutex:?}");
    assert!(staged[1] > 2.0 * staged[0] && staged[0] > 3.0 * mutex[0], "{staged:?}, {mutex:?}");
    assert!(latched[1] > 2.0 * latched[0], "{latched:?}");
}

/// Two-phase locking on hot records that are only read (Ren et al., Figures 1 and 11b): where all share an intent lock
/// in the table, 80 cores do less than 40; where it is a transaction's own affair, they do nearly twice as much.
#[test]
fn shared_intent_locks_fall_with_cores() {
    let by = |table: &str, intents: &str, cores: u32| {
        commits_per_s(&format!(
            "ycsb --records 10000 --value-bytes 1000 --read-percent 100 --distribution hot:64 --hot-operations 2 --cores {cores} \
             --threads {cores} --durability lazy --set deadlock_policy=wait_die --seconds 0.004 --warm-up 0.001 --set \
             lock_table={table} --set intent_locks={intents} --quiet"
        ))
    };
    let shared = [by("staged", "in_table", 40), by("staged", "in_table", 80)];
    let own = [by("latched", "private", 40), by("latched", "private", 80)];
    assert!(shared[1] < 0.9 * shared[0], "{shared:?}");
    assert!(own[1] > 1.5 * own[0] && own[0] > 1.5 * shared[0], "{own:?}, {shared:?}");
}
