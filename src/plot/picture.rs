//! A picture, and the files that it becomes.

use std::fs;
use std::path::Path;

use plotters::prelude::*;

use super::chart::Chart;
use super::draw::draw;
use super::failed;
use super::pixmap::{Pixels, pixmap};
use super::style::{self, FINE};
use crate::Error;

/// One chart, or several side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    charts: Vec<Chart>,
}

impl Picture {
    /// A picture of one chart.
    pub fn of(chart: Chart) -> Self {
        Self { charts: vec![chart] }
    }

    /// Charts side by side.
    pub fn row(charts: impl IntoIterator<Item = Chart>) -> Self {
        Self { charts: charts.into_iter().collect() }
    }

    /// As SVG. Texts stay texts, in the reader's sans-serif font.
    ///
    /// # Errors
    /// [`ErrorKind::Picture`](crate::ErrorKind::Picture): no chart; a chart without points; a value that is not finite, or negative on a
    /// logarithmic axis.
    pub fn svg(&self) -> Result<String, Error> {
        let (width, height) = self.size();
        let mut drawn = String::new();
        self.draw(SVGBackend::with_string(&mut drawn, fine_size((width, height))))?;
        // The canvas of plotters is finer than the picture.
        let (_, body) = drawn.split_once('>').unwrap_or_default();
        let [fine_width, fine_height] = [width * FINE, height * FINE];
        let title = escape(&self.charts.iter().map(|chart| chart.title.as_str()).collect::<Vec<_>>().join("; "));
        Ok(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {fine_width} {fine_height}\" role=\"img\" stroke-linejoin=\"round\">\n<title>{title}</title>{body}"
        ))
    }

    /// As PNG, with two pixels for each of the SVG.
    ///
    /// # Errors
    /// Those of [`svg`](Self::svg).
    pub fn png(&self) -> Result<Vec<u8>, Error> {
        let size = fine_size(self.size());
        let mut map =
            pixmap(size).ok_or_else(|| failed("the picture is too large", "draw fewer charts side by side"))?;
        self.draw(Pixels::new(&mut map, size))?;
        map.encode_png().map_err(|error| failed(format!("it cannot be encoded: {error}"), ""))
    }

    /// Writes the picture as SVG or PNG, by the extension of `path`. The file is there as a whole or not at all.
    ///
    /// # Errors
    /// Those of [`svg`](Self::svg); another extension; a file that cannot be written. They name the path.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let at = |error: Error| error.at(path.display().to_string());
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        let bytes = match extension.as_deref() {
            Some("svg") => self.svg().map_err(at)?.into_bytes(),
            Some("png") => self.png().map_err(at)?,
            _ => return Err(at(failed("a picture is neither of these", "end its name with .svg or .png"))),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let part = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
        fs::write(&part, bytes).and_then(|()| fs::rename(&part, path)).map_err(|error| {
            fs::remove_file(&part).ok();
            at(failed(
                format!("it cannot be written: {error}"),
                "create its folder, or choose one that can be written to",
            ))
        })
    }

    fn size(&self) -> (f64, f64) {
        match self.charts.len() {
            0 | 1 => style::ALONE,
            count => (style::IN_ROW.0 * count as f64, style::IN_ROW.1),
        }
    }

    fn draw<DB: DrawingBackend>(&self, backend: DB) -> Result<(), Error> {
        if self.charts.is_empty() {
            return Err(failed("the picture has no chart", "give it one"));
        }
        let (width, height) = self.size();
        let width = width / self.charts.len() as f64;
        let canvas = backend.into_drawing_area();
        let failure = |error: DrawingAreaErrorKind<DB::ErrorType>| failed(format!("it cannot be drawn: {error}"), "");
        canvas.fill(&WHITE).map_err(failure)?;
        for (i, chart) in self.charts.iter().enumerate() {
            draw(&canvas, chart, i as f64 * width, (width, height))?;
        }
        canvas.present().map_err(failure)
    }
}

fn fine_size((width, height): (f64, f64)) -> (u32, u32) {
    ((width * FINE) as u32, (height * FINE) as u32)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use tiny_skia::{Pixmap, PremultipliedColorU8};

    use super::*;
    use crate::plot::Series;

    fn pixels(chart: Chart) -> Pixmap {
        Pixmap::decode_png(&Picture::of(chart).png().unwrap()).unwrap()
    }

    /// The first colour, in the places that an SVG has it: a line and a dot in full, the band pale, and ink for letters.
    #[test]
    fn a_png_shows_the_same_picture() {
        let blue = PremultipliedColorU8::from_rgba(0, 114, 178, 255).unwrap();
        let series = || Series::new("").line([(0.0, 0.0), (1.0, 1.0)]).dots([(0.5, 0.5)]);
        let empty = pixels(Chart::new("").with(Series::new("").band([(0.0, 0.0, 0.0), (1.0, 1.0, 1.0)])));
        let plain = pixels(Chart::new("").with(series()));
        let full = pixels(Chart::new("Title").with(series().band([(0.0, 0.0, 0.5), (1.0, 0.5, 1.0)])));
        assert_eq!((plain.width(), plain.height()), (1520, 880));
        let count =
            |map: &Pixmap, is: &dyn Fn(PremultipliedColorU8) -> bool| map.pixels().iter().filter(|p| is(**p)).count();
        let exact = |map: &Pixmap| count(map, &|pixel| pixel == blue);
        assert_eq!(exact(&empty), 0);
        assert!(exact(&plain) > 1000, "{}", exact(&plain));
        let pale = |map: &Pixmap| count(map, &|p| (200..220).contains(&p.red()) && p.blue() > 235);
        assert!(pale(&full) > 50_000 && pale(&plain) < 1000, "{} {}", pale(&full), pale(&plain));
        let letters = |map: &Pixmap| map.pixels()[..1520 * 64].iter().filter(|p| p.red() < 60 && p.blue() < 60).count();
        assert!(letters(&full) > 100 && letters(&plain) == 0, "{} {}", letters(&full), letters(&plain));
    }
}
