//! Somebody in the middle of an append: what nobody can arrange from outside.

use std::{collections::VecDeque, path::Path};

use foreshore_base::{Lsn, TxnId};
use foreshore_env::{
    disk::Disk,
    random::Xorshift,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use foreshore_testkit::{CrashMode, FaultyDisk};

use super::{lead::Turn, *};
use crate::{
    frame::{HEADER_BYTES, RecordHeader, RecordKind, header_words},
    insert::{LogInsert, Request, Urgency},
    options::FIRST_LSN,
    scan,
};

const KIND: RecordKind = RecordKind(70);

/// A log with the smallest buffer, its running flusher, and the writer and the maker of spares, whom the flusher's
/// thread joins.
fn start(insert: LogInsert) -> (Arc<Core>, thread::JoinHandle<()>) {
    run(make(insert))
}

fn run((core, flusher): (Arc<Core>, impl FnOnce() + Send + 'static)) -> (Arc<Core>, thread::JoinHandle<()>) {
    let maker = thread::spawn({
        let core = Arc::clone(&core);
        move || run_maker(&core)
    });
    let life = move || {
        flusher();
        maker.join().unwrap();
    };
    (core, thread::spawn(life))
}

/// A log, and the life of its flusher and its writer.
fn make(insert: LogInsert) -> (Arc<Core>, impl FnOnce() + Send + 'static) {
    make_on(FaultyDisk::new(), insert, Duration::from_secs(3600))
}

fn make_on(
    disk: FaultyDisk,
    insert: LogInsert,
    flush_interval: Duration,
) -> (Arc<Core>, impl FnOnce() + Send + 'static) {
    make_with(disk, insert, flush_interval, 1 << 20)
}

fn make_with(
    disk: FaultyDisk,
    insert: LogInsert,
    flush_interval: Duration,
    segment_bytes: u64,
) -> (Arc<Core>, impl FnOnce() + Send + 'static) {
    disk.create_directory(Path::new("/log")).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    let options =
        LogOptions { segment_bytes, buffer_bytes: 1, flush_interval, insert, ..LogOptions::default() };
    let geometry = Geometry::new(options.segment());
    let store =
        Store::new(Arc::new(disk), Path::new("/log"), 1, geometry, VecDeque::new(), Vec::new()).unwrap();
    let last = store.make(0).unwrap();
    let found = Found { store, geometry, last, end: FIRST_LSN.0, sealed: false };
    let core = Arc::new(Core::new(found, 1, FIRST_LSN.0, &options));
    let life = {
        let core = Arc::clone(&core);
        move || {
            let writer = thread::spawn({
                let core = Arc::clone(&core);
                move || run_writer(&core)
            });
            run_flusher(&core);
            writer.join().unwrap();
        }
    };
    (core, life)
}

fn append(core: &Core, bytes: usize) -> foreshore_base::Result<Lsn> {
    core.append(TxnId(1), Lsn::ZERO, KIND, &[&vec![1; bytes]], Urgency::Work)
}

/// Publishes an empty record.
fn publish(claim: append::Claim<'_>) {
    let header = RecordHeader { lsn: Lsn(claim.start()), prev: Lsn::ZERO, txn: TxnId(1), kind: KIND };
    claim.publish(&header_words(&header), HEADER_BYTES, &[]);
}

fn eventually(what: &str, done: impl Fn() -> bool) {
    assert!(happens(done), "{what}");
}

fn happens(done: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !done() && begun.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    done()
}

/// The flusher does not wait for room, so whoever had filled the ring had filled it for the mark, too; and none was
/// made with the next batch, for it passed for made.
#[test]
fn a_full_ring_has_room_for_a_mark() {
    for kind in LogInsert::ALL {
        for urgency in [Urgency::Work, Urgency::Ending] {
            // Nobody empties the ring.
            let (core, _) = make(kind);
            let request = Request { bytes: HEADER_BYTES as u64, urgency: Some(urgency), hint: 0 };
            while let Ok(claim) = core.claim(request) {
                publish(claim);
            }
            assert!(core.append_mark(core.durable()).is_some(), "{kind:?} {urgency:?}");
        }
    }
}

#[test]
fn a_stalled_append_holds_up_only_what_follows_it() {
    for kind in LogInsert::ALL {
        let (core, flusher) = start(kind);
        let before = append(&core, 100).unwrap();
        let claim = core.claim_for_test();
        let after = append(&core, 100).unwrap();
        core.flush(before, None).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| core.flush(after, None));
            thread::sleep(Duration::from_millis(30));
            assert!(!waiter.is_finished() && core.durable() <= after.0);
            publish(claim);
            waiter.join().unwrap().unwrap();
        });
        assert!(core.durable() > after.0);
        core.shut(Stop::Flushed);
        flusher.join().unwrap();
    }
}

#[test]
fn a_buffer_full_behind_a_stalled_append_goes_on_when_that_ends() {
    for kind in LogInsert::ALL {
        let (core, flusher) = start(kind);
        let claim = core.claim_for_test();
        thread::scope(|scope| {
            // More than are woken at a time.
            for _ in 0..20 {
                scope.spawn(|| {
                    for _ in 0..2 {
                        append(&core, 60_000).unwrap();
                    }
                });
            }
            eventually("nobody waits for room", || core.awaiting_room() >= 16);
            thread::sleep(Duration::from_millis(30));
            assert_eq!(core.ring.written(), FIRST_LSN.0);
            publish(claim);
        });
        assert_eq!(core.awaiting_room(), 0);
        assert!(core.waited() >= 16 * Duration::from_millis(30));
        core.shut(Stop::Flushed);
        flusher.join().unwrap();
        assert_eq!(core.durable(), core.tail());
    }
}

/// A full ring had room as soon as so many bytes would have been refused. Whoever asked and then appended less than
/// that slept with the latch that it had asked for.
#[test]
fn a_full_ring_has_no_room_for_what_the_log_has_none_for_either() {
    for kind in LogInsert::ALL {
        // Nobody empties the ring.
        let (core, _) = make(kind);
        let request = Request { bytes: HEADER_BYTES as u64, urgency: Some(Urgency::Work), hint: 0 };
        while let Ok(claim) = core.claim(request) {
            publish(claim);
        }
        let room = 64 << 10;
        assert!(!core.has_room(Urgency::Work, room), "{kind:?}");
        core.space_limit.store(core.tail() + room / 2, Ordering::Relaxed);
        core.disk_is_full.store(true, Ordering::Relaxed);
        assert!(!core.has_room(Urgency::Work, room), "{kind:?}: on a full disk");
        let (begun, wait) = (Instant::now(), Duration::from_millis(20));
        assert!(!core.await_room(Urgency::Work, room, Some(begun + wait)), "{kind:?}");
        assert!(begun.elapsed() >= wait, "{kind:?}");
        // A ring with room waits for nobody, whatever is refused.
        let (core, _) = make(kind);
        core.space_limit.store(core.tail(), Ordering::Relaxed);
        core.disk_is_full.store(true, Ordering::Relaxed);
        assert!(core.has_room(Urgency::Work, room), "{kind:?}: it is refused");
    }
}

/// The writer came to a stalled append and slept. Those whom it had woken had found room and appended nothing, so
/// nobody asked it to go on: the others slept until the flusher's time came.
#[test]
fn whoever_sleeps_for_room_does_not_count_on_those_who_were_woken() {
    for kind in LogInsert::ALL {
        // Without a maker of spares, who would wake them, too.
        let (core, flusher) = make(kind);
        let flusher = thread::spawn(flusher);
        core.store.reserve().unwrap();
        core.reserve().unwrap();
        let pen = core.pen.lock();
        (0..3).for_each(|_| _ = append(&core, 30_000).unwrap());
        // The last of them has asked the writer, which sees what is there now, and waits for the pen. Asked once more,
        // it would not hear of it until then.
        assert!(core.ring.taken(core.tail()) > core.ring.bytes() / 4);
        eventually("the writer sleeps", || !core.write_wanted.load(Ordering::Relaxed));
        thread::sleep(Duration::from_millis(20));
        append(&core, 10_000).unwrap();
        let claim = core.claim_for_test();
        let room = 64 << 10;
        while core.has_room(Urgency::Work, 10_100) {
            append(&core, 10_000).unwrap();
        }
        let all_woken = thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| core.await_room(Urgency::Ending, room, None));
            }
            eventually("nobody waits for room", || core.awaiting_room() == 8);
            drop(pen);
            eventually("nobody was woken", || core.awaiting_room() < 8);
            thread::sleep(Duration::from_millis(20));
            publish(claim);
            let all_woken = happens(|| core.awaiting_room() == 0);
            core.shut(Stop::Now);
            all_woken
        });
        flusher.join().unwrap();
        assert!(all_woken, "{kind:?}: some sleep on");
    }
}

#[test]
fn an_append_that_dies_poisons_and_wakes_all() {
    for kind in LogInsert::ALL {
        let (core, flusher) = start(kind);
        let claim = core.claim_for_test();
        let after = append(&core, 100).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| core.flush(after, None));
            let fillers: Vec<_> =
                (0..2).map(|_| scope.spawn(|| while append(&core, 60_000).is_ok() {})).collect();
            eventually("nobody waits for room", || core.awaiting_room() == 2);
            drop(claim);
            assert!(waiter.join().unwrap().is_err());
            for filler in fillers {
                filler.join().unwrap();
            }
        });
        assert!(core.poisoned().unwrap().to_string().contains("died"));
        flusher.join().unwrap();
    }
}

/// WAL-9, WAL-13: the flusher has nothing left to write, so nobody but the maker of spares can wake who waits for
/// space.
#[test]
fn who_waits_for_space_goes_on_when_some_is_made() {
    for kind in LogInsert::ALL {
        let (core, flusher) = make(kind);
        let flusher = thread::spawn(flusher);
        let appended = AtomicU64::new(0);
        let (waits, goes_on) = thread::scope(|scope| {
            scope.spawn(|| {
                while append(&core, 10_000).is_ok() {
                    appended.fetch_add(1, Ordering::Relaxed);
                }
            });
            let waits = happens(|| {
                let waiting = core.waiting.lock();
                let is_idle = waiting.flusher_sleeps && !core.write_wanted.load(Ordering::Relaxed);
                core.awaiting_room() == 1 && is_idle && core.ring.written() == core.tail()
            });
            let before = appended.load(Ordering::Relaxed);
            core.store.reserve().unwrap();
            core.reserve().unwrap();
            let goes_on = happens(|| appended.load(Ordering::Relaxed) > before);
            core.shut(Stop::Now);
            (waits, goes_on)
        });
        assert!(waits && goes_on, "waits: {waits}, goes on: {goes_on}");
        flusher.join().unwrap();
    }
}

#[test]
fn a_maker_of_spares_that_dies_poisons() {
    let (core, flusher) = start(LogInsert::default());
    let dying = thread::spawn({
        let core = Arc::clone(&core);
        move || {
            let _farewell = Farewell { core: &core, died: maker::DIED };
            panic!("planted");
        }
    });
    assert!(dying.join().is_err());
    assert!(core.poisoned().unwrap().to_string().contains("spare segments of the log died"));
    assert!(append(&core, 100).is_err());
    flusher.join().unwrap();
}

/// A log whose flusher sleeps and does not wake.
fn asleep() -> Arc<Core> {
    let (core, _flusher) = make(LogInsert::default());
    core.waiting.lock().flusher_sleeps = true;
    core
}

#[test]
fn who_finds_the_flusher_asleep_flushes() {
    let core = asleep();
    for round in 1..100 {
        let lsn = append(&core, 1_000).unwrap();
        assert!(core.flush(lsn, None).unwrap());
        assert!(core.durable() > lsn.0);
        assert_eq!(core.flushes(), round);
    }
    let waiting = core.waiting.lock();
    assert!(waiting.flusher_sleeps && !waiting.is_led, "the flusher was asked for what was done");
}

#[test]
fn who_has_a_deadline_leads_no_flush() {
    let core = asleep();
    let lsn = append(&core, 1_000).unwrap();
    let begun = Instant::now();
    assert!(!core.flush(lsn, Some(begun + Duration::from_millis(20))).unwrap());
    assert!(begun.elapsed() >= Duration::from_millis(20));
    assert_eq!((core.durable(), core.flushes()), (FIRST_LSN.0, 0));
}

/// Of those whom the last flush served the first to come waits for the others, and the last to come leads; or the
/// first, when the moment is over.
#[test]
fn the_last_to_come_leads_or_the_first_when_the_moment_is_over() {
    let core = asleep();
    let mut waiting = core.waiting.lock();
    let batch = waiting.batch;
    (0..3).for_each(|_| waiting.gathering.arrive(batch));
    waiting.gathering.batch_ended(batch, Duration::from_secs(1));
    let (mut first, mut second, mut third) = (None, None, None);
    waiting.gathering.arrive(batch + 1);
    let Turn::LeadAt(due) = waiting.turn(&mut first) else { panic!("the first does not wait for others") };
    waiting.gathering.arrive(batch + 1);
    assert!(matches!(waiting.turn(&mut second), Turn::Wait));
    waiting.gathering.arrive(batch + 1);
    assert!(matches!(waiting.turn(&mut third), Turn::Lead));
    // The third does not come.
    waiting.gathering.leave(batch + 1);
    drop(waiting);
    thread::sleep(due.saturating_duration_since(Instant::now()));
    let mut waiting = core.waiting.lock();
    assert!(matches!(waiting.turn(&mut second), Turn::Wait));
    assert!(matches!(waiting.turn(&mut first), Turn::Lead));
    waiting.is_led = true;
    assert!(matches!(waiting.turn(&mut first), Turn::Wait));
}

#[test]
fn a_leader_hands_on_what_was_asked_for_meanwhile() {
    let core = asleep();
    let lsn = append(&core, 100).unwrap();
    let mut waiting = core.waiting.lock();
    waiting.requested = u64::MAX;
    drop(waiting);
    assert!(core.flush(lsn, None).unwrap());
    let waiting = core.waiting.lock();
    assert!(!waiting.flusher_sleeps && !waiting.is_led, "nobody has woken the flusher");
}

#[test]
fn a_leader_that_dies_poisons() {
    let core = asleep();
    let leader = thread::spawn({
        let core = Arc::clone(&core);
        move || {
            core.waiting.lock().is_led = true;
            let _leader = lead::Leader { core: &core, is_done: false };
            panic!("planted");
        }
    });
    assert!(leader.join().is_err());
    assert!(core.poisoned().unwrap().to_string().contains("a thread that flushed the log died"));
    assert!(!core.waiting.lock().is_led);
    assert!(core.flush(FIRST_LSN, None).is_err());
}

#[test]
fn the_flusher_waits_until_a_leader_is_done() {
    let (core, flusher) = start(LogInsert::default());
    eventually("the flusher does not sleep", || core.waiting.lock().flusher_sleeps);
    core.waiting.lock().is_led = true;
    let lsn = append(&core, 100).unwrap();
    core.request_flush(lsn);
    core.shut(Stop::Flushed);
    eventually("the flusher is not held up", || core.waiting.lock().is_held_up);
    thread::sleep(Duration::from_millis(30));
    assert!(!flusher.is_finished() && core.durable() <= lsn.0);
    drop(lead::Leader { core: &core, is_done: true });
    flusher.join().unwrap();
    assert!(core.durable() > lsn.0);
}

/// Whoever closes a log that has failed may open it again: nobody writes to it any more.
#[test]
fn the_flusher_of_a_log_that_has_failed_waits_until_a_leader_is_done() {
    let ends: [&dyn Fn(&Core); 2] = [&|core| core.poison("planted"), &|core| core.shut(Stop::Now)];
    for end in ends {
        let disk = FaultyDisk::new();
        let (core, flusher) = run(make_on(disk.clone(), LogInsert::default(), Duration::from_secs(3600)));
        let lsn = append(&core, 100).unwrap();
        // It was woken by the append, and sleeps again.
        eventually("the flusher does not sleep", || core.waiting.lock().flusher_sleeps && !core.doze.is_on());
        disk.hold_syncs(true);
        let leader = thread::spawn({
            let core = Arc::clone(&core);
            move || core.flush(lsn, None)
        });
        eventually("nobody leads", || core.waiting.lock().is_led);
        end(&core);
        thread::sleep(Duration::from_millis(30));
        let has_ended = flusher.is_finished();
        disk.hold_syncs(false);
        flusher.join().unwrap();
        assert!(!has_ended && core.durable() > lsn.0, "a leader may be writing still");
        assert!(leader.join().unwrap().unwrap());
    }
}

/// How a storm ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Quiet,
    Closed,
    Poisoned,
    SyncFails,
    Crash,
}

/// Threads that append, stall in the middle of it, and wait in every way there is, while syncs take their time and the
/// log ends; each gives the greatest LSN that it was told to be durable.
struct Storm {
    core: Arc<Core>,
    disk: FaultyDisk,
    /// Threads that have ended.
    ended: AtomicU64,
}

impl Storm {
    /// A record, sometimes one whose appender stalls before it is published.
    fn append(&self, random: &mut Xorshift) -> Option<Lsn> {
        let core = &*self.core;
        if random.below(6) == 0 {
            let request = Request { bytes: HEADER_BYTES as u64, urgency: None, hint: 0 };
            if let Ok(claim) = core.claim(request) {
                let lsn = Lsn(claim.start());
                thread::sleep(Duration::from_micros(random.below(400)));
                publish(claim);
                if core.doze.is_on() {
                    core.wake_dozing();
                }
                return Some(lsn);
            }
        }
        append(core, random.below(3_000) as usize).ok()
    }

    /// One way to wait for a record; whether it was said to be durable, `None` if the log has ended.
    fn wait(&self, lsn: Lsn, random: &mut Xorshift) -> Option<bool> {
        let core = &*self.core;
        match random.below(7) {
            0..=2 => core.flush(lsn, None).ok(),
            3 | 4 => core.flush(lsn, Some(Instant::now() + Duration::from_micros(random.below(600)))).ok(),
            5 => {
                core.request_flush(lsn);
                Some(core.durable() > lsn.0)
            }
            _ => {
                core.request_flush(lsn);
                eventually("a flush that was asked for does not come", || {
                    core.durable() > lsn.0 || !core.is_open()
                });
                Some(core.durable() > lsn.0)
            }
        }
    }

    /// Whether a crash leaves this record.
    fn survives(&self, lsn: Lsn, mode: CrashMode) -> bool {
        let disk = self.disk.after_crash(mode);
        scan::open(Arc::new(disk), Path::new("/log"), 1, FIRST_LSN).unwrap().end > lsn.0
    }

    fn client(&self, mut random: Xorshift) -> Lsn {
        let mut acknowledged = Lsn::ZERO;
        for _ in 0..40 {
            if random.below(4) == 0 {
                self.disk.set_sync_delay(Duration::from_micros(random.below(800)));
            }
            let Some(lsn) = self.append(&mut random) else { break };
            match self.wait(lsn, &mut random) {
                Some(true) => {
                    acknowledged = acknowledged.max(lsn);
                    assert!(self.core.durable() > lsn.0);
                    assert!(random.below(8) > 0 || self.survives(lsn, CrashMode::DropUnsynced), "{lsn:?}");
                }
                Some(false) => {}
                None => break,
            }
            if random.below(3) == 0 {
                thread::sleep(Duration::from_micros(random.below(500)));
            }
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
        acknowledged
    }
}

fn storm(seed: u64, end: End) {
    let mut random = Xorshift::new(seed);
    let disk = FaultyDisk::new();
    let interval = Duration::from_millis([2, 3_600_000][random.below(2) as usize]);
    let insert = LogInsert::ALL[random.below(LogInsert::ALL.len() as u64) as usize];
    let (core, flusher) = run(make_on(disk.clone(), insert, interval));
    let some = random.below(60) + 1;
    match end {
        End::SyncFails => disk.fail_sync(disk.counts().syncs + some),
        End::Crash => disk.crash_at(disk.counts().operations + some),
        _ => {}
    }
    let storm = Arc::new(Storm { core, disk, ended: AtomicU64::new(0) });
    let (core, threads) = (&*storm.core, random.below(6) + 1);
    let clients: Vec<_> = (0..threads)
        .map(|_| {
            let (storm, random) = (Arc::clone(&storm), Xorshift::new(random.next_u64()));
            thread::spawn(move || storm.client(random))
        })
        .collect();
    let all_ended = || {
        let all = happens(|| {
            storm.ended.load(Ordering::Relaxed) == threads
                || clients.iter().all(thread::JoinHandle::is_finished)
        });
        assert!(all, "seed {seed}, {end:?}: somebody waits for ever: {:?}", core.waiting.lock());
    };
    if matches!(end, End::Closed | End::Poisoned) {
        thread::sleep(Duration::from_micros(random.below(10_000)));
    } else {
        all_ended();
    }
    if end == End::Quiet {
        let is_served = happens(|| core.durable() >= core.waiting.lock().requested);
        assert!(is_served, "seed {seed}: somebody's wish is forgotten: {:?}", core.waiting.lock());
        if interval < Duration::from_secs(1) {
            let is_marked =
                happens(|| core.durable() == core.tail() && core.flusher.lock().sealed() == core.tail());
            assert!(is_marked, "seed {seed}: a quiet log has no mark: {:?}", core.waiting.lock());
        }
    }
    if end == End::Poisoned {
        core.poison("planted");
    }
    core.shut(Stop::Flushed);
    flusher.join().unwrap();
    // Nobody writes to a log that was closed.
    let operations = storm.disk.counts().operations;
    assert!(!core.waiting.lock().is_led, "seed {seed}, {end:?}: somebody may be writing still");
    all_ended();
    let acknowledged = clients.into_iter().map(|client| client.join().unwrap()).max();
    assert_eq!(
        storm.disk.counts().operations,
        operations,
        "seed {seed}, {end:?}: written to after it was closed"
    );
    for mode in [CrashMode::DropUnsynced, CrashMode::KeepAll, CrashMode::TornRandom(seed)] {
        if let Some(lsn) = acknowledged.filter(|&lsn| lsn > Lsn::ZERO) {
            assert!(storm.survives(lsn, mode), "seed {seed}, {end:?}, {mode:?}: {lsn:?} is lost");
        }
    }
}

/// WAL-2, WAL-9, WAL-16.
#[test]
fn every_wait_ends_and_what_was_acknowledged_is_durable() {
    for seed in 1..=12 {
        for end in [End::Quiet, End::Closed, End::Poisoned, End::SyncFails, End::Crash] {
            storm(seed, end);
        }
    }
}

#[test]
fn closing_waits_for_a_stalled_append() {
    for kind in LogInsert::ALL {
        let (core, flusher) = start(kind);
        let claim = core.claim_for_test();
        core.shut(Stop::Flushed);
        thread::sleep(Duration::from_millis(30));
        assert!(!flusher.is_finished());
        let lsn = Lsn(claim.start());
        publish(claim);
        flusher.join().unwrap();
        assert!(core.durable() > lsn.0);
        // A place claimed when the flusher is gone: nobody waits for it for ever.
        let late = core.claim_for_test();
        let lsn = Lsn(late.start());
        publish(late);
        assert!(matches!(core.flush(lsn, None), Err(StorageError::Closed)));
        assert_eq!(core.gate.load(Ordering::Relaxed), CLOSED);
    }
}

/// A thread claims its place when the flusher has looked for the last time. What lay in front of the last mark and was
/// not published yet kept that from being written, and the log was closed without one.
#[test]
fn closing_puts_a_mark_under_what_is_appended_meanwhile() {
    for kind in LogInsert::ALL {
        let (core, _) = make(kind);
        let claim = core.claim_for_test();
        thread::scope(|scope| {
            let flusher = scope.spawn(|| core.flusher.lock().seal(&core).unwrap());
            thread::sleep(Duration::from_millis(30));
            assert!(!flusher.is_finished(), "{kind:?}");
            publish(claim);
            flusher.join().unwrap();
        });
        assert_eq!(core.durable(), core.tail(), "{kind:?}");
        assert_eq!(core.flusher.lock().sealed(), core.tail(), "{kind:?}");
    }
}

/// WAL-13: what a segment or a spare is called is durable before it counts, in every way in which one comes to its
/// name.
#[test]
fn names_of_segments_and_spares_outlive_a_crash() {
    let disk = FaultyDisk::new();
    disk.create_directory(Path::new("/log")).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    let geometry = Geometry::new(LogOptions { segment_bytes: 128 << 10, ..LogOptions::default() }.segment());
    let shared = Arc::new(disk.clone());
    let store = Store::new(shared, Path::new("/log"), 1, geometry, VecDeque::new(), Vec::new()).unwrap();
    let second = geometry.segment_bytes();
    let steps: [(&str, usize, &dyn Fn()); 4] = [
        ("a new segment", 1, &|| _ = store.make(0).unwrap()),
        ("a new spare", 2, &|| _ = store.reserve().unwrap()),
        ("a segment from a spare", 2, &|| _ = store.make(second).unwrap()),
        ("a spare from a segment", 2, &|| store.release_before(second).unwrap()),
    ];
    for (what, count, step) in steps {
        step();
        let (now, after) = (disk.files(), disk.after_crash(CrashMode::DropUnsynced).files());
        assert_eq!((now.len(), &now), (count, &after), "{what}");
    }
}

/// What a process that has as many open files as it may made of its log: a spare could not be made, and the log was
/// poisoned, although nothing had been written or synced. Now it is as on a full disk, for as long as that lasts.
#[test]
fn a_moment_without_files_to_open_is_no_fault() {
    let disk = FaultyDisk::new();
    let (core, flusher) = run(make_on(disk.clone(), LogInsert::default(), Duration::from_secs(3600)));
    disk.set_out_of_files(true);
    let refused = (0..1000).find_map(|_| append(&core, 1000).err());
    assert!(matches!(refused, Some(StorageError::LogFull { disk_is_full: true, .. })), "{refused:?}");
    // What there was is made durable.
    let last = core.append(TxnId(1), Lsn::ZERO, KIND, &[], Urgency::Ending).unwrap();
    core.flush(last, None).unwrap();
    disk.set_out_of_files(false);
    eventually("work goes on", || append(&core, 1000).is_ok());
    core.shut(Stop::Flushed);
    flusher.join().unwrap();
    assert!(core.poisoned().is_none());
}

/// The same, of a segment that is prepared, ahead of need or not, and of names that are synced meanwhile. The log was
/// poisoned at the end of a segment, although there was a spare: that was opened only then.
#[test]
fn without_files_to_open_what_is_open_goes_on() {
    let disk = FaultyDisk::new();
    let (core, _life) = make_on(disk.clone(), LogInsert::default(), Duration::from_secs(3600));
    let (store, second) = (&core.store, core.geometry.segment_bytes());
    assert!(store.reserve().unwrap());
    let end = store.space_end();
    disk.set_out_of_files(true);
    assert!(!store.reserve().unwrap());
    assert_eq!(store.space_end(), end);
    store.prepare_after(0).unwrap();
    assert!(store.segment(second).is_some());
    store.admit().unwrap();
    store.release_before(second).unwrap();
    let (now, after) = (disk.files(), disk.after_crash(CrashMode::DropUnsynced).files());
    assert_eq!((now.len(), &now), (2, &after));
    // What was a segment is a spare that is open, too.
    assert_eq!(store.prepare(2 * second).unwrap().base, 2 * second);
    store.admit().unwrap();
    assert_eq!(store.space_end(), end + second);
}

/// A log that was opened again has its spares open, and those of its segments that nobody needs; it goes round in them
/// while no other file can be opened.
#[test]
fn without_files_to_open_a_log_goes_round_in_what_it_has() {
    let (disk, hour) = (FaultyDisk::new(), Duration::from_secs(3600));
    let (core, flusher) = run(make_with(disk.clone(), LogInsert::default(), hour, 128 << 10));
    while core.tail() < 3 * core.geometry.segment_bytes() {
        append(&core, 1000).unwrap();
    }
    let end = Lsn(core.tail());
    core.shut(Stop::Flushed);
    flusher.join().unwrap();
    let found = scan::open(Arc::new(disk.clone()), Path::new("/log"), 1, end).unwrap();
    let (segment_bytes, store) = (found.geometry.segment_bytes(), found.store);
    let files = disk.files();
    disk.set_out_of_files(true);
    let (base, end) = (found.geometry.base(end.0), store.space_end());
    for turn in 1..3 * (end - base) / segment_bytes {
        let next = base + turn * segment_bytes;
        store.make(next).unwrap();
        store.release_before(next).unwrap();
    }
    disk.set_out_of_files(false);
    assert_eq!(disk.files().len(), files.len());
}

/// A log that was opened by a process that could open a few files only lost its spares, and the space that was promised
/// with them.
#[test]
fn opening_a_log_without_enough_files_to_open_takes_nothing_away() {
    let disk = FaultyDisk::new();
    let (core, flusher) = run(make_on(disk.clone(), LogInsert::default(), Duration::from_secs(3600)));
    append(&core, 1000).unwrap();
    for _ in 0..3 {
        assert!(core.store.reserve().unwrap());
    }
    let end = Lsn(core.tail());
    core.shut(Stop::Flushed);
    flusher.join().unwrap();
    let files = disk.files().len();
    let opens = |left| {
        disk.set_files_left(Some(left));
        let opened = scan::open(Arc::new(disk.clone()), Path::new("/log"), 1, end);
        disk.set_files_left(None);
        opened.is_ok()
    };
    let enough = (0..100).find(|left| {
        let opened = opens(*left);
        assert_eq!(disk.files().len(), files, "with {left} files to open");
        opened
    });
    assert!(enough.is_some_and(|left| left > 3), "{enough:?}");
}

/// WAL-9: space was taken for half a ring ahead. Of a small ring that was less than a record may need that finds no
/// room in its segment: it waited for space, nobody was asked for any, and it slept for ever.
#[test]
fn whoever_needs_space_beyond_half_a_ring_gets_it() {
    let hour = Duration::from_secs(3600);
    let (core, flusher) = run(make_with(FaultyDisk::new(), LogInsert::default(), hour, 128 << 10));
    append(&core, 61_448 - HEADER_BYTES).unwrap();
    let tail = core.tail();
    // What is left of the segment is 8 bytes too little for the next one.
    assert_eq!(tail, 65_544);
    core.raise_undo_floor(tail - (22 << 10));
    core.reserve().unwrap();
    let appender = thread::spawn({
        let core = Arc::clone(&core);
        move || append(&core, (64 << 10) - HEADER_BYTES)
    });
    eventually("it is appended", || core.tail() > tail);
    appender.join().unwrap().unwrap();
    core.shut(Stop::Now);
    flusher.join().unwrap();
}
