//! The twelve consistency conditions of clause 3.3.2, and two of our own: that the indexes say what the tables say,
//! and that stock and order lines agree.
//!
//! One pass over each table collects what the conditions need; every row is looked at, where the specification allows
//! samples. Condition 11 is stated for the initial population (ORDER − NEW-ORDER = 2,100 in each district); each
//! delivery raises the difference by one and counts itself in C_DELIVERY_CNT, which is how it is checked here.

mod conditions;

use super::{
    DISTRICTS, Scale,
    schema::{
        CUSTOMER, CUSTOMER_NAME, CUSTOMER_ORDER, CUSTOMER_ORDER_OFFSET, DISTRICT, HISTORY,
        NAME_CUSTOMER_OFFSET, NEW_ORDER, ORDER, ORDER_LINE, ORDER_OFFSET, STOCK, WAREHOUSE, customer,
        district, history, order, order_line, stock, warehouse,
    },
    split::Parts,
};
use crate::{
    engine::Failure,
    row::{TableSpec, key_u32, strange_key},
    workload::Check,
};

/// What the checks must know of a customer.
#[derive(Clone, Copy, Default)]
struct CustomerFacts {
    present: bool,
    balance: i64,
    ytd_payment: i64,
    deliveries: u32,
    /// Sum of the payments in the history.
    history: i64,
    /// Sum of the amounts of delivered order lines.
    delivered: i64,
    name_entries: u32,
}

/// What the checks must know of an order.
struct OrderFacts {
    id: u32,
    customer: u32,
    carrier: u8,
    lines: u8,
    lines_found: u32,
    lines_delivered: u32,
    in_new_order: bool,
    index_entries: u32,
}

/// What the checks must know of a district, besides its customers.
#[derive(Default)]
struct DistrictFacts {
    ytd: i64,
    next_order: u32,
    history: i64,
    /// Ascending by id.
    orders: Vec<OrderFacts>,
    /// Lowest, highest and number of new orders.
    new_orders: Option<(u32, u32, u64)>,
    /// New orders, lines and index entries that belong to no order.
    stray_new_orders: u64,
    stray_lines: u64,
    stray_entries: u64,
}

#[derive(Default)]
struct WarehouseFacts {
    ytd: i64,
    history: i64,
}

/// Quantity and number of order lines, as stock counts them and as the order lines say.
#[derive(Default, PartialEq)]
struct Ordered {
    quantity: u64,
    lines: u64,
}

struct Facts<'s> {
    scale: &'s Scale,
    warehouses: Vec<WarehouseFacts>,
    districts: Vec<DistrictFacts>,
    customers: Vec<CustomerFacts>,
    stock: Ordered,
    sold: Ordered,
}

pub(super) fn check(scale: &Scale, engine: &Parts<'_>) -> Result<Vec<Check>, Failure> {
    let mut facts = Facts::new(scale);
    facts.collect_heads(engine)?;
    facts.collect_orders(engine)?;
    facts.collect_payments(engine)?;
    facts.collect_stock(engine)?;
    let mut checks = facts.check_sums();
    checks.extend(facts.check_orders());
    checks.extend(facts.check_customers());
    // In the order of the specification; our own come last.
    checks.sort_by_key(|check| {
        check.name.split(':').next().and_then(|number| number.parse().ok()).unwrap_or(u32::MAX)
    });
    Ok(checks)
}

impl<'s> Facts<'s> {
    fn new(scale: &'s Scale) -> Facts<'s> {
        let districts = scale.warehouses as usize * usize::from(DISTRICTS);
        Facts {
            scale,
            warehouses: (0..scale.warehouses).map(|_| WarehouseFacts::default()).collect(),
            districts: (0..districts).map(|_| DistrictFacts::default()).collect(),
            customers: vec![CustomerFacts::default(); districts * scale.customers as usize],
            stock: Ordered::default(),
            sold: Ordered::default(),
        }
    }

    fn warehouse_index(&self, number: u32) -> Option<usize> {
        (1..=self.scale.warehouses).contains(&number).then(|| number as usize - 1)
    }

    fn district_index(&self, warehouse: u32, district: u8) -> Option<usize> {
        let warehouse = self.warehouse_index(warehouse)?;
        (1..=DISTRICTS)
            .contains(&district)
            .then(|| warehouse * usize::from(DISTRICTS) + usize::from(district) - 1)
    }

    fn customer_index(&self, warehouse: u32, district: u8, customer: u32) -> Option<usize> {
        let district = self.district_index(warehouse, district)?;
        (1..=self.scale.customers)
            .contains(&customer)
            .then(|| district * self.scale.customers as usize + customer as usize - 1)
    }

    /// The district that a key starts with, and the number that follows it.
    fn place(&self, table: &TableSpec, key: &[u8]) -> Result<(usize, u32), Failure> {
        let parts = || Some((key_u32(key, 0)?, *key.get(4)?, key_u32(key, ORDER_OFFSET)?));
        let (warehouse, district, number) = parts().ok_or_else(|| strange_key(table, key))?;
        let place = self.district_index(warehouse, district).ok_or_else(|| strange_key(table, key))?;
        Ok((place, number))
    }

    /// Warehouses, districts, customers and their names.
    fn collect_heads(&mut self, engine: &Parts<'_>) -> Result<(), Failure> {
        engine.visit_all(&WAREHOUSE, &mut |key, row| {
            WAREHOUSE.check(key, row)?;
            let place = key_u32(key, 0).and_then(|number| self.warehouse_index(number));
            self.warehouses[place.ok_or_else(|| strange_key(&WAREHOUSE, key))?].ytd = warehouse::YTD.get(row);
            Ok(())
        })?;
        engine.visit_all(&DISTRICT, &mut |key, row| {
            DISTRICT.check(key, row)?;
            let place =
                key_u32(key, 0).zip(key.get(4)).and_then(|(home, &number)| self.district_index(home, number));
            let facts = &mut self.districts[place.ok_or_else(|| strange_key(&DISTRICT, key))?];
            facts.ytd = district::YTD.get(row);
            facts.next_order = district::NEXT_ORDER.get(row);
            Ok(())
        })?;
        engine.visit_all(&CUSTOMER, &mut |key, row| {
            CUSTOMER.check(key, row)?;
            let place = self.customer_place(&CUSTOMER, key, ORDER_OFFSET)?;
            let facts = &mut self.customers[place];
            facts.present = true;
            facts.balance = customer::BALANCE.get(row);
            facts.ytd_payment = customer::YTD_PAYMENT.get(row);
            facts.deliveries = customer::DELIVERIES.get(row);
            Ok(())
        })?;
        engine.visit_all(&CUSTOMER_NAME, &mut |key, _| {
            let place = self.customer_place(&CUSTOMER_NAME, key, NAME_CUSTOMER_OFFSET)?;
            self.customers[place].name_entries += 1;
            Ok(())
        })
    }

    /// The customer that a key names: warehouse and district in front, the number at `offset`.
    fn customer_place(&self, table: &TableSpec, key: &[u8], offset: usize) -> Result<usize, Failure> {
        let parts = || Some((key_u32(key, 0)?, *key.get(4)?, key_u32(key, offset)?));
        parts()
            .and_then(|(warehouse, district, number)| self.customer_index(warehouse, district, number))
            .ok_or_else(|| strange_key(table, key))
    }

    /// Orders, then what refers to them.
    fn collect_orders(&mut self, engine: &Parts<'_>) -> Result<(), Failure> {
        engine.visit_all(&ORDER, &mut |key, row| {
            ORDER.check(key, row)?;
            let (place, id) = self.place(&ORDER, key)?;
            self.districts[place].orders.push(OrderFacts {
                id,
                customer: order::CUSTOMER.get(row),
                carrier: order::CARRIER.get(row),
                lines: order::LINES.get(row),
                lines_found: 0,
                lines_delivered: 0,
                in_new_order: false,
                index_entries: 0,
            });
            Ok(())
        })?;
        engine.visit_all(&NEW_ORDER, &mut |key, _| {
            let (place, id) = self.place(&NEW_ORDER, key)?;
            let facts = &mut self.districts[place];
            let (lowest, highest, count) = facts.new_orders.unwrap_or((id, id, 0));
            facts.new_orders = Some((lowest.min(id), highest.max(id), count + 1));
            match facts.order(id) {
                Some(order) => order.in_new_order = true,
                None => facts.stray_new_orders += 1,
            }
            Ok(())
        })?;
        engine.visit_all(&ORDER_LINE, &mut |key, row| {
            ORDER_LINE.check(key, row)?;
            let (place, id) = self.place(&ORDER_LINE, key)?;
            if id > self.scale.customers {
                self.sold.lines += 1;
                self.sold.quantity += u64::from(order_line::QUANTITY.get(row));
            }
            let Some(order) = self.districts[place].order(id) else {
                self.districts[place].stray_lines += 1;
                return Ok(());
            };
            order.lines_found += 1;
            let by = order.customer;
            if order_line::DELIVERY_DATE.get(row) != 0 {
                order.lines_delivered += 1;
                if (1..=self.scale.customers).contains(&by) {
                    let customer = place * self.scale.customers as usize + by as usize - 1;
                    let sum = &mut self.customers[customer].delivered;
                    *sum = sum.wrapping_add(order_line::AMOUNT.get(row));
                }
            }
            Ok(())
        })?;
        engine.visit_all(&CUSTOMER_ORDER, &mut |key, _| {
            let (place, by) = self.place(&CUSTOMER_ORDER, key)?;
            let id = key_u32(key, CUSTOMER_ORDER_OFFSET).ok_or_else(|| strange_key(&CUSTOMER_ORDER, key))?;
            let facts = &mut self.districts[place];
            match facts.order(id) {
                Some(order) if order.customer == by => order.index_entries += 1,
                _ => facts.stray_entries += 1,
            }
            Ok(())
        })
    }

    fn collect_payments(&mut self, engine: &Parts<'_>) -> Result<(), Failure> {
        engine.visit_all(&HISTORY, &mut |key, row| {
            HISTORY.check(key, row)?;
            let (place, _) = self.place(&HISTORY, key)?;
            let amount = history::AMOUNT.get(row);
            let sums = [
                &mut self.districts[place].history,
                &mut self.warehouses[place / usize::from(DISTRICTS)].history,
            ];
            for sum in sums {
                *sum = sum.wrapping_add(amount);
            }
            let by = self.customer_index(
                history::CUSTOMER_WAREHOUSE.get(row),
                history::CUSTOMER_DISTRICT.get(row),
                history::CUSTOMER.get(row),
            );
            let nobody = || Failure::inconsistent(format!("history row {} names nobody", key.escape_ascii()));
            let sum = &mut self.customers[by.ok_or_else(nobody)?].history;
            *sum = sum.wrapping_add(amount);
            Ok(())
        })
    }

    fn collect_stock(&mut self, engine: &Parts<'_>) -> Result<(), Failure> {
        engine.visit_all(&STOCK, &mut |key, row| {
            STOCK.check(key, row)?;
            self.stock.quantity = self.stock.quantity.wrapping_add(stock::YTD.get(row));
            self.stock.lines = self.stock.lines.wrapping_add(u64::from(stock::ORDERS.get(row)));
            Ok(())
        })
    }
}

impl DistrictFacts {
    fn order(&mut self, id: u32) -> Option<&mut OrderFacts> {
        let place = self.orders.binary_search_by_key(&id, |order| order.id).ok()?;
        Some(&mut self.orders[place])
    }
}
