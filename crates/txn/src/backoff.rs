//! How long whoever had to give way rests before it tries again.

use foreshore_env::{
    random::{self, Xorshift},
    time::Duration,
};

/// The shortest pause is at most this long.
const SHORTEST: Duration = Duration::from_micros(50);
/// No pause is longer.
const LONGEST: Duration = Duration::from_millis(10);

/// A pause that lets those who won go on before this one is in their way again: with each more of the `doublings` it
/// may be twice as long. It is jittered, so that two victims of each other do not meet in step.
pub fn jittered_pause(doublings: u32) -> Duration {
    let most = SHORTEST.saturating_mul(1 << doublings.min(16)).min(LONGEST);
    Duration::from_nanos(Xorshift::new(random::seed()).below(most.as_nanos() as u64))
}
