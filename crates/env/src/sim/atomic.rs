//! Atomics whose every access is an event of the simulation.
//!
//! They have `std`'s layout, so that what shares a cache line here shares one in the real world too. All accesses are
//! sequentially consistent: orderings change nothing but what a store costs, and are checked by loom. Outside of a
//! simulation they are `std`'s atomics.

use std::sync::atomic;

pub use std::sync::atomic::Ordering;

use super::{
    calls::{access, fence_cost, has_whim, learned},
    kernel::Touch,
};

/// As `std`'s; costs what a full fence costs.
#[track_caller]
pub fn fence(ordering: Ordering) {
    fence_cost(ordering);
    atomic::fence(ordering);
}

macro_rules! common {
    ($name:ident, $value:ty) => {
        impl $name {
            /// As `std`'s.
            #[inline]
            pub const fn new(value: $value) -> $name {
                $name(atomic::$name::new(value))
            }

            /// As `std`'s; nobody else looks, so it is no event.
            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            /// As `std`'s; nobody else looks, so it is no event.
            #[inline]
            pub const fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            #[inline]
            #[track_caller]
            fn touch(&self, touch: Touch) {
                access(std::ptr::from_ref(self).addr(), touch);
            }

            /// What was found is no pointer, as far as anybody knows.
            #[inline]
            fn found(value: $value) -> $value {
                value
            }
        }
        access_methods!($name, [], $value);
    };
}

macro_rules! access_methods {
    ($name:ident, [$($generic:ident)?], $value:ty) => {
        impl<$($generic)?> $name<$($generic)?> {
            /// As `std`'s.
            #[inline]
            #[track_caller]
            pub fn load(&self, ordering: Ordering) -> $value {
                self.touch(Touch::Load);
                Self::found(self.0.load(ordering))
            }

            /// As `std`'s. A sequentially consistent one is an exchange on x86-64, and costs what that does.
            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, ordering: Ordering) {
                self.touch(if ordering == Ordering::SeqCst { Touch::Change } else { Touch::Store });
                self.0.store(value, ordering);
            }

            /// As `std`'s.
            #[inline]
            #[track_caller]
            pub fn swap(&self, value: $value, ordering: Ordering) -> $value {
                self.touch(Touch::Change);
                Self::found(self.0.swap(value, ordering))
            }

            /// As `std`'s.
            #[inline]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.touch(Touch::Change);
                self.0.compare_exchange(current, new, success, failure).map(Self::found).map_err(Self::found)
            }

            /// As `std`'s; for no reason it fails under the explorer only.
            #[inline]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if has_whim() {
                    return Err(self.load(failure));
                }
                self.compare_exchange(current, new, success, failure)
            }

            /// As `std`'s.
            #[inline]
            #[track_caller]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut old = self.load(fetch);
                while let Some(new) = f(old) {
                    match self.compare_exchange(old, new, set, fetch) {
                        Ok(value) => return Ok(value),
                        Err(value) => old = value,
                    }
                }
                Err(old)
            }
        }
    };
}

macro_rules! change {
    ($name:ident, $value:ty, $($method:ident),*) => {
        impl $name {
            $(
                /// As `std`'s.
                #[inline]
                #[track_caller]
                pub fn $method(&self, value: $value, ordering: Ordering) -> $value {
                    self.touch(Touch::Change);
                    self.0.$method(value, ordering)
                }
            )*
        }
    };
}

macro_rules! integer {
    ($($name:ident: $value:ty),*) => {
        $(
            /// As `std`'s, but every access is an event of the simulation.
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name(atomic::$name);

            common!($name, $value);
            change!(
                $name, $value,
                fetch_add, fetch_sub, fetch_and, fetch_nand, fetch_or, fetch_xor, fetch_max, fetch_min
            );
            const _: () = assert!(size_of::<$name>() == size_of::<$value>());

            impl From<$value> for $name {
                fn from(value: $value) -> $name {
                    $name::new(value)
                }
            }
        )*
    };
}

integer!(
    AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64, AtomicUsize: usize,
    AtomicI8: i8, AtomicI16: i16, AtomicI32: i32, AtomicI64: i64, AtomicIsize: isize
);

/// As `std`'s, but every access is an event of the simulation.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicBool(atomic::AtomicBool);

common!(AtomicBool, bool);
change!(AtomicBool, bool, fetch_and, fetch_nand, fetch_or, fetch_xor);

impl From<bool> for AtomicBool {
    fn from(value: bool) -> AtomicBool {
        AtomicBool::new(value)
    }
}

/// As `std`'s, but every access is an event of the simulation.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicPtr<T>(atomic::AtomicPtr<T>);

impl<T> AtomicPtr<T> {
    /// As `std`'s.
    #[inline]
    pub const fn new(value: *mut T) -> AtomicPtr<T> {
        AtomicPtr(atomic::AtomicPtr::new(value))
    }

    /// As `std`'s; nobody else looks, so it is no event.
    #[inline]
    pub fn get_mut(&mut self) -> &mut *mut T {
        self.0.get_mut()
    }

    /// As `std`'s; nobody else looks, so it is no event.
    #[inline]
    pub const fn into_inner(self) -> *mut T {
        self.0.into_inner()
    }

    #[inline]
    #[track_caller]
    fn touch(&self, touch: Touch) {
        access(std::ptr::from_ref(self).addr(), touch);
    }

    /// What it points to is accessed next, perhaps.
    #[inline]
    fn found(pointer: *mut T) -> *mut T {
        learned(pointer.addr());
        pointer
    }
}

access_methods!(AtomicPtr, [T], *mut T);
