//! The contract of the seam, over every way to find a page.

use std::collections::BTreeMap;

use foreshore_base::{FrameIndex, PageId};
use foreshore_env::{
    random::Xorshift,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use super::{Translation, TranslationKind};

fn tables(frames: usize) -> impl Iterator<Item = (TranslationKind, Translation)> {
    TranslationKind::ALL.into_iter().map(move |kind| (kind, Translation::new(kind, frames)))
}

#[test]
fn a_page_is_entered_once() {
    for (kind, table) in tables(8) {
        for page in [1, 1 << 17, u32::MAX].map(PageId) {
            assert_eq!(table.get(page), None, "{kind:?}");
            assert!(table.insert(page, FrameIndex(7)), "{kind:?}");
            assert!(!table.insert(page, FrameIndex(6)), "{kind:?}");
            assert_eq!(table.get(page), Some(FrameIndex(7)), "{kind:?}");
            table.remove(page);
            assert_eq!(table.get(page), None, "{kind:?}");
        }
    }
}

/// One thread: the table is a map, in a full pool too, whichever pages come and go.
#[test]
fn a_table_is_a_map() {
    const FRAMES: u32 = 64;
    for (kind, table) in tables(FRAMES as usize) {
        let (mut random, mut model) = (Xorshift::new(11), BTreeMap::new());
        let mut free: Vec<_> = (0..FRAMES).map(FrameIndex).collect();
        for step in 0..20_000 {
            let page = PageId(random.below(200) as u32 * 77 + 1);
            assert_eq!(table.get(page), model.get(&page).copied(), "{kind:?}, step {step}");
            match free.pop() {
                Some(frame) if random.below(8) > 0 => {
                    let fresh = !model.contains_key(&page);
                    assert_eq!(table.insert(page, frame), fresh, "{kind:?}, step {step}");
                    if fresh {
                        model.insert(page, frame);
                    } else {
                        free.push(frame);
                    }
                }
                frame => {
                    free.extend(frame);
                    let nth = random.below(model.len().max(1) as u64) as usize;
                    if let Some((page, frame)) = model.iter().nth(nth).map(|(page, frame)| (*page, *frame)) {
                        table.remove(page);
                        model.remove(&page);
                        free.push(frame);
                    }
                }
            }
        }
        for page in (0..200).map(|number| PageId(number * 77 + 1)) {
            assert_eq!(table.get(page), model.get(&page).copied(), "{kind:?}, at the end");
        }
    }
}

/// Threads enter and take out the same pages, as a pool does: by frame. Of those who enter a page at once one succeeds,
/// and who looks finds a frame that holds the page, or held it a moment ago, or none. The table is full most of the
/// time, so cuckoos move.
#[test]
fn a_page_has_one_frame_whoever_enters_it() {
    const THREADS: u64 = 4;
    const FRAMES: u64 = 32;
    const PAGES: u64 = 48;
    for (kind, table) in tables(FRAMES as usize) {
        // Which frame has which page: the truth, written between entering and taking out.
        let owners: Vec<AtomicU64> = (0..=PAGES).map(|_| AtomicU64::new(0)).collect();
        let free = Mutex::new((0..FRAMES as u32).map(FrameIndex).collect::<Vec<_>>());
        let (mine, ended) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Xorshift::new(99);
                while !ended.load(Ordering::Relaxed) {
                    let page = PageId(random.below(PAGES) as u32 + 1);
                    if let Some(frame) = table.get(page) {
                        assert!(u64::from(frame.0) < FRAMES, "{kind:?}: frame {frame}");
                    }
                }
            });
            let workers: Vec<_> = (0..THREADS)
                .map(|seed| {
                    let (table, owners, free, mine) = (&table, &owners, &free, &mine);
                    scope.spawn(move || {
                        let (mut random, mut held) = (Xorshift::new(seed + 1), Vec::new());
                        for step in 0..4000 {
                            let taken = if random.below(3) > 0 { free.lock().pop() } else { None };
                            if let Some(frame) = taken {
                                let page = PageId(random.below(PAGES) as u32 + 1);
                                if table.insert(page, frame) {
                                    let owner = &owners[page.0 as usize];
                                    let before = owner.swap(u64::from(frame.0) + 1, Ordering::SeqCst);
                                    assert_eq!(before, 0, "{kind:?}: page {page} was entered twice");
                                    held.push((page, frame));
                                } else {
                                    free.lock().push(frame);
                                }
                            } else if !held.is_empty() {
                                let nth = random.below(held.len() as u64) as usize;
                                let (page, frame) = held.swap_remove(nth);
                                // Nobody else takes it out, and whoever moves it does not hide it from `insert`.
                                assert!(!table.insert(page, frame), "{kind:?}: page {page}, step {step}");
                                owners[page.0 as usize].store(0, Ordering::SeqCst);
                                table.remove(page);
                                free.lock().push(frame);
                            }
                        }
                        mine.lock().extend(held);
                    })
                })
                .collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            ended.store(true, Ordering::Relaxed);
        });
        // At rest, `get` is exact.
        let mine: BTreeMap<_, _> = mine.into_inner().into_iter().collect();
        for page in (1..=PAGES as u32).map(PageId) {
            assert_eq!(table.get(page), mine.get(&page).copied(), "{kind:?}: page {page}");
        }
    }
}
