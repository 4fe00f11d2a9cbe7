//! Which scheme started these weights, and what deviates from it?
//!
//! ```text
//! cargo run --release --example audit -- model.safetensors                  which scheme comes closest
//! cargo run --release --example audit -- model.safetensors --scheme gpt2    line by line against one
//! ```
//!
//! Takes a safetensors file of any framework, a folder or index of its shards, or a burnpack file. The process fails where the start is
//! not that of the scheme, so that it can stand in a pipeline.

use std::{error::Error, path::PathBuf, process::ExitCode, time::Instant};

use burn_init::{Scheme, Setup, audit::WeightFile};
use clap::Parser;

#[derive(Parser)]
struct Args {
    /// File, index of shards, or folder.
    path: PathBuf,
    /// Compare with this scheme, by its name in the registry.
    #[arg(long)]
    scheme: Option<Scheme>,
    /// Number of attention heads, which some schemes need.
    #[arg(long)]
    heads: Option<u64>,
    /// Print the lines that are as planned, too.
    #[arg(long)]
    all: bool,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args = Args::parse();
    let setup = args.heads.map_or(Setup::new(), |heads| Setup::new().heads("**", heads));
    let began = Instant::now();
    let file = WeightFile::open(&args.path)?;
    let healthy = match &args.scheme {
        Some(scheme) => {
            let audit = file.audit(&setup.plan_file(&file, scheme)?)?;
            if args.all {
                print!("{audit}")
            } else {
                print!("{audit:#}")
            }
            audit.is_started()
        }
        None => {
            let identity = setup.identify_file(&file)?;
            print!("{identity}");
            identity.closest().fits()
        }
    };
    eprintln!("{:.1} s", began.elapsed().as_secs_f64());
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
