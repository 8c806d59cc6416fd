//! Slots: where a transaction stands while it is open, and what others may read about it.
//!
//! There are [`MAX_TRANSACTIONS`]; a deadlock digest has a bit for each, so it is exact. A slot keeps the private
//! tables and the requests of its transactions from one to the next, so that beginning one allocates nothing.
//!
//! ```text
//! wait word:  epoch (62 bits) | state (2 bits)
//!
//!   IDLE ──▶ WAITING ──▶ GRANTED ──▶ IDLE      next wait: epoch + 1
//!               │  └───▶ VICTIM ───▶ IDLE
//!               └──────────────────▶ IDLE      the waiter gives up
//! ```
//!
//! The word leaves IDLE and WAITING only under the latch of the queue that the wait is in (LOCK-4). An epoch is never
//! used twice: a thread that finds a WAITING word unchanged knows that the transaction has done nothing in between.

mod answered;
mod description;
mod hint;

use foreshore_base::{TxnId, limits::MAX_TRANSACTIONS};
use foreshore_env::CachePadded;
use foreshore_env::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use foreshore_env::sync::{Arc, Mutex};

use crate::age::Age;
use crate::deadlock::{DeadlockReport, Digest, SlotSet};
use crate::intent::{EntryIndex, Published};
use crate::owner::OwnerState;
use crate::request::RequestIndex;

pub(crate) use answered::Answered;
pub(crate) use description::{Identity, WaitDescription};

const IDLE: u64 = 0;
const WAITING: u64 = 1;
const GRANTED: u64 = 2;
const VICTIM: u64 = 3;
const STATE: u64 = 3;
const EPOCH: u64 = 4;

/// How many slots there are: a model has few threads.
pub(crate) const SLOTS: usize = if cfg!(foreshore_loom) { 4 } else { MAX_TRANSACTIONS };

/// A thread that finds a slot this near to where it began to look begins there the next time, too.
const NEAR: usize = 8;

/// The number of a slot, below [`MAX_TRANSACTIONS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotId(pub(crate) u16);

impl SlotId {
    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A value of a wait word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitWord(u64);

impl WaitWord {
    pub(crate) fn is_waiting(self) -> bool {
        self.0 & STATE == WAITING
    }

    /// Different for each wait of a slot.
    pub(crate) fn epoch(self) -> u64 {
        self.0 / EPOCH
    }

    pub(crate) fn is_granted(self) -> bool {
        self.0 & STATE == GRANTED
    }

    pub(crate) fn is_victim(self) -> bool {
        self.0 & STATE == VICTIM
    }
}

/// What a transaction waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// A request in the lock table.
    Key(RequestIndex),
    /// An intent lock.
    Table(EntryIndex),
}

const TABLE_SUBJECT: u64 = 1 << 63;

impl Subject {
    fn encode(self) -> u64 {
        match self {
            Subject::Key(request) => u64::from(request.0),
            Subject::Table(entry) => u64::from(entry.0) | TABLE_SUBJECT,
        }
    }

    fn decode(bits: u64) -> Subject {
        if bits & TABLE_SUBJECT == 0 {
            Subject::Key(RequestIndex(bits as u32))
        } else {
            Subject::Table(EntryIndex(bits as u32))
        }
    }
}

/// The wait of a slot, on cache lines of its own: others read it in turn while they look for deadlocks.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    /// The wait word. WAITING is stored by the slot's owner, GRANTED and VICTIM by whoever ends the wait, all under the
    /// latch of the queue; IDLE by the owner. Read by everybody. Release stores; partners are the Acquire loads.
    word: AtomicU64,
    /// What the wait is for. Written by the owner before the word; read by those who found the word WAITING.
    subject: AtomicU64,
    /// Whom the owner waits for, while it waits (LOCK-11). Written under the latch of the queue, by the owner as it
    /// begins and by whoever changes that; read by everybody.
    digest: Digest,
    /// Nobody sleeps for this wait ([`Answered`]). Written by the owner before it enters the queue, read by whoever has
    /// ended the wait under its latch. If it is that of a later wait by then, that owner has seen the end of this one.
    asked: AtomicBool,
}

impl Wait {
    #[inline]
    pub(crate) fn word(&self) -> WaitWord {
        WaitWord(self.word.load(Acquire))
    }

    /// Where the owner sleeps.
    pub(crate) fn address(&self) -> usize {
        (&raw const self.word).addr()
    }

    /// Begins a wait for `blockers`. By the owner, under the exclusive latch of the queue.
    pub(crate) fn begin(&self, subject: Subject, blockers: &SlotSet) -> WaitWord {
        // As a request's name.
        self.subject.store(subject.encode(), Release);
        self.digest.store(blockers);
        let word = WaitWord(((self.word.load(Relaxed) & !STATE) + EPOCH) | WAITING);
        self.word.store(word.0, Release);
        word
    }

    /// Ends a wait that has not ended yet. Under the exclusive latch of the queue.
    pub(crate) fn grant(&self) {
        self.end(GRANTED);
    }

    /// Ends the wait `word`, if it is not over, by making the owner a victim; `judge` is called before. Under the
    /// exclusive latch of the queue.
    pub(crate) fn make_victim(&self, word: WaitWord, judge: impl FnOnce()) -> bool {
        let waits = self.word() == word;
        if waits {
            judge();
            self.end(VICTIM);
        }
        waits
    }

    fn end(&self, state: u64) {
        let word = self.word.load(Relaxed);
        debug_assert_eq!(word & STATE, WAITING, "only a wait can be ended");
        self.word.store(word & !STATE | state, Release);
    }

    /// The owner goes on. Under the exclusive latch of the queue if the wait has not been ended by somebody else.
    pub(crate) fn leave(&self) {
        self.word.store(self.word.load(Relaxed) & !STATE | IDLE, Release);
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject::decode(self.subject.load(Acquire))
    }

    /// Whom the owner waits for, to be changed under the exclusive latch of the queue.
    pub(crate) fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Adds those whom the owner waits for, if it waits.
    pub(crate) fn union_into(&self, set: &mut SlotSet) {
        if self.word().is_waiting() {
            self.digest.union_into(set);
        }
    }
}

/// Where the private state of a slot's owner is.
#[derive(Debug)]
enum Parked {
    /// Never made yet.
    Fresh,
    /// Here, for the next transaction.
    Idle(Box<OwnerState>),
    /// With this transaction.
    Away(Identity),
}

/// A slot.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Whether a transaction is in the slot: a hint that saves locking `parked`. Written under its mutex.
    pub(crate) busy: AtomicBool,
    /// A thread that finds the state here has the slot.
    parked: Mutex<Parked>,
    /// The transaction. Written by the owner at its begin, read by everybody; only for choices and reports.
    txn: AtomicU64,
    /// Its age. As `txn`.
    age: AtomicU64,
    /// How many transactions its pipeline has completed whose locks are still held. As `txn`.
    completed: AtomicU32,
    /// Locks released by owners of this slot. Written by the owner.
    pub(crate) released: AtomicU64,
    /// The intent locks that the owner holds (LOCK-8, LOCK-15).
    pub(crate) intents: Published,
    /// The wait of the owner for people. Written by the owner before it waits.
    description: Mutex<Option<WaitDescription>>,
    /// Why it is a victim. Written before its wait is ended.
    verdict: Mutex<Option<Arc<DeadlockReport>>>,
    wait: CachePadded<Wait>,
}

impl Slot {
    fn new() -> Slot {
        Slot {
            busy: AtomicBool::new(false),
            parked: Mutex::new(Parked::Fresh),
            txn: AtomicU64::new(0),
            age: AtomicU64::new(0),
            completed: AtomicU32::new(0),
            released: AtomicU64::new(0),
            intents: Published::default(),
            description: Mutex::new(None),
            verdict: Mutex::new(None),
            wait: CachePadded::new(Wait::default()),
        }
    }

    pub(crate) fn txn(&self) -> TxnId {
        TxnId(self.txn.load(Relaxed))
    }

    pub(crate) fn age(&self) -> Age {
        Age::from_bits(self.age.load(Relaxed))
    }

    /// How many transactions its pipeline has completed whose locks are still held.
    pub(crate) fn completed(&self) -> u32 {
        self.completed.load(Relaxed)
    }

    /// Goes on as another transaction. By the owner.
    pub(crate) fn renew(&self, identity: Identity, completed: u32) {
        self.show(identity.txn, identity.age, completed);
        *self.parked.lock() = Parked::Away(identity);
    }

    /// Gives the transaction in the slot another label. By the owner.
    pub(crate) fn relabel(&self, label: Arc<str>) {
        if let Parked::Away(identity) = &mut *self.parked.lock() {
            identity.label = Some(label);
        }
    }

    /// Nobody will end the transaction in the slot. By the owner.
    pub(crate) fn stay(&self) {
        if let Parked::Away(identity) = &mut *self.parked.lock() {
            identity.stays = true;
        }
    }

    fn show(&self, txn: TxnId, age: Age, completed: u32) {
        self.txn.store(txn.0, Relaxed);
        self.age.store(age.bits(), Relaxed);
        self.completed.store(completed, Relaxed);
    }

    /// Who is in the slot.
    pub(crate) fn identity(&self) -> Option<Identity> {
        match &*self.parked.lock() {
            Parked::Away(identity) => Some(identity.clone()),
            Parked::Fresh | Parked::Idle(_) => None,
        }
    }

    pub(crate) fn describe(&self, description: WaitDescription) {
        *self.description.lock() = Some(description);
    }

    pub(crate) fn description(&self) -> Option<WaitDescription> {
        self.description.lock().clone()
    }

    pub(crate) fn judge(&self, report: Arc<DeadlockReport>) {
        *self.verdict.lock() = Some(report);
    }

    pub(crate) fn take_verdict(&self) -> Option<Arc<DeadlockReport>> {
        self.verdict.lock().take()
    }
}

/// All slots.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Box<[CachePadded<Slot>]>,
    /// Slots from here on have never been used. Written with `fetch_max` by whoever takes a slot.
    used: AtomicUsize,
    pub(crate) answered: CachePadded<Answered>,
    /// Where the next thread without a hint begins to look.
    next_hint: AtomicUsize,
}

impl Slots {
    pub(crate) fn new() -> Slots {
        let slots: Box<[_]> = (0..SLOTS).map(|_| CachePadded::new(Slot::new())).collect();
        foreshore_env::hint::name(&slots, "lock slot");
        Slots {
            slots,
            used: AtomicUsize::new(0),
            answered: CachePadded::default(),
            next_hint: AtomicUsize::new(0),
        }
    }

    #[inline]
    pub(crate) fn get(&self, slot: SlotId) -> &Slot {
        &self.slots[slot.index()]
    }

    #[inline]
    pub(crate) fn wait_of(&self, slot: SlotId) -> &Wait {
        &self.slots[slot.index()].wait
    }

    /// All slots that have ever been used.
    pub(crate) fn used(&self) -> impl Iterator<Item = (SlotId, &Slot)> {
        let used = self.used.load(Acquire);
        self.slots[..used].iter().enumerate().map(|(index, slot)| (SlotId(index as u16), &**slot))
    }

    /// The slots of transactions that wait for no lock, as far as one can see: a hint.
    pub(crate) fn running(&self) -> impl Iterator<Item = SlotId> {
        let runs = |slot: &Slot| slot.busy.load(Relaxed) && !slot.wait.word().is_waiting();
        self.used().filter(move |(_, slot)| runs(slot)).map(|(id, _)| id)
    }

    /// Takes a free slot for a transaction, which is told where it is.
    pub(crate) fn claim(
        &self,
        identify: impl FnOnce(SlotId) -> Identity,
    ) -> Option<(SlotId, TxnId, Box<OwnerState>)> {
        let found_last = hint::get();
        let hint = if found_last == usize::MAX { self.next_hint.fetch_add(1, Relaxed) } else { found_last };
        for offset in 0..SLOTS {
            let index = (hint.wrapping_add(offset)) % SLOTS;
            let slot = &self.slots[index];
            if slot.busy.load(Relaxed) {
                continue;
            }
            let mut parked = slot.parked.lock();
            let id = SlotId(index as u16);
            if matches!(*parked, Parked::Away(_)) {
                continue;
            }
            let identity = identify(id);
            let (txn, age) = (identity.txn, identity.age);
            let state = match std::mem::replace(&mut *parked, Parked::Away(identity)) {
                Parked::Idle(state) => state,
                Parked::Fresh | Parked::Away(_) => Box::new(OwnerState::new(id)),
            };
            slot.busy.store(true, Relaxed);
            drop(parked);
            if self.used.load(Relaxed) <= index {
                self.used.fetch_max(index + 1, Release);
            }
            slot.show(txn, age, 0);
            // A thread with several transactions at a time does not go further and further.
            if found_last == usize::MAX || offset > NEAR {
                hint::set(index);
            }
            return Some((id, txn, state));
        }
        None
    }

    /// Gives a slot back: its owner holds nothing any more.
    pub(crate) fn release(&self, slot: SlotId, state: Box<OwnerState>) {
        let slot = self.get(slot);
        let mut parked = slot.parked.lock();
        *parked = Parked::Idle(state);
        slot.busy.store(false, Relaxed);
    }
}
