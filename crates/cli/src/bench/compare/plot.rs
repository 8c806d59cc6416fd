//! Throughput by threads, a picture for each workload, in one SVG file. Its texts are letters that the viewer draws: no
//! fonts are needed here.

use std::path::Path;

use plotters::prelude::*;

use super::result::{Comparison, EngineResult};
use crate::{file, output::CliError};

/// Pictures beside each other.
const COLUMNS: usize = 2;
/// Width and height of a picture.
const PICTURE: (u32, u32) = (560, 360);

/// Whether there can be such a file, and it can be written. A run may take hours before it is.
pub(super) fn try_path(path: &Path) -> Result<(), CliError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if directory.is_dir() && !path.is_dir() {
        return file::try_write(path);
    }
    let what = format!("cannot write a plot to {}", path.display());
    Err(CliError::usage(what, "name a file in a directory that exists"))
}

/// Writes the file.
pub(super) fn write(path: &Path, comparison: &Comparison) -> Result<(), CliError> {
    let svg = draw(comparison).map_err(|error| CliError::Other(format!("cannot draw the plot: {error}")))?;
    file::write(path, svg)
}

fn draw(comparison: &Comparison) -> Result<String, Box<dyn std::error::Error>> {
    let mut workloads: Vec<&str> = comparison.results.iter().map(|result| result.workload).collect();
    workloads.dedup();
    let rows = workloads.len().div_ceil(COLUMNS).max(1);
    let mut svg = String::new();
    {
        let size = (PICTURE.0 * COLUMNS as u32, PICTURE.1 * rows as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (workload, area) in workloads.iter().zip(root.split_evenly((rows, COLUMNS))) {
            let results = comparison.results.iter().filter(|result| result.workload == *workload);
            picture(&area, workload, &results.collect::<Vec<_>>())?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// A line for each engine, through what it has figures for; threads in steps that double.
fn picture(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    workload: &str,
    results: &[&EngineResult],
) -> Result<(), Box<dyn std::error::Error>> {
    let most = results.iter().filter_map(|result| result.commits_per_s).fold(1.0, f64::max) * 1.05;
    let threads = results.iter().map(|result| u32::from(result.threads));
    let (fewest, highest) = (threads.clone().min().unwrap_or(1), threads.max().unwrap_or(1));
    let across = (fewest..highest.max(fewest + 1)).log_scale().base(2.0);
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{workload}, commits/s by threads"), ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(80)
        .build_cartesian_2d(across, 0.0..most)?;
    chart.configure_mesh().y_label_formatter(&|rate| format!("{rate:.0}")).draw()?;
    let mut engines: Vec<&str> = Vec::new();
    for result in results {
        if !engines.contains(&result.engine) {
            engines.push(result.engine);
        }
    }
    for (number, engine) in engines.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let own = || results.iter().filter(|result| result.engine == *engine);
        let points: Vec<(u32, f64)> =
            own().filter_map(|result| Some((u32::from(result.threads), result.commits_per_s?))).collect();
        let failed = if own().any(|result| result.failure.is_some()) { " (runs failed)" } else { "" };
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?
            .label(format!("{engine}{failed}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::compare::{result::tests::without_rounds, table::tests::comparison};

    /// It had a point at 0 commits/s, as if it had run.
    #[test]
    fn what_failed_has_no_point_and_is_named() {
        let points = |comparison: &Comparison| draw(comparison).unwrap().matches("<circle").count();
        let (whole, mut one_less) = (comparison(), comparison());
        let failed = one_less.results.iter_mut().rfind(|result| result.engine == "redb").unwrap();
        *failed = EngineResult { threads: failed.threads, ..without_rounds() };
        assert_eq!(points(&one_less), points(&whole) - 1);
        let svg = draw(&one_less).unwrap();
        assert!(svg.contains("redb (runs failed)") && !svg.contains("foreshore (runs"), "{svg}");
    }

    /// It was told when all was measured.
    #[test]
    fn a_place_that_takes_no_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link.svg");
        std::os::unix::fs::symlink("elsewhere.svg", &link).unwrap();
        for path in
            [link.as_path(), Path::new("/proc/plot.svg"), Path::new("/nowhere/plot.svg"), directory.path()]
        {
            assert!(try_path(path).is_err(), "{}", path.display());
        }
        assert!(try_path(&directory.path().join("plot.svg")).is_ok());
    }

    #[test]
    fn every_engine_has_its_line() {
        let svg = draw(&comparison()).unwrap();
        for part in ["<svg", "tpcb, commits/s by threads", "foreshore", "redb", "<polyline"] {
            assert!(svg.contains(part), "{part:?} is not in {svg}");
        }
        let nothing = Comparison { results: Vec::new(), ..comparison() };
        assert!(draw(&nothing).unwrap().contains("<svg"));
    }
}
