//! Views as JSON, written by hand: the facade needs no library for so little.

use std::fmt::Write;

use foreshore_env::time::Duration;
use foreshore_txn::LockMode;

use super::{
    BlockerView, DeadlockView, LockList, LockTarget, LockView, TransactionView, WaitGraph, WaitView, text,
};

/// An object that is being written.
struct Object(String);

impl Object {
    fn new() -> Object {
        Object("{".to_owned())
    }

    /// A field whose value is JSON already.
    fn raw(mut self, name: &str, json: &str) -> Object {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(json);
        self
    }

    fn string(self, name: &str, value: &str) -> Object {
        self.raw(name, &string(value))
    }

    fn number(self, name: &str, value: u64) -> Object {
        self.raw(name, &value.to_string())
    }

    /// Milliseconds with three digits, if there are any.
    fn time(self, name: &str, value: Option<Duration>) -> Object {
        match value {
            Some(time) => self.raw(name, &format!("{:.3}", time.as_secs_f64() * 1e3)),
            None => self,
        }
    }

    fn mode(self, name: &str, mode: Option<LockMode>) -> Object {
        match mode {
            Some(mode) => self.string(name, &mode.to_string()),
            None => self,
        }
    }

    fn list<T>(self, name: &str, items: &[T], item: impl Fn(&T) -> String) -> Object {
        let items: Vec<String> = items.iter().map(item).collect();
        self.raw(name, &format!("[{}]", items.join(",")))
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

fn string(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for character in value.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control.is_control() => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

fn transaction(view: &TransactionView) -> String {
    let mut object = Object::new().number("id", view.id.0);
    if let Some(label) = &view.label {
        object = object.string("label", label);
    }
    if let Some(priority) = view.priority.filter(|priority| *priority != 0) {
        object = object.raw("priority", &priority.to_string());
    }
    if let Some(at) = view.begun_at {
        object = object.string("begun_at", &at.to_string());
    }
    object.time("open_ms", view.open_for).end()
}

fn target(view: &LockTarget) -> String {
    let object = Object::new();
    match view {
        LockTarget::Database => object.string("on", "database"),
        LockTarget::Table { table } => object.string("on", "table").string("table", table),
        LockTarget::Key { table, key } => {
            let hex: String = key.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let object = object.string("on", "key").string("table", table);
            let object = object.string("key", &key.text).string("key_hex", &hex);
            if key.truncated { object.raw("truncated", "true") } else { object }
        }
        LockTarget::BelowFirstKey { table } => object.string("on", "below_first_key").string("table", table),
        LockTarget::Unknown { name } => {
            object.string("on", "unknown_key").string("hash", &format!("{name:016x}"))
        }
    }
    .end()
}

fn lock(view: &LockView) -> String {
    Object::new()
        .raw("transaction", &transaction(&view.transaction))
        .raw("target", &target(&view.target))
        .mode("granted", view.granted)
        .mode("wanted", view.wanted)
        .time("held_ms", view.held_for)
        .time("waited_ms", view.waited)
        .end()
}

fn blocker(view: &BlockerView) -> String {
    Object::new()
        .raw("transaction", &transaction(&view.transaction))
        .mode("mode", Some(view.mode))
        .raw("holds", if view.holds { "true" } else { "false" })
        .time("held_ms", view.held_for)
        .end()
}

fn waiter(view: &WaitView) -> Object {
    Object::new()
        .raw("transaction", &transaction(&view.transaction))
        .raw("target", &target(&view.target))
        .mode("wanted", Some(view.wanted))
        .mode("held", view.held)
        .time("waited_ms", Some(view.waited))
}

pub(super) fn wait(view: &WaitView) -> String {
    let object = waiter(view).list("blockers", &view.blockers, blocker);
    match view.blockers_omitted {
        0 => object.end(),
        omitted => object.number("blockers_omitted", omitted as u64).end(),
    }
}

pub(super) fn lock_list(view: &LockList) -> String {
    Object::new().list("locks", &view.locks, lock).number("omitted", view.omitted).end()
}

pub(super) fn wait_graph(view: &WaitGraph) -> String {
    Object::new().list("waits", &view.waits, wait).end()
}

pub(super) fn deadlock(view: &DeadlockView) -> String {
    let object = Object::new()
        .list("cycle", &view.cycle, |member| match member.blockers.is_empty() {
            true => waiter(member).end(),
            false => wait(member),
        })
        .number("victim", view.victim.0)
        .string("kind", text::kind(view.reason))
        .string("reason", &view.why());
    let object = match &view.older {
        Some(older) => object.raw("older", &transaction(older)),
        None => object,
    };
    object.number("at_unix_seconds", view.at_unix_seconds).end()
}
