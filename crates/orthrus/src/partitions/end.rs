//! How the threads end, and who has them.

use super::Partitions;

impl Partitions {
    /// Whether this process is a fork of the one that has started the threads: nothing that is given to them ends here.
    pub fn is_forked(&self) -> bool {
        !self.owner.is_here()
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        // In a fork it would wait for a lock that one of them may have had.
        if !self.is_forked() {
            self.stop();
        }
    }
}
