//! The figures of an experiment: points of series, taken from answers.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value as Json;

use crate::experiment::{Take, Value};

/// Transactions that a figure of theirs takes at least, and one for each thread.
const LEAST_COMMITS: u64 = 30;

/// A figure, with the extremes of several that were measured for the same place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// The lowest, of machines that are a little different, too, where an answer has them.
    pub least: f64,
    /// The highest, likewise.
    pub most: f64,
}

/// A series of a plot, its points by ascending x.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The plot.
    pub plot: String,
    /// The series.
    pub series: String,
    /// Its points.
    pub points: Vec<Point>,
}

/// All figures of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Data {
    /// In the order in which they appeared.
    series: Vec<Series>,
}

/// What was taken for a series of a plot.
#[derive(Clone, Debug, PartialEq)]
struct Series {
    plot: String,
    name: String,
    /// By the order of x.
    places: BTreeMap<u64, Place>,
}

/// The figures for one x.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    x: f64,
    figures: Vec<f64>,
    /// The same on machines that are a little different (`--bands`): no part of the median.
    bands: Vec<f64>,
}

impl Data {
    /// Adds what `take` finds in an answer. An error says in words what is missing there.
    pub fn add(&mut self, take: &Take, answer: &Json) -> Result<(), String> {
        let rows = answer.pointer(take.rows).ok_or_else(|| format!("the answer has no {}", take.rows))?;
        let rows = rows.as_array().map_or(std::slice::from_ref(rows), Vec::as_slice);
        let mut found = false;
        for row in rows {
            let same =
                |(place, value): &(&str, String)| row.pointer(place).is_some_and(|it| text(it) == *value);
            if !take.only.iter().all(same) {
                continue;
            }
            let series = fill(&take.series, row)?;
            if series.contains(char::is_control) {
                return Err(format!("{series:?} is no name of a series"));
            }
            let x = fill(&take.x, row)?;
            let x = x.parse().map_err(|_| format!("{x:?} is no number for the x axis"))?;
            check_commits(row)?;
            let bands = row.pointer("/bands").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
            let band = |band| check_commits(band).and_then(|()| figure(take.y, band));
            let bands = bands.iter().map(band).collect::<Result<Vec<_>, _>>()?;
            let y = figure(take.y, row)?;
            let place = self.place(take.plot, &series, bounded(x)?);
            place.figures.push(y);
            place.bands.extend(bands);
            found = true;
        }
        if found { Ok(()) } else { Err(format!("nothing in the answer is what {:?} asks for", take.only)) }
    }

    fn place(&mut self, plot: &str, name: &str, x: f64) -> &mut Place {
        let place = self.series.iter().position(|series| series.plot == plot && series.name == name);
        let place = place.unwrap_or_else(|| {
            let (plot, name) = (plot.to_owned(), name.to_owned());
            self.series.push(Series { plot, name, places: BTreeMap::new() });
            self.series.len() - 1
        });
        let places = &mut self.series[place].places;
        places.entry(order(x)).or_insert_with(|| Place { x, figures: Vec::new(), bands: Vec::new() })
    }

    /// The series of a plot.
    pub fn lines(&self, plot: &str) -> Vec<Line> {
        let of_plot = self.series.iter().filter(|series| series.plot == plot);
        let line = |series: &Series| Line {
            plot: series.plot.clone(),
            series: series.name.clone(),
            points: series.points(),
        };
        of_plot.map(line).collect()
    }

    /// The points of a series; none if it is not there.
    pub fn points(&self, plot: &str, name: &str) -> Vec<Point> {
        let series = self.series.iter().find(|series| series.plot == plot && series.name == name);
        series.map_or_else(Vec::new, Series::points)
    }
}

impl Series {
    fn points(&self) -> Vec<Point> {
        let point = |place: &Place| {
            let mut figures = place.figures.clone();
            figures.sort_by(f64::total_cmp);
            let all = || figures.iter().chain(&place.bands).copied();
            let (least, most) =
                (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
            Point { x: place.x, y: median(&figures), least, most }
        };
        self.places.values().map(point).collect()
    }
}

/// The middle of ascending figures, or the mean of the two in the middle.
fn median(figures: &[f64]) -> f64 {
    f64::midpoint(figures[(figures.len() - 1) / 2], figures[figures.len() / 2])
}

/// Keys in the order of the numbers.
fn order(x: f64) -> u64 {
    let bits = x.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// A value as people write it.
fn text(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// EXPERIMENT-5: figures of a handful of transactions say nothing, nor does a window in which not every thread got on.
fn check_commits(row: &Json) -> Result<(), String> {
    let commits = row.pointer("/ended").or_else(|| row.pointer("/commits"));
    let threads = row.pointer("/threads").and_then(Json::as_u64);
    match commits.and_then(Json::as_u64) {
        Some(commits) if commits < LEAST_COMMITS.max(threads.unwrap_or_default()) => Err(format!(
            "only {commits} transactions{} were committed while it was measured: too few to say anything",
            threads.map_or_else(String::new, |threads| format!(" of {threads} threads")),
        )),
        _ => Ok(()),
    }
}

/// The same for a latency: what counts are the commits that lie beside it, which are those of its kind.
fn check_latency(place: &str, row: &Json) -> Result<(), String> {
    let Some((kind, _)) = place.split_once("/latency_us/") else { return Ok(()) };
    match row.pointer(&format!("{kind}/commits")).and_then(Json::as_u64) {
        Some(commits) if commits < LEAST_COMMITS => {
            Err(format!("{place} is that of {commits} transactions only: too few to say anything"))
        }
        _ => Ok(()),
    }
}

/// A template with its places filled in.
fn fill(template: &str, row: &Json) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        let (place, after) = behind.split_once('}').ok_or_else(|| format!("{template:?} lacks a brace"))?;
        out.push_str(before);
        out.push_str(&text(row.pointer(place).ok_or_else(|| format!("the answer has no {place}"))?));
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// EXPERIMENT-6: no figure of a machine is larger, or smaller and not 0; nothing could be drawn beside it.
fn bounded(figure: f64) -> Result<f64, String> {
    let size = figure.abs();
    if size == 0.0 || (1e-18..1e18).contains(&size) {
        Ok(figure)
    } else {
        Err(format!("{figure:e} is no figure"))
    }
}

/// What is measured is never less than nothing.
fn figure(value: Value, row: &Json) -> Result<f64, String> {
    let figure = measured(value, row)?;
    if figure < 0.0 { Err(format!("{figure} is no figure")) } else { Ok(figure) }
}

fn measured(value: Value, row: &Json) -> Result<f64, String> {
    let number = |place: &str| {
        row.pointer(place)
            .and_then(Json::as_f64)
            .ok_or_else(|| format!("the answer has no number at {place}"))
    };
    bounded(match value {
        Value::Of(place) => {
            check_latency(place, row)?;
            number(place)?
        }
        Value::Per(place, other) => number(place)? / number(other)?,
        Value::Count(place) => {
            let array = row.pointer(place).and_then(Json::as_array);
            array.ok_or_else(|| format!("the answer has no array at {place}"))?.len() as f64
        }
        Value::Aborted => {
            let causes =
                row.pointer("/aborts").and_then(Json::as_object).ok_or("the answer has no /aborts")?;
            let aborts: f64 = causes.values().filter_map(Json::as_f64).sum();
            // They are those of all that ran while it was measured.
            let ended = number("/ended").or_else(|_| number("/commits"))?;
            aborts / (ended + aborts).max(1.0)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn points_are_taken_from_rows_and_from_the_whole() {
        let answer = json!({"results": [
            {"variant": "a", "threads": 8, "rate": 4.0}, {"variant": "b", "threads": 1, "rate": 3.0},
            {"variant": "a", "threads": 1, "rate": 1.0}]});
        let mut data = Data::default();
        let take = Take::each("rate", "/results", "way {/variant}", "{/threads}", Value::Of("/rate"));
        data.add(&take, &answer).unwrap();
        let a = data.points("rate", "way a");
        assert_eq!(a.iter().map(|point| (point.x, point.y)).collect::<Vec<_>>(), [(1.0, 1.0), (8.0, 4.0)]);
        assert_eq!(data.lines("rate").len(), 2);
        assert!(data.points("rate", "way c").is_empty() && data.lines("other").is_empty());

        let few = json!({"results": [{"variant": "a", "threads": 8, "rate": 4.0, "commits": 29}]});
        assert!(data.clone().add(&take, &few).unwrap_err().contains("too few"));
        let only = take.clone().only("/variant", "c");
        assert!(data.clone().add(&only, &answer).unwrap_err().contains("nothing"));
        let report = json!({"commits": 60, "aborts": {"deadlock": 30, "other": 10}, "threads": 4});
        data.add(&Take::whole("aborts", "a", 4, Value::Aborted), &report).unwrap();
        assert_eq!(data.points("aborts", "a")[0].y, 0.4);
        let long = json!({"commits": 75, "ended": 230, "aborts": {"deadlock": 40}});
        data.add(&Take::whole("aborts", "b", 4, Value::Aborted), &long).unwrap();
        assert_eq!(data.points("aborts", "b")[0].y, 40.0 / 270.0);
        data.add(&Take::whole("each", "a", 4, Value::Per("/commits", "/threads")), &report).unwrap();
        assert_eq!(data.points("each", "a")[0].y, 15.0);
        data.add(&Take::whole("count", "a", 1, Value::Count("/list")), &json!({"list": [1, 2]})).unwrap();
        assert_eq!(data.points("count", "a")[0].y, 2.0);
        let lost = json!({"results": [{"variant": "a", "threads": 200, "rate": 4.0, "commits": 199}]});
        assert!(data.clone().add(&take, &lost).unwrap_err().contains("of 200 threads"));
        // What ended counts, where it is told.
        let long =
            json!({"results": [{"variant": "a", "threads": 8, "rate": 4.0, "commits": 29, "ended": 30}]});
        assert!(data.clone().add(&take, &long).is_ok());
        let few = Take::whole("each", "a", 1, Value::Of("/commits"));
        assert!(data.add(&few, &json!({"commits": 29})).unwrap_err().contains("too few"));
        for missing in [Value::Of("/no"), Value::Count("/commits"), Value::Per("/commits", "/no")] {
            assert!(data.add(&Take::whole("p", "a", 1, missing), &report).is_err());
            assert!(data.lines("p").is_empty(), "nothing is left of it");
        }
        for rate in [json!(1e300), json!(5e-324), json!(null), json!("7"), json!(-1e18)] {
            let answer = json!({"rate": rate});
            assert!(data.add(&Take::whole("p", "a", 1, Value::Of("/rate")), &answer).is_err(), "{answer}");
            assert!(data.add(&Take::whole("p", "a", "{/rate}", Value::Count("/none")), &answer).is_err());
        }
        assert!(data.add(&Take::whole("p", "a", 1, Value::Of("/rate")), &json!({"rate": -1.0})).is_err());
        let none = json!({"rate": 1.0, "seconds": 0.0});
        assert!(data.add(&Take::whole("p", "a", 1, Value::Per("/rate", "/seconds")), &none).is_err());
        assert!(data.add(&Take::whole("p", "{/no}", 1, Value::Of("/commits")), &report).is_err());
        assert!(data.add(&Take::whole("p", "a", "x", Value::Of("/commits")), &report).is_err());
        let named = json!({"name": "a\u{1b}[2J", "rate": 1.0});
        assert!(data.add(&Take::whole("p", "{/name}", 1, Value::Of("/rate")), &named).is_err());
    }

    #[test]
    fn a_latency_needs_transactions_of_its_kind() {
        let answer = |commits: u64| {
            let kind = json!({"commits": commits, "latency_us": {"p50": 7.0}});
            json!({"ended": 1000, "commits": commits, "latency_us": {"p50": 7.0}, "by_kind": {"reads": kind}})
        };
        for place in ["/by_kind/reads/latency_us/p50", "/latency_us/p50"] {
            let take = Take::whole("latency", "a", 1, Value::Of(place));
            let mut data = Data::default();
            assert!(data.add(&take, &answer(29)).unwrap_err().contains("too few"), "{place}");
            data.add(&take, &answer(30)).unwrap();
            assert_eq!(data.points("latency", "a")[0].y, 7.0);
        }
    }

    #[test]
    fn what_was_measured_several_times_has_a_median_and_extremes() {
        let bands = json!([{"rate": 5.0}, {"rate": 1.0}, {"rate": 3.0}]);
        let mut data = Data::default();
        data.add(&Take::whole("rate", "a", -1, Value::Of("/rate")), &bands).unwrap();
        for rate in [7.0, 8.0] {
            data.add(&Take::whole("rate", "a", 2, Value::Of("/rate")), &json!({"rate": rate})).unwrap();
        }
        let points = data.points("rate", "a");
        assert_eq!(points[0], Point { x: -1.0, y: 3.0, least: 1.0, most: 5.0 });
        assert_eq!(points[1], Point { x: 2.0, y: 7.5, least: 7.0, most: 8.0 });
    }

    #[test]
    fn machines_that_are_a_little_other_make_the_band_and_not_the_point() {
        let answer = json!({"rate": 5.0, "bands": [{"rate": 9.0}, {"rate": 4.0}, {"rate": 8.0}]});
        let take = Take::whole("rate", "a", 1, Value::Of("/rate"));
        let mut data = Data::default();
        data.add(&take, &answer).unwrap();
        assert_eq!(data.points("rate", "a"), [Point { x: 1.0, y: 5.0, least: 4.0, most: 9.0 }]);
        let lacking = json!({"rate": 5.0, "bands": [{"other": 9.0}]});
        assert!(data.add(&take, &lacking).unwrap_err().contains("/rate"));
        let few = json!({"rate": 5.0, "bands": [{"rate": 9.0, "commits": 29}]});
        assert!(data.add(&take, &few).unwrap_err().contains("too few"));
    }
}
