//! What only the staged table does: it uses requests up, cleans chains, and recycles segments.

use std::{
    cell::{Cell, RefCell},
    ops::Range,
};

use foreshore_base::TxnId;
use foreshore_env::random::Xorshift;
use foreshore_env::sync::Arc;
use foreshore_env::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use foreshore_env::thread;
use foreshore_env::time::{Duration, Instant};

use crate::mode::KeyMode;
use crate::name::LockName;
use crate::options::{LockOptions, LockTableKind};
use crate::request::{FreeRequests, Modes, RequestIndex, SEGMENT};
use crate::slot::{SlotId, Slots};
use crate::table::{LockTable, Queues};
use crate::{Age, KeyRef, LockError, LockManager, WaitPolicy};

const BUCKETS: usize = 64;

/// Where scenes with threads run: outside of a simulation the simulated world has no threads, and its clock stands
/// still.
mod worlds {
    #[cfg(not(foreshore_sim))]
    pub(super) fn run(scene: fn()) {
        scene();
    }

    /// A machine with a core for each thread, one with a core for all, and schedules that machines rarely show.
    #[cfg(foreshore_sim)]
    pub(super) fn run(scene: fn()) {
        use foreshore_env::sim::{Device, Profile, Schedule, Settings, World, simulate};
        use foreshore_env::time::Duration;

        const SEEDS: u64 = 6;
        let profile = Profile::named("westmere8x10").expect("a machine of this name");
        let machine = |cores| (1, World::Machine { profile: Box::new(profile.clone()), cores });
        let schedules = [Schedule::Random, Schedule::Priorities { changes: 3, within_steps: 1 << 20 }];
        let explorers =
            (1..=SEEDS).flat_map(|seed| schedules.clone().map(|schedule| (seed, World::Explorer(schedule))));
        let device = Device::named("plp").expect("a device of this name");
        for (seed, world) in [machine(1), machine(4)].into_iter().chain(explorers) {
            let settings = Settings { seed, world, device, limit: Duration::from_secs(600) };
            if let Err(failed) = simulate(&settings, scene) {
                panic!("{:?}, seed {seed}: {failed}", settings.world);
            }
        }
    }
}

fn staged(max_locks: usize) -> LockTable {
    let table = LockTableKind::Staged;
    LockTable::new(&LockOptions { buckets: BUCKETS, table, max_locks, ..LockOptions::default() })
}

fn name(number: u64) -> LockName {
    LockName::from_bits(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// A slot with its requests, and what it holds.
struct User<'a> {
    table: &'a LockTable,
    slots: &'a Slots,
    slot: SlotId,
    free: FreeRequests,
    held: Vec<(LockName, RequestIndex)>,
}

impl<'a> User<'a> {
    fn new(table: &'a LockTable, slots: &'a Slots, slot: u16) -> User<'a> {
        let free = FreeRequests::new(SlotId(slot));
        User { table, slots, slot: SlotId(slot), free, held: Vec::new() }
    }

    fn lock(&mut self, name: LockName, mode: KeyMode) -> Result<bool, LockError> {
        let request = self.table.take_request(&mut self.free, self.held.len())?;
        let granted = self.table.try_request(self.slots, name, self.slot, request, mode).is_some();
        if granted {
            self.held.push((name, request));
        } else {
            self.free.give(self.table.requests(), request);
        }
        Ok(granted)
    }

    fn release(&mut self) {
        for (name, request) in self.held.drain(..) {
            self.table.release(self.slots, name, request, None);
        }
        self.free.settle(self.table.requests());
    }
}

fn length(table: &LockTable, name: LockName) -> usize {
    match &table.queues {
        Queues::Staged(staged) => staged.of(name).length(&table.requests),
        _ => unreachable!("made to be staged"),
    }
}

#[test]
fn chains_are_cleaned_by_those_who_come_along() {
    let (table, slots) = (staged(1_000_000), Slots::new());
    let (mut reader, mut writer) = (User::new(&table, &slots, 0), User::new(&table, &slots, 1));
    let mut longest = 0;
    for _ in 0..1000 {
        assert!(reader.lock(name(1), KeyMode::S).unwrap());
        // Refused, and of no consequence.
        assert!(!writer.lock(name(1), KeyMode::X).unwrap());
        longest = longest.max(length(&table, name(1)));
        reader.release();
    }
    assert!((2..=10).contains(&longest), "{longest} requests in a chain");
    assert!(table.is_empty());
    table.sweep(0..BUCKETS);
    assert_eq!(length(&table, name(1)), 0);
}

/// What an idle transaction holds is kept, and nothing else.
#[test]
fn an_idle_old_transaction_pins_only_what_it_holds() {
    let (table, slots) = (staged(1_000_000), Slots::new());
    let mut old = User::new(&table, &slots, 0);
    for number in 0..10 {
        assert!(old.lock(name(number), KeyMode::X).unwrap());
    }
    let mut random = Xorshift::new(1);
    let mut others: Vec<User<'_>> = (1..5).map(|slot| User::new(&table, &slots, slot)).collect();
    for round in 0..100_000 {
        let other = &mut others[round % 4];
        other.lock(name(10 + random.below(500)), KeyMode::S).unwrap();
        if round % 7 == 0 {
            other.release();
        }
    }
    // 16 before the first sweep, and then as many as are in the slots' hands.
    let (allocated, _) = table.requests().segments_allocated();
    assert!(allocated <= 24, "{allocated} segments for 100,000 locks");
    assert!(!others[0].lock(name(3), KeyMode::S).unwrap(), "the old locks hold");
    others.iter_mut().for_each(User::release);
    old.release();
    assert!(table.is_empty());
}

/// Others may wait for the locks of a thread that needs requests: it looks at a few buckets, and all have had their
/// turn when as many requests were used as there are buckets.
#[test]
fn who_needs_requests_sweeps_as_many_buckets_as_a_segment_has_requests() {
    const MANY: usize = 64 * SEGMENT;
    let table = LockTable::new(&LockOptions {
        buckets: MANY,
        table: LockTableKind::Staged,
        ..LockOptions::default()
    });
    let slots = Slots::new();
    let mut free = FreeRequests::new(SlotId(0));
    let swept = RefCell::new(Vec::new());
    for number in 0..20 * MANY as u64 {
        let sweep = |buckets: Range<usize>| {
            swept.borrow_mut().push(buckets.len());
            table.sweep(buckets);
        };
        let request = free.take(table.requests(), 0, sweep).unwrap();
        assert!(table.try_request(&slots, name(number), SlotId(0), request, KeyMode::S).is_some());
        table.release(&slots, name(number), request, None);
    }
    let swept = swept.into_inner();
    assert!(swept.len() > 64 && swept.iter().all(|&buckets| buckets == SEGMENT), "{swept:?}");
    // 64 before the first round, and what is used in a round, from one visit to the next.
    let (allocated, _) = table.requests().segments_allocated();
    assert!(allocated <= 3 * 64, "{allocated} segments for {MANY} buckets");
}

/// A look that does not end pins everything; then there is an error and no hang, and afterwards all is well.
#[test]
fn a_look_that_stands_still_uses_the_memory_up_and_gives_it_back() {
    let (table, slots) = (staged(256), Slots::new());
    let mut user = User::new(&table, &slots, 0);
    let looker = SlotId(7);
    table.requests().staging().begin_look(looker);
    let mut locks = 0_u64;
    let refused = loop {
        match user.lock(name(locks % 50), KeyMode::S) {
            Ok(_) => user.release(),
            Err(error) => break error,
        }
        locks += 1;
    };
    assert!(matches!(refused, LockError::TooManyLocks { limit: 256 }), "{refused}");
    // Every segment was used once.
    assert_eq!(locks, 2 * (1024 + 1) * 256);
    table.requests().staging().end_look(looker);
    for _ in 0..locks {
        user.lock(name(1), KeyMode::S).unwrap();
        user.release();
    }
    assert!(table.is_empty());
}

/// The request of a failed attempt, the last of its segment, is unlinked and recycled before its owner gives it back:
/// it looked free then, and was two transactions' at the same time.
#[test]
fn a_request_that_was_recycled_is_not_given_back() {
    let (table, slots) = (staged(1_000_000), Slots::new());
    let users = [0, 1, 2].map(|slot| User::new(&table, &slots, slot));
    let [mut owner, mut holder, mut other] = users;
    assert!(holder.lock(name(1), KeyMode::X).unwrap());
    for number in 2..=SEGMENT as u64 {
        assert!(owner.lock(name(number), KeyMode::S).unwrap());
    }
    owner.release();
    let (requests, mut last) = (table.requests(), table.take_request(&mut owner.free, 0).unwrap());
    assert!(table.try_request(&slots, name(1), SlotId(0), last, KeyMode::S).is_none());
    // Its place at the end of the chain.
    assert!(!other.lock(name(1), KeyMode::S).unwrap());
    table.sweep(0..BUCKETS);
    assert!(requests.recycle() > 0, "its segment is free");
    owner.free.give(requests, last);
    let mut taken = std::collections::BTreeSet::new();
    for _ in 0..2 * SEGMENT {
        for free in [&mut owner.free, &mut other.free] {
            last = table.take_request(free, 0).unwrap();
            assert!(taken.insert(last.0), "{last:?} is two owners'");
        }
    }
}

/// Whatever is recycled meanwhile, a lock is exclusive.
#[test]
fn recycling_beside_looks_loses_no_lock() {
    worlds::run(recycling_beside_looks);
}

fn recycling_beside_looks() {
    const THREADS: u16 = 4;
    const NAMES: u64 = 12;
    let table =
        LockTable::new(&LockOptions { buckets: 4, table: LockTableKind::Staged, ..LockOptions::default() });
    let slots = Slots::new();
    let holders: Vec<AtomicU32> = (0..NAMES).map(|_| AtomicU32::new(0)).collect();
    let granted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for slot in 0..THREADS {
            let (table, slots, holders, granted) = (&table, &slots, &holders, &granted);
            scope.spawn(move || {
                let mut user = User::new(table, slots, slot);
                let mut random = Xorshift::new(u64::from(slot) + 1);
                for _ in 0..10_000 {
                    let mut taken = Vec::new();
                    // In order, one name once.
                    for number in 0..NAMES {
                        let exclusive = random.below(4) == 0;
                        let mode = if exclusive { KeyMode::X } else { KeyMode::S };
                        if random.below(4) == 0 && user.lock(name(number), mode).unwrap() {
                            // A reader counts 1, a writer 1000.
                            let own = if exclusive { 1000 } else { 1 };
                            let others = holders[number as usize].fetch_add(own, Relaxed);
                            assert!(others < 1000 && (!exclusive || others == 0), "{others} beside {mode}");
                            taken.push((number, own));
                        }
                    }
                    granted.fetch_add(taken.len(), Relaxed);
                    for (number, own) in taken {
                        holders[number as usize].fetch_sub(own, Relaxed);
                    }
                    user.release();
                }
            });
        }
    });
    assert!(table.is_empty());
    assert!(granted.into_inner() > 10_000);
    // Nothing is lost and nothing recycled twice: all but the segments that the four had in hand are ready again.
    table.sweep(0..4);
    table.requests().recycle();
    let (allocated, ready) = table.requests().segments_allocated();
    assert!(ready <= allocated && allocated - ready <= usize::from(THREADS), "{ready} of {allocated}");
}

/// What the pre-allocator does: it makes what is missing, and looks for what can be used again only when as many
/// segments have been made as there may be before; else those who need requests would do that, with their locks held.
#[test]
fn the_preallocator_sweeps_when_it_is_due() {
    let table = staged(1_000_000);
    let swept = Cell::new(0);
    let replenish = || table.requests().replenish(|buckets| swept.set(swept.get() + buckets.len()));
    replenish();
    assert_eq!((table.requests().segments_allocated(), swept.get()), ((8, 8), 0));
    // As many as there may be before a sweep, all of them in hand.
    let mut free = FreeRequests::new(SlotId(0));
    for _ in 0..16 * SEGMENT {
        free.take(table.requests(), 0, |_| unreachable!("there is enough")).unwrap();
    }
    assert_eq!(table.requests().segments_allocated(), (16, 0));
    replenish();
    assert_eq!((table.requests().segments_allocated(), swept.get()), ((24, 8), BUCKETS));
}

/// With no processor to itself it may come late; but it comes, and it ends with its manager.
#[test]
fn the_preallocator_works_and_ends_with_its_manager() {
    worlds::run(preallocator_works_and_ends);
}

fn preallocator_works_and_ends() {
    let options = LockOptions { buckets: BUCKETS, table: LockTableKind::Staged, ..LockOptions::default() };
    let manager = LockManager::new(&options);
    let until_ready = |segments| {
        let limit = Instant::now() + Duration::from_secs(120);
        while manager.table.requests().segments_allocated().1 < segments {
            assert!(Instant::now() < limit, "the pre-allocator does not come");
            thread::yield_now();
        }
    };
    // The high-water mark; and later the low-water mark, above which it is not called.
    until_ready(8);
    let mut owner = manager.begin(TxnId(1), Age::new(1, 0), None).unwrap();
    for number in 0..10_000_u32 {
        let key = KeyRef::Key(&number.to_be_bytes());
        owner.acquire(foreshore_base::TableId(16), key, KeyMode::X, &WaitPolicy::default()).unwrap();
    }
    until_ready(4);
    let signal = Arc::clone(manager.table.requests().signal().unwrap());
    drop(owner);
    drop(manager);
    assert_eq!(Arc::strong_count(&signal), 1, "the thread has gone");
}

/// A conversion waits, and a transaction asks for the lock that has not seen that yet. It is in no digest (LOCK-11),
/// and a look between two naps took that for a fault.
#[test]
fn a_claim_is_in_the_way_for_a_moment_only() {
    worlds::run(claim_passes_a_wait);
}

fn claim_passes_a_wait() {
    let options = LockOptions { buckets: BUCKETS, table: LockTableKind::Staged, ..LockOptions::default() };
    let manager = LockManager::new(&options);
    let (table, key, wait) = (foreshore_base::TableId(16), KeyRef::Key(b"k"), WaitPolicy::default());
    let begin = |txn| manager.begin(TxnId(txn), Age::new(txn, 0), None).unwrap();
    let (mut holder, mut waiter) = (begin(1), begin(2));
    for owner in [&mut holder, &mut waiter] {
        owner.acquire(table, key, KeyMode::S, &wait).unwrap();
    }
    assert!(!waiter.ask(table, key, KeyMode::X, &wait).unwrap());
    assert!(!waiter.look(&wait).unwrap());

    let slot = SlotId(100);
    let mut free = FreeRequests::new(slot);
    let request = manager.table.take_request(&mut free, 0).unwrap();
    let requests = manager.table.requests();
    let name = manager.name(table, key).unwrap();
    requests.get(request).set(name, slot, Modes::claim(KeyMode::S));
    let Queues::Staged(staged) = &manager.table.queues else { unreachable!("made to be staged") };
    staged.of(name).queue.list.push(requests, request);
    thread::sleep(Duration::from_millis(20));
    assert!(!waiter.look(&wait).unwrap(), "a look that takes the digest anew");
    requests.get(request).make_obsolete();
    holder.release_all(None);
    assert!(waiter.look(&wait).unwrap());
}
