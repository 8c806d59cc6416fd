//! What a core does beside and between its accesses: what is computed, and what of a line's way to it nobody notices.
//!
//! Between an access and one elsewhere the program computes where that is; a word that follows the last one is copied
//! or compared, which takes little. What follows an atomic change may be done in the time that the change takes. A
//! store waits for nothing: it lies in a buffer until its line has come, and only an atomic change, or a fence, waits
//! for those before it. (Others see it at once, and wait for the line. A store to a line that is on its way to somebody
//! else waits for its slot, as everybody does.)

use super::{Directory, LineNumber, place::PlaceKind, table::LINE_SHIFT, times::short};
use crate::sim::{kernel::Touch, prefetch};

/// A core's: what its accesses look at, in one line of the real machine's caches.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Pipeline {
    /// The line and the address of its last access.
    pub(super) line: u32,
    /// How often in a row, beside the first time, it has accessed that word.
    pub(super) looks: u16,
    /// What was drawn for the transfer that it booked last.
    pub(super) drawn: u16,
    address: usize,
    /// When the lines of all stores have come, and the one that comes last.
    stored_at: u64,
    pub(super) stored: u32,
    /// How much fits into the time of the last atomic change, if it follows at once: at that clock.
    pub(super) shadow: u32,
    shadow_at: u64,
    /// What the last access would take if it were made again.
    pub(super) again: u64,
    /// What was used since then is in the newest generation of both of its caches (`ages.rs`).
    pub(super) recent: u64,
    /// How long it waits for the slot that it booked last.
    pub(super) booked: u32,
    /// What its last access took in the core, if that was a look: 0 when a pause has followed.
    pub(super) looked: u32,
}

const _: () = assert!(size_of::<Pipeline>() == 64);

impl Default for Pipeline {
    fn default() -> Pipeline {
        Pipeline {
            line: u32::MAX,
            looks: 0,
            drawn: 0,
            address: 0,
            stored_at: 0,
            stored: u32::MAX,
            shadow: 0,
            shadow_at: 0,
            again: 0,
            recent: 1,
            booked: 0,
            looked: 0,
        }
    }
}

impl Directory {
    /// What an access takes if its line is in the core, with what is computed before it.
    #[inline]
    pub(super) fn computing(
        &mut self,
        core: usize,
        now: u64,
        address: usize,
        touch: Touch,
        kind: PlaceKind,
    ) -> u64 {
        let times = &self.times;
        let pipeline = &mut self.pipelines[core];
        let before = std::mem::replace(&mut pipeline.address, address);
        pipeline.looks = if before == address { pipeline.looks.saturating_add(1) } else { 0 };
        // The same word, or the next one; where latches are measured, any of the line.
        let follows = address.wrapping_sub(before) <= size_of::<u64>()
            || kind == PlaceKind::Loop && address >> LINE_SHIFT == before >> LINE_SHIFT;
        let following = if matches!(kind, PlaceKind::Latch | PlaceKind::Loop) { 0 } else { times.following };
        let computation = match kind {
            _ if follows => following,
            PlaceKind::Latch | PlaceKind::Loop => times.latch_computation,
            PlaceKind::Lock => times.lock_computation,
            PlaceKind::Other => times.computation,
        };
        pipeline.again = times.hit + following;
        let time = times.hit + computation;
        let hidden = if pipeline.shadow_at == now { time.min(u64::from(pipeline.shadow)) } else { 0 };
        let mut left = time - hidden;
        if touch == Touch::Change {
            left += times.change;
            pipeline.shadow = short(times.shadow);
        } else {
            pipeline.shadow = if hidden == time { pipeline.shadow - short(hidden) } else { 0 };
        }
        pipeline.shadow_at = now + left;
        pipeline.looked = if touch == Touch::Load { short(left) } else { 0 };
        left
    }

    /// What the last access of the core took in it, if that was a look and no pause has followed: one does now.
    pub(in crate::sim) fn paused(&mut self, core: usize) -> u64 {
        u64::from(std::mem::take(&mut self.pipelines[core].looked))
    }

    /// What is left of a transfer for an access that has waited so long.
    pub(super) fn left(&self, latency: u64, waited: u64) -> u64 {
        latency.saturating_sub(waited).max(latency * self.profile.queued_percent / 100)
    }

    /// Draws how much longer or shorter than usual a transfer takes.
    pub(super) fn draw(&mut self) -> u16 {
        self.random.below(1 << u16::BITS) as u16
    }

    /// A time near to this one, by what was drawn.
    pub(super) fn about(&self, latency: u64, drawn: u16) -> u64 {
        let most = latency * self.profile.spread_percent / 100;
        latency - most + ((2 * most * u64::from(drawn)) >> u16::BITS)
    }

    /// How long a core waits from `now` on for a line that takes `latency`. For a store's it does not wait: that is in
    /// the buffer.
    #[inline]
    pub(super) fn waits_for_line(
        &mut self,
        core: usize,
        now: u64,
        number: LineNumber,
        latency: u64,
        touch: Touch,
    ) -> u64 {
        if touch != Touch::Store {
            return latency;
        }
        let pipeline = &mut self.pipelines[core];
        if now + latency > pipeline.stored_at {
            (pipeline.stored_at, pipeline.stored) = (now + latency, number as u32);
        }
        0
    }

    /// The core waits so long for what it has stored: for the line of it that comes last.
    #[inline]
    pub(super) fn waits_for_stores(&mut self, core: usize, waits: u64) {
        if waits > 0 {
            let stored = self.pipelines[core].stored as LineNumber;
            self.table.lines[stored].waited += waits;
        }
    }

    /// A fence at `now`: how long the core waits for what it has stored.
    pub(in crate::sim) fn fence(&mut self, core: usize, now: u64) -> u64 {
        self.serialized(core);
        let drained = self.drained(core, now);
        self.waits_for_stores(core, drained);
        drained
    }

    /// How long it takes from `now` on until all that the core has stored is where others see it.
    #[inline]
    fn drained(&self, core: usize, now: u64) -> u64 {
        self.pipelines[core].stored_at.saturating_sub(now)
    }

    /// How long an access waits for that from `now` on: an atomic change does.
    #[inline]
    pub(super) fn drained_for(&self, core: usize, now: u64, touch: Touch) -> u64 {
        if touch == Touch::Change { self.drained(core, now) } else { 0 }
    }

    /// This core goes next, most likely, and accesses this address.
    #[inline]
    pub(in crate::sim) fn prefetch(&self, core: usize, address: usize) {
        prefetch(&raw const self.pipelines[core]);
        prefetch(&raw const self.overlaps[core]);
        self.table.prefetch(address, core);
    }
}
