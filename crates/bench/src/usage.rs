//! What this process has cost the machine, as Linux tells of it; elsewhere, and on a simulated machine, nothing is
//! known.

use foreshore_env::time::Duration;

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

/// Cycles of the processor's clock in a nanosecond, as Linux says at this moment; of a simulated machine, what its
/// profile says.
pub(crate) fn cycles_per_ns() -> Option<f64> {
    #[cfg(foreshore_sim)]
    return foreshore_env::sim::cycles_per_ns();
    #[cfg(not(foreshore_sim))]
    clock(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// The first line `cpu MHz : 2596.138` of `/proc/cpuinfo`.
#[cfg_attr(
    foreshore_sim,
    allow(dead_code, reason = "the machine that simulates is not the one that is measured")
)]
fn clock(processors: &str) -> Option<f64> {
    let line = processors.lines().find_map(|line| line.strip_prefix("cpu MHz"))?;
    let megahertz: f64 = line.trim_start().strip_prefix(':')?.trim().parse().ok()?;
    (megahertz > 0.0).then_some(megahertz / 1000.0)
}

/// How long the calling thread has waited for a processor by now, ready to run.
pub(crate) fn waited_here() -> Option<Duration> {
    if cfg!(foreshore_sim) {
        return None;
    }
    waited(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// The second of the numbers `1234 567 8` of `/proc/thread-self/schedstat`.
fn waited(schedule: &str) -> Option<Duration> {
    Some(Duration::from_nanos(schedule.split_ascii_whitespace().nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_has_waited_is_understood() {
        assert_eq!(waited("1234 567 8\n"), Some(Duration::from_nanos(567)));
        for damaged in ["", "1234", "1234 x 8"] {
            assert_eq!(waited(damaged), None);
        }
    }

    #[test]
    fn the_clock_is_understood() {
        assert_eq!(clock("processor\t: 0\ncpu MHz\t\t: 2500.5\ncache size\t: 1 KB\n"), Some(2.5005));
        for damaged in ["", "cpu MHz", "cpu MHz\t: x", "cpu MHz\t: 0"] {
            assert_eq!(clock(damaged), None);
        }
    }

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
