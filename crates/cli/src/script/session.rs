//! A session: a thread with a transaction.

use std::{collections::HashMap, ops::Bound, sync::mpsc::Receiver};

use foreshore::{
    CancelHandle, Direction, Error, Savepoint, TableDefinition, TransactOptions, Transaction, TxnId,
};
use foreshore_env::{sync::Arc, time::Duration};
use serde_json::{Value as Json, json};

use super::{
    answer::Answer,
    command::{AtKey, Begin, Bytes, Scan, Statement, Write, to_json},
    stage::Play,
};
use crate::output::damaged;

/// What a statement did to the session's transaction.
pub(super) enum Change {
    None,
    /// There is one, with this number.
    Begun(TxnId, CancelHandle),
    /// There is none any more.
    Ended,
}

/// Why a statement was not done.
enum Failure {
    Database(Error),
    /// The script makes no sense here: a word for programs, and a sentence.
    Script(&'static str, &'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Database(error)
    }
}

const NO_TRANSACTION: Failure =
    Failure::Script("no_transaction", "the session has no transaction; begin one");

const NO_SAVEPOINT: Failure = Failure::Script(
    "no_such_savepoint",
    "the transaction has no savepoint of that name, or it was released, or undone by a rollback to an earlier one",
);

/// A session.
pub(super) struct Session {
    play: Arc<Play>,
    name: String,
    open: Option<Open>,
    /// What is known about tables that were used.
    tables: HashMap<String, Columns>,
}

/// The transaction of a session.
struct Open {
    tx: Transaction,
    read_only: bool,
    /// In the order in which they were made; a later one of the same name hides the earlier.
    savepoints: Vec<(String, Savepoint)>,
}

impl Open {
    /// The savepoint of a name, and its place among all.
    fn savepoint(&self, name: &str) -> Result<(usize, Savepoint), Failure> {
        let place = self.savepoints.iter().rposition(|(named, _)| named == name).ok_or(NO_SAVEPOINT)?;
        Ok((place, self.savepoints[place].1))
    }
}

/// What the keys and values of a table are.
#[derive(Clone, Copy)]
enum Columns {
    /// Bytes; or something else, which the database refuses.
    Bytes,
    /// Bytes or text, whose encoding is the text. Whether key and value have to be text.
    Text { key: bool, value: bool },
}

/// Bytes of keys and values after which a scan breaks off, and says so.
const MAX_SCAN_BYTES: usize = 32 << 20;

type Table<'n> = TableDefinition<'n, &'static [u8], &'static [u8]>;

impl Session {
    pub(super) fn new(play: Arc<Play>, name: String) -> Session {
        Session { play, name, open: None, tables: HashMap::new() }
    }

    /// Does statements until there are no more, and rolls back what is open then.
    pub(super) fn run(mut self, statements: &Receiver<(Json, Statement)>) {
        for (id, statement) in statements {
            let (answer, change) = if self.play.begin(&self.name, &id) {
                self.answer(&id, statement)
            } else {
                let message = "the input has ended; everything is rolled back";
                (Answer::error(&id, "cancelled", message, false), Change::None)
            };
            self.play.finish(&self.name, answer, change);
        }
    }

    fn answer(&mut self, id: &Json, statement: Statement) -> (Answer, Change) {
        let had_one = self.open.is_some();
        let result = self.perform(statement);
        let change = match (&mut self.open, had_one) {
            (Some(open), false) => Change::Begun(open.tx.id(), open.tx.cancel_handle()),
            (None, true) => Change::Ended,
            _ => Change::None,
        };
        let answer = match result {
            Ok(fields) => {
                fields.into_iter().fold(Answer::ok(id), |answer, (name, value)| answer.with(name, value))
            }
            Err(Failure::Database(error)) => {
                if damaged(&error).is_some() {
                    self.play.note_damage();
                }
                Answer::failure(id, &error)
            }
            Err(Failure::Script(code, message)) => Answer::error(id, code, message, false),
        };
        (answer, change)
    }

    fn perform(&mut self, statement: Statement) -> Result<Vec<(&'static str, Json)>, Failure> {
        let one = |name, value: bool| Ok(vec![(name, json!(value))]);
        match statement {
            Statement::Begin(begin) => self.begin(&begin),
            Statement::Get(at) => self.get(&at, |tx, table, key| tx.get(table, key)),
            Statement::GetForUpdate(at) => {
                self.writer()?;
                self.get(&at, |tx, table, key| tx.get_for_update(table, key))
            }
            Statement::Delete(AtKey { table, key }) => {
                one("deleted", self.change(&table, &key, |tx, table, key| tx.delete(table, key))?)
            }
            Statement::Put(write) => {
                one("existed", self.write(&write, |tx, table, key, value| tx.put(table, key, value))?)
            }
            Statement::Insert(write) => {
                one("inserted", self.write(&write, |tx, table, key, value| tx.insert(table, key, value))?)
            }
            Statement::Update(write) => {
                one("updated", self.write(&write, |tx, table, key, value| tx.update(table, key, value))?)
            }
            Statement::Scan(scan) => self.scan(&scan),
            Statement::LockTable(lock) => {
                let table = self.table(&lock.table)?;
                let open = if lock.reads() { self.open()? } else { self.writer()? };
                open.tx.lock_table(table, lock.lock())?;
                Ok(Vec::new())
            }
            Statement::Savepoint(named) => {
                let open = self.open()?;
                let savepoint = open.tx.savepoint()?;
                open.savepoints.push((named.name, savepoint));
                Ok(Vec::new())
            }
            Statement::RollbackTo(named) => {
                let open = self.open()?;
                let (place, savepoint) = open.savepoint(&named.name)?;
                open.tx.rollback_to(savepoint)?;
                open.savepoints.truncate(place + 1);
                Ok(Vec::new())
            }
            Statement::Release(named) => {
                let open = self.open()?;
                let (place, savepoint) = open.savepoint(&named.name)?;
                open.tx.release(savepoint)?;
                open.savepoints.truncate(place);
                Ok(Vec::new())
            }
            Statement::Commit => {
                self.open.take().ok_or(NO_TRANSACTION)?.tx.commit()?;
                Ok(Vec::new())
            }
            Statement::Rollback => {
                self.open.take().ok_or(NO_TRANSACTION)?.tx.rollback()?;
                Ok(Vec::new())
            }
        }
    }

    fn open(&mut self) -> Result<&mut Open, Failure> {
        self.open.as_mut().ok_or(NO_TRANSACTION)
    }

    /// The transaction, of which it was not said that it only reads.
    fn writer(&mut self) -> Result<&mut Open, Failure> {
        let open = self.open()?;
        if open.read_only {
            return Err(Failure::Script("read_only", "the transaction was begun as read-only"));
        }
        Ok(open)
    }

    fn begin(&mut self, begin: &Begin) -> Result<Vec<(&'static str, Json)>, Failure> {
        if self.open.is_some() {
            return Err(Failure::Script(
                "transaction_open",
                "the session has a transaction; commit or roll it back",
            ));
        }
        let options = TransactOptions {
            label: Some(begin.label.as_deref().unwrap_or(&self.name).into()),
            deadline: begin.deadline_ms.map(|time| Duration::from_millis(time.into())),
            isolation: begin.isolation(),
            durability: begin.durability(),
            no_wait: begin.no_wait,
            priority: begin.priority,
            ..TransactOptions::default()
        };
        let tx = self.play.db.begin_with(&options)?;
        let number = tx.id();
        self.open = Some(Open { tx, read_only: begin.read_only, savepoints: Vec::new() });
        Ok(vec![("transaction", json!(number.0))])
    }

    /// A table by its name. Tables whose keys and values are text or bytes can be used, for their encoding is what it
    /// says.
    fn columns(&mut self, name: &str) -> Result<Columns, Failure> {
        if let Some(&known) = self.tables.get(name) {
            return Ok(known);
        }
        let described = self.play.db.table(name)?;
        let columns = match &described {
            Some(table) => match (table.key_type.as_str(), table.value_type.as_str()) {
                (key @ ("str" | "bytes"), value @ ("str" | "bytes"))
                    if (key, value) != ("bytes", "bytes") =>
                {
                    Columns::Text { key: key == "str", value: value == "str" }
                }
                _ => Columns::Bytes,
            },
            None => Columns::Bytes,
        };
        if described.is_some() {
            self.tables.insert(name.to_owned(), columns);
        }
        Ok(columns)
    }

    fn table<'n>(&mut self, name: &'n str) -> Result<Table<'n>, Failure> {
        Ok(match self.columns(name)? {
            Columns::Bytes => TableDefinition::new(name),
            Columns::Text { .. } => TableDefinition::encoded(name),
        })
    }

    fn get(
        &mut self,
        at: &AtKey,
        read: impl FnOnce(&mut Transaction, Table<'_>, &[u8]) -> Result<Option<Vec<u8>>, Error>,
    ) -> Result<Vec<(&'static str, Json)>, Failure> {
        let table = self.table(&at.table)?;
        let value = read(&mut self.open()?.tx, table, &at.key.0)?;
        Ok(vec![("value", value.map_or(Json::Null, |value| to_json(&value)))])
    }

    fn change(
        &mut self,
        table: &str,
        key: &Bytes,
        change: impl FnOnce(&mut Transaction, Table<'_>, &[u8]) -> Result<bool, Error>,
    ) -> Result<bool, Failure> {
        let table = self.table(table)?;
        Ok(change(&mut self.writer()?.tx, table, &key.0)?)
    }

    fn write(
        &mut self,
        write: &Write,
        change: impl FnOnce(&mut Transaction, Table<'_>, &[u8], &[u8]) -> Result<bool, Error>,
    ) -> Result<bool, Failure> {
        let Write { table, key, value } = write;
        if let Columns::Text { key: text_key, value: text_value } = self.columns(table)? {
            let is_wrong = |text: bool, bytes: &Bytes| text && std::str::from_utf8(&bytes.0).is_err();
            if is_wrong(text_key, key) || is_wrong(text_value, value) {
                return Err(Failure::Script(
                    "not_text",
                    "the table holds text, and these bytes are not text",
                ));
            }
        }
        self.change(table, key, |tx, table, key| change(tx, table, key, &value.0))
    }

    fn scan(&mut self, scan: &Scan) -> Result<Vec<(&'static str, Json)>, Failure> {
        fn bound(key: Option<&Bytes>, inclusive: bool) -> Bound<&[u8]> {
            match key {
                Some(Bytes(key)) if inclusive => Bound::Included(key),
                Some(Bytes(key)) => Bound::Excluded(key),
                None => Bound::Unbounded,
            }
        }
        let range = (bound(scan.lo.as_ref(), scan.lo_inclusive), bound(scan.hi.as_ref(), scan.hi_inclusive));
        let direction = if scan.reverse { Direction::Descending } else { Direction::Ascending };
        let table = self.table(&scan.table)?;
        let writes = scan.for_update || scan.skip_locked;
        let tx = if writes { &mut self.writer()?.tx } else { &mut self.open()?.tx };
        let mut cursor = match (scan.skip_locked, scan.for_update) {
            (true, _) => tx.cursor_skip_locked(table, range, direction)?,
            (false, true) => tx.cursor_for_update(table, range, direction)?,
            (false, false) => tx.cursor(table, range, direction)?,
        };
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while entries.len() < scan.limit
            && bytes < MAX_SCAN_BYTES
            && let Some((key, value)) = cursor.next_encoded(tx)?
        {
            bytes += key.len() + value.len();
            entries.push(json!([to_json(key), to_json(value)]));
        }
        let mut fields = vec![("entries", entries.into())];
        if bytes >= MAX_SCAN_BYTES {
            fields.push(("cut_off", true.into()));
        }
        Ok(fields)
    }
}
