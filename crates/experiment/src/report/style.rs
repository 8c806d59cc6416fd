//! How the page looks: on a screen of any width, light or dark, and on paper.

/// The style sheet. Nothing in it comes from elsewhere.
pub(super) const CSS: &str = "
:root { color-scheme: light dark; --ink: #1c2329; --paper: #ffffff; --faint: #5b6670; --rule: #d5dade; --code: #f3f5f6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8eb; --paper: #14181b; --faint: #9aa5ae; --rule: #353d44; --code: #1e2429; }
}
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 .3rem; }
section { border-top: 1px solid var(--rule); padding: 1.2rem 0; }
a { color: inherit; }
.source, .reason, figcaption, summary { color: var(--faint); font-size: .88rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; margin: .5rem 0; }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--rule); }
th.paper { padding-top: 1rem; } .front td:nth-child(n+3) { white-space: nowrap; }
.claims td:first-child { min-width: 16rem; }
.verdict { display: inline-block; white-space: nowrap; padding: 0 .5em; border-radius: .6em; font-size: .85rem; font-weight: 600;
  border: 1px solid currentColor; }
.holds { color: #1a7f37; } .shape { color: #8a6100; } .fails { color: #b42318; } .absent { color: var(--faint); }
@media (prefers-color-scheme: dark) { .holds { color: #56d364; } .shape { color: #e3b341; } .fails { color: #ff8a80; } }
figure { margin: 1rem 0; } figure > svg { width: 100%; max-width: 38rem; height: auto; display: block; }
svg text { fill: var(--ink); } svg [stroke='#000000'] { stroke: var(--ink); } svg .cell { fill: #ffffff; }
.key { display: inline-block; margin-right: .9em; } .key svg { width: 1.1em; height: .8em; vertical-align: -.05em; }
code, pre { background: var(--code); font: .85rem/1.45 ui-monospace, monospace; } code { padding: 0 .3em; }
pre { padding: .6rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 40rem) { body { font-size: 15px; } main { padding: .7rem; } th, td { padding-right: .5rem; }
  .front thead { display: none; } .front tr { display: block; border-bottom: 1px solid var(--rule); padding: .35rem 0; }
  .front td, .front th { display: inline; border: 0; } .front td:nth-child(2) { display: block; }
  .claims thead { display: none; } .claims tr { display: block; border-bottom: 1px solid var(--rule); padding: .35rem 0; }
  .claims td { display: inline; border: 0; } .claims td:first-child { display: block; min-width: 0; }
  .claims td[data-of]::before { content: attr(data-of) ': '; color: var(--faint); } }
@media print {
  :root { --ink: #000000; --paper: #ffffff; --faint: #333333; --rule: #999999; --code: #ffffff; }
  body { font-size: 10pt; } section { break-inside: avoid-page; } details:not([open]) { display: none; } a { text-decoration: none; }
}
";
