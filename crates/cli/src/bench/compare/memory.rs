//! The machine's memory before each run.

use std::{fs, path::Path};

use foreshore::Options;
use foreshore_env::hint;

/// Touches as much memory as the `cache` of an engine may have, and gives it back. A virtual machine's host may have
/// taken what nobody used for a few seconds, and gives it again page by page, which was measured to take 2 to 13 µs for
/// 4 KiB: without this a run pays for what was idle before it, and most of all that of an engine with a cache of its
/// own. Linux only; never more than half of what is free and allowed, so that nothing else has to go.
pub(super) fn touch(cache: &str) {
    let mut options = Options::default();
    if options.set("pool_bytes", cache).is_err() {
        return;
    }
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(options.pool_bytes.min(free().min(allowed()) / 2)).is_ok() {
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

/// Bytes that the groups of this process may still have, if the system tells (`cgroups(7)`, version 2).
fn allowed() -> usize {
    let root = Path::new("/sys/fs/cgroup");
    let told = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = told.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let left = |group: &Path| {
        // Without a limit there is "max".
        let bytes = |file| fs::read_to_string(group.join(file)).ok()?.trim().parse::<usize>().ok();
        Some(bytes("memory.max")?.saturating_sub(bytes("memory.current")?))
    };
    let group = root.join(own);
    group.ancestors().take_while(|group| group.starts_with(root)).filter_map(left).min().unwrap_or(usize::MAX)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_what_is_free() {
        assert!(free() > 0);
    }
}
