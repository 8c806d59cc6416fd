//! The rows that no condition counts.

use super::{
    DISTRICTS, Kind, Scale,
    schema::{HISTORY, ITEM, ORDER, STOCK},
    split::Parts,
};
use crate::{engine::Failure, row::TableSpec, workload::Check};

/// The rows of a table.
fn count(engine: &Parts<'_>, table: &TableSpec) -> Result<u64, Failure> {
    let mut rows = 0;
    engine.visit_all(table, &mut |key, row| {
        rows += 1;
        table.check(key, row)
    })?;
    Ok(rows)
}

/// Every item, in as many copies as there are, and a stock of it in every warehouse.
pub(super) fn check(scale: &Scale, engine: &Parts<'_>) -> Result<Check, Failure> {
    let (items, stocks) = (count(engine, &ITEM)?, count(engine, &STOCK)?);
    let each = u64::from(scale.items);
    let mut check = Check::new("rows: every item, and a stock of it in every warehouse");
    check.expect(items > 0 && items.is_multiple_of(each), || format!("item has {items} rows"));
    check.expect(stocks == each * u64::from(scale.warehouses), || format!("stock has {stocks} rows"));
    Ok(check)
}

/// What was committed since the load is there: all conditions hold also where a transaction is gone as a whole.
pub(super) fn check_commits(scale: &Scale, engine: &Parts<'_>, commits: &[u64]) -> Result<Check, Failure> {
    let mut check = Check::new("commits: an order for each NewOrder, and a row of history for each Payment");
    let loaded = u64::from(scale.warehouses) * u64::from(DISTRICTS) * u64::from(scale.customers);
    for (table, kind) in [(&ORDER, Kind::NewOrder), (&HISTORY, Kind::Payment)] {
        let (rows, commits) = (count(engine, table)?, commits[kind as usize]);
        check.expect(rows == loaded + commits, || {
            format!("{} has {rows} rows, {loaded} loaded, {commits} commits of {kind:?}", table.name)
        });
    }
    Ok(check)
}
