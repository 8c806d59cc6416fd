//! The foster B-tree of Foreshore: ordered tables of byte keys and values, with key-range locking, ghosts, structure
//! changes that are local and atomic by themselves, and the redo and undo of its log records.
//!
//! The README beside this crate has its rules (BTREE-n), which the code cites.
//!
//! Invariant: this crate does not know which protocol isolates transactions. It asks a [`Session`] for locks; whoever
//! answers decides.
#![forbid(unsafe_code)]

mod adopt;
mod append;
mod bytes;
mod condense;
mod cursor;
mod descend;
mod deserted;
mod drop;
mod env;
mod error;
mod gap;
mod grow;
mod hold;
mod image;
mod look;
mod maintain;
mod many;
mod merge;
mod node;
mod overflow;
mod purge;
mod record;
mod redo;
mod refill;
mod relocate;
mod session;
mod split;
#[cfg(test)]
mod tests;
mod tree;
mod undo;
mod verify;
mod write;

pub use append::Append;
pub use condense::Condensed;
pub use cursor::{Cursor, Direction, LockKind};
pub use drop::{Reaped, Remains};
pub use env::TreeEnv;
pub use error::TreeError;
#[doc(no_inline)]
pub use foreshore_latch::Patience;
pub use hold::LatchMode;
pub use many::KEYS_TOGETHER;
pub use node::{leaf_table, tree_root};
pub use overflow::{long_value, long_value_digest};
pub use record::{created_root, inserted_long_value, is_undoable, undo_next};
pub use redo::redo;
pub use relocate::Relocated;
pub use session::{Finger, Isolation, NoLocks, Session, TxnChain};
pub use tree::BTree;
pub use undo::undo;
pub use verify::VerifyReport;
