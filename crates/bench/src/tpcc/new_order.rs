//! NewOrder (2.4): about 23 reads, 11 updates and 13 inserts; the backbone of the mix.

use super::{
    schema::{
        CUSTOMER, CUSTOMER_ORDER, DISTRICT, DISTRICT_TEXT, ITEM, NEW_ORDER, ORDER, ORDER_LINE, STOCK,
        WAREHOUSE, customer, customer_key, customer_order_key, district, district_key, item, item_key, order,
        order_key, order_line, order_line_key, stock, stock_key, warehouse, warehouse_key,
    },
    worker::Scratch,
};
use crate::{
    engine::{EngineTxn, Failure, Foresee, Stop},
    row::begin_row,
};

/// One line of an order as it is entered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OrderedItem {
    pub(super) item: u32,
    pub(super) supply: u32,
    pub(super) quantity: u8,
}

#[derive(Debug)]
pub(super) struct NewOrderInput {
    pub(super) home: u32,
    pub(super) district: u8,
    pub(super) customer: u32,
    pub(super) date: u64,
    /// The last line names an item that there is not.
    pub(super) rolls_back: bool,
    pub(super) count: usize,
    pub(super) lines: [OrderedItem; 15],
}

impl NewOrderInput {
    /// All but the new rows, whose keys have the district's next number in them.
    pub(super) fn foresee(&self, touch: &mut Foresee<'_>) -> bool {
        touch(WAREHOUSE.index, &warehouse_key(self.home), false);
        touch(DISTRICT.index, &district_key(self.home, self.district), true);
        touch(CUSTOMER.index, &customer_key(self.home, self.district, self.customer), false);
        for line in &self.lines[..self.count] {
            touch(ITEM.index, &item_key(line.item), false);
            touch(STOCK.index, &stock_key(line.supply, line.item), true);
        }
        true
    }

    pub(super) fn run(&self, txn: &mut dyn EngineTxn, scratch: &mut Scratch) -> Result<(), Stop> {
        let lines = &self.lines[..self.count];
        WAREHOUSE.read(txn, &warehouse_key(self.home), &mut scratch.warehouse)?;

        let district_key = district_key(self.home, self.district);
        DISTRICT.read_for_update(txn, &district_key, &mut scratch.district)?;
        let id = district::NEXT_ORDER.get(&scratch.district);
        district::NEXT_ORDER.set(&mut scratch.district, id.wrapping_add(1));
        txn.put(DISTRICT.index, &district_key, &scratch.district)?;

        CUSTOMER.read(txn, &customer_key(self.home, self.district, self.customer), &mut scratch.customer)?;

        let order_key = order_key(self.home, self.district, id);
        let row = &mut scratch.row;
        begin_row(row, order::FIXED);
        order::ENTRY_DATE.set(row, self.date);
        order::CUSTOMER.set(row, self.customer);
        order::LINES.set(row, self.count as u8);
        order::ALL_LOCAL.set(row, u8::from(lines.iter().all(|line| line.supply == self.home)));
        ORDER.insert(txn, &order_key, row)?;
        NEW_ORDER.insert(txn, &order_key, b"")?;
        let index_key = customer_order_key(self.home, self.district, self.customer, id);
        CUSTOMER_ORDER.insert(txn, &index_key, b"")?;

        let prices = self.prices(txn, scratch)?;
        // An item that there is not ends the order, when its line is come to.
        let ordered = prices[..self.count].iter().position(Option::is_none).unwrap_or(self.count);
        self.take_stock(txn, scratch, ordered)?;
        let mut sum = 0;
        for (number, line) in lines.iter().enumerate() {
            let Some(price) = prices[number] else {
                return Err(match self.rolls_back && number + 1 == self.count {
                    true => Stop::Rollback,
                    false => Failure::inconsistent(format!("item has lost row {}", line.item)).into(),
                });
            };
            let amount = i64::from(line.quantity) * price;
            self.add_line(txn, scratch, id, number, amount)?;
            sum += amount;
        }
        // What the terminal would show: the total after discount and taxes.
        let discount = 10_000 - i64::from(customer::DISCOUNT.get(&scratch.customer));
        let taxes = 10_000
            + i64::from(warehouse::TAX.get(&scratch.warehouse))
            + i64::from(district::TAX.get(&scratch.district));
        std::hint::black_box(sum * discount / 10_000 * taxes / 10_000);
        Ok(())
    }

    /// What the lines' items cost, in cents.
    fn prices(&self, txn: &mut dyn EngineTxn, scratch: &mut Scratch) -> Result<[Option<i64>; 15], Stop> {
        let Scratch { keys, item: row, .. } = scratch;
        keys.clear();
        keys.extend(self.lines[..self.count].iter().map(|line| item_key(line.item)));
        let (mut prices, mut sound) = ([None; 15], Ok(()));
        txn.get_many(ITEM.index, keys, false, row, &mut |number, row| {
            let Some(row) = row else { return };
            match ITEM.check(&keys[number], row) {
                Ok(()) => prices[number] = Some(item::PRICE.get(row)),
                damaged => sound = damaged,
            }
        })?;
        sound?;
        Ok(prices)
    }

    /// Reads the stock that the first `ordered` lines are going to change.
    fn take_stock(&self, txn: &mut dyn EngineTxn, scratch: &mut Scratch, ordered: usize) -> Result<(), Stop> {
        let Scratch { keys, stock: row, stocks, .. } = scratch;
        keys.clear();
        keys.extend(self.lines[..ordered].iter().map(|line| stock_key(line.supply, line.item)));
        let mut sound = Ok(());
        txn.get_many(STOCK.index, keys, true, row, &mut |number, row| {
            if sound.is_ok() {
                sound = STOCK.admit(row, &keys[number]);
            }
            stocks[number].clear();
            stocks[number].extend_from_slice(row.unwrap_or(&[]));
        })?;
        Ok(sound?)
    }

    /// Adds one line and takes it from the stock.
    fn add_line(
        &self,
        txn: &mut dyn EngineTxn,
        scratch: &mut Scratch,
        id: u32,
        number: usize,
        amount: i64,
    ) -> Result<(), Stop> {
        let (line, before) = (&self.lines[number], &self.lines[..number]);
        // A transaction that orders an item twice finds what it has left of it.
        let same = |other: &OrderedItem| (other.supply, other.item) == (line.supply, line.item);
        let place = before.iter().position(same).unwrap_or(number);
        let stock = &mut scratch.stocks[place];
        let ordered = i32::from(line.quantity);
        let left = stock::QUANTITY.get(stock);
        let refill = if left >= ordered + 10 { 0 } else { 91 };
        stock::QUANTITY.set(stock, left - ordered + refill);
        let ytd = stock::YTD.get(stock);
        stock::YTD.set(stock, ytd.wrapping_add(u64::from(line.quantity)));
        let orders = stock::ORDERS.get(stock);
        stock::ORDERS.set(stock, orders.wrapping_add(1));
        if line.supply != self.home {
            let remote = stock::REMOTE_ORDERS.get(stock);
            stock::REMOTE_ORDERS.set(stock, remote.wrapping_add(1));
        }
        txn.put(STOCK.index, &stock_key(line.supply, line.item), stock)?;

        let row = &mut scratch.row;
        begin_row(row, order_line::TEXT);
        order_line::AMOUNT.set(row, amount);
        order_line::ITEM.set(row, line.item);
        order_line::SUPPLY_WAREHOUSE.set(row, line.supply);
        order_line::QUANTITY.set(row, line.quantity);
        let text = stock::TEXTS + (usize::from(self.district) - 1) * DISTRICT_TEXT;
        row.extend_from_slice(&stock[text..text + DISTRICT_TEXT]);
        ORDER_LINE.insert(txn, &order_line_key(self.home, self.district, id, number as u8 + 1), row)?;
        Ok(())
    }
}
