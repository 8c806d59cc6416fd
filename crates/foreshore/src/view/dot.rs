//! Views as graphs in the language of Graphviz.

use std::fmt::Write;

use foreshore_base::TxnId;
use foreshore_txn::VictimReason;

use super::{DeadlockView, TransactionView, WaitGraph, WaitView};

/// A graph that is being written.
struct Graph(String);

impl Graph {
    fn new(name: &str) -> Graph {
        Graph(format!("digraph {name} {{\n  rankdir=LR;\n  node [shape=box];\n"))
    }

    /// Writes every transaction once; `peripheries` says how many lines are around it.
    fn nodes<'v>(
        &mut self,
        nodes: impl Iterator<Item = &'v TransactionView>,
        peripheries: impl Fn(TxnId) -> u32,
    ) {
        let mut nodes: Vec<&TransactionView> = nodes.collect();
        nodes.sort_by_key(|node| node.id);
        nodes.dedup_by_key(|node| node.id);
        for node in nodes {
            let (text, lines) = (quoted(&node.to_string()), peripheries(node.id));
            // Writing to a string does not fail.
            let _ = match lines {
                1 => writeln!(self.0, "  t{} [label={text}];", node.id),
                _ => writeln!(self.0, "  t{} [peripheries={lines}, label={text}];", node.id),
            };
        }
    }

    fn edge(&mut self, from: TxnId, to: TxnId, style: &str, text: &str) {
        let _ = writeln!(self.0, "  t{from} -> t{to} [style={style}, label={}];", quoted(text));
    }

    fn end(mut self) -> String {
        self.0.push_str("}\n");
        self.0
    }
}

/// A string of the language. Whatever somebody has put into a label or a name stays within the quotation marks.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

fn wish(wait: &WaitView) -> String {
    format!("{} on {}, {} ms", wait.wanted, wait.target, wait.waited.as_millis())
}

fn style(holds: bool) -> &'static str {
    if holds { "solid" } else { "dashed" }
}

pub(super) fn wait_graph(view: &WaitGraph) -> String {
    let mut graph = Graph::new("waits_for");
    let blockers = view.waits.iter().flat_map(|wait| &wait.blockers).map(|blocker| &blocker.transaction);
    graph.nodes(view.waits.iter().map(|wait| &wait.transaction).chain(blockers), |_| 1);
    for wait in &view.waits {
        for blocker in &wait.blockers {
            graph.edge(wait.transaction.id, blocker.transaction.id, style(blocker.holds), &wish(wait));
        }
    }
    graph.end()
}

pub(super) fn deadlock(view: &DeadlockView) -> String {
    let mut graph = Graph::new("deadlock");
    let blockers = view.cycle.iter().flat_map(|wait| &wait.blockers).map(|blocker| &blocker.transaction);
    let members = view.cycle.iter().map(|wait| &wait.transaction).chain(blockers).chain(&view.older);
    graph.nodes(members, |node| if node == view.victim { 2 } else { 1 });
    if view.reason == VictimReason::Deadlock {
        let next = view.cycle.iter().cycle().skip(1);
        for (wait, next) in view.cycle.iter().zip(next) {
            graph.edge(wait.transaction.id, next.transaction.id, "solid", &wish(wait));
        }
    }
    for wait in &view.cycle {
        for blocker in &wait.blockers {
            graph.edge(wait.transaction.id, blocker.transaction.id, style(blocker.holds), &wish(wait));
        }
    }
    if let (Some(older), VictimReason::WoundedBy(_)) = (&view.older, view.reason) {
        graph.edge(older.id, view.victim, "dotted", "wounded it");
    }
    graph.end()
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn nothing_gets_out_of_the_quotation_marks() {
        assert_eq!(quoted("say \"no\" \\ \0\r\n größer"), "\"say \\\"no\\\" \\\\     größer\"");
        assert_eq!(quoted("\\\""), "\"\\\\\\\"\"");
    }
}
