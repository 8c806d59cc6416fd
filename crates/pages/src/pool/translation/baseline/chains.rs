//! Chains of pages, as the hash tables with mutexes have them: one link for each frame, so that entering a page
//! allocates nothing.

use foreshore_base::{FrameIndex, PageId};
use foreshore_env::sync::atomic::{AtomicU32, Ordering};

/// The first link of a bucket: a frame number plus one, or 0.
pub(super) type Head = u32;

/// A page in its chain. Guarded by the mutex that guards the chain, so all accesses are relaxed.
#[derive(Debug, Default)]
struct Link {
    page: AtomicU32,
    /// As a [`Head`].
    next: AtomicU32,
}

/// The links of all frames.
#[derive(Debug)]
pub(super) struct Chains {
    links: Box<[Link]>,
    /// Of the buckets' number, which is a power of two.
    shift: u32,
}

impl Chains {
    /// For a table of so many frames.
    pub(super) fn new(frames: usize) -> Chains {
        Chains {
            links: (0..frames).map(|_| Link::default()).collect(),
            shift: u64::BITS - Chains::buckets(frames).ilog2(),
        }
    }

    /// How many buckets suit so many frames.
    pub(super) fn buckets(frames: usize) -> usize {
        frames.next_power_of_two()
    }

    /// The bucket of a page: Fibonacci hashing, the multiplier is 2⁶⁴ divided by the golden ratio.
    #[inline]
    pub(super) fn bucket(&self, page: PageId) -> usize {
        u64::from(page.0).wrapping_mul(0x9E37_79B9_7F4A_7C15).checked_shr(self.shift).unwrap_or(0) as usize
    }

    fn link(&self, head: Head) -> Option<&Link> {
        self.links.get((head as usize).wrapping_sub(1))
    }

    #[inline]
    pub(super) fn find(&self, head: Head, page: PageId) -> Option<FrameIndex> {
        let mut at = head;
        while let Some(link) = self.link(at) {
            if link.page.load(Ordering::Relaxed) == page.0 {
                return Some(FrameIndex(at - 1));
            }
            at = link.next.load(Ordering::Relaxed);
        }
        None
    }

    /// Puts `page` before the others, unless it is among them.
    pub(super) fn insert(&self, head: &mut Head, page: PageId, frame: FrameIndex) -> bool {
        if self.find(*head, page).is_some() {
            return false;
        }
        let link = &self.links[frame.0 as usize];
        link.page.store(page.0, Ordering::Relaxed);
        link.next.store(*head, Ordering::Relaxed);
        *head = frame.0 + 1;
        true
    }

    pub(super) fn remove(&self, head: &mut Head, page: PageId) {
        let mut before: Option<&Link> = None;
        let mut at = *head;
        while let Some(link) = self.link(at) {
            let next = link.next.load(Ordering::Relaxed);
            if link.page.load(Ordering::Relaxed) == page.0 {
                match before {
                    Some(before) => before.next.store(next, Ordering::Relaxed),
                    None => *head = next,
                }
                return;
            }
            before = Some(link);
            at = next;
        }
    }
}
