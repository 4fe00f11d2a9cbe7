//! Draws a chart: the same for every kind of file.

use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::chart::{Chart, Series};
use super::style::{self, FINE};
use super::{failed, font};
use crate::Error;

/// The widest share of a chart that names may take.
const NAMES: f64 = 0.36;
/// The room that the text of a mark needs.
const WORDS: f64 = 90.0;
/// Least distance between two names, in lines.
const APART: f64 = 1.15;

type Result<T> = std::result::Result<T, Error>;

/// A chart in its place on the canvas.
struct Frame<'a, DB: DrawingBackend> {
    canvas: &'a DrawingArea<DB, Shift>,
    chart: &'a Chart,
    x: Axis,
    y: Axis,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// Draws `chart` on the part of the canvas that begins at `x0`.
pub fn draw<DB: DrawingBackend>(
    canvas: &DrawingArea<DB, Shift>,
    chart: &Chart,
    x0: f64,
    (width, height): (f64, f64),
) -> Result<()> {
    let (x, y) = chart.axes()?;
    let margin = style::MARGIN;
    let inner = width - 2.0 * margin;
    let pen = Pen { canvas };

    let mut down = margin * 0.6;
    let blocks = [
        (&chart.title, style::TITLE, style::INK, 2.0),
        (&chart.note, style::NOTE, style::SOFT, 10.0),
        (&chart.y_label, style::LABEL, style::INK, 10.0),
    ];
    for (text, size, color, after) in blocks {
        for line in font::wrap(text, size, inner) {
            down += style::leading(size);
            pen.text(&line, (x0 + margin, down - 0.5 * size), size, &color, HPos::Left)?;
        }
        down += if text.is_empty() { 0.0 } else { after };
    }

    let ticks = y.ticks().iter().map(|tick| font::width(&y.text(*tick), style::LABEL)).fold(0.0, f64::max);
    let names = chart.series.iter().map(|series| font::width(&series.name, style::LABEL)).fold(0.0, f64::max);
    let names = names.min(NAMES * width);
    let right = x0 + width - margin - if names > 0.0 { names + 10.0 } else { 4.0 };
    let bottom = height - margin - style::leading(style::LABEL) * 2.0;
    let frame = Frame { canvas, chart, x, y, left: x0 + margin + ticks + 8.0, right, top: down + 4.0, bottom };
    frame.axes()?;
    frame.series()?;
    frame.marks()?;
    frame.names(names)
}

impl<DB: DrawingBackend> Frame<'_, DB> {
    fn at_x(&self, x: f64) -> f64 {
        self.left + self.x.place(x) * (self.right - self.left)
    }

    fn at_y(&self, y: f64) -> f64 {
        self.bottom - self.y.place(y) * (self.bottom - self.top)
    }

    fn axes(&self) -> Result<()> {
        let pen = Pen { canvas: self.canvas };
        for &tick in self.y.ticks() {
            let y = self.at_y(tick);
            pen.line([(self.left, y), (self.right, y)], style::HAIR, &style::GRID)?;
            pen.text(&self.y.text(tick), (self.left - 7.0, y), style::LABEL, &style::SOFT, HPos::Right)?;
        }
        let corners = [(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)];
        pen.line(corners, style::HAIR, &style::AXIS)?;
        let mut free = f64::NEG_INFINITY;
        for &tick in self.x.ticks() {
            let (x, text) = (self.at_x(tick), self.x.text(tick));
            pen.line([(x, self.bottom), (x, self.bottom + 4.0)], style::HAIR, &style::AXIS)?;
            let half = font::width(&text, style::LABEL) / 2.0;
            if x - half > free {
                let below = self.bottom + 5.0 + style::leading(style::LABEL) / 2.0;
                pen.text(&text, (x, below), style::LABEL, &style::SOFT, HPos::Center)?;
                free = x + half + 4.0;
            }
        }
        let middle = ((self.left + self.right) / 2.0, self.bottom + 8.0 + style::leading(style::LABEL) * 1.5);
        let label = font::cut(&self.chart.x_label, style::LABEL, self.right - self.left + 2.0 * style::MARGIN);
        pen.text(&label, middle, style::LABEL, &style::INK, HPos::Center)
    }

    /// Bands below all lines, and lines below all dots.
    fn series(&self) -> Result<()> {
        let pixels = (fine(self.left)..fine(self.right), fine(self.bottom)..fine(self.top));
        let axes = Cartesian2d::<Axis, Axis>::new(self.x.clone(), self.y.clone(), pixels);
        let area = self.canvas.clone().apply_coord_spec(axes);
        let colored = || (0..).zip(&self.chart.series).map(|(i, series)| (color(i, series), series));
        for (color, series) in colored().filter(|(_, series)| !series.band.is_empty()) {
            let upper = series.band.iter().map(|&(x, _, high)| (x, high));
            let lower = series.band.iter().rev().map(|&(x, low, _)| (x, low));
            let outline: Vec<_> = upper.chain(lower).collect();
            area.draw(&Polygon::new(outline, color.mix(style::BAND))).map_err(drawing)?;
        }
        for (color, series) in colored() {
            let strokes = match series.dashed {
                true => dashes(&series.line.iter().map(|&(x, y)| (self.at_x(x), self.at_y(y))).collect::<Vec<_>>()),
                false => Vec::new(),
            };
            for [from, to] in strokes {
                Pen { canvas: self.canvas }.line([from, to], style::LINE, &color)?;
            }
            if !series.dashed && series.line.len() > 1 {
                let stroke = color.stroke_width(fine(style::LINE) as u32);
                area.draw(&PathElement::new(series.line.clone(), stroke)).map_err(drawing)?;
            }
        }
        for (color, series) in colored() {
            for &dot in &series.dots {
                area.draw(&Circle::new(dot, fine(style::DOT) as u32, color.filled())).map_err(drawing)?;
            }
        }
        Ok(())
    }

    fn marks(&self) -> Result<()> {
        let pen = Pen { canvas: self.canvas };
        for (i, mark) in (0..).zip(&self.chart.marks) {
            let x = self.at_x(mark.x);
            for [from, to] in dashes(&[(x, self.bottom), (x, self.top)]) {
                pen.line([from, to], style::HAIR * 1.5, &style::INK)?;
            }
            // To the right, unless there is no room for words.
            let (side, room, gap) = match self.right - x > WORDS {
                true => (HPos::Left, self.right - x, 6.0),
                false => (HPos::Right, x - self.left, -6.0),
            };
            let top = self.top + 8.0 + f64::from(i) * 2.5 * style::leading(style::LABEL);
            for (j, line) in (0..).zip(font::wrap(&mark.text, style::LABEL, room - 8.0)) {
                let y = top + f64::from(j) * style::leading(style::LABEL);
                pen.text(&line, (x + gap, y), style::LABEL, &style::INK, side)?;
            }
        }
        Ok(())
    }

    /// Each name beside the end of its series, moved up or down where names would meet.
    fn names(&self, widest: f64) -> Result<()> {
        let mut names: Vec<(f64, RGBColor, &str)> = (0..)
            .zip(&self.chart.series)
            .filter(|(_, series)| !series.name.is_empty())
            .filter_map(|(i, series)| Some((self.at_y(series.end()?.1), color(i, series), series.name.as_str())))
            .collect();
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let places = spread(&names.iter().map(|name| name.0).collect::<Vec<_>>(), style::LABEL * APART, self.bottom);
        for ((_, color, name), y) in names.into_iter().zip(places) {
            let name = font::cut(name, style::LABEL, widest);
            Pen { canvas: self.canvas }.text(&name, (self.right + 8.0, y), style::LABEL, &color, HPos::Left)?;
        }
        Ok(())
    }
}

/// Moves sorted places apart: groups that are too close stand around their common centre, and none below `bottom`.
fn spread(places: &[f64], apart: f64, bottom: f64) -> Vec<f64> {
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for &place in places {
        let mut group = (place, 1);
        while let Some(&(centre, count)) = groups.last() {
            let gap = group.0 - centre;
            if gap >= apart * (count + group.1) as f64 / 2.0 {
                break;
            }
            groups.pop();
            let total = count + group.1;
            group = ((centre * count as f64 + group.0 * group.1 as f64) / total as f64, total);
        }
        groups.push(group);
    }
    let mut result = Vec::with_capacity(places.len());
    for (centre, count) in groups {
        let first = centre.min(bottom - apart * (count - 1) as f64 / 2.0) - apart * (count - 1) as f64 / 2.0;
        result.extend((0..count).map(|i| first + apart * i as f64));
    }
    result
}

/// Cuts a line into strokes.
fn dashes(line: &[(f64, f64)]) -> Vec<[(f64, f64); 2]> {
    let period = style::DASH + style::GAP;
    let mut strokes = Vec::new();
    let mut walked = 0.0;
    for pair in line.windows(2) {
        let [(x0, y0), (x1, y1)] = [pair[0], pair[1]];
        let length = (x1 - x0).hypot(y1 - y0);
        let at = |way: f64| (x0 + (x1 - x0) * way / length, y0 + (y1 - y0) * way / length);
        let first = (walked / period).floor() as i64;
        for dash in first..=((walked + length) / period) as i64 {
            let from = (dash as f64 * period - walked).max(0.0);
            let to = (dash as f64 * period + style::DASH - walked).min(length);
            if to > from {
                strokes.push([at(from), at(to)]);
            }
        }
        walked += length;
    }
    strokes
}

fn color(index: usize, series: &Series) -> RGBColor {
    style::color(series.color.unwrap_or(index))
}

fn fine(points: f64) -> i32 {
    (points * FINE).round() as i32
}

fn drawing<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> Error {
    failed(format!("it cannot be drawn: {error}"), "")
}

/// Lines and texts in points.
struct Pen<'a, DB: DrawingBackend> {
    canvas: &'a DrawingArea<DB, Shift>,
}

impl<DB: DrawingBackend> Pen<'_, DB> {
    fn line<const N: usize>(&self, points: [(f64, f64); N], width: f64, color: &RGBColor) -> Result<()> {
        let points = points.map(|(x, y)| (fine(x), fine(y))).to_vec();
        self.canvas.draw(&PathElement::new(points, color.stroke_width(fine(width) as u32))).map_err(drawing)
    }

    /// A line of text, vertically centred on `y`.
    fn text(&self, text: &str, (x, y): (f64, f64), size: f64, color: &RGBColor, side: HPos) -> Result<()> {
        // plotters' sizes are 1.24 times those of the font; the neighbours of a product may divide back better.
        let [font, scaled] = [size * FINE, size * FINE * 1.24];
        let exact = [scaled, scaled.next_down(), scaled.next_up()].into_iter().find(|size| size / 1.24 == font);
        let style = ("sans-serif", exact.unwrap_or(scaled)).into_font().color(color).pos(Pos::new(side, VPos::Center));
        self.canvas.draw(&Text::new(text.to_string(), (fine(x), fine(y)), style)).map_err(drawing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_moved_apart() {
        assert_eq!(spread(&[10.0, 50.0], 15.0, 100.0), [10.0, 50.0]);
        assert_eq!(spread(&[50.0, 50.0], 15.0, 100.0), [42.5, 57.5]);
        assert_eq!(spread(&[99.0, 100.0], 15.0, 100.0), [85.0, 100.0]);
        let places = spread(&[40.0, 50.0, 51.0, 60.0], 15.0, 100.0);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] > 14.99), "{places:?}");
        assert_eq!(spread(&[], 15.0, 100.0), [0.0; 0]);
    }

    #[test]
    fn dashes_go_on_around_corners() {
        assert_eq!(dashes(&[(0.0, 0.0), (16.0, 0.0)]), [[(0.0, 0.0), (6.0, 0.0)], [(10.0, 0.0), (16.0, 0.0)]]);
        let bent = dashes(&[(0.0, 0.0), (3.0, 0.0), (3.0, 0.0), (3.0, 20.0)]);
        assert_eq!(bent[..2], [[(0.0, 0.0), (3.0, 0.0)], [(3.0, 0.0), (3.0, 3.0)]]);
        assert!(bent.iter().flatten().all(|point| point.0.is_finite() && point.1.is_finite()));
    }
}
