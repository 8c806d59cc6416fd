//! Who is near whom.

use super::{DISTANCES, Directory, LineNumber};
use crate::sim::kernel::Touch;

impl Directory {
    /// The distance of two cores: an index into the tables.
    pub(super) fn distance(&self, a: usize, b: usize) -> usize {
        let (first, second) = (self.sockets[a], self.sockets[b]);
        if first != second {
            return self.profile.socket_distance(usize::from(first), usize::from(second));
        }
        usize::from(self.clusters[a] != self.clusters[b])
    }

    /// The distance that counts for a shared line: of the nearest copy for a load, of the farthest for a change.
    pub(super) fn reach(&self, number: LineNumber, core: usize, touch: Touch) -> usize {
        let line = &self.table.lines[number];
        if touch != Touch::Load && line.sharers == 1 && self.table.shares(number, core) {
            return 0;
        }
        let within = &self.within[usize::from(self.sockets[core])];
        // The first distance within which there is a sharer, or all are.
        let distance = if touch == Touch::Load {
            within.iter().position(|&near| line.sockets & near != 0)
        } else {
            within.iter().position(|&near| line.sockets & !near == 0)
        };
        // Inside of a socket the cluster counts.
        let clusters = self.profile.cores_per_cluster < self.profile.cores_per_socket;
        match distance.unwrap_or(DISTANCES - 1) {
            0 if clusters && !self.in_cluster(number, core, touch) => 1,
            distance => distance,
        }
    }

    /// The core to whose caches this hardware thread belongs: the number of the core's first.
    #[inline]
    pub(super) fn cache_of(&self, core: usize) -> usize {
        match self.profile.threads_per_core {
            1 => core,
            threads => core - core % threads,
        }
    }

    /// Whether, of a socket's other cores that have the line, one is of this core's cluster; for a change, all are.
    fn in_cluster(&self, number: LineNumber, core: usize, touch: Touch) -> bool {
        let socket = self.cores_of(usize::from(self.sockets[core]));
        let first = socket.start + usize::from(self.clusters[core]) * self.profile.cores_per_cluster;
        let end = (first + self.profile.cores_per_cluster).min(socket.end);
        if touch == Touch::Load {
            return self.table.shares_among(number, first..end, core);
        }
        ![socket.start..first, end..socket.end]
            .into_iter()
            .any(|cores| self.table.shares_among(number, cores, core))
    }

    /// The cores of a socket.
    pub(super) fn cores_of(&self, socket: usize) -> std::ops::Range<usize> {
        let first = socket * self.profile.cores_per_socket;
        first..(first + self.profile.cores_per_socket).min(self.cores)
    }
}
