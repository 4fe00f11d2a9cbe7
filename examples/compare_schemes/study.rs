//! Does it matter? Schemes by depth, learning rate and seed.

use std::{
    error::Error,
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use burn_init::{NormPlacement, Scheme};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::{
    Knobs,
    picture::{self, Panel},
    training::{Run, Text},
};

const DEPTHS: [usize; 2] = [2, 12];
const RATES: [f64; 3] = [1e-3, 4e-3, 1.6e-2];

/// A line of the file of runs.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    scheme: String,
    layers: usize,
    d_model: usize,
    #[serde(default)]
    norms: NormPlacement,
    context: usize,
    steps: usize,
    lr: f64,
    seed: u64,
    /// Null where it is no number.
    held_out: Option<f64>,
}

impl Record {
    fn is_of(&self, scheme: &str, run: &Run) -> bool {
        self.scheme == scheme
            && (self.layers, self.d_model, self.context) == (run.layers, run.d_model, run.context)
            && self.norms == run.norms
            && (self.steps, self.lr, self.seed) == (run.steps, run.lr, run.seed)
    }
}

pub fn study(knobs: &Knobs, schemes: &[Scheme], text: &Text) -> Result<(), Box<dyn Error>> {
    let Knobs { steps, d_model, norms, context, .. } = *knobs;
    let seeds = 0..knobs.seeds;
    let runs: Vec<(usize, Run)> = seeds
        .clone()
        .flat_map(|seed| DEPTHS.map(|layers| (seed, layers)))
        .flat_map(|(seed, layers)| RATES.map(|lr| Run { layers, d_model, norms, context, steps, lr, seed }))
        .flat_map(|run| (0..schemes.len()).map(move |scheme| (scheme, run)))
        .collect();

    let mut records = match File::open(&knobs.runs) {
        Ok(file) => BufReader::new(file).lines().map(|line| Ok(serde_json::from_str(&line?)?)).collect(),
        Err(_) => Ok(Vec::new()),
    }
    .map_err(|error: Box<dyn Error>| format!("{}: {error}", knobs.runs.display()))?;
    let done = |records: &[Record], scheme: usize, run: &Run| {
        records.iter().position(|record| record.is_of(&knobs.schemes[scheme], run))
    };
    let missing: Vec<_> = runs.iter().filter(|(scheme, run)| done(&records, *scheme, run).is_none()).collect();

    if let Some(folder) = knobs.runs.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().create(true).append(true).open(&knobs.runs)?;
    let bar = ProgressBar::new(missing.len() as u64);
    bar.set_style(ProgressStyle::with_template("{pos} of {len} runs, {elapsed} gone, {eta} to go {wide_msg}")?);
    in_turn(
        knobs.jobs,
        missing.len(),
        |index| {
            let (scheme, run) = missing[index];
            run.train(&schemes[*scheme], text).map_err(|error| error.to_string())
        },
        |index, outcome| {
            let (scheme, Run { layers, d_model, norms, context, steps, lr, seed }) = *missing[index];
            let held_out = Some(outcome.held_out).filter(|loss| loss.is_finite());
            let scheme = knobs.schemes[scheme].clone();
            let record = Record { scheme, layers, d_model, norms, context, steps, lr, seed, held_out };
            writeln!(file, "{}", serde_json::to_string(&record)?)?;
            records.push(record);
            bar.inc(1);
            Ok(())
        },
    )?;
    bar.finish_and_clear();

    let of = |layers: usize, lr: f64, scheme: usize| {
        let runs = seeds.clone().map(|seed| Run { layers, d_model, norms, context, steps, lr, seed });
        let losses = runs.filter_map(|run| done(&records, scheme, &run).map(|i| records[i].held_out));
        mean(&losses.map(|loss| loss.unwrap_or(f64::INFINITY)).collect::<Vec<_>>())
    };
    let panels: Vec<Panel> = DEPTHS
        .map(|layers| Panel {
            title: format!("{layers} layers"),
            curves: (0..schemes.len())
                .map(|scheme| (knobs.schemes[scheme].clone(), RATES.map(|lr| of(layers, lr, scheme)).to_vec()))
                .collect(),
        })
        .into();
    println!("d = {d_model}, {context} tokens, {steps} steps, {} seeds, mean +- standard error\n", knobs.seeds);
    for panel in &panels {
        print(panel);
    }
    picture::panels(&knobs.out, &RATES, &panels)?;
    println!("picture: {}", knobs.out.display());
    Ok(())
}

/// Mean and its standard error.
fn mean(losses: &[f64]) -> (f64, f64) {
    let n = losses.len() as f64;
    let mean = losses.iter().sum::<f64>() / n;
    let variance = losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

/// A table in Markdown; the last row tells how far apart the schemes are.
fn print(panel: &Panel) {
    println!("| {} | {} |", panel.title, RATES.map(|lr| lr.to_string()).join(" | "));
    println!("|---|{}", "---|".repeat(RATES.len()));
    for (name, losses) in &panel.curves {
        let cells = losses.iter().map(|(mean, error)| match mean.is_finite() {
            true => format!("{mean:.3} +- {error:.3}"),
            false => "diverged".into(),
        });
        println!("| `{name}` | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    let spread = (0..RATES.len()).map(|i| {
        let losses = panel.curves.iter().map(|(_, losses)| losses[i].0);
        let (low, high) = losses.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), l| (low.min(l), high.max(l)));
        format!("{:.3}", high - low)
    });
    println!("| worst less best | {} |\n", spread.collect::<Vec<_>>().join(" | "));
}

/// Works at `jobs` pieces at a time, and takes the results in the order in which they come.
pub fn in_turn<T: Send>(
    jobs: usize,
    count: usize,
    work: impl Fn(usize) -> Result<T, String> + Sync,
    mut take: impl FnMut(usize, T) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (send, next, work) = (send.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    // Nobody listens after an error.
                    if index >= count || send.send((index, work(index))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let listen = receive;
        for (index, result) in &listen {
            take(index, result?)?;
        }
        Ok(())
    })
}
