//! `foreshore script` from outside.

mod course;
mod histories;
mod hostile;
mod limits;
mod player;
mod protocol;
mod specs;
