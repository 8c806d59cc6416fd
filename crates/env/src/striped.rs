//! Reference counts that threads do not share.

use std::{fmt, ops::Deref, ptr::NonNull};

use crate::{CachePadded, sync::Arc};

/// How many counts there are. Threads that are farther apart than that share one.
const STRIPES: usize = 256;

/// An [`Arc`] of which many threads need a reference for a moment each: it has 256 counts, on lines of their own.
///
/// To clone an [`Arc`], and to drop the clone, changes one line of memory that all threads want, which limits what they
/// can do together to some millions of such references a second, however many they are. A [`Handle`] is counted where
/// its user says.
pub struct StripedArc<T> {
    whole: Arc<T>,
    stripes: Box<[Arc<CachePadded<Stripe<T>>>]>,
}

/// One of the counts is that of the [`Arc`] around this.
struct Stripe<T> {
    _whole: Arc<T>,
    /// The simulator does not see what an `Arc` counts: this stands for it.
    #[cfg(foreshore_sim)]
    handles: crate::sync::atomic::AtomicUsize,
}

impl<T> Stripe<T> {
    fn new(whole: &Arc<T>) -> Arc<CachePadded<Stripe<T>>> {
        Arc::new(CachePadded::new(Stripe {
            _whole: Arc::clone(whole),
            #[cfg(foreshore_sim)]
            handles: crate::sync::atomic::AtomicUsize::new(0),
        }))
    }
}

impl<T> StripedArc<T> {
    /// Takes over a reference, which it holds until it is dropped. Allocates 64 KiB.
    pub fn new(whole: Arc<T>) -> StripedArc<T> {
        StripedArc { stripes: (0..STRIPES).map(|_| Stripe::new(&whole)).collect(), whole }
    }

    /// A reference that is counted at `place`: that of a slot, say, which its thread uses again and again. Any number
    /// will do.
    #[inline]
    pub fn handle(&self, place: usize) -> Handle<T> {
        let stripe = &self.stripes[place % STRIPES];
        Handle { value: NonNull::from(&**self), counted: Counted::in_stripe(stripe) }
    }

    /// The reference itself, for cold paths.
    pub fn whole(&self) -> &Arc<T> {
        &self.whole
    }
}

impl<T> Deref for StripedArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.whole
    }
}

impl<T: fmt::Debug> fmt::Debug for StripedArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.whole.fmt(f)
    }
}

/// A reference of a [`StripedArc`], or of an [`Arc`]: what it refers to lives as long as it does.
pub struct Handle<T> {
    /// What `counted` keeps.
    value: NonNull<T>,
    counted: Counted<T>,
}

/// Where a handle is counted.
enum Counted<T> {
    Whole { _whole: Arc<T> },
    Stripe { stripe: Arc<CachePadded<Stripe<T>>> },
}

// SAFETY: a handle gives nothing but `&T`, and may drop the last reference, as an `Arc` does and under its conditions.
unsafe impl<T: Send + Sync> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Handle<T> {}

impl<T> Counted<T> {
    #[inline]
    fn in_stripe(stripe: &Arc<CachePadded<Stripe<T>>>) -> Counted<T> {
        #[cfg(foreshore_sim)]
        stripe.handles.fetch_add(1, crate::sync::atomic::Ordering::Relaxed);
        Counted::Stripe { stripe: Arc::clone(stripe) }
    }
}

#[cfg(foreshore_sim)]
impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        if let Counted::Stripe { stripe } = self {
            stripe.handles.fetch_sub(1, crate::sync::atomic::Ordering::Relaxed);
        }
    }
}

impl<T> Handle<T> {
    /// A reference whose clones are counted by themselves: for a session, which has one transaction after another.
    /// Allocates.
    pub fn alone(whole: &Arc<T>) -> Handle<T> {
        Handle { value: NonNull::from(&**whole), counted: Counted::in_stripe(&Stripe::new(whole)) }
    }
}

impl<T> From<Arc<T>> for Handle<T> {
    fn from(whole: Arc<T>) -> Handle<T> {
        Handle { value: NonNull::from(&*whole), counted: Counted::Whole { _whole: whole } }
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Handle<T> {
        let counted = match &self.counted {
            Counted::Whole { _whole: whole } => Counted::Whole { _whole: Arc::clone(whole) },
            Counted::Stripe { stripe } => Counted::in_stripe(stripe),
        };
        Handle { value: self.value, counted }
    }
}

impl<T> Deref for Handle<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `value` is what an `Arc` owns, which `counted` has, itself or in its stripe; it does not move, and
        // nobody has it exclusively while there is a reference.
        unsafe { self.value.as_ref() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_sim))))]
mod tests {
    use super::*;
    use crate::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    struct Counted<'c>(&'c AtomicUsize);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_referred_to_is_dropped_with_the_last_reference_and_no_sooner() {
        let dropped = AtomicUsize::new(0);
        let striped = StripedArc::new(Arc::new(Counted(&dropped)));
        let handles = [striped.handle(3), striped.handle(3).clone(), striped.handle(3 + STRIPES)];
        let whole = Handle::from(Arc::clone(striped.whole()));
        let alone = Handle::alone(striped.whole());
        drop(striped);
        for handle in handles.into_iter().chain([whole.clone(), whole, alone.clone(), alone]) {
            assert_eq!(dropped.load(Ordering::Relaxed), 0);
            assert!(std::ptr::eq(handle.0, &raw const dropped));
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn threads_may_outlive_whoever_made_it() {
        let dropped = AtomicUsize::new(0);
        let striped = StripedArc::new(Arc::new(Counted(&dropped)));
        thread::scope(|scope| {
            for place in 0..4 {
                let mut handle = striped.handle(place % 2);
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        handle = handle.clone();
                        assert_eq!(handle.0.load(Ordering::Relaxed), 0);
                    }
                });
            }
            drop(striped);
        });
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }
}
