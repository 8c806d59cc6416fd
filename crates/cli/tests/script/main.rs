//! `foreshore script` from outside.

mod course;
mod hostile;
mod player;
mod protocol;
mod specs;
