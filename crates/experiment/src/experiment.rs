//! What an experiment is.

use serde_json::Value as Json;

use crate::{claim::Claim, data::Data};

/// The papers, and what was asked beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paper {
    /// Johnson, Pandis, Hardavellas, Ailamaki, Falsafi: *Shore-MT*, EDBT 2009.
    ShoreMt,
    /// Jung, Han, Fekete, Heiser, Yeom: *A Scalable Lock Manager for Multicores*, SIGMOD 2013.
    StagedLocks,
    /// Kimura, Graefe, Kuno: *Efficient Locking Techniques for Databases on Modern Hardware*, ADMS 2012.
    KeyRangeLocks,
    /// Böttcher, Leis, Giceva, Neumann, Kemper: *Scalable and Robust Latches for Database Systems*, DaMoN 2020.
    HybridLatches,
    /// Ren, Faleiro, Abadi: *Design Principles for Scaling Multi-core OLTP Under High Contention*, SIGMOD 2016.
    Orthrus,
    /// None: a question that none of them asked.
    Beyond,
}

impl Paper {
    /// Authors, short title and year.
    pub fn citation(self) -> &'static str {
        match self {
            Paper::ShoreMt => "Johnson et al., Shore-MT, EDBT 2009",
            Paper::StagedLocks => "Jung et al., A Scalable Lock Manager for Multicores, SIGMOD 2013",
            Paper::KeyRangeLocks => "Kimura et al., Efficient Locking Techniques, ADMS 2012",
            Paper::HybridLatches => "Böttcher et al., Scalable and Robust Latches, DaMoN 2020",
            Paper::Orthrus => "Ren et al., Design Principles for Scaling Multi-core OLTP, SIGMOD 2016",
            Paper::Beyond => "Beyond the papers",
        }
    }
}

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Few points, little data, short: all of them in half an hour on two busy cores.
    Quick,
    /// The points of the paper, as near to its data as a machine of today's memory goes.
    Full,
}

impl Scale {
    /// One of two, by scale.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }

    /// `quick` or `full`.
    pub fn name(self) -> &'static str {
        self.pick("quick", "full")
    }
}

/// Where a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// On this machine, by the usual program.
    Real,
    /// On a simulated machine, by the program of `cargo sim`: the same figures everywhere.
    Simulated,
}

impl Way {
    /// Both.
    pub const ALL: [Way; 2] = [Way::Real, Way::Simulated];
}

/// One experiment, at one scale.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// `paper.number`, as in `foreshore experiment run 4.5`.
    pub id: &'static str,
    /// Whose it is.
    pub paper: Paper,
    /// Where the paper has it.
    pub figure: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// What is run, in this order.
    pub runs: Vec<Run>,
    /// What is drawn; the first is the main one.
    pub plots: Vec<Plot>,
    /// What the paper claims.
    pub claims: Vec<Claim>,
    /// What a reader should know: how this run differs from the paper's, and why a claim does not hold.
    pub remark: &'static str,
}

/// One command of the program, and what is taken from its answer.
#[derive(Clone, Debug)]
pub struct Run {
    /// Where.
    pub way: Way,
    /// The arguments of the program, `--json` left out.
    pub arguments: String,
    /// The figures.
    pub takes: Vec<Take>,
    /// Whether a check that fails (exit status 1) is a figure, not a run that is worth nothing.
    pub may_fail: bool,
}

impl Run {
    /// A run on this machine.
    pub fn real(arguments: impl Into<String>, takes: impl Into<Vec<Take>>) -> Run {
        Run { way: Way::Real, arguments: arguments.into(), takes: takes.into(), may_fail: false }
    }

    /// A run on a simulated machine; `arguments` are those behind `simulate`.
    pub fn simulated(arguments: impl AsRef<str>, takes: impl Into<Vec<Take>>) -> Run {
        let arguments = format!("simulate {}", arguments.as_ref());
        Run { way: Way::Simulated, arguments, takes: takes.into(), may_fail: false }
    }

    /// The same, on machines that are a little different, too, if it measures anything.
    pub(crate) fn in_bands(mut self) -> Run {
        if self.arguments.starts_with("simulate bench ") {
            self.arguments.push_str(" --bands");
        }
        self
    }

    /// The same, and what it finds wrong is a figure.
    pub fn that_may_fail(self) -> Run {
        Run { may_fail: true, ..self }
    }

    /// Adds what is taken from this answer to `data`. An error says in words what is missing there.
    pub(crate) fn take(&self, answer: &Json, data: &mut Data) -> Result<(), String> {
        self.takes.iter().try_for_each(|take| data.add(take, answer))
    }

    /// Whether an answer has the figures that are taken from it; an error says in words what is missing.
    pub fn check(&self, answer: &Json) -> Result<(), String> {
        self.take(answer, &mut Data::default())
    }

    /// The arguments that the program is given, one by one.
    pub fn words(&self) -> Vec<&str> {
        self.arguments.split_whitespace().chain(["--json"]).collect()
    }

    /// What a user types to run the same.
    pub fn command(&self) -> String {
        let program = match self.way {
            Way::Real => "foreshore",
            Way::Simulated => "cargo sim",
        };
        format!("{program} {}", self.arguments)
    }
}

/// How points are taken from an answer: for each element of an array, a point of a series.
#[derive(Clone, Debug)]
pub struct Take {
    /// The plot that they belong to, by name.
    pub plot: &'static str,
    /// Where the array lies (a JSON pointer); empty: the whole answer is the array, or its only element.
    pub rows: &'static str,
    /// Only elements in which these places have these values, as text.
    pub only: Vec<(&'static str, String)>,
    /// The name of the series, with places in braces: `{/variant}`.
    pub series: String,
    /// Where on the x axis, likewise: a number when the places are filled in.
    pub x: String,
    /// The figure.
    pub y: Value,
}

/// A figure of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// What is at this place.
    Of(&'static str),
    /// The one divided by the other.
    Per(&'static str, &'static str),
    /// How many there are in the array at this place.
    Count(&'static str),
    /// The share of attempts that the engine aborted, in the report of a workload.
    Aborted,
}

impl Take {
    /// From each element of an array.
    pub fn each(
        plot: &'static str,
        rows: &'static str,
        series: impl Into<String>,
        x: impl Into<String>,
        y: Value,
    ) -> Take {
        Take { plot, rows, only: Vec::new(), series: series.into(), x: x.into(), y }
    }

    /// From the answer as a whole.
    pub fn whole(plot: &'static str, series: impl Into<String>, x: impl std::fmt::Display, y: Value) -> Take {
        Take::each(plot, "", series, x.to_string(), y)
    }

    /// Only from elements with this value at this place.
    pub fn only(mut self, place: &'static str, value: impl Into<String>) -> Take {
        self.only.push((place, value.into()));
        self
    }
}

/// How figures are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Lines over x.
    Lines,
    /// As lines, both axes in powers.
    LogLines,
    /// A bar for each series at each x.
    Bars,
    /// A mark for each series at each x, up a logarithmic axis: for figures of very different sizes.
    Marks,
    /// A map: x, and the series in rows; the colour is the figure.
    Map,
    /// No picture: figures of different units, which no axis has together.
    Table,
}

/// One picture.
#[derive(Clone, Copy, Debug)]
pub struct Plot {
    /// Its name, by which takes and claims speak of it, and what it shows: the label of its y axis.
    pub name: &'static str,
    /// The label of its x axis; empty if all has one x, which means nothing.
    pub x: &'static str,
    /// How.
    pub shape: Shape,
}
