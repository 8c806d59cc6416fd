//! Answers in files: one for each command, named by a checksum of the command, in the folder `answers` of a directory.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use foreshore_env::thread;
use foreshore_experiment::{Answer, Machine};

use crate::{file, output::CliError};

/// The folder of the answers.
const ANSWERS: &str = "answers";

/// Bytes of the largest file that is read: a hundred times what answers have.
pub(super) const LARGEST: u64 = 16 << 20;

/// The answers in a directory.
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    /// The store in `directory`, which is made if it is missing. That it takes no answers is told now, and not when the
    /// first is there.
    pub(super) fn make(directory: &Path) -> Result<Store, CliError> {
        let folder = directory.join(ANSWERS);
        file::make_directory(&folder)?;
        file::try_write(&folder.join("trial.json"))?;
        Ok(Store { folder })
    }

    /// The store in `directory`, if there is one.
    pub(crate) fn open(directory: &Path) -> Option<Store> {
        let folder = directory.join(ANSWERS);
        folder.is_dir().then_some(Store { folder })
    }

    fn path(&self, command: &str) -> PathBuf {
        self.folder.join(format!("{:016x}.json", checksum(command.as_bytes())))
    }

    /// The answer to a command; `None` if there is none. An error says in words what is wrong with what is there, and
    /// what to do.
    pub(crate) fn find(&self, command: &str) -> Result<Option<Answer>, String> {
        let path = self.path(command);
        let answer = read(&path).map_err(|why| {
            format!(
                "its answer in {} cannot be used: {why}; remove the file and run it again",
                path.display()
            )
        })?;
        match answer {
            Some(answer) if answer.command != command => Err(format!(
                "the answer in {} is to another command; remove the file and run it again",
                path.display()
            )),
            answer => Ok(answer),
        }
    }

    /// Puts an answer there, whole or not at all.
    pub(super) fn keep(&self, answer: &Answer) -> Result<(), CliError> {
        let path = self.path(&answer.command);
        let text = serde_json::to_vec_pretty(answer).map_err(|error| CliError::Other(error.to_string()))?;
        file::write(&path, text)
    }
}

/// What is in the file of an answer; `None` if there is no file.
fn read(path: &Path) -> Result<Option<Answer>, String> {
    // Not opened before it is known to be a file: to open a pipe would wait for whoever writes to it.
    let length = match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => there.len(),
        Ok(_) => return Err("it is not a regular file".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if length > LARGEST {
        return Err(format!("it has {length} bytes, and no answer has more than {LARGEST}"));
    }
    let text = fs::read(path).map_err(|error| error.to_string())?;
    let answer: Answer = serde_json::from_slice(&text).map_err(|error| format!("it is damaged ({error})"))?;
    let is_time = |seconds: f64| (0.0..1e9).contains(&seconds);
    if !is_time(answer.seconds) || !answer.computed_seconds.is_none_or(is_time) {
        return Err("the time that it says it took makes no sense".to_owned());
    }
    Ok(Some(answer))
}

/// FNV-1a, 64 bits: the same everywhere and always, because files are named by it.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// A checksum of a program's file.
pub(super) fn program(path: &Path) -> Result<String, CliError> {
    let bytes = fs::read(path).map_err(CliError::io(format!("read {}", path.display())))?;
    Ok(format!("{:016x}", checksum(&bytes)))
}

/// This machine.
pub(super) fn machine() -> Machine {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    Machine {
        processor: processor.map_or_else(String::new, |(_, name)| name.trim().to_owned()),
        processors: thread::available_parallelism(),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_by_their_command() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::make(directory.path()).unwrap();
        assert_eq!(store.find("foreshore bench x"), Ok(None));
        let answer = Answer {
            command: "foreshore bench x".to_owned(),
            program: "1".to_owned(),
            version: "0".to_owned(),
            commit: "abc".to_owned(),
            machine: machine(),
            began_unix_s: 1,
            seconds: 0.5,
            computed_seconds: Some(0.25),
            answer: serde_json::json!({"rate": 1.25}),
        };
        store.keep(&answer).unwrap();
        assert_eq!(store.find("foreshore bench x"), Ok(Some(answer)));
        assert_eq!(store.find("foreshore bench y"), Ok(None));
        // Another command's answer is none, nor is half a file, nor what is no file.
        fs::rename(store.path("foreshore bench x"), store.path("foreshore bench y")).unwrap();
        assert!(store.find("foreshore bench y").unwrap_err().contains("another command"));
        let path = store.path("foreshore bench x");
        fs::write(&path, "{\"command\": ").unwrap();
        let why = store.find("foreshore bench x").unwrap_err();
        assert!(why.contains("damaged") && why.contains("remove the file"), "{why}");
        fs::write(&path, vec![b' '; LARGEST as usize + 1]).unwrap();
        assert!(store.find("foreshore bench x").unwrap_err().contains("bytes"));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(store.find("foreshore bench x").unwrap_err().contains("not a regular file"));
    }

    #[test]
    fn checksums_do_not_change() {
        assert_eq!(checksum(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(checksum(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
