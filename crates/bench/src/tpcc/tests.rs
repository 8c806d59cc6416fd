//! The twelve conditions hold after every mix, and each of them catches the inconsistency planted for it.

use super::{
    Mix, Scale, Tpcc,
    schema::{
        CUSTOMER, CUSTOMER_NAME, CUSTOMER_ORDER, DISTRICT, HISTORY, ITEM, NEW_ORDER, ORDER, ORDER_LINE,
        STOCK, TABLES, WAREHOUSE, customer, customer_key, customer_order_key, district, district_key,
        history, history_key, item_key, last_name, name_prefix, order, order_key, order_line, order_line_key,
        stock, stock_key, warehouse, warehouse_key,
    },
};
use crate::{
    engine::{Attempts, Engine, EngineTxn, Outcome, Stop},
    engines::BTreeMapEngine,
    named::Named,
    observer::Silent,
    row::TableSpec,
    runner::load,
    workload::{Check, Workload, visit_all},
};

fn loaded(mix: Mix) -> (Tpcc, BTreeMapEngine) {
    let workload = Tpcc::new(Scale::tiny(2), mix, false).unwrap();
    let engine = BTreeMapEngine::new(TABLES.len());
    load(&engine, &workload, 2, 42, &Silent).unwrap();
    (workload, engine)
}

/// Runs transactions; returns how many committed of each kind, and how many rolled back.
fn run(workload: &Tpcc, engine: &dyn Engine, seed: u64, count: usize) -> ([u64; 5], u64) {
    let mut worker = workload.worker(0, 1, seed);
    let (mut commits, mut rollbacks) = ([0; 5], 0);
    for _ in 0..count {
        let kind = worker.next();
        match engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).unwrap() {
            Outcome::Committed => commits[kind] += 1,
            Outcome::RolledBack => rollbacks += 1,
            Outcome::GaveUp(failure) => panic!("{failure}"),
        }
    }
    (commits, rollbacks)
}

fn failing(workload: &Tpcc, engine: &dyn Engine) -> Vec<String> {
    let checks = workload.check(engine, None).unwrap();
    assert_eq!(checks.len(), 16);
    checks.into_iter().filter(|check| !check.holds).map(|check| name(&check)).collect()
}

fn name(check: &Check) -> String {
    check.name.split(':').next().unwrap_or_default().to_owned()
}

#[test]
fn all_conditions_hold_after_every_mix() {
    for mix in [Mix::Full, Mix::NewOrderPayment, Mix::NewOrder, Mix::Payment] {
        let (workload, engine) = loaded(mix);
        let checks = workload.check(&engine, None).unwrap();
        let names: Vec<String> = checks.iter().map(name).collect();
        let numbers = (1..=12).map(|number| number.to_string());
        let own = ["stock", "index", "names", "rows"].map(str::to_owned);
        assert_eq!(names, numbers.chain(own).collect::<Vec<_>>());
        assert!(checks.iter().all(|check| check.holds && check.examined > 0), "after loading: {checks:#?}");

        let (commits, rollbacks) = run(&workload, &engine, 7, 4000);
        let kinds = commits.map(|commits| commits > 0);
        match mix {
            Mix::Full => {
                assert_eq!(kinds, [true; 5]);
                for (commits, percent) in commits.into_iter().zip([44.55, 43.0, 4.0, 4.0, 4.0]) {
                    let expected = 40.0 * percent;
                    assert!(
                        (commits as f64 - expected).abs() < 6.0 * f64::sqrt(expected),
                        "{commits} of {expected}"
                    );
                }
                assert!((5..=40).contains(&rollbacks), "{rollbacks} of about 18 NewOrders were rolled back");
            }
            Mix::NewOrderPayment => assert_eq!(kinds, [true, true, false, false, false]),
            Mix::NewOrder => assert_eq!(kinds, [true, false, false, false, false]),
            Mix::Payment => assert_eq!((kinds, rollbacks), ([false, true, false, false, false], 0)),
        }
        assert_eq!(failing(&workload, &engine), [""; 0], "{mix:?}");
        assert!(committed(&workload, &engine, commits).holds, "{mix:?}");
    }
}

/// What the check of commits says; it is the last.
fn committed(workload: &Tpcc, engine: &dyn Engine, commits: [u64; 5]) -> Check {
    let check = workload.check(engine, Some(&commits)).unwrap().pop().unwrap();
    assert_eq!(name(&check), "commits");
    check
}

/// Every condition holds then.
#[test]
fn a_transaction_that_vanished_as_a_whole_is_missed() {
    let (workload, engine) = loaded(Mix::Full);
    let (commits, _) = run(&workload, &engine, 7, 100);
    assert!(committed(&workload, &engine, commits).holds);
    for (kind, missed) in [(0, true), (1, true), (2, false)] {
        let mut promised = commits;
        promised[kind] += 1;
        assert_eq!(!committed(&workload, &engine, promised).holds, missed, "{kind}");
    }
}

/// SPLIT: tables of their own for each partition of the warehouses; the conditions hold over all parts, and each part
/// has the rows of its warehouses alone.
#[test]
fn split_tables_are_as_consistent() {
    let workload = Tpcc::new(Scale::tiny(5), Mix::Full, false).unwrap().with_split(3);
    let names = workload.tables();
    assert_eq!(names.len(), 11 + 10 + 10);
    assert_eq!(
        (&*names[0], &*names[7], &*names[8], &*names[30]),
        ("warehouse_0", "item", "stock_0", "order_by_customer_2")
    );
    let engine = BTreeMapEngine::new(names.len());
    load(&engine, &workload, 2, 42, &Silent).unwrap();
    assert_eq!(failing(&workload, &engine), [""; 0]);
    let (commits, _) = run(&workload, &engine, 7, 3000);
    assert!(commits.iter().all(|&commits| commits > 0), "{commits:?}");
    assert_eq!(failing(&workload, &engine), [""; 0]);
    let mut filled = 0;
    for table in TABLES.iter().filter(|table| table.index != ITEM.index) {
        for (partition, part) in (0..).zip(workload.split.parts(table.index)) {
            visit_all(&engine, part, b"", &mut |key, _| {
                assert_eq!(super::partition_of_key(key) % 3, partition, "{}", names[usize::from(part.0)]);
                filled |= 1 << part.0;
                Ok(())
            })
            .unwrap();
        }
    }
    assert_eq!(u64::count_ones(filled), 30, "every part has rows");
    // What is foreseen is what is touched.
    let mut worker = workload.worker(0, 1, 3);
    for _ in 0..100 {
        worker.next();
        worker.foresee(&mut |table, key, _| {
            if table != ITEM.index {
                let name = &names[usize::from(table.0)];
                assert!(name.ends_with(&format!("_{}", super::partition_of_key(key) % 3)), "{name}");
            }
        });
    }
    // The money of one part is not in another's sums by accident.
    let stolen = workload.split.place(WAREHOUSE.index, &warehouse_key(4));
    plant(&engine, |txn| {
        let mut row = Vec::new();
        assert!(txn.get(stolen, &warehouse_key(4), &mut row)?);
        warehouse::YTD.set(&mut row, 1);
        Ok(txn.put(stolen, &warehouse_key(4), &row)?)
    });
    assert_eq!(failing(&workload, &engine), ["1", "8"]);
}

#[test]
fn the_load_has_the_specified_shape() {
    let (workload, engine) = loaded(Mix::Full);
    let count = |table: &TableSpec| {
        let mut rows = 0;
        visit_all(&engine, table.index, b"", &mut |_, _| {
            rows += 1;
            Ok(())
        })
        .unwrap();
        rows
    };
    assert_eq!(count(&WAREHOUSE), 2);
    assert_eq!(count(&DISTRICT), 20);
    assert_eq!(count(&ITEM), 100);
    assert_eq!(count(&STOCK), 200);
    for table in [&CUSTOMER, &HISTORY, &ORDER, &CUSTOMER_NAME, &CUSTOMER_ORDER] {
        assert_eq!(count(table), 600, "{}", table.name);
    }
    assert_eq!(count(&NEW_ORDER), 180);
    let lines = count(&ORDER_LINE);
    assert!((5500..6500).contains(&lines), "{lines}");
    let total: u64 = TABLES.iter().map(count).sum();
    assert!(
        total.abs_diff(workload.load_rows()) < 500,
        "{total} rows loaded, {} foretold",
        workload.load_rows()
    );
    assert!(TABLES.iter().enumerate().all(|(place, table)| usize::from(table.index.0) == place));
}

/// Changes the database behind the workload's back.
fn plant(engine: &dyn Engine, mut change: impl FnMut(&mut dyn EngineTxn) -> Result<(), Stop>) {
    let outcome = engine.transact(&mut Attempts::default(), &mut change).unwrap();
    assert!(matches!(outcome, Outcome::Committed));
}

fn edit(engine: &dyn Engine, table: &TableSpec, key: &[u8], change: impl Fn(&mut [u8])) {
    plant(engine, |txn| {
        let mut row = Vec::new();
        table.read(txn, key, &mut row)?;
        change(&mut row);
        Ok(txn.put(table.index, key, &row)?)
    });
}

fn drop_row(engine: &dyn Engine, table: &TableSpec, key: &[u8]) {
    plant(engine, |txn| Ok(table.delete(txn, key)?));
}

/// Order 30 of district 1/1 is undelivered, order 1 delivered.
#[test]
fn each_planted_inconsistency_is_caught() {
    type Plant = fn(&dyn Engine);
    let plants: [(&str, Plant, &[&str]); 21] = [
        ("an item is lost", |engine| drop_row(engine, &ITEM, &item_key(3)), &["rows"]),
        ("a stock is lost", |engine| drop_row(engine, &STOCK, &stock_key(1, 3)), &["rows"]),
        (
            "money appears in a warehouse",
            |engine| edit(engine, &WAREHOUSE, &warehouse_key(1), |row| warehouse::YTD.set(row, 1)),
            &["1", "8"],
        ),
        (
            "money appears in a district",
            |engine| edit(engine, &DISTRICT, &district_key(1, 1), |row| district::YTD.set(row, 1)),
            &["1", "9"],
        ),
        (
            "the order counter jumps",
            |engine| edit(engine, &DISTRICT, &district_key(2, 10), |row| district::NEXT_ORDER.set(row, 33)),
            &["2"],
        ),
        (
            "the newest new order is lost",
            |engine| drop_row(engine, &NEW_ORDER, &order_key(1, 1, 30)),
            &["2", "5", "11"],
        ),
        (
            "a new order in the middle is lost",
            |engine| drop_row(engine, &NEW_ORDER, &order_key(1, 1, 25)),
            &["3", "5", "11"],
        ),
        (
            "a new order is of no order",
            |engine| plant(engine, |txn| Ok(NEW_ORDER.insert(txn, &order_key(1, 1, 31), b"")?)),
            &["2", "5", "11"],
        ),
        (
            "an order line is lost",
            |engine| drop_row(engine, &ORDER_LINE, &order_line_key(1, 1, 30, 2)),
            &["4", "6"],
        ),
        (
            "a line count is wrong",
            |engine| edit(engine, &ORDER, &order_key(1, 3, 4), |row| order::LINES.set(row, 99)),
            &["4", "6"],
        ),
        (
            "a carrier without delivery",
            |engine| edit(engine, &ORDER, &order_key(1, 1, 30), |row| order::CARRIER.set(row, 3)),
            &["5", "7"],
        ),
        (
            "a delivered line loses its date",
            |engine| {
                edit(engine, &ORDER_LINE, &order_line_key(1, 1, 1, 1), |row| {
                    order_line::DELIVERY_DATE.set(row, 0)
                });
            },
            &["7"],
        ),
        (
            "an undelivered line gets a date",
            |engine| {
                edit(engine, &ORDER_LINE, &order_line_key(1, 1, 30, 1), |row| {
                    order_line::DELIVERY_DATE.set(row, 9)
                });
            },
            &["7", "10", "12"],
        ),
        (
            "a payment is lost",
            |engine| drop_row(engine, &HISTORY, &history_key(1, 1, 0, 5)),
            &["8", "9", "10"],
        ),
        (
            "a payment changes its amount",
            |engine| edit(engine, &HISTORY, &history_key(2, 1, 0, 5), |row| history::AMOUNT.set(row, 999)),
            &["8", "9", "10"],
        ),
        (
            "a balance changes",
            |engine| edit(engine, &CUSTOMER, &customer_key(2, 5, 30), |row| customer::BALANCE.set(row, 0)),
            &["10", "12"],
        ),
        (
            "a customer's payments change",
            |engine| edit(engine, &CUSTOMER, &customer_key(1, 5, 1), |row| customer::YTD_PAYMENT.set(row, 0)),
            &["12"],
        ),
        (
            "a delivery is counted twice",
            |engine| edit(engine, &CUSTOMER, &customer_key(1, 5, 2), |row| customer::DELIVERIES.set(row, 1)),
            &["11"],
        ),
        (
            "stock is sold that nobody ordered",
            |engine| edit(engine, &STOCK, &stock_key(1, 7), |row| stock::YTD.set(row, 5)),
            &["stock"],
        ),
        (
            "a customer loses its name entry",
            |engine| {
                let mut first = None;
                visit_all(engine, CUSTOMER_NAME.index, &name_key(7), &mut |key, _| {
                    first.get_or_insert_with(|| key.to_vec());
                    Ok(())
                })
                .unwrap();
                drop_row(engine, &CUSTOMER_NAME, &first.unwrap());
            },
            &["names"],
        ),
        (
            "an order moves to a customer whose list lacks it",
            |engine| {
                let mut row = Vec::new();
                plant(engine, |txn| {
                    ORDER.read(txn, &order_key(1, 1, 30), &mut row)?;
                    let by = order::CUSTOMER.get(&row);
                    CUSTOMER_ORDER.delete(txn, &customer_order_key(1, 1, by, 30))?;
                    Ok(CUSTOMER_ORDER.insert(txn, &customer_order_key(1, 1, by % 30 + 1, 30), b"")?)
                });
            },
            &["index"],
        ),
    ];
    for (story, plant, caught_by) in plants {
        let (workload, engine) = loaded(Mix::Full);
        assert_eq!(failing(&workload, &engine), [""; 0]);
        plant(&engine);
        assert_eq!(failing(&workload, &engine), caught_by, "{story}");
    }
}

/// The prefix of the name entries of district 1/1 for the name with this number.
fn name_key(number: u32) -> Vec<u8> {
    let mut letters = [0; 16];
    let length = last_name(number, &mut letters);
    name_prefix(1, 1, &letters[..length]).to_vec()
}

#[test]
fn a_rolled_back_new_order_leaves_no_trace() {
    let (workload, engine) = loaded(Mix::NewOrder);
    let content = || {
        let mut rows = Vec::new();
        for table in &TABLES {
            visit_all(&engine, table.index, b"", &mut |key, row| {
                rows.push((table.index.0, key.to_vec(), row.to_vec()));
                Ok(())
            })
            .unwrap();
        }
        rows
    };
    let mut worker = workload.worker(0, 1, 3);
    let mut rollbacks = 0;
    for _ in 0..2000 {
        worker.next();
        let before = (rollbacks == 0).then(content);
        let outcome = engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).unwrap();
        if matches!(outcome, Outcome::RolledBack) {
            rollbacks += 1;
            if let Some(before) = before {
                assert!(before == content(), "the rollback left a trace");
                return;
            }
        }
    }
    panic!("no NewOrder in 2,000 was rolled back");
}

#[test]
fn damaged_rows_are_failures_not_panics() {
    let damages: [(&TableSpec, Vec<u8>); 6] = [
        (&WAREHOUSE, warehouse_key(1).to_vec()),
        (&DISTRICT, district_key(1, 1).to_vec()),
        (&CUSTOMER, customer_key(1, 1, 1).to_vec()),
        (&ITEM, item_key(1).to_vec()),
        (&STOCK, stock_key(1, 1).to_vec()),
        (&ORDER, order_key(1, 1, 30).to_vec()),
    ];
    for (table, key) in damages {
        let (workload, engine) = loaded(Mix::Full);
        plant(&engine, |txn| Ok(txn.put(table.index, &key, b"xy")?));
        let mut worker = workload.worker(0, 1, 3);
        let failed = (0..20_000).any(|_| {
            worker.next();
            engine.transact(&mut Attempts::default(), &mut |txn| worker.run(txn)).is_err()
        });
        assert!(failed, "nobody noticed the damage in {}", table.name);
        let checked = workload.check(&engine, None);
        assert!(checked.is_err() || table.name == ITEM.name, "the checks read every row of {}", table.name);
    }
}

#[test]
fn last_names_are_made_of_syllables() {
    let mut letters = [0; 16];
    let length = last_name(371, &mut letters);
    assert_eq!(&letters[..length], b"PRICALLYOUGHT");
    assert_eq!((0..1000).map(|number| last_name(number, &mut letters)).max(), Some(15));
}

#[test]
fn scales_out_of_range_are_refused() {
    for scale in [
        Scale::specified(0),
        Scale { customers: 3001, ..Scale::specified(1) },
        Scale { items: 10, ..Scale::specified(1) },
    ] {
        assert!(Tpcc::new(scale, Mix::Full, false).is_err());
    }
    assert!(Mix::named("neworder-payment").is_ok_and(|mix| mix == Mix::NewOrderPayment));
    assert!(Mix::named("newOrder").is_err());
}
