//! A hash table with a mutex for each bucket: Shore-MT's "bpool1" (§7.2). A thread that looks for a hot page takes its
//! mutex each time.

use foreshore_base::{FrameIndex, PageId};
use foreshore_env::sync::Mutex;

use super::chains::{Chains, Head};

#[derive(Debug)]
pub(in crate::pool) struct Bucketed {
    /// Each guards its chain.
    heads: Box<[Mutex<Head>]>,
    chains: Chains,
}

impl Bucketed {
    pub(in crate::pool) fn new(frames: usize) -> Bucketed {
        let heads = (0..Chains::buckets(frames)).map(|_| Mutex::new(0)).collect();
        Bucketed { heads, chains: Chains::new(frames) }
    }

    fn head(&self, page: PageId) -> &Mutex<Head> {
        &self.heads[self.chains.bucket(page)]
    }

    pub(in crate::pool) fn get(&self, page: PageId) -> Option<FrameIndex> {
        self.chains.find(*self.head(page).lock(), page)
    }

    pub(in crate::pool) fn insert(&self, page: PageId, frame: FrameIndex) -> bool {
        self.chains.insert(&mut self.head(page).lock(), page, frame)
    }

    pub(in crate::pool) fn remove(&self, page: PageId) {
        self.chains.remove(&mut self.head(page).lock(), page);
    }
}
