//! The names of the axes, in as many lines as they need.

use plotters::{
    chart::ChartBuilder,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Area, Drawing, LETTER, LETTERS};

/// The room around a picture.
const MARGIN: u32 = 12;
/// The room below the axis: its numbers and a line of its name.
const BELOW: u32 = 52;
/// The height of one more line.
const LINE: u32 = 20;

/// The names of both axes.
pub(super) struct Labels {
    across: Vec<String>,
    up: Vec<String>,
    /// Left of the axis and below it, in pixels.
    room: (u32, u32),
    /// Of the picture.
    size: (u32, u32),
}

impl Labels {
    /// For a picture with so much room left of its axis: for numbers and a line of the name, or for names of rows.
    pub(super) fn new(area: &Area<'_>, across: &str, up: &str, left: u32) -> Labels {
        let size = area.dim_in_pixel();
        let more = |lines: &[String]| LINE * (lines.len() as u32).saturating_sub(1);
        // Names are no longer than the axes, but for those of a picture that has hardly any.
        let long = |all: u32, beside: u32| all.saturating_sub(2 * MARGIN + beside).max(all / 4);
        let first = wrapped(across, long(size.0, left));
        let up = wrapped(up, long(size.1, BELOW + more(&first)));
        let left = left + more(&up);
        let across = wrapped(across, long(size.0, left));
        let room = (left, BELOW + more(&across));
        Labels { across, up, room, size }
    }

    /// A chart with room for them.
    pub(super) fn chart<'a, 'b>(&self, area: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
        let mut chart = ChartBuilder::on(area);
        chart.margin(MARGIN).x_label_area_size(self.room.1).y_label_area_size(self.room.0);
        chart
    }

    /// Draws them.
    pub(super) fn draw(&self, area: &Area<'_>) -> Drawing {
        let letters = || TextStyle::from(("sans-serif", LETTERS).into_font());
        let middle =
            |all: u32, before: u32, behind: u32| (before + all.saturating_sub(before + behind) / 2) as i32;
        let centre = middle(self.size.0, MARGIN + self.room.0, MARGIN);
        let style = letters().pos(Pos::new(HPos::Center, VPos::Bottom));
        for (number, line) in self.across.iter().rev().enumerate() {
            area.draw_text(line, &style, (centre, (self.size.1 - MARGIN - LINE * number as u32) as i32))?;
        }
        let centre = middle(self.size.1, MARGIN, MARGIN + self.room.1);
        let style = letters().transform(FontTransform::Rotate270).pos(Pos::new(HPos::Center, VPos::Top));
        for (number, line) in self.up.iter().enumerate() {
            area.draw_text(line, &style, ((MARGIN + LINE * number as u32) as i32, centre))?;
        }
        Ok(())
    }
}

/// A text in as few lines as fit `length` pixels, broken behind commas if that will do, and as even as can be; none of
/// nothing.
fn wrapped(text: &str, length: u32) -> Vec<String> {
    let most = length as usize / LETTER;
    let words: Vec<&str> = text.split_whitespace().collect();
    let phrases: Vec<&str> = text.split_inclusive(", ").map(str::trim).collect();
    let shortest = lines(&words, most);
    let will_do = |lines: &Vec<String>| {
        lines.len() <= shortest.len() && lines.iter().all(|line| line.chars().count() <= most)
    };
    let even = |parts: &[&str]| (0..=most).map(|most| lines(parts, most)).find(will_do);
    even(&phrases).or_else(|| even(&words)).unwrap_or(shortest)
}

/// Lines of at most so many letters, or of one part.
fn lines(parts: &[&str], most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + part.chars().count() <= most => {
                line.push(' ');
                line.push_str(part);
            }
            _ => lines.push((*part).to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_few_and_even() {
        assert_eq!(wrapped("", 100), Vec::<String>::new());
        assert_eq!(wrapped("threads", 100), ["threads"]);
        let letters = |most: usize| (most * LETTER) as u32;
        assert_eq!(wrapped("one two three four", letters(18)), ["one two three four"]);
        assert_eq!(wrapped("one two three four", letters(17)), ["one two", "three four"]);
        assert_eq!(wrapped("one two, three", letters(12)), ["one two,", "three"]);
        assert_eq!(wrapped("one, two three four", letters(13)), ["one, two", "three four"]);
        assert_eq!(wrapped("unbreakable", letters(3)), ["unbreakable"]);
    }
}
