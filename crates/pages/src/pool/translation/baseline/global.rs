//! A hash table under one mutex: Shore before it was Shore-MT (§6.2.3), "a crippling bottleneck for more than about
//! four threads". The chains are those of [`Bucketed`](super::Bucketed), so that a comparison shows the mutex and
//! nothing else.

use foreshore_base::{FrameIndex, PageId};
use foreshore_env::sync::Mutex;

use super::chains::{Chains, Head};

#[derive(Debug)]
pub(in crate::pool) struct GlobalMutex {
    heads: Mutex<Box<[Head]>>,
    chains: Chains,
}

impl GlobalMutex {
    pub(in crate::pool) fn new(frames: usize) -> GlobalMutex {
        let heads = (0..Chains::buckets(frames)).map(|_| 0).collect();
        GlobalMutex { heads: Mutex::new(heads), chains: Chains::new(frames) }
    }

    pub(in crate::pool) fn get(&self, page: PageId) -> Option<FrameIndex> {
        let heads = self.heads.lock();
        self.chains.find(heads[self.chains.bucket(page)], page)
    }

    pub(in crate::pool) fn insert(&self, page: PageId, frame: FrameIndex) -> bool {
        let mut heads = self.heads.lock();
        self.chains.insert(&mut heads[self.chains.bucket(page)], page, frame)
    }

    pub(in crate::pool) fn remove(&self, page: PageId) {
        let mut heads = self.heads.lock();
        self.chains.remove(&mut heads[self.chains.bucket(page)], page);
    }
}
