//! Where entries come from.

use std::{
    cell::Cell,
    io::{self, BufRead, Read},
};

use clap::ValueEnum;
use serde_json::Value as Json;

use super::{ends::Ends, sink::Sink};
use crate::{dump::cell::Kind, output::CliError};

/// The longest line of JSON, and the longest record of a table, in bytes, with their ends: more than the longest key and value take
/// when every byte is escaped.
const LONGEST_LINE: u64 = 128 << 20;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Comma-separated values with a header line (RFC 4180).
    Csv,
    /// The same, separated by tabs.
    Tsv,
    /// One JSON object in each line; also what `dump` writes.
    Jsonl,
}

/// What the caller said about tables and columns.
pub(crate) struct Columns {
    pub(crate) table: Option<String>,
    pub(crate) default_table: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) key_type: String,
    pub(crate) value: Option<String>,
}

impl Columns {
    fn table(&self) -> Result<&str, CliError> {
        self.table.as_deref().or(self.default_table.as_deref()).ok_or_else(|| {
            CliError::usage("the table has no name, and the input has none to lend it", "add --table NAME")
        })
    }
}

fn at_line(line: u64, complaint: impl std::fmt::Display) -> CliError {
    CliError::Line { line, complaint: complaint.to_string(), entries: None }
}

/// Reads everything into the sink.
pub(crate) fn read(
    form: Form,
    input: impl BufRead,
    columns: &Columns,
    sink: &mut Sink<'_>,
) -> Result<(), CliError> {
    match form {
        Form::Csv => read_separated(b',', input, columns, sink),
        Form::Tsv => read_separated(b'\t', input, columns, sink),
        Form::Jsonl => read_jsonl(input, columns, sink),
    }
}

fn read_separated(
    separator: u8,
    input: impl BufRead,
    columns: &Columns,
    sink: &mut Sink<'_>,
) -> Result<(), CliError> {
    let place = Place::default();
    let mut reader =
        csv::ReaderBuilder::new().delimiter(separator).from_reader(ByLines { input, place: &place });
    let headers = reader.headers().map_err(|error| csv_error(place.line(), &error))?.clone();
    if headers.is_empty() {
        return Err(CliError::usage("the file is empty", "the first line must name the columns"));
    }
    check_separator(separator, &headers)?;
    let column = |name: &str| {
        headers.iter().position(|header| header == name).ok_or_else(|| {
            let known = headers.iter().collect::<Vec<_>>().join(", ");
            CliError::usage(format!("there is no column {name:?}"), format!("name one of: {known}"))
        })
    };
    let key = columns.key.as_deref().map_or(Ok(0), column)?;
    let value = columns.value.as_deref().map(column).transpose()?;
    sink.begin_table(columns.table()?, &columns.key_type, "str")?;
    let key_kind = Kind::of(&columns.key_type);
    let mut row = csv::StringRecord::new();
    loop {
        place.begin_record();
        if !reader.read_record(&mut row).map_err(|error| csv_error(place.line(), &error))? {
            return Ok(());
        }
        let line = place.line();
        // Every record has as many fields as the header: the reader sees to it.
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
    let others = [(',', "add --format csv"), ('\t', "add --format tsv"), (';', "put commas in their places")];
    let other =
        |(other, _): &&(char, _)| u32::from(*other) != u32::from(separator) && column.contains(*other);
    let Some((other, hint)) = others.iter().find(other) else { return Ok(()) };
    Err(CliError::usage(
        format!("there is only one column, {column:?}, and {other:?} in its name seems to separate several"),
        *hint,
    ))
}

/// Where in an input a reader is. (The CSV reader's own position is where the record before ended: before blank lines, and before the
/// second half of a line's end.)
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
}

impl Place {
    fn begin_record(&self) {
        self.first.set(None);
        self.bytes.set(0);
    }

    /// The line where the record begins. Where lines end as they did long ago, by a carriage return alone, all of them are one.
    fn line(&self) -> u64 {
        self.first.get().unwrap_or(self.last.get())
    }
}

/// An input that is given a line at a time, so that nothing of the next record has been given when one is complete. It fails where a
/// record does not end, as in a quotation without an end: the record would take all memory.
struct ByLines<'p, I> {
    input: I,
    place: &'p Place,
}

impl<I: BufRead> Read for ByLines<'_, I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ahead = self.input.fill_buf()?;
        let ahead = &ahead[..ahead.len().min(buffer.len())];
        let end = ahead.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(ahead.len(), |end| end + 1);
        buffer[..count].copy_from_slice(&ahead[..count]);
        let Place { ends, last, first, bytes } = self.place;
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
            return Err(io::Error::other(format!("a record is longer than {LONGEST_LINE} bytes")));
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

#[cold]
fn csv_error(line: u64, error: &csv::Error) -> CliError {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            at_line(line, format_args!("{len} fields, where the header names {expected_len}"))
        }
        csv::ErrorKind::Utf8 { err, .. } => at_line(
            line,
            format_args!("column {} is not UTF-8; convert the file, for example with iconv", err.field() + 1),
        ),
        csv::ErrorKind::Io(error) => at_line(line, format_args!("cannot be read: {error}")),
        _ => at_line(line, error),
    }
}

/// What the lines of a JSON file are.
enum Lines {
    /// Not known before the first one.
    Unknown,
    /// Entries of a dump's table.
    Dump {
        keys: Kind,
        values: Kind,
        /// The dump may be of a program that wrote some numbers as bytes: it had no ends of tables yet.
        older: bool,
    },
    /// Objects of the user's own.
    Objects { keys: Kind },
}

/// What some programs write before the first character of a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{FEFF}".as_bytes();

fn read_jsonl(mut input: impl BufRead, columns: &Columns, sink: &mut Sink<'_>) -> Result<(), CliError> {
    let mut lines = Lines::Unknown;
    let mut ends = Ends::default();
    let mut tables = 0;
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let length = (&mut input).take(LONGEST_LINE + 1).read_until(b'\n', &mut text);
        let length = length.map_err(CliError::io("read the input"))? as u64;
        if length == 0 {
            return if matches!(lines, Lines::Unknown) {
                Err(CliError::usage("the input is empty", "give it an object in each line"))
            } else {
                ends.finish()
            };
        }
        if length > LONGEST_LINE {
            return Err(at_line(line, format_args!("longer than {LONGEST_LINE} bytes")));
        }
        let text = match text.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if line == 1 => rest,
            _ => &text[..],
        };
        let text = text.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let json = object_of_line(line, text)?;
        if let Some(Header { table, key_type, value_type, ends: promised }) = dump_header(&json) {
            ends.begin(line, table, promised)?;
            tables += 1;
            if tables > 1 && columns.table.is_some() {
                let hint = "leave out --table, or dump one table";
                return Err(CliError::usage("the dump holds several tables, which cannot all be one", hint));
            }
            sink.begin_table(columns.table.as_deref().unwrap_or(table), key_type, value_type)?;
            lines = Lines::Dump { keys: Kind::of(key_type), values: Kind::of(value_type), older: !promised };
            continue;
        }
        if let Lines::Unknown = lines {
            sink.begin_table(columns.table()?, &columns.key_type, "str")?;
            lines = Lines::Objects { keys: Kind::of(&columns.key_type) };
        }
        if ends.is_end(line, &json)? {
            continue;
        }
        let (key, value) = match &lines {
            Lines::Dump { keys, values, older } => dump_entry(&json, *keys, *values, *older),
            Lines::Objects { keys } => {
                let Some(name) = &columns.key else {
                    let hint = "add --key-column FIELD";
                    return Err(CliError::usage("a JSON object does not tell which field is its key", hint));
                };
                entry(&json, text, name, *keys, columns.value.as_deref())
            }
            Lines::Unknown => continue,
        }
        .map_err(|complaint| at_line(line, complaint))?;
        sink.entry(line, key, value)?;
    }
    Ok(())
}

/// A line, which is one object.
fn object_of_line(line: u64, text: &[u8]) -> Result<Json, CliError> {
    let wrong = |why: String| at_line(line, format_args!("each line must be one JSON object: {why}"));
    if text.starts_with(b"[") {
        return Err(wrong(
            "an array begins here; put each of its elements into a line of its own".to_owned(),
        ));
    }
    match serde_json::from_slice(text) {
        Ok(json @ Json::Object(_)) => Ok(json),
        Ok(json) => Err(wrong(format!("found {json}"))),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// The line that begins a table in a dump.
struct Header<'j> {
    table: &'j str,
    key_type: &'j str,
    value_type: &'j str,
    /// Whether a line is to end it. Older dumps have none, nor has what somebody writes.
    ends: bool,
}

fn dump_header(json: &Json) -> Option<Header<'_>> {
    let object = json.as_object()?;
    let text = |name: &str| object.get(name)?.as_str();
    let ends = match (object.len(), object.get("ends")) {
        (3, None) => false,
        (4, Some(ends)) => ends.as_bool()?,
        _ => return None,
    };
    Some(Header { table: text("table")?, key_type: text("key_type")?, value_type: text("value_type")?, ends })
}

fn field<'j>(json: &'j Json, name: &str) -> Result<&'j Json, String> {
    json.get(name).ok_or_else(|| format!("there is no field {name:?}"))
}

fn dump_entry(json: &Json, keys: Kind, values: Kind, older: bool) -> Result<(Vec<u8>, Vec<u8>), String> {
    let as_once = |kind: Kind, json| if older { kind.number_from_older_json(json) } else { None };
    let (key, value) = (field(json, "key")?, field(json, "value")?);
    let encoded = as_once(keys, key).map_or_else(|| keys.key_from_json(key), Ok);
    let encoded = encoded.map_err(|complaint| format!("key: {complaint}"))?;
    let value = as_once(values, value).map_or_else(|| values.value_from_json(value), Ok);
    Ok((encoded, value.map_err(|complaint| format!("value: {complaint}"))?))
}

fn entry(
    json: &Json,
    text: &[u8],
    key: &str,
    keys: Kind,
    value: Option<&str>,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    let encoded =
        keys.key_from_json(field(json, key)?).map_err(|complaint| format!("field {key:?}: {complaint}"))?;
    let value = match value {
        // As it stands: its numbers keep their digits.
        None => text.to_vec(),
        Some(name) => match field(json, name)? {
            Json::String(text) => text.clone().into_bytes(),
            other => other.to_string().into_bytes(),
        },
    };
    Ok((encoded, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said to this input, if it is refused. A sink keeps so few entries; it opens no database.
    fn read_all(form: Form, input: impl Read) -> Option<String> {
        let columns = Columns {
            table: Some("t".to_owned()),
            default_table: None,
            key: Some("k".to_owned()),
            key_type: "str".to_owned(),
            value: Some("v".to_owned()),
        };
        let mut sink = Sink::new(|| panic!("nothing is to be loaded"), 1000, false);
        let read = read(form, io::BufReader::new(input), &columns, &mut sink);
        read.err().map(|error| error.to_string())
    }

    #[test]
    fn lines_and_records_have_a_limit() {
        // Of JSON to the byte. Blanks are nothing, but count.
        for (bytes, fits) in [(LONGEST_LINE - 1, true), (LONGEST_LINE, true), (LONGEST_LINE + 1, false)] {
            let blank = io::repeat(b' ').take(bytes - 1).chain(&b"\n"[..]);
            let said = read_all(Form::Jsonl, blank.chain(&b"{\"k\":\"a\",\"v\":\"b\"}\n"[..]));
            assert_eq!(said.is_none(), fits, "{bytes}: {said:?}");
            assert!(fits || said.unwrap().contains("longer than"));
        }
        // Of others within a buffer.
        let longest = io::repeat(b'x').take(LONGEST_LINE - (16 << 10));
        let table = (&b"k,v,w\na,b,\""[..]).chain(longest).chain(&b"\"\nc,d,e\n"[..]);
        assert_eq!(read_all(Form::Csv, table), None);
        for endless in ["k,v,\"", "k,v,w\na,b,\"", "k,v,w\na,b,"] {
            let said = read_all(Form::Csv, endless.as_bytes().chain(io::repeat(b'x'))).unwrap();
            assert!(said.contains("a record is longer than"), "{endless:?}: {said}");
        }
    }
}
