//! Line charts as SVG. Text is drawn without system fonts.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::output::note;
use arenite_files::write_file;

/// Width and height in pixels.
const SIZE: (u32, u32) = (900, 540);
const FONT: &str = "sans-serif";

/// A line chart.
pub struct Plot<'p> {
    pub title: &'p str,
    pub x: &'p str,
    pub y: &'p str,
    /// Name and points of each curve.
    pub curves: &'p [(String, Vec<(f64, f64)>)],
}

impl Plot<'_> {
    /// Saves the chart and prints a message.
    pub fn save(&self, path: &Path) -> Result<()> {
        let svg = self.svg()?;
        write_file(path, |out| Ok(std::io::Write::write_all(out, svg.as_bytes())?))?;
        note(format_args!("{}: plot of {} over {}", path.display(), self.y, self.x));
        Ok(())
    }

    fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        self.draw(&area).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
        drop(area);
        Ok(svg)
    }

    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let points =
            || self.curves.iter().flat_map(|(_, points)| points).filter(|(x, y)| x.is_finite() && y.is_finite());
        let least = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let most = points().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
        let (least, most) =
            if least < most { (least, most) } else { (least.clamp(-1e300, 0.0), most.clamp(1.0, 1e300)) };
        let top = points().map(|(_, y)| *y).fold(0.0, f64::max) * 1.05;
        let bottom = points().map(|(_, y)| *y).fold(0.0, f64::min) * 1.05;
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, (FONT, 22))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(80)
            .build_cartesian_2d(least..most, bottom..if top > bottom { top } else { bottom + 1.0 })?;
        chart.configure_mesh().x_desc(self.x).y_desc(self.y).label_style((FONT, 14)).light_line_style(WHITE).draw()?;
        for (i, (name, points)) in self.curves.iter().enumerate() {
            let color = Palette99::pick(i).to_rgba();
            let points = points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite());
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        }
        if self.curves.len() > 1 {
            chart
                .configure_series_labels()
                .background_style(WHITE)
                .border_style(BLACK)
                .label_font((FONT, 14))
                .draw()?;
        }
        area.present()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_curve_is_in_the_picture() {
        let curves =
            [("one".to_string(), vec![(1.0, 2.0), (2.0, f64::NAN), (3.0, 5.0)]), ("two & more".to_string(), vec![])];
        let plot = Plot { title: "A <title>", x: "x", y: "y", curves: &curves };
        let svg = plot.svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for text in ["one", "two &amp; more", "A &lt;title&gt;"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("NaN"));
        for curves in [vec![], vec![("none".to_string(), vec![(1.0, 0.0)])]] {
            assert!(Plot { curves: &curves, ..plot }.svg().is_ok());
        }
    }
}
