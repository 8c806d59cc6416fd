//! The gallery: lists of pages in transit (Shore-MT §6.2.3, §7.6). Every miss goes through the list of its page, to see
//! whether the page is on its way; so does the eviction of a dirty page.
//!
//! From Johnson et al. 2009, with one list ("a single linked list") or 128 ("128 in our case"). Departures: a page that
//! is being written is in its list and in its frame, where it can be read; the lists have room for more than one page.

use foreshore_base::PageId;
use foreshore_env::{
    CachePadded,
    sync::{Condvar, Mutex},
    time::{Instant, earlier},
};
use foreshore_latch::{Patience, parking::LOOK_INTERVAL};

/// The lists; a page has one by its id.
#[derive(Debug)]
pub(in crate::pool) struct Lists {
    lists: Box<[CachePadded<List>]>,
}

#[derive(Debug, Default)]
struct List {
    pages: Mutex<Vec<PageId>>,
    /// Rung when a page goes out of the list.
    left: Condvar,
}

/// A page in its list; its drop takes it out.
#[derive(Debug)]
pub(in crate::pool) struct Passage<'p> {
    list: &'p List,
    page: PageId,
}

impl Lists {
    pub(super) fn new(count: usize) -> Lists {
        Lists { lists: (0..count).map(|_| CachePadded::default()).collect() }
    }

    fn list(&self, page: PageId) -> &List {
        &self.lists[page.0 as usize % self.lists.len()]
    }

    /// Enters the page. If it is in the list, waits until it is gone, or until `limit`, or until the caller's patience
    /// ends, and does not enter it.
    pub(super) fn enter(&self, page: PageId, limit: Instant, patience: Patience<'_>) -> Option<Passage<'_>> {
        let list = self.list(page);
        let mut pages = list.pages.lock();
        if !pages.contains(&page) {
            pages.push(page);
            return Some(Passage { list, page });
        }
        let until = earlier(limit, patience.deadline);
        while pages.contains(&page) && !patience.is_cancelled() {
            let now = Instant::now();
            if now >= until {
                break;
            }
            let look = if patience.cancelled.is_some() { until.min(now + LOOK_INTERVAL) } else { until };
            pages = list.left.wait_until(pages, look);
        }
        None
    }

    /// Enters the page unless it is in the list.
    pub(super) fn try_enter(&self, page: PageId) -> Option<Passage<'_>> {
        let list = self.list(page);
        let mut pages = list.pages.lock();
        if pages.contains(&page) {
            return None;
        }
        pages.push(page);
        Some(Passage { list, page })
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.list.pages.lock().retain(|page| *page != self.page);
        self.list.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use foreshore_env::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
        time::Duration,
    };

    use super::*;
    use crate::testing::FAR;

    #[test]
    fn a_page_is_in_its_list_once_and_is_waited_for() {
        for count in [1, 128] {
            let begun = Instant::now();
            // A thread that comes late on a busy machine finds nobody to wait for: then once more.
            while !is_waited_for(count) {
                assert!(begun.elapsed() < FAR, "nobody waits");
            }
        }
    }

    /// Whether somebody came to the page while it was on its way.
    fn is_waited_for(count: usize) -> bool {
        let lists = Lists::new(count);
        let (page, gone) = (PageId(7), AtomicBool::new(false));
        let far = Instant::now() + FAR;
        let enter = |page, limit| lists.enter(page, limit, Patience::ENDLESS);
        let first = enter(page, far).unwrap();
        assert!(lists.try_enter(page).is_none());
        assert!(enter(PageId(8), far).is_some() && enter(PageId(7 + 128), far).is_some());
        // Nobody waits for ever, and a thread that gave up left nothing behind.
        assert!(enter(page, Instant::now() + Duration::from_millis(20)).is_none());
        let waited = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let waited = enter(page, far).is_none();
                assert!(gone.load(Ordering::SeqCst), "it was still on its way");
                waited
            });
            thread::sleep(Duration::from_millis(20));
            gone.store(true, Ordering::SeqCst);
            drop(first);
            waiter.join().unwrap()
        });
        assert!(enter(page, far).is_some());
        assert!(lists.lists.iter().all(|list| list.pages.lock().is_empty()));
        waited
    }
}
