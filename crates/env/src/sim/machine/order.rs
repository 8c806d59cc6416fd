//! Which core goes next: a tree of comparisons over the keys of all cores, whose root is the smallest.

use super::MOST_CORES;

/// No key: the core has nobody to run.
pub(super) const NEVER: u64 = u64::MAX;

/// Room for the tree of the most cores, a power of two: its nodes need not be checked against a length.
const NODES: usize = 2 * MOST_CORES;

pub(super) struct Order {
    /// A complete binary tree: the children of node `n` are `2n` and `2n + 1`, the root is node 1, and the leaves, from
    /// node `leaves` on, are the cores' keys. Every other node is the smaller of its children.
    tree: Box<[u64; NODES]>,
    leaves: usize,
}

impl Order {
    pub(super) fn new(cores: usize) -> Order {
        Order { tree: Box::new([NEVER; NODES]), leaves: cores.next_power_of_two() }
    }

    /// The smallest key, or [`NEVER`].
    #[inline]
    pub(super) fn first(&self) -> u64 {
        self.tree[1]
    }

    /// The smallest key of the others, or [`NEVER`].
    #[inline]
    pub(super) fn first_but(&self, core: usize) -> u64 {
        let mut node = self.leaves + core;
        let mut first = NEVER;
        while node > 1 {
            first = first.min(self.tree[(node ^ 1) % NODES]);
            node /= 2;
        }
        first
    }

    /// The core has this key from here on. All the way up, even where nothing changes: whether something does cannot be
    /// foretold, and the other children are looked up meanwhile.
    #[inline]
    pub(super) fn set(&mut self, core: usize, key: u64) {
        let mut node = self.leaves + core;
        let mut smallest = key;
        self.tree[node % NODES] = smallest;
        while node > 1 {
            smallest = smallest.min(self.tree[(node ^ 1) % NODES]);
            node /= 2;
            self.tree[node % NODES] = smallest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_key_is_first() {
        for cores in [1, 3, 80] {
            let mut order = Order::new(cores);
            assert_eq!(order.first(), NEVER);
            let mut keys = vec![NEVER; cores];
            let mut random = crate::random::Xorshift::new(7);
            for _ in 0..1000 {
                let core = random.below(cores as u64) as usize;
                keys[core] = if random.below(3) == 0 { NEVER } else { random.below(1000) };
                order.set(core, keys[core]);
                assert_eq!(order.first(), *keys.iter().min().unwrap());
                let others = keys.iter().enumerate().filter(|(other, _)| *other != core);
                assert_eq!(order.first_but(core), others.map(|(_, key)| *key).min().unwrap_or(NEVER));
            }
        }
    }
}
