//! TPC-C, revision 5.11, as far as it concerns a storage manager: all nine tables, the five transactions in the
//! specified mix, NURand, the last-name index, remote accesses, the one NewOrder in a hundred that is rolled back, and
//! the twelve consistency conditions as code.
//!
//! Departures from the specification, which is about whole systems: no terminals, so no keying and think times;
//! Delivery runs at once instead of being queued; the home warehouse of a transaction is drawn anew each time unless
//! `warehouse_per_client` is set; dates are counters, not clocks; money is in cents and rates in ten-thousandths.

mod check;
mod customer;
mod delivery;
mod load;
mod new_order;
mod order_status;
mod payment;
mod rows;
mod schema;
mod split;
mod stock_level;
mod worker;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use split::{Parts, Split};

use crate::{
    BenchError,
    engine::{Engine, Failure},
    named::Named,
    random::Random,
    workload::{Check, Loader, PartitionOf, Worker, Workload},
};

/// Districts of a warehouse.
const DISTRICTS: u8 = 10;

/// Which of the five transactions run, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mix {
    /// NewOrder 45 %, Payment 43 %, OrderStatus, Delivery and StockLevel 4 % each.
    #[default]
    Full,
    /// NewOrder and Payment, half and half.
    NewOrderPayment,
    /// NewOrder alone.
    NewOrder,
    /// Payment alone.
    Payment,
}

impl Mix {
    fn draw(self, random: &mut Random) -> Kind {
        match self {
            Mix::Full => match random.below(100) {
                0..45 => Kind::NewOrder,
                45..88 => Kind::Payment,
                88..92 => Kind::OrderStatus,
                92..96 => Kind::Delivery,
                _ => Kind::StockLevel,
            },
            Mix::NewOrderPayment if random.percent(50) => Kind::NewOrder,
            Mix::NewOrderPayment | Mix::Payment => Kind::Payment,
            Mix::NewOrder => Kind::NewOrder,
        }
    }
}

impl Named for Mix {
    const WHAT: &'static str = "mix";
    const ALL: &'static [Mix] = &[Mix::Full, Mix::NewOrderPayment, Mix::NewOrder, Mix::Payment];

    fn name(self) -> &'static str {
        match self {
            Mix::Full => "full",
            Mix::NewOrderPayment => "neworder-payment",
            Mix::NewOrder => "neworder",
            Mix::Payment => "payment",
        }
    }
}

/// The five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

const KINDS: [&str; 5] = ["new_order", "payment", "order_status", "delivery", "stock_level"];

/// How large the database is. Only the number of warehouses may be changed in a run that calls itself TPC-C; the
/// others serve tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u32,
    /// Customers in each district; also the orders that each district starts with.
    pub customers: u32,
    /// Items; each warehouse stocks all of them.
    pub items: u32,
}

impl Scale {
    /// The specified cardinalities.
    pub const fn specified(warehouses: u32) -> Scale {
        Scale { warehouses, customers: 3000, items: 100_000 }
    }

    /// A few hundred rows, for tests.
    pub const fn tiny(warehouses: u32) -> Scale {
        Scale { warehouses, customers: 30, items: 100 }
    }

    /// Of the first orders of a district, those delivered already: 2,100 of 3,000.
    const fn delivered_orders(&self) -> u32 {
        self.customers / 10 * 7
    }
}

/// The constants C of NURand, which the load and the run draw as 2.1.6.1 demands.
#[derive(Clone, Copy, Debug)]
struct Constants {
    last_name_load: u32,
    last_name_run: u32,
    customer: u32,
    item: u32,
}

impl Constants {
    fn draw(seed: u64) -> Constants {
        let mut random = Random::new(seed, 0xC0);
        let last_name_load = random.between(0, 255);
        // The distance between the two must lie in 65..=119 and be neither 96 nor 112.
        let last_name_run = loop {
            let drawn = random.between(0, 255);
            let distance = drawn.abs_diff(last_name_load);
            if (65..=119).contains(&distance) && distance != 96 && distance != 112 {
                break drawn;
            }
        };
        Constants {
            last_name_load,
            last_name_run,
            customer: random.between(0, 1023),
            item: random.between(0, 8191),
        }
    }
}

/// The workload.
#[derive(Clone, Debug)]
pub struct Tpcc {
    scale: Scale,
    mix: Mix,
    warehouse_per_client: bool,
    /// Customers that are named by last name, in percent.
    by_name: u32,
    split: Split,
}

/// How many of the customers are named by last name, in percent (2.5.1.2).
pub const NAMED: u32 = 60;

impl Tpcc {
    /// The workload at this scale. With `warehouse_per_client` each thread stays at one warehouse.
    pub fn new(scale: Scale, mix: Mix, warehouse_per_client: bool) -> Result<Tpcc, BenchError> {
        let limit = |what, value: u32, low, high| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(BenchError::invalid(format!("{what} must be in {low}..={high}, got {value}")))
            }
        };
        limit("warehouses", scale.warehouses, 1, 10_000)?;
        limit("customers in a district", scale.customers, 10, 3000)?;
        limit("items", scale.items, 20, 100_000)?;
        Ok(Tpcc { scale, mix, warehouse_per_client, by_name: NAMED, split: Split::NONE })
    }

    /// The same with so many percent of the customers named by last name, in place of [`NAMED`]: another benchmark. A
    /// customer that is named by number need not be looked up, so it is known what the transaction will touch.
    pub fn with_names(self, percent: u32) -> Result<Tpcc, BenchError> {
        if percent > 100 {
            return Err(BenchError::invalid(format!("of the customers {percent} % cannot be named")));
        }
        Ok(Tpcc { by_name: percent, ..self })
    }

    /// The same with tables of their own for each of so many partitions of the warehouses.
    pub fn with_split(self, partitions: u16) -> Tpcc {
        Tpcc { split: Split::into(partitions), ..self }
    }
}

/// The partition of a key, modulo their number: all keys but those of items begin with the warehouse.
fn partition_of_key(key: &[u8]) -> usize {
    key.first_chunk().map_or(0, |warehouse| u32::from_be_bytes(*warehouse) as usize)
}

impl Workload for Tpcc {
    fn name(&self) -> &'static str {
        "tpcc"
    }

    fn tables(&self) -> Vec<String> {
        self.split.tables()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &KINDS
    }

    fn options(&self) -> BTreeMap<String, serde_json::Value> {
        BTreeMap::from([
            ("warehouses".to_owned(), self.scale.warehouses.into()),
            ("customers_per_district".to_owned(), self.scale.customers.into()),
            ("items".to_owned(), self.scale.items.into()),
            ("mix".to_owned(), self.mix.name().into()),
            ("warehouse_per_client".to_owned(), self.warehouse_per_client.into()),
            ("by_name".to_owned(), self.by_name.into()),
            ("split".to_owned(), (self.split != Split::NONE).into()),
        ])
    }

    fn partition_of(&self) -> Option<PartitionOf> {
        Some(PartitionOf { of: partition_of_key, everywhere: &[schema::ITEM.index] })
    }

    fn load_parts(&self) -> u64 {
        load::parts(&self.scale)
    }

    fn load_rows(&self) -> u64 {
        load::rows(&self.scale)
    }

    fn load_part(&self, part: u64, seed: u64, loader: &mut Loader<'_>) -> Result<(), Failure> {
        load::load_part(&self.scale, self.split, part, seed, loader)
    }

    fn worker(&self, thread: usize, _threads: usize, seed: u64) -> Box<dyn Worker> {
        Box::new(worker::TpccWorker::new(self.clone(), thread, seed))
    }

    fn check(&self, engine: &dyn Engine, commits: Option<&[u64]>) -> Result<Vec<Check>, Failure> {
        let parts = Parts { engine, split: self.split };
        let mut checks = check::check(&self.scale, &parts)?;
        checks.push(rows::check(&self.scale, &parts)?);
        if let Some(commits) = commits {
            checks.push(rows::check_commits(&self.scale, &parts, commits)?);
        }
        Ok(checks)
    }
}
