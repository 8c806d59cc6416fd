//! OrderStatus (2.6): a customer's last order with its lines; read only.

use std::ops::{Bound, ControlFlow};

use super::{
    schema::{
        CUSTOMER, CUSTOMER_ORDER, CUSTOMER_ORDER_OFFSET, ORDER, ORDER_LINE, customer, customer_key,
        customer_order_key, order, order_key, order_line, order_line_key,
    },
    worker::{CustomerChoice, Scratch},
};
use crate::{
    engine::{EngineTxn, Order, Stop},
    row::{key_u32, strange_key},
};

#[derive(Debug)]
pub(super) struct OrderStatusInput {
    pub(super) home: u32,
    pub(super) district: u8,
    pub(super) customer: CustomerChoice,
}

impl OrderStatusInput {
    pub(super) fn run(&self, txn: &mut dyn EngineTxn, scratch: &mut Scratch) -> Result<(), Stop> {
        let id = self.customer.find(txn, self.home, self.district, &mut scratch.numbers)?;
        let customer_key = customer_key(self.home, self.district, id);
        CUSTOMER.read(txn, &customer_key, &mut scratch.customer)?;

        let mut newest = None;
        let end = customer_order_key(self.home, self.district, id, u32::MAX);
        txn.scan(
            CUSTOMER_ORDER.index,
            (Bound::Included(&customer_key), Bound::Included(&end)),
            Order::Descending,
            &mut |key, _| {
                newest = Some(
                    key_u32(key, CUSTOMER_ORDER_OFFSET).ok_or_else(|| strange_key(&CUSTOMER_ORDER, key)),
                );
                ControlFlow::Break(())
            },
        )?;
        let Some(newest) = newest.transpose()? else { return Ok(()) };
        ORDER.read(txn, &order_key(self.home, self.district, newest), &mut scratch.order)?;

        let first = order_line_key(self.home, self.district, newest, 0);
        let last = order_line_key(self.home, self.district, newest, u8::MAX);
        let mut shown = 0_i64;
        ORDER_LINE.scan(txn, (Bound::Included(&first), Bound::Included(&last)), &mut |_, line| {
            shown = shown.wrapping_add(order_line::AMOUNT.get(line));
            Ok(())
        })?;
        std::hint::black_box((
            shown,
            customer::BALANCE.get(&scratch.customer),
            order::CARRIER.get(&scratch.order),
        ));
        Ok(())
    }
}
