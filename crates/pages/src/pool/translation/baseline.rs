//! The gallery: the tables that Shore-MT went through (§6.2.3, §7.2, §7.4), to be measured against.

mod bucketed;
mod chains;
mod cuckoo;
mod global;

pub(super) use self::{bucketed::Bucketed, cuckoo::Cuckoo, global::GlobalMutex};
