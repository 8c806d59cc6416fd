//! The command line: what clap makes of it, and what it leaves to be refused.

use std::{ffi::OsStr, process::ExitCode};

use clap::{
    Arg, ArgMatches, Command, CommandFactory, FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{
    Cli,
    output::{self, CliError, TROUBLE, told},
};

/// The command that was given, or the exit status after an error, or what help there is, has been printed.
pub(crate) fn parse(json: bool) -> Result<Cli, ExitCode> {
    let mut command = with_paragraphs(Cli::command());
    let parsed = command.try_get_matches_from_mut(std::env::args_os()).and_then(|matches| {
        refuse_repetitions(&mut command, &matches)?;
        Cli::from_arg_matches(&matches)
    });
    parsed.map_err(|mut error| {
        lead_to_another(&mut error);
        let printed = error.print();
        if !error.use_stderr() {
            let printed = printed.map_err(CliError::io("write to standard output"));
            return told(printed, ExitCode::SUCCESS).unwrap_or_else(|error| error.report(json));
        }
        // Standard error may be closed; there is nobody left to tell then.
        if json {
            let text = error.to_string();
            let message = text.trim_end().trim_start_matches("error: ");
            let _ = output::json_failure("usage", message, None);
        }
        ExitCode::from(TROUBLE)
    })
}

/// The command, and all below it, with what stands behind its options in lines as long as the terminal lets them be.
fn with_paragraphs(command: Command) -> Command {
    let help = command.get_after_help().map(|help| joined(&help.to_string()));
    let command = match help {
        Some(help) => command.after_help(help),
        None => command,
    };
    command.mut_subcommands(with_paragraphs)
}

/// One line for each paragraph: where it is broken is for the terminal. What is indented stays as it is.
fn joined(help: &str) -> String {
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
    let mut lines: Vec<String> = Vec::new();
    for line in help.lines() {
        match lines.last_mut() {
            Some(before) if is_prose(before) && is_prose(line) && !before.ends_with(['.', ':']) => {
                before.push(' ');
                before.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// Commands that other programs have, and what stands for them here.
const ELSEWHERE: [(&str, &str); 1] = [(
    "restore",
    "a backup is a database; to put it where one was lost, copy it: foreshore backup BACKUP DIR",
)];

/// Where a command that there is not is known by another name, this is said in place of those that are spelled alike.
fn lead_to_another(error: &mut clap::Error) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let Some((_, tip)) = ELSEWHERE.iter().find(|(name, _)| name == word) else { return };
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![(*tip).into()]));
}

/// What is listed, as in `--threads 1,2`, is there once: twice it would be measured twice, and its results be
/// indistinguishable.
fn refuse_repetitions(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let repetition = command.get_arguments().find_map(|list| repeated(list, matches));
    if let Some(message) = repetition {
        return Err(command.error(ErrorKind::ValueValidation, message));
    }
    match matches.subcommand() {
        Some((name, matches)) => match command.find_subcommand_mut(name) {
            Some(command) => refuse_repetitions(command, matches),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

fn repeated(list: &Arg, matches: &ArgMatches) -> Option<String> {
    list.get_value_delimiter()?;
    let values: Vec<_> = matches.try_get_raw(list.get_id().as_str()).ok()??.collect();
    values.iter().enumerate().find_map(|(place, value)| {
        let before = values[..place].iter().find(|before| are_one(before, value))?;
        let (before, value) = (before.display(), value.display());
        Some(if before.to_string() == value.to_string() {
            format!("'{value}' occurs twice in '{list}'; name it once")
        } else {
            format!("'{value}' is what '{before}' is in '{list}'; name it once")
        })
    })
}

/// Whether two words are one value: a number may be written in several ways.
fn are_one(one: &OsStr, other: &OsStr) -> bool {
    let (Some(one), Some(other)) = (one.to_str(), other.to_str()) else { return one == other };
    one == other
        || match (one.parse::<u64>(), other.parse::<u64>()) {
            (Ok(one), Ok(other)) => one == other,
            _ => one.parse::<f64>().is_ok_and(|one| other.parse() == Ok(one)),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said to a command line with this value for one of its options, and nothing else.
    fn said(command: &Command, path: &[String], option: &str, value: i128) -> String {
        let words = path.iter().cloned().chain([format!("--{option}={value}")]);
        command.clone().try_get_matches_from(words).err().map_or_else(String::new, |error| error.to_string())
    }

    fn options_with_ends(root: &Command, path: &[String], found: &mut Vec<(String, i128, i128)>) {
        let command = path[1..].iter().fold(root, |command, name| command.find_subcommand(name).unwrap());
        for option in command.get_arguments().filter_map(Arg::get_long) {
            // More than any of them takes, and the refusal has both ends.
            let text = said(root, path, option, 1 << 62);
            let Some((_, ends)) = text.split_once(" is not in ") else { continue };
            let ends = ends.lines().next().unwrap().split_once("..=").unwrap();
            let [least, most] = [ends.0, ends.1].map(|end| end.parse::<i128>().unwrap());
            for (value, fits) in [
                (least - 1, false),
                (least, true),
                ((least + 1).min(most), true),
                ((most - 1).max(least), true),
                (most, true),
                (most + 1, false),
            ] {
                let text = said(root, path, option, value);
                let refused = text.contains(&format!("invalid value '{value}'"));
                assert_eq!(refused, !fits, "{} --{option}={value}: {text}", path.join(" "));
            }
            found.push((format!("{} --{option}", path[1..].join(" ")), least, most));
        }
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            let path: Vec<_> = path.iter().cloned().chain([inner.get_name().to_owned()]).collect();
            options_with_ends(root, &path, found);
        }
    }

    /// A terminal that is narrower than the source broke each of its lines once more.
    #[test]
    fn paragraphs_are_broken_where_the_terminal_ends() {
        let help = "Examples:\n  one\n  two  what\n\nA range\nof keys. And\nmore.\nExit\nstatus";
        assert_eq!(joined(help), "Examples:\n  one\n  two  what\n\nA range of keys. And more.\nExit status");
        let command = with_paragraphs(Cli::command());
        let help = command.find_subcommand("salvage").unwrap().get_after_help().unwrap().to_string();
        assert!(help.contains("a byte that is no printable character"), "{help}");
    }

    /// An example of `bench` is none of `simulate bench`, which takes other options.
    #[test]
    fn simulated_benchmarks_show_no_examples_of_real_ones() {
        let mut root = Cli::command();
        root.build();
        let simulate = root.find_subcommand_mut("simulate").unwrap();
        let helps: Vec<_> = simulate
            .find_subcommand_mut("bench")
            .unwrap()
            .get_subcommands_mut()
            .map(|command| command.render_long_help().to_string())
            .collect();
        assert!(helps.len() > 10 && helps.iter().all(|help| !help.contains("foreshore bench ")), "{helps:?}");
    }

    /// One below, at, and one above either end of every number that is bounded at both.
    #[test]
    fn numbers_have_ends() {
        fn nothing_required(command: Command) -> Command {
            let command = command.subcommand_required(false).arg_required_else_help(false);
            command.mut_args(|arg| arg.required(false)).mut_subcommands(nothing_required)
        }
        let mut root = nothing_required(Cli::command());
        root.build();
        let mut found = Vec::new();
        options_with_ends(&root, &["foreshore".to_owned()], &mut found);
        let ends: std::collections::BTreeMap<_, _> =
            found.iter().map(|(name, least, most)| (name.as_str(), (*least, *most))).collect();
        for (name, expected) in [
            ("torture --threads", (1, 1024)),
            ("load --batch", (1, 100_000)),
            ("bench tpcb --threads", (1, 1024)),
            ("bench tpcc --warehouses", (1, 10_000)),
            ("bench tpcc --customers", (10, 3000)),
        ] {
            assert_eq!(ends.get(name), Some(&expected), "{name}: {ends:?}");
        }
        assert!(found.len() >= 30, "{found:?}");
    }

    /// The words of a line of a shell, up to two spaces, which a comment follows.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        for (place, part) in line.trim_start().split('\'').enumerate() {
            let (part, comment) = match part.split_once("  ") {
                Some((part, _)) if place % 2 == 0 => (part, true),
                _ => (part, false),
            };
            let pieces: Vec<_> = if place % 2 == 0 { part.split(' ').collect() } else { vec![part] };
            words.last_mut().unwrap().push_str(pieces[0]);
            words.extend(pieces[1..].iter().map(|piece| (*piece).to_owned()));
            if comment {
                break;
            }
        }
        words
    }

    /// What this program is given in the examples of a command and of all below it.
    fn examples(command: &Command, found: &mut Vec<Vec<String>>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().filter(|line| line.starts_with("  ")) {
            for words in words(line).split(|word| ["|", "&&"].contains(&&**word)) {
                let end = words.iter().position(|word| word.starts_with(['<', '>']));
                let own = match &words[..end.unwrap_or(words.len())] {
                    [program, own @ ..] if program == "foreshore" => own,
                    [cargo, sim, own @ ..] if [&**cargo, &**sim] == ["cargo", "sim"] => own,
                    _ => continue,
                };
                found.push([&["foreshore".to_owned()], own].concat());
            }
        }
        command.get_subcommands().for_each(|inner| examples(inner, found));
    }

    #[test]
    fn examples_are_taken_as_they_stand() {
        assert_eq!(words("  a 'b c' | d  e'f"), ["a", "b c", "|", "d"]);
        let mut found = Vec::new();
        examples(&Cli::command(), &mut found);
        assert!(found.len() >= 150, "{found:?}");
        let refusal = |example: &Vec<String>| {
            let mut command = Cli::command();
            let taken = command.try_get_matches_from_mut(example);
            let error =
                taken.and_then(|matches| refuse_repetitions(&mut command, &matches)).err()?.to_string();
            // Rivals are in builds with their features.
            (!error.contains("this build has no engine")).then(|| format!("{}: {error}", example.join(" ")))
        };
        let refusals: Vec<String> = found.iter().filter_map(refusal).collect();
        assert!(refusals.is_empty(), "{}", refusals.join("\n"));
    }

    #[test]
    fn a_restore_is_a_backup_of_the_backup() {
        for (command, leads) in [("restore", true), ("restor", false)] {
            let mut error =
                Cli::command().try_get_matches_from(["foreshore", command, "monday", "shop"]).unwrap_err();
            lead_to_another(&mut error);
            let text = error.to_string();
            assert!(text.contains("unrecognized subcommand"), "{text}");
            assert_eq!(text.contains("tip: a backup is a database"), leads, "{text}");
            assert_eq!(text.contains("similar subcommand"), !leads, "{text}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_listed_is_there_once() {
        for (arguments, part) in [
            ("foreshore bench latch --threads 2,2", Some("'2' occurs twice in '--threads <N,…>'")),
            ("foreshore bench latch --threads 1,2 --threads 8,1", Some("'1' occurs twice")),
            ("foreshore bench latch --threads 1,2 --mix mixed,contended", None),
            ("foreshore bench locks --lock-tables staged,staged", Some("--lock-tables")),
            ("foreshore bench locks --locks 1,10,1", Some("--locks")),
            ("foreshore bench txbench --threads 2,8,2", Some("--threads")),
            ("foreshore bench dreadlocks --wait spin,spin", Some("--wait")),
            ("foreshore bench intent --kind private --absolute 0,0", Some("--absolute")),
            ("foreshore bench tpcb --set a=1 --set a=1", None),
            ("foreshore bench txbench --threads 1,01", Some("'01' is what '1' is in '--threads <N,…>'")),
            ("foreshore bench elr --zipf 1,1.0", Some("'1.0' is what '1' is in '--zipf <S,…>'")),
            ("foreshore bench elr --zipf 1,1.5 --read-ratio 0,0.1", None),
        ] {
            let mut command = Cli::command();
            let matches = command.try_get_matches_from_mut(arguments.split(' ')).unwrap();
            match (refuse_repetitions(&mut command, &matches), part) {
                (Ok(()), None) => {}
                (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{error}"),
                (result, _) => panic!("{arguments}: {result:?}"),
            }
        }
    }
}
