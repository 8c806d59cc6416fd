//! How a series looks, in a picture and in its legend: a colour, and from the ninth series on another mark.

use plotters::{element::DynElement, prelude::*};

use crate::experiment::Shape;

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
/// How much of the colour is in a pale filling.
const PALE: f64 = 0.25;

type Element<'a> = DynElement<'static, SVGBackend<'a>, (f64, f64)>;

/// Which time it is that the colours are used.
#[derive(Clone, Copy)]
enum Round {
    /// Circles and bars, filled.
    First,
    /// Triangles, and bars with a frame and a pale filling.
    Second,
    /// Rings, and frames with nothing in them.
    Third,
}

fn round(number: usize) -> Round {
    [Round::First, Round::Second, Round::Third][number / COLORS.len() % 3]
}

pub(super) fn color(number: usize) -> RGBColor {
    COLORS[number % COLORS.len()]
}

/// The mark of a series in a legend.
pub(in crate::report) fn key(shape: Shape, number: usize) -> String {
    let RGBColor(red, green, blue) = color(number);
    let color = format!("#{red:02x}{green:02x}{blue:02x}");
    let frame = format!("x=\"1\" y=\"1\" width=\"10\" height=\"8\" stroke=\"{color}\" stroke-width=\"2\"");
    let mark = match (shape, round(number)) {
        (Shape::Bars, Round::First) => format!("<rect width=\"12\" height=\"10\" fill=\"{color}\"/>"),
        (Shape::Bars, Round::Second) => format!("<rect {frame} fill=\"{color}\" fill-opacity=\"{PALE}\"/>"),
        (Shape::Bars, Round::Third) => format!("<rect {frame} fill=\"none\"/>"),
        (_, Round::First) => format!("<circle cx=\"6\" cy=\"5\" r=\"4\" fill=\"{color}\"/>"),
        (_, Round::Second) => format!("<path d=\"M6 0 L11 9 L1 9 Z\" fill=\"{color}\"/>"),
        (_, Round::Third) => {
            format!(
                "<circle cx=\"6\" cy=\"5\" r=\"3.5\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>"
            )
        }
    };
    format!("<svg viewBox=\"0 0 12 10\" aria-hidden=\"true\">{mark}</svg>")
}

/// The mark of a series at a point.
pub(super) fn mark<'a>(number: usize, place: (f64, f64)) -> Element<'a> {
    let color = color(number);
    match round(number) {
        Round::First => Circle::new(place, MARK, color.filled()).into_dyn(),
        Round::Second => TriangleMarker::new(place, MARK + 1, color.filled()).into_dyn(),
        Round::Third => Circle::new(place, MARK, color.stroke_width(2)).into_dyn(),
    }
}

/// The bar of a series between two corners: its filling, and its frame.
pub(super) fn bar<'a>(number: usize, corners: [(f64, f64); 2]) -> Vec<Element<'a>> {
    let color = color(number);
    let filled = |strength| Rectangle::new(corners, color.mix(strength).filled()).into_dyn();
    let frame = || Rectangle::new(corners, color.stroke_width(1)).into_dyn();
    match round(number) {
        Round::First => vec![filled(1.0)],
        Round::Second => vec![filled(PALE), frame()],
        Round::Third => vec![frame()],
    }
}
