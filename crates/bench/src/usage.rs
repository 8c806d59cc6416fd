//! What this process has cost the machine, as Linux tells of it; elsewhere, and on a simulated machine, nothing is known.

/// The most memory that this process has had at a time, in bytes; pages of mapped files count.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    if cfg!(foreshore_sim) {
        return None;
    }
    peak(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The line `VmHWM:   123 kB` of `/proc/self/status`.
fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_file_is_understood() {
        assert_eq!(peak("Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t   2048 kB\n"), Some(2 << 20));
        for damaged in ["", "VmHWM:", "VmHWM: 12", "VmHWM: x kB"] {
            assert_eq!(peak(damaged), None);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_some() {
        assert!(peak_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
