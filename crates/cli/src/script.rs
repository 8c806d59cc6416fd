//! `foreshore script`.

mod answer;
mod board;
mod command;
mod input;
mod session;
mod stage;

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::ExitCode,
};

use foreshore::{Database, Options};

use crate::{
    output::{CHECK_FAILED, CliError},
    recovery,
    settings::Settings,
};
use input::Line;
use stage::Stage;

/// Runs transactions that are given as JSON, one command a line, in any number of sessions.
///
/// Reads commands from standard input and writes answers to standard output, one JSON object a line. A session is a
/// thread with a transaction of its own; its name is made up by the script. The next command is read when every
/// statement so far has been answered or waits for a lock, so that a script from a file runs in the same order every
/// time.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct ScriptArgs {
    /// The database, which is made if it does not exist.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    settings: Settings,
    /// Accepted because every subcommand takes it: the output is always JSON.
    #[arg(long)]
    json: bool,
}

const HELP: &str = r#"Commands have an "op", an "id" (a number or a string, given back with each answer) and a "session" [default: "main"]:
  begin         [label] [isolation: serializable, repeatable_read, read_committed] [read_only] [no_wait]
                [deadline_ms] [durability: sync, pipelined, lazy]
                [priority: -128 to 127; the lowest of a cycle gives way]
  get, get_for_update, delete             key [table]
  put, insert, update                     key value [table]
  scan          [lo] [hi] [lo_inclusive: true] [hi_inclusive: false] [reverse] [limit: 1000]
                [for_update] [skip_locked] [table]
  lock_table    mode: intent_shared, intent_exclusive, shared, shared_intent_exclusive, exclusive   [table]
  savepoint, rollback_to, release         name   (a savepoint hides an earlier one of its name)
  commit, rollback
  cancel        ends the session's waits: its transaction can only be rolled back then
  explain       why the session waits
  locks, waits_for                        of the whole database, the first 100000 and 64 ("omitted", "waits_omitted": how
                many more there are); no session
  deadlocks     the last 128 that gave way, under any deadlock_policy: why, and for whom; no session
Keys, values and bounds are strings, or {"hex":"…"}. The table is "default" unless given; it is made when first used,
with bytes as keys and as values. One that is there may have text in their place, as most that `load` makes;
with any other type it is refused ("type_mismatch").

Answers have "id", "session" and "status": "ok" with the result; "error" with "error" (a word that stays the same),
"message" and "retryable", and for a deadlock "victim", "kind", "reason" and the "cycle"; or "blocked", within 100 ms, when a statement waits for a
lock, with "waits_for" and "why": its result comes later with the same id. When it goes on and comes to wait for another
lock it says so again; whom it waits for at any time, "explain" tells. A session takes further commands while it waits,
and runs them afterwards. A line that is no command is answered with its number in "line", and with "id" and "session" as
far as they could be read. At the end of the input every transaction that is open is rolled back.
Under sync a commit is answered when it is durable; under pipelined and lazy at once, and a crash may take it back, with all after it.
Pipelined has asked the disk for it, lazy leaves that for later. A script that comes to its end, with status 0 or 1, has made all durable.

Limits: a line has 4 MiB at most, a name, label or id 255 bytes; there are 1000 sessions at most, each with 1000 commands
that are not answered, and 64 MiB of them in all; a scan gives 100000 entries at most, and breaks off with "cut_off" after 32 MiB.

Example:
  foreshore script bank.foreshore <<'END'
  {"id":1,"session":"a","op":"begin"}
  {"id":2,"session":"b","op":"begin"}
  {"id":3,"session":"a","op":"put","key":"alice","value":"10"}
  {"id":4,"session":"b","op":"get","key":"alice"}
  {"id":5,"op":"explain","session":"b"}
  {"id":6,"session":"a","op":"commit"}
  END

Exit status: 0 every line was a command, 1 some were not, or the database is damaged, 2 the work could not be done, or not all of it
because nobody read the answers."#;

/// Runs the subcommand.
pub(crate) fn run(args: &ScriptArgs) -> Result<ExitCode, CliError> {
    // Views show the key of every lock that they show; a script has time for that.
    let options = args.settings.over(Options { lock_notes: true, ..Options::default() })?;
    let db = recovery::open(Database::builder().options(options), &args.directory)?;
    let played = play_all(&db, io::stdin().lock(), Box::new(io::stdout()));
    // First, whatever else has failed: it is about what was committed.
    db.close()?;
    Ok(if played? { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) })
}

/// Does what the input says, and ends all that it has begun; whether every line was a command, and met no damage.
pub(crate) fn play_all(
    db: &Database,
    input: impl Read,
    output: Box<dyn Write + Send>,
) -> Result<bool, CliError> {
    let mut stage = Stage::new(db.clone(), output);
    let played = play(&stage, &mut BufReader::with_capacity(1 << 16, input));
    // Whatever happened, nobody may stay waiting.
    let ended = stage.end();
    let understood = played?;
    match ended {
        // Every line was done, whoever has read what became of the last ones.
        Err(error) if !error.is_closed_pipe() => Err(error),
        _ => Ok(understood && stage.is_sound()),
    }
}

/// Takes all commands; whether every line was one.
fn play(stage: &Stage, input: &mut impl BufRead) -> Result<bool, CliError> {
    let mut understood = true;
    for number in 1u64.. {
        let line = input::next_line(input).map_err(CliError::io("read standard input"))?;
        let result = match line {
            Line::End => break,
            Line::Blank => continue,
            Line::TooLong => Err(command::Malformed::too_long()),
            Line::Text(text) => command::parse(&text),
        };
        // What would be done now, nobody would learn of.
        stage.check_output().map_err(|cause| unread(number, cause))?;
        match result {
            Ok(command) => stage.take(command),
            Err(malformed) => {
                understood = false;
                stage.say(malformed.answer(number));
            }
        }
    }
    Ok(understood)
}

/// Answers reach nobody, and this line is still to be done.
#[cold]
fn unread(line: u64, cause: CliError) -> CliError {
    let done = format!(
        "line {line} and all that follow were not done, and what was not committed was rolled back; \
         run them with a reader that stays to the end"
    );
    CliError::Partial { cause: Box::new(cause), done }
}
