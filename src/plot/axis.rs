//! Axes: from values to places, and where the ticks stand.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged};

/// How values are laid out along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// By value.
    #[default]
    Linear,
    /// By logarithm. A zero has no logarithm: it is drawn on a floor of its own below the smallest positive value, and labelled so.
    Log,
}

/// The share of a logarithmic axis that is kept for zeros, where there are any.
const FLOOR: f64 = 0.09;
/// As many ticks as are read with ease.
const TICKS: usize = 7;

#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    /// Whether a logarithmic axis has a floor for zeros.
    floor: bool,
    ticks: Vec<f64>,
}

impl Axis {
    /// An axis that holds these finite values, on [`Scale::Log`] none of them negative. `snug` leaves no room beyond them.
    pub fn around(scale: Scale, values: impl Iterator<Item = f64> + Clone, snug: bool) -> Self {
        let extremes = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
        };
        let (low, high) = extremes(&mut values.clone());
        if scale == Scale::Linear || high <= 0.0 {
            return Self::linear(low, high, snug);
        }
        let (positive, _) = extremes(&mut values.filter(|value| *value > 0.0));
        Self::log(positive, high, low <= 0.0, snug)
    }

    fn linear(low: f64, high: f64, snug: bool) -> Self {
        // Halves, because the difference of the largest numbers overflows.
        let half = if high > low { high / 2.0 - low / 2.0 } else { (low.abs() / 4.0).max(0.5) };
        let (low, high) = if high > low { (low, high) } else { (low - half, high + half) };
        let held = |value: f64| value.clamp(-f64::MAX, f64::MAX);
        let (low, high) = (held(low), held(high));
        let ends = |step: f64| ((low / step).floor(), (high / step).ceil());
        let count = |step: f64| ends(step).1 - ends(step).0 + if snug { -1.0 } else { 1.0 };
        let mut step = nice(half / TICKS as f64 * 2.0);
        if count(step) > TICKS as f64 {
            step = nice(step * 1.5);
        }
        let (first, last) = ends(step);
        let (low, high) = if snug { (low, high) } else { (held(first * step).min(low), held(last * step).max(high)) };
        let mut ticks: Vec<f64> = multiples(first, last, step).filter(|tick| (low..=high).contains(tick)).collect();
        ticks.dedup();
        Self { scale: Scale::Linear, low, high, floor: false, ticks }
    }

    fn log(low: f64, high: f64, floor: bool, snug: bool) -> Self {
        let beyond = |low: f64, high: f64, by: f64| {
            (low.min(pow10(low.log10() - by)).max(f64::MIN_POSITIVE), high.max(pow10(high.log10() + by)).min(f64::MAX))
        };
        let (low, high) = match high.ln() > low.ln() {
            true if snug => (low.max(f64::MIN_POSITIVE), high),
            true => beyond(low, high, 0.04 * (high.log10() - low.log10()).max(0.5)),
            false => beyond(low, high, 0.2),
        };
        // Below the smallest normal number all is the same.
        let high = if high > low { high } else { 4.0 * low };
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let inside = |tick: &f64| (low..=high).contains(tick);
        let multiples_of = |factors: &'static [f64], every: usize| {
            (first..=last).step_by(every).flat_map(move |k| factors.iter().map(move |f| f * pow10(f64::from(k))))
        };
        let span = high.log10() - low.log10();
        let mut ticks: Vec<f64> = match span {
            ..0.7 => Self::linear(low, high, true).ticks.into_iter().filter(|tick| *tick > 0.0).collect(),
            ..2.2 => multiples_of(&[1.0, 2.0, 5.0], 1).filter(inside).collect(),
            _ => multiples_of(&[1.0], (span / TICKS as f64).ceil() as usize).filter(inside).collect(),
        };
        if floor {
            ticks.insert(0, 0.0);
        }
        Self { scale: Scale::Log, low, high, floor, ticks }
    }

    /// Puts the ticks where they are wanted.
    pub fn with_ticks(mut self, ticks: &[f64]) -> Self {
        self.ticks = ticks.iter().copied().filter(|tick| (self.low..=self.high).contains(tick)).collect();
        self
    }

    /// The values that have a tick.
    pub fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// The text at a tick: on a linear axis with as many decimals as all ticks need.
    pub fn text(&self, tick: f64) -> String {
        let size = tick.abs();
        let text = if size == 0.0 || (1e-3..1e5).contains(&size) {
            let needed = match self.scale {
                Scale::Linear => self.ticks.iter().map(|tick| decimals(*tick)).max().unwrap_or(0),
                Scale::Log => decimals(tick),
            };
            format!("{tick:.needed$}")
        } else {
            let power = size.log10().floor();
            let factor = tick / pow10(power);
            let times = if factor == 1.0 { String::new() } else { format!("{factor:.0$}·", decimals(factor)) };
            format!("{times}10{}", superscript(power as i32))
        };
        text.replace('-', "−")
    }

    /// Where a value stands, from 0 at the lower end to 1.
    pub fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0),
            Scale::Log if value <= 0.0 => 0.0,
            Scale::Log => {
                let value = value.max(f64::MIN_POSITIVE);
                let floor = if self.floor { FLOOR } else { 0.0 };
                let place = (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln());
                floor + (1.0 - floor) * place
            }
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.place(*value).clamp(-1.0, 2.0) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = pow10(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= step * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

/// At most a few, whatever the numbers.
fn multiples(first: f64, last: f64, step: f64) -> impl Iterator<Item = f64> {
    (0..4 * TICKS).map(move |i| first + i as f64).take_while(move |i| *i <= last).map(move |i| i * step)
}

fn superscript(number: i32) -> String {
    let raised = |letter: char| match letter {
        '-' => '⁻',
        digit => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit.to_digit(10).unwrap_or(0) as usize],
    };
    number.to_string().chars().map(raised).collect()
}

/// The decimals that show a value to six digits.
fn decimals(value: f64) -> usize {
    let close = |places: &usize| {
        let shown: f64 = format!("{value:.places$}").parse().unwrap_or(value);
        (shown - value).abs() <= 1e-6 * value.abs()
    };
    (0..9).find(close).unwrap_or(9)
}

/// `10^x`, for whole x to the last bit.
fn pow10(x: f64) -> f64 {
    if x.fract() == 0.0 { format!("1e{x}").parse().unwrap_or(f64::MIN_POSITIVE) } else { 10f64.powf(x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(scale: Scale, values: &[f64]) -> Axis {
        Axis::around(scale, values.iter().copied(), false)
    }

    fn texts(axis: &Axis) -> Vec<String> {
        axis.ticks().iter().map(|tick| axis.text(*tick)).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(texts(&around(Scale::Linear, &[0.0, 24.0])), ["0", "5", "10", "15", "20", "25"]);
        assert_eq!(texts(&around(Scale::Linear, &[0.0, 1.0])), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(&around(Scale::Linear, &[-0.3, 0.2])), ["−0.3", "−0.2", "−0.1", "0.0", "0.1", "0.2"]);
        assert_eq!(texts(&around(Scale::Log, &[8e-4, 2.3])), ["0.001", "0.01", "0.1", "1"]);
        assert_eq!(texts(&around(Scale::Log, &[3.0, 80.0])), ["5", "10", "20", "50"]);
        assert_eq!(texts(&around(Scale::Log, &[1e-7, 3e-5])), ["10⁻⁷", "10⁻⁶", "10⁻⁵"]);
    }

    #[test]
    fn a_zero_stands_on_the_floor_of_a_logarithmic_axis() {
        let axis = around(Scale::Log, &[0.0, 0.01, 1.0]);
        assert_eq!(texts(&axis)[0], "0");
        assert_eq!(axis.place(0.0), 0.0);
        assert!(axis.place(0.01) > FLOOR && axis.place(1.0) < 1.0);
        assert!(!around(Scale::Log, &[0.01, 1.0]).floor);
    }

    /// One value, equal ones, the smallest, the largest, and those that no step can tell apart.
    #[test]
    fn every_range_has_an_axis() {
        let ranges = [
            vec![0.0],
            vec![5.0, 5.0],
            vec![f64::MIN_POSITIVE, f64::MAX],
            vec![f64::MIN_POSITIVE],
            vec![f64::MAX],
            vec![1e300, f64::MAX],
            vec![1.0, 1.0 + f64::EPSILON],
            vec![1e15, 1e15 + 0.125],
            vec![3.0, 3.01],
        ];
        for scale in [Scale::Linear, Scale::Log] {
            for values in &ranges {
                for snug in [false, true] {
                    let axis = Axis::around(scale, values.iter().copied(), snug);
                    assert!(axis.ticks().iter().all(|tick| !axis.text(*tick).contains("inf")), "{axis:?}");
                    assert!(axis.ticks().len() <= 4 * TICKS, "{values:?} {axis:?}");
                    for value in values {
                        let place = axis.place(*value);
                        assert!((-0.01..=1.01).contains(&place), "{scale:?} {value:e} at {place}: {axis:?}");
                    }
                }
            }
        }
        assert!(around(Scale::Log, &[5e-324, 1e-323]).place(5e-324).is_finite());
        let all = around(Scale::Linear, &[-f64::MAX, f64::MAX]);
        assert_eq!((all.place(-f64::MAX), all.place(f64::MAX)), (0.0, 1.0));
    }
}
