//! What locks cost, counted on the simulated machine (`foreshore_lock::costs`) and held to: an S lock on a key takes at
//! most two atomic changes of shared memory and its release one, an intent lock none; there is no mutex and no line
//! that all transactions write to; and nothing is allocated. The table in MEASURED.md is printed by `RUSTFLAGS='--cfg
//! foreshore_sim' cargo test -p foreshore-lock --test costs --target-dir target/sim -- --nocapture`.
#![cfg(foreshore_sim)]

use foreshore_lock::costs::{LockCosts, OperationCost, count};
use foreshore_lock::{IntentLockKind, LockOptions, LockTableKind};

fn of(table: LockTableKind, intents: IntentLockKind) -> LockCosts {
    count(&LockOptions { table, intents, ..LockOptions::default() }).expect("the simulation ends")
}

fn changes(cost: &OperationCost) -> f64 {
    cost.each(|tally| tally.changes)
}

#[test]
fn a_lock_on_the_road_costs_what_is_promised() {
    let LockOptions { table, intents, .. } = LockOptions::default();
    let costs = of(table, intents);
    // The table needs no more than one change each; the intents none.
    for (operation, most) in [
        ("S lock on a key", 1.0),
        ("X lock on a key", 1.0),
        ("release of an S lock", 1.0),
        ("release of an X lock", 1.0),
        ("lock that is held", 0.0),
        ("check of a free gap", 0.0),
        ("check above an own key", 0.0),
        ("intent lock", 0.0),
        ("release of an intent lock", 0.0),
    ] {
        let cost = costs.of(operation);
        assert!(changes(&cost) <= most, "{operation}: {cost:?}");
        assert_eq!((cost.tally.mutexes, cost.tally.allocations), (0, 0), "{operation}");
    }
    assert_eq!(costs.of("begin and end").tally.allocations, 0);
    assert_eq!(costs.lines_moved, 0.0, "transactions that have nothing in common share nothing");
}

/// The measurement sees what it should: the baselines have what the road has not.
#[test]
fn the_baselines_cost_what_the_road_saves() {
    let global = of(LockTableKind::GlobalMutex, IntentLockKind::InTable);
    assert_eq!(global.of("S lock on a key").each(|tally| tally.mutexes), 1.0);
    assert!(global.lines_moved > 5.0, "{}", global.lines_moved);
    assert!(changes(&global.of("intent lock")) >= 2.0);
    let lightweight = of(LockTableKind::Latched, IntentLockKind::Lightweight);
    assert!(lightweight.lines_moved >= 2.0, "all transactions write to the counts of one table");
    assert_eq!(lightweight.of("intent lock").each(|tally| tally.latches), 1.0);
}

#[test]
fn the_staged_table_releases_by_a_store_and_a_fence() {
    let staged = of(LockTableKind::Staged, IntentLockKind::Private);
    // Now and then who comes along cleans a chain, under its latch.
    let cost = staged.of("S lock on a key");
    assert!(changes(&cost) <= 2.5 && cost.each(|tally| tally.latches) <= 0.25, "{cost:?}");
    let cost = staged.of("release of an S lock");
    assert_eq!((cost.tally.changes, cost.tally.latches), (0, 0));
    assert_eq!(cost.each(|tally| tally.fences), 1.0);
}

/// Not a test of anything: prints the table of MEASURED.md.
#[test]
fn print() {
    for table in LockTableKind::ALL {
        for intents in IntentLockKind::ALL {
            let costs = of(table, intents);
            println!("\n{table:?}, {intents:?}: {:.2} lines moved a transaction", costs.lines_moved);
            println!("{:28} changes  stores  fences latches mutexes allocations", "");
            for cost in &costs.operations {
                let each = |field: fn(&foreshore_env::sim::Tally) -> u64| cost.each(field);
                println!(
                    "{:28} {:7.2} {:7.2} {:7.2} {:7.2} {:7.2} {:7.2}",
                    cost.operation,
                    each(|tally| tally.changes),
                    each(|tally| tally.stores),
                    each(|tally| tally.fences),
                    each(|tally| tally.latches),
                    each(|tally| tally.mutexes),
                    each(|tally| tally.allocations),
                );
            }
        }
    }
}
