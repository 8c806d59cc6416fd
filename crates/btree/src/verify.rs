//! Verification: a walk over the whole tree that believes nothing (BTREE-2).

use foreshore_base::{
    PageId, PageSet, Result, SlotIndex, StorageError, limits::MAX_TREE_LEVELS, limits::PAGE_BYTES,
};
use foreshore_pages::{NodeHeader, PAGE_HEADER_BYTES, PageBuffer, PageWords, SlottedView};

use crate::{
    bytes::SmallValue,
    node::{self, damaged, is_node},
    overflow::Reference,
    tree::Tree,
};

/// Where the header's last word is, of which nothing but the first two bytes is used.
const SPARE: usize = PAGE_HEADER_BYTES - size_of::<u64>();

/// What the verification of one or more trees has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Trees.
    pub trees: u64,
    /// Pages of trees.
    pub pages: u64,
    /// Pages that are no leaves.
    pub inner_pages: u64,
    /// Pages that no parent has adopted yet.
    pub foster_children: u64,
    /// Levels of the highest tree.
    pub levels: u64,
    /// Records, without ghosts.
    pub records: u64,
    /// Deleted records that are still there.
    pub ghosts: u64,
    /// Records whose value is in the overflow table.
    pub long_values: u64,
    /// The sum of [`long_value_digest`](crate::long_value_digest) of these values, wrapping.
    pub long_value_digests: u64,
    /// Bytes in use: headers, fences, slots and records.
    pub bytes_used: u64,
    /// Bytes that records could still take.
    pub bytes_free: u64,
}

/// A node still to be looked at, and what is known of it from where the pointer to it was.
struct Expected {
    page: PageId,
    level: u8,
    low: Option<Vec<u8>>,
    /// Where the chain of foster children that this node heads ends.
    end: Option<Vec<u8>>,
    foster: bool,
}

/// Walks the tree, calls `visit` for each of its pages that is sound, with its content, and checks
/// - of each page: checksum and page id (the pool does), table, level, spare bits, heap, order of keys, fences, prefix;
/// - of each pointer: that what it leads to has the fences that the separators around the pointer say, on both sides,
///   through foster chains too; that levels go down by one; that no page is met twice.
///
/// `damage` is told of each page that is damaged; the walk goes on beside it. Its error ends the walk, and so does that
/// of `visit`, and any other than damage.
pub(crate) fn verify(
    tree: &Tree<'_>,
    report: &mut VerifyReport,
    visit: &mut dyn FnMut(PageId, &PageWords) -> Result<()>,
    damage: &mut dyn FnMut(StorageError) -> Result<()>,
) -> Result<()> {
    let root_level = match tree.env.pool.shared(tree.root) {
        Ok(root) => root.view().level(),
        Err(error @ StorageError::Corrupted { .. }) => return damage(error),
        Err(error) => return Err(error),
    };
    if usize::from(root_level) >= MAX_TREE_LEVELS {
        return damage(damaged(tree.root, format!("a tree has no level {root_level}")));
    }
    report.trees += 1;
    report.levels = report.levels.max(u64::from(root_level) + 1);
    let mut met = PageSet::default();
    let mut work = vec![Expected { page: tree.root, level: root_level, low: None, end: None, foster: false }];
    let words = PageWords::default();
    while let Some(expected) = work.pop() {
        match check_page(tree, expected, &words, &mut met, &mut work) {
            Ok(expected) => {
                count(SlottedView::new(&words), &expected, report);
                visit(expected.page, &words)?;
            }
            Err(error @ StorageError::Corrupted { .. }) => damage(error)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Checks one page, and adds what it points to.
fn check_page(
    tree: &Tree<'_>,
    expected: Expected,
    words: &PageWords,
    met: &mut PageSet,
    work: &mut Vec<Expected>,
) -> Result<Expected> {
    let page = expected.page;
    if !page.is_some() || met.contains(page) {
        return Err(damaged(page, "two pointers lead to it, or none does"));
    }
    copy(tree, page, words)?;
    // Only what the file has: pointers to nowhere take no memory.
    met.insert(page);
    let view = SlottedView::new(words);
    check_node(tree, view, &expected)?;
    follow(view, &expected, work);
    Ok(expected)
}

fn copy(tree: &Tree<'_>, page: PageId, words: &PageWords) -> Result<()> {
    let mut buffer: Box<PageBuffer> = PageBuffer::boxed();
    tree.env.pool.shared(page)?.words().store_to(&mut buffer.0);
    words.load_from(&buffer.0);
    Ok(())
}

fn check_node(tree: &Tree<'_>, view: SlottedView<'_>, expected: &Expected) -> Result<()> {
    let Expected { page, level, .. } = *expected;
    let wrong = |detail: String| Err(damaged(page, detail));
    if !is_node(view, tree.table, level) {
        return wrong(format!("it should be a node of table {} at level {level}", tree.table));
    }
    if view.flags() != 0 || view.words().u64(SPARE) >> u16::BITS != 0 {
        return wrong("its header says what this version does not know".to_owned());
    }
    node::inspect(view)?;
    let (low, high) = (node::low_fence(view), node::high_key(view));
    if low != expected.low {
        return wrong("its low fence is not the separator that leads to it".to_owned());
    }
    let header = NodeHeader { low: low.as_deref(), high: high.as_deref(), ..NodeHeader::default() };
    if view.prefix_len() > header.prefix_len() {
        return wrong(format!("its prefix of {} bytes is not common to its fences", view.prefix_len()));
    }
    let foster = view.foster_child().is_some();
    if !foster && high != expected.end {
        return wrong("its high fence is not the next separator".to_owned());
    }
    if foster && (high.is_none() || high <= low || (expected.end.is_some() && high >= expected.end)) {
        return wrong("its foster child lies outside its fences".to_owned());
    }
    if page == tree.root && foster {
        return wrong("a root has no foster child".to_owned());
    }
    if (level == 0) == view.leftmost_child().is_some() {
        return wrong("only inner nodes have children".to_owned());
    }
    for slot in view.slot_indices() {
        let flags = view.slot(slot).flags();
        if level > 0 && (flags.ghost || flags.overflow || !view.child(slot).is_some()) {
            return wrong(format!("separator {} names no child", slot.0));
        }
        if level == 0 && flags.overflow && !flags.ghost && reference(view, slot).is_none() {
            return wrong(format!("record {} refers to no long value", slot.0));
        }
    }
    Ok(())
}

/// Where a record of a leaf says that its long value is; `None` if it says nothing of the kind.
fn reference(view: SlottedView<'_>, slot: SlotIndex) -> Option<Reference> {
    let mut value = SmallValue::new();
    node::copy_value(view, slot, &mut value);
    Reference::parse(value.as_slice())
}

fn count(view: SlottedView<'_>, expected: &Expected, report: &mut VerifyReport) {
    report.pages += 1;
    report.inner_pages += u64::from(expected.level > 0);
    report.foster_children += u64::from(expected.foster);
    let free = view.free_bytes();
    report.bytes_free += free as u64;
    report.bytes_used += (PAGE_BYTES - free).max(PAGE_HEADER_BYTES) as u64;
    if expected.level == 0 {
        for slot in view.slot_indices() {
            let flags = view.slot(slot).flags();
            report.ghosts += u64::from(flags.ghost);
            report.records += u64::from(!flags.ghost);
            if let (true, Some(reference)) = (flags.overflow && !flags.ghost, reference(view, slot)) {
                report.long_values += 1;
                report.long_value_digests = report.long_value_digests.wrapping_add(reference.digest());
            }
        }
    }
}

/// Adds what the node points to.
fn follow(view: SlottedView<'_>, expected: &Expected, work: &mut Vec<Expected>) {
    let high = node::high_key(view);
    let level = expected.level;
    if view.foster_child().is_some() {
        let (low, end) = (high.clone(), expected.end.clone());
        work.push(Expected { page: view.foster_child(), level, low, end, foster: true });
    }
    if level == 0 {
        return;
    }
    let first = work.len();
    let mut child = (view.leftmost_child(), expected.low.clone());
    for slot in view.slot_indices() {
        let separator = node::key_of(view, slot);
        work.push(Expected {
            page: child.0,
            level: level - 1,
            low: child.1,
            end: Some(separator.clone()),
            foster: false,
        });
        child = (view.child(slot), Some(separator));
    }
    work.push(Expected { page: child.0, level: level - 1, low: child.1, end: high, foster: false });
    // The last one is the next: the system reads ahead in the order in which most trees lie in their files.
    work[first..].reverse();
}
