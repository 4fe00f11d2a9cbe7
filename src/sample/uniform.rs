//! The uniform distribution.

use super::{
    element::Element,
    philox::{LANES, Words},
    stream::{Draw, TILE},
};

/// One of 2^32 equally likely points, symmetric about the middle of the interval and never at an end before rounding.
#[derive(Clone, Copy)]
pub(super) struct Uniform {
    pub(super) middle: f64,
    pub(super) half_width: f64,
}

impl Draw for Uniform {
    #[inline(always)]
    fn draw<E: Element>(&self, words: &Words, out: &mut [E; TILE]) {
        let (rows, _) = out.as_chunks_mut::<LANES>();
        for (row, words) in rows.iter_mut().zip(words) {
            for (out, &word) in row.iter_mut().zip(words) {
                *out = E::round(self.value(word));
            }
        }
    }
}

impl Uniform {
    #[inline(always)]
    pub(super) fn value(&self, word: u32) -> f64 {
        self.middle + self.half_width * STEP * centred(word)
    }
}

/// The distance between two of the points that [`centred`] counts, as a fraction of half the interval.
pub(super) const STEP: f64 = 1.0 / 2_147_483_648.0;

/// An odd multiple of 1/2 in (-2^31, 2^31).
#[inline(always)]
pub(super) fn centred(word: u32) -> f64 {
    f64::from(word as i32) + 0.5
}
