//! The facade, subject by subject: what needs no process of its own, in one program, which is linked once.

mod copies;
mod formats;
mod in_memory;
mod limits;
mod partitioned;
mod partitioned_failures;
mod pipeline;
mod planned;
mod pool;
mod procedures;
mod roles;
mod space;
mod unlocked;
mod victims;
mod views;
