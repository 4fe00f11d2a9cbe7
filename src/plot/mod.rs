//! Pictures of step zero, as SVG or PNG. Needs the feature `plot`; nothing is taken from the system, not even a font.
//!
//! ```
//! # use burn::tensor::Device;
//! use burn_init::{ModuleInit as _, plot, reference::TransformerConfig};
//!
//! # fn main() -> Result<(), burn_init::Error> {
//! let config = TransformerConfig::new(1000, 64, 128, 6, 4);
//! let predicted = config.build(&Device::flex())?.plan(&config.scheme)?.predict(&config.architecture())?;
//! let chart = plot::stream(&[plot::Curve::new("gpt2").predicted(&predicted)])?;
//! # let file = std::env::temp_dir().join(format!("burn-init-doc-{}.svg", std::process::id()));
//! plot::Picture::of(chart).save(&file)?;          // or .png
//! # std::fs::remove_file(&file).ok();
//! # Ok(()) }
//! ```
//!
//! [`stream`], [`branches`], [`gradient`] and [`correlation`] draw one [`Curve`] for each scheme: a prediction as a line with its sampling
//! band, a measurement as dots. [`LogitSample`] is for logits. A [`Chart`] of your own is made of [`Series`].

mod axis;
mod chart;
mod curves;
mod draw;
mod font;
mod logits;
mod picture;
mod pixmap;
mod style;

pub use axis::Scale;
pub use chart::{Chart, Mark, Series};
pub use curves::{Curve, branches, correlation, gradient, stream};
pub use logits::LogitSample;
pub use picture::Picture;

use crate::{Error, ErrorKind};

fn failed(found: impl Into<String>, todo: impl Into<String>) -> Error {
    Error::new(ErrorKind::Picture, found, todo)
}
