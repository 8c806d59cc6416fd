//! The pictures, as SVG. Texts are letters that the viewer draws, colours of axes are the page's (`style.rs`).

use std::error::Error;

use plotters::{
    coord::Shift,
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

type Drawing = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the series of a plot; an error is a sentence.
pub(super) fn draw(plot: &Plot, lines: &[Line]) -> Result<String, String> {
    let mut svg = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = match plot.shape {
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
        (Shape::Map, _) => return String::new(),
        (Shape::Bars, _) => format!("<rect width=\"12\" height=\"10\" fill=\"{color}\"/>"),
        (_, 0) => format!("<circle cx=\"6\" cy=\"5\" r=\"4\" fill=\"{color}\"/>"),
        _ => format!("<path d=\"M6 0 L11 9 L1 9 Z\" fill=\"{color}\"/>"),
    };
    format!("<svg viewBox=\"0 0 12 10\" aria-hidden=\"true\">{mark}</svg>")
}

/// A scale: where a number lies, and which numbers are written beside it.
struct Scale {
    logarithmic: bool,
    least: f64,
    most: f64,
}

impl Scale {
    /// Around these numbers; on a plain scale from nothing on, if `from_nothing`.
    fn around(numbers: impl Iterator<Item = f64>, logarithmic: bool, from_nothing: bool) -> Scale {
        let numbers: Vec<f64> = numbers.filter(|number| number.is_finite()).collect();
        // What is not above nothing has no place on a logarithmic scale.
        let logarithmic = logarithmic && numbers.iter().all(|number| *number > 0.0);
        let place = |number: f64| if logarithmic { number.log2() } else { number };
        let least = numbers.iter().copied().map(place).fold(f64::INFINITY, f64::min);
        let most = numbers.iter().copied().map(place).fold(f64::NEG_INFINITY, f64::max);
        let (least, most) = if least > most { (0.0, 1.0) } else { (least, most) };
        let least = if !logarithmic && from_nothing { least.min(0.0) } else { least };
        // Figures that are nearly the same are to look so: a logarithmic scale has two powers of two at least.
        let spread = if logarithmic && most > least { (2.0 - (most - least)).max(0.0) / 2.0 } else { 0.0 };
        let (least, most) = (least - spread, most + spread);
        let room = if most > least { (most - least) * 0.05 } else { 0.5 };
        let below = if least == 0.0 && from_nothing { 0.0 } else { room };
        Scale { logarithmic, least: least - below, most: most + room }
    }

    fn place(&self, number: f64) -> f64 {
        if self.logarithmic { number.log2() } else { number }
    }

    fn text(&self, place: f64) -> String {
        short(if self.logarithmic { place.exp2() } else { place })
    }
}

/// A number beside an axis.
fn short(number: f64) -> String {
    let size = number.abs();
    match size {
        _ if size >= 9.995e5 => format!("{} M", rounded(number / 1e6)),
        _ if size >= 9995.0 => format!("{} k", rounded(number / 1e3)),
        _ => {
            let text = rounded(number);
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        }
    }
}

fn curves(area: &Area<'_>, plot: &Plot, lines: &[Line], logarithmic: bool) -> Drawing {
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = Scale::around(points().map(|point| point.x), logarithmic, false);
    let up = Scale::around(points().flat_map(|point| [point.least, point.most]), logarithmic, true);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(52)
        .y_label_area_size(88)
        .build_cartesian_2d(across.least..across.most, up.least..up.most)?;
    chart
        .configure_mesh()
        .x_labels(6)
        .y_labels(6)
        .x_label_formatter(&|place| across.text(*place))
        .y_label_formatter(&|place| up.text(*place))
        .x_desc(plot.x)
        .y_desc(plot.name)
        .label_style(("sans-serif", LETTERS))
        .light_line_style(BLACK.mix(0.04))
        .bold_line_style(BLACK.mix(0.14))
        .draw()?;
    for (number, line) in lines.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let place = |x: f64, y: f64| (across.place(x), up.place(y));
        if line.points.iter().any(|point| point.least < point.most) {
            let upper = line.points.iter().map(|point| place(point.x, point.most));
            let lower = line.points.iter().rev().map(|point| place(point.x, point.least));
            chart.draw_series([Polygon::new(upper.chain(lower).collect::<Vec<_>>(), color.mix(0.15))])?;
        }
        let places: Vec<(f64, f64)> = line.points.iter().map(|point| place(point.x, point.y)).collect();
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
    let up = Scale::around(lines.iter().flat_map(|line| &line.points).map(|point| point.y), false, true);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(52)
        .y_label_area_size(88)
        .build_cartesian_2d(-0.6..columns.len() as f64 - 0.4, up.least..up.most)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(columns.len() * 2 + 1)
        .x_label_formatter(&|place| below(&columns, *place))
        .y_label_formatter(&|place| up.text(*place))
        .x_desc(plot.x)
        .y_desc(plot.name)
        .label_style(("sans-serif", LETTERS))
        .light_line_style(BLACK.mix(0.04))
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

/// Columns by x, rows by series. In each column the colour is the stronger the nearer the figure is to the largest, which has a frame.
fn map(area: &Area<'_>, plot: &Plot, lines: &[Line]) -> Drawing {
    let columns = columns(lines);
    let names: Vec<&str> = lines.iter().map(|line| line.series.as_str()).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(52)
        .y_label_area_size((longest * LETTER + 20) as u32)
        .build_cartesian_2d(-0.5..columns.len() as f64 - 0.5, -0.5..lines.len() as f64 - 0.5)?;
    let row = |place: &f64| {
        let near = (place - place.round()).abs() < 0.01 && place.round() >= 0.0;
        let name = if near { names.get(place.round() as usize) } else { None };
        name.map_or_else(String::new, |name| (*name).to_owned())
    };
    chart
        .configure_mesh()
        .disable_mesh()
        .x_labels(columns.len() * 2 + 1)
        .y_labels(lines.len() * 2 + 1)
        .x_label_formatter(&|place| below(&columns, *place))
        .y_label_formatter(&row)
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
