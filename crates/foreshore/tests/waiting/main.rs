//! What waits, and until when: in one program, since most of the time nobody computes.

mod cancellation;
mod refused_waits;
mod submitted_waits;
mod waits;
