//! Memory at the same addresses in every run.
//!
//! Addresses decide which fields share a cache line and which space of a parking lot a waiter lies in. So while a
//! simulation runs, everything that its thread allocates comes from one region at a fixed place, by a plain allocator
//! that depends on nothing but the sequence of calls: blocks of one size class are cut from the region and reused last
//! in, first out. What an earlier simulation of the process has left lies before all that, and is not reused when it is
//! given back: that may be at any moment. Everything else goes to the system's allocator.
#![allow(clippy::disallowed_types)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    io, ptr,
    sync::{Mutex, PoisonError},
};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Where the region lies: far from where Linux puts programs, heaps, libraries and stacks.
pub(super) const BASE: usize = 0x2000_0000_0000;
/// The region's bytes. Reserved, not used: pages come when they are touched.
const BYTES: usize = 1 << 36;
/// Blocks up to this many bytes have a size class for each multiple of [`GRAIN`]; above, one for each power of two.
const SMALL: usize = 1024;
/// What sizes are rounded up to, and the least alignment.
const GRAIN: usize = 16;
/// Size classes: the small ones, and the powers of two from 16 bytes on (also of aligned small blocks).
const CLASSES: usize = SMALL / GRAIN + 1 + usize::BITS as usize;
/// Blocks of a power of two are aligned to their size, up to this.
const PAGE: usize = 4096;
/// Where a simulation's part of the region may begin.
const PART: usize = 1 << 21;

std::thread_local! {
    /// Whether this operating-system thread allocates from the region.
    static ACTIVE: Cell<bool> = const { Cell::new(false) };
}

/// Guarded by the mutex: a block may be given back by a thread that does not simulate.
static REGION: Mutex<Region> =
    Mutex::new(Region { mapped: false, used: 0, parts: Vec::new(), taken: 0, free: [0; CLASSES] });

struct Region {
    mapped: bool,
    /// Bytes cut off so far.
    used: usize,
    /// What simulations of the process use, the last of which may run.
    parts: Vec<Part>,
    /// Blocks handed out.
    taken: u64,
    /// The first free block of each class in the last part, 0 when there is none; a free block begins with the address
    /// of the next.
    free: [usize; CLASSES],
}

/// What one simulation uses of the region, up to where the next begins.
struct Part {
    /// Counted from the region's beginning.
    begin: usize,
    /// Blocks handed out and not given back.
    live: usize,
}

/// The allocator of a program that simulates.
struct Arena;

#[global_allocator]
static ARENA: Arena = Arena;

/// Class, bytes and alignment of the blocks that serve a layout.
fn class_of(layout: Layout) -> (usize, usize, usize) {
    let (size, align) = (layout.size().max(1), layout.align());
    if size <= SMALL && align <= GRAIN {
        let bytes = size.next_multiple_of(GRAIN);
        return (bytes / GRAIN, bytes, GRAIN);
    }
    let bytes = size.max(align).next_power_of_two();
    (SMALL / GRAIN + 1 + bytes.ilog2() as usize, bytes, align.max(bytes.min(PAGE)))
}

fn region() -> std::sync::MutexGuard<'static, Region> {
    REGION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an address is the region's.
pub(super) fn is_ours(address: usize) -> bool {
    (BASE..BASE + BYTES).contains(&address)
}

impl Region {
    /// A block, and whether it was never used before.
    fn take(&mut self, layout: Layout) -> Option<(usize, bool)> {
        let (class, bytes, align) = class_of(layout);
        let reused = self.free[class];
        // Alignments above a page are rare and make a class uneven: such blocks are cut, and not reused for others.
        if reused != 0 && reused.is_multiple_of(align) {
            // SAFETY: a free block of this class lies in the region and begins with the address of the next.
            self.free[class] = unsafe { ptr::with_exposed_provenance::<usize>(reused).read() };
            self.count();
            return Some((reused, false));
        }
        let place = (BASE + self.used).next_multiple_of(align);
        let end = place.checked_add(bytes)?;
        if end > BASE + BYTES {
            return None;
        }
        self.used = end - BASE;
        self.count();
        Some((place, true))
    }

    fn count(&mut self) {
        self.taken += 1;
        self.parts.last_mut().expect("a simulation runs").live += 1;
    }

    fn give_back(&mut self, block: usize, layout: Layout) {
        let last = self.parts.len() - 1;
        let part =
            self.parts.iter().rposition(|part| BASE + part.begin <= block).expect("the first begins at 0");
        self.parts[part].live -= 1;
        if part == last {
            let (class, _, _) = class_of(layout);
            // SAFETY: the block was handed out for this layout and is no longer used; each holds at least a word.
            unsafe { ptr::with_exposed_provenance_mut::<usize>(block).write(self.free[class]) };
            self.free[class] = block;
        }
    }
}

// SAFETY: blocks of the region do not overlap: they are cut from it one after the other, and reused only after they
// were given back, for layouts of the same class, whose blocks are as large and aligned as any of these layouts needs.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !ACTIVE.get() {
            // SAFETY: the caller's promise is the same.
            return unsafe { System.alloc(layout) };
        }
        match region().take(layout) {
            Some((block, _)) => ptr::with_exposed_provenance_mut(block),
            None => ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !ACTIVE.get() {
            // SAFETY: the caller's promise is the same.
            return unsafe { System.alloc_zeroed(layout) };
        }
        match region().take(layout) {
            // What was never used is zero: pages that nobody wants stay untouched.
            Some((block, true)) => ptr::with_exposed_provenance_mut(block),
            Some((block, false)) => {
                let block = ptr::with_exposed_provenance_mut::<u8>(block);
                // SAFETY: the block has at least as many bytes as the layout.
                unsafe { block.write_bytes(0, layout.size()) };
                block
            }
            None => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_ours(block.addr()) {
            region().give_back(block.expose_provenance(), layout);
        } else {
            // SAFETY: not ours, so it is the system's; the caller's promise is the same.
            unsafe { System.dealloc(block, layout) };
        }
    }
}

/// Begins a simulation, in a part of the region where nothing was, or nothing is left: the first if nothing is left at
/// all. The caller sees to it that one simulation runs at a time.
///
/// # Errors
/// The system does not reserve the region: something lies there, or the process may not have so many addresses
/// (`ulimit -v`). Or what earlier simulations have left reaches to its end. Nothing has begun then.
pub(super) fn begin() -> io::Result<()> {
    let mut region = region();
    if !region.mapped {
        let place = ptr::without_provenance_mut(BASE);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: nothing is mapped there, or the call fails.
        let mapped = unsafe { mmap_anonymous(place, BYTES, ProtFlags::READ | ProtFlags::WRITE, flags) };
        mapped?.expose_provenance();
        region.mapped = true;
    }
    let kept = region.parts.iter().rposition(|part| part.live > 0).map_or(0, |last| last + 1);
    if let Some(&Part { begin, .. }) = region.parts.get(kept) {
        let place = ptr::with_exposed_provenance_mut(BASE + begin);
        // SAFETY: no block from there on is handed out, and the free lists, which lie there, are emptied below.
        let zeroed = unsafe { madvise(place, region.used - begin, Advice::LinuxDontNeed) };
        zeroed?;
        region.parts.truncate(kept);
        region.used = begin;
    }
    let begin = region.used.next_multiple_of(PART);
    if begin >= BYTES {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    region.parts.push(Part { begin, live: 0 });
    (region.used, region.free) = (begin, [0; CLASSES]);
    Ok(())
}

/// How many blocks have been handed out.
pub(super) fn allocations() -> u64 {
    region().taken
}

/// Runs `f`, whose allocations come from the region. It does not panic.
pub(super) fn inside<R>(f: impl FnOnce() -> R) -> R {
    ACTIVE.set(true);
    let result = f();
    ACTIVE.set(false);
    result
}

/// Runs `f` with the system's allocator: for what the kernel keeps, on which the addresses of the program must not
/// depend.
pub(super) fn outside<R>(f: impl FnOnce() -> R) -> R {
    let active = ACTIVE.replace(false);
    let result = f();
    ACTIVE.set(active);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sim::{Device, Schedule, Settings, World, simulate},
        time::Duration,
    };

    #[test]
    fn classes_hold_what_they_serve() {
        for size in [0, 1, 15, 16, 17, 1000, 1024, 1025, 8192, 100_000] {
            for align in [1, 8, 16, 64, 4096, 8192] {
                let layout = Layout::from_size_align(size, align).unwrap();
                let (class, bytes, aligned) = class_of(layout);
                assert!(
                    class < CLASSES && bytes >= size.max(8) && aligned.is_multiple_of(align),
                    "{layout:?}"
                );
            }
        }
    }

    /// Where a simulation's blocks lie, counted from its first. `after` runs when some of them are free again.
    fn places(after: impl Fn()) -> Vec<usize> {
        let settings = Settings {
            seed: 1,
            world: World::Explorer(Schedule::Random),
            device: Device::named("ssd").unwrap(),
            limit: Duration::from_secs(60),
        };
        let simulated = simulate(&settings, || {
            let mut blocks: Vec<Option<Box<[u8; 24]>>> = (0..10).map(|_| Some(Box::default())).collect();
            blocks.iter_mut().step_by(3).for_each(|block| *block = None);
            after();
            blocks.extend((0..10).map(|_| Some(Box::default())));
            let place = |block: &[u8; 24]| block.as_ptr().addr();
            let first = blocks.iter().flatten().next().map_or(0, |block| place(block));
            blocks.iter().flatten().map(|block| place(block).wrapping_sub(first)).collect::<Vec<_>>()
        });
        simulated.unwrap().result
    }

    /// A part is not reused while something is left in it, and neither is what is given back of it.
    #[test]
    fn what_a_simulation_leaves_moves_nothing_of_the_next() {
        let alone = places(|| ());
        let left = std::cell::RefCell::new(Vec::new());
        places(|| left.borrow_mut().extend((0..5).map(|_| Box::new([7; 24]))));
        assert_eq!(places(|| ()), alone);
        assert_eq!(places(|| left.borrow_mut().truncate(2)), alone);
        assert_eq!(**left.borrow(), [Box::new([7; 24]), Box::new([7; 24])]);
    }
}
