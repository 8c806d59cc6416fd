//! What a paper claims, in a form that can be checked.

use serde::Serialize;

use crate::{data::Data, judgement::rounded};

/// What it lies with that a claim does not hold, or holds in shape only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// What is run is not what the paper ran: data, windows, ways of waiting.
    Experiment,
    /// The simulated machine, or the one at hand, is not the paper's.
    Machine,
    /// The technique, as it is part of this engine.
    Technique,
}

impl Cause {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Cause::Experiment => "the experiment",
            Cause::Machine => "the machine",
            Cause::Technique => "the technique",
        }
    }
}

/// Why a claim does not hold, or holds in shape only, as far as it was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What it lies with.
    pub cause: Cause,
    /// In words.
    pub says: &'static str,
}

/// One claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// In words.
    pub says: &'static str,
    /// The paper's figure, as text.
    pub paper: String,
    /// When it holds.
    pub check: Check,
    /// Why it does not, where that is known.
    pub reason: Option<Reason>,
}

/// When a claim holds.
#[derive(Clone, Debug)]
pub enum Check {
    /// One quantity divided by another one.
    Ratio {
        /// The one.
        of: Quantity,
        /// The other.
        to: Quantity,
        /// The claim holds if the ratio lies in here, both ends included.
        holds: (f64, f64),
        /// And holds in shape if it lies at least in here.
        shape: (f64, f64),
    },
    /// Quantities from the largest down, of which the first and the last are not alike. Holds if each is above all that
    /// follow, in shape if the first is the largest and the last is the smallest; what differs by less than [`ALIKE`]
    /// may stand either way, and nothing is above anything unless it is above 0.
    Order(Vec<Quantity>),
}

/// Figures that differ by less than this share are alike.
pub const ALIKE: f64 = 0.03;

/// Where on a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    /// At this x.
    X(f64),
    /// At the lowest x.
    First,
    /// At the highest x.
    Last,
    /// Where the figure is highest.
    Peak,
    /// Where the figure is lowest.
    Bottom,
}

/// A figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Quantity {
    /// A point of a series.
    Spot {
        /// The plot.
        plot: &'static str,
        /// The series.
        series: String,
        /// Where.
        at: At,
    },
    /// The largest of several.
    Best(Vec<Quantity>),
    /// All of several together.
    Sum(Vec<Quantity>),
    /// The first divided by the second.
    Ratio(Box<(Quantity, Quantity)>),
    /// A number.
    Is(f64),
}

impl Quantity {
    /// A point of a series.
    pub fn spot(plot: &'static str, series: impl Into<String>, at: At) -> Quantity {
        Quantity::Spot { plot, series: series.into(), at }
    }

    /// Its value; `None` if the figures do not have it.
    pub fn value(&self, data: &Data) -> Option<f64> {
        match self {
            Quantity::Is(number) => Some(*number),
            Quantity::Ratio(both) => Some(both.0.value(data)? / both.1.value(data)?),
            Quantity::Best(several) => {
                let figures: Option<Vec<f64>> = several.iter().map(|one| one.value(data)).collect();
                figures?.into_iter().max_by(f64::total_cmp)
            }
            Quantity::Sum(several) => several.iter().map(|one| one.value(data)).sum(),
            Quantity::Spot { plot, series, at } => {
                let points = data.points(plot, series);
                let figures = points.iter().map(|point| point.y);
                match at {
                    At::X(x) => points.iter().find(|point| point.x == *x).map(|point| point.y),
                    At::First => points.first().map(|point| point.y),
                    At::Last => points.last().map(|point| point.y),
                    At::Peak => figures.max_by(f64::total_cmp),
                    At::Bottom => figures.min_by(f64::total_cmp),
                }
            }
        }
    }

    /// What it is called when it is missing, or in a list.
    pub(crate) fn name(&self) -> String {
        match self {
            Quantity::Is(number) => number.to_string(),
            Quantity::Ratio(both) => format!("{} by {}", both.0.name(), both.1.name()),
            Quantity::Best(several) => several.iter().map(Quantity::name).collect::<Vec<_>>().join(" or "),
            Quantity::Sum(several) => several.iter().map(Quantity::name).collect::<Vec<_>>().join(" and "),
            Quantity::Spot { series, at, .. } => match at {
                At::X(x) => format!("{series} at {x}"),
                At::First => format!("{series} at its first point"),
                At::Last => format!("{series} at its last point"),
                At::Peak => format!("the peak of {series}"),
                At::Bottom => format!("the lowest of {series}"),
            },
        }
    }
}

impl Claim {
    /// A ratio that the paper gives as a number: holds within a factor of `within`, and in shape, when it is on the
    /// same side of 1 and differs from it by more than a tenth.
    pub fn times(says: &'static str, of: Quantity, to: Quantity, paper: f64, within: f64) -> Claim {
        let shape = if paper >= 1.0 { (1.1, f64::INFINITY) } else { (0.0, 1.0 / 1.1) };
        let holds = ((paper / within).max(shape.0), (paper * within).min(shape.1));
        let check = Check::Ratio { of, to, holds, shape };
        Claim { says, paper: format!("{} ×", rounded(paper)), check, reason: None }
    }

    /// A part that the paper gives as a number: as [`Claim::times`], and in shape within the square of `within`, so
    /// that nothing is not a part.
    pub fn keeps(says: &'static str, of: Quantity, to: Quantity, paper: f64, within: f64) -> Claim {
        let most = 1.0 / 1.1;
        let holds = (paper / within, (paper * within).min(most));
        let check = Check::Ratio { of, to, holds, shape: (paper / (within * within), most) };
        Claim { says, paper: format!("{} ×", rounded(paper)), check, reason: None }
    }

    /// A figure that is exactly so large, or the claim does not hold.
    pub fn exactly(says: &'static str, of: Quantity, figure: f64) -> Claim {
        let check = Check::Ratio { of, to: Quantity::Is(figure), holds: (1.0, 1.0), shape: (1.0, 1.0) };
        Claim { says, paper: rounded(figure), check, reason: None }
    }

    /// A ratio that is at least so large; in shape at least so large.
    pub fn at_least(
        says: &'static str,
        of: Quantity,
        to: Quantity,
        least: f64,
        shape: f64,
        paper: impl Into<String>,
    ) -> Claim {
        let check = Check::Ratio { of, to, holds: (least, f64::INFINITY), shape: (shape, f64::INFINITY) };
        Claim { says, paper: paper.into(), check, reason: None }
    }

    /// A ratio that is at most so large; in shape at most so large.
    pub fn at_most(
        says: &'static str,
        of: Quantity,
        to: Quantity,
        most: f64,
        shape: f64,
        paper: impl Into<String>,
    ) -> Claim {
        let (least, lowest) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        let check = Check::Ratio { of, to, holds: (least, most), shape: (lowest, shape) };
        Claim { says, paper: paper.into(), check, reason: None }
    }

    /// Two quantities that are the same: within a factor of `within`, in shape within its square.
    pub fn alike(
        says: &'static str,
        of: Quantity,
        to: Quantity,
        within: f64,
        paper: impl Into<String>,
    ) -> Claim {
        let square = within * within;
        let check = Check::Ratio { of, to, holds: (1.0 / within, within), shape: (1.0 / square, square) };
        Claim { says, paper: paper.into(), check, reason: None }
    }

    /// The same, with the reason why it does not hold here.
    pub fn because(self, cause: Cause, says: &'static str) -> Claim {
        Claim { reason: Some(Reason { cause, says }), ..self }
    }

    /// The order of several quantities, the largest first.
    pub fn order(
        says: &'static str,
        largest_first: impl Into<Vec<Quantity>>,
        paper: impl Into<String>,
    ) -> Claim {
        Claim { says, paper: paper.into(), check: Check::Order(largest_first.into()), reason: None }
    }
}
