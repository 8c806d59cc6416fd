//! How a line comes to a core that does not have it as it needs it.

use std::panic::Location;

use super::{
    Arrival, Directory, LineNumber,
    table::{NO_HOME, NOBODY},
};
use crate::sim::kernel::Touch;

/// What of the way from memory is left for a line that follows the one that the core accessed last: it has been fetched
/// ahead. One part in this many; what remains is the bandwidth of one core, some 15 GB/s.
const FETCHED_AHEAD: u64 = 4;

/// Where a line comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The core that may change it.
    Owner(u16),
    /// The cores that share it.
    Sharers,
    /// No core: memory, or a last cache.
    Memory,
}

impl Directory {
    /// Moves a line to a core, which does not have it as it needs it. Gives what that takes.
    pub(super) fn transfer(
        &mut self,
        number: LineNumber,
        core: usize,
        now: u64,
        touch: Touch,
        arrival: Arrival,
        at: &'static Location<'static>,
    ) -> u64 {
        self.give_home(number, core);
        if let Arrival::Now { last, .. } = arrival
            && self.is_gone(number, last)
        {
            self.lose(number);
        }
        let (source, distance) = self.source_of(number, core, touch);
        let (latency, is_cached) = self.latency_of(number, core, touch, (source, distance), arrival);
        let latency = match arrival {
            // Longer or shorter than usual by as much as was booked: nobody comes before the one before him.
            Arrival::Booked { waited, drawn } => self.about(self.left(latency, waited), drawn),
            Arrival::Now { early, .. } => {
                let drawn = self.draw();
                self.about(latency, drawn).saturating_sub(early)
            }
        };
        self.count_transfer(source, distance, is_cached);
        self.table.moved(number, at);
        if matches!(arrival, Arrival::Now { .. }) {
            // Of shared copies many cores can load at nearly the same time; what comes from memory, when it has come.
            let busy = match (touch, source) {
                (Touch::Load, Source::Sharers) => self.times.occupancy[distance],
                _ => latency,
            };
            let line = &mut self.table.lines[number];
            line.busy_until = now + busy;
            line.last = core as u16;
        }
        if let Source::Owner(owner) = source {
            self.retain(number, owner, now, latency, touch);
        }
        self.hand_over(number, core, touch, source);
        latency
    }

    /// A line that nobody has touched yet lies in the memory of the core's socket, if it was not prepared elsewhere.
    #[inline]
    fn give_home(&mut self, number: LineNumber, core: usize) {
        if self.table.lines[number].home == NO_HOME {
            let prepared = self.table.prepared_page(number).map(|page| page % self.last_caches.len());
            let own = usize::from(self.sockets[core]);
            self.table.lines[number].home = prepared.unwrap_or(own) as u8;
        }
    }

    /// Where the line comes from, and how far away that is.
    #[inline]
    fn source_of(&self, number: LineNumber, core: usize, touch: Touch) -> (Source, usize) {
        let line = &self.table.lines[number];
        if line.owner != NOBODY {
            (Source::Owner(line.owner), self.distance(core, usize::from(line.owner)))
        } else if line.sharers == 0 {
            let socket = usize::from(self.sockets[core]);
            (Source::Memory, self.profile.socket_distance(socket, usize::from(line.home)))
        } else {
            (Source::Sharers, self.reach(number, core, touch))
        }
    }

    /// How long a transfer from there takes on the profile's machine, if the core has not waited for it yet; and
    /// whether it is from a last cache.
    #[inline]
    fn latency_of(
        &self,
        number: LineNumber,
        core: usize,
        touch: Touch,
        (source, distance): (Source, usize),
        arrival: Arrival,
    ) -> (u64, bool) {
        match (touch, source) {
            (_, Source::Memory) => {
                let socket = usize::from(self.sockets[core]);
                let (latency, is_cached) = self.beyond(number, socket, distance, arrival);
                let follows = matches!(arrival, Arrival::Now { ahead: true, .. });
                (if follows { latency / FETCHED_AHEAD } else { latency }, is_cached)
            }
            (Touch::Load, Source::Owner(_)) => (self.times.load_modified[distance], false),
            (Touch::Load, Source::Sharers) => (self.times.load_shared[distance], false),
            (Touch::Store | Touch::Change, _) => {
                let sharers = self.table.lines[number].sharers;
                let others = u64::from(sharers) - u64::from(self.table.shares(number, core));
                (self.times.own[distance] + self.times.invalidate_each * others.saturating_sub(1), false)
            }
        }
    }

    #[inline]
    fn count_transfer(&mut self, source: Source, distance: usize, is_cached: bool) {
        let count = match (source == Source::Memory, distance < 2) {
            (true, _) if is_cached => &mut self.counts.cached,
            (true, _) => &mut self.counts.cold,
            (false, true) => &mut self.counts.near,
            (false, false) => &mut self.counts.far,
        };
        *count += 1;
    }

    /// The owner keeps hitting for a part of the transfer. A core that stores is seen at once, so nobody may look who
    /// has not waited for the line: the owner keeps it for others alone.
    #[inline]
    fn retain(&mut self, number: LineNumber, owner: u16, now: u64, latency: u64, touch: Touch) {
        let kept = if touch == Touch::Store { 0 } else { self.profile.retention_percent };
        let line = &mut self.table.lines[number];
        line.keeper = owner;
        line.kept_until = now + latency * kept / 100;
    }

    /// The core has the line from now on: it shares it, or may change it.
    #[inline]
    fn hand_over(&mut self, number: LineNumber, core: usize, touch: Touch, source: Source) {
        let line = &mut self.table.lines[number];
        let migrates = self.profile.migrates && line.changed;
        line.changed = touch != Touch::Load;
        let from_memory = source == Source::Memory;
        if touch == Touch::Load && !from_memory && !migrates {
            line.owner = NOBODY;
        } else {
            // A core that loads what nobody has, or what its owner has changed where lines migrate, may change it, too,
            // and need not ask.
            line.owner = core as u16;
            if line.watched && (touch != Touch::Load || !from_memory) {
                self.moved.push(number);
            }
            self.table.forget_sharers(number);
        }
        self.table.share(number, core, usize::from(self.sockets[core]));
    }
}
