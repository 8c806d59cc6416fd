//! The program from outside, subject by subject, in one program that is linked once.

mod bench;
mod commits;
mod docs;
mod experiment;
mod files;
mod hostile_input;
mod prepared;
mod salvage;
mod usage;
