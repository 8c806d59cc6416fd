//! Payment (2.5): three updates and one insert; the warehouse row is the hot spot of the mix.

use std::io::Write;

use super::{
    schema::{
        CUSTOMER, DISTRICT, HISTORY, WAREHOUSE, customer, customer_key, district, district_key, history,
        history_key, warehouse, warehouse_key,
    },
    worker::{CustomerChoice, Scratch},
};
use crate::{
    engine::{EngineTxn, Failure, Foresee, Stop},
    random::mix,
    row::{begin_row, push_text, text},
};

/// Runs with one seed over one database before history keys run out.
const WRITERS_TRIED: u32 = 10_000;

#[derive(Debug)]
pub(super) struct PaymentInput {
    pub(super) home: u32,
    pub(super) district: u8,
    pub(super) customer_warehouse: u32,
    pub(super) customer_district: u8,
    pub(super) customer: CustomerChoice,
    /// Cents.
    pub(super) amount: i64,
    pub(super) date: u64,
    pub(super) writer: u64,
    pub(super) sequence: u32,
}

impl PaymentInput {
    /// All but the row of history; a customer who is named by last name has to be looked up.
    pub(super) fn foresee(&self, touch: &mut Foresee<'_>) -> bool {
        let CustomerChoice::Number(id) = self.customer else { return false };
        touch(WAREHOUSE.index, &warehouse_key(self.home), true);
        touch(DISTRICT.index, &district_key(self.home, self.district), true);
        touch(CUSTOMER.index, &customer_key(self.customer_warehouse, self.customer_district, id), true);
        true
    }

    pub(super) fn run(&self, txn: &mut dyn EngineTxn, scratch: &mut Scratch) -> Result<(), Stop> {
        let warehouse_key = warehouse_key(self.home);
        WAREHOUSE.read_for_update(txn, &warehouse_key, &mut scratch.warehouse)?;
        let ytd = warehouse::YTD.get(&scratch.warehouse);
        warehouse::YTD.set(&mut scratch.warehouse, ytd.wrapping_add(self.amount));
        txn.put(WAREHOUSE.index, &warehouse_key, &scratch.warehouse)?;

        let district_key = district_key(self.home, self.district);
        DISTRICT.read_for_update(txn, &district_key, &mut scratch.district)?;
        let ytd = district::YTD.get(&scratch.district);
        district::YTD.set(&mut scratch.district, ytd.wrapping_add(self.amount));
        txn.put(DISTRICT.index, &district_key, &scratch.district)?;

        let id =
            self.customer.find(txn, self.customer_warehouse, self.customer_district, &mut scratch.numbers)?;
        let customer_key = customer_key(self.customer_warehouse, self.customer_district, id);
        let row = &mut scratch.customer;
        CUSTOMER.read_for_update(txn, &customer_key, row)?;
        let balance = customer::BALANCE.get(row);
        customer::BALANCE.set(row, balance.wrapping_sub(self.amount));
        let paid = customer::YTD_PAYMENT.get(row);
        customer::YTD_PAYMENT.set(row, paid.wrapping_add(self.amount));
        let payments = customer::PAYMENTS.get(row);
        customer::PAYMENTS.set(row, payments.wrapping_add(1));
        if customer::BAD_CREDIT.get(row) != 0 {
            self.note_in_data(id, row, &mut scratch.row)?;
        }
        txn.put(CUSTOMER.index, &customer_key, row)?;

        let row = &mut scratch.row;
        begin_row(row, history::FIXED);
        history::AMOUNT.set(row, self.amount);
        history::DATE.set(row, self.date);
        history::CUSTOMER_WAREHOUSE.set(row, self.customer_warehouse);
        history::CUSTOMER_DISTRICT.set(row, self.customer_district);
        history::CUSTOMER.set(row, id);
        push_text(row, |out| {
            out.extend_from_slice(name(&scratch.warehouse, warehouse::FIXED));
            out.extend_from_slice(b"    ");
            out.extend_from_slice(name(&scratch.district, district::FIXED));
        });
        self.insert_history(txn, row)
    }

    /// History has no key of its own. A writer that runs again with the seed of an earlier run would meet that run's
    /// rows: it moves on to another writer's number then.
    fn insert_history(&self, txn: &mut dyn EngineTxn, row: &[u8]) -> Result<(), Stop> {
        let mut writer = self.writer;
        for _ in 0..WRITERS_TRIED {
            let key = history_key(self.home, self.district, writer, self.sequence);
            if txn.insert(HISTORY.index, &key, row)? {
                return Ok(());
            }
            writer = mix(writer);
        }
        Err(Failure::fatal("the history of payments has no free key; choose another --seed").into())
    }

    /// Puts this payment before the data of a customer with bad credit, and cuts it to its limit (2.5.2.2).
    fn note_in_data(&self, id: u32, row: &mut Vec<u8>, note: &mut Vec<u8>) -> Result<(), Failure> {
        let Some((start, data)) = text(row, customer::FIXED, customer::DATA_TEXT) else {
            return Err(Failure::inconsistent(format!("customer {id} has lost its data")));
        };
        note.clear();
        // Writing to a Vec cannot fail.
        let _ = write!(
            note,
            "{id} {} {} {} {} {}.{:02}|",
            self.customer_district,
            self.customer_warehouse,
            self.district,
            self.home,
            self.amount / 100,
            self.amount % 100
        );
        let kept = data.len().min(customer::DATA_LIMIT - note.len());
        note.extend_from_slice(&data[..kept]);
        row.truncate(start);
        push_text(row, |out| out.extend_from_slice(note));
        Ok(())
    }
}

/// The first text of a warehouse or a district.
fn name(row: &[u8], fixed: usize) -> &[u8] {
    text(row, fixed, 0).map_or(b"", |(_, name)| name)
}
