//! The conditions, on what was collected.

use super::{DISTRICTS, Facts, OrderFacts};
use crate::workload::Check;

impl Facts<'_> {
    /// Conditions 1, 8, 9: sums of money by warehouse and district; and the stock.
    pub(super) fn check_sums(&self) -> Vec<Check> {
        let mut c1 = Check::new("1: W_YTD = sum(D_YTD)");
        let mut c8 = Check::new("8: W_YTD = sum(H_AMOUNT)");
        let mut c9 = Check::new("9: D_YTD = sum(H_AMOUNT)");
        for (number, warehouse) in self.warehouses.iter().enumerate() {
            let place = || format!("warehouse {}", number + 1);
            let first = number * usize::from(DISTRICTS);
            let districts = &self.districts[first..first + usize::from(DISTRICTS)];
            let sum = districts.iter().map(|district| district.ytd).fold(0, i64::wrapping_add);
            c1.expect_equal(&place, ("W_YTD", warehouse.ytd), ("sum(D_YTD)", sum));
            c8.expect_equal(&place, ("W_YTD", warehouse.ytd), ("sum(H_AMOUNT)", warehouse.history));
        }
        for (index, district) in self.districts.iter().enumerate() {
            c9.expect_equal(
                &|| place_name(index),
                ("D_YTD", district.ytd),
                ("sum(H_AMOUNT)", district.history),
            );
        }
        let mut stock = Check::new("stock: sums of S_YTD and S_ORDER_CNT = order lines since the load");
        stock.expect(self.stock == self.sold, || {
            format!(
                "stock counts {} pieces in {} lines, the order lines are {} pieces in {}",
                self.stock.quantity, self.stock.lines, self.sold.quantity, self.sold.lines
            )
        });
        vec![c1, c8, c9, stock]
    }

    /// Conditions 2 to 7: orders, new orders and lines; and their index.
    pub(super) fn check_orders(&self) -> Vec<Check> {
        let mut c2 = Check::new("2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)");
        let mut c3 = Check::new("3: max(NO_O_ID) - min(NO_O_ID) + 1 = rows in NEW-ORDER");
        let mut c4 = Check::new("4: sum(O_OL_CNT) = rows in ORDER-LINE");
        let mut c5 = Check::new("5: O_CARRIER_ID is null if and only if there is a row in NEW-ORDER");
        let mut c6 = Check::new("6: O_OL_CNT = rows of the order in ORDER-LINE");
        let mut c7 = Check::new("7: OL_DELIVERY_D is null if and only if O_CARRIER_ID is");
        let mut index = Check::new("index: one entry for each order in its customer's list");
        for (number, facts) in self.districts.iter().enumerate() {
            let place = || place_name(number);
            let last = i64::from(facts.next_order) - 1;
            let newest = facts.orders.last().map_or(0, |order| i64::from(order.id));
            c2.expect_equal(&place, ("D_NEXT_O_ID - 1", last), ("max(O_ID)", newest));
            if let Some((lowest, highest, count)) = facts.new_orders {
                c2.expect_equal(&place, ("D_NEXT_O_ID - 1", last), ("max(NO_O_ID)", highest.into()));
                let span = i64::from(highest) - i64::from(lowest) + 1;
                c3.expect_equal(&place, ("max - min + 1", span), ("rows", count as i64));
            }
            let declared = facts.orders.iter().map(|order| i64::from(order.lines)).sum();
            let found = facts.orders.iter().map(|order| i64::from(order.lines_found)).sum::<i64>();
            let found = found + facts.stray_lines as i64;
            c4.expect_equal(&place, ("sum(O_OL_CNT)", declared), ("rows", found));
            c5.expect(facts.stray_new_orders == 0, || {
                format!("{}: {} new orders belong to no order", place(), facts.stray_new_orders)
            });
            c6.expect(facts.stray_lines == 0, || {
                format!("{}: {} lines belong to no order", place(), facts.stray_lines)
            });
            index.expect(facts.stray_entries == 0, || {
                format!("{}: {} entries belong to no order", place(), facts.stray_entries)
            });
            for order in &facts.orders {
                let place = || format!("{}, order {}", place_name(number), order.id);
                c5.expect((order.carrier == 0) == order.in_new_order, || {
                    format!("{}: carrier {}, in NEW-ORDER: {}", place(), order.carrier, order.in_new_order)
                });
                c6.expect_equal(&place, ("O_OL_CNT", order.lines.into()), ("rows", order.lines_found.into()));
                let expected = if order.carrier == 0 { 0 } else { order.lines_found };
                c7.expect(order.lines_delivered == expected, || {
                    let OrderFacts { carrier, lines_delivered, lines_found, .. } = order;
                    format!(
                        "{}: carrier {carrier}, {lines_delivered} of {lines_found} lines delivered",
                        place()
                    )
                });
                index.expect_equal(&place, ("entries", order.index_entries.into()), ("expected", 1));
            }
        }
        vec![c2, c3, c4, c5, c6, c7, index]
    }

    /// Conditions 10 to 12: customers; and their names' index.
    pub(super) fn check_customers(&self) -> Vec<Check> {
        let mut c10 = Check::new("10: C_BALANCE = sum(OL_AMOUNT delivered) - sum(H_AMOUNT)");
        let mut c11 =
            Check::new("11: rows in ORDER - rows in NEW-ORDER = initially delivered + sum(C_DELIVERY_CNT)");
        let mut c12 = Check::new("12: C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT delivered)");
        let mut names = Check::new("names: every customer is there, with one entry in the last-name index");
        let each = self.scale.customers as usize;
        for (number, customers) in self.customers.chunks(each).enumerate() {
            for (id, facts) in (1..).zip(customers) {
                let place = || format!("{}, customer {id}", place_name(number));
                let due = facts.delivered.wrapping_sub(facts.history);
                c10.expect_equal(
                    &place,
                    ("C_BALANCE", facts.balance),
                    ("sum(OL_AMOUNT) - sum(H_AMOUNT)", due),
                );
                let bought = facts.balance.wrapping_add(facts.ytd_payment);
                c12.expect_equal(
                    &place,
                    ("C_BALANCE + C_YTD_PAYMENT", bought),
                    ("sum(OL_AMOUNT)", facts.delivered),
                );
                names.expect(facts.present && facts.name_entries == 1, || {
                    format!("{}: there: {}, entries: {}", place(), facts.present, facts.name_entries)
                });
            }
            let district = &self.districts[number];
            let waiting = district.new_orders.map_or(0, |(_, _, count)| count as i64);
            let delivered = customers.iter().map(|facts| i64::from(facts.deliveries)).sum::<i64>();
            c11.expect_equal(
                &|| place_name(number),
                ("ORDER - NEW-ORDER", district.orders.len() as i64 - waiting),
                ("delivered", i64::from(self.scale.delivered_orders()) + delivered),
            );
        }
        vec![c10, c11, c12, names]
    }
}

fn place_name(index: usize) -> String {
    let districts = usize::from(DISTRICTS);
    format!("district {}/{}", index / districts + 1, index % districts + 1)
}
