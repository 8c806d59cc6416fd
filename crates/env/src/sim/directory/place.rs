//! Places in the source: how much is computed between their accesses.

use std::panic::Location;

/// Between two accesses to different lines, code computes more in one part of the engine than in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceKind {
    /// A latch: a few instructions, which overlap with the accesses.
    Latch,
    /// The loop that measures latches, and what they guard there; the same.
    Loop,
    /// Locks and messages between threads: lists of requests and rings, from one link to the next.
    Lock,
    /// Everything else.
    Other,
}

impl PlaceKind {
    /// By the file in which it lies.
    #[cold]
    fn of(at: &'static Location<'static>) -> PlaceKind {
        let source = SOURCES.iter().find(|(folder, _)| at.file().contains(folder));
        source.map_or(PlaceKind::Other, |(_, kind)| *kind)
    }
}

/// The sources of each kind; what is in none of them is [`PlaceKind::Other`].
const SOURCES: [(&str, PlaceKind); 7] = [
    ("crates/latch/", PlaceKind::Latch),
    ("crates/env/", PlaceKind::Latch),
    ("crates/bench/src/latch", PlaceKind::Loop),
    ("crates/bench/src/memory", PlaceKind::Loop),
    ("crates/lock/", PlaceKind::Lock),
    ("crates/orthrus/", PlaceKind::Lock),
    ("crates/bench/src/locks", PlaceKind::Lock),
];
/// Places that are remembered. A place that shares another's slot takes it over.
const SLOTS: usize = 1024;

/// What kind of place the places of the last accesses were.
pub(super) struct PlaceKinds(Box<[(Option<&'static Location<'static>>, PlaceKind); SLOTS]>);

impl PlaceKinds {
    pub(super) fn new() -> PlaceKinds {
        PlaceKinds(Box::new([(None, PlaceKind::Other); SLOTS]))
    }

    #[inline]
    pub(super) fn of(&mut self, at: &'static Location<'static>) -> PlaceKind {
        // Locations lie one after the other; where the program lies decides about the time only that this takes.
        let slot = &mut self.0[std::ptr::from_ref(at).addr() / size_of::<Location<'_>>() % SLOTS];
        match slot {
            (Some(known), kind) if std::ptr::eq(*known, at) => *kind,
            _ => {
                *slot = (Some(at), PlaceKind::of(at));
                slot.1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A folder that is moved would otherwise count as one of the others.
    #[test]
    fn the_sources_of_each_kind_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (source, kind) in SOURCES {
            assert!(root.join(source).exists(), "{source} of {kind:?}");
        }
        assert_eq!(PlaceKinds::new().of(Location::caller()), PlaceKind::Latch);
    }
}
