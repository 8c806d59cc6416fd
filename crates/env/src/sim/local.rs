//! Thread-locals of simulated threads: all of them share one thread of the operating system, so `std`'s would be shared
//! among them.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
};

use super::kernel::{self, Kernel};

/// The values of one thread, by the address of their key. Few, so a list.
#[derive(Default)]
pub(super) struct Locals {
    values: RefCell<Vec<(usize, Rc<dyn Any>)>>,
    /// Whether the thread is ending: nothing is made any more.
    over: Cell<bool>,
}

std::thread_local! {
    /// Of a thread of the operating system outside of every simulation.
    static OUTSIDE: Rc<Locals> = Rc::default();
}

impl Locals {
    /// Drops all values, the youngest first; they may look for each other meanwhile.
    pub(super) fn end(&self) {
        self.over.set(true);
        loop {
            let last = self.values.borrow_mut().pop();
            match last {
                Some(value) => drop(value),
                None => return,
            }
        }
    }

    fn find(&self, key: usize) -> Option<Rc<dyn Any>> {
        self.values.borrow().iter().find(|(other, _)| *other == key).map(|(_, value)| Rc::clone(value))
    }
}

/// The thread is ending and has lost its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessError;

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the thread is ending and has lost its thread-local values")
    }
}

impl std::error::Error for AccessError {}

/// A key of [`thread_local`](crate::thread_local).
pub struct LocalKey<T: 'static> {
    first: fn() -> T,
    /// So that two keys never lie at one address.
    _place: u8,
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(first: fn() -> T) -> LocalKey<T> {
        LocalKey { first, _place: 0 }
    }

    /// Calls `f` with this thread's value.
    ///
    /// # Panics
    /// When the thread is ending and has lost the value.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        self.try_with(f).expect("a thread-local value was used after its end")
    }

    /// As [`LocalKey::with`], but an error when the thread is ending.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, AccessError> {
        let key = std::ptr::from_ref(self).addr();
        let locals = match kernel::with(Kernel::locals) {
            Some(locals) => locals,
            None => OUTSIDE.try_with(Rc::clone).map_err(|_| AccessError)?,
        };
        let value = match locals.find(key) {
            Some(value) => value,
            None if locals.over.get() => return Err(AccessError),
            None => {
                let value: Rc<dyn Any> = Rc::new((self.first)());
                locals.values.borrow_mut().push((key, Rc::clone(&value)));
                value
            }
        };
        Ok(f(value.downcast_ref().expect("a key has one type")))
    }
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// This thread's value.
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Replaces this thread's value.
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }
}

impl<T> fmt::Debug for LocalKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalKey").finish_non_exhaustive()
    }
}

/// As `std`'s: a value for each thread, made when the thread first uses it.
#[macro_export]
macro_rules! simulated_thread_local {
    () => {};
    ($(#[$meta:meta])* $vis:vis static $name:ident: $type:ty = const { $value:expr }; $($rest:tt)*) => {
        $crate::simulated_thread_local!($(#[$meta])* $vis static $name: $type = $value;);
        $crate::simulated_thread_local!($($rest)*);
    };
    ($(#[$meta:meta])* $vis:vis static $name:ident: $type:ty = $value:expr; $($rest:tt)*) => {
        $(#[$meta])* $vis static $name: $crate::thread::LocalKey<$type> = $crate::thread::LocalKey::new(|| $value);
        $crate::simulated_thread_local!($($rest)*);
    };
    ($(#[$meta:meta])* $vis:vis static $name:ident: $type:ty = const { $value:expr }) => {
        $crate::simulated_thread_local!($(#[$meta])* $vis static $name: $type = $value;);
    };
}
