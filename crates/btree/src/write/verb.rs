//! What a write does, with what, and what came of it.

use crate::overflow::Reference;

/// What is to be done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Add a record, if there is none.
    Insert,
    /// Replace the value, if there is a record.
    Update,
    /// Either of both.
    Put,
    /// Make the record a ghost, if there is one.
    Delete,
}

impl Verb {
    /// Whether it may add a record.
    #[inline]
    pub(crate) fn may_add(self) -> bool {
        matches!(self, Verb::Insert | Verb::Put)
    }

    /// Whether nothing is to be done, and the presence or absence of the key is the answer.
    #[inline]
    pub(crate) fn is_answered_by(self, live: bool) -> bool {
        match self {
            Verb::Insert => live,
            Verb::Put => false,
            Verb::Update | Verb::Delete => !live,
        }
    }
}

/// A value as it is stored in its leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'v> {
    pub(crate) bytes: &'v [u8],
    pub(crate) overflow: bool,
}

/// What a write has done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// The key had a record before.
    pub(crate) existed: bool,
    /// The long value that the record had before: nothing refers to it now.
    pub(crate) replaced: Option<Reference>,
}

impl Written {
    #[inline]
    pub(crate) fn nothing(existed: bool) -> Written {
        Written { existed, replaced: None }
    }

    /// The value was written over itself: whatever it refers to is in use.
    pub(crate) fn keeping(self) -> Written {
        Written { replaced: None, ..self }
    }
}
