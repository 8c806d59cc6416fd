//! Finding a customer by number or by last name (2.5.2.2, 2.6.2.2).

use std::ops::Bound;

use super::{
    schema::{CUSTOMER_NAME, NAME_CUSTOMER_OFFSET, name_prefix},
    worker::CustomerChoice,
};
use crate::{
    engine::{EngineTxn, Failure},
    row::{key_u32, strange_key},
};

impl CustomerChoice {
    /// The customer's number. Of several with one last name it is the one in the middle by first name, rounded up.
    pub(super) fn find(
        &self,
        txn: &mut dyn EngineTxn,
        warehouse: u32,
        district: u8,
        found: &mut Vec<u32>,
    ) -> Result<u32, Failure> {
        let (letters, length) = match self {
            CustomerChoice::Number(number) => return Ok(*number),
            CustomerChoice::LastName { letters, length } => (letters, *length),
        };
        let prefix = name_prefix(warehouse, district, &letters[..length]);
        // First names are letters and digits: 0xFF is above all of them.
        let end = prefix.u8(0xFF);
        found.clear();
        CUSTOMER_NAME.scan(txn, (Bound::Included(&prefix), Bound::Excluded(&end)), &mut |key, _| {
            let number = key_u32(key, NAME_CUSTOMER_OFFSET);
            found.push(number.ok_or_else(|| strange_key(&CUSTOMER_NAME, key))?);
            Ok(())
        })?;
        match found.len() {
            0 => Err(Failure::inconsistent(format!(
                "no customer of district {warehouse}/{district} is called {}",
                letters[..length].escape_ascii()
            ))),
            count => Ok(found[count.div_ceil(2) - 1]),
        }
    }
}
