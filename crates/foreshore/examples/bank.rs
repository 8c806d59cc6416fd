//! A bank: threads move money between accounts, an auditor adds everything up all the while, and nothing is ever
//! missing. Run it twice: the second run goes on where the first one ended.
//!
//! ```sh
//! cargo run --release -p foreshore --example bank -- /tmp/bank.foreshore
//! ```

use std::{env, thread, time::Instant};

use foreshore::{Database, Durability, Error, Prefix, TableDefinition, TransactOptions};

const ACCOUNTS: TableDefinition<u32, i64> = TableDefinition::new("accounts");
const TRANSFERS: TableDefinition<(u32, u64), (u32, u32, i64)> = TableDefinition::new("transfers");

const CUSTOMERS: u32 = 1000;
const OPENING_BALANCE: i64 = 1000;
const TELLERS: u32 = 4;
const TRANSFERS_EACH: u64 = 5000;

fn main() -> Result<(), Error> {
    let path = env::args().nth(1).unwrap_or_else(|| "bank.foreshore".to_owned());
    let db = Database::open(&path)?;
    open_accounts(&db)?;

    let begin = Instant::now();
    let audits = thread::scope(|scope| {
        let tellers: Vec<_> = (0..TELLERS).map(|teller| scope.spawn(move_money(&db, teller))).collect();
        let mut audits = 0;
        while tellers.iter().any(|teller| !teller.is_finished()) {
            audit(&db)?;
            audits += 1;
        }
        for teller in tellers {
            teller.join().expect("a teller does not panic")?;
        }
        Ok::<_, Error>(audits)
    })?;
    let transfers = u64::from(TELLERS) * TRANSFERS_EACH;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{transfers} transfers and {audits} audits in {seconds:.2} s");

    let entries = db.read(|tx| tx.count_range(TRANSFERS, ..))?;
    println!("{entries} transfers in the books; the total is right. The database is in {path}");
    db.close()
}

/// Gives every customer an opening balance, once.
fn open_accounts(db: &Database) -> Result<(), Error> {
    db.transact(|tx| {
        for customer in 0..CUSTOMERS {
            tx.insert(ACCOUNTS, customer, OPENING_BALANCE)?;
        }
        Ok(())
    })
}

/// What one teller does: moves money between two accounts and writes it in the books, again and again.
fn move_money(db: &Database, teller: u32) -> impl FnOnce() -> Result<(), Error> {
    let db = db.clone();
    move || {
        let options = TransactOptions {
            durability: Some(Durability::Lazy),
            label: Some("transfer".into()),
            ..TransactOptions::default()
        };
        let mut dice = u64::from(teller) + 1;
        for _ in 0..TRANSFERS_EACH {
            let (from, to, amount) =
                (roll(&mut dice, CUSTOMERS), roll(&mut dice, CUSTOMERS), i64::from(roll(&mut dice, 100)));
            db.transact_with(&options, |tx| {
                let balance = tx.get_for_update(ACCOUNTS, from)?.unwrap_or(0);
                let amount = amount.min(balance);
                tx.put(ACCOUNTS, from, balance - amount)?;
                let balance = tx.get_for_update(ACCOUNTS, to)?.unwrap_or(0);
                tx.put(ACCOUNTS, to, balance + amount)?;
                let mut entries = tx.range(TRANSFERS, Prefix((teller,)))?;
                let number = match entries.next_back().transpose()? {
                    Some(((_, number), _)) => number + 1,
                    None => 0,
                };
                tx.insert(TRANSFERS, (teller, number), (from, to, amount))
            })?;
        }
        Ok(())
    }
}

/// Adds up all balances in one transaction.
fn audit(db: &Database) -> Result<(), Error> {
    let total = db.read(|tx| {
        tx.range(ACCOUNTS, ..)?.try_fold(0, |sum, entry| entry.map(|(_, balance)| sum + balance))
    })?;
    assert_eq!(total, i64::from(CUSTOMERS) * OPENING_BALANCE, "money was made or lost");
    Ok(())
}

/// A small random number generator, so that the example needs no other crate.
fn roll(dice: &mut u64, sides: u32) -> u32 {
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*dice >> 33) % u64::from(sides)) as u32
}
