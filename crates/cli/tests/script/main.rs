//! `foreshore script` from outside.

mod hostile;
mod player;
mod protocol;
mod specs;
