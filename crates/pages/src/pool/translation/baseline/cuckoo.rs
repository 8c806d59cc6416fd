//! A 3-ary cuckoo hash table: Shore-MT's last (§6.2.3, §7.4). A page is in one of three places, so looking for it takes
//! three loads at most and no latch; a thread that finds all three taken moves one of the others to another place of
//! its own, and so on.
//!
//! From Johnson et al. 2009, §6.2.3, and Pagh and Rodler 2001. Departures:
//!
//! - *A move writes the new place before it clears the old one*, so a page in the table is always in it. A thread that
//!   looks meanwhile may pass the new place before and the old one after, and miss it; it then tries to enter the page,
//!   and is told (the contract of the seam allows that).
//! - *A cascade is looked for before anything moves*, from its end back, and given up after `DEPTH` moves. The paper
//!   ends cascades by evicting "particularly troublesome pages"; that needs their frames' latches. Here the page goes
//!   to a short list beside the table (a stash: Kirsch, Mitzenmacher, Wieder 2008), which at half load stays empty.
//! - *Writers* hold one of 128 mutexes, the page's *stripe*, and try for that of each page that they move: a writer
//!   that is refused looks for another way. Nobody waits while holding one.
//! - *Hash functions.* The paper combines three universal ones, because "cuckoo hashing is extremely prone to
//!   clustering with weak hash functions". Here each is the finalizer of MurmurHash3 over the page id and a constant:
//!   every bit of the input changes every bit of the output with a chance of one half.

use foreshore_base::{FrameIndex, PageId};
use foreshore_env::{
    CachePadded,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Places for each frame: at half load a cascade of more than one or two moves is rare.
const PLACES_PER_FRAME: usize = 2;
/// Most moves that one insertion makes room with.
const DEPTH: u32 = 4;
const STRIPES: usize = 128;
/// What tells the hash functions apart: digits of π.
const SEEDS: [u64; 3] = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344, 0xA409_3822_299F_31D0];

/// Nobody is in the place. Other words have the page in their upper half, the frame number plus one in the lower.
const EMPTY: u64 = 0;

/// The table.
#[derive(Debug)]
pub(in crate::pool) struct Cuckoo {
    /// Set from `EMPTY` by compare-and-swap, cleared by a plain store; both only by whoever holds the stripe of the
    /// page in question.
    places: Box<[AtomicU64]>,
    stripes: Box<[CachePadded<Mutex<()>>]>,
    /// Words for which no place was found. Guarded by the mutex.
    stash: Mutex<Vec<u64>>,
    /// How many there are. Written under the mutex; relaxed for readers, which may miss a page that is just being
    /// entered.
    stashed: AtomicUsize,
}

/// The places whose pages are being moved, and the stripes that are held for it.
#[derive(Clone, Copy)]
struct Path<'a> {
    /// None: the page that is to be entered has no place yet.
    place: Option<usize>,
    stripe: usize,
    before: Option<&'a Path<'a>>,
}

impl Path<'_> {
    fn any(&self, wanted: &impl Fn(&Path<'_>) -> bool) -> bool {
        wanted(self) || self.before.is_some_and(|before| before.any(wanted))
    }
}

fn word(page: PageId, frame: FrameIndex) -> u64 {
    u64::from(page.0) << 32 | u64::from(frame.0 + 1)
}

fn page_of(word: u64) -> PageId {
    PageId((word >> 32) as u32)
}

fn frame_of(word: u64) -> FrameIndex {
    FrameIndex((word as u32).wrapping_sub(1))
}

/// The finalizer of MurmurHash3.
#[inline]
fn mix(mut bits: u64) -> u64 {
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    bits ^ bits >> 33
}

impl Cuckoo {
    pub(in crate::pool) fn new(frames: usize) -> Cuckoo {
        Cuckoo::with_places(frames * PLACES_PER_FRAME)
    }

    fn with_places(places: usize) -> Cuckoo {
        Cuckoo {
            places: (0..places).map(|_| AtomicU64::new(EMPTY)).collect(),
            stripes: (0..STRIPES).map(|_| CachePadded::default()).collect(),
            stash: Mutex::default(),
            stashed: AtomicUsize::new(0),
        }
    }

    /// The place that one hash function gives a page.
    #[inline]
    fn place(&self, page: PageId, seed: u64) -> usize {
        let hash = mix(u64::from(page.0) ^ seed);
        ((u128::from(hash) * self.places.len() as u128) >> 64) as usize
    }

    fn stripe_of(page: PageId) -> usize {
        page.0 as usize % STRIPES
    }

    pub(in crate::pool) fn get(&self, page: PageId) -> Option<FrameIndex> {
        for seed in SEEDS {
            // Acquire pairs with the Release of whoever entered the page: the frame is seen latched, or later.
            let word = self.places[self.place(page, seed)].load(Ordering::Acquire);
            if page_of(word) == page && word != EMPTY {
                return Some(frame_of(word));
            }
        }
        if self.stashed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.stash.lock().iter().find(|word| page_of(**word) == page).map(|word| frame_of(*word))
    }

    pub(in crate::pool) fn insert(&self, page: PageId, frame: FrameIndex) -> bool {
        let stripe = Cuckoo::stripe_of(page);
        let _alone = self.stripes[stripe].lock();
        // Nobody else moves this page: this is exact.
        if self.get(page).is_some() {
            return false;
        }
        let path = Path { place: None, stripe, before: None };
        let enter = |place: usize| {
            // Release pairs with the Acquire of `get`.
            let entered = self.places[place].compare_exchange(
                EMPTY,
                word(page, frame),
                Ordering::Release,
                Ordering::Relaxed,
            );
            entered.is_ok()
        };
        let places = SEEDS.map(|seed| self.place(page, seed));
        if places.iter().any(|place| enter(*place)) {
            return true;
        }
        for moves in 0..DEPTH {
            if places.iter().any(|place| self.vacate(*place, moves, &path) && enter(*place)) {
                return true;
            }
        }
        let mut stash = self.stash.lock();
        stash.push(word(page, frame));
        self.stashed.store(stash.len(), Ordering::Relaxed);
        true
    }

    /// Moves whoever is in `place` to another place of its own, after making room there by up to `moves` moves. The
    /// places on the path stay as they are: whoever stands there is about to move. True: it was empty for a moment.
    fn vacate(&self, place: usize, moves: u32, path: &Path<'_>) -> bool {
        let found = self.places[place].load(Ordering::Acquire);
        if found == EMPTY {
            return true;
        }
        let page = page_of(found);
        let stripe = Cuckoo::stripe_of(page);
        let _alone: Option<MutexGuard<'_, ()>> = if path.any(&|held| held.stripe == stripe) {
            None
        } else {
            match self.stripes[stripe].try_lock() {
                None => return false,
                guard => guard,
            }
        };
        if self.places[place].load(Ordering::Acquire) != found {
            return false;
        }
        let path = Path { place: Some(place), stripe, before: Some(path) };
        for other in SEEDS.map(|seed| self.place(page, seed)) {
            if path.any(&|moving| moving.place == Some(other)) {
                continue;
            }
            let empty = self.places[other].load(Ordering::Relaxed) == EMPTY
                || moves > 0 && self.vacate(other, moves - 1, &path);
            // Release pairs with the Acquire of `get`. The old place goes after, so the page is never in neither.
            if empty
                && self.places[other]
                    .compare_exchange(EMPTY, found, Ordering::Release, Ordering::Relaxed)
                    .is_ok()
            {
                self.places[place].store(EMPTY, Ordering::Release);
                return true;
            }
        }
        false
    }

    pub(in crate::pool) fn remove(&self, page: PageId) {
        let _alone = self.stripes[Cuckoo::stripe_of(page)].lock();
        for seed in SEEDS {
            let place = &self.places[self.place(page, seed)];
            let word = place.load(Ordering::Relaxed);
            if word != EMPTY && page_of(word) == page {
                place.store(EMPTY, Ordering::Release);
                return;
            }
        }
        let mut stash = self.stash.lock();
        stash.retain(|word| page_of(*word) != page);
        self.stashed.store(stash.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use foreshore_env::random::Xorshift;

    use super::*;

    /// Half full, as in a pool, cascades end; nothing is ever stashed.
    #[test]
    fn cascades_end_at_half_load() {
        let mut random = Xorshift::new(3);
        for frames in [8, 64, 1000, 30_000] {
            let table = Cuckoo::new(frames);
            for frame in 0..frames as u32 {
                let page = PageId(random.next_u64() as u32 | 1 << 20);
                table.insert(page, FrameIndex(frame));
            }
            let stashed = table.stash.lock().len();
            assert!(stashed * 1000 <= frames, "{stashed} pages of {frames} found no place");
        }
    }

    /// At nine tenths, close to what three hash functions can do at all, cascades are long: nearly all pages that one
    /// place each would have left out get in.
    #[test]
    fn moves_make_room() {
        let table = Cuckoo::with_places(1000);
        let pages: Vec<_> = (1..=900).map(PageId).collect();
        for (frame, page) in pages.iter().enumerate() {
            assert!(table.insert(*page, FrameIndex(frame as u32)));
            assert!(!table.insert(*page, FrameIndex(7777)));
        }
        assert!(table.stash.lock().len() < 60, "{} pages found no place", table.stash.lock().len());
        for (frame, page) in pages.iter().enumerate() {
            assert_eq!(table.get(*page), Some(FrameIndex(frame as u32)));
        }
        for page in &pages {
            table.remove(*page);
            assert_eq!(table.get(*page), None);
        }
        assert!(table.places.iter().all(|place| place.load(Ordering::Relaxed) == EMPTY));
        assert!(table.stash.lock().is_empty());
    }

    /// More pages than places: the rest is in the stash, and nothing is lost.
    #[test]
    fn what_finds_no_place_is_stashed() {
        let table = Cuckoo::with_places(4);
        for frame in 0..20 {
            assert!(table.insert(PageId(frame + 1), FrameIndex(frame)));
        }
        assert_eq!(table.stash.lock().len(), 16);
        for frame in 0..20 {
            assert_eq!(table.get(PageId(frame + 1)), Some(FrameIndex(frame)));
            assert!(!table.insert(PageId(frame + 1), FrameIndex(99)));
        }
        for frame in (0..20).rev() {
            table.remove(PageId(frame + 1));
            assert_eq!(table.get(PageId(frame + 1)), None);
        }
        assert!(table.stash.lock().is_empty() && table.stashed.load(Ordering::Relaxed) == 0);
    }

    /// Pages that follow each other, as they do in a file, spread as evenly as random ones.
    #[test]
    fn neighbours_are_not_clustered() {
        let table = Cuckoo::with_places(1 << 12);
        for (seed, stride) in
            SEEDS.into_iter().flat_map(|seed| [1, 8, 511, 4096].map(|stride| (seed, stride)))
        {
            let mut counts = vec![0_u32; 64];
            for number in 0..64 * 256 {
                counts[table.place(PageId(number * stride), seed) / 64] += 1;
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*least > 256 - 80 && *most < 256 + 80, "stride {stride}: {least} to {most}");
        }
    }
}
