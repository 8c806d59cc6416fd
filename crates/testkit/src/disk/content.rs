//! The bytes of one file, twice: as the page cache shows them and as the platter holds them.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use foreshore_env::random::Xorshift;

use super::CrashMode;

/// What the device writes as a whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;
/// The unit of sparse storage, and of the space budget.
pub(super) const BLOCK_BYTES: usize = 4096;
/// How many superseded versions of an un-synced sector are remembered: the kernel may have written any of them.
const VERSIONS_KEPT: usize = 4;

type Sector = [u8; SECTOR_BYTES];
type Block = [u8; BLOCK_BYTES];

/// Sparse bytes. Clones share blocks until one side writes.
#[derive(Clone, Debug, Default)]
struct Bytes {
    blocks: BTreeMap<u64, Arc<Block>>,
    length: u64,
}

impl Bytes {
    fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let count = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let place = offset + done as u64;
            let within = (place % BLOCK_BYTES as u64) as usize;
            let piece = (count - done).min(BLOCK_BYTES - within);
            match self.blocks.get(&(place / BLOCK_BYTES as u64)) {
                Some(block) => buffer[done..done + piece].copy_from_slice(&block[within..within + piece]),
                None => buffer[done..done + piece].fill(0),
            }
            done += piece;
        }
        count
    }

    /// Writes inside one block; the length is the caller's business.
    fn write_in_block(&mut self, bytes: &[u8], offset: u64) {
        let within = (offset % BLOCK_BYTES as u64) as usize;
        let block =
            self.blocks.entry(offset / BLOCK_BYTES as u64).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
        Arc::make_mut(block)[within..within + bytes.len()].copy_from_slice(bytes);
    }

    fn sector(&self, sector: u64) -> Sector {
        let place = sector * SECTOR_BYTES as u64;
        match self.blocks.get(&(place / BLOCK_BYTES as u64)) {
            Some(block) => {
                let within = (place % BLOCK_BYTES as u64) as usize;
                let mut content = [0; SECTOR_BYTES];
                content.copy_from_slice(&block[within..within + SECTOR_BYTES]);
                content
            }
            None => [0; SECTOR_BYTES],
        }
    }

    /// Sets the length and forgets what lies past it, so that a longer file shows zeros there.
    fn cut(&mut self, length: u64) {
        self.blocks.split_off(&length.div_ceil(BLOCK_BYTES as u64));
        let within = (length % BLOCK_BYTES as u64) as usize;
        if within > 0
            && let Some(block) = self.blocks.get_mut(&(length / BLOCK_BYTES as u64))
        {
            Arc::make_mut(block)[within..].fill(0);
        }
        self.length = length;
    }
}

/// A sector whose newest content no sync covers.
#[derive(Clone, Debug)]
struct Unsynced {
    /// The change that made it what it is, as [`Content::changes`] counts them.
    changed: u64,
    /// What it was since the last sync, each with the change that made it so.
    versions: Vec<(u64, Sector)>,
}

impl Unsynced {
    /// The changes of this sector that are known: behind any other of the same time it was the same.
    fn moments(&self) -> impl Iterator<Item = u64> {
        self.versions.iter().map(|&(made, _)| made).chain([self.changed])
    }

    /// The first change behind which it is known what the sector was: older versions may be forgotten.
    fn known_from(&self) -> u64 {
        if self.versions.len() < VERSIONS_KEPT { 0 } else { self.versions[0].0 }
    }

    /// What it was behind a change, where it is `newest` now; `None` if it had not changed since the last sync.
    fn behind(&self, moment: u64, newest: Sector) -> Option<Sector> {
        if self.changed <= moment {
            return Some(newest);
        }
        self.versions.iter().rfind(|(made, _)| *made <= moment).map(|&(_, content)| content)
    }
}

/// What a sync that has begun makes durable: nothing that is written while it lasts.
#[derive(Debug)]
pub(super) struct Pending {
    /// The changes that it covers.
    changes: u64,
    /// Each with the last of its changes.
    sectors: Vec<(u64, u64, Sector)>,
    length: u64,
}

/// One file.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    /// What reads see.
    cached: Bytes,
    /// What a crash leaves at least.
    platter: Bytes,
    /// Blocks that took space without being written since the last sync, each with the change that took it.
    reserved: Vec<(u64, u64)>,
    /// Sectors written since the last sync.
    unsynced: BTreeMap<u64, Unsynced>,
    /// Writes so far, and changes of the length and of the space.
    changes: u64,
    /// How many of them the last of the syncs covered, as they began.
    synced: u64,
    /// Sectors that a failed sync has lost, and the last change that it was to bring: another sync that has seen them
    /// before brings them no longer, unless they were changed since.
    lost: BTreeMap<u64, u64>,
}

impl Content {
    pub(super) fn length(&self) -> u64 {
        self.cached.length
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        self.cached.read(buffer, offset)
    }

    /// Blocks that take space.
    pub(super) fn blocks(&self) -> u64 {
        self.cached.blocks.len() as u64
    }

    pub(super) fn has_block(&self, block: u64) -> bool {
        self.cached.blocks.contains_key(&block)
    }

    /// The first place from `offset` on that is no zero; by the block.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let blocks = self.cached.blocks.range(offset / BLOCK_BYTES as u64..);
        let mut written = blocks.filter(|(_, block)| ***block != [0; BLOCK_BYTES]);
        written.next().map(|(block, _)| offset.max(block * BLOCK_BYTES as u64))
    }

    /// Takes space for a block, without changing what is read.
    pub(super) fn reserve_block(&mut self, block: u64) {
        self.cached.blocks.entry(block).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
        self.changes += 1;
        self.reserved.push((self.changes, block));
    }

    /// Writes into the page cache.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        self.changes += 1;
        let mut done = 0;
        while done < bytes.len() {
            let place = offset + done as u64;
            let piece = (bytes.len() - done).min(SECTOR_BYTES - (place % SECTOR_BYTES as u64) as usize);
            let sector = place / SECTOR_BYTES as u64;
            self.remember(sector);
            self.cached.write_in_block(&bytes[done..done + piece], place);
            done += piece;
        }
        self.cached.length = self.cached.length.max(offset + bytes.len() as u64);
    }

    /// Notes that the last of the changes is about to change a sector.
    fn remember(&mut self, sector: u64) {
        match self.unsynced.entry(sector) {
            Entry::Vacant(entry) => {
                entry.insert(Unsynced { changed: self.changes, versions: Vec::new() });
            }
            Entry::Occupied(entry) => {
                let Unsynced { changed, versions } = entry.into_mut();
                if versions.len() == VERSIONS_KEPT {
                    versions.remove(0);
                }
                versions.push((*changed, self.cached.sector(sector)));
                *changed = self.changes;
            }
        }
    }

    pub(super) fn set_length(&mut self, length: u64) {
        self.changes += 1;
        if length < self.cached.length {
            let first = length / SECTOR_BYTES as u64;
            if !length.is_multiple_of(SECTOR_BYTES as u64) {
                self.remember(first);
            }
            // A sector cut off and grown again holds zeros, whatever it held before.
            for sector in first + 1..self.cached.length.div_ceil(SECTOR_BYTES as u64) {
                self.remember(sector);
            }
        }
        self.cached.cut(length);
    }

    /// Everything written since the last sync gets to the platter; what a failed sync lost does not.
    fn sync(&mut self) {
        self.end_sync(&self.begin_sync());
    }

    /// Begins a sync: what is written from now on it does not cover.
    pub(super) fn begin_sync(&self) -> Pending {
        Pending {
            changes: self.changes,
            sectors: (self.unsynced.iter())
                .map(|(&sector, unsynced)| (sector, unsynced.changed, self.cached.sector(sector)))
                .collect(),
            length: self.cached.length,
        }
    }

    /// What a sync covers is on the platter.
    pub(super) fn end_sync(&mut self, pending: &Pending) {
        if pending.changes < self.synced {
            // One that began later and ended before covered all this.
            return;
        }
        self.synced = pending.changes;
        let is_there = |sector, changed| self.lost.get(sector).is_none_or(|lost| lost < changed);
        for (sector, _, content) in
            pending.sectors.iter().filter(|(sector, changed, _)| is_there(sector, changed))
        {
            self.platter.write_in_block(content, sector * SECTOR_BYTES as u64);
        }
        for (_, block) in self.reserved.extract_if(.., |(taken, _)| *taken <= pending.changes) {
            self.platter.blocks.entry(block).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
        }
        self.platter.cut(pending.length);
        self.forget(pending);
    }

    /// The rule of Linux after a failed sync: the pages are clean, and what they held never reaches the platter
    /// unless it is written again; but for some that did, by `random`, if it is given.
    pub(super) fn fail_sync(&mut self, pending: &Pending, random: Option<&mut Xorshift>) {
        if let Some(random) = random.filter(|_| pending.changes >= self.synced) {
            self.keep_some_blocks(pending, random);
        }
        self.lost.extend(pending.sectors.iter().map(|(sector, changed, _)| (*sector, *changed)));
        self.forget(pending);
    }

    /// What a sync was to make durable is clean, unless it was changed since; of such a sector nothing older is left
    /// either.
    fn forget(&mut self, pending: &Pending) {
        self.unsynced.retain(|_, sector| {
            sector.versions.retain(|(made, _)| *made > pending.changes);
            sector.changed > pending.changes
        });
    }

    /// Flips one bit everywhere. False when the file does not reach that far.
    pub(super) fn flip_bit(&mut self, byte: u64, bit: u8) -> bool {
        for bytes in [&mut self.cached, &mut self.platter] {
            let mut content = [0];
            if bytes.read(&mut content, byte) == 1 {
                bytes.write_in_block(&[content[0] ^ (1 << (bit % 8))], byte);
            }
        }
        byte < self.cached.length
    }

    /// Replaces the content, durably.
    pub(super) fn replace(&mut self, bytes: &[u8]) {
        *self = Content::default();
        self.write(bytes, 0);
        self.sync();
    }

    /// What is there after the power went.
    pub(super) fn after_crash(&self, mode: CrashMode, random: &mut Xorshift) -> Content {
        let mut survivor = self.clone();
        match mode {
            CrashMode::DropUnsynced => {}
            CrashMode::KeepAll => survivor.sync(),
            CrashMode::SubsetRandom(_) => survivor.keep_some_blocks(&self.begin_sync(), random),
            CrashMode::TornRandom(_) => survivor.tear(random),
        }
        Content { cached: survivor.platter.clone(), platter: survivor.platter, ..Content::default() }
    }

    /// Lets each block with un-synced sectors reach the platter or not, as it was behind one of the writes that the
    /// sync covers: the kernel may have written it then, too.
    fn keep_some_blocks(&mut self, pending: &Pending, random: &mut Xorshift) {
        const SECTORS: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;
        let keep_of_eight = draw_share(random);
        let sectors: Vec<(&u64, &Unsynced)> = self.unsynced.iter().collect();
        for block in sectors.chunk_by(|(one, _), (other, _)| *one / SECTORS == *other / SECTORS) {
            if random.below(8) >= keep_of_eight {
                continue;
            }
            let known_from = block.iter().map(|(_, unsynced)| unsynced.known_from()).max().unwrap_or(0);
            let moments: BTreeSet<u64> = block.iter().flat_map(|(_, unsynced)| unsynced.moments()).collect();
            let moments: Vec<u64> = moments
                .into_iter()
                .filter(|moment| (known_from..=pending.changes).contains(moment))
                .collect();
            if moments.is_empty() {
                continue;
            }
            let moment = moments[random.below(moments.len() as u64) as usize];
            for (sector, unsynced) in block {
                if let Some(content) = unsynced.behind(moment, self.cached.sector(**sector)) {
                    self.platter.write_in_block(&content, *sector * SECTOR_BYTES as u64);
                }
            }
        }
        self.keep_a_length(pending.length, keep_of_eight, random);
    }

    /// Lets each un-synced sector reach the platter or not, in its newest or in an older version.
    fn tear(&mut self, random: &mut Xorshift) {
        let keep_of_eight = draw_share(random);
        for (&sector, Unsynced { versions, .. }) in &self.unsynced {
            if random.below(8) >= keep_of_eight {
                continue;
            }
            let content = match random.below(2 + versions.len() as u64) {
                older @ 2.. => versions[older as usize - 2].1,
                _ => self.cached.sector(sector),
            };
            self.platter.write_in_block(&content, sector * SECTOR_BYTES as u64);
        }
        self.keep_a_length(self.cached.length, keep_of_eight, random);
    }

    /// Lets the platter have this length, or its own.
    fn keep_a_length(&mut self, length: u64, keep_of_eight: u64, random: &mut Xorshift) {
        let keeps_length = random.below(8) < keep_of_eight;
        self.platter.cut(if keeps_length { length } else { self.platter.length });
    }
}

/// How many of eight changes come through: some crashes lose nearly nothing, some nearly all.
fn draw_share(random: &mut Xorshift) -> u64 {
    [1, 4, 7][random.below(3) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two syncs at a time each made as much space durable as there was when it began: the second took what was
    /// reserved since.
    #[test]
    fn what_is_reserved_after_a_sync_began_is_not_covered_by_it() {
        let mut content = Content::default();
        content.set_length(2 * BLOCK_BYTES as u64);
        content.reserve_block(0);
        let (first, second) = (content.begin_sync(), content.begin_sync());
        content.end_sync(&first);
        content.reserve_block(1);
        content.end_sync(&second);
        let survivor = content.after_crash(CrashMode::DropUnsynced, &mut Xorshift::new(1));
        assert_eq!([0, 1].map(|block| survivor.has_block(block)), [true, false]);
    }

    /// Two syncs of a file at a time: what the first loses, the second does not bring, though it had seen it before.
    #[test]
    fn what_a_failed_sync_lost_stays_lost() {
        let mut content = Content::default();
        content.write(&[1; 512], 0);
        content.sync();
        content.write(&[2; 512], 0);
        let (first, second) = (content.begin_sync(), content.begin_sync());
        content.fail_sync(&first, None);
        content.end_sync(&second);
        let kept = |content: &Content| {
            content.after_crash(CrashMode::DropUnsynced, &mut Xorshift::new(1)).cached.sector(0)[0]
        };
        assert_eq!(kept(&content), 1);
        // What was written meanwhile comes with the next one.
        content.write(&[4; 512], 0);
        let third = content.begin_sync();
        content.write(&[5; 512], 0);
        content.fail_sync(&third, None);
        content.sync();
        assert_eq!(kept(&content), 5);
        // Written again, it comes.
        content.write(&[3; 512], 0);
        content.sync();
        assert_eq!(kept(&content), 3);
    }
}
