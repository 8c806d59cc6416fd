//! Delivery (2.7): the oldest undelivered order of each of the ten districts, in one transaction.

use std::ops::{Bound, ControlFlow};

use super::{
    DISTRICTS,
    schema::{
        CUSTOMER, NEW_ORDER, ORDER, ORDER_LINE, ORDER_OFFSET, customer, customer_key, order, order_key,
        order_line, order_line_key,
    },
    worker::Scratch,
};
use crate::{
    engine::{EngineTxn, Failure, Order, Stop},
    row::{key_u32, strange_key},
};

#[derive(Debug)]
pub(super) struct DeliveryInput {
    pub(super) home: u32,
    pub(super) carrier: u8,
    /// Not 0, which is null.
    pub(super) date: u64,
}

impl DeliveryInput {
    pub(super) fn run(&self, txn: &mut dyn EngineTxn, scratch: &mut Scratch) -> Result<(), Stop> {
        for district in 1..=DISTRICTS {
            // A district with nothing to deliver is skipped (2.7.4.2).
            if let Some(oldest) = self.oldest(txn, district)? {
                self.deliver(txn, scratch, district, oldest)?;
            }
        }
        Ok(())
    }

    fn oldest(&self, txn: &mut dyn EngineTxn, district: u8) -> Result<Option<u32>, Failure> {
        let (low, high) = (order_key(self.home, district, 0), order_key(self.home, district, u32::MAX));
        let mut oldest = None;
        let range = (Bound::Included(&low[..]), Bound::Included(&high[..]));
        txn.scan(NEW_ORDER.index, range, Order::Ascending, &mut |key, _| {
            oldest = Some(key_u32(key, ORDER_OFFSET).ok_or_else(|| strange_key(&NEW_ORDER, key)));
            ControlFlow::Break(())
        })?;
        oldest.transpose()
    }

    fn deliver(
        &self,
        txn: &mut dyn EngineTxn,
        scratch: &mut Scratch,
        district: u8,
        id: u32,
    ) -> Result<(), Failure> {
        let order_key = order_key(self.home, district, id);
        NEW_ORDER.delete(txn, &order_key)?;

        ORDER.read_for_update(txn, &order_key, &mut scratch.order)?;
        order::CARRIER.set(&mut scratch.order, self.carrier);
        txn.put(ORDER.index, &order_key, &scratch.order)?;

        let mut sum = 0_i64;
        for line in 1..=order::LINES.get(&scratch.order) {
            let line_key = order_line_key(self.home, district, id, line);
            ORDER_LINE.read_for_update(txn, &line_key, &mut scratch.line)?;
            order_line::DELIVERY_DATE.set(&mut scratch.line, self.date);
            sum = sum.wrapping_add(order_line::AMOUNT.get(&scratch.line));
            txn.put(ORDER_LINE.index, &line_key, &scratch.line)?;
        }

        let customer_key = customer_key(self.home, district, order::CUSTOMER.get(&scratch.order));
        let row = &mut scratch.customer;
        CUSTOMER.read_for_update(txn, &customer_key, row)?;
        let balance = customer::BALANCE.get(row);
        customer::BALANCE.set(row, balance.wrapping_add(sum));
        let deliveries = customer::DELIVERIES.get(row);
        customer::DELIVERIES.set(row, deliveries.wrapping_add(1));
        txn.put(CUSTOMER.index, &customer_key, row)
    }
}
