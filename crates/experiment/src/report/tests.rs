use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::*;
use crate::{
    Machine, Scale, catalogue,
    data::{Line, Point},
    experiment::{Shape, Value},
    judge,
};

/// Opening and closing tags in their order, and every entity known; the names of the elements, in order.
fn elements(page: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    let mut all = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a page of HTML");
    while let Some(begin) = rest.find('<') {
        check_text(&rest[..begin]);
        let end = begin + rest[begin..].find('>').expect("a tag that ends");
        let tag = &rest[begin + 1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('?') || tag.starts_with('!') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(
                open.pop().as_deref(),
                Some(name),
                "a closing tag that nobody opened, after {:?}",
                all.last()
            );
            continue;
        }
        assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
        let name = tag.split([' ', '/', '\n']).next().unwrap().to_owned();
        all.push(name.clone());
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} are not closed");
    all
}

fn check_text(text: &str) {
    for (place, _) in text.match_indices('&') {
        let entity = text[place + 1..].split(';').next().unwrap();
        assert!(["amp", "lt", "gt", "quot", "apos"].contains(&entity), "&{entity}");
    }
}

/// An answer in which every run of the catalogue finds what it takes.
fn made_up(experiment: &Experiment) -> Vec<Answer> {
    let answer = |run: &Run| {
        let mut root = json!({ "seed": 7 });
        for take in &run.takes {
            let mut row = json!({});
            for (place, value) in &take.only {
                set(&mut row, place, json!(value));
            }
            for template in [&take.series, &take.x] {
                for place in template.split('{').skip(1).map(|part| part.split('}').next().unwrap()) {
                    set(&mut row, place, json!("1"));
                }
            }
            match take.y {
                Value::Of(place) => set(&mut row, place, json!(12.5)),
                Value::Per(place, other) => {
                    set(&mut row, place, json!(12.5));
                    set(&mut row, other, json!(60));
                }
                Value::Count(place) => set(&mut row, place, json!([1])),
                Value::Aborted => {
                    set(&mut row, "/aborts", json!({ "deadlock": 1 }));
                    set(&mut row, "/commits", json!(30));
                }
            }
            merge(&mut root, take.rows, row);
        }
        Answer {
            command: run.command(),
            program: "0".to_owned(),
            version: "0.1.0".to_owned(),
            commit: "abc".to_owned(),
            machine: Machine {
                processor: "Fast <&> Slow".to_owned(),
                processors: 2,
                system: "linux".to_owned(),
            },
            began_unix_s: 0,
            seconds: 1.0,
            computed_seconds: Some(0.75),
            answer: root,
        }
    };
    experiment.runs.iter().map(answer).collect()
}

/// Puts a value at a place, making objects on the way (and arrays where the place has a number).
fn set(root: &mut Json, place: &str, value: Json) {
    let mut at = root;
    for key in place.split('/').skip(1) {
        if let Ok(index) = key.parse::<usize>() {
            if !at.is_array() {
                *at = json!([]);
            }
            let array = at.as_array_mut().unwrap();
            array.resize(array.len().max(index + 1), json!({}));
            at = &mut array[index];
        } else {
            if !at.is_object() {
                *at = json!({});
            }
            at = &mut at[key];
        }
    }
    *at = value;
}

fn merge(root: &mut Json, rows: &str, row: Json) {
    if rows.is_empty() {
        for (key, value) in row.as_object().unwrap() {
            match (root.get_mut(key), value) {
                (Some(Json::Object(there)), Json::Object(more)) => there.extend(deep(there, more)),
                _ => root[key] = value.clone(),
            }
        }
        return;
    }
    let mut array = root.pointer(rows).and_then(Json::as_array).cloned().unwrap_or_default();
    array.push(row);
    set(root, rows, Json::Array(array));
}

/// Entries of `more`, with what is in `there` already below them.
fn deep(there: &serde_json::Map<String, Json>, more: &serde_json::Map<String, Json>) -> Vec<(String, Json)> {
    let both = |(key, value): (&String, &Json)| {
        let value = match (there.get(key), value) {
            (Some(Json::Object(old)), Json::Object(new)) => {
                let mut merged = old.clone();
                merged.extend(deep(old, new));
                Json::Object(merged)
            }
            _ => value.clone(),
        };
        (key.clone(), value)
    };
    more.iter().map(both).collect()
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_else() {
    let reported: Vec<Reported> = (catalogue(Scale::Quick).into_iter().enumerate())
        .map(|(number, experiment)| {
            // Every third one was not run.
            let answers = if number % 3 == 2 { Vec::new() } else { made_up(&experiment) };
            let judgement = judged(&experiment, &answers);
            assert_eq!(judgement.data.lines(experiment.plots[0].name).is_empty(), answers.is_empty());
            Reported { experiment, scale: "quick", judgement, answers }
        })
        .collect();
    let page = page(&reported).unwrap();
    let elements = elements(&page);
    let count = |name: &str| elements.iter().filter(|element| *element == name).count();
    assert!(count("svg") > 20 && count("figure") > 20);
    assert_eq!(count("script") + count("link") + count("img") + count("iframe"), 0);
    for outside in ["src=", "url(", "@import", "https:"] {
        assert!(!page.contains(outside), "{outside}");
    }
    // Names of XML are no addresses that anybody looks up.
    assert_eq!(page.matches("http:").count(), page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
    for one in &reported {
        let id = one.experiment.id;
        assert!(
            page.contains(&format!("id=\"e{id}\"")) && page.contains(&format!("href=\"#e{id}\"")),
            "{id}"
        );
        assert!(page.contains(&escape(one.experiment.title)));
    }
    assert!(page.contains("Fast &lt;&amp;&gt; Slow") && page.contains("seeds: 7"));
}

/// Stored answers are files that anybody may have written.
#[test]
fn what_no_page_can_have_is_replaced() {
    assert_eq!(escape("a\u{1b}[31m\0\u{ffff}\u{85}b\tc\n"), "a\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}b\tc\n");
}

#[test]
fn answers_of_different_programs_are_told_of() {
    let experiment = catalogue(Scale::Quick).into_iter().find(|experiment| experiment.id == "1.1").unwrap();
    let page_of = |answers: Vec<Answer>| {
        let judgement = judge(&experiment, &BTreeMap::new());
        page(&[Reported { experiment: experiment.clone(), scale: "quick", judgement, answers }]).unwrap()
    };
    let mut answers = made_up(&experiment);
    assert!(!page_of(answers.clone()).contains("different programs"));
    answers[1].program = "another".to_owned();
    let page = page_of(answers.clone());
    assert!(page.contains("different programs") && page.contains("program another (version"), "{page}");
    // Of one program each for what is real and what is simulated, but not of one commit.
    answers[1].program = answers[0].program.clone();
    answers[1].commit = "def".to_owned();
    let page = page_of(answers);
    assert!(page.contains("different programs") && page.contains("commit def"), "{page}");
}

#[test]
fn every_shape_is_drawn() {
    let point = |x: f64, y: f64| Point { x, y, least: y * 0.5, most: y * 2.0 };
    let line = |name: &str, y| Line {
        plot: "rate".to_owned(),
        series: name.to_owned(),
        points: vec![point(1.0, y), point(64.0, y * 3.0)],
    };
    let lines: Vec<Line> =
        (1..=10).map(|number| line(&format!("series {number}"), f64::from(number))).collect();
    for shape in [Shape::Lines, Shape::LogLines, Shape::Bars, Shape::Map] {
        let plot = Plot { name: "rate", x: "cores", shape };
        let svg = picture::draw(&plot, &lines).unwrap();
        assert!(svg.contains("<svg") && svg.contains("cores"), "{shape:?}");
        let drawn = if matches!(shape, Shape::Lines | Shape::LogLines) { "<polyline" } else { "<rect" };
        assert!(svg.matches(drawn).count() >= 10, "{shape:?}");
        // Of one x only.
        let one: Vec<Line> =
            lines.iter().map(|line| Line { points: line.points[..1].to_vec(), ..line.clone() }).collect();
        let svg = picture::draw(&plot, &one).unwrap();
        assert!(svg.matches("<rect").count() >= 10, "{shape:?}");
        // Nothing, and what has no logarithm, are drawn, too.
        let nothing = Line { points: vec![point(0.0, 0.0)], ..lines[0].clone() };
        assert!(picture::draw(&plot, &[nothing]).is_ok(), "{shape:?}");
    }
}

/// 4.6 has 15 latches, 2.4, 2.8 and 5.8 have 12 series.
#[test]
fn series_of_a_legend_are_told_apart() {
    for shape in [Shape::Lines, Shape::Bars, Shape::Marks] {
        let keys: BTreeSet<String> = (0..24).map(|number| picture::key(shape, number)).collect();
        assert_eq!(keys.len(), 24, "{shape:?}");
    }
}

fn judged(experiment: &Experiment, answers: &[Answer]) -> Judgement {
    let told = answers.iter().map(|answer| (answer.command.clone(), Ok(answer.answer.clone()))).collect();
    judge(experiment, &told)
}

/// The pages of all experiments, each alone, of made-up answers.
fn pages(scale: Scale) -> impl Iterator<Item = (Experiment, String)> {
    catalogue(scale).into_iter().map(|experiment| {
        let answers = made_up(&experiment);
        let judgement = judged(&experiment, &answers);
        let reported = Reported { experiment: experiment.clone(), scale: "quick", judgement, answers };
        (experiment, page(&[reported]).unwrap())
    })
}

/// What an element of a picture has there, as a number.
fn attribute(element: &str, name: &str) -> f64 {
    let value = element.split_once(&format!(" {name}=\"")).unwrap().1.split('"').next().unwrap();
    value.parse().unwrap()
}

/// Letters of a wide font take 0.57 of their size each.
#[test]
fn no_label_is_wider_than_its_picture() {
    for (experiment, page) in [Scale::Quick, Scale::Full].into_iter().flat_map(pages) {
        for svg in page.split("<svg role").skip(1).map(|rest| rest.split("</svg>").next().unwrap()) {
            let (width, height) = (attribute(svg, "width"), attribute(svg, "height"));
            for text in svg.split("<text").skip(1) {
                let (head, rest) = text.split_once('>').unwrap();
                let letters = rest.split('<').next().unwrap().trim();
                let long = letters.chars().count() as f64 * attribute(head, "font-size") * 0.57;
                let (from, to, end) = if head.contains("rotate(") {
                    let middle = attribute(head, "y");
                    (middle - long / 2.0, middle + long / 2.0, height)
                } else if head.contains("\"middle\"") {
                    let middle = attribute(head, "x");
                    (middle - long / 2.0, middle + long / 2.0, width)
                } else {
                    assert!(head.contains("\"end\""), "{head}");
                    (attribute(head, "x") - long, attribute(head, "x"), width)
                };
                assert!(from >= 0.0 && to <= end, "{}: {letters:?} from {from} to {to}", experiment.id);
            }
        }
    }
}

/// An x that means nothing is shown nowhere, nor is an axis of nothing.
#[test]
fn pictures_say_what_they_show() {
    for (experiment, page) in pages(Scale::Quick) {
        assert!(!page.contains(" by \""), "{}", experiment.id);
        for plot in experiment.plots.iter().filter(|plot| plot.x.is_empty()) {
            assert!(!page.contains("1.00: 12.5</td>"), "{}", experiment.id);
            let takes = experiment.runs.iter().flat_map(|run| &run.takes);
            let places: BTreeSet<&str> =
                takes.filter(|take| take.plot == plot.name).map(|take| &*take.x).collect();
            assert_eq!(places.len(), 1, "{}", experiment.id);
            let mut lines = judged(&experiment, &made_up(&experiment)).data.lines(plot.name);
            lines.iter_mut().for_each(|line| line.series = "series".to_owned());
            let svg = picture::draw(plot, &lines).unwrap();
            assert!(!svg.contains(">\n1\n</text>") && !svg.contains("(1"), "{}", experiment.id);
            assert_eq!(svg.is_empty(), plot.shape == Shape::Table);
        }
        for plot in &experiment.plots {
            assert_eq!(plot.x, plot.x.trim(), "{}", experiment.id);
        }
        // Without a picture the table is open.
        let tables = experiment.plots.iter().filter(|plot| plot.shape == Shape::Table);
        assert_eq!(page.matches("<details open=\"\">").count(), tables.count(), "{}", experiment.id);
    }
}

/// Figures of 3.2: on an even axis the first would be two pixels high.
#[test]
fn marks_of_very_different_sizes_lie_apart() {
    let point = |x, y| Point { x, y, least: y, most: y };
    let line = |y: f64| Line {
        plot: "seconds".to_owned(),
        series: y.to_string(),
        points: vec![point(0.0, y), point(60.0, y)],
    };
    let plot = Plot { name: "seconds", x: "absolute locks", shape: Shape::Marks };
    let svg = picture::draw(&plot, &[0.0032, 0.046, 0.46].map(line)).unwrap();
    let heights: Vec<f64> = svg.split("<circle").skip(1).map(|circle| attribute(circle, "cy")).collect();
    assert_eq!(heights.len(), 6);
    assert!(heights[0] - heights[2] > 60.0 && heights[2] - heights[4] > 60.0, "{heights:?}");
    assert!(!svg.contains("<rect x="), "bars have no place to begin at on a logarithmic axis");
}
