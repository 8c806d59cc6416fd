//! What prepared transactions are called.

use foreshore_base::{Lsn, TxnId};
use foreshore_env::sync::Arc;

/// A transaction that is prepared, for those who decide.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreparedTransaction {
    /// What `prepare` was given.
    pub global_id: Vec<u8>,
    /// Its number.
    pub txn: TxnId,
    /// When it was prepared, in seconds since 1970.
    pub prepared_at_unix_seconds: u64,
    /// Locks on keys that it holds.
    pub locks: usize,
    /// Tables that it has locked as a whole.
    pub tables: usize,
    /// Its first record: the log is kept for it from there on.
    pub log_from: Lsn,
}

impl PreparedTransaction {
    /// The global id as `foreshore prepared` shows and takes it: as text if it is some, else `hex:00ff…`.
    pub fn shown_id(&self) -> String {
        shown(&self.global_id)
    }

    /// [`PreparedTransaction::shown_id`] for any global id, whether a transaction is prepared under it or not.
    pub fn show_id(global_id: &[u8]) -> String {
        shown(global_id)
    }
}

const HEX: &str = "hex:";

pub(super) fn shown(id: &[u8]) -> String {
    match str::from_utf8(id) {
        Ok(text) if !text.starts_with(HEX) && !text.contains(char::is_control) => text.to_owned(),
        _ => id.iter().fold(HEX.to_owned(), |text, byte| text + &format!("{byte:02x}")),
    }
}

/// What reports call a prepared transaction, before and after a restart.
pub(super) fn label(id: &[u8]) -> Arc<str> {
    Arc::from(format!("prepared {}", shown(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_are_no_text_are_shown_in_digits() {
        for (id, expected) in [
            (&b"transfer 17"[..], "transfer 17"),
            ("é".as_bytes(), "é"),
            (b"\xff\x00", "hex:ff00"),
            (b"a\nb", "hex:610a62"),
            (b"hex:00", "hex:6865783a3030"),
        ] {
            assert_eq!(shown(id), expected);
            assert_eq!(*label(id), *format!("prepared {expected}"));
        }
    }
}
