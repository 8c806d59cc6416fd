//! The process of the run that is under way, which an interruption ends together with the program.

use std::{
    io,
    process::{Child, Command, ExitStatus},
};

use foreshore_env::sync::{Arc, Mutex};

/// Holds the process. A terminal interrupts it, too; a signal that is sent to the program alone does not come to it,
/// and it would work in its directory while that is removed.
#[derive(Clone, Debug, Default)]
pub(super) struct Leash(Arc<Mutex<Held>>);

/// Guarded by the mutex.
#[derive(Debug, Default)]
struct Held {
    child: Option<Child>,
    /// The program ends, and nothing more is started.
    ended: bool,
}

impl Leash {
    /// Starts a process in the place of the last one; gives what `take` takes of it.
    pub(super) fn start<T>(
        &self,
        command: &mut Command,
        take: impl FnOnce(&mut Child) -> T,
    ) -> io::Result<T> {
        // Kept until it is held: else an interruption could come between.
        let mut held = self.0.lock();
        if held.ended {
            return Err(io::Error::other("interrupted"));
        }
        Ok(take(held.child.insert(command.spawn()?)))
    }

    /// How it has ended, if it has.
    pub(super) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.0.lock().child.as_mut().map_or(Ok(None), Child::try_wait)
    }

    /// Ends it. It has ended already if that fails.
    pub(super) fn kill(&self) {
        if let Some(child) = &mut self.0.lock().child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends it, and whatever would come after it.
    pub(super) fn end(&self) {
        self.0.lock().ended = true;
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_ends_and_nothing_comes_after_it() {
        let leash = Leash::default();
        assert_eq!(leash.try_wait().unwrap(), None);
        let mut sleep = Command::new("/bin/sleep");
        sleep.arg("60");
        leash.start(&mut sleep, |_| ()).unwrap();
        assert_eq!(leash.try_wait().unwrap(), None);
        leash.end();
        assert!(leash.try_wait().unwrap().is_some_and(|status| !status.success()));
        assert!(leash.start(&mut sleep, |_| ()).is_err());
    }
}
