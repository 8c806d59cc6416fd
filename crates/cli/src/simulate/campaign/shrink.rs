//! A smaller run that fails as well: fewer transactions and threads, then a schedule with fewer turns.
//!
//! Each attempt is a run of its own, which fails or does not; how it fails is not compared, but that a run which comes
//! to no end is no smaller one of a run that does. The schedule is that of the failed run, from which pieces are left
//! out, half of it at first and ever smaller ones (Zeller and Hildebrandt's delta debugging, TSE 2002). Where it has no
//! turn left, one thread after the other runs as long as it can: what remains are the turns that matter.

use std::{fmt, path::Path};

use foreshore_env::sim::Turn;
use serde::Serialize;

use super::{
    CampaignArgs,
    process::{Request, Run},
    read_turns, write_turns,
};
use crate::output::CliError;

/// Runs that shrinking the schedule may take.
const MOST_TRIES: u32 = 60;

/// The smaller run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Shrunk {
    /// The most threads and transactions, when fewer than the seed's.
    most_threads: Option<u64>,
    most_transactions: Option<u64>,
    /// Turns before and after.
    turns: [usize; 2],
    /// What to type.
    again: String,
}

impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after] = self.turns;
        write!(f, "  smaller: {}\n  turns: {after} of {before}", self.again)
    }
}

/// Runs of one kind: those that end, or those that do not.
struct Failing {
    ends: bool,
}

impl Failing {
    /// Whether a run fails, in the same way as far as this goes.
    fn fails(&self, request: &Request) -> Result<bool, CliError> {
        let ended = Run::start(request)?.wait()?;
        Ok(ended.failure.is_some() && ended.comes_to_an_end() == self.ends)
    }
}

/// Shrinks the run of a seed that fails; `None` if it does not fail any more, or if its schedule cannot be replayed.
pub(super) fn shrink(seed: u64, args: &CampaignArgs) -> Result<Option<Shrunk>, CliError> {
    let path = std::env::temp_dir().join(format!("foreshore-{}-seed-{seed}.turns", std::process::id()));
    let mut request = Request { keep_turns: Some(path.clone()), ..Request::new(seed, args) };
    let first = Run::start(&request)?.wait()?;
    let like = Failing { ends: first.comes_to_an_end() };
    let Some(told) = first.told else { return Ok(None) };
    // The run with fewer must fail before the next is tried with fewer still.
    for transactions in (0..5).map(|power| 1 << power) {
        let smaller = Request { most_transactions: Some(transactions), ..request.clone() };
        if like.fails(&smaller)? {
            request = smaller;
            break;
        }
    }
    for threads in 1..told.threads {
        let smaller = Request { most_threads: Some(threads), ..request.clone() };
        if like.fails(&smaller)? {
            request = smaller;
            break;
        }
    }
    if !like.fails(&request)? {
        return Ok(None);
    }
    let all = read_turns(&path)?;
    let mut turns = all.clone();
    let mut replay = Request { turns: Some(path.clone()), keep_turns: None, ..request };
    if like.fails(&replay)? {
        leave_out(&mut turns, &path, &replay, &like)?;
        write_turns(&path, &turns)?;
    } else {
        // The schedule is not what it depends on alone: the seed's own stays.
        replay.turns = None;
        std::fs::remove_file(&path).map_err(CliError::io(format!("remove {}", path.display())))?;
    }
    Ok(Some(Shrunk {
        most_threads: replay.most_threads,
        most_transactions: replay.most_transactions,
        turns: [all.len(), turns.len()],
        again: replay.command_line(),
    }))
}

/// Leaves out what is not needed for the failure.
fn leave_out(turns: &mut Vec<Turn>, path: &Path, replay: &Request, like: &Failing) -> Result<(), CliError> {
    let (mut piece, mut tries) = (turns.len().div_ceil(2), 0);
    while piece > 0 && tries < MOST_TRIES {
        // From the end, so that the first thing found is that the schedule's tail is not needed.
        let mut end = turns.len();
        while end > 0 && tries < MOST_TRIES {
            let begin = end.saturating_sub(piece);
            let mut fewer = turns.clone();
            fewer.drain(begin..end);
            write_turns(path, &fewer)?;
            tries += 1;
            if like.fails(replay)? {
                *turns = fewer;
            }
            end = begin.min(turns.len());
        }
        piece /= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many turns it has stood behind it, in brackets, on which a shell stumbles.
    #[test]
    fn what_is_to_be_typed_ends_its_line() {
        let again = "cargo sim simulate --seeds 3 --most-threads 2".to_owned();
        let shrunk = Shrunk { most_threads: Some(2), most_transactions: None, turns: [806, 0], again };
        let text = shrunk.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines, ["  smaller: cargo sim simulate --seeds 3 --most-threads 2", "  turns: 0 of 806"]);
    }
}
