//! What a machine is: its cores, its caches, and what takes how long. The machines themselves are in `machines.rs`,
//! with the sources of their figures.
//!
//! A latency is looked up by the *distance* between two cores: the same cluster (cores that share a cache), the same
//! socket, one hop, two hops. Times are cycles of the machine's own clock, but for those that are called nanoseconds.

mod machines;
mod variants;

pub use self::machines::PROFILES;

/// How many distances there are.
pub(super) const DISTANCES: usize = 4;

/// A machine. Public figures; their sources stand beside them.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What it is called.
    pub name: &'static str,
    /// What it is.
    pub description: &'static str,
    /// Sockets, 16 at most.
    pub sockets: usize,
    /// Hardware threads of a socket.
    pub cores_per_socket: usize,
    /// Hardware threads that share a cache.
    pub cores_per_cluster: usize,
    /// Hardware threads of a core: they have all caches in common.
    pub threads_per_core: usize,
    /// Whether the sockets are the corners of a cube, so that some are two hops apart; otherwise all are one hop apart.
    pub cube: bool,
    /// Cycles in a nanosecond.
    pub gigahertz: f64,
    /// A load or store that hits the core's own cache. Those of different words overlap: what counts is how many can be
    /// made in a time, not how long one takes; where several are made in a cycle, it is a part of one.
    pub hit: f64,
    /// What an atomic change adds.
    pub change: u64,
    /// A load of a line that another core has changed, by its distance.
    pub load_modified: [u64; DISTANCES],
    /// A load of a line that others have but nobody has changed.
    pub load_shared: [u64; DISTANCES],
    /// Making a line one's own, by the distance of the farthest copy.
    pub own: [u64; DISTANCES],
    /// A line that no cache has, by the distance of its home.
    pub memory: [u64; DISTANCES],
    /// How long a load of a shared line keeps the line busy for others.
    pub occupancy: [u64; DISTANCES],
    /// What each copy that must go adds.
    pub invalidate_each: u64,
    /// Whether a load takes a line away from an owner that has changed it, with the right to change it: whoever reads
    /// what another has written will write it, too, most often. If the owner has only loaded it, both share it.
    pub migrates: bool,
    /// Percent of a transfer during which the old owner still hits.
    pub retention_percent: u64,
    /// By how many percent at most a transfer takes more or less than what stands here; evenly drawn.
    pub spread_percent: u64,
    /// Percent of a transfer that are left for an access which has waited for the line at least as long as the rest
    /// takes.
    pub queued_percent: u64,
    /// Bytes of a core's own caches.
    pub own_cache_bytes: u64,
    /// A line that no core has, but that a socket's last cache still holds.
    pub cached: u64,
    /// Bytes of that cache.
    pub cache_bytes: u64,
    /// Computation before an access to another word than the last one and the one behind that, outside of latches,
    /// locks and messages.
    pub computation: u64,
    /// The same in locks and messages.
    pub lock_computation: u64,
    /// The same in latches, and in loops that measure them or memory, where any word of the last line follows.
    pub latch_computation: f64,
    /// Computation before an access to the word that was accessed last, or the one behind it, outside of latches.
    pub following: u64,
    /// How much of what follows an atomic change is done in the time which that takes.
    pub shadow: u64,
    /// How long a store stays in the core's buffer if its line is there: an atomic change or a fence behind it waits.
    pub drain: u64,
    /// How much may be computed between misses whose lines are under way at one time, from the first on: what the
    /// core's buffer of begun instructions has room for.
    pub window: u64,
    /// Whether misses before and behind an atomic change may be under way with its own.
    pub changes_overlap: bool,
    /// Whether an atomic change holds its line when it is nearly done, and not from its beginning: a core that has
    /// asked for the line before takes it away until then. (Whoever asks meanwhile finds it changed.) What is taken
    /// again and again by one core is free most of the time then.
    pub changes_begin_late: bool,
    /// One pause of a spinning loop.
    pub pause: u64,
    /// A call of the system that lets others run, when there is nobody.
    pub yielding: u64,
    /// Nanoseconds that it takes the system to wake a thread, for the thread that wakes it; and from then on until an
    /// idle processor runs it.
    pub wake_ns: u64,
    /// See there.
    pub wake_up_ns: u64,
}
