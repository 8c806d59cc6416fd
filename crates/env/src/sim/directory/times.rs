//! What accesses take on a machine.

use crate::sim::profile::{DISTANCES, Profile};

/// A time as it is remembered of a core: what is longer than four milliseconds counts as that.
pub(super) fn short(picoseconds: u64) -> u32 {
    u32::try_from(picoseconds).unwrap_or(u32::MAX)
}

/// Figures of a [`Profile`], in picoseconds.
pub(super) struct Times {
    pub(super) hit: u64,
    pub(super) change: u64,
    pub(super) load_modified: [u64; DISTANCES],
    pub(super) load_shared: [u64; DISTANCES],
    pub(super) own: [u64; DISTANCES],
    pub(super) memory: [u64; DISTANCES],
    pub(super) occupancy: [u64; DISTANCES],
    pub(super) invalidate_each: u64,
    pub(super) cached: u64,
    pub(super) computation: u64,
    pub(super) lock_computation: u64,
    pub(super) latch_computation: u64,
    pub(super) following: u64,
    pub(super) shadow: u64,
    pub(super) drain: u64,
    pub(super) window: u64,
}

impl Times {
    /// Those of this machine.
    pub(super) fn of(profile: &Profile) -> Times {
        let picoseconds = |cycles: u64| (cycles as f64 * 1000.0 / profile.gigahertz).round() as u64;
        let all = |table: [u64; DISTANCES]| table.map(picoseconds);
        Times {
            hit: (profile.hit * 1000.0 / profile.gigahertz).round() as u64,
            change: picoseconds(profile.change),
            load_modified: all(profile.load_modified),
            load_shared: all(profile.load_shared),
            own: all(profile.own),
            memory: all(profile.memory),
            occupancy: all(profile.occupancy),
            invalidate_each: picoseconds(profile.invalidate_each),
            cached: picoseconds(profile.cached),
            computation: picoseconds(profile.computation),
            lock_computation: picoseconds(profile.lock_computation),
            latch_computation: (profile.latch_computation * 1000.0 / profile.gigahertz).round() as u64,
            following: picoseconds(profile.following),
            shadow: picoseconds(profile.shadow),
            drain: picoseconds(profile.drain),
            window: picoseconds(profile.window),
        }
    }
}
