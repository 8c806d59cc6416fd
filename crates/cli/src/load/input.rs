//! The file that is loaded, which Ctrl-C ends.

use std::{
    fs,
    io::{self, Cursor, Read},
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
};

use foreshore_env::{thread, time::Duration};

use crate::{interruption::Interruption, output::CliError};

/// How many bytes are read at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// How long a chunk is waited for between two looks whether the program was interrupted.
const LOOK: Duration = Duration::from_millis(50);

type Chunk = io::Result<Vec<u8>>;

/// An input that fails when the program is interrupted. A thread of its own reads it, so that this is noticed also
/// while it gives nothing.
pub(super) struct Input {
    chunks: Receiver<Chunk>,
    chunk: Cursor<Vec<u8>>,
    interruption: Interruption,
}

impl Input {
    /// Begins to read, and to listen for Ctrl-C: once in a program.
    pub(super) fn new(source: impl Read + Send + 'static) -> Result<Input, CliError> {
        let (sender, chunks) = sync_channel(1);
        let interruption = Interruption::listen()?;
        let reader = thread::Builder::new().spawn(move || read_ahead(source, &sender));
        reader.map_err(CliError::io("start the thread that reads the input"))?;
        Ok(Input { chunks, chunk: Cursor::default(), interruption })
    }

    pub(super) fn interruption(&self) -> Interruption {
        self.interruption.clone()
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut is_used_up = self.chunk.position() == self.chunk.get_ref().len() as u64;
        while !self.interruption.came() {
            if !is_used_up {
                return self.chunk.read(buffer);
            }
            match self.chunks.recv_timeout(LOOK) {
                // An empty one is the end.
                Ok(chunk) => (self.chunk, is_used_up) = (Cursor::new(chunk?), false),
                Err(RecvTimeoutError::Timeout) => {}
                Err(error @ RecvTimeoutError::Disconnected) => return Err(io::Error::other(error)),
            }
        }
        Err(io::Error::other("interrupted"))
    }
}

/// Gives one chunk after the other, and behind the end, or an error, empty ones, until nobody takes them.
fn read_ahead(mut source: impl Read, sender: &SyncSender<Chunk>) {
    let mut ended = false;
    loop {
        let mut chunk = vec![0; if ended { 0 } else { CHUNK_BYTES }];
        // Behind the end nothing more is taken from a terminal or a pipe: it is for others.
        let read = if ended { Ok(0) } else { source.read(&mut chunk) };
        if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
            // A signal came, and nothing was read.
            continue;
        }
        ended |= !matches!(read, Ok(1..));
        let read = read.map(|length| {
            chunk.truncate(length);
            chunk
        });
        if sender.send(read).is_err() {
            return;
        }
    }
}

/// Where bytes come from.
pub(super) type Source = Box<dyn Read + Send>;

/// The source, and its length when that is known.
pub(super) fn open(file: &Path) -> Result<(Source, Option<u64>), CliError> {
    if file == Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let trouble = || format!("read {}", file.display());
    let length = fs::metadata(file).map_err(CliError::io(trouble()))?;
    if length.is_dir() {
        return Err(CliError::usage(format!("{} is a directory", file.display()), "name a file"));
    }
    #[allow(clippy::disallowed_types, reason = "the user's file, not a part of a database")]
    let opened = fs::File::open(file).map_err(CliError::io(trouble()))?;
    Ok((Box::new(opened), length.is_file().then_some(length.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives two chunks, and what a signal makes of a read between them.
    struct Disturbed(u8);

    impl Read for Disturbed {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            match self.0 {
                1 | 3 => {
                    buffer[0] = self.0;
                    Ok(1)
                }
                2 => Err(io::ErrorKind::Interrupted.into()),
                _ => Ok(0),
            }
        }
    }

    #[test]
    fn a_signal_is_not_the_end() {
        let (sender, chunks) = sync_channel(1);
        let reader = thread::spawn(move || read_ahead(Disturbed(0), &sender));
        let read: Vec<Vec<u8>> = (0..3).map(|_| chunks.recv().unwrap().unwrap()).collect();
        assert_eq!(read, [vec![1], vec![3], vec![]]);
        drop(chunks);
        reader.join().unwrap();
    }
}
