//! Tables whose first line names the columns, separated by commas or tabs.

use std::{
    cell::Cell,
    collections::BTreeSet,
    io::{self, BufRead, Read},
};

use serde_json::Value as Json;

use super::{BYTE_ORDER_MARK, Columns, LONGEST_LINE, READ, at_line};
use crate::{
    dump::cell::Kind,
    load::sink::Sink,
    output::{CliError, counted},
};

/// Reads everything into the sink.
pub(super) fn read(
    separator: u8,
    mut input: impl BufRead,
    columns: &Columns,
    sink: &mut Sink<'_>,
) -> Result<(), CliError> {
    let place = Place::default();
    // It belongs to no field. A pipe may give a part of it first.
    let mut ahead = Vec::new();
    input.by_ref().take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut ahead).map_err(CliError::io(READ))?;
    if ahead == BYTE_ORDER_MARK {
        ahead.clear();
    }
    let input = io::Cursor::new(ahead).chain(input);
    let lines = ByLines { input, place: &place, ended: false, separator, at: At::Start };
    let mut reader = csv::ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(lines);
    let headers = reader.headers().map_err(|error| csv_error(place.line(), error))?.clone();
    if headers.is_empty() {
        return Err(CliError::usage("the file is empty", "the first line must name the columns"));
    }
    check_quotation(&headers, &place)?;
    check_separator(separator, &headers)?;
    check_names(&headers)?;
    let column = |name: &str| {
        headers.iter().position(|header| header == name).ok_or_else(|| {
            let known = headers.iter().collect::<Vec<_>>().join(", ");
            CliError::usage(format!("there is no column {name:?}"), format!("name one of: {known}"))
        })
    };
    let key = columns.key.as_deref().map_or(Ok(0), column)?;
    let value = columns.value.as_deref().map(column).transpose()?;
    sink.begin_table(columns.table()?, columns.key_type(), "str")?;
    let key_kind = Kind::of(columns.key_type());
    let mut row = csv::StringRecord::new();
    loop {
        place.begin_record();
        if !reader.read_record(&mut row).map_err(|error| csv_error(place.line(), error))? {
            return Ok(());
        }
        check_quotation(&row, &place)?;
        let line = place.line();
        if row.len() != headers.len() {
            let fields = counted(row.len(), "field", "fields");
            let complaint = format!("{fields}, where the header names {}", headers.len());
            return Err(at_line(line, complaint));
        }
        let field = |place: usize| row.get(place).unwrap_or_default();
        let encoded = key_kind
            .key_from_text(field(key))
            .map_err(|complaint| at_line(line, format_args!("column {:?}: {complaint}", &headers[key])))?;
        let text = match value {
            Some(value) => field(value).to_owned(),
            None => object(headers.iter().zip(&row).enumerate().filter(|(place, _)| *place != key)),
        };
        sink.entry(line, encoded, text.into_bytes())?;
    }
}

/// Refuses a header that another separator would divide: its one column would be the key of entries without any value.
fn check_separator(separator: u8, headers: &csv::StringRecord) -> Result<(), CliError> {
    let (Some(column), 1) = (headers.get(0), headers.len()) else { return Ok(()) };
    let others =
        [(',', "add --format csv"), ('\t', "add --format tsv"), (';', "separate the columns by commas")];
    let other =
        |(other, _): &&(char, _)| u32::from(*other) != u32::from(separator) && column.contains(*other);
    let Some((other, hint)) = others.iter().find(other) else { return Ok(()) };
    Err(CliError::usage(
        format!("there is only one column, {column:?}, and {other:?} in its name seems to separate several"),
        *hint,
    ))
}

/// Refuses a header that names two columns alike: objects would have one of them, or both under one name.
fn check_names(headers: &csv::StringRecord) -> Result<(), CliError> {
    let mut names = BTreeSet::new();
    let Some(name) = headers.iter().find(|name| !names.insert(*name)) else { return Ok(()) };
    Err(CliError::usage(
        format!("several columns are called {name:?}"),
        "give each of them a name of its own in the first line",
    ))
}

/// Refuses a record that only the end of the input has completed: it is in a quotation, which has taken all lines that
/// follow.
fn check_quotation(record: &csv::StringRecord, place: &Place) -> Result<(), CliError> {
    if !place.exhausted.get() {
        return Ok(());
    }
    let line = place.line();
    let quoted = record.iter().next_back().unwrap_or_default();
    let begun = place.ends.get() + 1 - quoted.matches('\n').count() as u64;
    let begun = if begun == line { String::new() } else { format!(", which begins in line {begun},") };
    Err(at_line(line, format_args!("a quoted field{begun} does not end")))
}

/// Where in an input a reader is. (The CSV reader's own position is where the record before ended: before blank lines,
/// and before the second half of a line's end.)
#[derive(Default)]
struct Place {
    /// Ends of lines that were given.
    ends: Cell<u64>,
    /// The line of what was given last.
    last: Cell<u64>,
    /// The line where the record begins, as soon as something of it was given.
    first: Cell<Option<u64>>,
    /// Bytes that were given for the record.
    bytes: Cell<u64>,
    /// Whether more was wanted than there is.
    exhausted: Cell<bool>,
}

impl Place {
    fn begin_record(&self) {
        self.first.set(None);
        self.bytes.set(0);
    }

    /// The line where the record begins. Where lines end as they did long ago, by a carriage return alone, all of them
    /// are one.
    fn line(&self) -> u64 {
        self.first.get().unwrap_or(self.last.get())
    }
}

/// An input that is given a line at a time, so that nothing of the next record has been given when one is complete. It
/// fails where a record does not end, as in a quotation without an end: the record would take all memory.
///
/// Behind the input it gives one more end of a line, which completes every record that is in no quotation.
struct ByLines<'p, I> {
    input: I,
    place: &'p Place,
    /// That end was given.
    ended: bool,
    separator: u8,
    at: At,
}

/// Where in a record the next byte is.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// At the beginning of a field.
    Start,
    /// In a field without quotation.
    Plain,
    Quotation,
    /// Behind a quotation mark in a quotation: it ends there, or goes on behind a second one.
    Mark,
    /// Behind the end of a quotation, where nothing of the field may follow. (The CSV reader takes it as a part of the
    /// field, and what a stray mark begins as a quotation, with all lines up to the next one.)
    Astray,
}

impl At {
    fn behind(self, byte: u8, separator: u8) -> At {
        match (self, byte) {
            (At::Quotation, b'"') => At::Mark,
            (At::Quotation, _) => At::Quotation,
            (At::Start | At::Mark, b'"') => At::Quotation,
            (_, b'\r' | b'\n') => At::Start,
            (_, byte) if byte == separator => At::Start,
            (At::Mark | At::Astray, _) => At::Astray,
            (At::Start | At::Plain, _) => At::Plain,
        }
    }
}

impl<I> ByLines<'_, I> {
    /// What is given where the input has ended.
    fn read_end(&mut self, buffer: &mut [u8]) -> usize {
        let (false, Some(byte)) = (self.ended, buffer.first_mut()) else {
            self.place.exhausted.set(self.ended);
            return 0;
        };
        *byte = b'\n';
        self.ended = true;
        self.place.ends.set(self.place.ends.get() + 1);
        1
    }
}

impl<I: BufRead> Read for ByLines<'_, I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ahead = self.input.fill_buf()?;
        if ahead.is_empty() {
            return Ok(self.read_end(buffer));
        }
        let ahead = &ahead[..ahead.len().min(buffer.len())];
        let end = ahead.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(ahead.len(), |end| end + 1);
        buffer[..count].copy_from_slice(&ahead[..count]);
        let Place { ends, last, first, bytes, .. } = self.place;
        last.set(ends.get() + 1);
        let blank = buffer[..count].iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        if first.get().is_none() && !blank {
            first.set(Some(last.get()));
        }
        self.input.consume(count);
        ends.set(ends.get() + u64::from(end.is_some()));
        // Blank lines belong to no record.
        let given = if first.get().is_none() { 0 } else { bytes.get() + count as u64 };
        bytes.set(given);
        if given > LONGEST_LINE {
            return Err(complaint(format!("a record is longer than {LONGEST_LINE} bytes")));
        }
        for byte in &buffer[..count] {
            self.at = self.at.behind(*byte, self.separator);
            if self.at == At::Astray {
                let line = self.place.last.get();
                return Err(complaint(format!(
                    "in line {line}, text follows the end of a quoted field; write a quotation mark that belongs to the text twice"
                )));
            }
        }
        Ok(count)
    }
}

/// A JSON object of these columns, in their order.
fn object<'r>(columns: impl Iterator<Item = (usize, (&'r str, &'r str))>) -> String {
    let mut text = String::from("{");
    for (_, (name, field)) in columns {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&format!("{}:{}", Json::from(name), Json::from(field)));
    }
    text.push('}');
    text
}

/// What is wrong with the text itself; all other errors are those of whoever gives it.
fn complaint(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cold]
fn csv_error(line: u64, error: csv::Error) -> CliError {
    let told = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Utf8 { err, .. } => at_line(
            line,
            format_args!("column {} is not UTF-8; convert the file, for example with iconv", err.field() + 1),
        ),
        csv::ErrorKind::Io(cause) if cause.kind() != io::ErrorKind::InvalidData => CliError::io(READ)(cause),
        csv::ErrorKind::Io(cause) => at_line(line, format_args!("cannot be read: {cause}")),
        _ => at_line(line, told),
    }
}
