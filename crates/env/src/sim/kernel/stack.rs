//! Stacks of fibers.

use std::{io, ops::Range};

use corosensei::stack::{DefaultStack, Stack as Memory, StackPointer};

/// A line of the real machine's caches, and how many of them stacks are apart at most.
const LINE: usize = 64;
const COLOURS: usize = 32;

/// A stack that begins some lines below its end. Stacks lie on pages, and the lines that a fiber uses at each turn
/// would otherwise fall into the same sets of the real machine's caches as those of all others.
pub(in crate::sim) struct Stack {
    memory: DefaultStack,
    base: StackPointer,
}

impl Stack {
    /// At least so many bytes, less than a page of which is lost; the `number`-th of all.
    pub(in crate::sim) fn new(bytes: usize, number: usize) -> io::Result<Stack> {
        let memory = DefaultStack::new(bytes)?;
        // Few lines of each are in use, next to each other.
        let lines = number * 5 % COLOURS;
        let base = StackPointer::new(memory.base().get() - lines * LINE).expect("a stack does not end at 0");
        Ok(Stack { memory, base })
    }

    /// Where it lies.
    pub(in crate::sim) fn place(&self) -> Range<usize> {
        self.memory.limit().get()..self.memory.base().get()
    }
}

// SAFETY: the memory is that of a stack; it is used from a line below its end on, which is aligned as stacks have to
// be.
unsafe impl Memory for Stack {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.memory.limit()
    }
}
