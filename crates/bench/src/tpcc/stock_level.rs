//! StockLevel (2.8): how many items of a district's last twenty orders are low in stock; read only, about 400 rows.

use std::ops::{Bound, ControlFlow};

use super::{
    schema::{DISTRICT, ORDER_LINE, STOCK, district, district_key, order_key, order_line, stock, stock_key},
    worker::Scratch,
};
use crate::engine::{EngineTxn, Order, Stop};

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
        let mut short = None;
        txn.scan(
            ORDER_LINE.index,
            (Bound::Included(&first), Bound::Excluded(&end)),
            Order::Ascending,
            &mut |key, line| match ORDER_LINE.check(key, line) {
                Ok(()) => {
                    items.push(order_line::ITEM.get(line));
                    ControlFlow::Continue(())
                }
                Err(failure) => {
                    short = Some(failure);
                    ControlFlow::Break(())
                }
            },
        )?;
        if let Some(failure) = short {
            return Err(failure.into());
        }
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
