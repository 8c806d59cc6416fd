//! A terminal: draws inputs as clauses 2.4.1 to 2.8.1 say, and runs the transaction drawn.

use super::{
    Constants, DISTRICTS, Kind, Scale, Tpcc,
    delivery::DeliveryInput,
    new_order::{NewOrderInput, OrderedItem},
    order_status::OrderStatusInput,
    payment::PaymentInput,
    schema::last_name,
    split::Split,
    stock_level::StockLevelInput,
};
use crate::{
    engine::{EngineTxn, Foresee, Stop},
    random::Random,
    row::KeyBytes,
    workload::Worker,
};

/// A customer as a terminal names one: by number, or, [`super::NAMED`] times in a hundred, by last name.
#[derive(Clone, Copy, Debug)]
pub(super) enum CustomerChoice {
    Number(u32),
    LastName { letters: [u8; 16], length: usize },
}

/// The inputs of one transaction.
#[derive(Debug)]
enum Input {
    NewOrder(NewOrderInput),
    Payment(PaymentInput),
    OrderStatus(OrderStatusInput),
    Delivery(DeliveryInput),
    StockLevel(StockLevelInput),
}

/// Buffers that transactions read rows into, kept so that they are not allocated anew.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) warehouse: Vec<u8>,
    pub(super) district: Vec<u8>,
    pub(super) customer: Vec<u8>,
    pub(super) order: Vec<u8>,
    pub(super) line: Vec<u8>,
    pub(super) item: Vec<u8>,
    /// Stock rows of an order's lines.
    pub(super) stocks: [Vec<u8>; 15],
    pub(super) stock: Vec<u8>,
    pub(super) keys: Vec<KeyBytes>,
    pub(super) row: Vec<u8>,
    pub(super) numbers: Vec<u32>,
}

pub(super) struct TpccWorker {
    workload: Tpcc,
    random: Random,
    constants: Constants,
    /// The warehouse of a terminal that stays at one.
    fixed_home: Option<u32>,
    /// Keeps this worker's history keys apart from those of all others.
    writer: u64,
    /// Transactions drawn so far; also the date, which only has to be other than 0.
    sequence: u32,
    input: Input,
    scratch: Scratch,
}

impl TpccWorker {
    pub(super) fn new(workload: Tpcc, thread: usize, seed: u64) -> TpccWorker {
        let mut random = Random::new(seed, (2 << 32) | thread as u64);
        let home = (thread as u64 % u64::from(workload.scale.warehouses)) as u32 + 1;
        let fixed_home = workload.warehouse_per_client.then_some(home);
        let writer = random.bits() | 1;
        TpccWorker {
            workload,
            random,
            constants: Constants::draw(seed),
            fixed_home,
            writer,
            sequence: 0,
            input: Input::StockLevel(StockLevelInput { home, district: 1, threshold: 10 }),
            scratch: Scratch::default(),
        }
    }

    fn scale(&self) -> Scale {
        self.workload.scale
    }

    fn draw_home(&mut self) -> u32 {
        self.fixed_home.unwrap_or_else(|| self.random.between(1, self.workload.scale.warehouses))
    }

    fn draw_district(&mut self) -> u8 {
        self.random.between(1, u32::from(DISTRICTS)) as u8
    }

    /// A warehouse other than `home`, all alike; `home` when there is no other.
    fn draw_other_warehouse(&mut self, home: u32) -> u32 {
        let warehouses = self.scale().warehouses;
        if warehouses == 1 {
            return home;
        }
        let drawn = self.random.between(1, warehouses - 1);
        drawn + u32::from(drawn >= home)
    }

    fn draw_customer_number(&mut self) -> u32 {
        self.random.nurand(1023, self.constants.customer, 1, self.scale().customers)
    }

    fn draw_customer(&mut self) -> CustomerChoice {
        if !self.random.percent(self.workload.by_name) {
            return CustomerChoice::Number(self.draw_customer_number());
        }
        let highest = self.scale().customers.min(1000) - 1;
        let number = self.random.nurand(255, self.constants.last_name_run, 0, highest);
        let mut letters = [0; 16];
        let length = last_name(number, &mut letters);
        CustomerChoice::LastName { letters, length }
    }

    fn draw_new_order(&mut self, home: u32, date: u64) -> NewOrderInput {
        let district = self.draw_district();
        let customer = self.draw_customer_number();
        let count = self.random.between(5, 15) as usize;
        let rolls_back = self.random.percent(1);
        let mut lines = [OrderedItem::default(); 15];
        for (number, line) in lines[..count].iter_mut().enumerate() {
            let item = self.random.nurand(8191, self.constants.item, 1, self.scale().items);
            // An unused number, so that the last line finds no item.
            line.item = if rolls_back && number + 1 == count { self.scale().items + 1 } else { item };
            line.supply = if self.random.percent(1) { self.draw_other_warehouse(home) } else { home };
            line.quantity = self.random.between(1, 10) as u8;
        }
        NewOrderInput { home, district, customer, date, rolls_back, count, lines }
    }

    fn draw_payment(&mut self, home: u32, date: u64) -> PaymentInput {
        let district = self.draw_district();
        let (customer_warehouse, customer_district) = if self.random.percent(85) {
            (home, district)
        } else {
            (self.draw_other_warehouse(home), self.draw_district())
        };
        PaymentInput {
            home,
            district,
            customer_warehouse,
            customer_district,
            customer: self.draw_customer(),
            amount: i64::from(self.random.between(100, 500_000)),
            date,
            writer: self.writer,
            sequence: self.sequence,
        }
    }
}

impl Worker for TpccWorker {
    fn next(&mut self) -> usize {
        if self.sequence == u32::MAX {
            self.writer = self.random.bits() | 1;
            self.sequence = 0;
        }
        self.sequence += 1;
        let date = u64::from(self.sequence);
        let kind = self.workload.mix.draw(&mut self.random);
        let home = self.draw_home();
        self.input = match kind {
            Kind::NewOrder => Input::NewOrder(self.draw_new_order(home, date)),
            Kind::Payment => Input::Payment(self.draw_payment(home, date)),
            Kind::OrderStatus => Input::OrderStatus(OrderStatusInput {
                home,
                district: self.draw_district(),
                customer: self.draw_customer(),
            }),
            Kind::Delivery => {
                Input::Delivery(DeliveryInput { home, carrier: self.random.between(1, 10) as u8, date })
            }
            Kind::StockLevel => Input::StockLevel(StockLevelInput {
                home,
                district: self.draw_district(),
                threshold: self.random.between(10, 20) as i32,
            }),
        };
        kind as usize
    }

    fn foresee(&self, touch: &mut Foresee<'_>) -> bool {
        let split = self.workload.split;
        let touch: &mut Foresee<'_> = &mut |table, key, writes| touch(split.place(table, key), key, writes);
        match &self.input {
            Input::NewOrder(input) => input.foresee(touch),
            Input::Payment(input) => input.foresee(touch),
            // Orders and names have to be looked up.
            Input::OrderStatus(_) | Input::Delivery(_) | Input::StockLevel(_) => false,
        }
    }

    fn reads_only(&self) -> bool {
        matches!(self.input, Input::OrderStatus(_) | Input::StockLevel(_))
    }

    fn run(&mut self, txn: &mut dyn EngineTxn) -> Result<(), Stop> {
        let scratch = &mut self.scratch;
        let split = self.workload.split;
        let mut divided;
        let txn = if split == Split::NONE {
            txn
        } else {
            divided = split.txn(txn);
            &mut divided
        };
        match &self.input {
            Input::NewOrder(input) => input.run(txn, scratch),
            Input::Payment(input) => input.run(txn, scratch),
            Input::OrderStatus(input) => input.run(txn, scratch),
            Input::Delivery(input) => input.run(txn, scratch),
            Input::StockLevel(input) => input.run(txn, scratch),
        }
    }
}
