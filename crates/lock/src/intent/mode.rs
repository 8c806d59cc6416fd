//! The modes of coarse locks: Kimura et al. 2012, Table 4 (after Gray et al. 1976).

use std::fmt;

/// A mode of a lock on a table or on the volume.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
#[repr(u8)]
pub enum IntentMode {
    /// Locks below are going to be shared.
    IS = 0,
    /// Locks below are going to be shared or exclusive.
    IX = 1,
    /// Everything below is locked shared.
    S = 2,
    /// S, and locks below are going to be exclusive.
    SIX = 3,
    /// Everything below is locked exclusively.
    X = 4,
}

use IntentMode::{IS, IX, S, SIX, X};

impl IntentMode {
    /// All modes.
    pub const ALL: [IntentMode; 5] = [IS, IX, S, SIX, X];

    /// Whether two transactions may hold these modes at the same time.
    #[inline]
    pub const fn compatible(self, other: IntentMode) -> bool {
        self.conflicts() & (1 << other as u8) == 0
    }

    /// The modes that this one conflicts with, a bit for each.
    #[inline]
    pub(crate) const fn conflicts(self) -> u8 {
        match self {
            IS => 1 << X as u8,
            IX => 1 << S as u8 | 1 << SIX as u8 | 1 << X as u8,
            S => 1 << IX as u8 | 1 << SIX as u8 | 1 << X as u8,
            SIX => 1 << IX as u8 | 1 << S as u8 | 1 << SIX as u8 | 1 << X as u8,
            X => 0b1_1111,
        }
    }

    /// The bit of this mode.
    #[inline]
    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Whether holding this mode makes asking for the other needless.
    #[inline]
    pub const fn covers(self, other: IntentMode) -> bool {
        match self {
            IS => matches!(other, IS),
            IX => matches!(other, IS | IX),
            S => matches!(other, IS | S),
            SIX => !matches!(other, X),
            X => true,
        }
    }

    /// The weakest mode that covers both.
    #[inline]
    #[must_use]
    pub const fn join(self, other: IntentMode) -> IntentMode {
        if self.covers(other) {
            self
        } else if other.covers(self) {
            other
        } else {
            SIX
        }
    }

    /// Whether it locks the thing itself, not only announces locks below.
    #[inline]
    pub const fn is_absolute(self) -> bool {
        matches!(self, S | SIX | X)
    }

    /// Whether a holder may have changed something: the table, or keys in it.
    #[inline]
    pub const fn writes(self) -> bool {
        matches!(self, IX | SIX | X)
    }

    pub(crate) const fn from_bits(bits: u64) -> IntentMode {
        match bits {
            0 => IS,
            1 => IX,
            2 => S,
            3 => SIX,
            _ => X,
        }
    }
}

impl fmt::Display for IntentMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    /// Kimura et al. 2012, Table 4, rows and columns S, X, IS, IX, SIX.
    #[test]
    fn compatibility_is_the_papers_table_4() {
        let order = [S, X, IS, IX, SIX];
        let table = ["+-+--", "-----", "+-+++", "--++-", "--+--"];
        for (row, one) in order.into_iter().enumerate() {
            for (column, other) in order.into_iter().enumerate() {
                let printed = table[row].as_bytes()[column] == b'+';
                assert_eq!(one.compatible(other), printed, "{one} {other}");
            }
        }
    }

    /// Which of (read a part, write a part, read all, write all) a mode stands for.
    fn rights(mode: IntentMode) -> u8 {
        match mode {
            IS => 0b0001,
            IX => 0b0011,
            S => 0b0101,
            SIX => 0b0111,
            X => 0b1111,
        }
    }

    #[test]
    fn joins_and_covers_follow_the_rights() {
        for one in IntentMode::ALL {
            assert_eq!(IntentMode::from_bits(one as u64), one);
            for other in IntentMode::ALL {
                assert_eq!(one.covers(other), rights(one) & rights(other) == rights(other));
                assert_eq!(rights(one.join(other)), rights(one) | rights(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn what_covers_conflicts_with_more() {
        for one in IntentMode::ALL {
            for stronger in IntentMode::ALL.into_iter().filter(|mode| mode.covers(one)) {
                assert_eq!(stronger.conflicts() & one.conflicts(), one.conflicts(), "{one} {stronger}");
            }
        }
    }
}
