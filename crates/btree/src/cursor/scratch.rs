//! What a cursor needs memory for. A thread keeps what its last cursor has left for the next one, so that a scan
//! allocates nothing as a rule; it is a page, what is taken of it, and a few keys.

use std::{
    cell::Cell,
    ops::{Bound, Deref, DerefMut},
};

use foreshore_env::thread_local;

use super::{ahead::Ahead, batch::Batch};

/// What outlives a cursor.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The range behind the last batch: the bound on the side from which the cursor comes, which moves with it, and the
    /// other one.
    pub(super) near: Bound<Vec<u8>>,
    pub(super) far: Bound<Vec<u8>>,
    pub(super) batch: Batch,
    /// The key where the cursor stands.
    pub(super) key: Vec<u8>,
    /// How far the pool was told of the leaves to come.
    pub(super) read_ahead: Ahead,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            near: Bound::Unbounded,
            far: Bound::Unbounded,
            batch: Batch::default(),
            key: Vec::new(),
            read_ahead: Ahead::default(),
        }
    }
}

thread_local! {
    static SPARE: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// The scratch of one cursor.
#[derive(Debug)]
pub(super) struct Lent(Option<Box<Scratch>>);

impl Lent {
    /// One for a cursor from the one bound to the other.
    pub(super) fn new((near, far): (Bound<&[u8]>, Bound<&[u8]>)) -> Lent {
        // Whose thread is ending has none.
        let mut scratch = SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default();
        set(&mut scratch.near, near);
        set(&mut scratch.far, far);
        Lent(Some(scratch))
    }
}

impl Deref for Lent {
    type Target = Scratch;

    #[inline]
    fn deref(&self) -> &Scratch {
        match &self.0 {
            Some(scratch) => scratch,
            None => unreachable!("it is given back when nobody has it any more"),
        }
    }
}

impl DerefMut for Lent {
    #[inline]
    fn deref_mut(&mut self) -> &mut Scratch {
        match &mut self.0 {
            Some(scratch) => scratch,
            None => unreachable!("it is given back when nobody has it any more"),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(mut scratch) = self.0.take() else { return };
        scratch.batch.clear();
        scratch.key.clear();
        scratch.read_ahead.clear();
        _ = SPARE.try_with(|spare| spare.set(Some(scratch)));
    }
}

/// Makes `bound` another one, in the memory of its key.
fn set(bound: &mut Bound<Vec<u8>>, to: Bound<&[u8]>) {
    let key = match std::mem::replace(bound, Bound::Unbounded) {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => Vec::new(),
    };
    let filled = |mut key: Vec<u8>, with: &[u8]| {
        key.clear();
        key.extend_from_slice(with);
        key
    };
    *bound = match to {
        Bound::Included(to) => Bound::Included(filled(key, to)),
        Bound::Excluded(to) => Bound::Excluded(filled(key, to)),
        Bound::Unbounded => Bound::Unbounded,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_cursor_has_the_memory_of_the_last_and_nothing_else_of_it() {
        let range = (Bound::Included(&b"near"[..]), Bound::Excluded(&b"far"[..]));
        let mut lent = Lent::new(range);
        lent.key.extend_from_slice(b"key");
        let place = lent.key.as_ptr();
        drop(lent);
        let again = Lent::new((Bound::Unbounded, Bound::Included(b"end")));
        assert_eq!((again.key.len(), again.key.as_ptr()), (0, place));
        assert_eq!((&again.near, &again.far), (&Bound::Unbounded, &Bound::Included(b"end".to_vec())));
        // A second one at the same time has its own.
        assert_eq!(Lent::new(range).key.capacity(), 0);
    }
}
