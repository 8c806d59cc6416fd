//! Answers in files: one for each command, named by a checksum of the command, in the folder `answers` of a directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use foreshore_env::thread;
use foreshore_experiment::{Answer, Machine};

use crate::{file, output::CliError};

/// The folder of the answers.
const ANSWERS: &str = "answers";

/// The answers in a directory.
pub(crate) struct Store {
    folder: PathBuf,
}

impl Store {
    /// The store in `directory`, which is made if it is missing.
    pub(super) fn make(directory: &Path) -> Result<Store, CliError> {
        let folder = directory.join(ANSWERS);
        file::make_directory(&folder)?;
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

    /// The answer to a command; `None` if there is none, or it cannot be understood.
    pub(crate) fn find(&self, command: &str) -> Option<Answer> {
        let text = fs::read(self.path(command)).ok()?;
        let answer: Answer = serde_json::from_slice(&text).ok()?;
        (answer.command == command).then_some(answer)
    }

    /// Puts an answer there, whole or not at all.
    pub(super) fn keep(&self, answer: &Answer) -> Result<(), CliError> {
        let path = self.path(&answer.command);
        let text = serde_json::to_vec_pretty(answer).map_err(|error| CliError::Other(error.to_string()))?;
        file::write(&path, text)
    }
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
        assert!(store.find("foreshore bench x").is_none());
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
        assert_eq!(store.find("foreshore bench x"), Some(answer));
        assert!(store.find("foreshore bench y").is_none());
        // Half a file is none.
        fs::write(store.path("foreshore bench x"), "{\"command\": ").unwrap();
        assert!(store.find("foreshore bench x").is_none());
    }

    #[test]
    fn checksums_do_not_change() {
        assert_eq!(checksum(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(checksum(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
