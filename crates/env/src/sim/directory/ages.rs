//! Caches of limited size, without looking at each of their lines.
//!
//! A cache drops what was not used for longest. Here its time is divided into generations, in each of which so many
//! different lines are used; what was used since the oldest that is remembered began is there, everything else is not.
//! Which lines have been used in a generation is known by when each was used last, by whomever: a line that several
//! cores use counts for those that come to it first, and stays longer than it would in the caches of those that have
//! not used it lately.

use super::{Arrival, Directory, LineNumber, NOBODY};

/// How many generations a cache remembers, the newest included.
const GENERATIONS: usize = 4;

/// What a cache has room for.
pub(super) struct Ages {
    /// When each generation began, the newest first.
    began: [u64; GENERATIONS],
    /// Different lines used in the newest.
    used: u64,
    /// Of so many.
    room: u64,
}

impl Ages {
    /// Of a cache of so many bytes.
    pub(super) fn new(bytes: u64, line: u64) -> Ages {
        // The newest generation is half over on average.
        let room = bytes / line * 2 / (2 * GENERATIONS as u64 - 1);
        // A line that nobody has used was used last at 0.
        Ages { began: [1, 0, 0, 0], used: 0, room: room.max(1) }
    }

    /// When the newest generation began: what was used since need not be counted.
    #[inline]
    pub(super) fn newest(&self) -> u64 {
        self.began[0]
    }

    /// What was used last before this is gone.
    #[inline]
    pub(super) fn oldest(&self) -> u64 {
        self.began[GENERATIONS - 1]
    }

    /// A line is used now that was used last at `last`.
    pub(super) fn used(&mut self, last: u64, now: u64) {
        if last >= self.newest() {
            return;
        }
        self.used += 1;
        if self.used > self.room {
            self.began.copy_within(..GENERATIONS - 1, 1);
            (self.began[0], self.used) = (now, 1);
        }
    }
}

impl Directory {
    /// A core uses a line that was used last at `last`, which is long ago: others may be gone from its caches for it,
    /// and it from them.
    pub(super) fn grow_old(&mut self, number: LineNumber, core: usize, last: u64, now: u64) {
        let socket = usize::from(self.sockets[core]);
        self.own_caches[core].used(last, now);
        self.forgotten = self.forgotten.max(self.own_caches[core].oldest());
        self.last_caches[socket].used(last, now);
        let newest = self.last_caches[socket].newest();
        if newest == now {
            // It has begun, for all cores of the socket.
            let cores = self.cores_of(socket);
            self.pipelines[cores].iter_mut().for_each(|pipeline| pipeline.recent = now);
        } else {
            self.pipelines[core].recent = self.own_caches[core].newest().max(newest);
        }
        let (owner, gone) = (self.table.lines[number].owner, last < self.own_caches[core].oldest());
        if gone && owner == core as u16 {
            self.lose(number);
        } else if gone && owner == NOBODY && self.table.shares(number, core) {
            let cores = self.cores_of(socket);
            self.table.unshare(number, core, socket, cores);
        }
    }

    /// Whether nobody's own caches have a line any more that somebody has, and that was used last at `last`: neither
    /// its owner's nor a sharer's.
    pub(super) fn is_gone(&self, number: LineNumber, last: u64) -> bool {
        let line = &self.table.lines[number];
        let forgets = |core: usize| last < self.own_caches[core].oldest();
        match line.owner {
            NOBODY if line.sharers == 0 || last >= self.forgotten => false,
            NOBODY => self.table.all_sharers(number, forgets),
            owner => forgets(usize::from(owner)),
        }
    }

    /// Nobody's caches have room for a line.
    pub(super) fn lose(&mut self, number: LineNumber) {
        self.table.lines[number].owner = NOBODY;
        self.table.forget_sharers(number);
    }

    /// What a line takes that no core has, whose memory is so far away; whether a last cache has it.
    pub(super) fn beyond(
        &self,
        number: LineNumber,
        socket: usize,
        distance: usize,
        arrival: Arrival,
    ) -> (u64, bool) {
        let line = &self.table.lines[number];
        // It lies in the last cache of the socket that used it last, or was prepared in its home's.
        let (last, there) = match arrival {
            Arrival::Now { last: 0, .. } => (self.table.was_prepared(number), usize::from(line.home)),
            Arrival::Now { last, .. } if line.last != NOBODY => {
                (Some(last), usize::from(self.sockets[usize::from(line.last)]))
            }
            _ => (None, socket),
        };
        if last.is_none_or(|last| last < self.last_caches[there].oldest()) {
            (self.times.memory[distance], false)
        } else if there == socket {
            (self.times.cached, true)
        } else {
            (self.times.load_shared[self.profile.socket_distance(socket, there)], true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many lines, used in turn several times, are there when their turn comes again; and of few that
    /// are used between them all the time.
    fn kept(ages: &mut Ages, lines: usize, often: usize) -> (usize, usize) {
        let (mut last, mut last_often) = (vec![0; lines], vec![0; often]);
        let (mut kept, mut kept_often, mut now) = (0, 0, 1);
        for _ in 0..5 {
            (kept, kept_often) = (0, 0);
            for line in 0..lines {
                for (last, kept) in
                    [(&mut last[line], &mut kept), (&mut last_often[line % often], &mut kept_often)]
                {
                    now += 1;
                    *kept += usize::from(*last > 0 && *last >= ages.oldest());
                    ages.used(*last, now);
                    *last = now;
                }
            }
        }
        (kept, kept_often)
    }

    #[test]
    fn a_cache_keeps_what_has_room_and_what_is_used_often() {
        for (lines, all) in [(500, true), (800, true), (1200, false), (5000, false)] {
            let (kept, often) = kept(&mut Ages::new(1000 * 64, 64), lines, 10);
            assert_eq!(kept, if all { lines } else { 0 }, "of {lines}");
            assert_eq!(often, lines);
        }
    }
}
