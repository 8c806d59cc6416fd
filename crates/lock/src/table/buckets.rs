//! The buckets of a lock table.

use foreshore_env::hint;

use crate::name::{LockName, Places};

/// A power of two of them.
#[derive(Debug)]
pub(super) struct Buckets<B> {
    buckets: Box<[B]>,
    places: Places,
}

impl<B: Default> Buckets<B> {
    pub(super) fn new(places: Places) -> Buckets<B> {
        let count = places.count();
        let mut buckets: Vec<B> = Vec::with_capacity(count);
        // Before they are touched. Names choose them at random.
        hint::huge_pages(buckets.spare_capacity_mut());
        buckets.resize_with(count, B::default);
        let buckets = buckets.into_boxed_slice();
        hint::name(&buckets, "lock table bucket");
        Buckets { buckets, places }
    }

    /// The number of a name's bucket.
    #[inline]
    pub(super) fn place(&self, name: LockName) -> usize {
        self.places.of(name)
    }

    /// The bucket of a name.
    #[inline]
    pub(super) fn of(&self, name: LockName) -> &B {
        &self.buckets[self.place(name)]
    }

    /// All of them, by their numbers.
    #[inline]
    pub(super) fn all(&self) -> &[B] {
        &self.buckets
    }
}
