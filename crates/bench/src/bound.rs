//! Threads that stay on a processor each, and how far two of these are from each other.

use foreshore_env::{
    CachePadded,
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{BenchError, threads::start, usage};

/// Messages by which a distance is measured, and those before them, by which the two threads come together; even.
const MESSAGES: u64 = 2000;
const FIRST_MESSAGES: u64 = 100;

/// Whether so many threads can have a processor each and stay on it.
pub(crate) fn check_binding(threads: usize) -> Result<(), BenchError> {
    // Of a thread of its own: a thread that has tried would stay where it is.
    let (processors, binds) = thread::scope(|scope| {
        let trial = start(scope, "a thread that tries to stay", || (thread::processors(), thread::pin(0)))?;
        Ok::<_, BenchError>(trial.join().unwrap_or((0, false)))
    })?;
    if !binds {
        return Err(BenchError::invalid(
            "threads cannot be bound to processors here: that takes Linux, or a simulated machine",
        ));
    }
    if threads > processors {
        return Err(BenchError::invalid(format!(
            "{threads} threads cannot have a processor each: there are {processors} to run on"
        )));
    }
    Ok(())
}

/// One of two threads that tell each other numbers by one word, which is 0 at first: each tries to exchange the other's
/// number for its own until it can.
pub(crate) struct Messenger<'w> {
    word: &'w CachePadded<AtomicU64>,
    begins: bool,
    /// The number of the last message.
    last: u64,
}

impl<'w> Messenger<'w> {
    /// The one that begins, or the other.
    pub(crate) fn new(word: &'w CachePadded<AtomicU64>, begins: bool) -> Messenger<'w> {
        Messenger { word, begins, last: 0 }
    }

    /// Takes part in so many messages, every other of which is its own; an even number.
    pub(crate) fn exchange(&mut self, messages: u64) {
        let end = self.last + messages;
        for number in (self.last + u64::from(!self.begins)..end).step_by(2) {
            while self.word.compare_exchange(number, number + 1, AcqRel, Relaxed).is_err() {}
        }
        self.last = end;
    }

    /// How long a message takes, in nanoseconds, if both ask.
    pub(crate) fn message_ns(&mut self) -> f64 {
        self.exchange(FIRST_MESSAGES);
        let begin = Instant::now();
        self.exchange(MESSAGES);
        begin.elapsed().as_nanos() as f64 / MESSAGES as f64
    }
}

/// A thread that stays on a processor of its own, and sees what disturbs it there.
pub(crate) struct Bound<'w> {
    /// The first two threads of several have one.
    messenger: Option<Messenger<'w>>,
    messages_ns: Vec<f64>,
    /// When it was bound, and how long it had waited for a processor by then.
    begun: Option<(Instant, Duration)>,
}

/// What bound threads have seen.
#[derive(Clone, Default)]
pub(crate) struct Seen {
    /// How long a message took between the first two threads, before and after.
    pub(crate) messages_ns: Vec<f64>,
    /// For how much of its time it was ready to run and did not, in percent; `None` where nobody tells.
    pub(crate) waited_percent: Option<f64>,
}

impl Seen {
    /// What several have seen: all messages, and the longest wait.
    pub(crate) fn of(several: impl Iterator<Item = Seen>) -> Seen {
        several.fold(Seen::default(), |mut all, seen| {
            all.messages_ns.extend(seen.messages_ns);
            all.waited_percent = all.waited_percent.into_iter().chain(seen.waited_percent).reduce(f64::max);
            all
        })
    }
}

impl<'w> Bound<'w> {
    /// Binds the calling thread, the `number`-th of `threads`, which all have the same `word`.
    pub(crate) fn new(number: usize, threads: usize, word: &'w CachePadded<AtomicU64>) -> Bound<'w> {
        // That it can has been tried.
        let _ = thread::pin(number);
        let mut messenger = (threads > 1 && number < 2).then(|| Messenger::new(word, number == 0));
        let messages_ns = messenger.iter_mut().map(Messenger::message_ns).collect();
        // From here on: a thread that gets no processor when it is to begin would begin, and tell of itself, only when
        // it has one.
        let begun = usage::waited_here().map(|waited| (Instant::now(), waited));
        Bound { messenger, messages_ns, begun }
    }

    /// What is measured is over.
    pub(crate) fn end(mut self) -> Seen {
        let waited_percent = self.begun.zip(usage::waited_here()).map(|((begin, before), waited)| {
            let all = begin.elapsed().as_secs_f64();
            waited.saturating_sub(before).as_secs_f64() * 100.0 / all.max(f64::MIN_POSITIVE)
        });
        self.messages_ns.extend(self.messenger.as_mut().map(Messenger::message_ns));
        Seen { messages_ns: self.messages_ns, waited_percent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_tell_each_other_numbers() {
        let word = CachePadded::new(AtomicU64::new(0));
        let talk = |begins| {
            let mut messenger = Messenger::new(&word, begins);
            [messenger.message_ns(), messenger.message_ns()]
        };
        let times = thread::scope(|scope| {
            let other = scope.spawn(|| talk(false));
            [talk(true), other.join().unwrap()]
        });
        assert!(times.iter().flatten().all(|ns| *ns > 0.0), "{times:?}");
        assert_eq!(word.load(Relaxed), 2 * (FIRST_MESSAGES + MESSAGES));
    }

    #[test]
    fn more_threads_than_processors_are_not_bound() {
        let processors = thread::processors();
        assert_eq!(check_binding(1).is_ok(), cfg!(target_os = "linux"));
        assert_eq!(check_binding(processors).is_ok(), cfg!(target_os = "linux"));
        assert!(check_binding(processors + 1).is_err());
        assert_eq!(thread::processors(), processors, "who asks stays free");
    }
}
