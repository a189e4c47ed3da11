//! Charts as SVG.

use std::io::Write;
use std::ops::Range;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::new_file::write_file;

/// A line of a chart.
pub struct Line<'a> {
    pub name: &'a str,
    pub points: Vec<(f64, f64)>,
}

/// Writes a chart of lines.
pub fn lines(path: &Path, title: &str, x_name: &str, y_name: &str, lines: &[Line<'_>]) -> Result<()> {
    let mut svg = String::new();
    draw(&mut svg, title, x_name, y_name, lines).map_err(|error| anyhow!("cannot draw: {error}"))?;
    write_file(path, |out| Ok(out.write_all(svg.as_bytes())?))
}

fn draw(
    svg: &mut String,
    title: &str,
    x_name: &str,
    y_name: &str,
    lines: &[Line<'_>],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(svg, (800, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let (x, y) = (range(points().map(|point| point.0)), range(points().map(|point| point.1)));
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    chart.configure_mesh().x_desc(x_name).y_desc(y_name).light_line_style(WHITE).draw()?;
    for (i, line) in lines.iter().enumerate() {
        let colour = Palette99::pick(i).mix(1.0);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
            .label(line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    if lines.len() > 1 {
        chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    }
    area.present()?;
    Ok(())
}

/// From the least to the largest, never empty.
fn range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)));
    match low < high {
        true => low..high,
        false if low == high => low - 0.5..high + 0.5,
        false => 0.0..1.0,
    }
}
