//! The pictures, as SVG. Texts are letters that the viewer draws, colours of axes are the page's (`style.rs`).

mod labels;
mod marks;
mod scale;

use std::error::Error;

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

pub(super) use self::marks::key;
use self::{
    labels::Labels,
    marks::{bar, color, mark},
    scale::{Scale, Steps, short},
};
use crate::{
    data::Line,
    experiment::{Plot, Shape},
};

/// Width and height: narrow enough for letters to be read where a telephone makes it smaller.
const SIZE: (u32, u32) = (520, 350);
/// Height of a row, and of what lies below all rows: numbers, and a name in two lines.
const ROW: (u32, u32) = (26, 96);
/// The size of letters.
const LETTERS: u32 = 18;
/// The width of a letter, about.
const LETTER: usize = 8;
/// The room left of an axis: its numbers and a line of its name.
const LEFT: u32 = 88;

type Drawing = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the series of a plot, if there is a picture of it: else the text is empty. An error is a sentence.
pub(super) fn draw(plot: &Plot, lines: &[Line]) -> Result<String, String> {
    let mut svg = String::new();
    if plot.shape == Shape::Table {
        return Ok(svg);
    }
    let has_beams = has_beams(plot, lines);
    let size = if has_beams { (SIZE.0, ROW.0 * lines.len() as u32 + ROW.1) } else { SIZE };
    let drawn = {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let drawn = match plot.shape {
            _ if has_beams => beams(&area, plot, lines),
            Shape::Lines => curves(&area, plot, lines, false),
            Shape::LogLines => curves(&area, plot, lines, true),
            Shape::Bars => bars(&area, plot, lines, false),
            Shape::Marks => bars(&area, plot, lines, true),
            Shape::Map | Shape::Table => map(&area, plot, lines),
        };
        drawn.and_then(|()| Ok(area.present()?))
    };
    drawn.map_err(|error| format!("cannot draw {}: {error}", plot.name))?;
    Ok(svg)
}

fn curves(area: &Area<'_>, plot: &Plot, lines: &[Line], logarithmic: bool) -> Drawing {
    let points = || lines.iter().flat_map(|line| &line.points);
    let [across, up] = if logarithmic { [Steps::Twos, Steps::Tens] } else { [Steps::Even; 2] };
    let across = Scale::around(points().map(|point| point.x), across, false);
    let up = Scale::around(points().flat_map(|point| [point.least, point.most]), up, true);
    let labels = Labels::new(area, plot.x, plot.name, LEFT);
    let mut chart = labels.chart(area).build_cartesian_2d(across, up)?;
    chart.configure_mesh().label_style(("sans-serif", LETTERS)).bold_line_style(BLACK.mix(0.14)).draw()?;
    for (number, line) in lines.iter().enumerate() {
        let color = color(number);
        if line.points.iter().any(|point| point.least < point.most) {
            let upper = line.points.iter().map(|point| (point.x, point.most));
            let lower = line.points.iter().rev().map(|point| (point.x, point.least));
            chart.draw_series([Polygon::new(upper.chain(lower).collect::<Vec<_>>(), color.mix(0.15))])?;
        }
        let places: Vec<(f64, f64)> = line.points.iter().map(|point| (point.x, point.y)).collect();
        chart.draw_series(LineSeries::new(places.iter().copied(), color.stroke_width(2)))?;
        chart.draw_series(places.iter().map(|place| mark(number, *place)))?;
    }
    labels.draw(area)
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

/// Columns by x, and in each the series beside each other. Bars begin at nothing, which has no place on a logarithmic
/// axis: there are marks instead, whose place is what counts, not their length.
fn bars(area: &Area<'_>, plot: &Plot, lines: &[Line], logarithmic: bool) -> Drawing {
    let columns = columns(lines);
    let steps = if logarithmic { Steps::Tens } else { Steps::Even };
    let up = Scale::around(lines.iter().flat_map(|line| &line.points).map(|point| point.y), steps, true);
    let labels = Labels::new(area, plot.x, plot.name, LEFT);
    let mut chart = labels.chart(area).build_cartesian_2d(-0.6..columns.len() as f64 - 0.4, up)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(columns.len() * 2 + 1)
        .x_label_formatter(&|place| below(&columns, *place))
        .label_style(("sans-serif", LETTERS))
        .bold_line_style(BLACK.mix(0.14))
        .draw()?;
    let width = 0.8 / lines.len() as f64;
    for (number, line) in lines.iter().enumerate() {
        let placed = line
            .points
            .iter()
            .filter_map(|point| Some((columns.iter().position(|x| *x == point.x)?, point.y)));
        let left = |column: usize| column as f64 - 0.4 + width * number as f64;
        if logarithmic {
            chart.draw_series(placed.map(|(column, y)| mark(number, (left(column) + width * 0.5, y))))?;
        } else {
            let bar = |(column, y)| bar(number, [(left(column), 0.0), (left(column) + width * 0.9, y)]);
            chart.draw_series(placed.flat_map(bar))?;
        }
    }
    labels.draw(area)
}

/// Whether there is one x only: nothing to draw lines between, and no columns to compare.
fn has_beams(plot: &Plot, lines: &[Line]) -> bool {
    let can = match plot.shape {
        Shape::Lines | Shape::LogLines => lines.len() > 1,
        // What x means there is a key to several of them.
        Shape::Bars => plot.x.is_empty(),
        Shape::Marks | Shape::Map | Shape::Table => false,
    };
    can && columns(lines).len() == 1
}

/// Whether the names of the series stand beside what there is of them, so that nobody needs a legend.
pub(super) fn has_names(plot: &Plot, lines: &[Line]) -> bool {
    matches!(plot.shape, Shape::Map | Shape::Table) || has_beams(plot, lines)
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
    let at = match columns(lines).first() {
        Some(x) if !plot.x.is_empty() => format!("{} ({} {})", plot.name, short(*x), plot.x),
        _ => plot.name.to_owned(),
    };
    let labels = Labels::new(area, &at, "", room(lines));
    let mut chart = labels.chart(area).build_cartesian_2d(along, -0.5..last + 0.5)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(lines.len() * 2 + 1)
        .y_label_formatter(&|place| row(lines, last - place))
        .label_style(("sans-serif", LETTERS))
        .bold_line_style(BLACK.mix(0.14))
        .draw()?;
    for (number, line) in lines.iter().enumerate() {
        let middle = last - number as f64;
        let corners = [(0.0, middle - 0.4), (figure(line), middle + 0.4)];
        chart.draw_series(bar(0, corners))?;
    }
    labels.draw(area)
}

/// Columns by x, rows by series. In each column the colour is the stronger the nearer the figure is to the largest,
/// which has a frame.
fn map(area: &Area<'_>, plot: &Plot, lines: &[Line]) -> Drawing {
    let columns = columns(lines);
    let labels = Labels::new(area, plot.x, "", room(lines));
    let mut chart = labels
        .chart(area)
        .build_cartesian_2d(-0.5..columns.len() as f64 - 0.5, -0.5..lines.len() as f64 - 0.5)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_labels(columns.len() * 2 + 1)
        .y_labels(lines.len() * 2 + 1)
        .x_label_formatter(&|place| below(&columns, *place))
        .y_label_formatter(&|place| row(lines, *place))
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
            let colour = color(0).mix(0.05 + 0.5 * strength);
            chart.draw_series([Rectangle::new(corners, colour.filled())])?;
            if y == most {
                chart.draw_series([Rectangle::new(corners, BLACK.stroke_width(2))])?;
            }
            chart.draw_series([Text::new(short(y), (across, up), letters.clone())])?;
        }
    }
    labels.draw(area)
}
