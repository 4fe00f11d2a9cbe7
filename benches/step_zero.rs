//! What a prediction and a measurement cost: `cargo bench --bench step_zero`.
//!
//! The prediction of a giant is one walk over its plan; a measurement is set beside the plain forward pass that it contains.

use std::time::Instant;

use burn::tensor::{Device, Int, Tensor};
use burn_init::{
    Gpt2, ModuleInit as _,
    reference::{Transformer, TransformerConfig},
    step_zero::{Batch, measure, step_zero},
};

const RUNS: usize = 5;

fn main() {
    let device = Device::flex();
    let giant = TransformerConfig::new(50_257, 256, 12_288, 96, 96);
    let plan = giant.build(&device).unwrap().plan(&Gpt2::new()).unwrap();
    let time = median(|| drop(plan.predict(&giant.architecture()).unwrap()));
    println!("predict 96 layers, d 12288, T 256: {time:.3} s");

    let config = TransformerConfig::new(8192, 128, 512, 8, 8);
    let model = config.init(&device).unwrap();
    let tokens = Tensor::<1, Int>::arange(0..512, &device).reshape([4, 128]);
    let batch = Batch::new(tokens.clone(), tokens.clone());
    // A forward pass alone still reads its logits.
    let forward = median(|| drop(model.forward(tokens.clone()).into_data()));
    let stepped = median(|| drop(step_zero(&batch, |tokens, probe| model.forward_with(tokens, probe)).unwrap()));
    let measured = median(|| drop(measure(&model, &batch, Transformer::forward_with).unwrap()));
    println!("forward of 8 layers, d 512, V 8192, 4 x 128 tokens: {forward:.3} s");
    println!("step_zero: {stepped:.3} s, {:.2} times", stepped / forward);
    println!("measure, with all parameters: {measured:.3} s, {:.2} times", measured / forward);
}

fn median(mut f: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}
