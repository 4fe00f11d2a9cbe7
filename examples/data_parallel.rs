//! Data-parallel training whose replicas start themselves from one seed: nothing is sent between them before the first gradient.
//!
//!     cargo run --profile backends --features remote,train --example data_parallel
//!     cargo run --release --features cuda,remote,train --example data_parallel -- --device cuda:0 --device cuda:1 --strategy ddp
//!
//! Without `--device` the replicas live on the devices of a server that this program starts on loopback.

use std::{
    error::Error,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
};

use burn::{
    data::{
        dataloader::{DataLoader, DataLoaderBuilder, batcher::Batcher},
        dataset::InMemDataset,
    },
    lr_scheduler::constant::ConstantLr,
    module::{Module, ModuleVisitor, Param},
    nn::loss::CrossEntropyLossConfig,
    optim::AdamWConfig,
    prelude::*,
    server::{RemoteServer, WebSocketTransport},
    tensor::{Device, distributed::DistributedConfig},
    train::{
        ExecutionStrategy, InferenceStep, Learner, MultiDeviceOptim, SequenceOutput, SupervisedTraining, TrainOutput,
        TrainStep, TrainingStrategy, metric::LossMetric,
    },
};
use burn_init::reference::{Transformer, TransformerConfig};
use clap::{Parser, ValueEnum};

#[path = "common/device.rs"]
mod device;

/// Trains one model on several devices, each with a replica that started itself.
#[derive(Parser)]
struct Knobs {
    /// Where the replicas live, repeated: flex, cuda:1, ws://host:port#1, …
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<String>,
    /// Replicas on loopback, where no --device is given
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    /// How burn-train brings the gradients together
    #[arg(long, value_enum, default_value_t = Strategy::Multi)]
    strategy: Strategy,
    /// Passes over the text
    #[arg(long, default_value_t = 1)]
    epochs: usize,
    /// Seed of every replica
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where burn-train keeps its logs
    #[arg(long, default_value = "target/data_parallel")]
    out: PathBuf,
    /// Serve that many flex devices on loopback, until the standard input ends
    #[arg(long, hide = true)]
    serve: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Strategy {
    /// One device optimises, and sends the model to the others; on any device
    Multi,
    /// Every device optimises; the gradients are reduced with NCCL, so it takes CUDA devices, here or behind one server
    Ddp,
}

fn main() -> ExitCode {
    match run(&Knobs::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(knobs: &Knobs) -> Result<(), Box<dyn Error>> {
    if let Some(devices) = knobs.serve {
        return serve(devices);
    }
    let (_server, names) = match knobs.devices.is_empty() {
        false => (None, knobs.devices.clone()),
        true if matches!(knobs.strategy, Strategy::Ddp) => {
            return Err(
                "the distributed strategy reduces gradients with NCCL, which the flex devices on loopback do not \
                        have; give CUDA devices with --device, or use --strategy multi"
                    .into(),
            );
        }
        true => {
            let (server, address) = Server::start(knobs.replicas)?;
            (Some(server), (0..knobs.replicas).map(|index| format!("{address}#{index}")).collect())
        }
    };
    if names.len() < 2 {
        return Err("one replica is not data parallel; give at least two with --device or --replicas".into());
    }
    let devices = names.iter().map(|name| device::open(name)).collect::<Result<Vec<_>, _>>()?;
    let devices: Vec<Device> = devices.into_iter().map(Device::autodiff).collect();

    let text = Text::new();
    let config = TransformerConfig::new(text.alphabet, CONTEXT, 64, 4, 4).with_seed(knobs.seed);

    // Each replica starts itself. The digests are of the values read back from its device.
    let replica = |device: &Device| Ok(Replica { transformer: config.init(device)? });
    let replicas = devices.iter().map(replica).collect::<Result<Vec<_>, burn_init::Error>>()?;
    let digests: Vec<u64> = replicas.iter().map(digest).collect();
    for (name, digest) in names.iter().zip(&digests) {
        println!("{name}: started with {digest:016x}");
    }
    if digests.iter().any(|digest| *digest != digests[0]) {
        return Err("the replicas differ".into());
    }
    // What a broadcast would have done: burn-train's copies of the first replica have the same bits.
    let copy = digest(&replicas[0].clone().fork(&devices[1]));
    println!("copy of the first on {}: {copy:016x}\n", names[1]);
    if copy != digests[0] {
        return Err("a copy differs from a replica that started itself".into());
    }

    let held_out = text.loader(Part::HeldOut).to_device(&devices[0].clone().inner());
    let first = replicas.into_iter().next().expect("there are two");
    let before = mean_loss(&first, &*held_out)?;
    let strategy = match knobs.strategy {
        Strategy::Multi => ExecutionStrategy::multi(devices.clone(), MultiDeviceOptim::OptimMainDevice),
        Strategy::Ddp => ExecutionStrategy::ddp(
            devices.clone(),
            DistributedConfig { all_reduce_op: burn::tensor::distributed::ReduceOperation::Mean },
        ),
    };
    let result = SupervisedTraining::new(&knobs.out, text.loader(Part::Train), text.loader(Part::HeldOut))
        .metrics((LossMetric::new(),))
        .with_application_logger(None)
        .with_training_strategy(TrainingStrategy::Default(strategy))
        .num_epochs(knobs.epochs)
        .launch(Learner::new(first, AdamWConfig::new().init(), ConstantLr::new(2e-3)));
    if let Some(error) = result.error {
        return Err(error.to_string().into());
    }
    let after = mean_loss(&result.model.train(), &*held_out)?;
    println!("held-out loss {before:.4} before training, {after:.4} after it");
    if after < before { Ok(()) } else { Err("training did not lower the loss".into()) }
}

/// The model as burn-train wants it.
#[derive(Module, Debug)]
struct Replica {
    transformer: Transformer,
}

impl Replica {
    fn outputs(&self, batch: Tokens) -> SequenceOutput {
        let logits = self.transformer.forward(batch.tokens);
        let loss = CrossEntropyLossConfig::new()
            .init(&logits.device())
            .forward(logits.clone().flatten::<2>(0, 1), batch.targets.clone().flatten::<1>(0, 1));
        SequenceOutput::new(loss, logits, None, batch.targets)
    }
}

impl TrainStep for Replica {
    type Input = Tokens;
    type Output = SequenceOutput;

    fn step(&self, batch: Tokens) -> TrainOutput<SequenceOutput> {
        let outputs = self.outputs(batch);
        TrainOutput::new(self, outputs.loss.backward(), outputs)
    }
}

impl InferenceStep for Replica {
    type Input = Tokens;
    type Output = SequenceOutput;

    fn step(&self, batch: Tokens) -> SequenceOutput {
        self.outputs(batch)
    }
}

fn mean_loss(model: &Replica, batches: &dyn DataLoader<Tokens>) -> Result<f64, Box<dyn Error>> {
    let model = model.valid();
    let losses = batches.iter().map(|batch| Ok(f64::from(model.outputs(batch?).loss.into_scalar::<f32>())));
    let losses = losses.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    Ok(losses.iter().sum::<f64>() / losses.len() as f64)
}

/// A digest of the bits of every parameter, in the order of the tree.
fn digest(model: &Replica) -> u64 {
    struct Digest(DefaultHasher);

    impl ModuleVisitor for Digest {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            param.val().into_data().as_bytes().hash(&mut self.0);
        }
    }

    let mut digest = Digest(DefaultHasher::new());
    model.visit(&mut digest);
    digest.0.finish()
}

const CONTEXT: usize = 32;

/// Cicero's De finibus, book 1, a character each token, in windows of the context and one more.
struct Text {
    alphabet: usize,
    windows: Vec<Vec<i64>>,
}

#[derive(Clone, Copy)]
enum Part {
    Train,
    HeldOut,
}

impl Text {
    fn new() -> Self {
        let text = lipsum::LIBER_PRIMUS;
        let mut alphabet: Vec<char> = text.chars().collect();
        alphabet.sort_unstable();
        alphabet.dedup();
        let index = |c| alphabet.binary_search(&c).expect("every character is in the alphabet") as i64;
        let tokens: Vec<i64> = text.chars().map(index).collect();
        let windows = tokens.chunks_exact(CONTEXT + 1).map(<[i64]>::to_vec).collect();
        Self { alphabet: alphabet.len(), windows }
    }

    fn loader(&self, part: Part) -> Arc<dyn DataLoader<Tokens>> {
        let (train, held_out) = self.windows.split_at(self.windows.len() * 9 / 10);
        let windows = match part {
            Part::Train => train,
            Part::HeldOut => held_out,
        };
        DataLoaderBuilder::new(Windows).batch_size(8).build(InMemDataset::new(windows.to_vec()))
    }
}

#[derive(Clone, Debug)]
struct Tokens {
    tokens: Tensor<2, Int>,
    targets: Tensor<2, Int>,
}

struct Windows;

impl Batcher<Vec<i64>, Tokens> for Windows {
    fn batch(&self, windows: Vec<Vec<i64>>, device: &Device) -> Tokens {
        let rows = |shift: usize| {
            let tokens: Vec<i64> = windows.iter().flat_map(|row| &row[shift..shift + CONTEXT]).copied().collect();
            Tensor::<1, Int>::from_data(&tokens[..], device).reshape([windows.len(), CONTEXT])
        };
        Tokens { tokens: rows(0), targets: rows(1) }
    }
}

const ADDRESS: &str = "serving at ";

fn serve(devices: usize) -> Result<(), Box<dyn Error>> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    println!("{ADDRESS}ws://{}", listener.local_addr()?);
    RemoteServer::new((0..devices).map(|_| Device::flex())).serve(WebSocketTransport::from_listener(listener))?;
    Ok(())
}

/// This program again, as a server; it ends with this one.
struct Server(Child);

impl Server {
    fn start(devices: usize) -> Result<(Self, String), Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--serve", &devices.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let server = Self(child);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        // burn's log of the sessions comes behind; somebody has to read it.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        let address = line.trim().strip_prefix(ADDRESS).ok_or("the server did not start")?;
        Ok((server, address.to_string()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
