//! Do activations keep their size as the model grows, in the first steps of training? Measures it for one start and for muP over it, and over
//! depths for CompleteP.
//!
//!     cargo run --release --example coordinate_check
//!     cargo run --release --example coordinate_check -- --depths 4 --depths 8 --depths 16 --depths 32

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use burn::optim::AdamWConfig;
use burn::prelude::*;
use clap::Parser;
use plotters::prelude::*;

use burn_init::parametrization::{Axis, BaseShapes, CoordinateCheck};
use burn_init::reference::TransformerConfig;
use burn_init::schemes::{Modified, Mup, Scheme};
use burn_init::step_zero::{Batch, Site};
use burn_init::{Depth, Gpt2, Init, from_fn};

/// Trains models of several widths or depths for a few steps and prints how their activations grow.
#[derive(Parser)]
struct Knobs {
    /// Widths to compare; the first is the base
    #[arg(long = "widths", default_values_t = [64, 128, 256, 512, 1024])]
    widths: Vec<u64>,
    /// Depths to compare instead, at the first width; the first is the base
    #[arg(long = "depths")]
    depths: Vec<u64>,
    /// What the base model is started with, by name or as JSON; by default GPT-2, over depths tables of 1 and matrices of 0.05
    #[arg(long)]
    start: Option<Scheme>,
    /// Layers, where widths are compared
    #[arg(long, default_value_t = 2)]
    layers: usize,
    /// Width of an attention head
    #[arg(long, default_value = "16")]
    head_width: NonZeroUsize,
    /// Steps of Adam
    #[arg(long, default_value_t = 5)]
    steps: u64,
    /// Number of seeds, whose mean is taken
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Learning rate of the base model; by default 0.001, over depths 0.005
    #[arg(long)]
    lr: Option<f64>,
    /// Whether queries start at random under muP, and not at 0
    #[arg(long)]
    random_query: bool,
    /// Where the pictures go
    #[arg(long, default_value = "target/coordinate_check")]
    out: PathBuf,
}

const VOCAB: usize = 64;
const CONTEXT: usize = 32;
const ROWS: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let knobs = Knobs::parse();
    std::fs::create_dir_all(&knobs.out)?;
    let (axis, scaled) = match knobs.depths.is_empty() {
        true => (Axis::Width, "muP"),
        false => (Axis::Depth, "CompleteP"),
    };
    let mut pictures = Vec::new();
    for (name, scheme) in [("standard", None), (scaled, Some(axis))] {
        let check = run(&knobs, axis, scheme)?;
        println!("{name}\n{check}");
        pictures.push((name, check));
    }
    let path = knobs.out.join(if axis == Axis::Width { "widths.svg" } else { "depths.svg" });
    picture(&path, axis, &pictures)?;
    println!("picture: {}", path.display());
    Ok(())
}

fn run(knobs: &Knobs, axis: Axis, scaled: Option<Axis>) -> Result<CoordinateCheck, burn_init::Error> {
    let device = Device::flex().autodiff();
    let sizes = if axis == Axis::Width { &knobs.widths } else { &knobs.depths };
    // Random branches fall with the depth as L^-1/2; for what is learned to show, the tables outweigh them.
    let start = knobs.start.clone().unwrap_or_else(|| match axis {
        Axis::Width => Scheme::gpt2(),
        Axis::Depth => {
            let matrices = Gpt2::new().with_std(0.05).with_depth(Depth::none());
            Modified { embedding_std: Some(1.0), ..Modified::of(matrices) }.into()
        }
    });
    let lr = knobs.lr.unwrap_or(if axis == Axis::Width { 0.001 } else { 0.005 });
    let config = |size: u64| {
        let (width, layers) = match axis {
            Axis::Width => (size as usize, knobs.layers),
            Axis::Depth => (knobs.widths[0] as usize, size as usize),
        };
        TransformerConfig::new(VOCAB, CONTEXT, width, layers, (width / knobs.head_width).max(1)).with_tied(false)
    };
    let scheme = |size: u64| -> Result<Scheme, burn_init::Error> {
        let Some(scaled) = scaled else { return Ok(start.clone()) };
        // Model and base model, neither of them drawn.
        let keep = from_fn(|_| Init::Keep);
        let plan = |size| config(size).setup().plan(&config(size).build(&device)?, &keep);
        let shapes = BaseShapes::new(&plan(size)?, &plan(sizes[0])?)?;
        let mup = if scaled == Axis::Width { Mup::new() } else { Mup::complete_p() };
        let mup = Mup { zero_query: !knobs.random_query, ..mup };
        Ok(mup.with_start(start.clone()).with_base(shapes).into())
    };
    CoordinateCheck::new(axis, sizes.iter().copied())
        .with_steps(knobs.steps)
        .with_seeds(0..knobs.seeds)
        .with_learning_rate(lr)
        .run(
            &batch(&device),
            |size, seed| {
                let (setup, scheme) = (config(size).setup(), scheme(size)?);
                let model = setup.initialize(config(size).build(&device)?, &scheme, seed)?;
                let adam = AdamWConfig::new().with_weight_decay(0.0).with_epsilon(1e-12);
                let optimizer = setup.adamw(&model, &setup.plan(&model, &scheme)?, &adam)?;
                Ok((model, optimizer))
            },
            |model, tokens, probe| model.forward_with(tokens, probe),
        )
}

/// Random tokens: a sequence that the model can learn by heart.
fn batch(device: &Device) -> Batch {
    let mut state = 1u64;
    let tokens: Vec<i64> = (0..ROWS * CONTEXT + 1)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % VOCAB as u64) as i64
        })
        .collect();
    let rows = |from: usize| {
        Tensor::<1, Int>::from_data(&tokens[from..from + ROWS * CONTEXT], device).reshape([ROWS, CONTEXT])
    };
    Batch::new(rows(0), rows(1))
}

/// One panel for each parametrization: the size of the stream after the last layer, and of the logits, over the model's size.
fn picture(path: &Path, axis: Axis, checks: &[(&str, CoordinateCheck)]) -> Result<(), Box<dyn Error>> {
    let canvas = SVGBackend::new(path, (900, 420)).into_drawing_area();
    canvas.fill(&WHITE)?;
    let shown = |check: &CoordinateCheck| {
        let slopes = check.slopes();
        let stream = slopes.iter().rfind(|slope| slope.site == Site::ResidPost).map(|slope| slope.place.clone());
        [stream.unwrap_or_default(), "logits".to_string()]
    };
    let values = checks.iter().flat_map(|(_, check)| check.readings()).map(|reading| reading.mean_abs);
    let (low, high) = values.filter(|value| *value > 0.0).fold((f64::MAX, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    for (panel, (name, check)) in canvas.split_evenly((1, checks.len())).iter().zip(checks) {
        let sizes = check.sizes();
        let x = (sizes[0] as f64 * 0.9..sizes[sizes.len() - 1] as f64 * 1.1).log_scale();
        let mut chart = ChartBuilder::on(panel)
            .caption(*name, ("sans-serif", 20))
            .margin(10)
            .margin_right(20)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d(x, (low / 1.2..high * 1.2).log_scale())?;
        chart
            .configure_mesh()
            .x_labels(4)
            .x_desc(if axis == Axis::Width { "width" } else { "layers" })
            .y_desc("mean |x|")
            .x_label_formatter(&|x| format!("{x:.0}"))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (i, place) in shown(check).iter().enumerate() {
            for step in 0..=check.steps() {
                let shade = 0.25 + 0.75 * step as f64 / check.steps().max(1) as f64;
                let color = Palette99::pick(i).to_rgba().mix(shade);
                let curve: Vec<_> = check.curve(place, step).into_iter().map(|(size, y)| (size as f64, y)).collect();
                let curve: Vec<_> = curve.into_iter().filter(|(_, y)| *y > 0.0).collect();
                let series = chart.draw_series(LineSeries::new(curve, color.stroke_width(2)))?;
                if step == check.steps() {
                    series
                        .label(format!("{place}, dark after {step} steps"))
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
                }
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .border_style(BLACK)
            .background_style(WHITE)
            .draw()?;
    }
    canvas.present()?;
    Ok(())
}
