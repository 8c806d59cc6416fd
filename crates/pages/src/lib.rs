//! Pages: their layout, the buffer pool that holds them, and the space they take in the data file.
//!
//! - [`PageWords`]: page bytes in shared memory, through relaxed atomic words, so that optimistic readers race with
//!   writers without undefined behaviour;
//! - [`SlottedView`], [`SlottedMut`], [`PageBuilder`]: sorted records in a page;
//! - [`BufferPool`]: frames, translation, eviction, cleaning, checkpoint sweeps, images against torn pages, redo;
//! - [`RawPages`]: the pages of a file that is too damaged to be opened;
//! - [`NewPage`], [`FreeingPage`]: allocation by bitmap pages; [`Compaction`]: giving space back.
//!
//! Invariant: this crate knows neither locks nor transactions. The rules (`PAGE-n`) are in the crate's README.

mod layout;
mod pool;
mod raw;
mod slotted;
mod space;
#[cfg(test)]
mod testing;
mod words;

pub use layout::{PAGE_HEADER_BYTES, PageKind};
pub use pool::{
    BITMAP_FORMAT, BufferPool, ExclusivePage, OptimisticPage, PAGE_IMAGE, PageStamp, PageVersion,
    PoolOptions, PoolStats, SharedPage, TransitKind, TranslationKind,
};
pub use raw::RawPages;
pub use slotted::{
    Fence, NodeHeader, PageBuilder, PageFull, RECORD_OVERHEAD_BYTES, RecordFlags, Records, SLOT_BYTES, Slot,
    SlottedMut, SlottedView,
};
pub use space::{
    BITMAP_SPAN, Compaction, FORMAT_VERSION, FREE_IN_USE, FreeSpaceKind, FreeingPage, NewEnd, NewPage,
};
pub use words::{PageBuffer, PageWords};
