//! A directory in which the program runs, and what it says.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value as Json;

pub(crate) struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Runs the program in the scene's directory.
    pub(crate) fn run(&self, arguments: &str) -> Output {
        self.run_with_input(arguments, b"")
    }

    pub(crate) fn run_with_input(&self, arguments: &str, input: &[u8]) -> Output {
        let mut child = self.start(arguments);
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // A program that does not want its input closes the pipe.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    }

    /// Starts the program, with a pipe for each of its streams.
    pub(crate) fn start(&self, arguments: &str) -> Child {
        Command::new(env!("CARGO_BIN_EXE_foreshore"))
            .args(arguments.split_whitespace())
            .current_dir(self.directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs the program with its standard output going to what is there already.
    pub(crate) fn run_into(&self, arguments: &str, path: &str) -> Output {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" \"$@\" > {path}"), env!("CARGO_BIN_EXE_foreshore")]);
        let ran = shell.args(arguments.split_whitespace()).current_dir(self.directory.path()).output();
        ran.unwrap()
    }

    /// Runs the program for a reader that has gone away before it says anything.
    pub(crate) fn run_unread(&self, arguments: &str) -> Output {
        let mut child = self.start(arguments);
        drop(child.stdout.take());
        child.wait_with_output().unwrap()
    }

    pub(crate) fn succeed(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Fails with status 2 and gives what was said.
    pub(crate) fn fail(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", text(&output.stdout));
        assert_eq!(text(&output.stdout), "");
        text(&output.stderr)
    }

    pub(crate) fn json(&self, arguments: &str) -> Json {
        serde_json::from_str(&self.succeed(arguments)).unwrap()
    }

    /// The headers and the entries of a dump, without the lines that close tables.
    pub(crate) fn dump(&self, arguments: &str) -> Vec<Json> {
        let lines = self.succeed(&format!("dump {arguments}"));
        lines.lines().map(parsed).filter(|line| line.get("end").is_none()).collect()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn parsed(line: &str) -> Json {
    serde_json::from_str(line).unwrap()
}
