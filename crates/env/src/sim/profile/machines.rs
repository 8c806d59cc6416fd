//! The machines, as data. Cycles, at the machine's own clock. Where a figure comes from stands beside it:
//!
//! - D: David, Guerraoui, Trigonakis, SOSP 2013, table 2, a Xeon E7-8867L (Westmere-EX). Others quote that a load of a
//!   changed line takes 109 cycles within a die, 289 over one hop and 400 over two; the rest of the table is from
//!   memory.
//! - J: Jung et al., SIGMOD 2013, table 1: four sockets of eight cores, E7-8837 (Westmere-EX), 2.66 GHz, 256 KiB and 24
//!   MiB.
//! - N: Intel's performance analysis guide for the Xeon 5500 (Nehalem), as quoted at
//!   stackoverflow.com/questions/4087280: lines of the last cache 40 cycles, 65 if others share and 75 if another core
//!   has changed them; 100 to 300 from another socket; memory 60 and 100 ns.
//! - B: Böttcher et al., DaMoN 2020, §4: sockets, cores, clock; Table 3.
//! - C: github.com/nviennot/core-to-core-latency, medians in ns, by exchanges: EPYC 7R13 23, 107, and 197 between
//!   sockets; of the kind of B's machine E5-2690 33 and 113, E5-2695 v4 44 and 118, which at its clock are 73 to 97 and
//!   250 to 260 cycles.
//! - W: 7-cpu.com, Westmere: 4, 10 and 40 to 46 cycles for the caches, 40 cycles and 67 ns, or 105 from the other
//!   socket, for memory.
//! - M: Intel's Memory Latency Checker 3.11b on two Xeons 6980P, three dies each, shown in a discussion of
//!   ik_llama.cpp: 80 ns within a die, 99 to 140 between two, 372 to 452 between sockets, of which 80, 120 and 400 are
//!   taken; memory 102 to 209, and 394 to 513.
//! - E: estimated, by us, from the neighbouring figures and from what is generally known of the machine.
//! - P: a pause takes "about 10 cycles" on Intel's processors before Skylake and "as many as 140" since then (Intel's
//!   optimization manual, 2.6.4, as quoted at github.com/MicrosoftDocs/SupportArticles-docs/pull/1100); 14 to 17, and
//!   125 to 150, were measured for .NET (github.com/dotnet/coreclr/pull/14739). On AMD's processors it takes from 10 to
//!   50, by the model (github.com/MariaDB/server/commit/042fc29597); 91 were measured on Zen 4, see below.
//!
//! That atomic changes of all kinds take about the same, and let nothing overlap with them, is from Schweizer, Besta,
//! Hoefler, PACT 2015 (arxiv.org/abs/2010.09852), of Haswell, Ivy Bridge, Xeon Phi and Bulldozer; 18 cycles for one are
//! an estimate.
//!
//! Computation is not seen by the simulator. Before each access it charges a time that depends on the part of the
//! engine, and on whether the word follows the one before (it is copied or compared, a few instructions) or lies
//! elsewhere (the program has to find out where: 30 to 40 instructions of the engine, 20 to 25 in locks and messages, 4
//! in latches, by callgrind). The times of `vm2-zen4` are one set for seven workloads, measured there; those of `vm2`,
//! with Zen 5, are taken to be 0.65 of them, as they were for TPC-B, YCSB and locks. Older machines are taken to need
//! half as many cycles more than `epyc2x96` would have by an older measurement, in-order ones twice as many.
//!
//! Single accesses of `vm2-zen4`, by `foreshore bench memory` and a program like it: 2.0 to 2.3 ns for an atomic
//! change; 25 ns for a pause; 16 ns for a line of 4 MiB that are followed, 130 to 230 ns for one of 128 (135 are
//! taken). Followed lines come from memory beyond 8 to 16 MiB, though the last cache has 32: others use it, too.
//!
//! Where the two processors are, the host decides, anew every few seconds: `foreshore bench memory --bind --access
//! hand`, some 90 times a fifth of a second apart on 2026-11-25, found them
//!
//! | | of 100 times | an exchange by one core and the other | a store, until the other sees it | the same if the other has the line | an addition, both add |
//! | --- | --- | --- | --- | --- | --- |
//! | on one core (each has 55 % of its speed while the other computes, too) | 2 | 10 | 31 | 25 | 7.2 |
//! | at one last cache | 86 | 25 to 31 | 29 to 46 | 56 to 62 | 3.8 to 7 |
//! | farther apart | 12 | 108 to 122 | 176 to 197 | 250 to 275 | 3.1 to 4.6 |
//!
//! in nanoseconds. The profile is the second line: there 28, 40, 58 and 4.9 come of the figures here. Single exchanges
//! differ by 3 to 6 % (standard deviation, from sums of few), so transfers are drawn evenly between 8 % less and more;
//! other machines are taken to be alike (E). A load of a line that the other core has changed takes it away there: the
//! other's next load of it misses, and a change by a core that has loaded it takes no longer than one of its own line.
//! If the other has only loaded it, both have it afterwards. That was seen on `vm2-zen4`, by a program that orders
//! single accesses of two threads by another line; other machines are taken to share the line (E). What follows an
//! atomic change is done in its time there, mostly; on older machines it is taken to wait. `epyc2x96` has the same
//! core. On 2026-11-28 a line that the other had changed took 30 ns to load and 31 to change.
//!
//! When a change holds its line (`changes_begin_late`) was seen there, too: a word that one core takes by an exchange
//! and gives back by a store, again and again, is free in 98 of 100 looks of another core. Zen 5 is taken to be alike
//! (E).
//!
//! How far a core looks ahead (`window`) is the size of its buffer of begun instructions at four a cycle: 128 of them
//! for Westmere and 168 for Ivy Bridge (measured at blog.stuffedcow.net/2013/05/measuring-rob-capacity), 320 for Zen 4,
//! 448 for Zen 5 and 512 for Granite Rapids by their manufacturers (not looked up); processors that work in order do
//! not. On Zen 4 atomic changes and fences let misses overlap (2026-11-26, one thread, any of 128 MiB of lines, where
//! one line after another takes 231 ns): loads take 29 ns each, changes 32, a load and a change 38, two changes 39, a
//! load and a fence 33, a store and a change 37; among 4 MiB, 16 ns one after another, a change takes 4.6. AMD has a
//! patent on that (US 10,095,637: what is behind a lock instruction retires before it, unless somebody interferes).
//! Elsewhere nothing overlaps with them, as in Schweizer's measurements.
//!
//! 255 pauses took 6,279 ns there, 24.6 each. Of series of 32 the middle 98 % lay within 4 %, of 128 the middle 80 %
//! within 8; here all are alike, so that a thread that sleeps while it spins comes to the same times as one that runs
//! each round.
//!
//! How fast lines move under contention follows for B's machine from Table 3: 40 threads that read under reader-writer
//! locks take 80 to 99 cycles for each line that moves (4,531 cycles for 1.2 lines, 5,135 for 1.3, 9,583 for 3.0, by 40
//! threads at a time), half of what one takes that nobody else wants: the request of a core that waits has reached the
//! directory long ago, and cores near each other follow each other. There an access that has waited pays half of its
//! latency at least. Of the other machines no source tells.
//!
//! Sizes of caches are the manufacturers', by J and W, and otherwise from memory. A core's own ones are its second
//! level, which has all that the first has on most of these machines; the last one is the socket's, also where parts of
//! a socket have one each.
//!
//! To let others run when there is nobody (`sched_yield`) took 445 to 512 ns on `vm2-zen4`: 1,700 cycles. Of other
//! machines it is computation as any other: half as many cycles more on older ones, twice as many on those that work in
//! order, 0.65 of them with Zen 5. B's system, Ubuntu 18.04, keeps the kernel's pages apart from the program's, as
//! processors of that age need; for this call alone 400 cycles are added there. The
//! authors counted less than 300 (github.com/isec-tugraz/KAISER/issues/3), and the shortest call takes 630 to 730 so,
//! of which 200 were there before (E; github.com/travisdowns/uarch-bench/issues/34). What it decides is in MEASURED.md.
//!
//! `vm2-xeon` was measured on 2026-11-29, on a machine whose host was busy: the same loop took half as long again in
//! some minutes as in others, so least times count. A multiplication in a chain takes 3 cycles of 0.39 ns; an atomic
//! change 7.8 to 8.4 ns, in whose time what is computed behind it is nearly free (`shadow`); one behind a store to a
//! line of the core's own 2 to 3 ns more (`drain`); a pause 19.6. A word that is taken by an exchange and given back by
//! a store, again and again, is free in 24 of 100 looks of another core, and in 50 if an exchange gives it back: it is
//! held from the beginning. Single accesses of two threads in an order that another line gives: what the other has
//! changed 72 to 115 ns, by the place of the line, and to change what the other has taken 85 to 100;
//! `bench memory --access hand` gives 74 to 113 for an exchange, 174 to 230 for a message in lines of its own, 17.8 for
//! an addition where both add, of which 88, 177 and 18 come here (and 119 for 85 to 110 where one stores and the other
//! loads). A load takes a line away that the other has changed, and leaves it to both if the other has only loaded it,
//! mostly. A line from memory takes 95 to 100 ns by itself, and 147 where 256 MiB are followed at random; from the last
//! cache, 80 where 8 MiB are followed, 128 of 16 to 64: somewhat less is taken for both, because address translation is
//! in these. Changes of any line among 128 MiB take 31 ns, loads 15: they overlap. To let others run takes 250 to 320
//! ns, to wake a thread 1.4 to 2.1 µs and until it runs 3.5 to 5.9. At times both processors were threads of one core,
//! and a message took 9 ns.
//!
//! What no source gives is the same everywhere and named here: a line's owner keeps hitting it for `retention_percent`
//! of a transfer (measured on that EPYC: 3.8 operations for each change of owner with two threads that add to one
//! word); the other costs of the operating system are Linux's on hardware without virtualization, in nanoseconds. To
//! wake a thread whose virtual processor sleeps is dear: on `vm2-zen4` who wakes it is away for 10.5 to 17 µs, and it
//! runs 28 to 40 µs after (medians of 3,000, unparked after 5 to 100 µs).

use super::{DISTANCES, Profile};

/// Every distance costs the same.
const fn even(cycles: u64) -> [u64; DISTANCES] {
    [cycles; DISTANCES]
}

/// What profiles have in common, where no source says otherwise.
const COMMON: Profile = Profile {
    name: "",
    description: "",
    sockets: 1,
    cores_per_socket: 1,
    cores_per_cluster: 1,
    threads_per_core: 1,
    cube: false,
    gigahertz: 1.0,
    hit: 3.0,
    change: 18,
    load_modified: even(0),
    load_shared: even(0),
    own: even(0),
    memory: even(0),
    occupancy: [10, 10, 30, 40],
    invalidate_each: 2,
    migrates: false,
    retention_percent: 25,
    spread_percent: 8,
    queued_percent: 100,
    own_cache_bytes: 256 << 10,
    cached: 44,
    cache_bytes: 24 << 20,
    computation: 34,
    lock_computation: 12,
    latch_computation: 0.0,
    following: 6,
    shadow: 0,
    drain: 0,
    window: 0,
    changes_overlap: false,
    changes_begin_late: false,
    pause: 45,
    yielding: 2_550,
    wake_ns: 1000,
    wake_up_ns: 3500,
};

/// A core of the kind that `epyc2x96` and `vm2-zen4` have.
const ZEN4: Profile = Profile {
    gigahertz: 3.7,
    hit: 0.25,
    change: 8,
    migrates: true,
    own_cache_bytes: 1 << 20,
    computation: 18,
    lock_computation: 6,
    latch_computation: 1.1,
    following: 3,
    shadow: 8,
    window: 80,
    changes_overlap: true,
    changes_begin_late: true,
    pause: 91,
    yielding: 1_700,
    ..COMMON
};

/// All machines.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "niagara32",
        description: "Sun T2000, 8 cores of 4 contexts, 1 GHz (Shore-MT's); E",
        cores_per_socket: 32,
        cores_per_cluster: 4,
        gigahertz: 1.0,
        hit: 3.0,
        change: 20,
        // Four contexts share 8 KiB.
        own_cache_bytes: 2 << 10,
        cached: 24,
        cache_bytes: 3 << 20,
        load_modified: [24, 24, 24, 24],
        load_shared: [24, 24, 24, 24],
        own: [24, 27, 27, 27],
        memory: even(110),
        computation: 46,
        lock_computation: 16,
        following: 8,
        pause: 10,
        yielding: 3_400,
        ..COMMON
    },
    Profile {
        name: "r810",
        // The processor of `westmere8x10` at another clock. What lies outside of a core does not go with the core's
        // clock, so D's figures are the same here in nanoseconds (E); each socket is one hop from each other.
        description: "Dell R810, 4 sockets of 8 cores, Westmere-EX 2.66 GHz (Jung et al.'s); J, lines by D in ns",
        sockets: 4,
        cores_per_socket: 8,
        cores_per_cluster: 8,
        gigahertz: 2.66,
        load_modified: [136, 136, 361, 361],
        load_shared: [55, 55, 278, 278],
        own: [150, 150, 405, 405],
        memory: [443, 443, 614, 614],
        cached: 55,
        window: 32,
        pause: 15,
        ..COMMON
    },
    Profile {
        name: "xeon2x10",
        description: "2 sockets of 10 cores of 2 contexts, 2.2 GHz (Böttcher et al.'s); B, lines a little above C, the rest E",
        sockets: 2,
        cores_per_socket: 20,
        cores_per_cluster: 20,
        threads_per_core: 2,
        gigahertz: 2.2,
        load_modified: [105, 105, 270, 270],
        load_shared: [60, 60, 230, 230],
        own: [110, 110, 290, 290],
        memory: [200, 200, 300, 300],
        queued_percent: 50,
        pause: 10,
        window: 42,
        yielding: 2_950,
        ..COMMON
    },
    Profile {
        name: "westmere8x10",
        description: "8 sockets of 10 cores, Westmere-EX 2.13 GHz (ORTHRUS' class); D",
        sockets: 8,
        cores_per_socket: 10,
        cores_per_cluster: 10,
        cube: true,
        gigahertz: 2.13,
        load_modified: [109, 109, 289, 400],
        load_shared: [44, 44, 223, 334],
        own: [120, 120, 324, 430],
        memory: [355, 355, 492, 601],
        window: 32,
        pause: 15,
        ..COMMON
    },
    Profile {
        name: "epyc2x96",
        description: "2 sockets of 96 cores, 8 to a cache, 3.7 GHz, Zen 4; lines of Zen 3 by C, the rest E",
        sockets: 2,
        cores_per_socket: 96,
        cores_per_cluster: 8,
        load_modified: [85, 395, 740, 740],
        load_shared: [55, 380, 720, 720],
        own: [90, 400, 760, 760],
        memory: [400, 450, 780, 780],
        cache_bytes: 384 << 20,
        ..ZEN4
    },
    Profile {
        name: "gnr2x128",
        description: "2 sockets of 128 cores, Xeon 6980P 3 GHz, three dies to a socket; M, the rest E",
        sockets: 2,
        cores_per_socket: 128,
        cores_per_cluster: 43,
        gigahertz: 3.0,
        hit: 1.0,
        load_modified: [240, 360, 1200, 1200],
        load_shared: [210, 330, 1150, 1150],
        own: [250, 370, 1230, 1230],
        memory: [390, 450, 1290, 1290],
        own_cache_bytes: 2 << 20,
        cached: 120,
        cache_bytes: 504 << 20,
        computation: 22,
        lock_computation: 8,
        following: 4,
        occupancy: [12, 12, 40, 40],
        window: 128,
        pause: 140,
        yielding: 2_050,
        ..COMMON
    },
    Profile {
        name: "mesh1024",
        description: "1,024 in-order cores on one mesh, 1 GHz: the machine of the thousand-core studies; E",
        cores_per_socket: 1024,
        cores_per_cluster: 4,
        gigahertz: 1.0,
        hit: 2.0,
        load_modified: [40, 110, 110, 110],
        load_shared: [30, 80, 80, 80],
        own: [45, 120, 120, 120],
        memory: even(150),
        // The second level is the last one, and all have it in common, wherever a line lies.
        own_cache_bytes: 32 << 10,
        cached: 80,
        cache_bytes: 256 << 20,
        computation: 46,
        lock_computation: 16,
        following: 8,
        yielding: 3_400,
        ..COMMON
    },
    Profile {
        name: "vm2",
        description: "two processors of a virtual machine, Zen 5, their last cache in common; measured (scripts/calibrate)",
        cores_per_socket: 128,
        cores_per_cluster: 128,
        gigahertz: 3.5,
        hit: 0.25,
        load_modified: even(60),
        load_shared: even(50),
        own: even(62),
        change: 17,
        memory: even(300),
        occupancy: even(12),
        own_cache_bytes: 1 << 20,
        cached: 50,
        cache_bytes: 32 << 20,
        computation: 11,
        lock_computation: 4,
        latch_computation: 0.7,
        following: 2,
        window: 112,
        changes_overlap: true,
        changes_begin_late: true,
        yielding: 1_100,
        ..COMMON
    },
    Profile {
        name: "vm2-zen4",
        description: "the same with Zen 4: atomic changes cost less than half as much, computation half as much again; measured (scripts/calibrate)",
        cores_per_socket: 128,
        cores_per_cluster: 128,
        load_modified: even(111),
        load_shared: even(95),
        own: even(105),
        memory: even(500),
        occupancy: even(12),
        cached: 55,
        cache_bytes: 16 << 20,
        retention_percent: 40,
        wake_ns: 12_000,
        wake_up_ns: 18_000,
        ..ZEN4
    },
    Profile {
        name: "vm2-xeon",
        description: "the same with a Xeon of 2023 (Emerald Rapids): lines come from another core as slowly as from memory; measured (scripts/calibrate)",
        cores_per_socket: 128,
        cores_per_cluster: 128,
        gigahertz: 2.6,
        hit: 0.25,
        change: 21,
        load_modified: even(230),
        load_shared: even(230),
        own: even(230),
        memory: even(330),
        occupancy: even(12),
        migrates: true,
        retention_percent: 32,
        own_cache_bytes: 2 << 20,
        cached: 190,
        cache_bytes: 64 << 20,
        computation: 16,
        lock_computation: 6,
        latch_computation: 1.0,
        following: 2,
        shadow: 20,
        drain: 5,
        window: 128,
        changes_overlap: true,
        pause: 51,
        yielding: 740,
        wake_ns: 1_700,
        wake_up_ns: 4_400,
        ..COMMON
    },
];
