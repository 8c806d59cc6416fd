//! The orthogonal key-range modes of Kimura et al. 2012, Table 2 (after Graefe 2007).
//!
//! | bit | meaning |
//! | --- | --- |
//! | 0 | the key is locked, shared or exclusively |
//! | 1 | the key is locked exclusively (bit 0 is set too) |
//! | 2 | the gap above the key is locked, shared or exclusively |
//! | 3 | the gap is locked exclusively (bit 2 is set too) |
//! | 4 | this is the mode of a table: bits 0 to 3 mean reading a part, writing a part, reading all, writing all |

use std::fmt;

use crate::intent::IntentMode;

/// The bits that say "locked at all", of both parts.
const LOCKED: u8 = 0b0101;
/// The bits that say "locked exclusively", of both parts.
const EXCLUSIVE: u8 = 0b1010;
const KEY: u8 = 0b0011;
const GAP: u8 = 0b1100;
/// The mode is that of a table, as [`KeyMode::coarse`] says.
const COARSE: u8 = 0b1_0000;
const BITS: u8 = 0b1_1111;

/// A key-range mode: one of N (not locked), S (shared), X (exclusive) for the key, and one for the open gap between it
/// and the next key. The two parts have nothing to do with each other.
#[derive(Copy, Clone, Eq, PartialEq, Hash)]
pub struct KeyMode(u8);

impl KeyMode {
    /// Nothing.
    pub const N: KeyMode = KeyMode(0b0000);
    /// Key and gap shared.
    pub const S: KeyMode = KeyMode(0b0101);
    /// Key and gap exclusive.
    pub const X: KeyMode = KeyMode(0b1111);
    /// Key shared.
    pub const SN: KeyMode = KeyMode(0b0001);
    /// Gap shared.
    pub const NS: KeyMode = KeyMode(0b0100);
    /// Key exclusive.
    pub const XN: KeyMode = KeyMode(0b0011);
    /// Gap exclusive.
    pub const NX: KeyMode = KeyMode(0b1100);
    /// Key shared, gap exclusive.
    pub const SX: KeyMode = KeyMode(0b1101);
    /// Key exclusive, gap shared.
    pub const XS: KeyMode = KeyMode(0b0111);

    /// All modes, in the order of the paper's Table 2.
    pub const ALL: [KeyMode; 9] = [
        KeyMode::N,
        KeyMode::S,
        KeyMode::X,
        KeyMode::NS,
        KeyMode::NX,
        KeyMode::SN,
        KeyMode::SX,
        KeyMode::XN,
        KeyMode::XS,
    ];

    /// The mode of a table as a whole, for intent locks that are requests in the lock table. Joining and covering work
    /// by the rights that a mode gives, as they do for keys and gaps; only what conflicts is another matter.
    pub(crate) const fn coarse(mode: IntentMode) -> KeyMode {
        KeyMode(
            COARSE
                | match mode {
                    IntentMode::IS => 0b0001,
                    IntentMode::IX => 0b0011,
                    IntentMode::S => 0b0101,
                    IntentMode::SIX => 0b0111,
                    IntentMode::X => 0b1111,
                },
        )
    }

    /// The mode of a table, if it is one.
    pub(crate) const fn intent(self) -> Option<IntentMode> {
        match self.0 {
            0b1_0001 => Some(IntentMode::IS),
            0b1_0011 => Some(IntentMode::IX),
            0b1_0101 => Some(IntentMode::S),
            0b1_0111 => Some(IntentMode::SIX),
            0b1_1111 => Some(IntentMode::X),
            _ => None,
        }
    }

    /// Whether two transactions may hold these modes at the same time: both parts agree.
    #[inline]
    pub const fn compatible(self, other: KeyMode) -> bool {
        CONFLICTS[(self.0 & BITS) as usize] >> other.0 & 1 == 0
    }

    /// The weakest mode that covers both.
    #[inline]
    #[must_use]
    pub const fn join(self, other: KeyMode) -> KeyMode {
        KeyMode(self.0 | other.0)
    }

    /// Whether holding this mode makes asking for the other needless.
    #[inline]
    pub const fn covers(self, other: KeyMode) -> bool {
        self.0 & other.0 == other.0
    }

    /// The key's part alone: N, SN or XN.
    #[inline]
    #[must_use]
    pub const fn key(self) -> KeyMode {
        KeyMode(self.0 & KEY)
    }

    /// The gap's part alone: N, NS or NX.
    #[inline]
    #[must_use]
    pub const fn gap(self) -> KeyMode {
        KeyMode(self.0 & GAP)
    }

    /// Whether a part is exclusive: what it stands for may have been changed.
    #[inline]
    pub const fn is_exclusive(self) -> bool {
        self.0 & EXCLUSIVE != 0
    }

    #[inline]
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// The mode with these bits, of which only the lower five are looked at.
    #[inline]
    pub(crate) const fn from_bits(bits: u8) -> KeyMode {
        KeyMode(bits & BITS)
    }
}

/// For each mode a bit for each mode that it conflicts with.
const CONFLICTS: [u32; 32] = {
    let mut conflicts = [0; 32];
    let mut one = 0;
    while one < 32 {
        let mut other = 0;
        while other < 32 {
            conflicts[one as usize] |= (conflict(one, other) as u32) << other;
            other += 1;
        }
        one += 1;
    }
    conflicts
};

const fn conflict(one: u8, other: u8) -> bool {
    if one & !COARSE == 0 || other & !COARSE == 0 {
        false
    } else if (one ^ other) & COARSE != 0 {
        // A key and a table whose names are equal by chance.
        true
    } else if one & COARSE != 0 {
        excludes(one, other) || excludes(other, one)
    } else {
        ((one & EXCLUSIVE) >> 1 & other | (other & EXCLUSIVE) >> 1 & one) & LOCKED != 0
    }
}

/// Whether a mode of a table excludes another: a writer of a part excludes readers of all, a writer of all excludes
/// everybody.
const fn excludes(one: u8, other: u8) -> bool {
    one & 0b0010 != 0 && other & 0b0100 != 0 || one & 0b1000 != 0 && other & 0b0001 != 0
}

impl fmt::Display for KeyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mode) = self.intent() {
            return mode.fmt(f);
        }
        const PARTS: [&str; 4] = ["N", "S", "?", "X"];
        match *self {
            KeyMode::N => f.write_str("N"),
            KeyMode::S => f.write_str("S"),
            KeyMode::X => f.write_str("X"),
            KeyMode(bits) => {
                write!(f, "{}{}", PARTS[usize::from(bits & KEY)], PARTS[usize::from((bits & GAP) >> 2)])
            }
        }
    }
}

impl fmt::Debug for KeyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::{IntentMode, KeyMode};

    /// Kimura et al. 2012, Table 2, as printed: rows and columns in the order of `KeyMode::ALL`.
    const TABLE_2: [&str; 9] = [
        "+++++++++", // N:  N S X NS NX SN SX XN XS
        "++-+-+---", // S
        "+--------", // X
        "++-+-+-++", // NS
        "+----+-+-", // NX
        "++-++++--", // SN
        "+----+---", // SX
        "+--++----", // XN
        "+--+-----", // XS
    ];

    /// Every mode as its two parts, each 0 (N), 1 (S) or 2 (X), taken from its name.
    fn parts(mode: KeyMode) -> [usize; 2] {
        let name = mode.to_string();
        let name = if name.len() == 1 { format!("{name}{name}") } else { name };
        let part = |at: usize| "NSX".find(&name[at..=at]).unwrap();
        [part(0), part(1)]
    }

    #[test]
    fn compatibility_is_the_papers_table_2() {
        for (row, one) in KeyMode::ALL.into_iter().enumerate() {
            for (column, other) in KeyMode::ALL.into_iter().enumerate() {
                let printed = TABLE_2[row].as_bytes()[column] == b'+';
                assert_eq!(one.compatible(other), printed, "{one} {other}");
            }
        }
    }

    #[test]
    fn joins_and_covers_work_part_by_part() {
        for one in KeyMode::ALL {
            for other in KeyMode::ALL {
                let ([a, b], [c, d]) = (parts(one), parts(other));
                assert_eq!(parts(one.join(other)), [a.max(c), b.max(d)], "{one} {other}");
                assert_eq!(one.covers(other), a >= c && b >= d, "{one} {other}");
            }
            let [key, gap] = parts(one);
            assert_eq!((parts(one.key()), parts(one.gap())), ([key, 0], [0, gap]));
            assert_eq!(one.is_exclusive(), key == 2 || gap == 2);
            assert_eq!(KeyMode::from_bits(one.bits()), one);
        }
    }

    /// As a mode in the lock table, the mode of a table does what it does elsewhere.
    #[test]
    fn modes_of_tables_are_those_of_intent_locks() {
        for one in IntentMode::ALL {
            let coarse = KeyMode::coarse(one);
            assert_eq!((coarse.intent(), coarse.to_string()), (Some(one), one.to_string()));
            assert_eq!(KeyMode::from_bits(coarse.bits()), coarse);
            assert!(coarse.compatible(KeyMode::N) && KeyMode::N.compatible(coarse));
            for other in IntentMode::ALL.map(|other| (other, KeyMode::coarse(other))) {
                assert_eq!(coarse.compatible(other.1), one.compatible(other.0), "{one} {}", other.0);
                assert_eq!(coarse.join(other.1), KeyMode::coarse(one.join(other.0)));
                assert_eq!(coarse.covers(other.1), one.covers(other.0));
            }
            for key in &KeyMode::ALL[1..] {
                assert!(!coarse.compatible(*key) && !key.compatible(coarse), "never mixed: {one} {key}");
                assert_eq!(key.intent(), None);
            }
        }
    }

    /// A stronger wish is never easier to grant: what the lock table relies on when it counts a conversion's target.
    #[test]
    fn what_covers_conflicts_with_more() {
        for one in KeyMode::ALL {
            for stronger in KeyMode::ALL.into_iter().filter(|mode| mode.covers(one)) {
                for other in KeyMode::ALL {
                    assert!(one.compatible(other) || !stronger.compatible(other), "{one} {stronger} {other}");
                }
            }
        }
    }
}
