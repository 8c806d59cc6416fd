//! The pictures, as SVG. Texts are letters that the viewer draws, colours of axes are the page's (`style.rs`).

use std::{error::Error, ops::Range};

use plotters::{
    coord::{
        Shift,
        ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter},
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::{
    data::Line,
    experiment::{Plot, Shape},
    judgement::rounded,
};

/// Width and height: narrow enough for letters to be read where a telephone makes it smaller.
const SIZE: (u32, u32) = (520, 350);
/// Height of a row, and of what lies below all rows.
const ROW: (u32, u32) = (26, 76);
/// The size of letters.
const LETTERS: u32 = 18;
/// The width of a letter, about.
const LETTER: usize = 8;
/// Colours that eyes of all kinds can tell apart (Okabe and Ito), and that stand out on white and on black.
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(150, 120, 20),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(128, 128, 128),
];
/// Half the size of a mark.
const MARK: i32 = 4;
/// The most numbers beside an axis.
const MARKS: usize = 7;

type Drawing = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the series of a plot; an error is a sentence.
pub(super) fn draw(plot: &Plot, lines: &[Line]) -> Result<String, String> {
    let mut svg = String::new();
    let has_beams = has_beams(plot, lines);
    let size = if has_beams { (SIZE.0, ROW.0 * lines.len() as u32 + ROW.1) } else { SIZE };
    let drawn = {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = match plot.shape {
            _ if has_beams => beams(&area, plot, lines),
            Shape::Lines => curves(&area, plot, lines, false),
            Shape::LogLines => curves(&area, plot, lines, true),
            Shape::Bars => bars(&area, plot, lines),
            Shape::Map => map(&area, plot, lines),
        };
        drawn.and_then(|()| Ok(area.present()?))
    };
    drawn.map_err(|error| format!("cannot draw {}: {error}", plot.name))?;
    Ok(svg)
}

/// The mark of a series in a legend.
pub(super) fn key(shape: Shape, number: usize) -> String {
    let RGBColor(red, green, blue) = COLORS[number % COLORS.len()];
    let color = format!("#{red:02x}{green:02x}{blue:02x}");
    let mark = match (shape, number / COLORS.len() % 2) {
        (Shape::Bars, _) => format!("<rect width=\"12\" height=\"10\" fill=\"{color}\"/>"),
        (_, 0) => format!("<circle cx=\"6\" cy=\"5\" r=\"4\" fill=\"{color}\"/>"),
        _ => format!("<path d=\"M6 0 L11 9 L1 9 Z\" fill=\"{color}\"/>"),
    };
    format!("<svg viewBox=\"0 0 12 10\" aria-hidden=\"true\">{mark}</svg>")
}

/// How numbers lie along an axis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Steps {
    Even,
    /// Logarithmic, with powers of two written beside it.
    Twos,
    /// Logarithmic, with round numbers of each power of ten, as many as there is room for.
    Tens,
}

/// A scale: where a number lies, and which numbers are written beside it.
struct Scale {
    steps: Steps,
    /// The ends: logarithms, but on an even scale.
    least: f64,
    most: f64,
}

impl Scale {
    /// Around these numbers; on an even scale from nothing on, if `from_nothing`.
    fn around(numbers: impl Iterator<Item = f64>, steps: Steps, from_nothing: bool) -> Scale {
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
fn short(number: f64) -> String {
    let (number, unit) = match number.abs() {
        size if size >= 9.995e5 => (number / 1e6, " M"),
        size if size >= 9995.0 => (number / 1e3, " k"),
        _ => (number, ""),
    };
    let text = rounded(number);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

fn curves(area: &Area<'_>, plot: &Plot, lines: &[Line], logarithmic: bool) -> Drawing {
    let points = || lines.iter().flat_map(|line| &line.points);
    let [across, up] = if logarithmic { [Steps::Twos, Steps::Tens] } else { [Steps::Even; 2] };
    let across = Scale::around(points().map(|point| point.x), across, false);
    let up = Scale::around(points().flat_map(|point| [point.least, point.most]), up, true);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(52)
        .y_label_area_size(88)
        .build_cartesian_2d(across, up)?;
    chart
        .configure_mesh()
        .x_desc(plot.x)
        .y_desc(plot.name)
        .label_style(("sans-serif", LETTERS))
        .bold_line_style(BLACK.mix(0.14))
        .draw()?;
    for (number, line) in lines.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        if line.points.iter().any(|point| point.least < point.most) {
            let upper = line.points.iter().map(|point| (point.x, point.most));
            let lower = line.points.iter().rev().map(|point| (point.x, point.least));
            chart.draw_series([Polygon::new(upper.chain(lower).collect::<Vec<_>>(), color.mix(0.15))])?;
        }
        let places: Vec<(f64, f64)> = line.points.iter().map(|point| (point.x, point.y)).collect();
        chart.draw_series(LineSeries::new(places.iter().copied(), color.stroke_width(2)))?;
        if (number / COLORS.len()).is_multiple_of(2) {
            chart.draw_series(places.iter().map(|place| Circle::new(*place, MARK, color.filled())))?;
        } else {
            chart.draw_series(
                places.iter().map(|place| TriangleMarker::new(*place, MARK + 1, color.filled())),
            )?;
        }
    }
    Ok(())
}

/// The different numbers on the x axis.
fn columns(lines: &[Line]) -> Vec<f64> {
    let mut columns: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|point| point.x).collect();
    columns.sort_by(f64::total_cmp);
    columns.dedup();
    columns
}

/// What is written below the columns.
fn below(columns: &[f64], place: f64) -> String {
    let column = place.round();
    let near = (place - column).abs() < 0.01 && column >= 0.0;
    if near { columns.get(column as usize).map_or_else(String::new, |x| short(*x)) } else { String::new() }
}

fn bars(area: &Area<'_>, plot: &Plot, lines: &[Line]) -> Drawing {
    let columns = columns(lines);
    let up =
        Scale::around(lines.iter().flat_map(|line| &line.points).map(|point| point.y), Steps::Even, true);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(52)
        .y_label_area_size(88)
        .build_cartesian_2d(-0.6..columns.len() as f64 - 0.4, up)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(columns.len() * 2 + 1)
        .x_label_formatter(&|place| below(&columns, *place))
        .x_desc(plot.x)
        .y_desc(plot.name)
        .label_style(("sans-serif", LETTERS))
        .bold_line_style(BLACK.mix(0.14))
        .draw()?;
    let width = 0.8 / lines.len() as f64;
    for (number, line) in lines.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let bar = |(column, y): (usize, f64)| {
            let left = column as f64 - 0.4 + width * number as f64;
            Rectangle::new([(left, 0.0), (left + width * 0.9, y)], color.filled())
        };
        let placed = line
            .points
            .iter()
            .filter_map(|point| Some((columns.iter().position(|x| *x == point.x)?, point.y)));
        chart.draw_series(placed.map(bar))?;
    }
    Ok(())
}

/// Whether there is nothing to draw lines between.
fn has_beams(plot: &Plot, lines: &[Line]) -> bool {
    matches!(plot.shape, Shape::Lines | Shape::LogLines) && lines.len() > 1 && columns(lines).len() == 1
}

/// Whether the names of the series stand beside what is drawn of them, so that nobody needs a legend.
pub(super) fn has_names(plot: &Plot, lines: &[Line]) -> bool {
    plot.shape == Shape::Map || has_beams(plot, lines)
}

/// The name of a series beside its row.
fn row(lines: &[Line], place: f64) -> String {
    let near = (place - place.round()).abs() < 0.01 && place.round() >= 0.0;
    let line = if near { lines.get(place.round() as usize) } else { None };
    line.map_or_else(String::new, |line| line.series.clone())
}

/// The room that names of series take.
fn room(lines: &[Line]) -> u32 {
    let longest = lines.iter().map(|line| line.series.chars().count()).max().unwrap_or(0);
    (longest * LETTER + 20) as u32
}

/// The series of one x below each other, the first on top.
fn beams(area: &Area<'_>, plot: &Plot, lines: &[Line]) -> Drawing {
    let figure = |line: &Line| line.points.first().map_or(0.0, |point| point.y);
    let along = Scale::around(lines.iter().map(figure), Steps::Even, true);
    let last = lines.len() as f64 - 1.0;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(52)
        .y_label_area_size(room(lines))
        .build_cartesian_2d(along, -0.5..last + 0.5)?;
    let at = columns(lines)
        .first()
        .map_or_else(String::new, |x| format!("{} ({} {})", plot.name, short(*x), plot.x));
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(lines.len() * 2 + 1)
        .y_label_formatter(&|place| row(lines, last - place))
        .x_desc(at)
        .label_style(("sans-serif", LETTERS))
        .bold_line_style(BLACK.mix(0.14))
        .draw()?;
    for (number, line) in lines.iter().enumerate() {
        let middle = last - number as f64;
        let corners = [(0.0, middle - 0.4), (figure(line), middle + 0.4)];
        chart.draw_series([Rectangle::new(corners, COLORS[0].filled())])?;
    }
    Ok(())
}

/// Columns by x, rows by series. In each column the colour is the stronger the nearer the figure is to the largest,
/// which has a frame.
fn map(area: &Area<'_>, plot: &Plot, lines: &[Line]) -> Drawing {
    let columns = columns(lines);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(52)
        .y_label_area_size(room(lines))
        .build_cartesian_2d(-0.5..columns.len() as f64 - 0.5, -0.5..lines.len() as f64 - 0.5)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_labels(columns.len() * 2 + 1)
        .y_labels(lines.len() * 2 + 1)
        .x_label_formatter(&|place| below(&columns, *place))
        .y_label_formatter(&|place| row(lines, *place))
        .x_desc(plot.x)
        .label_style(("sans-serif", LETTERS))
        .draw()?;
    let middle = Pos::new(HPos::Center, VPos::Center);
    let letters = TextStyle::from(("sans-serif", LETTERS).into_font()).pos(middle);
    for (column, x) in columns.iter().enumerate() {
        let in_column = || {
            let rows = lines.iter().enumerate();
            rows.filter_map(|(row, line)| Some((row, line.points.iter().find(|point| point.x == *x)?.y)))
        };
        let most = in_column().map(|(_, y)| y).fold(0.0, f64::max);
        for (row, y) in in_column() {
            let (across, up) = (column as f64, row as f64);
            let strength = if most > 0.0 { (y / most).clamp(0.0, 1.0) } else { 0.0 };
            let corners = [(across - 0.48, up - 0.46), (across + 0.48, up + 0.46)];
            let colour = COLORS[0].mix(0.05 + 0.5 * strength);
            chart.draw_series([Rectangle::new(corners, colour.filled())])?;
            if y == most {
                chart.draw_series([Rectangle::new(corners, BLACK.stroke_width(2))])?;
            }
            chart.draw_series([Text::new(short(y), (across, up), letters.clone())])?;
        }
    }
    Ok(())
}
