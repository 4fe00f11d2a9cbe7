//! What a picture shows, as data.

use super::axis::{Axis, Scale};
use super::failed;
use crate::Error;

/// One named set of points: a line, a band, dots, or several of them in one colour.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    pub(super) name: String,
    pub(super) line: Vec<(f64, f64)>,
    pub(super) band: Vec<(f64, f64, f64)>,
    pub(super) dots: Vec<(f64, f64)>,
    pub(super) dashed: bool,
    pub(super) color: Option<usize>,
}

impl Series {
    /// An empty series. Its name stands at its right end; an empty one is not written.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// A line through points (x, y), in this order.
    pub fn line(mut self, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.line = points.into_iter().collect();
        self
    }

    /// A pale band between points (x, low, high).
    pub fn band(mut self, points: impl IntoIterator<Item = (f64, f64, f64)>) -> Self {
        self.band = points.into_iter().collect();
        self
    }

    /// A dot at each point (x, y).
    pub fn dots(mut self, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.dots = points.into_iter().collect();
        self
    }

    /// Breaks the line into dashes.
    pub fn dashed(mut self) -> Self {
        self.dashed = true;
        self
    }

    /// The colour of the series with this index, instead of its own.
    pub fn colored_as(mut self, index: usize) -> Self {
        self.color = Some(index);
        self
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        let band = self.band.iter().flat_map(|&(x, low, high)| [(x, low), (x, high)]);
        self.line.iter().chain(&self.dots).copied().chain(band)
    }

    /// Where the name stands: beside the last point.
    pub(super) fn end(&self) -> Option<(f64, f64)> {
        self.line.last().or(self.dots.last()).copied()
    }
}

/// A place on the x axis that is pointed out by a dashed line and a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub(super) x: f64,
    pub(super) text: String,
}

impl Mark {
    /// A mark at `x`.
    pub fn new(x: f64, text: impl Into<String>) -> Self {
        Self { x, text: text.into() }
    }
}

/// A chart: series over an x and a y axis.
///
/// ```
/// use burn_init::plot::{Chart, Picture, Series};
///
/// let growth = [1.0, 2.0, 4.0, 8.0].map(|n| (n, n * n));
/// let chart = Chart::new("A square").x("n").y("n²").log_x().log_y().with(Series::new("n²").line(growth));
/// assert!(Picture::of(chart).svg()?.contains("A square"));
/// # Ok::<(), burn_init::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Chart {
    pub(super) title: String,
    pub(super) note: String,
    pub(super) x_label: String,
    pub(super) y_label: String,
    x_scale: Scale,
    y_scale: Scale,
    x_ticks: Vec<f64>,
    y_held: Vec<f64>,
    pub(super) series: Vec<Series>,
    pub(super) marks: Vec<Mark>,
}

impl Chart {
    /// An empty chart.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Another title.
    pub fn titled(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// What x is, with its unit.
    pub fn x(mut self, label: impl Into<String>) -> Self {
        self.x_label = label.into();
        self
    }

    /// What y is, with its unit.
    pub fn y(mut self, label: impl Into<String>) -> Self {
        self.y_label = label.into();
        self
    }

    /// A line of small print under the title.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// A logarithmic x axis.
    pub fn log_x(mut self) -> Self {
        self.x_scale = Scale::Log;
        self
    }

    /// A logarithmic y axis; see [`Scale::Log`] for zeros.
    pub fn log_y(mut self) -> Self {
        self.y_scale = Scale::Log;
        self
    }

    /// The ticks of the x axis.
    pub fn x_ticks(mut self, ticks: impl IntoIterator<Item = f64>) -> Self {
        self.x_ticks = ticks.into_iter().collect();
        self
    }

    /// Makes the y axis reach to these values.
    pub fn y_holds(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        self.y_held = values.into_iter().collect();
        self
    }

    /// Adds a series.
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Adds a mark.
    pub fn mark(mut self, mark: Mark) -> Self {
        self.marks.push(mark);
        self
    }

    pub(super) fn has_bands(&self) -> bool {
        self.series.iter().any(|series| !series.band.is_empty())
    }

    /// Both axes, or what cannot be drawn.
    pub(super) fn axes(&self) -> Result<(Axis, Axis), Error> {
        if self.series.iter().all(|series| series.points().next().is_none()) {
            return Err(failed("there is nothing to draw", "give at least one point").at(&self.title));
        }
        for series in &self.series {
            let strange = |value: &f64, scale| !value.is_finite() || (scale == Scale::Log && *value < 0.0);
            for (x, y) in series.points() {
                let bad = [(x, self.x_scale, "x"), (y, self.y_scale, "y")];
                if let Some((value, _, axis)) = bad.into_iter().find(|(value, scale, _)| strange(value, *scale)) {
                    let found = format!("{} has {axis} = {value}", name(series));
                    return Err(failed(found, todo(value)).at(&self.title));
                }
            }
        }
        let held = self.marks.iter().map(|mark| mark.x).chain(self.x_ticks.iter().copied());
        if let Some(bad) = held.chain(self.y_held.iter().copied()).find(|value| !value.is_finite()) {
            return Err(failed(format!("a mark or a tick is at {bad}"), todo(bad)).at(&self.title));
        }
        let points = || self.series.iter().flat_map(Series::points);
        let xs = points().map(|(x, _)| x).chain(self.marks.iter().map(|mark| mark.x));
        let ys = points().map(|(_, y)| y).chain(self.y_held.iter().copied());
        let mut x = Axis::around(self.x_scale, xs, true);
        if !self.x_ticks.is_empty() {
            x = x.with_ticks(&self.x_ticks);
        }
        Ok((x, Axis::around(self.y_scale, ys, false)))
    }
}

fn name(series: &Series) -> String {
    if series.name.is_empty() { "a series".into() } else { format!("\"{}\"", series.name) }
}

fn todo(value: f64) -> &'static str {
    if value.is_finite() {
        "draw it on a linear axis"
    } else {
        "leave the point out, or find out where the value comes from"
    }
}
