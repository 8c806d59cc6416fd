//! The rows that no condition counts.

use super::{
    Scale,
    schema::{ITEM, STOCK},
    split::Parts,
};
use crate::{engine::Failure, row::TableSpec, workload::Check};

/// Every item, in as many copies as there are, and a stock of it in every warehouse.
pub(super) fn check(scale: &Scale, engine: &Parts<'_>) -> Result<Check, Failure> {
    let count = |table: &TableSpec| -> Result<u64, Failure> {
        let mut rows = 0;
        engine.visit_all(table, &mut |key, row| {
            rows += 1;
            table.check(key, row)
        })?;
        Ok(rows)
    };
    let (items, stocks) = (count(&ITEM)?, count(&STOCK)?);
    let each = u64::from(scale.items);
    let mut check = Check::new("rows: every item, and a stock of it in every warehouse");
    check.expect(items > 0 && items.is_multiple_of(each), || format!("item has {items} rows"));
    check.expect(stocks == each * u64::from(scale.warehouses), || format!("stock has {stocks} rows"));
    Ok(check)
}
