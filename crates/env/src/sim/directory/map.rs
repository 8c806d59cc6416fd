//! A map whose hash is the same in every run.
#![allow(clippy::disallowed_types)]

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A hash of small numbers, the same in every run.
#[derive(Default)]
pub(super) struct Multiplied(u64);

impl Hasher for Multiplied {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 32;
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

/// A map with that hash.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Multiplied>>;
