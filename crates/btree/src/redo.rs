//! Redo: repeating history, page by page. Each page of a record is compared with its own page LSN.

use foreshore_base::{Lsn, PageId, Result, SlotIndex, TableId};
use foreshore_pages::{PageBuilder, PageFull, PageWords, RecordFlags, SlottedMut, SlottedView};
use foreshore_wal::RecordHeader;

use crate::{
    append,
    drop::Link,
    env::TreeEnv,
    grow::grown_root,
    image::{self, Image, child_value, misfit},
    node::{RETIRED, damaged},
    purge,
    record::{self, Change, Reader, malformed},
    relocate,
};

/// Applies a record of a tree (kinds 16 to 63) to the pages that do not show it yet.
pub fn redo(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Result<()> {
    let decoded = match header.kind {
        record::INSERT | record::UPDATE | record::PATCH | record::DELETE => redo_change(env, header, payload),
        record::APPEND => redo_append(env, header, payload),
        record::BURY | record::RESTORE | record::UNPATCH => redo_compensation(env, header, payload),
        record::REVIVE | record::INSERT_AGAIN | record::NOTHING => redo_compensation(env, header, payload),
        record::CREATE => redo_create(env, header, payload),
        record::SPLIT => redo_split(env, header, payload),
        record::ADOPT => redo_adopt(env, header, payload),
        record::GROW => redo_grow(env, header, payload),
        record::SHRINK => redo_shrink(env, header, payload),
        record::MERGE => redo_merge(env, header, payload),
        record::PURGE => redo_purge(env, header, payload),
        record::REAP => redo_reap(env, header, payload),
        record::MOVE => redo_move(env, header, payload),
        record::MOVE_ROOT => redo_move_root(env, header, payload),
        _ => None,
    };
    decoded.unwrap_or_else(|| Err(malformed(header)))
}

/// What a change makes of a record.
enum Effect<'p> {
    Insert(&'p [u8], RecordFlags),
    /// Whether what is left of a longer value becomes slack is said last.
    Replace(&'p [u8], RecordFlags, bool),
    Patch(usize, &'p [u8]),
    /// The record and so many slots behind it.
    Bury(u16),
}

fn live(overflow: bool) -> RecordFlags {
    RecordFlags { ghost: false, overflow }
}

fn redo_change(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let change = Change::parse(payload)?;
    let flags = live(change.flags & record::NEW_OVERFLOW != 0);
    let keeps_slack = change.flags & record::KEEPS_SLACK != 0;
    let effect = match header.kind {
        record::INSERT if change.flags & record::ON_GHOST == 0 => Effect::Insert(change.data, flags),
        record::INSERT => Effect::Replace(change.data, flags, keeps_slack),
        record::UPDATE => Effect::Replace(change.update_values()?.1, flags, keeps_slack),
        record::PATCH => Effect::Patch(usize::from(change.number), change.patch_bytes()?.1),
        _ => Effect::Bury(0),
    };
    Some(apply(env, header, &change, &effect))
}

fn redo_append(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let change = Change::parse(payload)?;
    let records = append::records(&change)?;
    Some(env.pool.redo(change.page, header.lsn, |words| {
        let mut page = SlottedMut::new(words);
        let view = page.view();
        let at_the_end = change.slot.0 == view.slot_count() && view.find(records[0].key) == Err(change.slot);
        if view.table() != change.table || !at_the_end {
            return Err(append::misplaced(change.page));
        }
        append::apply(&mut page, &records).map_err(misfit(change.page))
    }))
}

fn redo_compensation(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let change = Change::parse_compensation(payload)?;
    let flags = live(change.flags & record::NEW_OVERFLOW != 0);
    let effect = match header.kind {
        record::BURY => Effect::Bury(change.number),
        record::UNPATCH => Effect::Patch(usize::from(change.number), change.data),
        record::RESTORE | record::REVIVE => {
            Effect::Replace(change.data, flags, change.flags & record::KEEPS_SLACK != 0)
        }
        record::INSERT_AGAIN => Effect::Insert(change.data, flags),
        _ => return Some(Ok(())),
    };
    Some(apply(env, header, &change, &effect))
}

fn apply(env: &TreeEnv, header: &RecordHeader, change: &Change<'_>, effect: &Effect<'_>) -> Result<()> {
    env.pool.redo(change.page, header.lsn, |words| {
        let mut page = SlottedMut::new(words);
        let view = page.view();
        // The page is as it was when the change was made: this is the record, or where it belongs.
        let place = match effect {
            Effect::Insert(..) => view.find(change.key).err(),
            _ => view.find(change.key).ok(),
        };
        let has_all = match *effect {
            Effect::Bury(further) => further < view.slot_count().saturating_sub(change.slot.0),
            _ => true,
        };
        if view.table() != change.table || place != Some(change.slot) || !has_all {
            return Err(damaged(
                change.page,
                format!("the change at LSN {} does not apply to it", header.lsn),
            ));
        }
        let (slot, key) = (change.slot, change.key);
        let done = match *effect {
            Effect::Insert(value, flags) => page.insert(slot, key, value, flags),
            Effect::Replace(value, flags, keeps_slack) => {
                let done = page.replace_value(slot, value, flags);
                if done.is_ok() && !keeps_slack {
                    page.trim(slot);
                }
                done
            }
            Effect::Patch(offset, bytes) => {
                page.patch_value(slot, offset, bytes);
                Ok(())
            }
            Effect::Bury(further) => {
                page.bury(slot, further);
                Ok(())
            }
        };
        done.map_err(misfit(change.page))
    })
}

/// The beginning of a structure change: table and pages.
fn pages<'p, const N: usize>(payload: &'p [u8]) -> Option<(TableId, [PageId; N], Reader<'p>)> {
    let mut reader = Reader(payload);
    let table = TableId(reader.u32()?);
    let mut pages = [PageId::NONE; N];
    for page in &mut pages {
        *page = reader.page()?;
    }
    Some((table, pages, reader))
}

/// Puts what was built into a page.
fn put(page: PageId, built: Result<PageBuilder, PageFull>, words: &PageWords) -> Result<()> {
    built.map_err(misfit(page))?.store(words);
    Ok(())
}

fn retire(words: &PageWords) -> Result<()> {
    SlottedMut::new(words).set_node_flags(RETIRED);
    Ok(())
}

/// Runs the parts of a record in turn.
fn all<const N: usize>(parts: [&mut dyn FnMut() -> Result<()>; N]) -> Option<Result<()>> {
    Some(parts.into_iter().try_for_each(|part| part()))
}

fn redo_create(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let (table, root) = record::created_root(header.kind, payload)?;
    let lsn = header.lsn;
    all([&mut || env.pool.redo_allocate(root, lsn), &mut || {
        env.pool.redo_format(root, lsn, |words| {
            put(root, PageBuilder::new(&foreshore_pages::NodeHeader { table, ..Default::default() }), words)
        })
    }])
}

fn redo_split(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let (table, [page, foster], mut reader) = pages(payload)?;
    let kept = reader.u16()?;
    let node = Image::parse(table, reader.0)?;
    let lsn = header.lsn;
    all([
        &mut || env.pool.redo_allocate(foster, lsn),
        &mut || env.pool.redo_format(foster, lsn, |words| put(foster, node.build(), words)),
        &mut || {
            env.pool.redo(page, lsn, |words| {
                image::cut_left(&mut SlottedMut::new(words), kept, node.header.low, foster)
                    .map_err(misfit(page))
            })
        },
    ])
}

fn redo_adopt(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let (_, [parent, child, foster], mut reader) = pages(payload)?;
    let (slot, separator) = (SlotIndex(reader.u16()?), reader.0);
    let lsn = header.lsn;
    all([
        &mut || {
            env.pool.redo(parent, lsn, |words| {
                let mut page = SlottedMut::new(words);
                if page.view().find(separator) != Err(slot) {
                    return Err(damaged(parent, format!("the adoption at LSN {lsn} does not apply to it")));
                }
                page.insert(slot, separator, &child_value(foster), RecordFlags::default())
                    .map_err(misfit(parent))
            })
        },
        &mut || {
            env.pool.redo(child, lsn, |words| {
                SlottedMut::new(words).set_foster(PageId::NONE);
                Ok(())
            })
        },
    ])
}

fn redo_grow(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let (table, [root, child], reader) = pages(payload)?;
    let node = Image::parse(table, reader.0)?;
    let level = node.header.level.checked_add(1)?;
    let lsn = header.lsn;
    all([
        &mut || env.pool.redo_allocate(child, lsn),
        &mut || env.pool.redo_format(child, lsn, |words| put(child, node.build(), words)),
        &mut || {
            let grown = || PageBuilder::new(&grown_root(table, level, child));
            env.pool.redo(root, lsn, |words| put(root, grown(), words))
        },
    ])
}

fn redo_shrink(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let (table, [root, child], reader) = pages(payload)?;
    let node = Image::parse(table, reader.0)?;
    let lsn = header.lsn;
    all([
        &mut || env.pool.redo(root, lsn, |words| put(root, node.build(), words)),
        &mut || env.pool.redo(child, lsn, retire),
        &mut || env.pool.redo_free(child, lsn),
    ])
}

fn redo_merge(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let (table, [parent, left, right], mut reader) = pages(payload)?;
    let slot = SlotIndex(reader.u16()?);
    let node = Image::parse(table, reader.0)?;
    let lsn = header.lsn;
    all([
        &mut || {
            env.pool.redo(left, lsn, |words| put(left, image::joined(SlottedView::new(words), &node), words))
        },
        &mut || {
            env.pool.redo(parent, lsn, |words| {
                let mut page = SlottedMut::new(words);
                if page.view().child(slot) != right {
                    return Err(damaged(parent, format!("the merge at LSN {lsn} does not apply to it")));
                }
                page.remove(slot);
                Ok(())
            })
        },
        &mut || env.pool.redo(right, lsn, retire),
        &mut || env.pool.redo_free(right, lsn),
    ])
}

fn redo_purge(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let (_, [page], reader) = pages(payload)?;
    Some(env.pool.redo(page, header.lsn, |words| {
        purge::remove(&mut SlottedMut::new(words), reader.0);
        Ok(())
    }))
}

fn redo_reap(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let (_, [parent, page], mut reader) = pages(payload)?;
    let (link, lsn) = (Link::from_code(reader.u16()?), header.lsn);
    all([
        &mut || {
            if !parent.is_some() {
                return env.pool.redo(page, lsn, retire);
            }
            env.pool.redo(parent, lsn, |words| {
                let mut words = SlottedMut::new(words);
                if !link.leads_to(words.view(), page) {
                    return Err(damaged(parent, format!("the freeing at LSN {lsn} does not apply to it")));
                }
                link.cut(&mut words);
                Ok(())
            })
        },
        &mut || env.pool.redo_free(page, lsn),
    ])
}

fn redo_move(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let (table, [parent, from, to], mut reader) = pages(payload)?;
    let (link, lsn) = (Link::from_code(reader.u16()?), header.lsn);
    let node = Image::parse(table, reader.0)?;
    let mut point = || {
        env.pool.redo(parent, lsn, |words| {
            let mut words = SlottedMut::new(words);
            if !link.leads_to(words.view(), from) {
                return Err(damaged(parent, format!("the move at LSN {lsn} does not apply to it")));
            }
            link.point_to(&mut words, to);
            Ok(())
        })
    };
    redo_moved(env, lsn, (from, to), &node, &mut point)
}

fn redo_move_root(env: &TreeEnv, header: &RecordHeader, payload: &[u8]) -> Option<Result<()>> {
    let (table, [rows, from, to], mut reader) = pages(payload)?;
    let (slot, offset, lsn) = (SlotIndex(reader.u16()?), usize::from(reader.u16()?), header.lsn);
    let node = Image::parse(table, reader.0)?;
    let mut point = || {
        env.pool.redo(rows, lsn, |words| {
            let mut words = SlottedMut::new(words);
            if slot.0 >= words.view().slot_count() || !relocate::names(words.view(), slot, offset, from) {
                return Err(damaged(rows, format!("the move at LSN {lsn} does not apply to it")));
            }
            words.patch_value(slot, offset, &to.0.to_le_bytes());
            Ok(())
        })
    };
    redo_moved(env, lsn, (from, to), &node, &mut point)
}

/// What both kinds of moves have in common; `point` changes what leads to the page.
fn redo_moved(
    env: &TreeEnv,
    lsn: Lsn,
    (from, to): (PageId, PageId),
    node: &Image<'_>,
    point: &mut dyn FnMut() -> Result<()>,
) -> Option<Result<()>> {
    all([
        &mut || env.pool.redo_move(from, to, lsn),
        &mut || env.pool.redo_format(to, lsn, |words| put(to, node.build(), words)),
        point,
        &mut || env.pool.redo(from, lsn, retire),
    ])
}
