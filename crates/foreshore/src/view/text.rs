//! Views as text for people.

use std::fmt::{self, Formatter, Write};

use foreshore_base::Printable;
use foreshore_txn::{IntentMode, KeyMode, LockMode, VictimReason};

use super::{DeadlockView, KeyForm, KeyView, LockList, LockTarget, LockView, WaitGraph, WaitView};

impl fmt::Display for KeyView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.form {
            KeyForm::Plain => f.write_str(&self.text)?,
            KeyForm::Text => write!(f, "{:?}", self.text)?,
            KeyForm::Escaped => write!(f, "\"{}\"", self.text)?,
        }
        f.write_str(if self.truncated { "…" } else { "" })
    }
}

impl fmt::Display for LockTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            LockTarget::Database => f.write_str("the database"),
            LockTarget::Table { table } => write!(f, "table {}", Printable(table)),
            LockTarget::Key { table, key } => write!(f, "key {key} of {}", Printable(table)),
            LockTarget::BelowFirstKey { table } => {
                write!(f, "the place before all keys of {}", Printable(table))
            }
            LockTarget::Unknown { name } => write!(f, "a key with hash {name:016x}"),
        }
    }
}

/// What somebody can do who has the mode, as far as it goes beyond what is held.
fn purpose(wanted: LockMode, held: Option<LockMode>) -> String {
    match (wanted, held) {
        (LockMode::Key(wanted), held) => {
            let held = match held {
                Some(LockMode::Key(mode)) => mode,
                Some(LockMode::Table(_)) | None => KeyMode::N,
            };
            let key = (!held.covers(wanted.key())).then(|| match wanted.key() {
                KeyMode::XN => "to change the key",
                _ => "to read the key",
            });
            let gap = (!held.covers(wanted.gap())).then(|| match wanted.gap() {
                KeyMode::NX => "to put a key into the gap above it",
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

/// What somebody waits for, and what to do with it.
pub(crate) fn wish_of(wait: &WaitView) -> String {
    let WaitView { target, wanted, held, .. } = wait;
    let held = held.map(|held| format!(", where it has {held}")).unwrap_or_default();
    format!("{wanted} on {target}{held}, {}", purpose(*wanted, wait.held))
}

impl fmt::Display for WaitView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let WaitView { transaction, wanted, waited, blockers, .. } = self;
        write!(f, "{transaction} has waited {} ms for {}", waited.as_millis(), wish_of(self))?;
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
                write!(f, " for {} ms", time.as_millis())?;
            }
            if let Some(time) = blocker.transaction.open_for {
                write!(f, " (open for {} ms", time.as_millis())?;
                match blocker.transaction.begun_at {
                    Some(at) => write!(f, ", begun at {at})")?,
                    None => f.write_char(')')?,
                }
            }
        }
        match self.blockers_omitted {
            0 => Ok(()),
            omitted => write!(f, ", and {omitted} more"),
        }
    }
}

impl fmt::Display for LockView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let LockView { transaction, target, granted, wanted, held_for, waited } = self;
        write!(f, "{transaction}")?;
        if let Some(granted) = granted {
            write!(f, " has {granted} on {target}")?;
            if let Some(time) = held_for {
                write!(f, " for {} ms", time.as_millis())?;
            }
        }
        if let Some(wanted) = wanted {
            f.write_str(if granted.is_some() { ", and has waited" } else { " has waited" })?;
            if let Some(time) = waited {
                write!(f, " {} ms", time.as_millis())?;
            }
            match granted {
                Some(_) => write!(f, " for {wanted} there")?,
                None => write!(f, " for {wanted} on {target}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for LockList {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        lines(&self.locks, "no locks", f)?;
        match self.omitted {
            0 => Ok(()),
            omitted => write!(f, "\nand {omitted} more"),
        }
    }
}

impl fmt::Display for WaitGraph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        lines(&self.waits, "nobody waits for a lock", f)
    }
}

/// One line for each, without an end of the last one.
fn lines<T: fmt::Display>(items: &[T], none: &str, f: &mut Formatter<'_>) -> fmt::Result {
    let Some((first, others)) = items.split_first() else { return f.write_str(none) };
    first.fmt(f)?;
    others.iter().try_for_each(|item| write!(f, "\n{item}"))
}

/// Why somebody gave way, as a word for programs.
pub(super) fn kind(reason: VictimReason) -> &'static str {
    match reason {
        VictimReason::Deadlock => "deadlock",
        VictimReason::Suspicion => "suspicion",
        VictimReason::YoungerThan(_) => "wait_die",
        VictimReason::WoundedBy(_) => "wound_wait",
        VictimReason::TimedOut => "timeout",
        VictimReason::NoWait => "no_wait",
        _ => "other",
    }
}

pub(super) fn reason(view: &DeadlockView) -> String {
    let older = match (&view.older, view.reason.older()) {
        (Some(older), _) => older.to_string(),
        (None, Some(older)) => format!("transaction {older}"),
        (None, None) => String::new(),
    };
    match view.reason {
        VictimReason::Deadlock => "chosen to break the cycle".to_owned(),
        VictimReason::Suspicion => "digest hit, not confirmed: it seemed to be in a cycle".to_owned(),
        VictimReason::YoungerThan(_) => {
            format!("died: younger than {older} (or of lower priority), which was in its way")
        }
        VictimReason::WoundedBy(_) => {
            format!("wounded by older {older} (or of higher priority), which waited for it")
        }
        VictimReason::TimedOut => match view.cycle.first() {
            Some(wait) => format!("timed out after {} ms", wait.waited.as_millis()),
            None => "timed out".to_owned(),
        },
        VictimReason::NoWait => "would block, and the policy lets nobody wait".to_owned(),
        other => format!("{other:?}"),
    }
}

impl fmt::Display for DeadlockView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let DeadlockView { cycle, victim, reason: why, .. } = self;
        if *why == VictimReason::Deadlock {
            write!(f, "deadlock of {}, ", cycle.len())?;
        }
        write!(f, "transaction {victim} gave way ({})", reason(self))?;
        cycle.iter().try_for_each(|member| write!(f, "; {member}"))
    }
}
