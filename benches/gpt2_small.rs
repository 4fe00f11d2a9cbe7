//! Starts GPT-2 small, by us and by burn's own defaults: seconds, and the peak of resident memory over the parameters.
//!
//! `cargo bench --bench gpt2_small`, which runs each in a process of its own; `RAYON_NUM_THREADS` sets the threads;
//! `benches/rivals/gpt2.py` does the same in PyTorch.

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

fn main() {
    match std::env::args().find_map(|argument| argument.strip_prefix("start=").map(str::to_string)) {
        Some(who) => run(&who),
        None => {
            let myself = std::env::current_exe().expect("a running program has a path");
            for who in ["burn-init", "burn"] {
                let status = Command::new(&myself).arg(format!("start={who}")).status();
                assert!(status.is_ok_and(|status| status.success()), "{who} failed");
            }
        }
    }
}

fn run(who: &str) {
    let device = Device::flex();
    // nanoGPT pads its vocabulary to 50304.
    let config = TransformerConfig { vocab_size: 50_304, ..TransformerConfig::gpt2_small() };
    let lazy = || config.build(&device).expect("GPT-2 is valid");
    let parameters = lazy().num_params();
    let before = peak_bytes();
    let mut seconds = Vec::new();
    let mut peak = 0;
    for _ in 0..5 {
        let start = Instant::now();
        let model = match who {
            "burn" => {
                let model = lazy();
                model.visit(&mut Touch);
                model
            }
            _ => lazy().initialize(&Gpt2::new(), 42).expect("the scheme fits"),
        };
        seconds.push(start.elapsed().as_secs_f64());
        if seconds.len() == 1 {
            peak = peak_bytes() - before;
        }
        drop(model);
    }
    seconds.sort_by(f64::total_cmp);
    println!(
        "{who}: {parameters} parameters, median {:.3} s, peak {:.2} times the parameters",
        seconds[seconds.len() / 2],
        peak as f64 / (4 * parameters) as f64
    );
}

/// Largest resident size of this process so far, where the system tells it.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}
