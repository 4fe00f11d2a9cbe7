//! Where plotters draws a PNG: smooth shapes by tiny-skia, letters by their outlines.

use std::convert::Infallible;

use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind};
use tiny_skia::{Color, FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, Transform};
use ttf_parser::OutlineBuilder;

use super::font;
use super::style::{FINE, PNG_PIXELS};

pub struct Pixels<'a> {
    map: &'a mut Pixmap,
    size: (u32, u32),
}

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

/// The pixels for a canvas of this size.
pub fn pixmap(size: (u32, u32)) -> Option<Pixmap> {
    let pixels = |fine: u32| (f64::from(fine) * PNG_PIXELS / FINE) as u32;
    Pixmap::new(pixels(size.0), pixels(size.1))
}

impl<'a> Pixels<'a> {
    /// A canvas of this size on pixels from [`pixmap`].
    pub fn new(map: &'a mut Pixmap, size: (u32, u32)) -> Self {
        Self { map, size }
    }

    fn fill(&mut self, path: Option<Path>, color: BackendColor) -> Drawn {
        if let Some(path) = path {
            self.map.fill_path(&path, &paint(color), FillRule::Winding, scale(), None);
        }
        Ok(())
    }

    fn stroke(&mut self, path: Option<Path>, color: BackendColor, width: u32) -> Drawn {
        let stroke = Stroke { width: width as f32, line_join: LineJoin::Round, ..Stroke::default() };
        if let Some(path) = path {
            self.map.stroke_path(&path, &paint(color), &stroke, scale(), None);
        }
        Ok(())
    }

    fn shape<S: BackendStyle>(&mut self, path: Option<Path>, style: &S, fill: bool) -> Drawn {
        match fill {
            true => self.fill(path, style.color()),
            false => self.stroke(path, style.color(), style.stroke_width()),
        }
    }
}

impl DrawingBackend for Pixels<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        let square = Rect::from_xywh(x as f32, y as f32, 1.0, 1.0).map(PathBuilder::from_rect);
        self.fill(square, color)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S, fill: bool) -> Drawn {
        let rect = Rect::from_ltrb(from.0 as f32, from.1 as f32, to.0 as f32, to.1 as f32);
        self.shape(rect.map(PathBuilder::from_rect), style, fill)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        self.stroke(polyline(path, false), style.color(), style.stroke_width())
    }

    fn draw_circle<S: BackendStyle>(&mut self, center: BackendCoord, radius: u32, style: &S, fill: bool) -> Drawn {
        let circle = PathBuilder::from_circle(center.0 as f32, center.1 as f32, radius as f32);
        self.shape(circle, style, fill)
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        self.fill(polyline(path, true), style.color())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> Drawn {
        let Some(face) = font::face() else { return Ok(()) };
        // As plotters' SVG has it.
        let size = style.size() / 1.24;
        let before = match style.anchor().h_pos {
            HPos::Left => 0.0,
            HPos::Center => 0.5,
            HPos::Right => 1.0,
        };
        let below = match style.anchor().v_pos {
            VPos::Top => 0.76,
            VPos::Center => font::HALF_X,
            VPos::Bottom => -font::HALF_X,
        };
        let mut outline = Outline {
            path: PathBuilder::new(),
            x: f64::from(x) - before * font::width(text, size),
            y: f64::from(y) + below * size,
            unit: size / f64::from(face.units_per_em()),
        };
        for letter in text.chars() {
            face.outline_glyph(face.glyph_index(letter).unwrap_or_default(), &mut outline);
            outline.x += font::advance(letter) * size;
        }
        let path = outline.path.finish();
        self.fill(path, style.color())
    }
}

fn scale() -> Transform {
    let scale = (PNG_PIXELS / FINE) as f32;
    Transform::from_scale(scale, scale)
}

fn paint(color: BackendColor) -> Paint<'static> {
    let (red, green, blue) = color.rgb;
    let alpha = (color.alpha * 255.0).round() as u8;
    let mut paint = Paint::default();
    paint.set_color(Color::from_rgba8(red, green, blue, alpha));
    paint
}

fn polyline(points: impl IntoIterator<Item = BackendCoord>, close: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (x, y) in points {
        match path.is_empty() {
            true => path.move_to(x as f32, y as f32),
            false => path.line_to(x as f32, y as f32),
        }
    }
    if close {
        path.close();
    }
    path.finish()
}

/// Takes the outline of a glyph to where it is written.
struct Outline {
    path: PathBuilder,
    x: f64,
    y: f64,
    unit: f64,
}

impl Outline {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        ((self.x + f64::from(x) * self.unit) as f32, (self.y - f64::from(y) * self.unit) as f32)
    }
}

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}
