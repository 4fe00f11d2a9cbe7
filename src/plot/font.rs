//! The font of the pictures: a part of DejaVu Sans, which is wider than most, so that what fits with it fits with others.

use std::sync::LazyLock;

use ttf_parser::Face;

static FONT: LazyLock<Option<Face<'static>>> =
    LazyLock::new(|| Face::parse(include_bytes!("../../assets/DejaVuSans-subset.ttf"), 0).ok());

/// Half the height of an x, in em: how far below its centre a line of text stands.
pub const HALF_X: f64 = 0.27;

pub fn face() -> Option<&'static Face<'static>> {
    FONT.as_ref()
}

/// How far one letter takes the pen, in em.
pub fn advance(letter: char) -> f64 {
    let Some(face) = face() else { return 0.6 };
    let glyph = face.glyph_index(letter).unwrap_or_default();
    f64::from(face.glyph_hor_advance(glyph).unwrap_or(0)) / f64::from(face.units_per_em())
}

/// The width of a line.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// Breaks a text at its line breaks, and between words into lines of at most this width.
pub fn wrap(text: &str, size: f64, widest: f64) -> Vec<String> {
    text.lines().flat_map(|line| wrap_line(line, size, widest)).collect()
}

fn wrap_line(text: &str, size: f64, widest: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(word, size) + width(" ", size) <= widest => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines.iter().map(|line| cut(line, size, widest)).collect()
}

/// Cuts a line to this width, with an ellipsis where something is missing.
pub fn cut(text: &str, size: f64, widest: f64) -> String {
    if width(text, size) <= widest {
        return text.into();
    }
    let mut short = String::new();
    for letter in text.chars() {
        if width(&short, size) + (advance(letter) + advance('…')) * size > widest {
            break;
        }
        short.push(letter);
    }
    short + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_every_sign_that_is_used() {
        let face = face().unwrap();
        for letter in ('!'..='~').chain("×±·√ρσμ−–…⁰¹²³⁴⁵⁶⁷⁸⁹⁻".chars()) {
            assert!(face.glyph_index(letter).is_some(), "{letter}");
        }
        let x = face.glyph_bounding_box(face.glyph_index('x').unwrap()).unwrap();
        let x = f64::from(x.y_max) / f64::from(face.units_per_em());
        assert!((x / 2.0 - HALF_X).abs() < 0.01, "{x}");
    }

    #[test]
    fn long_texts_are_broken_or_cut() {
        assert_eq!(wrap("one two three", 10.0, 50.0), ["one two", "three"]);
        assert_eq!(wrap("one\ntwo three", 10.0, 90.0), ["one", "two three"]);
        assert_eq!(wrap("", 10.0, 50.0), Vec::<String>::new());
        assert_eq!(cut("unbreakable", 10.0, 40.0), "unbre…");
        assert!(width("unbre…", 10.0) <= 40.0);
    }
}
