//! Lines that are under way at one time.
//!
//! A core looks ahead of what it waits for: an access whose line it has not asks for it when the miss before it did, if
//! it can. The core's clock is that of what is done; what has passed since the first of several misses was asked for,
//! but for what was computed, an independent one has behind it. It cannot
//!
//! - if its address comes from what the other found. Nobody tells the simulator, so it is taken to, but where it is
//!   known not to: the line came to the core by one of its last few misses, so that the core has used its address
//!   already (a thread that leaves a latch does not look for it); or the miss before it was in a latch's code, and this
//!   one is not: a thread that takes a latch knows what it guards. What lies near a pointer that was loaded last comes
//!   from that, in any case;
//! - if too much is computed between them: what has been begun and is not done finds room in a buffer of the core
//!   (`Profile::window`);
//! - behind a word that was looked at again: a core that looks again waits for a change, and what it does then is
//!   foreseen only if it has looked as often the last time, and not too often for what foresees it;
//! - behind an atomic change or a fence, on processors that let nothing overlap with them (`Profile::changes_overlap`);
//!   the line of the change itself is asked for with those before it all the same;
//! - behind an atomic change for which a core has waited to take a latch, if another core owns what the latch guards:
//!   whoever had the latch wants it again, looks ahead in its turn, and takes back what it has lost.
//!
//! What the program itself asks for before it needs it (`hint::prefetch`) is under way from then on, whatever is done
//! meanwhile, unless somebody accesses it sooner.
//!
//! A line that waits in the queue for another core comes in its turn all the same.

use super::{
    Directory, LineNumber,
    place::PlaceKind,
    table::{LINE_SHIFT, NOBODY},
    times::short,
};
use crate::sim::kernel::Touch;

/// Misses whose lines a core remembers.
const REMEMBERED: usize = 7;
/// Lines that a core may have asked for by prefetches and not accessed yet: beyond these it forgets the first. Cores
/// have 10 to 24 buffers for lines that come.
const PREFETCHED: usize = 16;
/// How many looks at a word in a row can be foreseen.
const FORESEEN: u8 = 32;
/// The most bytes that what a pointer points to is taken to have.
const OBJECT: usize = 4096;

/// A miss of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Miss {
    /// Not in a latch's code.
    Elsewhere,
    /// A latch was looked at, or stored to.
    Latch,
    /// An atomic change in a latch's code: it was to be taken, or given back, which nobody tells.
    LatchChange,
}

/// A core's, looked at when it misses: one line of the real machine's caches. Times in picoseconds; what is longer than
/// four milliseconds counts as that.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Overlap {
    /// Lines of the last misses, where the next one goes, and where that of the very last one is.
    lines: [u32; REMEMBERED],
    next: u8,
    last: u8,
    /// What the last one was.
    miss: Miss,
    /// How often a word was looked at in vain in the wait before this one.
    looks: u8,
    /// The same in this one until now.
    looking: u8,
    /// How long ago an independent miss would have been asked for, when the last one had ended.
    early: u32,
    /// What was computed by then since the first.
    computed: u32,
    /// How much of `early` had passed when the pointer was known that was loaded last.
    behind: u32,
    /// When the last one had ended.
    ended: u64,
    pointer: usize,
}

const _: () = assert!(size_of::<Overlap>() == 64);

impl Default for Overlap {
    fn default() -> Overlap {
        Overlap {
            lines: [u32::MAX; REMEMBERED],
            next: 0,
            last: 0,
            miss: Miss::Elsewhere,
            looks: 0,
            looking: 0,
            early: 0,
            computed: 0,
            behind: 0,
            ended: 0,
            pointer: 0,
        }
    }
}

impl Overlap {
    /// Nothing is under way any more.
    #[inline]
    fn end(&mut self) {
        (self.early, self.computed) = (0, 0);
    }
}

/// Lines that a core has asked for, by their address, and when; where the next one goes.
#[derive(Clone, Debug)]
pub(super) struct Prefetches {
    asked: [(usize, u64); PREFETCHED],
    next: usize,
}

impl Default for Prefetches {
    fn default() -> Prefetches {
        Prefetches { asked: [(usize::MAX, 0); PREFETCHED], next: 0 }
    }
}

impl Directory {
    /// How long before `now` the line of a miss was asked for, if it is free.
    pub(super) fn asked_before(
        &mut self,
        core: usize,
        now: u64,
        number: LineNumber,
        address: usize,
        kind: PlaceKind,
    ) -> u64 {
        let is_owned = self.table.lines[number].owner != NOBODY;
        let overlap = &mut self.overlaps[core];
        overlap.computed = overlap.computed.saturating_add(short(now.saturating_sub(overlap.ended)));
        overlap.ended = now;
        if u64::from(overlap.computed) > self.times.window {
            overlap.end();
        }
        if address.wrapping_sub(overlap.pointer) < OBJECT {
            return u64::from(overlap.early.saturating_sub(overlap.behind));
        }
        let known = overlap.lines.contains(&(number as u32))
            || overlap.miss != Miss::Elsewhere && kind != PlaceKind::Latch;
        let contested = overlap.miss == Miss::LatchChange && kind != PlaceKind::Latch && is_owned;
        if contested {
            overlap.end();
            return 0;
        }
        if known { u64::from(overlap.early) } else { 0 }
    }

    /// The core asks for a line that it is going to access.
    pub(in crate::sim) fn ask_for(&mut self, core: usize, now: u64, address: usize) {
        let prefetches = &mut self.prefetches[core];
        prefetches.asked[prefetches.next] = (address >> LINE_SHIFT, now);
        prefetches.next = (prefetches.next + 1) % PREFETCHED;
    }

    /// How long before `now` the core has asked for a line, which was accessed last at `last`.
    pub(super) fn prefetched_before(&self, core: usize, now: u64, address: usize, last: u64) -> u64 {
        let asked = self.prefetches[core].asked.iter().filter(|(line, _)| *line == address >> LINE_SHIFT);
        let first = asked.map(|&(_, asked)| asked).filter(|&asked| asked >= last).min();
        first.map_or(0, |asked| now.saturating_sub(asked))
    }

    /// A miss has ended, or will: the core has waited for it.
    pub(super) fn missed(
        &mut self,
        core: usize,
        ended: u64,
        waited: u64,
        number: LineNumber,
        kind: PlaceKind,
        touch: Touch,
    ) {
        let looks = u8::try_from(self.pipelines[core].looks).unwrap_or(u8::MAX);
        let overlap = &mut self.overlaps[core];
        let foreseen = looks == 0 || looks == overlap.looks && looks <= FORESEEN;
        if looks > 0 {
            overlap.looking = looks;
        } else if overlap.looking > 0 {
            overlap.looks = std::mem::take(&mut overlap.looking);
        }
        overlap.last = match overlap.lines.iter().position(|&line| line == number as u32) {
            Some(place) => place as u8,
            None => {
                let place = overlap.next;
                overlap.lines[usize::from(place)] = number as u32;
                overlap.next = (place + 1) % REMEMBERED as u8;
                place
            }
        };
        overlap.miss = match (kind, touch) {
            (PlaceKind::Latch, Touch::Change) => Miss::LatchChange,
            (PlaceKind::Latch, _) => Miss::Latch,
            _ => Miss::Elsewhere,
        };
        overlap.ended = ended;
        let ends = touch == Touch::Change && !self.profile.changes_overlap;
        if foreseen && !ends && self.times.window > 0 {
            overlap.early = overlap.early.saturating_add(short(waited));
        } else {
            overlap.end();
        }
    }

    /// The core does a fence, or an atomic change that finds its line.
    #[inline]
    pub(super) fn serialized(&mut self, core: usize) {
        if !self.profile.changes_overlap {
            self.overlaps[core].end();
        }
    }

    /// The core has looked at the word of its last access so often again, and has slept meanwhile.
    #[inline]
    pub(in crate::sim) fn looked_again(&mut self, core: usize, rounds: u64) {
        self.counts.accesses += rounds;
        self.slept_through += rounds;
        let pipeline = &mut self.pipelines[core];
        pipeline.looks = pipeline.looks.saturating_add(u16::try_from(rounds).unwrap_or(u16::MAX));
    }

    /// The core has loaded a pointer.
    #[inline]
    pub(in crate::sim) fn learned(&mut self, core: usize, pointer: usize) {
        let line = self.pipelines[core].line;
        let overlap = &mut self.overlaps[core];
        // Perhaps it was there: to wait for it is the less hopeful guess.
        let missed = overlap.lines[usize::from(overlap.last)] == line;
        (overlap.pointer, overlap.behind) = (pointer, if missed { overlap.early } else { 0 });
    }
}
