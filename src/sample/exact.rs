//! The transforms against a reference in `f64`, and the vector code against one value at a time.
//!
//! The quick tests look at words spread over all of them; the ignored ones look at every word:
//! `cargo test --release exact -- --ignored --nocapture` (minutes).

use libm::{erf, erfc};

use super::{
    dispatch::{Job, dispatch},
    element::Element,
    normal::{self, Normal},
    philox::{LANES, Words},
    stream::{Draw, TILE},
    truncated::{Reach, Truncated, drawn_in},
    uniform::Uniform,
};

const ALL: u64 = 1 << 32;
const SOME: u64 = 1 << 20;

/// The worst of an error over `count` words in an order that soon is everywhere, and over those at the ends.
fn worst(count: u64, error: impl Fn(u32) -> f64 + Sync) -> (f64, u32) {
    let measured = |word: u32| {
        let error = error(word);
        assert!(error.is_finite(), "{error} at word {word:#010x}");
        (error, word)
    };
    let larger = |a: (f64, u32), b: (f64, u32)| if a.0 >= b.0 { a } else { b };
    let half = |from, to| (from..to).map(|n| measured(spread(n))).fold((0.0, 0), larger);
    let ends = [0, 1, 2, u32::MAX / 2 - 1, u32::MAX / 2, u32::MAX / 2 + 1, u32::MAX - 1, u32::MAX];
    std::thread::scope(|scope| {
        let first = scope.spawn(|| half(0, count / 2));
        let second = half(count / 2, count);
        larger(larger(first.join().unwrap(), second), ends.map(measured).into_iter().fold((0.0, 0), larger))
    })
}

/// A permutation of the words.
fn spread(n: u64) -> u32 {
    (n as u32).wrapping_mul(0x9E37_79B1)
}

fn radius_error(word: u32) -> f64 {
    let signed = word as i32;
    let distance = (f64::from(signed ^ (signed >> 31)) + 0.5) / 4_294_967_296.0;
    let ln = if signed < 0 { (-distance).ln_1p() } else { distance.ln() };
    (f64::from(normal::radius(word)) - (-2.0 * ln).sqrt()).abs()
}

fn direction_error(word: u32) -> f64 {
    let eighths = f64::from((word << 2) as i32 + 2) / 2_147_483_648.0;
    let (sin, cos) = (eighths * std::f64::consts::FRAC_PI_4).sin_cos();
    let cos = if word & 0x4000_0000 == 0 { cos } else { -cos };
    let [a, b] = if word & 0x8000_0000 == 0 { [cos, sin] } else { [sin, cos] };
    let [x, y] = normal::direction(word);
    (f64::from(x) - a).abs().max((f64::from(y) - b).abs())
}

/// With a radius of at most `sqrt(66 ln 2) = 6.764` and a product rounded to 2^-22 at most, these two bounds keep every normal
/// within 1.9e-6 of the exact one.
fn check_normal(count: u64) {
    let (radius, at) = worst(count, radius_error);
    println!("radius: off by {radius:.3e} at word {at:#010x}");
    let (direction, at) = worst(count, direction_error);
    println!("direction: off by {direction:.3e} at word {at:#010x}");
    assert!(radius < 6e-7 && direction < 1.5e-7);
}

#[test]
fn normal_error_over_some_words() {
    check_normal(SOME);
}

#[test]
#[ignore = "every word: minutes"]
fn normal_error_over_all_words() {
    check_normal(ALL);
}

/// The error of a truncated normal in `z`: by how much the error function at the value misses the word's share of the
/// interval, over the slope there. The interval is the one that is drawn from, each bound moved in by 2^-21 of itself.
fn truncated_error(low: f64, high: f64) -> impl Fn(u32) -> f64 + Sync {
    let unit = Truncated::new(0.0, 1.0, low, high);
    let root_half = std::f64::consts::FRAC_1_SQRT_2;
    let one_side = low >= 0.0;
    let drawn = [drawn_in(low, 1.0), drawn_in(high, -1.0)];
    let [from, to] = drawn.map(|z| if one_side { erfc(z * root_half) } else { erf(z * root_half) });
    move |word| {
        let z = f64::from(truncated_unit(&unit, word));
        assert!(low <= z && z <= high, "{z} at {word:#x}");
        let share = (f64::from(word as i32) + 0.5) / 4_294_967_296.0 + 0.5;
        let x = z * root_half;
        let miss = if one_side {
            to + (from - to) * share - erfc(x)
        } else if x > 1.0 {
            (1.0 - to) + (to - from) * (1.0 - share) - erfc(x)
        } else {
            from + (to - from) * share - erf(x)
        };
        let density = (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI * root_half;
        (miss / density).abs()
    }
}

fn check_truncated(count: u64, low: f64, high: f64) {
    let (error, at) = worst(count, truncated_error(low, high));
    println!("normal in [{low}, {high}]: off by {error:.3e} at word {at:#010x}");
    assert!(error < 1.2e-6);
}

const CUTS: [(f64, f64); 6] = [(-1.0, 1.0), (-2.0, 2.0), (-3.0, 3.0), (-1.0, 3.0), (1.0, 4.0), (-6.0, 6.0)];

#[test]
fn truncated_error_over_some_words() {
    CUTS.into_iter().for_each(|(low, high)| check_truncated(SOME, low, high));
}

#[test]
#[ignore = "2^28 words for each cut: minutes"]
fn truncated_error_over_a_sixteenth_of_the_words() {
    CUTS.into_iter().for_each(|(low, high)| check_truncated(ALL / 16, low, high));
}

#[test]
#[ignore = "every word: minutes"]
fn truncated_error_at_2_sigmas_over_all_words() {
    check_truncated(ALL, -2.0, 2.0);
}

#[test]
#[ignore = "every word: minutes"]
fn truncated_error_at_3_sigmas_over_all_words() {
    check_truncated(ALL, -3.0, 3.0);
}

#[inline(never)]
fn truncated_unit(distribution: &Truncated, word: u32) -> f32 {
    match distribution.reach {
        Reach::Centre => distribution.unit::<false, false>(word),
        Reach::Tails => distribution.unit::<true, false>(word),
        Reach::OneSide => distribution.unit::<true, true>(word),
    }
}

#[inline(never)]
fn normal_pair(first: u32, second: u32) -> [f32; 2] {
    normal::pair(first, second)
}

#[inline(never)]
fn scaled<E: Element>(unit: f32) -> E {
    E::round(SHIFT + SCALE * f64::from(unit))
}

const SHIFT: f64 = 0.1;
const SCALE: f64 = 0.02;

struct DrawTile<'a, D, E> {
    draw: D,
    words: &'a Words,
    out: &'a mut [E; TILE],
}

impl<D: Draw, E: Element> Job for DrawTile<'_, D, E> {
    #[inline(always)]
    fn run(self) {
        self.draw.draw(self.words, self.out);
    }
}

#[multiversion::multiversion(targets("x86_64+avx2"))]
fn dispatch_to_avx2(job: impl Job) {
    job.run();
}

/// A tile by the baseline's vectors, by AVX2's and by the widest, against one value at a time.
fn check_tile<D: Draw, E: Element>(draw: D, words: &Words, expected: impl Fn(usize, usize) -> E) {
    let expected: [E; TILE] = std::array::from_fn(|i| expected(i / LANES, i % LANES));
    let mut out = [E::default(); TILE];
    DrawTile { draw, words, out: &mut out }.run();
    assert!(out == expected, "baseline");
    dispatch_to_avx2(DrawTile { draw, words, out: &mut out });
    assert!(out == expected, "AVX2");
    dispatch(DrawTile { draw, words, out: &mut out });
    assert!(out == expected, "widest");
}

fn check_uniform<E: Element>(words: &Words) {
    let uniform = Uniform { middle: SHIFT, half_width: SCALE };
    check_tile(uniform, words, |k, i| E::round(uniform.value(words[k][i])));
}

fn check_normal_tile<E: Element>(words: &Words) {
    let normal = Normal { mean: SHIFT, std: SCALE };
    check_tile(normal, words, |k, i| scaled::<E>(normal_pair(words[k & 2][i], words[k | 1][i])[k & 1]));
}

fn check_cut<E: Element>(low: f64, high: f64, words: &Words) {
    let cut = Truncated::new(SHIFT, SCALE, low, high);
    check_tile(cut, words, |k, i| scaled::<E>(truncated_unit(&cut, words[k][i])));
}

/// A tile of the words in the order of `spread`. Once around, the rows change places, so that each word then has been both
/// a radius and a direction.
fn tile_of_words(tile: u64) -> Words {
    let first = tile * TILE as u64 + (tile >> 24) * LANES as u64;
    std::array::from_fn(|k| std::array::from_fn(|i| spread(first + (k * LANES + i) as u64)))
}

#[test]
fn vectors_draw_the_bits_of_scalars_for_some_words() {
    fn check<E: Element>(words: &Words) {
        check_uniform::<E>(words);
        check_normal_tile::<E>(words);
        check_cut::<E>(-2.0, 2.0, words);
        check_cut::<E>(-3.5, 6.0, words);
        check_cut::<E>(-9.0, -1.0, words);
    }
    for tile in 0..1 << 10 {
        let words = tile_of_words(tile);
        check::<f32>(&words);
        check::<f64>(&words);
        check::<half::f16>(&words);
        check::<half::bf16>(&words);
    }
}

fn over_all_words(times: u64, check: impl Fn(&Words) + Sync) {
    let tiles = times << 24;
    let check = |from, to| (from..to).for_each(|tile| check(&tile_of_words(tile)));
    std::thread::scope(|scope| {
        scope.spawn(|| check(0, tiles / 2));
        check(tiles / 2, tiles);
    });
}

#[test]
#[ignore = "every word: minutes"]
fn uniform_vectors_draw_the_bits_of_scalars_for_all_words() {
    over_all_words(1, check_uniform::<f32>);
}

#[test]
#[ignore = "every word: minutes"]
fn normal_vectors_draw_the_bits_of_scalars_for_all_words() {
    over_all_words(2, check_normal_tile::<f32>);
}

#[test]
#[ignore = "every word: minutes"]
fn truncated_vectors_draw_the_bits_of_scalars_for_all_words() {
    over_all_words(1, |words| check_cut::<f32>(-2.0, 2.0, words));
    over_all_words(1, |words| check_cut::<f32>(-3.5, 6.0, words));
}
