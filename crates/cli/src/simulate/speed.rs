//! `foreshore simulate speed`: how fast the simulator itself is.

use std::{
    fs,
    io::{self, Read, Write},
    process::ExitCode,
};

use foreshore_env::{
    CachePadded, hint, random,
    sim::{self, Device, Profile, Settings, World},
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
    time::{Duration, Instant},
};
use serde::Serialize;
use serde_json::json;

use super::SpeedArgs;
use crate::output::{CliError, json_line, line};

/// Words of the measurements, each on a line of its own.
const WORDS: usize = 1024;
/// One access in this many changes something.
const CHANGE_EVERY: u64 = 16;

/// What the threads do.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// Each has words of its own: all accesses hit, and every one has its turn.
    Own,
    /// All read and change the same words: lines move.
    Shared,
    /// All want one latch, and spin for it.
    Latch,
}

impl Pattern {
    const ALL: [Pattern; 3] = [Pattern::Own, Pattern::Shared, Pattern::Latch];

    fn name(self) -> &'static str {
        match self {
            Pattern::Own => "words of their own",
            Pattern::Shared => "words that all change",
            Pattern::Latch => "one spinning latch",
        }
    }
}

/// What one measurement came to.
#[derive(Serialize)]
struct Speed {
    pattern: &'static str,
    cores: usize,
    accesses: u64,
    /// Of virtual time.
    virtual_seconds: f64,
    cpu_seconds: f64,
    accesses_per_cpu_second: f64,
}

pub(super) fn run(args: &SpeedArgs) -> Result<ExitCode, CliError> {
    let mut speeds = Vec::new();
    for &cores in &args.cores {
        for pattern in Pattern::ALL {
            let speed = measure(pattern, cores as usize, args.millions * 1_000_000)?;
            if !args.json {
                line(format!(
                    "{cores:>5} cores, {:<22}{:>8.1} M accesses a second of CPU ({:.2} s, {:.6} s virtual)",
                    speed.pattern,
                    speed.accesses_per_cpu_second / 1e6,
                    speed.cpu_seconds,
                    speed.virtual_seconds
                ))?;
            }
            speeds.push(speed);
        }
    }
    if args.json {
        json_line(&json!({ "speeds": speeds }))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(pattern: Pattern, cores: usize, accesses: u64) -> Result<Speed, CliError> {
    // The machine of the 80 cores; it has no room for a thousand.
    let name = if cores <= 80 { "westmere8x10" } else { "mesh1024" };
    let profile = Box::new(Profile::named(name).expect("a machine of this name").clone());
    let settings = Settings {
        seed: 1,
        world: World::Machine { profile, cores },
        device: Device::named("plp").expect("a device of this name"),
        limit: Duration::from_secs(7200),
    };
    let simulated = sim::simulate(&settings, || {
        let begin = cpu_seconds();
        hammer(pattern, cores, accesses / cores as u64);
        cpu_seconds() - begin
    });
    let simulated = simulated.map_err(|failed| CliError::Other(failed.to_string()))?;
    let cpu_seconds = simulated.result;
    Ok(Speed {
        pattern: pattern.name(),
        cores,
        accesses: simulated.accesses,
        virtual_seconds: simulated.elapsed.as_secs_f64(),
        cpu_seconds,
        accesses_per_cpu_second: simulated.accesses as f64 / cpu_seconds.max(1e-9),
    })
}

/// Threads on all cores, each of which makes about so many accesses.
fn hammer(pattern: Pattern, cores: usize, each: u64) {
    let words: Vec<CachePadded<AtomicU64>> =
        (0..WORDS.max(cores)).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
    let held = CachePadded::new(AtomicBool::new(false));
    let begin = Instant::now() + Duration::from_millis(100);
    thread::scope(|scope| {
        for core in 0..cores {
            let (words, held) = (&words, &held);
            scope.spawn(move || {
                // All begin at the same moment: threads start one after the other.
                thread::sleep(begin.saturating_duration_since(Instant::now()));
                let mut random = random::Xorshift::new(core as u64 + 1);
                match pattern {
                    Pattern::Own => (0..each).for_each(|number| touch(&words[core], number)),
                    Pattern::Shared => (0..each)
                        .for_each(|number| touch(&words[random.below(WORDS as u64) as usize], number)),
                    // Whenever somebody leaves, all others look, and try to enter.
                    Pattern::Latch => (0..each.div_ceil(2 * cores as u64)).for_each(|_| {
                        let enter = || !held.load(Relaxed) && !held.swap(true, Acquire);
                        while !hint::spin_until(u64::MAX, enter) {}
                        words[0].store(words[0].load(Relaxed) + 1, Relaxed);
                        held.store(false, Release);
                    }),
                }
            });
        }
    });
}

fn touch(word: &AtomicU64, number: u64) {
    if number.is_multiple_of(CHANGE_EVERY) {
        word.fetch_add(1, Relaxed);
    } else {
        word.load(Relaxed);
    }
}

/// Tells a person how fast the simulator was since it had used so many seconds of CPU, but for what it `prepared` in so
/// many. Not part of the output, which is the same on every machine.
pub(super) fn tell_speed(accesses: u64, begun: f64, prepared: f64) {
    let millions = accesses as f64 / 1e6;
    let seconds = cpu_seconds() - begun - prepared;
    // Standard error may be closed; nobody misses it then.
    let _ = writeln!(
        io::stderr().lock(),
        "simulated {millions:.1} M accesses in {seconds:.2} s of CPU, after {prepared:.2} s of preparation: \
         {:.1} M a second",
        millions / seconds.max(1e-9)
    );
}

/// Seconds of CPU that this thread has used, by Linux' count; 0 elsewhere. Of the real world: for how fast the
/// simulator is.
///
/// Nothing is allocated: within a simulation the memory would be the simulated program's, and of the program's
/// addresses none may depend on how many digits this machine tells (ENV-6).
pub(super) fn cpu_seconds() -> f64 {
    // Three numbers of 64 bits and what separates them.
    let mut text = [0; 64];
    #[allow(
        clippy::disallowed_types,
        reason = "a file of the real system, which is no part of the simulation"
    )]
    let count = fs::File::open("/proc/thread-self/schedstat").and_then(|mut file| file.read(&mut text));
    count.ok().and_then(|count| seconds(&text[..count])).unwrap_or(0.0)
}

/// The first of the numbers `1234567890 567 8`, which are nanoseconds, in seconds.
fn seconds(schedule: &[u8]) -> Option<f64> {
    let first = schedule.split(|byte| *byte == b' ').next()?;
    Some(str::from_utf8(first).ok()?.parse::<f64>().ok()? / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_times_are_understood() {
        assert_eq!(seconds(b"1500000000 567 8\n"), Some(1.5));
        assert_eq!(
            seconds(b"18446744073709551615 18446744073709551615 1\n").map(f64::trunc),
            Some(18_446_744_073.0)
        );
        for damaged in [&b""[..], b"x 1", b" 1 2", b"\xff 1"] {
            assert_eq!(seconds(damaged), None);
        }
    }

    /// What this machine tells had the length of its text in the memory of the simulated program, 16 or 17 bytes by how
    /// busy it had been: from one size class to the next, so that all that was allocated behind it moved.
    #[test]
    fn to_look_at_the_real_clock_leaves_the_simulated_memory_alone() {
        let settings = Settings {
            seed: 1,
            world: World::Machine { profile: Box::new(Profile::named("vm2").unwrap().clone()), cores: 1 },
            device: Device::named("plp").unwrap(),
            limit: Duration::from_secs(1),
        };
        let allocated = sim::simulate(&settings, || {
            let before = sim::tally().unwrap().allocations;
            cpu_seconds();
            sim::tally().unwrap().allocations - before
        });
        assert_eq!(allocated.unwrap().result, 0);
    }
}
