//! The lock manager: key-range locks, intent locks, deadlocks, early lock release.
//!
//! A transaction begins with [`LockManager::begin`] and asks its [`LockOwner`] for locks on keys and gaps
//! ([`LockOwner::acquire`]) and on tables ([`LockOwner::intent`]); [`LockOwner::release_all`] gives them back. Every
//! wait ends: granted, chosen as a deadlock's victim, at its deadline, or cancelled. The rules (LOCK-1 …) are in
//! README.md.
//!
//! Invariant: this crate knows no pages and not what the log holds; an LSN is an opaque tag.
#![forbid(unsafe_code)]

mod age;
#[cfg(foreshore_sim)]
pub mod costs;
mod deadlock;
mod error;
mod intent;
mod lifeline;
mod manager;
mod mode;
mod name;
mod options;
mod owner;
mod partitioner;
mod request;
mod slot;
mod stats;
mod table;
mod view;
mod wait;

pub use age::Age;
pub use deadlock::{BLOOM_BITS, BLOOM_FINGERPRINT, DeadlockEdge, DeadlockReport, KeyBytes, VictimReason};
pub use error::{Blocker, LockError, LockMode, Refusal};
pub use intent::{EntryIndex, IntentMode};
pub use lifeline::Lifeline;
pub use manager::LockManager;
pub use mode::KeyMode;
pub use name::{KeyRef, LockName};
pub use options::{
    DeadlockPolicy, DigestKind, IntentLockKind, KeyRangeModes, LockOptions, LockTableKind, VictimPolicy,
};
pub use owner::{LockOwner, crowd::Crowd};
pub use partitioner::Partitioner;
pub use stats::LockStats;
pub use view::{BlockerView, LockTarget, LockView, MAX_BLOCKERS, TransactionView, WaitView};
pub use wait::{CancelToken, NAP, WaitPolicy};
