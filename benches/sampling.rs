//! What a value costs: ours beside a memory fill, burn's own draws and `rand_distr`.
//!
//! `cargo bench --bench sampling`, with `--features ndarray` for burn's ndarray as well; `benches/rivals/rivals.py` sets numpy,
//! PyTorch and JAX beside it in one run.

use std::{hint::black_box, time::Duration};

use burn::tensor::{Device, Distribution as BurnDistribution, Tensor};
use burn_init::sample::{Distribution, Element, Stream};
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use half::{bf16, f16};
use rand::{SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution as _, StandardNormal};

/// Values in a buffer, of 256 MiB in `f32`: as in a model, more than any cache holds.
const LEN: usize = 1 << 26;

const NORMAL: Distribution = Distribution::Normal { mean: 0.0, std: 0.02 };
const TRUNCATED: Distribution = Distribution::TruncatedNormal { mean: 0.0, std: 0.02, low: -2.0, high: 2.0 };
const UNIFORM: Distribution = Distribution::Uniform { low: -0.05, high: 0.05 };

#[cfg(feature = "rayon")]
const THREADS: [usize; 2] = [1, 2];
#[cfg(not(feature = "rayon"))]
const THREADS: [usize; 1] = [1];

#[cfg(feature = "rayon")]
struct Pool(rayon::ThreadPool);
#[cfg(not(feature = "rayon"))]
struct Pool;

impl Pool {
    fn new(_threads: usize) -> Self {
        #[cfg(feature = "rayon")]
        return Pool(rayon::ThreadPoolBuilder::new().num_threads(_threads).build().unwrap());
        #[cfg(not(feature = "rayon"))]
        return Pool;
    }

    fn run(&self, f: impl FnOnce() + Send) {
        #[cfg(feature = "rayon")]
        self.0.install(f);
        #[cfg(not(feature = "rayon"))]
        f();
    }
}

fn group<'a>(c: &'a mut Criterion, name: &str, elements: usize) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    group.throughput(Throughput::Elements(elements as u64));
    group
}

fn memory(c: &mut Criterion) {
    let mut group = group(c, "fill", LEN);
    let mut out = vec![0.0_f32; LEN];
    let mut value = 0.0;
    for threads in THREADS {
        let pool = Pool::new(threads);
        group.bench_function(format!("memory f32 x{threads}"), |b| {
            b.iter(|| {
                value += 1.0;
                pool.run(|| fill(&mut out, value));
                black_box(&mut out);
            });
        });
    }
}

fn fill(out: &mut [f32], value: f32) {
    #[cfg(feature = "rayon")]
    {
        use rayon::prelude::*;
        out.par_chunks_mut(1 << 16).for_each(|chunk| chunk.fill(value));
    }
    #[cfg(not(feature = "rayon"))]
    out.fill(value);
}

fn ours<E: Element>(group: &mut BenchmarkGroup<WallTime>, distribution: &Distribution, dtype: &str) {
    let stream = Stream::new(42, "wte.weight");
    let mut out = vec![E::default(); LEN];
    for threads in THREADS {
        let pool = Pool::new(threads);
        group.bench_function(format!("burn-init {dtype} x{threads}"), |b| {
            b.iter(|| {
                pool.run(|| stream.fill(distribution, 0, &mut out));
                black_box(&mut out);
            });
        });
    }
}

fn burn(group: &mut BenchmarkGroup<WallTime>, distribution: BurnDistribution) {
    let mut on = |name: &str, device: Device| {
        group.bench_function(format!("burn {name} f32 x1"), |b| {
            b.iter(|| Tensor::<1>::random([LEN], distribution, &device));
        });
    };
    on("flex", Device::flex());
    #[cfg(feature = "ndarray")]
    #[allow(deprecated)]
    on("ndarray", Device::ndarray());
}

fn draws(c: &mut Criterion) {
    let mut uniform = group(c, "uniform", LEN);
    ours::<f32>(&mut uniform, &UNIFORM, "f32");
    ours::<bf16>(&mut uniform, &UNIFORM, "bf16");
    ours::<f16>(&mut uniform, &UNIFORM, "f16");
    burn(&mut uniform, BurnDistribution::Uniform(-0.05, 0.05));
    drop(uniform);

    let mut normal = group(c, "normal", LEN);
    ours::<f32>(&mut normal, &NORMAL, "f32");
    ours::<bf16>(&mut normal, &NORMAL, "bf16");
    ours::<f16>(&mut normal, &NORMAL, "f16");
    burn(&mut normal, BurnDistribution::Normal(0.0, 0.02));
    let mut rng = SmallRng::seed_from_u64(42);
    let mut out = vec![0.0_f32; LEN];
    normal.bench_function("rand_distr f32 x1", |b| {
        b.iter(|| {
            for value in &mut out {
                let z: f32 = StandardNormal.sample(&mut rng);
                *value = 0.02 * z;
            }
            black_box(&mut out);
        });
    });
    drop(normal);

    let mut truncated = group(c, "truncated", LEN);
    ours::<f32>(&mut truncated, &TRUNCATED, "f32");
    ours::<bf16>(&mut truncated, &TRUNCATED, "bf16");
    ours::<f16>(&mut truncated, &TRUNCATED, "f16");
}

fn orthogonal(c: &mut Criterion) {
    let stream = Stream::new(42, "attn.query.weight");
    for side in [512, 1024] {
        let mut group = group(c, &format!("orthogonal {side}"), side * side);
        let mut out = vec![0.0_f32; side * side];
        for threads in THREADS {
            let pool = Pool::new(threads);
            group.bench_function(format!("burn-init f32 x{threads}"), |b| {
                b.iter(|| {
                    pool.run(|| stream.orthogonal(side, side, 1.0, &mut out));
                    black_box(&mut out);
                });
            });
        }
    }
}

criterion_group!(benches, memory, draws, orthogonal);
criterion_main!(benches);
