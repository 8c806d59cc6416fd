//! The initial population of clause 4.3.3.1, in parts that load independently: the items; for each warehouse its row
//! with its stock; for each district everything that belongs to it. Within a part each table is filled in key order.

use super::{
    Constants, DISTRICTS, Scale,
    schema::{
        CUSTOMER, CUSTOMER_NAME, CUSTOMER_ORDER, DISTRICT, DISTRICT_TEXT, HISTORY, ITEM, NEW_ORDER, ORDER,
        ORDER_LINE, STOCK, WAREHOUSE, customer, customer_key, customer_order_key, district, district_key,
        history, history_key, item, item_key, last_name, name_prefix, order, order_key, order_line,
        order_line_key, stock, stock_key, warehouse, warehouse_key,
    },
    split::{Rows, Split},
};
use crate::{
    engine::Failure,
    random::Random,
    row::{begin_row, push_text},
    workload::Loader,
};

/// What each customer has paid at the start, in cents.
const FIRST_PAYMENT: i64 = 1000;
/// The date of everything loaded; any number but 0, which is null.
const LOAD_DATE: u64 = 1;
/// The writer of the history rows that are loaded.
const LOAD_WRITER: u64 = 0;

const PARTS_PER_WAREHOUSE: u64 = 1 + DISTRICTS as u64;

pub(super) fn parts(scale: &Scale) -> u64 {
    1 + u64::from(scale.warehouses) * PARTS_PER_WAREHOUSE
}

/// The rows of all parts; the number of order lines is its mean.
pub(super) fn rows(scale: &Scale) -> u64 {
    let (customers, items) = (u64::from(scale.customers), u64::from(scale.items));
    let undelivered = customers - u64::from(scale.delivered_orders());
    // A customer, its name entry, its payment, its order with index entry and ten lines.
    let district = 1 + customers * 15 + undelivered;
    items + u64::from(scale.warehouses) * (1 + items + u64::from(DISTRICTS) * district)
}

pub(super) fn load_part(
    scale: &Scale,
    split: Split,
    part: u64,
    seed: u64,
    loader: &mut Loader<'_>,
) -> Result<(), Failure> {
    let rows = &mut Rows { loader, split };
    let mut random = Random::new(seed, (1 << 32) | part);
    match part.checked_sub(1) {
        None => load_items(scale, &mut random, rows)?,
        Some(rest) => {
            let home = (rest / PARTS_PER_WAREHOUSE + 1) as u32;
            match (rest % PARTS_PER_WAREHOUSE) as u8 {
                0 => load_warehouse(scale, home, &mut random, rows)?,
                district => load_district(scale, home, district, seed, &mut random, rows)?,
            }
        }
    }
    rows.loader.flush()
}

/// I_DATA and S_DATA: 26 to 50 letters, with "ORIGINAL" somewhere in one of ten.
fn push_data(random: &mut Random, row: &mut Vec<u8>) {
    push_text(row, |out| {
        let start = out.len();
        random.letters(26, 50, out);
        if random.percent(10) {
            let place = start + random.below((out.len() - start - 8) as u64 + 1) as usize;
            out[place..place + 8].copy_from_slice(b"ORIGINAL");
        }
    });
}

fn push_address(random: &mut Random, row: &mut Vec<u8>) {
    for _ in 0..3 {
        push_text(row, |out| random.letters(10, 20, out));
    }
    push_text(row, |out| random.letters(2, 2, out));
    push_text(row, |out| {
        random.digits(4, out);
        out.extend_from_slice(b"11111");
    });
}

fn load_items(scale: &Scale, random: &mut Random, rows: &mut Rows<'_, '_>) -> Result<(), Failure> {
    let mut row = Vec::new();
    for id in 1..=scale.items {
        begin_row(&mut row, item::FIXED);
        item::PRICE.set(&mut row, i64::from(random.between(100, 10_000)));
        item::IMAGE.set(&mut row, random.between(1, 10_000));
        push_text(&mut row, |out| random.letters(14, 24, out));
        push_data(random, &mut row);
        rows.row(ITEM.index, &item_key(id), &row)?;
    }
    Ok(())
}

fn load_warehouse(
    scale: &Scale,
    home: u32,
    random: &mut Random,
    rows: &mut Rows<'_, '_>,
) -> Result<(), Failure> {
    let mut row = Vec::new();
    begin_row(&mut row, warehouse::FIXED);
    warehouse::YTD.set(&mut row, i64::from(DISTRICTS) * i64::from(scale.customers) * FIRST_PAYMENT);
    warehouse::TAX.set(&mut row, random.between(0, 2000) as u16);
    push_text(&mut row, |out| random.letters(6, 10, out));
    push_address(random, &mut row);
    rows.row(WAREHOUSE.index, &warehouse_key(home), &row)?;

    for id in 1..=scale.items {
        begin_row(&mut row, stock::TEXTS);
        stock::QUANTITY.set(&mut row, random.between(10, 100) as i32);
        random.letters(10 * DISTRICT_TEXT as u32, 10 * DISTRICT_TEXT as u32, &mut row);
        push_data(random, &mut row);
        rows.row(STOCK.index, &stock_key(home, id), &row)?;
    }
    Ok(())
}

fn load_district(
    scale: &Scale,
    home: u32,
    place: u8,
    seed: u64,
    random: &mut Random,
    rows: &mut Rows<'_, '_>,
) -> Result<(), Failure> {
    let mut row = Vec::new();
    begin_row(&mut row, district::FIXED);
    district::YTD.set(&mut row, i64::from(scale.customers) * FIRST_PAYMENT);
    district::NEXT_ORDER.set(&mut row, scale.customers + 1);
    district::TAX.set(&mut row, random.between(0, 2000) as u16);
    push_text(&mut row, |out| random.letters(6, 10, out));
    push_address(random, &mut row);
    rows.row(DISTRICT.index, &district_key(home, place), &row)?;

    load_customers(scale, home, place, Constants::draw(seed).last_name_load, random, rows)?;
    load_history(scale, home, place, random, rows)?;
    load_orders(scale, home, place, random, rows)
}

fn load_customers(
    scale: &Scale,
    home: u32,
    place: u8,
    last_name_constant: u32,
    random: &mut Random,
    rows: &mut Rows<'_, '_>,
) -> Result<(), Failure> {
    let (mut row, mut first) = (Vec::new(), Vec::new());
    let mut names = Vec::with_capacity(scale.customers as usize);
    for id in 1..=scale.customers {
        let mut letters = [0; 16];
        let number = if id <= 1000 { id - 1 } else { random.nurand(255, last_name_constant, 0, 999) };
        let length = last_name(number, &mut letters);
        let last = &letters[..length];
        first.clear();
        random.letters(8, 16, &mut first);
        names.push(name_prefix(home, place, last).text16(&first).u32(id));

        begin_row(&mut row, customer::FIXED);
        customer::BALANCE.set(&mut row, -FIRST_PAYMENT);
        customer::YTD_PAYMENT.set(&mut row, FIRST_PAYMENT);
        customer::CREDIT_LIMIT.set(&mut row, 5_000_000);
        customer::SINCE.set(&mut row, LOAD_DATE);
        customer::PAYMENTS.set(&mut row, 1);
        customer::DISCOUNT.set(&mut row, random.between(0, 5000) as u16);
        customer::BAD_CREDIT.set(&mut row, u8::from(random.percent(10)));
        push_text(&mut row, |out| out.extend_from_slice(&first));
        push_text(&mut row, |out| out.extend_from_slice(b"OE"));
        push_text(&mut row, |out| out.extend_from_slice(last));
        push_address(random, &mut row);
        push_text(&mut row, |out| random.digits(16, out));
        push_text(&mut row, |out| random.letters(300, customer::DATA_LIMIT as u32, out));
        rows.row(CUSTOMER.index, &customer_key(home, place, id), &row)?;
    }
    names.sort_unstable_by(|left, right| left[..].cmp(&right[..]));
    for name in &names {
        rows.row(CUSTOMER_NAME.index, name, b"")?;
    }
    Ok(())
}

fn load_history(
    scale: &Scale,
    home: u32,
    place: u8,
    random: &mut Random,
    rows: &mut Rows<'_, '_>,
) -> Result<(), Failure> {
    let mut row = Vec::new();
    for id in 1..=scale.customers {
        begin_row(&mut row, history::FIXED);
        history::AMOUNT.set(&mut row, FIRST_PAYMENT);
        history::DATE.set(&mut row, LOAD_DATE);
        history::CUSTOMER_WAREHOUSE.set(&mut row, home);
        history::CUSTOMER_DISTRICT.set(&mut row, place);
        history::CUSTOMER.set(&mut row, id);
        push_text(&mut row, |out| random.letters(12, 24, out));
        rows.row(HISTORY.index, &history_key(home, place, LOAD_WRITER, id), &row)?;
    }
    Ok(())
}

fn load_orders(
    scale: &Scale,
    home: u32,
    place: u8,
    random: &mut Random,
    rows: &mut Rows<'_, '_>,
) -> Result<(), Failure> {
    let mut row = Vec::new();
    let customers = random.permutation(scale.customers);
    let lines: Vec<u8> = customers.iter().map(|_| random.between(5, 15) as u8).collect();
    let orders =
        || (1..=scale.customers).zip(&customers).zip(&lines).map(|((id, by), lines)| (id, *by, *lines));

    for (id, by, lines) in orders() {
        begin_row(&mut row, order::FIXED);
        order::ENTRY_DATE.set(&mut row, LOAD_DATE);
        order::CUSTOMER.set(&mut row, by);
        order::LINES.set(&mut row, lines);
        order::ALL_LOCAL.set(&mut row, 1);
        if id <= scale.delivered_orders() {
            order::CARRIER.set(&mut row, random.between(1, 10) as u8);
        }
        rows.row(ORDER.index, &order_key(home, place, id), &row)?;
    }
    for (id, _, lines) in orders() {
        for line in 1..=lines {
            begin_row(&mut row, order_line::TEXT);
            order_line::ITEM.set(&mut row, random.between(1, scale.items));
            order_line::SUPPLY_WAREHOUSE.set(&mut row, home);
            order_line::QUANTITY.set(&mut row, 5);
            if id <= scale.delivered_orders() {
                order_line::DELIVERY_DATE.set(&mut row, LOAD_DATE);
            } else {
                order_line::AMOUNT.set(&mut row, i64::from(random.between(1, 999_999)));
            }
            random.letters(DISTRICT_TEXT as u32, DISTRICT_TEXT as u32, &mut row);
            rows.row(ORDER_LINE.index, &order_line_key(home, place, id, line), &row)?;
        }
    }
    for id in scale.delivered_orders() + 1..=scale.customers {
        rows.row(NEW_ORDER.index, &order_key(home, place, id), b"")?;
    }
    let mut by_customer: Vec<(u32, u32)> = orders().map(|(id, by, _)| (by, id)).collect();
    by_customer.sort_unstable();
    for (by, id) in by_customer {
        rows.row(CUSTOMER_ORDER.index, &customer_order_key(home, place, by, id), b"")?;
    }
    Ok(())
}
