//! Which process this is.
//!
//! A fork has a copy of all memory, but of the threads only the one that made it, so what needs the others must know
//! that it is in a fork. Asking the system for the process's number takes as long as a short transaction has; on Linux
//! there is a page of memory instead that forks find empty.

use crate::{
    random,
    sync::atomic::{AtomicU64, Ordering},
};

/// The process in which something was made. Forks of it, which have it as well, are not that process.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// What the mark held, else the number of the process.
    token: u64,
    /// Holds a random number, and 0 in a fork that owns nothing yet: a fork in another namespace may have the number of
    /// its parent. Relaxed: it never changes in a process but from 0.
    mark: Option<&'static AtomicU64>,
}

impl Owner {
    /// This process.
    pub fn here() -> Owner {
        let Some(mark) = mark() else { return Owner { token: u64::from(id()), mark: None } };
        let token = match mark.load(Ordering::Relaxed) {
            0 => {
                let new = random::seed() | 1;
                mark.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed).err().unwrap_or(new)
            }
            token => token,
        };
        Owner { token, mark: Some(mark) }
    }

    /// Whether this is still the same process.
    #[inline]
    pub fn is_here(&self) -> bool {
        match self.mark {
            Some(mark) => mark.load(Ordering::Relaxed) == self.token,
            None => u64::from(id()) == self.token,
        }
    }
}

/// The number of this process; always 1 in a model or a simulation, which have no other.
fn id() -> u32 {
    if cfg!(any(foreshore_loom, foreshore_sim)) { 1 } else { std::process::id() }
}

/// The page's word, one for the whole program, if the system has such pages.
#[cfg(all(target_os = "linux", not(any(foreshore_loom, foreshore_sim))))]
fn mark() -> Option<&'static AtomicU64> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

    /// One page, or a part of one: the system maps whole ones.
    const BYTES: usize = 4096;
    static MARK: crate::sync::OnceLock<Option<&'static AtomicU64>> = crate::sync::OnceLock::new();
    *MARK.get_or_init(|| {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the system chooses a place where nothing is.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), BYTES, access, flags) }.ok()?;
        // SAFETY: the page is this function's alone. That a fork finds it zeroed is a value like others. Systems that
        // know nothing of that refuse; then the page stays unused.
        unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork) }.ok()?;
        // SAFETY: it is aligned as pages are, zeroed, never unmapped, and from now on used as this atomic only.
        Some(unsafe { AtomicU64::from_ptr(page.cast()) })
    })
}

#[cfg(not(all(target_os = "linux", not(any(foreshore_loom, foreshore_sim)))))]
fn mark() -> Option<&'static AtomicU64> {
    None
}

#[cfg(all(test, unix, not(any(foreshore_loom, foreshore_sim))))]
mod tests {
    use std::{io, os::unix::process::CommandExt, process::Command};

    use super::*;

    /// With the page as well as without it.
    #[test]
    fn a_fork_knows_that_it_is_one() {
        let owners = || [Owner::here(), Owner { token: u64::from(id()), mark: None }];
        assert!(cfg!(not(target_os = "linux")) || owners()[0].mark.is_some());
        let (inherited, kept, mut command) = (owners(), owners(), Command::new("true"));
        let ask = move || {
            let foreign = inherited.iter().all(|owner| !owner.is_here());
            // It may own something itself, and what it has inherited is still not its own.
            let own = Owner::here().is_here() && inherited.iter().all(|owner| !owner.is_here());
            if foreign && own { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
        };
        // SAFETY: in the fork it asks for the process's number and for random ones, and reads and writes memory; it
        // takes no lock of another thread.
        unsafe { command.pre_exec(ask) };
        assert!(command.status().unwrap().success());
        assert!(kept.iter().all(Owner::is_here));
    }
}
