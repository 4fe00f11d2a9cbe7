//! The residual stream in one line of a terminal.

use super::StepZero;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Longer lines are thinned to this many columns.
const COLUMNS: usize = 49;
/// The eight blocks span at least this, so that a constant does not look like growth: one decade.
const LEAST: f64 = std::f64::consts::LN_10;

impl StepZero {
    /// The second moments along the residual stream as a row of blocks, by their logarithm: from the least one to the largest, at
    /// least a decade. A stream that is zero leaves a gap. Deep models are thinned to 49 columns; empty where no stream was seen.
    ///
    /// ```
    /// # use burn::tensor::Device;
    /// use burn_init::{ModuleInit as _, reference::TransformerConfig};
    ///
    /// # fn main() -> Result<(), burn_init::Error> {
    /// let config = TransformerConfig::new(1000, 64, 128, 6, 4);
    /// let plan = config.build(&Device::flex())?.plan(&config.scheme)?;
    /// assert_eq!(plan.predict(&config.architecture())?.sparkline(), "▁▁▁▂▂▂▃▃▃▃▄▄▄");
    /// # Ok(()) }
    /// ```
    pub fn sparkline(&self) -> String {
        sparkline(&self.stream.iter().map(|reading| reading.second_moment).collect::<Vec<_>>())
    }
}

fn sparkline(values: &[f64]) -> String {
    let drawn = |value: f64| (value > 0.0 && value.is_finite()).then(|| value.ln());
    let columns = values.len().min(COLUMNS);
    // The first and the last value always have a column.
    let column = |i: usize| values[i * (values.len() - 1) / (columns - 1).max(1)];
    let logs: Vec<Option<f64>> = (0..columns).map(|i| drawn(column(i))).collect();
    let shown = || logs.iter().flatten().copied();
    let low = shown().fold(f64::INFINITY, f64::min);
    let span = (shown().fold(f64::NEG_INFINITY, f64::max) - low).max(LEAST);
    let block = |log: f64| BLOCKS[((log - low) / span * 8.0 + 1e-9).min(7.0) as usize];
    logs.iter().map(|log| log.map_or(' ', block)).collect()
}

#[cfg(test)]
mod tests {
    use super::sparkline;

    #[test]
    fn blocks_grow_with_the_logarithm() {
        assert_eq!(sparkline(&[1.0, 10.0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8]), "▁▂▃▄▅▆▇██");
        assert_eq!(sparkline(&[8.0, 4.0, 2.0, 1.0, 1.0]), "█▅▃▁▁");
    }

    #[test]
    fn a_constant_is_a_floor() {
        assert_eq!(sparkline(&[8e-4, 8.1e-4, 7.9e-4]), "▁▁▁");
        assert_eq!(sparkline(&[8e-4]), "▁");
    }

    #[test]
    fn what_has_no_logarithm_is_a_gap() {
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[1.0, 0.0, f64::NAN, f64::INFINITY, -1.0, 100.0]), "▁    █");
        assert_eq!(sparkline(&[0.0, 0.0]), "  ");
    }

    #[test]
    fn deep_models_are_thinned() {
        let deep: Vec<f64> = (0..193).map(|i| 1.0 + f64::from(i)).collect();
        let line = sparkline(&deep);
        assert_eq!(line.chars().count(), 49);
        assert!(line.starts_with('▁') && line.ends_with('█'), "{line}");
    }
}
