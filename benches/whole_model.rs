//! Starts whole models, by us and by burn's own defaults: seconds, and the peak of resident memory over the parameters.
//!
//! `cargo bench --bench whole_model`, which runs each in a process of its own; `RAYON_NUM_THREADS` sets the threads;
//! `benches/rivals/gpt2.py` starts GPT-2 small in PyTorch.

use std::{process::Command, time::Instant};

use burn::{
    module::{ModuleVisitor, Param},
    prelude::*,
};
use burn_init::{prelude::*, reference::TransformerConfig};

/// Accesses every parameter, which makes burn draw it.
struct Touch;

impl ModuleVisitor for Touch {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let _ = param.val();
    }
}

/// GPT-2 small, whose vocabulary nanoGPT pads to 50304, and one of some 3200 small tensors.
fn models() -> [(&'static str, TransformerConfig); 2] {
    [
        ("GPT-2 small", TransformerConfig { vocab_size: 50_304, ..TransformerConfig::gpt2_small() }),
        ("200 layers of width 64", TransformerConfig::new(1000, 64, 64, 200, 4)),
    ]
}

fn main() {
    let argument = |name: &str| std::env::args().find_map(|argument| argument.strip_prefix(name).map(str::to_string));
    if let (Some(who), Some(model)) = (argument("start="), argument("model=")) {
        let (_, config) = models().into_iter().find(|(name, _)| *name == model).expect("one of the models");
        return run(&who, &model, &config);
    }
    let myself = std::env::current_exe().expect("a running program has a path");
    for (model, _) in models() {
        for who in ["burn-init", "burn-init, bf16", "burn-init, constants", "burn"] {
            let arguments = [format!("start={who}"), format!("model={model}")];
            let status = Command::new(&myself).args(arguments).status();
            assert!(status.is_ok_and(|status| status.success()), "{who} failed");
        }
    }
}

fn run(who: &str, name: &str, config: &TransformerConfig) {
    let device = Device::flex();
    let lazy = || config.build(&device).expect("the configuration is valid");
    let parameters = lazy().num_params();
    let (setup, bytes) = match who {
        "burn-init, bf16" => (Setup::new().dtype(Dtype::BF16), 2),
        _ => (Setup::new(), 4),
    };
    // What the memory alone costs: nothing is drawn, every value is written.
    let constants = from_fn(|_| Init::constant(0.02));
    let scheme: &dyn Initializer = if who == "burn-init, constants" { &constants } else { &Gpt2::new() };
    let before = peak_bytes();
    let mut seconds = Vec::new();
    let mut peak = 0;
    for _ in 0..9 {
        let start = Instant::now();
        let model = lazy();
        let model = match who {
            "burn" => {
                model.visit(&mut Touch);
                model
            }
            _ => setup.initialize(model, scheme, 42).expect("the scheme fits"),
        };
        seconds.push(start.elapsed().as_secs_f64());
        if seconds.len() == 1 {
            peak = peak_bytes() - before;
        }
        drop(model);
    }
    seconds.sort_by(f64::total_cmp);
    println!(
        "{name}, {who}: {parameters} parameters, median {:.4} s, peak {:.2} times the parameters",
        seconds[seconds.len() / 2],
        peak as f64 / (bytes * parameters) as f64
    );
}

/// Largest resident size of this process so far, where the system tells it.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}
