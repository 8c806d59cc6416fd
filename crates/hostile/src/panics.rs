//! Panics of any thread, the engine's own too: those that nobody joins would else be seen by nobody.

use std::panic;

use foreshore_env::sync::{Mutex, OnceLock};

static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Forgets what was seen, and sees whatever panics from now on, beside what is done with that anyway.
pub fn watch() {
    static HOOK: OnceLock<()> = OnceLock::new();
    HOOK.get_or_init(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            SEEN.lock().push(info.to_string());
            before(info);
        }));
    });
    SEEN.lock().clear();
}

/// What has panicked since.
pub fn seen() -> Vec<String> {
    SEEN.lock().clone()
}
