//! The directory of cache lines: who has which line, and what an access costs.
//!
//! MESI, one entry for each 64-byte line that was ever accessed. A line is nobody's (in memory), shared by a set of
//! cores, or owned by one that may change it. A load that misses fetches the line from its owner, from the nearest
//! sharer or from memory; a change takes it from everybody. A line that is on its way to one core makes the next one
//! wait: it books the slot behind (first in, first out). A load or change takes effect when the line has come. Until
//! the snoop arrives the old owner keeps hitting (retention). How long a transfer takes differs a little from one to
//! the next. An access that has waited has a part of its way behind it when the line becomes free
//! (`Profile::queued_percent`). Hardware threads of one core have its caches in common, and wait for a line together. A
//! core's own caches have room for what it used last, and the last cache of its socket for more (`ages.rs`); what is
//! gone from the first lies in the second, and what is gone from both in memory. Nobody notices before somebody wants
//! it.
#![allow(clippy::disallowed_types)]

mod ages;
mod hot;
mod map;
mod near;
mod overlap;
mod pipeline;
mod place;
mod table;
mod times;
mod transfer;
mod watch;

use std::{collections::BTreeMap, ops::Range, panic::Location};

use ages::Ages;
pub use hot::HotLine;
use hot::Named;
use map::Map;
use overlap::{Overlap, Prefetches};
use pipeline::Pipeline;
use place::PlaceKinds;
pub(super) use table::LineNumber;
use table::{LINE_SHIFT, NOBODY, Table};
use times::{Times, short};

use super::{
    kernel::Touch,
    profile::{DISTANCES, Profile},
};
use crate::random::Xorshift;

/// What a miss was, by where the line came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) accesses: u64,
    pub(super) changes: u64,
    /// Lines that came from memory, and from a last cache, when no core had them.
    pub(super) cold: u64,
    pub(super) cached: u64,
    /// Lines that came, or were taken away, from another core of the same socket, and from another socket.
    pub(super) near: u64,
    pub(super) far: u64,
}

/// Bytes of a line.
const LINE: u64 = 1 << LINE_SHIFT;

/// How an access comes to its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// At once. Whether the core has accessed the line before this one just now, when this one was used last, and how
    /// long ago it was asked for (`overlap.rs`).
    Now { ahead: bool, last: u64, early: u64 },
    /// In the slot that it has booked, for which it has waited so long, and what was drawn for it.
    Booked { waited: u64, drawn: u16 },
}

/// What an access took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// In the core itself.
    pub(super) computing: u64,
    /// Waiting for the line.
    pub(super) waiting: u64,
    /// Its slot comes later: the access is not done, see [`Directory::arrive`].
    pub(super) booked: bool,
    /// The line.
    pub(super) line: LineNumber,
}

pub(super) struct Directory {
    profile: Profile,
    times: Times,
    cores: usize,
    /// The socket of each core, and its cluster of that socket.
    sockets: Vec<u8>,
    clusters: Vec<u16>,
    /// For each socket, which sockets are no farther away than by each distance, a bit each.
    within: Vec<[u16; DISTANCES]>,
    /// What the caches of each core have room for, by the number of its first hardware thread, and the last one of each
    /// socket.
    own_caches: Vec<Ages>,
    last_caches: Vec<Ages>,
    /// What was used last since then is in the caches of all that have it.
    forgotten: u64,
    table: Table,
    /// The pipeline of each core.
    pipelines: Vec<Pipeline>,
    /// Of each core, what may be under way at one time.
    overlaps: Vec<Overlap>,
    prefetches: Vec<Prefetches>,
    /// How much is computed at a place in the source.
    kinds: PlaceKinds,
    /// Cores that sleep until a line moves, by line.
    watchers: Map<LineNumber, Vec<usize>>,
    /// Watched lines that have moved: their watchers are to be roused.
    moved: Vec<LineNumber>,
    pub(super) counts: Counts,
    /// By how much transfers differ from the profile's.
    random: Xorshift,
    /// Accesses before counting began, and how many in all took place while their cores slept.
    earlier: u64,
    slept_through: u64,
    /// What is known to lie where, by where it begins.
    named: BTreeMap<usize, Named>,
}

impl Directory {
    pub(super) fn new(profile: Profile, cores: usize, seed: u64) -> Directory {
        let sockets = cores.div_ceil(profile.cores_per_socket);
        let within = |socket, distance| {
            let near = (0..sockets).filter(|&other| profile.socket_distance(socket, other) <= distance);
            near.fold(0, |bits, other| bits | 1 << other)
        };
        Directory {
            sockets: (0..cores).map(|core| (core / profile.cores_per_socket) as u8).collect(),
            clusters: (0..cores).map(|core| profile.cluster_of(core) as u16).collect(),
            within: (0..sockets)
                .map(|socket| std::array::from_fn(|distance| within(socket, distance)))
                .collect(),
            own_caches: (0..cores).map(|_| Ages::new(profile.own_cache_bytes, LINE)).collect(),
            last_caches: (0..sockets).map(|_| Ages::new(profile.cache_bytes, LINE)).collect(),
            forgotten: 0,
            times: Times::of(&profile),
            profile,
            cores,
            table: Table::new(cores),
            pipelines: vec![Pipeline::default(); cores],
            overlaps: vec![Overlap::default(); cores],
            prefetches: vec![Prefetches::default(); cores],
            kinds: PlaceKinds::new(),
            watchers: Map::default(),
            // An access moves one line, and whoever watches it is roused at once.
            moved: Vec::with_capacity(1),
            counts: Counts::default(),
            random: Xorshift::new(seed),
            earlier: 0,
            slept_through: 0,
            named: BTreeMap::new(),
        }
    }

    /// A page is accessed by what only prepares a measurement. Such pages lie in the memories of all sockets in turn,
    /// as with `numactl --interleave`: the thread that loads a database is not the one that uses it.
    #[inline]
    pub(super) fn prepare(&mut self, address: usize) {
        self.table.prepare(address);
    }

    /// What was prepared until `now` lies in the last caches of the sockets whose memory it lies in, if it finds room
    /// there.
    pub(super) fn prepared(&mut self, now: u64) {
        self.table.prepared(self.profile.cache_bytes * self.last_caches.len() as u64, now);
    }

    /// There is new memory, outside of the simulation's own, of which no core has a line.
    pub(super) fn gets_memory(&mut self, place: Range<usize>) {
        self.table.forget(place);
    }

    /// Accesses since the machine began, but for those that nobody had to run.
    pub(super) fn accesses_in_all(&self) -> u64 {
        self.earlier + self.counts.accesses - self.slept_through
    }

    /// Counts from here on.
    pub(super) fn count_anew(&mut self) {
        self.earlier += self.counts.accesses;
        self.counts = Counts::default();
        self.table.count_anew();
    }

    /// An access by `core` at `now`.
    #[inline]
    pub(super) fn access(
        &mut self,
        core: usize,
        now: u64,
        address: usize,
        touch: Touch,
        at: &'static Location<'static>,
    ) -> Cost {
        let number = self.table.number_of(address);
        self.counts.accesses += 1;
        self.counts.changes += u64::from(touch == Touch::Change);
        let before = std::mem::replace(&mut self.pipelines[core].line, number as u32);
        let kind = self.kinds.of(at);
        let mut cost = Cost {
            line: number,
            computing: self.computing(core, now, address, touch, kind),
            waiting: 0,
            booked: false,
        };
        let cache = self.cache_of(core);
        let line = &mut self.table.lines[number];
        // A core that sleeps while it spins looks at the line all the time.
        let last = if line.watched { now } else { line.used };
        line.used = now.max(1);
        if last < self.pipelines[cache].recent {
            self.grow_old(number, cache, last, now.max(1));
        }
        let mut drained = self.drained_for(core, now, touch);
        // The buffer's own time is not the line's.
        let emptying = drained.min(self.times.drain);
        drained -= emptying;
        cost.computing += emptying;
        // Whoever keeps the line for a moment may have lost it by then.
        let begun = match touch {
            Touch::Change if self.profile.changes_begin_late => now + drained + cost.computing,
            _ => now,
        };
        if self.hits(number, cache, begun, touch) {
            cost.waiting = drained;
            self.waits_for_stores(core, drained);
            self.waits_for_line(core, now + cost.computing, number, self.times.drain, touch);
            if touch == Touch::Change {
                self.serialized(core);
            }
            return cost;
        }
        let busy_until = self.table.lines[number].busy_until;
        if busy_until > now {
            cost.waiting = busy_until - now;
            cost.booked = true;
            let drawn = self.draw();
            let pipeline = &mut self.pipelines[core];
            (pipeline.booked, pipeline.drawn) = (short(cost.waiting), drawn);
            self.book(number, cache, touch, cost.waiting, drawn);
            return cost;
        }
        let ahead = number as u32 == before.wrapping_add(1);
        let early = self.asked_before(core, now, number, address, kind);
        let early = early.max(self.prefetched_before(core, now, address, last));
        let latency = self.transfer(number, cache, now, touch, Arrival::Now { ahead, last, early }, at);
        let waits = self.waits_for_line(core, now, number, latency, touch);
        self.table.lines[number].waited += waits;
        cost.waiting = waits.max(drained);
        self.waits_for_stores(core, cost.waiting - waits);
        self.missed(core, now + cost.waiting, cost.waiting, number, kind, touch);
        cost
    }

    /// Whether the core has the line as the access needs it.
    #[inline]
    fn hits(&mut self, number: LineNumber, core: usize, now: u64, touch: Touch) -> bool {
        let owns = self.table.lines[number].owner == core as u16;
        let shares = !owns && touch == Touch::Load && self.table.shares(number, core);
        let line = &mut self.table.lines[number];
        let hits = owns || shares || line.keeper == core as u16 && now < line.kept_until;
        line.changed |= owns && touch != Touch::Load;
        // A core that kept the line for a moment changes it under the eyes of others, and one thread of a core under
        // those of the other.
        if hits && touch != Touch::Load && line.watched && (!owns || self.profile.threads_per_core > 1) {
            self.moved.push(number);
        }
        hits
    }

    /// Books the slot behind all others, which begins after so long. `drawn`: for how long it is.
    fn book(&mut self, number: LineNumber, core: usize, touch: Touch, waiting: u64, drawn: u16) {
        let estimate = self.about(self.left(self.estimate(number, core, touch), waiting), drawn);
        let line = &mut self.table.lines[number];
        line.waited += waiting;
        // The line is on its way to the core already if the core's other thread is the last that waits for it.
        if self.profile.threads_per_core == 1 || line.last != core as u16 {
            line.busy_until += estimate;
            line.last = core as u16;
        }
    }

    /// The access that had booked a slot of this line takes place. Gives what the core waits on.
    pub(super) fn arrive(
        &mut self,
        core: usize,
        now: u64,
        number: LineNumber,
        touch: Touch,
        at: &'static Location<'static>,
    ) -> u64 {
        let pipeline = &self.pipelines[core];
        let (waited, drawn) = (u64::from(pipeline.booked), pipeline.drawn);
        let kind = self.kinds.of(at);
        let cache = self.cache_of(core);
        let drained = self.drained_for(core, now, touch);
        if self.hits(number, cache, now, touch) {
            self.missed(core, now, waited, number, kind, touch);
            self.table.lines[number].waited += self.times.hit;
            self.waits_for_stores(core, drained.saturating_sub(self.times.hit));
            return self.times.hit.max(drained);
        }
        let transfer = self.transfer(number, cache, now, touch, Arrival::Booked { waited, drawn }, at);
        self.table.lines[number].waited += transfer;
        let latency = transfer.max(drained);
        self.waits_for_stores(core, latency - transfer);
        self.missed(core, now + latency, waited + latency, number, kind, touch);
        latency
    }

    /// The core changes a line now, for which it has waited: whoever watches it, and was not roused by its coming, is.
    pub(super) fn overtaken(&mut self, core: usize, number: LineNumber) {
        let line = &self.table.lines[number];
        let is_alone = line.owner == self.cache_of(core) as u16 && self.profile.threads_per_core == 1;
        if line.watched && !is_alone {
            self.moved.push(number);
        }
    }

    /// How long the line will be busy with this access, as far as can be said when it is booked.
    fn estimate(&self, number: LineNumber, core: usize, touch: Touch) -> u64 {
        let line = &self.table.lines[number];
        let before = if line.last == NOBODY { core } else { usize::from(line.last) };
        let distance = self.distance(core, before);
        match touch {
            Touch::Load if line.owner != NOBODY => self.times.load_modified[distance],
            Touch::Load => self.times.occupancy[distance],
            Touch::Store | Touch::Change => self.times.own[distance],
        }
    }
}
