//! The nine tables and two indexes: keys, and the offsets of the numbers in each row's fixed part. Null is 0 where the
//! specification has nulls (carrier, delivery date).
//!
//! | table | key | fixed part | texts, in order |
//! | --- | --- | --- | --- |
//! | warehouse | w | [`warehouse`] | name, street 1, street 2, city, state, zip |
//! | district | w, d | [`district`] | name, street 1, street 2, city, state, zip |
//! | customer | w, d, c | [`customer`] | first, middle, last, street 1, street 2, city, state, zip, phone, data |
//! | history | w, d, writer, sequence | [`history`] | data |
//! | new order | w, d, o | – | – |
//! | order | w, d, o | [`order`] | – |
//! | order line | w, d, o, line | [`order_line`], then 24 bytes of district text | – |
//! | item | i | [`item`] | name, data |
//! | stock | w, i | [`stock`], then ten times 24 bytes of district text | data |
//! | customers by name | w, d, last, first, c | – | – |
//! | orders by customer | w, d, c, o | – | – |

use crate::{
    engine::TableIndex,
    row::{Field, KeyBytes, TableSpec},
};

/// Bytes of a district's text in stock and order lines.
pub(super) const DISTRICT_TEXT: usize = 24;

const fn table(index: u16, name: &'static str, fixed: usize) -> TableSpec {
    TableSpec { index: TableIndex(index), name, fixed }
}

pub(super) const WAREHOUSE: TableSpec = table(0, "warehouse", warehouse::FIXED);
pub(super) const DISTRICT: TableSpec = table(1, "district", district::FIXED);
pub(super) const CUSTOMER: TableSpec = table(2, "customer", customer::FIXED);
pub(super) const HISTORY: TableSpec = table(3, "history", history::FIXED);
pub(super) const NEW_ORDER: TableSpec = table(4, "new_order", 0);
pub(super) const ORDER: TableSpec = table(5, "order", order::FIXED);
pub(super) const ORDER_LINE: TableSpec = table(6, "order_line", order_line::FIXED);
pub(super) const ITEM: TableSpec = table(7, "item", item::FIXED);
pub(super) const STOCK: TableSpec = table(8, "stock", stock::FIXED);
pub(super) const CUSTOMER_NAME: TableSpec = table(9, "customer_by_name", 0);
pub(super) const CUSTOMER_ORDER: TableSpec = table(10, "order_by_customer", 0);

/// All of them; each stands at its own index.
pub(super) const TABLES: [TableSpec; 11] = [
    WAREHOUSE,
    DISTRICT,
    CUSTOMER,
    HISTORY,
    NEW_ORDER,
    ORDER,
    ORDER_LINE,
    ITEM,
    STOCK,
    CUSTOMER_NAME,
    CUSTOMER_ORDER,
];

pub(super) mod warehouse {
    use super::Field;
    /// Cents.
    pub(crate) const YTD: Field<i64> = Field::at(0);
    /// Ten-thousandths.
    pub(crate) const TAX: Field<u16> = Field::at(YTD.end());
    pub(crate) const FIXED: usize = TAX.end();
}

pub(super) mod district {
    use super::Field;
    pub(crate) const YTD: Field<i64> = Field::at(0);
    pub(crate) const NEXT_ORDER: Field<u32> = Field::at(YTD.end());
    pub(crate) const TAX: Field<u16> = Field::at(NEXT_ORDER.end());
    pub(crate) const FIXED: usize = TAX.end();
}

pub(super) mod customer {
    use super::Field;
    pub(crate) const BALANCE: Field<i64> = Field::at(0);
    pub(crate) const YTD_PAYMENT: Field<i64> = Field::at(BALANCE.end());
    pub(crate) const CREDIT_LIMIT: Field<i64> = Field::at(YTD_PAYMENT.end());
    pub(crate) const SINCE: Field<u64> = Field::at(CREDIT_LIMIT.end());
    pub(crate) const PAYMENTS: Field<u32> = Field::at(SINCE.end());
    pub(crate) const DELIVERIES: Field<u32> = Field::at(PAYMENTS.end());
    pub(crate) const DISCOUNT: Field<u16> = Field::at(DELIVERIES.end());
    /// 1 for "BC", 0 for "GC".
    pub(crate) const BAD_CREDIT: Field<u8> = Field::at(DISCOUNT.end());
    pub(crate) const FIXED: usize = BAD_CREDIT.end();
    /// The number of the text that holds C_DATA; it is the last.
    pub(crate) const DATA_TEXT: usize = 9;
    pub(crate) const DATA_LIMIT: usize = 500;
}

pub(super) mod history {
    use super::Field;
    pub(crate) const AMOUNT: Field<i64> = Field::at(0);
    pub(crate) const DATE: Field<u64> = Field::at(AMOUNT.end());
    pub(crate) const CUSTOMER_WAREHOUSE: Field<u32> = Field::at(DATE.end());
    pub(crate) const CUSTOMER: Field<u32> = Field::at(CUSTOMER_WAREHOUSE.end());
    pub(crate) const CUSTOMER_DISTRICT: Field<u8> = Field::at(CUSTOMER.end());
    pub(crate) const FIXED: usize = CUSTOMER_DISTRICT.end();
}

pub(super) mod order {
    use super::Field;
    pub(crate) const ENTRY_DATE: Field<u64> = Field::at(0);
    pub(crate) const CUSTOMER: Field<u32> = Field::at(ENTRY_DATE.end());
    pub(crate) const CARRIER: Field<u8> = Field::at(CUSTOMER.end());
    pub(crate) const LINES: Field<u8> = Field::at(CARRIER.end());
    pub(crate) const ALL_LOCAL: Field<u8> = Field::at(LINES.end());
    pub(crate) const FIXED: usize = ALL_LOCAL.end();
}

pub(super) mod order_line {
    use super::{DISTRICT_TEXT, Field};
    pub(crate) const AMOUNT: Field<i64> = Field::at(0);
    pub(crate) const DELIVERY_DATE: Field<u64> = Field::at(AMOUNT.end());
    pub(crate) const ITEM: Field<u32> = Field::at(DELIVERY_DATE.end());
    pub(crate) const SUPPLY_WAREHOUSE: Field<u32> = Field::at(ITEM.end());
    pub(crate) const QUANTITY: Field<u8> = Field::at(SUPPLY_WAREHOUSE.end());
    pub(crate) const TEXT: usize = QUANTITY.end();
    pub(crate) const FIXED: usize = TEXT + DISTRICT_TEXT;
}

pub(super) mod item {
    use super::Field;
    pub(crate) const PRICE: Field<i64> = Field::at(0);
    pub(crate) const IMAGE: Field<u32> = Field::at(PRICE.end());
    pub(crate) const FIXED: usize = IMAGE.end();
}

pub(super) mod stock {
    use super::{DISTRICT_TEXT, Field};
    pub(crate) const YTD: Field<u64> = Field::at(0);
    pub(crate) const QUANTITY: Field<i32> = Field::at(YTD.end());
    pub(crate) const ORDERS: Field<u32> = Field::at(QUANTITY.end());
    pub(crate) const REMOTE_ORDERS: Field<u32> = Field::at(ORDERS.end());
    /// The text of district 1; ten of them follow one another.
    pub(crate) const TEXTS: usize = REMOTE_ORDERS.end();
    pub(crate) const FIXED: usize = TEXTS + 10 * DISTRICT_TEXT;
}

#[inline]
pub(super) fn warehouse_key(warehouse: u32) -> KeyBytes {
    KeyBytes::new().u32(warehouse)
}

/// Also the prefix of everything that belongs to a district.
#[inline]
pub(super) fn district_key(warehouse: u32, district: u8) -> KeyBytes {
    warehouse_key(warehouse).u8(district)
}

#[inline]
pub(super) fn customer_key(warehouse: u32, district: u8, customer: u32) -> KeyBytes {
    district_key(warehouse, district).u32(customer)
}

/// Of orders and of new orders; also the prefix of an order's lines.
#[inline]
pub(super) fn order_key(warehouse: u32, district: u8, order: u32) -> KeyBytes {
    district_key(warehouse, district).u32(order)
}

#[inline]
pub(super) fn order_line_key(warehouse: u32, district: u8, order: u32, line: u8) -> KeyBytes {
    order_key(warehouse, district, order).u8(line)
}

/// `writer` keeps the keys of different threads apart, so that a payment needs no counter that all share.
#[inline]
pub(super) fn history_key(warehouse: u32, district: u8, writer: u64, sequence: u32) -> KeyBytes {
    district_key(warehouse, district).u64(writer).u32(sequence)
}

#[inline]
pub(super) fn item_key(item: u32) -> KeyBytes {
    KeyBytes::new().u32(item)
}

#[inline]
pub(super) fn stock_key(warehouse: u32, item: u32) -> KeyBytes {
    warehouse_key(warehouse).u32(item)
}

/// The prefix of all customers with a last name; first name and customer number follow.
#[inline]
pub(super) fn name_prefix(warehouse: u32, district: u8, last: &[u8]) -> KeyBytes {
    district_key(warehouse, district).text16(last)
}

/// Where the customer number stands in a key of the name index.
pub(super) const NAME_CUSTOMER_OFFSET: usize = 4 + 1 + 16 + 16;

#[inline]
pub(super) fn customer_order_key(warehouse: u32, district: u8, customer: u32, order: u32) -> KeyBytes {
    customer_key(warehouse, district, customer).u32(order)
}

/// Where the order number stands in a key of the orders-by-customer index.
pub(super) const CUSTOMER_ORDER_OFFSET: usize = 4 + 1 + 4;
/// Where the order number stands in a key of orders, new orders and order lines.
pub(super) const ORDER_OFFSET: usize = 4 + 1;

const SYLLABLES: [&[u8]; 10] =
    [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];

/// The last name with this number in 0..=999 (4.3.2.3), at most 15 letters; returns its length.
pub(super) fn last_name(number: u32, out: &mut [u8; 16]) -> usize {
    let mut length = 0;
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize];
        out[length..length + syllable.len()].copy_from_slice(syllable);
        length += syllable.len();
    }
    length
}
