//! The scales of axes, and the numbers beside them.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::judgement::rounded;

/// The most numbers beside an axis.
const MARKS: usize = 7;

/// How numbers lie along an axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Steps {
    Even,
    /// Logarithmic, with powers of two written beside it.
    Twos,
    /// Logarithmic, with round numbers of each power of ten, as many as there is room for.
    Tens,
}

/// A scale: where a number lies, and which numbers are written beside it.
pub(super) struct Scale {
    steps: Steps,
    /// The ends: logarithms, but on an even scale.
    least: f64,
    most: f64,
}

impl Scale {
    /// Around these numbers; on an even scale from nothing on, if `from_nothing`.
    pub(super) fn around(numbers: impl Iterator<Item = f64>, steps: Steps, from_nothing: bool) -> Scale {
        let numbers: Vec<f64> = numbers.filter(|number| number.is_finite()).collect();
        // What is not above nothing has no place on a logarithmic scale.
        let steps = if numbers.iter().all(|number| *number > 0.0) { steps } else { Steps::Even };
        let mut scale = Scale { steps, least: 0.0, most: 1.0 };
        let places = || numbers.iter().map(|number| scale.place(*number));
        let (least, most) =
            (places().fold(f64::INFINITY, f64::min), places().fold(f64::NEG_INFINITY, f64::max));
        let (least, most) = if least > most { (0.0, 1.0) } else { (least, most) };
        let least = if steps == Steps::Even && from_nothing { least.min(0.0) } else { least };
        // Figures that are nearly the same are to look so: a logarithmic scale has two powers of two at least.
        let spread =
            if steps != Steps::Even && most > least { (2.0 - (most - least)).max(0.0) / 2.0 } else { 0.0 };
        let (least, most) = (least - spread, most + spread);
        let room = if most > least { (most - least) * 0.05 } else { 0.5 };
        scale.least = if least == 0.0 && from_nothing { 0.0 } else { least - room };
        scale.most = most + room;
        scale
    }

    fn place(&self, number: f64) -> f64 {
        if self.steps == Steps::Even { number } else { number.log2() }
    }

    /// The number at a place.
    fn at(&self, place: f64) -> f64 {
        if self.steps == Steps::Even { place } else { place.exp2() }
    }

    /// The numbers written beside it.
    fn marks(&self) -> Vec<f64> {
        let shown = |number: &f64| (self.least..=self.most).contains(&self.place(*number));
        match self.steps {
            Steps::Even => {
                let least_step = (self.most - self.least) / MARKS as f64;
                let power = 10_f64.powf(least_step.log10().floor());
                let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
                let step = steps.into_iter().find(|step| *step >= least_step).unwrap_or(least_step);
                let first = (self.least / step).ceil();
                (0..=MARKS).map(|number| (first + number as f64) * step).filter(shown).collect()
            }
            Steps::Twos => {
                let (first, last) = (self.least.ceil() as i32, self.most.floor() as i32);
                let powers = (last - first).max(0) as usize + 1;
                (first..=last).step_by(powers.div_ceil(MARKS)).map(|power| 2_f64.powi(power)).collect()
            }
            Steps::Tens => {
                let (first, last) = (self.at(self.least).log10(), self.at(self.most).log10());
                let powers = || first.floor() as i32..=last.ceil() as i32;
                let of = |digits: &'static [f64], every| {
                    let of_power = |power| digits.iter().map(move |digit| digit * 10_f64.powi(power));
                    powers().step_by(every).flat_map(of_power).filter(shown).collect::<Vec<f64>>()
                };
                let sparser = (1..=powers().count()).map(|every| of(&[1.0], every));
                let all =
                    [of(&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0], 1), of(&[1.0, 2.0, 5.0], 1), of(&[1.0, 3.0], 1)]
                        .into_iter()
                        .chain(sparser);
                all.into_iter().find(|marks| marks.len() <= MARKS).unwrap_or_default()
            }
        }
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, number: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (self.place(*number) - self.least) / (self.most - self.least);
        from + (f64::from(to - from) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // No lines between those that have a number.
        if hint.weight().allow_light_points() { Vec::new() } else { self.marks() }
    }

    fn range(&self) -> Range<f64> {
        self.at(self.least)..self.at(self.most)
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, number: &f64) -> String {
        short(*number)
    }
}

/// A number beside an axis.
pub(super) fn short(number: f64) -> String {
    let (number, unit) = match number.abs() {
        size if size >= 9.995e5 => (number / 1e6, " M"),
        size if size >= 9995.0 => (number / 1e3, " k"),
        _ => (number, ""),
    };
    let text = rounded(number);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}
