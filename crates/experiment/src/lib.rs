//! The experiments of the five papers as data: command lines of the program `foreshore`, how figures are taken out of
//! their JSON, what the paper claims of them, and the judge that says whether it holds. Nothing here runs anything: the
//! program does (`foreshore experiment run`), and hands the answers over.
//!
//! ```
//! use foreshore_experiment::{Scale, catalogue, judge};
//!
//! let experiments = catalogue(Scale::Quick);
//! let ladder = experiments.iter().find(|experiment| experiment.id == "1.5").unwrap();
//! assert!(ladder.runs[0].command().starts_with("cargo sim simulate bench ladder"));
//! // Without answers there is nothing to judge.
//! assert!(judge(ladder, &Default::default()).not_run().is_some());
//! ```
#![forbid(unsafe_code)]

mod answer;
mod catalogue;
mod claim;
mod data;
mod experiment;
mod judgement;
mod report;

pub use answer::{Answer, Machine, Spent};
pub use catalogue::catalogue;
pub use claim::{ALIKE, At, Cause, Check, Claim, Quantity, Reason};
pub use data::{Data, Line, Point};
pub use experiment::{Experiment, Paper, Plot, Run, Scale, Shape, Take, Value, Way};
pub use judgement::{ClaimJudgement, Judgement, Verdict, judge};
pub use report::{Reported, page};
