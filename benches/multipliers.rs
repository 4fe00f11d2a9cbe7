//! What forward multipliers cost in a step of training: nothing attached, muP's, CompleteP's, and u-muP's on every matrix.

use burn::{
    nn::loss::CrossEntropyLossConfig,
    optim::{AdamWConfig, GradientsParams},
    tensor::{Device, Int, Tensor},
};
use burn_init::{
    parametrization::BaseSize,
    reference::TransformerConfig,
    schemes::{Gpt2, Mup, Scheme, UMup},
};
use criterion::{Criterion, criterion_group, criterion_main};

fn training_step(criterion: &mut Criterion) {
    let device = Device::flex().autodiff();
    let config = TransformerConfig::new(96, 64, 256, 4, 4).with_tied(false);
    let tokens = Tensor::<1, Int>::arange(0..8 * 64, &device).remainder_scalar(96).reshape([8, 64]);
    let size = BaseSize { width: 64, head_width: 16, layers: 2 };
    let schemes: [(&str, Scheme); 4] = [
        ("none", Gpt2::new().into()),
        ("mup", Mup::new().with_base(size).into()),
        ("complete_p", Mup::complete_p().with_base(size).into()),
        ("u_mup", UMup::new().into()),
    ];
    let mut group = criterion.benchmark_group("training_step");
    group.sample_size(20);
    for (name, scheme) in &schemes {
        let mut model = config.init_with(scheme, 1, &device).expect("the model can be built");
        let plan = config.setup().plan(&model, scheme).expect("it has been planned before");
        let mut optimizer =
            config.setup().adamw(&model, &plan, &AdamWConfig::new()).expect("every parameter has a group");
        let loss = CrossEntropyLossConfig::new().init(&device);
        group.bench_function(*name, |bencher| {
            bencher.iter(|| {
                let logits = model.forward(tokens.clone()).flatten::<2>(0, 1);
                let loss = loss.forward(logits, tokens.clone().flatten::<1>(0, 1));
                let gradients = GradientsParams::from_grads(loss.backward(), &model);
                model = optimizer.step(1e-5, model.clone(), gradients);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, training_step);
criterion_main!(benches);
