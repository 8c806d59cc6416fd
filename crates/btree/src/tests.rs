//! Tests of the tree as a whole. Each file names the rules (BTREE-n) that it tries to break.

mod append;
mod figures;
mod gaps;
mod hostile;
mod limits;
mod model;
mod orphans;
mod patience;
mod read_ahead;
mod recovery;
mod relocate;
mod shrink;
mod starvation;
mod support;
mod threads;
