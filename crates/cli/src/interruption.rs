//! Interruptions (Ctrl-C, a request to terminate, or a hangup) of a subcommand that ends in good order then.

use std::ops::ControlFlow;
#[cfg(not(foreshore_sim))]
use std::{ffi::c_int, fs, io};

use foreshore_env::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
#[cfg(not(foreshore_sim))]
use foreshore_env::{thread, time::Duration};
#[cfg(not(foreshore_sim))]
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

#[cfg(not(foreshore_sim))]
use crate::directory::INTERRUPTED;
use crate::output::CliError;

/// What comes so soon behind the first signal is of the same interruption: of a terminal that is closed a program hears
/// from the shell and from the system, and whoever ends a session may send two signals.
#[cfg(not(foreshore_sim))]
const BURST: Duration = Duration::from_secs(1);
/// Between two looks whether the first signal has come.
#[cfg(not(foreshore_sim))]
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether the program was interrupted. Written when a signal comes; relaxed, because nothing else is told by it.
#[derive(Clone)]
pub(crate) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Begins to listen. A second interruption, a second after the first or later, ends the program at once, as a
    /// crash would, for good order may take long. A hangup is none where it was to be ignored, as under `nohup`.
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
        flag::register(signal, Arc::clone(came))?;
        flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&again))?;
    }
    let came = Arc::clone(came);
    let arm = move || {
        while !came.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
        }
        thread::sleep(BURST);
        again.store(true, Ordering::Relaxed);
    };
    // Where the system starts no thread, a second interruption is as the first.
    let _ = thread::Builder::new().spawn(arm);
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
