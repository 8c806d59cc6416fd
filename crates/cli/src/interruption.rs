//! Interruptions (Ctrl-C, a request to terminate, or a hangup) of a subcommand that ends in good order then.

use std::ops::ControlFlow;
#[cfg(not(foreshore_sim))]
use std::{ffi::c_int, fs, io};

use foreshore_env::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
#[cfg(not(foreshore_sim))]
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

#[cfg(not(foreshore_sim))]
use crate::directory::INTERRUPTED;
use crate::output::CliError;

/// Whether the program was interrupted. Written when a signal comes; relaxed, because nothing else is told by it.
#[derive(Clone)]
pub(crate) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Begins to listen. A second interruption ends the program at once, as a crash would, for good order may take
    /// long. A hangup is none where it was to be ignored, as under `nohup`.
    pub(crate) fn listen() -> Result<Interruption, CliError> {
        let came = Arc::new(AtomicBool::new(false));
        // Nothing that ends in good order runs on a simulated machine.
        #[cfg(not(foreshore_sim))]
        listen_for_signals(&came)
            .map_err(|error| CliError::Other(format!("cannot listen for Ctrl-C: {error}")))?;
        Ok(Interruption(came))
    }

    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// What the library's calls that report progress are answered.
    pub(crate) fn flow(&self) -> ControlFlow<()> {
        if self.came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(not(foreshore_sim))]
fn listen_for_signals(came: &Arc<AtomicBool>) -> io::Result<()> {
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGTERM, SIGINT] {
        if signal == SIGHUP && is_ignored(signal) {
            continue;
        }
        // They are gone through in this order when a signal comes, and from the first on none is lost.
        flag::register(signal, Arc::clone(came))?;
        flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&again))?;
        flag::register(signal, Arc::clone(&again))?;
    }
    Ok(())
}

/// Whether the process began with a signal ignored, where the system tells (Linux).
#[cfg(not(foreshore_sim))]
fn is_ignored(signal: c_int) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    ignored.is_some_and(|bits| bits >> (signal - 1) & 1 != 0)
}
