//! Rows as compact bytes and keys as order-preserving bytes, on the stack.
//!
//! A row is a fixed part (numbers at constant offsets, little-endian) followed by its texts, each with a length in two
//! bytes. Transactions read and patch numbers in place; a row that is shorter than its fixed part is damage and is
//! reported before any field is touched.

use std::{
    marker::PhantomData,
    ops::{Bound, ControlFlow, Deref},
};

use crate::{
    engine::{EngineTxn, Failure, Order, TableIndex},
    workload::VisitRow,
};

/// A table's place, name, and the least length of its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSpec {
    /// Its place in the engine's list.
    pub(crate) index: TableIndex,
    /// Its name, for messages.
    pub(crate) name: &'static str,
    /// Bytes of the fixed part.
    pub(crate) fixed: usize,
}

impl TableSpec {
    /// Reads a row that must be there.
    pub(crate) fn read(&self, txn: &mut dyn EngineTxn, key: &[u8], row: &mut Vec<u8>) -> Result<(), Failure> {
        let found = txn.get(self.index, key, row)?;
        self.admit(found.then_some(row), key)
    }

    /// Reads a row that must be there and will be changed.
    pub(crate) fn read_for_update(
        &self,
        txn: &mut dyn EngineTxn,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let found = txn.get_for_update(self.index, key, row)?;
        self.admit(found.then_some(row), key)
    }

    /// Adds a row that must not be there.
    pub(crate) fn insert(&self, txn: &mut dyn EngineTxn, key: &[u8], row: &[u8]) -> Result<(), Failure> {
        if txn.insert(self.index, key, row)? {
            return Ok(());
        }
        Err(Failure::inconsistent(format!("{} has a row {} already", self.name, key.escape_ascii())))
    }

    /// Removes a row that must be there.
    pub(crate) fn delete(&self, txn: &mut dyn EngineTxn, key: &[u8]) -> Result<(), Failure> {
        let found = txn.delete(self.index, key)?;
        if found { Ok(()) } else { self.missing(key) }
    }

    /// Visits the rows of a range in ascending order until `visit` fails.
    pub(crate) fn scan(
        &self,
        txn: &mut dyn EngineTxn,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        visit: &mut VisitRow<'_>,
    ) -> Result<(), Failure> {
        let mut visited = Ok(());
        txn.scan(self.index, range, Order::Ascending, &mut |key, row| {
            visited = self.check(key, row).and_then(|()| visit(key, row));
            if visited.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        visited
    }

    /// Whether `row` has its fixed part; for rows that a scan brought.
    pub(crate) fn check(&self, key: &[u8], row: &[u8]) -> Result<(), Failure> {
        if row.len() >= self.fixed {
            return Ok(());
        }
        Err(Failure::inconsistent(format!(
            "row {} of {} has {} bytes, fewer than the {} of its fixed part",
            key.escape_ascii(),
            self.name,
            row.len(),
            self.fixed
        )))
    }

    /// Whether a row that must be there is, with its fixed part.
    #[inline]
    pub(crate) fn admit(&self, row: Option<&[u8]>, key: &[u8]) -> Result<(), Failure> {
        row.map_or_else(|| self.missing(key), |row| self.check(key, row))
    }

    #[cold]
    fn missing(&self, key: &[u8]) -> Result<(), Failure> {
        Err(Failure::inconsistent(format!("{} has lost row {}", self.name, key.escape_ascii())))
    }
}

/// A number at a constant place of a row's fixed part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<T> {
    offset: usize,
    value: PhantomData<fn() -> T>,
}

impl<T> Field<T> {
    /// The field that starts `offset` bytes into the row.
    pub(crate) const fn at(offset: usize) -> Field<T> {
        Field { offset, value: PhantomData }
    }

    /// Where the next field may start.
    pub(crate) const fn end(&self) -> usize {
        self.offset + size_of::<T>()
    }
}

macro_rules! field {
    ($($number:ty)*) => {$(
        impl Field<$number> {
            /// Reads the number. The row has its fixed part: [`TableSpec::check`] has seen it.
            #[inline]
            pub(crate) fn get(&self, row: &[u8]) -> $number {
                let mut bytes = [0; size_of::<$number>()];
                bytes.copy_from_slice(&row[self.offset..self.end()]);
                <$number>::from_le_bytes(bytes)
            }

            /// Writes the number.
            #[inline]
            pub(crate) fn set(&self, row: &mut [u8], value: $number) {
                row[self.offset..self.end()].copy_from_slice(&value.to_le_bytes());
            }
        }
    )*};
}
field!(u8 u16 u32 u64 i32 i64);

/// Empties `row` and gives it a zeroed fixed part.
pub(crate) fn begin_row(row: &mut Vec<u8>, fixed: usize) {
    row.clear();
    row.resize(fixed, 0);
}

/// Appends a text to a row.
pub(crate) fn push_text(row: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = row.len();
    row.extend_from_slice(&[0; 2]);
    write(row);
    let length = (row.len() - start - 2) as u16;
    row[start..start + 2].copy_from_slice(&length.to_le_bytes());
}

/// The `number`-th text (from 0) of a row: where it starts and its bytes; `None` when the row ends before.
pub(crate) fn text(row: &[u8], fixed: usize, number: usize) -> Option<(usize, &[u8])> {
    let mut offset = fixed;
    for skipped in 0..=number {
        let length = usize::from(u16::from_le_bytes(row.get(offset..offset + 2)?.try_into().ok()?));
        if skipped == number {
            return Some((offset, row.get(offset + 2..offset + 2 + length)?));
        }
        offset += 2 + length;
    }
    None
}

/// Bytes that the longest key of any workload needs.
const KEY_BYTES: usize = 48;

/// A key under construction: big-endian numbers and padded texts, so that byte order is field order.
#[derive(Clone, Copy, Debug)]
pub struct KeyBytes {
    bytes: [u8; KEY_BYTES],
    length: usize,
}

impl KeyBytes {
    /// The empty key, which is every key's prefix.
    #[inline]
    pub(crate) const fn new() -> KeyBytes {
        KeyBytes { bytes: [0; KEY_BYTES], length: 0 }
    }

    #[inline]
    fn push<const N: usize>(mut self, field: [u8; N]) -> KeyBytes {
        self.bytes[self.length..self.length + N].copy_from_slice(&field);
        self.length += N;
        self
    }

    /// Adds a field of one byte.
    #[inline]
    #[must_use]
    pub(crate) fn u8(self, field: u8) -> KeyBytes {
        self.push([field])
    }

    /// Adds a field of four bytes.
    #[inline]
    #[must_use]
    pub(crate) fn u32(self, field: u32) -> KeyBytes {
        self.push(field.to_be_bytes())
    }

    /// Adds a field of eight bytes.
    #[inline]
    #[must_use]
    pub(crate) fn u64(self, field: u64) -> KeyBytes {
        self.push(field.to_be_bytes())
    }

    /// Adds a text of at most 16 bytes without zeros in it, padded with zeros; what is longer is cut.
    #[inline]
    #[must_use]
    pub(crate) fn text16(self, text: &[u8]) -> KeyBytes {
        let mut field = [0; 16];
        let length = text.len().min(16);
        field[..length].copy_from_slice(&text[..length]);
        self.push(field)
    }
}

impl Default for KeyBytes {
    fn default() -> KeyBytes {
        KeyBytes::new()
    }
}

impl Deref for KeyBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The big-endian number at `offset` of a key; `None` when the key ends before.
#[inline]
pub(crate) fn key_u32(key: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(offset..offset + 4)?.try_into().ok()?))
}

/// A complaint about a key that no workload wrote.
#[cold]
pub(crate) fn strange_key(table: &TableSpec, key: &[u8]) -> Failure {
    Failure::inconsistent(format!("{} has a key of no known form: {}", table.name, key.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_texts_come_back() {
        const BALANCE: Field<i64> = Field::at(0);
        const LINES: Field<u8> = Field::at(BALANCE.end());
        let mut row = Vec::new();
        begin_row(&mut row, LINES.end());
        BALANCE.set(&mut row, -12);
        LINES.set(&mut row, 7);
        push_text(&mut row, |out| out.extend_from_slice(b"first"));
        push_text(&mut row, |_| {});
        push_text(&mut row, |out| out.extend_from_slice(b"third"));
        assert_eq!((BALANCE.get(&row), LINES.get(&row)), (-12, 7));
        assert_eq!(text(&row, 9, 0), Some((9, &b"first"[..])));
        assert_eq!(text(&row, 9, 1), Some((16, &b""[..])));
        assert_eq!(text(&row, 9, 2).map(|(_, text)| text), Some(&b"third"[..]));
        assert_eq!(text(&row, 9, 3), None);
        assert_eq!(text(&row[..row.len() - 1], 9, 2), None);
    }

    #[test]
    fn key_order_is_field_order() {
        let low = KeyBytes::new().u32(1).u8(2).text16(b"BAR").u32(9);
        let high = KeyBytes::new().u32(1).u8(2).text16(b"BARBAR").u32(1);
        assert!(*low < *high);
        assert!(*KeyBytes::new().u32(255) < *KeyBytes::new().u32(256));
        assert_eq!(key_u32(&low, 21), Some(9));
        assert_eq!(key_u32(&low, 22), None);
        let longest = KeyBytes::new().u32(1).u8(2).text16(b"BAR").text16(&[b'x'; 40]).u32(3);
        assert_eq!(longest.len(), 41);
    }
}
