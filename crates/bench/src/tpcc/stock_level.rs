//! StockLevel (2.8): how many items of a district's last twenty orders are low in stock; read only, about 400 rows.

use std::ops::Bound;

use super::{
    schema::{DISTRICT, ORDER_LINE, STOCK, district, district_key, order_key, order_line, stock, stock_key},
    worker::Scratch,
};
use crate::engine::{EngineTxn, Stop};

#[derive(Debug)]
pub(super) struct StockLevelInput {
    pub(super) home: u32,
    pub(super) district: u8,
    pub(super) threshold: i32,
}

impl StockLevelInput {
    pub(super) fn run(&self, txn: &mut dyn EngineTxn, scratch: &mut Scratch) -> Result<(), Stop> {
        DISTRICT.read(txn, &district_key(self.home, self.district), &mut scratch.district)?;
        let next = district::NEXT_ORDER.get(&scratch.district);

        let first = order_key(self.home, self.district, next.saturating_sub(20));
        let end = order_key(self.home, self.district, next);
        let items = &mut scratch.numbers;
        items.clear();
        ORDER_LINE.scan(txn, (Bound::Included(&first), Bound::Excluded(&end)), &mut |_, line| {
            items.push(order_line::ITEM.get(line));
            Ok(())
        })?;
        items.sort_unstable();
        items.dedup();

        let mut low = 0;
        for &item in items.iter() {
            STOCK.read(txn, &stock_key(self.home, item), &mut scratch.stock)?;
            low += u32::from(stock::QUANTITY.get(&scratch.stock) < self.threshold);
        }
        std::hint::black_box(low);
        Ok(())
    }
}
