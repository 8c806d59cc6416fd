//! An oracle beside the lock manager: who was told that it holds what. It notes a lock after it was granted and strikes
//! it out before it is released, so two conflicting notes at a time are two conflicting grants at a time (LOCK-3).

use foreshore_base::TxnId;
use foreshore_env::sync::Mutex;
use foreshore_lock::KeyMode;

#[derive(Default)]
pub(crate) struct Shadow {
    keys: Vec<Mutex<Vec<(TxnId, KeyMode)>>>,
}

impl Shadow {
    pub(crate) fn new(keys: usize) -> Shadow {
        Shadow { keys: (0..keys).map(|_| Mutex::default()).collect() }
    }

    pub(crate) fn granted(&self, key: usize, txn: TxnId, mode: KeyMode) {
        let mut holders = self.keys[key].lock();
        for &(other, held) in holders.iter().filter(|(other, _)| *other != txn) {
            assert!(held.compatible(mode), "{other} holds {held} while {txn} is granted {mode} on key {key}");
        }
        match holders.iter_mut().find(|(other, _)| *other == txn) {
            Some((_, held)) => *held = held.join(mode),
            None => holders.push((txn, mode)),
        }
    }

    pub(crate) fn release(&self, txn: TxnId) {
        for holders in &self.keys {
            holders.lock().retain(|(other, _)| *other != txn);
        }
    }

    pub(crate) fn assert_empty(&self) {
        assert!(self.keys.iter().all(|holders| holders.lock().is_empty()));
    }
}

#[test]
#[should_panic(expected = "holds XN")]
fn conflicting_grants_are_seen() {
    let shadow = Shadow::new(1);
    shadow.granted(0, TxnId(1), KeyMode::XN);
    shadow.granted(0, TxnId(2), KeyMode::NX);
    shadow.granted(0, TxnId(2), KeyMode::SN);
}
