//! The machine's memory before each run.

use std::fs;

use foreshore::Options;
use foreshore_env::hint;

/// Touches as much memory as the `cache` of an engine may have, and gives it back. A virtual machine's host may have
/// taken what nobody used for a few seconds, and gives it again page by page, which was measured to take 2 to 13 µs for
/// 4 KiB: without this a run pays for what was idle before it, and most of all that of an engine with a cache of its
/// own. Linux only; never more than half of what is free, so that nothing else has to go.
pub(super) fn touch(cache: &str) {
    let mut options = Options::default();
    if options.set("pool_bytes", cache).is_err() {
        return;
    }
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(options.pool_bytes.min(free() / 2)).is_ok() {
        let memory = memory.spare_capacity_mut();
        hint::huge_pages(memory);
        hint::populate(memory);
    }
}

/// Bytes that can be had without taking them from anybody, if the system tells (`proc(5)`).
fn free() -> usize {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free =
        told.lines().find_map(|line| line.strip_prefix("MemFree:")?.strip_suffix("kB")?.trim().parse().ok());
    free.map_or(0, |kib: usize| kib.saturating_mul(1024))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_what_is_free() {
        assert!(free() > 0);
    }
}
