//! Views as text for people and for Graphviz.

use std::fmt::{self, Formatter, Write};

use foreshore_txn::{IntentMode, LockMode, Mode, VictimReason};

use super::{DeadlockView, KeyForm, KeyView, LockTarget, TransactionView, WaitGraph, WaitView};

pub(super) fn transaction(view: &TransactionView, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "transaction {}", view.id)?;
    match &view.label {
        Some(label) => write!(f, " ({label})"),
        None => Ok(()),
    }
}

pub(super) fn key(view: &KeyView, f: &mut Formatter<'_>) -> fmt::Result {
    match view.form {
        KeyForm::Plain => f.write_str(&view.text)?,
        KeyForm::Text => write!(f, "{:?}", view.text)?,
        KeyForm::Escaped => write!(f, "\"{}\"", view.text)?,
    }
    f.write_str(if view.truncated { "…" } else { "" })
}

pub(super) fn target(view: &LockTarget, f: &mut Formatter<'_>) -> fmt::Result {
    match view {
        LockTarget::Database => f.write_str("the database"),
        LockTarget::Table { table } => write!(f, "table {table}"),
        LockTarget::Key { table, key } => write!(f, "key {key} of {table}"),
        LockTarget::BelowFirstKey { table } => write!(f, "the place before all keys of {table}"),
        LockTarget::Unknown { name } => write!(f, "a key with hash {name:016x}"),
    }
}

/// What somebody can do who has the mode, as far as it goes beyond what is held.
fn purpose(wanted: LockMode, held: Option<LockMode>) -> String {
    match (wanted, held) {
        (LockMode::Key(wanted), held) => {
            let held = match held {
                Some(LockMode::Key(mode)) => mode,
                Some(LockMode::Table(_)) | None => Mode::N,
            };
            let key = (!held.covers(wanted.key())).then(|| match wanted.key() {
                Mode::XN => "to change the key",
                _ => "to read the key",
            });
            let gap = (!held.covers(wanted.gap())).then(|| match wanted.gap() {
                Mode::NX => "to put a key into the gap above it",
                _ => "to keep the gap above it as it is",
            });
            let both: Vec<&str> = key.into_iter().chain(gap).collect();
            both.join(" and ")
        }
        (LockMode::Table(wanted), _) => match wanted {
            IntentMode::IS => "to read keys",
            IntentMode::IX => "to change keys",
            IntentMode::S => "to read all keys",
            IntentMode::SIX => "to read all keys and change some",
            IntentMode::X => "to have it alone",
        }
        .to_owned(),
    }
}

/// What the two modes conflict about.
fn conflict(wanted: LockMode, mode: LockMode) -> &'static str {
    match (wanted, mode) {
        (LockMode::Key(wanted), LockMode::Key(mode)) => {
            match (wanted.key().compatible(mode.key()), wanted.gap().compatible(mode.gap())) {
                (false, false) => "the key and the gap above it",
                (false, true) => "the key",
                (true, _) => "the gap above it",
            }
        }
        _ => "it",
    }
}

pub(super) fn wait(view: &WaitView, f: &mut Formatter<'_>) -> fmt::Result {
    let WaitView { transaction, target, wanted, held, waited, blockers } = view;
    write!(f, "{transaction} has waited {} ms for {wanted} on {target}", waited.as_millis())?;
    if let Some(held) = held {
        write!(f, ", where it has {held}")?;
    }
    write!(f, ", {}", purpose(*wanted, *held))?;
    for (place, blocker) in blockers.iter().enumerate() {
        f.write_str(if place == 0 { "; in its way: " } else { ", and " })?;
        let what = conflict(*wanted, blocker.mode);
        write!(f, "{}", blocker.transaction)?;
        if blocker.holds {
            write!(f, " holds {what} as {}", blocker.mode)?;
        } else {
            write!(f, " came first for {what} as {}", blocker.mode)?;
        }
        if let Some(time) = blocker.held_for {
            write!(f, " since {} ms", time.as_millis())?;
        }
        if let Some(time) = blocker.transaction.open_for {
            write!(f, " (open for {} ms", time.as_millis())?;
            match blocker.transaction.begun_at {
                Some(at) => write!(f, ", begun at {at})")?,
                None => f.write_char(')')?,
            }
        }
    }
    Ok(())
}

pub(super) fn reason(reason: VictimReason) -> String {
    match reason {
        VictimReason::Deadlock => "chosen to break the circle".to_owned(),
        VictimReason::Suspicion => "suspected to be in a circle".to_owned(),
        VictimReason::YoungerThan(older) => format!("it would have waited for the older transaction {older}"),
        VictimReason::WoundedBy(older) => format!("the older transaction {older} waited for it"),
        VictimReason::TimedOut => "it waited too long".to_owned(),
        VictimReason::NoWait => "it would have had to wait".to_owned(),
        other => format!("{other:?}"),
    }
}

pub(super) fn deadlock(view: &DeadlockView, f: &mut Formatter<'_>) -> fmt::Result {
    let DeadlockView { cycle, victim, reason: why, .. } = view;
    write!(f, "deadlock of {}, transaction {victim} gave way ({})", cycle.len(), reason(*why))?;
    cycle.iter().try_for_each(|member| write!(f, "; {member}"))
}

/// Between the quotation marks of a DOT label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ")
}

pub(super) fn dot(graph: &WaitGraph) -> String {
    let mut out = "digraph waits_for {\n  rankdir=LR;\n  node [shape=box];\n".to_owned();
    let blockers = graph.waits.iter().flat_map(|wait| &wait.blockers).map(|blocker| &blocker.transaction);
    let mut nodes: Vec<&TransactionView> =
        graph.waits.iter().map(|wait| &wait.transaction).chain(blockers).collect();
    nodes.sort_by_key(|node| node.id);
    nodes.dedup_by_key(|node| node.id);
    for node in nodes {
        // Writing to a string does not fail.
        let _ = writeln!(out, "  t{} [label=\"{}\"];", node.id, label(&node.to_string()));
    }
    for wait in &graph.waits {
        for blocker in &wait.blockers {
            let text = format!("{} on {}, {} ms", wait.wanted, wait.target, wait.waited.as_millis());
            let style = if blocker.holds { "solid" } else { "dashed" };
            let (from, to) = (wait.transaction.id, blocker.transaction.id);
            let _ = writeln!(out, "  t{from} -> t{to} [style={style}, label=\"{}\"];", label(&text));
        }
    }
    out.push_str("}\n");
    out
}
