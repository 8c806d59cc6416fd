//! Where entries come from.

mod separated;

use std::io::{BufRead, Read};

use clap::ValueEnum;

use super::{ends::Ends, object::Object, sink::Sink};
use crate::{dump::cell::Kind, fields, output::CliError};

/// The longest line of JSON, and the longest record of a table, in bytes, with their ends: more than the longest key
/// and value take when every byte is escaped.
const LONGEST_LINE: u64 = 128 << 20;

/// What was attempted when the input fails.
const READ: &str = "read the input";

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
    pub(crate) key_type: Option<String>,
    pub(crate) value: Option<String>,
}

impl Columns {
    fn table(&self) -> Result<&str, CliError> {
        self.table.as_deref().or(self.default_table.as_deref()).ok_or_else(|| {
            CliError::usage("the table has no name, and the input does not give it one", "add --table NAME")
        })
    }

    fn key_type(&self) -> &str {
        self.key_type.as_deref().unwrap_or("str")
    }

    /// That nothing was said about the columns of a dump, which speaks for itself.
    fn check_silent(&self) -> Result<(), CliError> {
        let said =
            [("--key-column", &self.key), ("--key-type", &self.key_type), ("--value-column", &self.value)];
        match said.iter().find(|(_, value)| value.is_some()) {
            Some((flag, _)) => {
                let complaint = "the input is a dump, and says itself what its keys and values are";
                Err(CliError::usage(complaint, format!("leave out {flag}")))
            }
            None => Ok(()),
        }
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
        Form::Csv => separated::read(b',', input, columns, sink),
        Form::Tsv => separated::read(b'\t', input, columns, sink),
        Form::Jsonl => match &columns.key {
            Some(key) => read_objects(input, key, columns, sink),
            None => read_dump(input, columns, sink),
        },
    }
}

/// What some programs write before the first character of a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{FEFF}".as_bytes();

/// Objects of the user's own, one of whose fields is the key.
fn read_objects(
    input: impl BufRead,
    key: &str,
    columns: &Columns,
    sink: &mut Sink<'_>,
) -> Result<(), CliError> {
    let keys = Kind::of(columns.key_type());
    let mut begun = false;
    each_object(input, |line, text, object| {
        if !begun {
            if dump_header(object).is_some() && object.raw(key).is_err() {
                columns.check_silent()?;
            }
            sink.begin_table(columns.table()?, columns.key_type(), "str")?;
            begun = true;
        }
        let entry = entry(object, text, key, keys, columns.value.as_deref());
        let (key, value) = entry.map_err(|complaint| at_line(line, complaint))?;
        sink.entry(line, key, value)
    })
}

/// What `dump` has written.
fn read_dump(input: impl BufRead, columns: &Columns, sink: &mut Sink<'_>) -> Result<(), CliError> {
    let mut ends = Ends::default();
    let (mut table, mut tables) = (None, 0);
    each_object(input, |line, _, object| {
        if let Some(header) = dump_header(object) {
            columns.check_silent()?;
            ends.begin(line, &header.table, header.ends)?;
            tables += 1;
            table = Some(begin_dumped_table(&header, tables, columns, sink)?);
            return Ok(());
        }
        if has_no_tables(object) {
            table = None;
            return ends.no_tables(line);
        }
        if ends.is_end(line, object)? {
            return Ok(());
        }
        let Some(table) = &table else {
            columns.table()?;
            let hint = "add --key-column FIELD";
            return Err(CliError::usage("a JSON object does not tell which field is its key", hint));
        };
        let (key, value) = dump_entry(object, table).map_err(|complaint| at_line(line, complaint))?;
        sink.entry(line, key, value)
    })?;
    if table.is_none() {
        // As empty as what was dumped.
        sink.database()?;
    }
    ends.finish()
}

/// Calls `see` for each line that is not empty, with its number, its text, and the object that it is.
fn each_object(
    mut input: impl BufRead,
    mut see: impl FnMut(u64, &[u8], &Object<'_>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let mut is_empty = true;
    let mut buffer = Vec::new();
    for line in 1.. {
        let Some(text) = read_line(&mut input, line, &mut buffer)? else { break };
        if text.is_empty() {
            continue;
        }
        is_empty = false;
        let object = Object::read(text)
            .map_err(|why| at_line(line, format_args!("each line must be one JSON object: {why}")))?;
        see(line, text, &object)?;
    }
    if is_empty {
        return Err(CliError::usage("the input is empty", "give it an object in each line"));
    }
    Ok(())
}

/// Reads the line of this number, from 1 on, into `buffer`, and gives it without the space around it; `None` at the end
/// of the input.
fn read_line<'b>(
    input: &mut impl BufRead,
    line: u64,
    buffer: &'b mut Vec<u8>,
) -> Result<Option<&'b [u8]>, CliError> {
    buffer.clear();
    let length = input.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', buffer);
    let length = length.map_err(CliError::io(READ))? as u64;
    if length == 0 {
        return Ok(None);
    }
    if length > LONGEST_LINE {
        return Err(at_line(line, format_args!("longer than {LONGEST_LINE} bytes")));
    }
    let text = match buffer.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) if line == 1 => rest,
        _ => &buffer[..],
    };
    Ok(Some(text.trim_ascii()))
}

/// What the lines of a table are in a dump.
struct Dumped {
    keys: Kind,
    values: Kind,
    /// The dump may be of a program that wrote some numbers as bytes: it had no ends of tables yet.
    older: bool,
}

/// Begins a table of a dump, of so many with it, and says what its lines are.
fn begin_dumped_table(
    header: &Header,
    tables: u64,
    columns: &Columns,
    sink: &mut Sink<'_>,
) -> Result<Dumped, CliError> {
    let Header { table, key_type, value_type, ends } = header;
    if tables > 1 && columns.table.is_some() {
        let hint = "leave out --table, or dump one table";
        return Err(CliError::usage("the dump holds several tables, which cannot all be one", hint));
    }
    sink.begin_table(columns.table.as_deref().unwrap_or(table), key_type, value_type)?;
    Ok(Dumped { keys: Kind::of(key_type), values: Kind::of(value_type), older: !ends })
}

/// The line that begins a table in a dump.
struct Header {
    table: String,
    key_type: String,
    value_type: String,
    /// Whether a line is to end it. Older dumps have none, nor has what somebody writes.
    ends: bool,
}

fn dump_header(object: &Object<'_>) -> Option<Header> {
    let ends = match object.len() {
        3 => false,
        4 => object.get("ends")?,
        _ => return None,
    };
    let text = |name: &str| object.get(name);
    Some(Header { table: text("table")?, key_type: text("key_type")?, value_type: text("value_type")?, ends })
}

/// Whether this is the line of a dump that says that there are no tables.
fn has_no_tables(object: &Object<'_>) -> bool {
    object.len() == 1 && object.get("tables") == Some(0_u64)
}

fn dump_entry(object: &Object<'_>, table: &Dumped) -> Result<(Vec<u8>, Vec<u8>), String> {
    let Dumped { keys, values, older } = *table;
    let as_once = |kind: Kind, json| if older { kind.number_from_older_json(json) } else { None };
    let (key, value) = (object.cell("key", keys)?, object.cell("value", values)?);
    if let Some(other) = object.names().find(|name| !["key", "value"].contains(name)) {
        return Err(format!("the field {other:?} would be lost; an entry has a key and a value"));
    }
    let encoded = as_once(keys, &key).map_or_else(|| keys.key_from_json(&key), Ok);
    let encoded = encoded.map_err(|complaint| format!("key: {complaint}"))?;
    let value = as_once(values, &value).map_or_else(|| values.value_from_json(&value), Ok);
    Ok((encoded, value.map_err(|complaint| format!("value: {complaint}"))?))
}

fn entry(
    object: &Object<'_>,
    text: &[u8],
    key: &str,
    keys: Kind,
    value: Option<&str>,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    let cell = object.cell(key, keys)?;
    let is_unforeseen_number = cell.is_number() && matches!(keys, Kind::Str | Kind::Bytes);
    let hint = if is_unforeseen_number {
        "; where keys are numbers, give --key-type, as in --key-type u64"
    } else {
        ""
    };
    // Only a dump has keys that are no keys of their type, as objects.
    let encoded = if cell.is_object() { Err(keys.unlike(&cell)) } else { keys.key_from_json(&cell) };
    let encoded = encoded.map_err(|complaint| format!("field {key:?}: {complaint}{hint}"))?;
    let value = match value {
        // As it stands: its numbers keep their digits.
        None => text.to_vec(),
        Some(name) => match object.raw(name)? {
            quoted if quoted.starts_with('"') => {
                let unquoted = serde_json::from_str::<String>(quoted);
                unquoted.map_err(|error| fields::of_field(name, &error))?.into_bytes()
            }
            plain => plain.as_bytes().to_vec(),
        },
    };
    Ok((encoded, value))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// What is said to this input, if it is refused. A sink keeps so few entries; it opens no database.
    fn read_all(form: Form, input: impl Read) -> Option<String> {
        let columns = Columns {
            table: Some("t".to_owned()),
            default_table: None,
            key: Some("k".to_owned()),
            key_type: None,
            value: Some("v".to_owned()),
        };
        let mut sink = Sink::new(|| panic!("nothing is to be loaded"), 1000, false);
        let read = read(form, io::BufReader::new(input), &columns, &mut sink);
        read.err().map(|error| error.to_string())
    }

    /// An input that fails was told as a line that cannot be taken, which was one that had been.
    #[test]
    fn an_input_that_fails_is_no_bad_line() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is gone"))
            }
        }
        for (form, content) in [
            (Form::Csv, ""),
            (Form::Csv, "k,v\na,b\n"),
            (Form::Tsv, "k\tv\na\tb\nc"),
            (Form::Jsonl, "{\"k\":\"a\",\"v\":\"b\"}\n"),
        ] {
            let said = read_all(form, content.as_bytes().chain(Fails)).unwrap();
            assert_eq!(said, "cannot read the input: the disk is gone", "{form:?} {content:?}");
        }
    }

    /// Where a pipe gave it in pieces it was a part of the first column's name.
    #[test]
    fn a_mark_of_the_byte_order_belongs_to_no_name_however_it_comes() {
        for (form, content) in [
            (Form::Csv, "\u{FEFF}k,v\na,b\n"),
            (Form::Csv, "k,v\na,b\n"),
            (Form::Tsv, "\u{FEFF}k\tv\na\tb\n"),
            (Form::Jsonl, "\u{FEFF}{\"k\":\"a\",\"v\":\"b\"}\n"),
        ] {
            for cut in 0..5 {
                let (first, rest) = content.as_bytes().split_at(cut);
                assert_eq!(read_all(form, first.chain(rest)), None, "{form:?} {content:?}, cut at {cut}");
            }
        }
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
