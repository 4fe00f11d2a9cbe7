//! Activations keep their size while training where they should, and the check sees where they do not.

use burn::{
    optim::AdamWConfig,
    tensor::{Int, Tensor},
};
use burn_init::{
    Depth, Error, Gpt2, Initializer, Scheme, Setup,
    parametrization::{Axis, CoordinateCheck, Slope},
    reference::TransformerConfig,
    schemes::{Modified, Mup},
    step_zero::{Batch, Probe, Site},
};

use super::nano::{HEADS, batch, forward, nano};
use crate::{support::device, trees::NanoGpt};

const BASE: usize = 64;

fn setup() -> Setup {
    Setup::new().heads("**", HEADS as u64)
}

fn adam() -> AdamWConfig {
    AdamWConfig::new().with_weight_decay(0.0).with_epsilon(1e-12)
}

type Choose = dyn Fn(&NanoGpt) -> Result<Box<dyn Initializer>, Error>;

/// A foreign model over widths 64 to 256, five steps of Adam.
fn widths(scheme: &Choose) -> CoordinateCheck {
    let device = device().autodiff();
    CoordinateCheck::new(Axis::Width, [64, 128, 256])
        .with_seeds([1, 2])
        .with_learning_rate(0.001)
        .run(
            &batch(4, &device),
            |width, seed| {
                let model = nano(2, width as usize, &device);
                let scheme = scheme(&model)?;
                let model = setup().initialize(model, &scheme, seed)?;
                let optimizer = setup().adamw(&model, &setup().plan(&model, &scheme)?, &adam())?;
                Ok((model, optimizer))
            },
            forward,
        )
        .unwrap()
}

fn start() -> Gpt2 {
    Gpt2::new().with_depth(Depth::none())
}

fn hidden(check: &CoordinateCheck) -> Vec<Slope> {
    let last = |slope: &Slope| slope.step == check.steps() && !matches!(slope.site, Site::Logits | Site::FinalNorm);
    check.slopes().into_iter().filter(last).collect()
}

#[test]
fn over_widths() {
    let mup = widths(&|model| {
        let shapes = setup().base_shapes(model, &nano(2, BASE, &device()))?;
        // Queries at 0: the scores of random ones go by width^-1/2.
        Ok(Box::new(Mup { zero_query: true, ..Mup::from(shapes).with_start(start()).with_tied(true) }))
    });
    println!("{mup}");
    for slope in hidden(&mup) {
        assert!(slope.slope.unwrap().abs() < 0.1, "{slope:?}");
    }
    // The standard start: the same model at the base width, the same rate for every width.
    let standard = widths(&|_| Ok(Box::new(start())));
    println!("{standard}");
    for slope in hidden(&standard).iter().filter(|slope| matches!(slope.site, Site::ResidPost | Site::MlpOut)) {
        assert!(slope.slope.unwrap() > 0.3, "{slope:?}");
    }
    let words = standard.findings().join("\n");
    assert!(words.contains("grows: the learning rate that is right here is too high for a wider model"), "{words}");
}

/// Nothing is built for settings that give no slope.
#[test]
fn settings_that_cannot_be_used() {
    let run = |sizes: &[u64], rate: f64| {
        let check = CoordinateCheck::new(Axis::Width, sizes.iter().copied()).with_learning_rate(rate);
        check.run(&batch(1, &device()), |_, _| panic!("nothing is to be built"), forward).unwrap_err().to_string()
    };
    assert_eq!(run(&[64], 0.01), "a slope needs two sizes of 1 or more, and a seed; give more");
    assert_eq!(run(&[64, 128], -0.01), "the learning rate is -0.01; use a finite number, 0 or more");
    assert_eq!(run(&[64, 128], f64::NAN), "the learning rate is NaN; use a finite number, 0 or more");
    assert_eq!(run(&[64, 128], f64::INFINITY), "the learning rate is inf; use a finite number, 0 or more");
}

/// CompleteP over depths; with one rate and no multiplier the stream grows.
#[test]
fn over_depths() {
    let device = device().autodiff();
    let tokens =
        Tensor::<1, Int>::from_data((0..49).map(|i| (i * i + 5) % 20).collect::<Vec<i64>>().as_slice(), &device);
    let rows = |from: usize| tokens.clone().slice(from..from + 48).reshape([4, 12]);
    let batch = Batch::new(rows(0), rows(1));
    let config = |depth: u64| TransformerConfig::new(20, 12, BASE, depth as usize, 4).with_tied(false);
    let check = |mup: &dyn Fn(u64) -> Result<Scheme, Error>| {
        CoordinateCheck::new(Axis::Depth, [2, 4, 8, 16])
            .with_learning_rate(0.005)
            .run(
                &batch,
                |depth, seed| {
                    let scheme = mup(depth)?;
                    let (setup, model) = (config(depth).setup(), config(depth).build(&device)?);
                    let model = setup.initialize(model, &scheme, seed)?;
                    let optimizer = setup.adamw(&model, &setup.plan(&model, &scheme)?, &adam())?;
                    Ok((model, optimizer))
                },
                |model, tokens: Tensor<2, Int>, probe: &mut Probe<'_>| model.forward_with(tokens, probe),
            )
            .unwrap()
    };
    let shapes = |depth| config(depth).setup().base_shapes(&config(depth).build(&device)?, &config(2).build(&device)?);
    // Random branches fall with the depth, by L^-1/2; what is to keep its size is what they learn. So tables of 1, and branches below.
    let start = || Modified { embedding_std: Some(1.0), ..Modified::of(start().with_std(0.05)) };
    let complete = check(&|depth| Ok(Mup::complete_p().with_base(shapes(depth)?).with_start(start()).into()));
    println!("{complete}");
    let stream = |check: &CoordinateCheck| {
        let slopes = check.slopes();
        let end = slopes.iter().find(|slope| slope.step == 5 && slope.place == "last.resid_post").unwrap();
        end.slope.unwrap()
    };
    assert!(stream(&complete).abs() < 0.1, "{}", stream(&complete));
    let plain = check(&|_| Ok(start().into()));
    println!("{plain}");
    assert!(stream(&plain) > 0.3, "{}", stream(&plain));
}
