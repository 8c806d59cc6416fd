//! What every crate of Foreshore shares and nothing more: identifiers, limits, the order-preserving key encoding,
//! bounds of ranges of such keys, and the kinds of failure of the environment.
//!
//! Invariant: this crate depends on no other crate of the workspace.
#![forbid(unsafe_code)]

pub mod bounds;
mod error;
mod ids;
pub mod key;
pub mod limits;
mod page_set;
mod places;
mod printable;
mod tuple;

pub use error::{CorruptionSite, Result, StorageError, is_disk_full};
pub use ids::{FrameIndex, Lsn, PageId, SlotIndex, TableId, TxnId};
pub use page_set::PageSet;
pub use places::Places;
pub use printable::Printable;
