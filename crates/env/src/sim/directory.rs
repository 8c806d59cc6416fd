//! The directory of cache lines: who has which line, and what an access costs.
//!
//! MESI, one entry for each 64-byte line that was ever accessed. A line is nobody's (in memory), shared by a set of
//! cores, or owned by one that may change it. A load that misses fetches the line from its owner, from the nearest
//! sharer or from memory; a change takes it from everybody. A line that is on its way to one core makes the next one
//! wait: it books the slot behind (first in, first out), and the access takes effect when that slot comes. Until the
//! snoop arrives the old owner keeps hitting (retention). Caches are endless: nothing is ever evicted.
#![allow(clippy::disallowed_types)]

mod hot;

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasherDefault, Hasher},
    panic::Location,
};

pub use hot::HotLine;
use hot::Named;

use super::{
    kernel::Touch,
    profile::{DISTANCES, Profile},
};

/// The number of a line, in the order of first access.
pub(super) type LineNumber = usize;

/// Bytes of a line, as a power of two.
const LINE_SHIFT: u32 = 6;
/// No core.
const NOBODY: u16 = u16::MAX;

struct Line {
    /// Its address, without the bits that are zero.
    tag: usize,
    /// Until then the line is on its way to somebody.
    busy_until: u64,
    /// Until then `keeper` still hits.
    kept_until: u64,
    /// Who had the line before its owner.
    keeper: u16,
    /// Who may change it.
    owner: u16,
    /// Who is last in the queue of those that wait for it.
    last: u16,
    sharers: u16,
    /// The socket whose memory it lies in: that of whoever touched it first.
    home: u8,
    /// Sockets with sharers, a bit each.
    sockets: u16,
    /// Since counting began: times it came from another core or from memory, and picoseconds that cores waited for it.
    moves: u32,
    waited: u64,
}

/// What a miss was, by where the line came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) accesses: u64,
    pub(super) changes: u64,
    /// Lines that came from memory.
    pub(super) cold: u64,
    /// Lines that came, or were taken away, from another core of the same socket, and from another socket.
    pub(super) near: u64,
    pub(super) far: u64,
}

/// Figures of a [`Profile`], in picoseconds.
struct Times {
    hit: u64,
    again: u64,
    change: u64,
    load_modified: [u64; DISTANCES],
    load_shared: [u64; DISTANCES],
    own: [u64; DISTANCES],
    memory: [u64; DISTANCES],
    occupancy: [u64; DISTANCES],
    invalidate_each: u64,
    computation: u64,
}

/// What an access took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// In the core itself.
    pub(super) computing: u64,
    /// Waiting for the line.
    pub(super) waiting: u64,
    /// Its slot comes later: the access is not done, see [`Directory::arrive`].
    pub(super) booked: Option<LineNumber>,
}

/// A hash of small numbers, the same in every run.
#[derive(Default)]
pub(super) struct Multiplied(u64);

impl Hasher for Multiplied {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 32;
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

/// A map with that hash.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Multiplied>>;

pub(super) struct Directory {
    profile: Profile,
    times: Times,
    lines: Vec<Line>,
    by_tag: Map<usize, u32>,
    /// The sharers of each line, a bit for each core: `words` words a line.
    sharers: Vec<u64>,
    words: usize,
    /// The line that each core accessed last.
    last: Vec<u32>,
    pub(super) counts: Counts,
    /// Accesses before counting began.
    earlier: u64,
    /// Where lines moved, by line and place in the source.
    places: Map<(u32, usize), (u64, &'static Location<'static>)>,
    /// What is known to lie where, by where it begins.
    named: BTreeMap<usize, Named>,
}

fn times(profile: &Profile) -> Times {
    let picoseconds = |cycles: u64| (cycles as f64 * 1000.0 / profile.gigahertz).round() as u64;
    let all = |table: [u64; DISTANCES]| table.map(picoseconds);
    Times {
        hit: picoseconds(profile.hit),
        again: picoseconds(1),
        change: picoseconds(profile.change),
        load_modified: all(profile.load_modified),
        load_shared: all(profile.load_shared),
        own: all(profile.own),
        memory: all(profile.memory),
        occupancy: all(profile.occupancy),
        invalidate_each: picoseconds(profile.invalidate_each),
        computation: picoseconds(profile.computation),
    }
}

impl Directory {
    pub(super) fn new(profile: Profile, cores: usize) -> Directory {
        Directory {
            times: times(&profile),
            profile,
            lines: Vec::new(),
            by_tag: Map::default(),
            sharers: Vec::new(),
            words: cores.div_ceil(64),
            last: vec![u32::MAX; cores],
            counts: Counts::default(),
            earlier: 0,
            places: Map::default(),
            named: BTreeMap::new(),
        }
    }

    /// Accesses since the machine began.
    pub(super) fn accesses_in_all(&self) -> u64 {
        self.earlier + self.counts.accesses
    }

    /// Counts from here on.
    pub(super) fn count_anew(&mut self) {
        self.earlier = self.accesses_in_all();
        self.counts = Counts::default();
        self.places.clear();
        for line in &mut self.lines {
            (line.moves, line.waited) = (0, 0);
        }
    }

    fn number_of(&mut self, core: usize, address: usize) -> LineNumber {
        let tag = address >> LINE_SHIFT;
        if let Some(&number) = self.by_tag.get(&tag) {
            return number as usize;
        }
        let home = (core / self.profile.cores_per_socket) as u8;
        self.lines.push(Line {
            tag,
            busy_until: 0,
            kept_until: 0,
            keeper: NOBODY,
            owner: NOBODY,
            last: NOBODY,
            sharers: 0,
            home,
            sockets: 0,
            moves: 0,
            waited: 0,
        });
        self.sharers.resize(self.lines.len() * self.words, 0);
        let number = self.lines.len() - 1;
        self.by_tag.insert(tag, u32::try_from(number).expect("fewer lines than memory has"));
        number
    }

    fn shares(&self, number: LineNumber, core: usize) -> bool {
        self.sharers[number * self.words + core / 64] & 1 << (core % 64) != 0
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
        let number = self.number_of(core, address);
        self.counts.accesses += 1;
        self.counts.changes += u64::from(touch == Touch::Change);
        let mut cost = Cost { computing: self.times.computation, ..Cost::default() };
        if touch == Touch::Change {
            cost.computing += self.times.change;
        }
        let line = &self.lines[number];
        let mine = line.owner == core as u16
            || touch == Touch::Load && self.shares(number, core)
            || line.keeper == core as u16 && now < line.kept_until;
        if mine {
            // A run of accesses to one line goes through the core's pipeline.
            let again = self.last[core] == number as u32 && touch != Touch::Change;
            cost.computing = if again { self.times.again } else { cost.computing + self.times.hit };
            self.last[core] = number as u32;
            return cost;
        }
        self.last[core] = number as u32;
        if line.busy_until > now {
            let estimate = self.estimate(number, core, touch);
            let line = &mut self.lines[number];
            cost.waiting = line.busy_until - now;
            cost.booked = Some(number);
            line.waited += cost.waiting;
            line.busy_until += estimate;
            line.last = core as u16;
            return cost;
        }
        cost.waiting = self.transfer(number, core, now, touch, false, at);
        cost
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
        let owns = self.lines[number].owner == core as u16;
        if owns || touch == Touch::Load && self.shares(number, core) {
            return self.times.hit;
        }
        self.transfer(number, core, now, touch, true, at)
    }

    /// How long the line will be busy with this access, as far as can be said when it is booked.
    fn estimate(&self, number: LineNumber, core: usize, touch: Touch) -> u64 {
        let line = &self.lines[number];
        let before = if line.last == NOBODY { core } else { usize::from(line.last) };
        let distance = self.profile.distance(core, before);
        match touch {
            Touch::Load if line.owner != NOBODY => self.times.load_modified[distance],
            Touch::Load => self.times.occupancy[distance],
            Touch::Store | Touch::Change => self.times.own[distance],
        }
    }

    /// Moves a line to a core, which does not have it as it needs it. Gives what that takes.
    fn transfer(
        &mut self,
        number: LineNumber,
        core: usize,
        now: u64,
        touch: Touch,
        booked: bool,
        at: &'static Location<'static>,
    ) -> u64 {
        let socket = core / self.profile.cores_per_socket;
        let (owner, sharers) = (self.lines[number].owner, self.lines[number].sharers);
        let (distance, from_memory) = if owner != NOBODY {
            (self.profile.distance(core, usize::from(owner)), false)
        } else if sharers == 0 {
            (self.profile.socket_distance(socket, usize::from(self.lines[number].home)), true)
        } else {
            (self.reach(number, core, touch), false)
        };
        let latency = match touch {
            _ if from_memory => self.times.memory[distance],
            Touch::Load if owner != NOBODY => self.times.load_modified[distance],
            Touch::Load => self.times.load_shared[distance],
            Touch::Store | Touch::Change => {
                let others = u64::from(sharers) - u64::from(self.shares(number, core));
                self.times.own[distance] + self.times.invalidate_each * others.saturating_sub(1)
            }
        };
        // Of shared copies many cores can load at nearly the same time.
        let busy = match touch {
            Touch::Load if owner == NOBODY => self.times.occupancy[distance],
            _ => latency,
        };
        match (from_memory, distance < 2) {
            (true, _) => self.counts.cold += 1,
            (false, true) => self.counts.near += 1,
            (false, false) => self.counts.far += 1,
        }
        let place = (number as u32, std::ptr::from_ref(at).addr());
        self.places.entry(place).or_insert((0, at)).0 += 1;
        let line = &mut self.lines[number];
        line.moves += 1;
        line.waited += latency;
        if !booked {
            line.busy_until = now + busy;
            line.last = core as u16;
        }
        if owner != NOBODY {
            line.keeper = owner;
            line.kept_until = now + latency * self.profile.retention_percent / 100;
        }
        let words = &mut self.sharers[number * self.words..(number + 1) * self.words];
        if touch == Touch::Load {
            line.owner = NOBODY;
        } else {
            line.owner = core as u16;
            (line.sharers, line.sockets) = (0, 0);
            words.fill(0);
        }
        line.sharers += 1;
        line.sockets |= 1 << socket;
        words[core / 64] |= 1 << (core % 64);
        latency
    }

    /// The distance that counts for a shared line: of the nearest copy for a load, of the farthest for a change.
    fn reach(&self, number: LineNumber, core: usize, touch: Touch) -> usize {
        let socket = core / self.profile.cores_per_socket;
        let mut sockets = self.lines[number].sockets;
        let alone = self.lines[number].sharers == 1 && self.shares(number, core);
        if touch != Touch::Load && alone {
            return 0;
        }
        let (mut nearest, mut farthest) = (DISTANCES - 1, 0);
        while sockets != 0 {
            let other = sockets.trailing_zeros() as usize;
            sockets &= sockets - 1;
            let distance = self.profile.socket_distance(socket, other);
            nearest = nearest.min(distance);
            farthest = farthest.max(distance);
        }
        // Inside of a socket the cluster counts; who shares is looked at for a change only.
        let within = |distance: usize| {
            let clusters = self.profile.cores_per_cluster < self.profile.cores_per_socket;
            if distance == 0 && clusters && !self.in_cluster(number, core) { 1 } else { distance }
        };
        if touch == Touch::Load { within(nearest) } else { within(farthest) }
    }

    /// Whether a core of the same cluster has the line.
    fn in_cluster(&self, number: LineNumber, core: usize) -> bool {
        let first = core / self.profile.cores_per_cluster * self.profile.cores_per_cluster;
        (first..first + self.profile.cores_per_cluster)
            .any(|other| other != core && other / 64 < self.words && self.shares(number, other))
    }
}
