//! Which machine is meant, how far its sockets are from each other, and machines that are a little different.

use super::{PROFILES, Profile};

impl Profile {
    /// The machine of this name.
    pub fn named(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The names of all machines.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PROFILES.iter().map(|profile| profile.name)
    }

    /// How many cores the machine has. A simulation may have more: they are further sockets, up to sixteen.
    pub fn cores(&self) -> usize {
        self.sockets * self.cores_per_socket
    }

    /// The cluster of a core, of those of its socket, the last of which may be smaller than the others.
    pub(in crate::sim) fn cluster_of(&self, core: usize) -> usize {
        core % self.cores_per_socket / self.cores_per_cluster
    }

    /// The distance of cores in two sockets.
    pub(in crate::sim) fn socket_distance(&self, a: usize, b: usize) -> usize {
        match (a ^ b).count_ones() {
            0 => 0,
            1 => 2,
            _ if self.cube => 3,
            _ => 2,
        }
    }

    /// Whether some of so many cores are remote from each other, so that [`Profile::with_remote_percent`] changes
    /// something.
    pub fn has_remote(&self, cores: usize) -> bool {
        cores > self.cores_per_cluster
    }

    /// The same machine with everything beyond the own socket at `percent` of its cost, and all that is beyond the own
    /// cluster where a socket has several, if that is no less than within: for bands of sensitivity.
    pub fn with_remote_percent(mut self, percent: u64) -> Profile {
        for table in [&mut self.load_modified, &mut self.load_shared, &mut self.own, &mut self.memory] {
            for cycles in &mut table[2..] {
                *cycles = *cycles * percent / 100;
            }
            if self.cores_per_cluster < self.cores_per_socket {
                table[1] = (table[1] * percent / 100).max(table[0]);
            }
        }
        self
    }

    /// The same machine with another retention.
    pub fn with_retention_percent(mut self, percent: u64) -> Profile {
        self.retention_percent = percent;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Remote costs were those of other sockets alone: on a machine of one socket the variants of `--bands` were the
    /// same machine.
    #[test]
    fn other_clusters_are_remote() {
        let modified = |name: &str, percent| {
            Profile::named(name).unwrap().clone().with_remote_percent(percent).load_modified
        };
        assert_eq!([50, 150].map(|percent| modified("mesh1024", percent)[1]), [55, 165]);
        // No less than within the cluster.
        assert_eq!([50, 150].map(|percent| modified("niagara32", percent)[1]), [24, 36]);
        assert_eq!(
            [50, 150].map(|percent| modified("westmere8x10", percent)),
            [[109, 109, 144, 200], [109, 109, 433, 600]]
        );
        let mesh = Profile::named("mesh1024").unwrap();
        assert!(mesh.has_remote(5) && !mesh.has_remote(4));
    }
}
