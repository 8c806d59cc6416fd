//! Lines of bounded length.

use std::io::{self, BufRead, Read};

/// The longest line. A value takes as many bytes, or twice as many in hexadecimal digits.
pub(super) const MAX_LINE_BYTES: usize = 4 << 20;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its end.
    Text(Vec<u8>),
    /// Nothing but white space.
    Blank,
    /// A line that is too long. It was skipped.
    TooLong,
    /// There is no more.
    End,
}

/// Reads a line, of which it keeps no more in memory than it may have bytes.
pub(super) fn next_line(input: &mut impl BufRead) -> io::Result<Line> {
    let mut text = Vec::new();
    // One more for the end of the line, and one to see that it is too long.
    let read = input.by_ref().take(MAX_LINE_BYTES as u64 + 2).read_until(b'\n', &mut text)?;
    if read == 0 {
        return Ok(Line::End);
    }
    let complete = text.pop_if(|byte| *byte == b'\n').is_some();
    if text.len() > MAX_LINE_BYTES {
        if !complete {
            input.skip_until(b'\n')?;
        }
        return Ok(Line::TooLong);
    }
    Ok(if text.iter().all(u8::is_ascii_whitespace) { Line::Blank } else { Line::Text(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_they_end_and_long_ones_are_skipped() {
        let mut input = b"one\n \t\r\n\ntwo".to_vec();
        input.extend(vec![b'x'; MAX_LINE_BYTES - 3]);
        input.extend(b"\n");
        input.extend(vec![b'y'; MAX_LINE_BYTES + 1]);
        input.extend(b"\n");
        input.extend(vec![b'z'; 3 * MAX_LINE_BYTES]);
        input.extend(b"\nlast");
        let mut input = input.as_slice();
        let mut next = || next_line(&mut input).unwrap();
        assert_eq!(next(), Line::Text(b"one".to_vec()));
        assert_eq!((next(), next()), (Line::Blank, Line::Blank));
        assert!(matches!(next(), Line::Text(text) if text.len() == MAX_LINE_BYTES));
        assert_eq!((next(), next()), (Line::TooLong, Line::TooLong));
        assert_eq!((next(), next()), (Line::Text(b"last".to_vec()), Line::End));
    }
}
