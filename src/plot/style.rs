//! The one look of all pictures. Lengths are in points of the picture, which an SVG shows as pixels.

use plotters::style::RGBColor;

/// The drawing area counts in quarters of a point, because plotters counts in whole numbers.
pub const FINE: f64 = 4.0;
/// Pixels of a PNG for each point.
pub const PNG_PIXELS: f64 = 2.0;

pub const ALONE: (f64, f64) = (760.0, 440.0);
/// Of each chart where several stand side by side.
pub const IN_ROW: (f64, f64) = (540.0, 420.0);

/// Okabe and Ito's palette for all kinds of colour vision, without those that are too light for text on white.
pub const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 140, 105),
    RGBColor(190, 85, 150),
    RGBColor(70, 70, 70),
    RGBColor(150, 110, 0),
];
pub const INK: RGBColor = RGBColor(34, 34, 34);
pub const SOFT: RGBColor = RGBColor(95, 95, 95);
pub const AXIS: RGBColor = RGBColor(150, 150, 150);
pub const GRID: RGBColor = RGBColor(232, 232, 232);

pub const TITLE: f64 = 16.0;
pub const LABEL: f64 = 13.0;
pub const NOTE: f64 = 12.0;

pub const MARGIN: f64 = 18.0;
pub const LINE: f64 = 1.75;
pub const HAIR: f64 = 0.75;
pub const DOT: f64 = 2.75;
pub const BAND: f64 = 0.18;
/// Length of a dash, and of the gap after it.
pub const DASH: f64 = 6.0;
pub const GAP: f64 = 4.0;

/// The height of a line of text of this size.
pub fn leading(size: f64) -> f64 {
    (size * 1.35).round()
}

pub fn color(index: usize) -> RGBColor {
    COLORS[index % COLORS.len()]
}
