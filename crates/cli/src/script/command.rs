//! Commands, read from JSON. What is not expected is refused: a misspelt field must not mean something else.

use foreshore::{Durability, Isolation, TableLock};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value as Json, json};

use super::answer::Answer;
use super::input::MAX_LINE_BYTES;
use crate::fields;

/// The longest name of a session or savepoint, and the longest label.
const MAX_NAME_BYTES: usize = 255;

/// A command.
#[derive(Debug)]
pub(super) struct Command {
    /// The length of its line: what it takes of memory, about.
    pub(super) bytes: usize,
    pub(super) id: Json,
    pub(super) session: String,
    pub(super) op: Op,
}

/// What a command asks for.
#[derive(Debug)]
pub(super) enum Op {
    /// Something that a session does in its own time.
    Session(Statement),
    Cancel,
    Explain,
    Locks,
    WaitsFor,
    Deadlocks,
}

/// What a session does.
#[derive(Debug)]
pub(super) enum Statement {
    Begin(Begin),
    Get(AtKey),
    GetForUpdate(AtKey),
    Delete(AtKey),
    Put(Write),
    Insert(Write),
    Update(Write),
    Scan(Scan),
    LockTable(LockTable),
    Savepoint(Named),
    RollbackTo(Named),
    Release(Named),
    Commit,
    Rollback,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begin {
    pub(super) label: Option<String>,
    isolation: Option<IsolationName>,
    #[serde(default)]
    pub(super) read_only: bool,
    #[serde(default)]
    pub(super) no_wait: bool,
    #[serde(default)]
    pub(super) priority: i8,
    pub(super) deadline_ms: Option<u32>,
    durability: Option<DurabilityName>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum IsolationName {
    Serializable,
    RepeatableRead,
    ReadCommitted,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DurabilityName {
    Sync,
    Pipelined,
    Lazy,
}

impl Begin {
    pub(super) fn isolation(&self) -> Option<Isolation> {
        self.isolation.as_ref().map(|name| match name {
            IsolationName::Serializable => Isolation::Serializable,
            IsolationName::RepeatableRead => Isolation::RepeatableRead,
            IsolationName::ReadCommitted => Isolation::ReadCommitted,
        })
    }

    pub(super) fn durability(&self) -> Option<Durability> {
        self.durability.as_ref().map(|name| match name {
            DurabilityName::Sync => Durability::Sync,
            DurabilityName::Pipelined => Durability::Pipelined,
            DurabilityName::Lazy => Durability::Lazy,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AtKey {
    #[serde(default = "default_table")]
    pub(super) table: String,
    pub(super) key: Bytes,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Write {
    #[serde(default = "default_table")]
    pub(super) table: String,
    pub(super) key: Bytes,
    pub(super) value: Bytes,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scan {
    #[serde(default = "default_table")]
    pub(super) table: String,
    pub(super) lo: Option<Bytes>,
    pub(super) hi: Option<Bytes>,
    #[serde(default = "yes")]
    pub(super) lo_inclusive: bool,
    #[serde(default)]
    pub(super) hi_inclusive: bool,
    #[serde(default)]
    pub(super) reverse: bool,
    #[serde(default)]
    pub(super) for_update: bool,
    /// For update, and without what others have locked.
    #[serde(default)]
    pub(super) skip_locked: bool,
    #[serde(default = "default_limit")]
    pub(super) limit: usize,
}

/// Entries of a scan, unless it says otherwise.
fn default_limit() -> usize {
    1000
}

/// The most entries that one scan may ask for.
pub(super) const MAX_SCAN: usize = 100_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LockTable {
    #[serde(default = "default_table")]
    pub(super) table: String,
    mode: LockMode,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LockMode {
    IntentShared,
    IntentExclusive,
    Shared,
    SharedIntentExclusive,
    Exclusive,
}

impl LockTable {
    pub(super) fn lock(&self) -> TableLock {
        match self.mode {
            LockMode::IntentShared => TableLock::IntentShared,
            LockMode::IntentExclusive => TableLock::IntentExclusive,
            LockMode::Shared => TableLock::Shared,
            LockMode::SharedIntentExclusive => TableLock::SharedIntentExclusive,
            LockMode::Exclusive => TableLock::Exclusive,
        }
    }

    /// Whether it is only for those who read.
    pub(super) fn reads(&self) -> bool {
        matches!(self.mode, LockMode::IntentShared | LockMode::Shared)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn default_table() -> String {
    "default".to_owned()
}

fn yes() -> bool {
    true
}

/// A key or a value: text, or any bytes in hexadecimal digits.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Json")]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl TryFrom<Json> for Bytes {
    type Error = String;

    fn try_from(json: Json) -> Result<Bytes, String> {
        let expected = || "give a string, or {\"hex\":\"…\"} with two digits for each byte".to_owned();
        match json {
            Json::String(text) => Ok(Bytes(text.into_bytes())),
            Json::Object(fields) if fields.len() == 1 => {
                let digits = fields.get("hex").and_then(Json::as_str).ok_or_else(expected)?;
                from_hex(digits).map(Bytes).ok_or_else(expected)
            }
            _ => Err(expected()),
        }
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

/// Bytes as JSON: as text if they are some.
pub(super) fn to_json(bytes: &[u8]) -> Json {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() }),
    }
}

/// A line that is no command, and who it was for as far as it says so.
#[derive(Debug)]
pub(super) struct Malformed {
    id: Json,
    session: Option<String>,
    code: &'static str,
    message: String,
}

/// The longest message about a line: what a stranger sent is not repeated at length.
const MAX_MESSAGE_CHARS: usize = 300;

impl Malformed {
    pub(super) fn too_long() -> Malformed {
        let message = format!("a line has at most {MAX_LINE_BYTES} bytes; this one was skipped");
        Malformed { id: Json::Null, session: None, code: "line_too_long", message }
    }

    pub(super) fn answer(self, line: u64) -> Answer {
        let mut message = self.message;
        if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE_CHARS) {
            message.truncate(end);
            message.push('…');
        }
        let answer = Answer::error(&self.id, self.code, &message, false).with("line", line);
        match self.session {
            Some(session) => answer.with("session", session),
            None => answer,
        }
    }
}

/// Reads a command.
pub(super) fn parse(line: &[u8]) -> Result<Command, Malformed> {
    let mut fields = Map::new();
    let complete = fields::read(line, &mut fields);
    let id = read_id(fields.remove("id"));
    let session = read_session(fields.remove("session"));
    let malformed = |message: String| Malformed {
        id: id.clone().unwrap_or_default(),
        session: session.clone().ok(),
        code: "malformed",
        message,
    };
    complete.map_err(|error| malformed(format!("not a JSON object: {}", fields::of_line(&error))))?;
    let id = id.clone().map_err(malformed)?;
    let session = session.clone().map_err(malformed)?;
    let Some(Json::String(name)) = fields.remove("op") else {
        return Err(malformed("\"op\" is missing; see `foreshore script --help`".to_owned()));
    };
    let op = read_op(&name, fields).map_err(malformed)?;
    Ok(Command { bytes: line.len(), id, session, op })
}

/// An id: whatever is given back with answers, or nothing.
fn read_id(id: Option<Json>) -> Result<Json, String> {
    let id = id.unwrap_or_default();
    let short = |id: &str| id.len() <= MAX_NAME_BYTES;
    match id.is_null() || id.is_u64() || id.is_i64() || id.as_str().is_some_and(short) {
        true => Ok(id),
        false => {
            Err(format!("an id is a whole number of 64 bits or a string of at most {MAX_NAME_BYTES} bytes"))
        }
    }
}

fn read_session(name: Option<Json>) -> Result<String, String> {
    match name {
        None => Ok("main".to_owned()),
        Some(Json::String(name)) if (1..=MAX_NAME_BYTES).contains(&name.len()) => Ok(name),
        Some(_) => Err(format!("the name of a session is a string of 1 to {MAX_NAME_BYTES} bytes")),
    }
}

fn read_op(name: &str, fields: Map<String, Json>) -> Result<Op, String> {
    fn read<T: DeserializeOwned>(name: &str, fields: Map<String, Json>) -> Result<T, String> {
        serde_json::from_value(Json::Object(fields)).map_err(|error| format!("{name}: {error}"))
    }
    let bare = |op: Op, fields| read::<Nothing>(name, fields).map(|_| op);
    let statement = match name {
        "begin" => {
            let begin: Begin = read(name, fields)?;
            if begin.label.as_ref().is_some_and(|label| label.len() > MAX_NAME_BYTES) {
                return Err(format!("a label has at most {MAX_NAME_BYTES} bytes"));
            }
            Statement::Begin(begin)
        }
        "get" => Statement::Get(read(name, fields)?),
        "get_for_update" => Statement::GetForUpdate(read(name, fields)?),
        "delete" => Statement::Delete(read(name, fields)?),
        "put" => Statement::Put(read(name, fields)?),
        "insert" => Statement::Insert(read(name, fields)?),
        "update" => Statement::Update(read(name, fields)?),
        "scan" => {
            let scan: Scan = read(name, fields)?;
            if scan.limit > MAX_SCAN {
                return Err(format!("a scan gives at most {MAX_SCAN} entries"));
            }
            Statement::Scan(scan)
        }
        "lock_table" => Statement::LockTable(read(name, fields)?),
        "savepoint" => Statement::Savepoint(read(name, fields)?),
        "rollback_to" => Statement::RollbackTo(read(name, fields)?),
        "release" => Statement::Release(read(name, fields)?),
        "commit" => return bare(Op::Session(Statement::Commit), fields),
        "rollback" => return bare(Op::Session(Statement::Rollback), fields),
        "cancel" => return bare(Op::Cancel, fields),
        "explain" => return bare(Op::Explain, fields),
        "locks" => return bare(Op::Locks, fields),
        "waits_for" => return bare(Op::WaitsFor, fields),
        "deadlocks" => return bare(Op::Deadlocks, fields),
        other => {
            // What a stranger sent is not repeated at length.
            let shown: String = other.chars().take(40).collect();
            return Err(format!("there is no op {shown:?}; see `foreshore script --help`"));
        }
    };
    Ok(Op::Session(statement))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        parse(line.as_bytes()).unwrap_err().message
    }

    /// One below, at, and one above.
    #[test]
    fn names_and_scans_have_limits() {
        let fine = |line: String| parse(line.as_bytes()).is_ok();
        for length in MAX_NAME_BYTES - 1..=MAX_NAME_BYTES + 1 {
            let name = "n".repeat(length);
            for line in [
                format!(r#"{{"op":"commit","session":"{name}"}}"#),
                format!(r#"{{"op":"commit","id":"{name}"}}"#),
                format!(r#"{{"op":"begin","label":"{name}"}}"#),
            ] {
                assert_eq!(fine(line.clone()), length <= MAX_NAME_BYTES, "{line}");
            }
        }
        for limit in MAX_SCAN - 1..=MAX_SCAN + 1 {
            assert_eq!(fine(format!(r#"{{"op":"scan","limit":{limit}}}"#)), limit <= MAX_SCAN, "{limit}");
        }
    }

    #[test]
    fn what_is_not_expected_is_refused() {
        for (line, part) in [
            ("", "not a JSON object"),
            ("[]", "not a JSON object"),
            (r#"{"op":}"#, "expected value at column 7"),
            ("{}", "\"op\" is missing"),
            (r#"{"op":7}"#, "\"op\" is missing"),
            (r#"{"op":"drop"}"#, "no op \"drop\""),
            (r#"{"op":"get"}"#, "missing field `key`"),
            (r#"{"op":"get","key":7}"#, "give a string"),
            (r#"{"op":"get","key":{"hex":"0"}}"#, "two digits"),
            (r#"{"op":"get","key":{"hex":"+1"}}"#, "two digits"),
            (r#"{"op":"get","key":{"hex":"00","more":1}}"#, "give a string"),
            (r#"{"op":"get","key":"a","value":"b"}"#, "unknown field `value`"),
            (r#"{"op":"commit","now":true}"#, "unknown field `now`"),
            (r#"{"op":"begin","isolation":"none"}"#, "unknown variant `none`"),
            (r#"{"op":"begin","deadline_ms":-1}"#, "begin: invalid value"),
            (r#"{"op":"scan","limit":100001}"#, "at most 100000"),
            (r#"{"op":"commit","session":""}"#, "1 to 255 bytes"),
            (r#"{"op":"commit","id":1.5}"#, "whole number"),
            (r#"{"op":"commit","id":[1]}"#, "whole number"),
        ] {
            assert!(refused(line).contains(part), "{line}: {}", refused(line));
        }
        assert!(refused(&format!("{{\"op\":{}", "[".repeat(1000))).contains("recursion limit"));
    }

    /// Whose an answer is can be told from everything that could be read.
    #[test]
    fn a_refusal_says_whose_it_is() {
        for (line, id, session) in [
            (r#"{"op":"commit","id":"x","sesion":"a"}"#, json!("x"), Some("main")),
            (r#"{"id":7,"session":"a","op":"none"}"#, json!(7), Some("a")),
            (r#"{"id":-7,"session":"a","op":"get","op":"put"}"#, json!(-7), Some("a")),
            (r#"{"id":7,"session":"a","op":"#, json!(7), Some("a")),
            (r#"{"id":7,"session":"a""#, json!(7), Some("a")),
            (r#"{"id":7,"session":1,"op":"commit"}"#, json!(7), None),
            (r#"{"id":true,"session":"a","op":"commit"}"#, Json::Null, Some("a")),
            (r#"{"id":1e308,"session":"a","op":"commit"}"#, Json::Null, Some("a")),
            (r#"{"id":18446744073709551616,"session":"a","op":"commit"}"#, Json::Null, Some("a")),
            (r#"{"id":{},"session":"a","op":"commit"}"#, Json::Null, Some("a")),
        ] {
            let refused = parse(line.as_bytes()).unwrap_err();
            assert_eq!((&refused.id, refused.session.as_deref()), (&id, session), "{line}");
        }
    }

    #[test]
    fn long_messages_are_cut_off() {
        let line = format!("{{\"op\":\"get\",\"key\":\"k\",\"{}\":1}}", "ö".repeat(10_000));
        let answer = parse(line.as_bytes()).unwrap_err().answer(1).into_json();
        let message = answer["message"].as_str().unwrap();
        assert!(
            message.chars().count() == MAX_MESSAGE_CHARS + 1 && message.contains("unknown field"),
            "{message}"
        );
    }

    #[test]
    fn bytes_come_back_as_they_went_in() {
        for bytes in
            [b"".to_vec(), b"text".to_vec(), "größer\0".into(), vec![0, 0xFF, 0x80], (0..=255).collect()]
        {
            let Bytes(back) = Bytes::try_from(to_json(&bytes)).unwrap();
            assert_eq!(back, bytes);
        }
    }
}
