//! What a real step of AdamW does to each parameter.

use std::collections::BTreeMap;

use burn::{
    grad_clipping::GradientClippingConfig,
    lr_scheduler::{LrSchedulerConfig, cosine::CosineAnnealingLrSchedulerConfig},
    module::{Lora, Module, ModuleVisitor, Param},
    nn::loss::CrossEntropyLossConfig,
    optim::{AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig},
    tensor::Tensor,
};
use burn_init::{
    ErrorKind, Init, ModuleInit as _, Plan, Role, Rule, Setup, from_fn,
    parametrization::{BaseShapes, TrainingGroup, TrainingGroups},
    schemes::Mup,
    step_zero::Probe,
};

use super::nano::{HEADS, batch, forward, nano};
use crate::{
    support::{device, values},
    trees::NanoGpt,
};

type Values = BTreeMap<String, Vec<f32>>;

fn setup() -> Setup {
    Setup::new().heads("**", HEADS as u64)
}

fn shapes() -> BaseShapes {
    let device = device();
    setup().base_shapes(&nano(8, 32, &device), &nano(2, 8, &device)).unwrap()
}

fn model(mup: &Mup) -> (NanoGpt, Plan) {
    let model = nano(8, 32, &device().autodiff());
    let plan = setup().plan(&model, mup).unwrap();
    (setup().initialize(model, mup, 2).unwrap(), plan)
}

fn gradients(model: &NanoGpt) -> GradientsParams {
    let device = device().autodiff();
    let batch = batch(4, &device);
    let logits = forward(model, batch.tokens, &mut Probe::silent()).flatten::<2>(0, 1);
    let loss = CrossEntropyLossConfig::new().init(&device).forward(logits, batch.targets.flatten::<1>(0, 1));
    GradientsParams::from_grads(loss.backward(), model)
}

/// By path.
fn by_path(model: &NanoGpt, gradients: &GradientsParams) -> Values {
    struct Reader<'a>(&'a GradientsParams, Vec<String>, Values);

    impl ModuleVisitor for Reader<'_> {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.1.push(name.into());
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.1.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.get::<D>(param.id) {
                self.2.insert(self.1.join("."), gradient.into_data().try_into_vec().unwrap());
            }
        }
    }

    let mut reader = Reader(gradients, Vec::new(), Values::new());
    model.visit(&mut reader);
    reader.2
}

const RATE: f64 = 0.01;

/// What one step adds to each parameter, with the values and gradients before it.
fn step(model: NanoGpt, mut optimizer: ModuleOptimizer) -> BTreeMap<String, Vec<[f64; 3]>> {
    let gradients = gradients(&model);
    let (before, slopes) = (values(&model), by_path(&model, &gradients));
    let after = values(&optimizer.step(RATE, model, gradients));
    let rows = before.into_iter().filter(|(path, _)| slopes.contains_key(path)).map(|(path, before)| {
        let rows = before.iter().zip(&after[&path]).zip(&slopes[&path]);
        let rows = rows.map(|((&a, &b), &g)| [f64::from(b) - f64::from(a), f64::from(a), f64::from(g)]).collect();
        (path, rows)
    });
    rows.collect()
}

/// The first step of Adam is the sign of the gradient: each parameter moves by exactly its own rate.
#[test]
fn each_group_moves_by_its_rate() {
    for mup in [Mup::from(shapes()), Mup::complete_p().with_base(shapes()), Mup::depth().with_base(shapes())] {
        let (model, plan) = model(&mup.with_tied(true));
        let config = AdamWConfig::new().with_weight_decay(0.0).with_epsilon(1e-30);
        let moved = step(model.clone(), setup().adamw(&model, &plan, &config).unwrap());
        assert!(moved.len() > 90);
        let mut rates = Vec::new();
        for (path, rows) in &moved {
            let rate = plan.get(path).unwrap().rule().learning_rate;
            // The key's bias has no gradient but rounding.
            let rows = rows.iter().filter(|row| row[2].abs() > 1e-9 && !path.ends_with("c_attn.bias"));
            for [delta, value, gradient] in rows {
                let expected = -RATE * rate * gradient.signum();
                assert!(
                    (delta - expected).abs() < 1e-4 * RATE * rate + 1e-7 * value.abs(),
                    "{path}: {delta} {expected}"
                );
            }
            rates.push((rate * 1e6).round() as u64);
        }
        rates.sort_unstable();
        rates.dedup();
        assert!(rates.len() > 1, "{rates:?}");
    }
}

/// AdamW decays by the product of rate and decay: under muP that is the same for every parameter.
#[test]
fn decay_is_against_the_rate() {
    let (model, plan) = model(&Mup::from(shapes()).with_tied(true));
    let moved = |decay: f32| {
        let config = AdamWConfig::new().with_weight_decay(decay).with_epsilon(1e-30);
        step(model.clone(), setup().adamw(&model, &plan, &config).unwrap())
    };
    let (with, without) = (moved(0.5), moved(0.0));
    for (path, rows) in &with {
        for (with, without) in rows.iter().zip(&without[path]) {
            let decayed = without[0] - with[0];
            assert!((decayed - RATE * 0.5 * with[1]).abs() < 3e-7 * (1.0 + with[1].abs()), "{path}: {decayed}");
        }
    }
    // Gains and biases do not decay under CompleteP.
    let (model, plan) = super::optimizer::model(&Mup::complete_p().with_base(shapes()).with_tied(true));
    for entry in &plan {
        assert_eq!(entry.rule().weight_decay == 0.0, !entry.spec().role().is_weight(), "{}", entry.spec().path());
    }
    drop(model);
}

/// With an epsilon that outweighs the gradient the step is gradient over epsilon: its multiplier shows.
#[test]
fn epsilon_has_its_multiplier() {
    let (model, plan) = model(&Mup::complete_p().with_base(shapes()).with_tied(true));
    let config = AdamWConfig::new().with_weight_decay(0.0).with_epsilon(1e4);
    let moved = step(model.clone(), setup().adamw(&model, &plan, &config).unwrap());
    for (path, rows) in moved {
        let rule = plan.get(&path).unwrap().rule();
        let layered = path.contains(".h.");
        // m = 4 in width and in depth.
        assert!((rule.epsilon - if layered { 1.0 / 16.0 } else { 0.25 }).abs() < 1e-12, "{path}: {}", rule.epsilon);
        let largest = rows.into_iter().max_by(|a, b| a[2].abs().total_cmp(&b[2].abs())).unwrap();
        let expected = -RATE * rule.learning_rate * largest[2] / (1e4 * rule.epsilon);
        assert!(
            (largest[0] - expected).abs() <= 0.02 * expected.abs() + 1e-7 * largest[1].abs(),
            "{path}: {largest:?} {expected}"
        );
    }
}

#[test]
fn other_optimizers_and_schedulers() {
    let (model, plan) = model(&Mup::sgd().with_base(shapes()).with_tied(true));
    let groups = setup().groups(&model, &plan).unwrap();
    let moved = step(model.clone(), groups.optimizer(&model, |_| SgdConfig::new().build()).unwrap());
    for (path, rows) in moved {
        let rate = plan.get(&path).unwrap().rule().learning_rate;
        assert_eq!(rate, if path.ends_with("weight") && path.contains(".h.") { 1.0 } else { 4.0 }, "{path}");
        for [delta, value, gradient] in rows {
            assert!((delta + RATE * rate * gradient).abs() < 2e-7 * (value.abs() + 1.0), "{path}");
        }
    }
    // A scheduler with a rate for each group, beside an optimizer that knows none.
    let mut scheduler =
        groups.lr_scheduler(&model, |multiplier| LrSchedulerConfig::Constant(0.5 * multiplier)).unwrap();
    let rates = scheduler.step();
    let id = burn::module::ParamId::new();
    assert_eq!(rates.lr_from_param(id, Some("transformer.wte.weight")), 2.0);
    assert_eq!(rates.lr_from_param(id, Some("transformer.h.0.mlp.c_fc.weight")), 0.5);
    let mut cosine =
        groups.lr_scheduler(&model, |rate| CosineAnnealingLrSchedulerConfig::new(0.125 * rate, 10)).unwrap();
    assert_eq!(cosine.step().lr_from_param(id, Some("transformer.wte.weight")), 0.5);
    let never = groups.lr_scheduler(&model, |rate| CosineAnnealingLrSchedulerConfig::new(rate, 0)).err().unwrap();
    assert!(never.to_string().starts_with("the scheduler cannot be built: "), "{never}");
    // Clipping comes along.
    let config = AdamWConfig::new().with_grad_clipping(Some(GradientClippingConfig::Norm(1.0)));
    assert!(groups.adamw(&model, &config).unwrap().has_gradient_clipping());
    // Plain data.
    let file = serde_json::to_string(&groups).unwrap();
    assert_eq!(serde_json::from_str::<TrainingGroups>(&file).unwrap(), groups);
}

/// Rates without the multipliers that they belong to are another parametrization.
#[test]
fn the_model_has_what_the_plan_says() {
    let scheme = Mup::from(shapes()).with_tied(true);
    let (started, plan) = model(&scheme);
    let adamw = |model: &NanoGpt, plan: &Plan| setup().adamw(model, plan, &AdamWConfig::new());
    assert!(adamw(&started, &plan).is_ok());
    let loaded = nano(8, 32, &device().autodiff()).load_record(started.clone().into_record());
    let error = adamw(&loaded, &plan).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Attached);
    let text = error.to_string();
    assert!(
        text.contains("in the forward pass, and the model does not; initialize the model with the scheme"),
        "{text}"
    );
    assert!(adamw(&setup().attach(loaded, &scheme).unwrap(), &plan).is_ok());
    assert_eq!(adamw(&started.clone().materialize(), &plan).err().unwrap().kind(), ErrorKind::Attached);
    let plain = setup().plan(&started, &burn_init::Gpt2::new());
    assert_eq!(plain.unwrap_err().kind(), ErrorKind::Attached);
    let deeper = setup().plan(&nano(8, 32, &device()), &burn_init::Gpt2::new()).unwrap();
    let shallow = setup().initialize(nano(7, 32, &device().autodiff()), &burn_init::Gpt2::new(), 1).unwrap();
    let error = adamw(&shallow, &deeper).err().unwrap();
    assert_eq!(error.path(), Some("transformer.h.7.ln_1.gamma"), "{error}");
    assert!(error.to_string().contains("the plan has a line for it, and the model has no such parameter"), "{error}");
}

#[test]
fn numbers_of_a_group() {
    type Change<'a> = &'a dyn Fn(&mut TrainingGroup);
    let (model, plan) = model(&Mup::from(shapes()).with_tied(true));
    let groups = setup().groups(&model, &plan).unwrap();
    let changed = |change: Change<'_>| {
        let mut all: Vec<TrainingGroup> = groups.iter().cloned().collect();
        change(&mut all[0]);
        TrainingGroups::new(all)
    };
    let path = &groups.iter().next().unwrap().paths[0];
    let wrong: [(Change<'_>, &str); 4] = [
        (&|group| group.learning_rate = f64::NAN, "learning rate is NaN"),
        (&|group| group.learning_rate = -1.0, "learning rate is -1"),
        (&|group| group.weight_decay = f64::INFINITY, "weight decay is inf"),
        (&|group| group.epsilon = f64::NAN, "epsilon is NaN"),
    ];
    for (change, found) in wrong {
        let error = changed(change).adamw(&model, &AdamWConfig::new()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        assert_eq!(error.to_string(), format!("{path}: the multiplier of its {found}; use a finite number, 0 or more"));
        assert!(changed(change).lr_scheduler(&model, LrSchedulerConfig::Constant).is_err());
    }
    let huge = changed(&|group| group.epsilon = 1e300).adamw(&model, &AdamWConfig::new()).err().unwrap();
    assert!(huge.to_string().contains("its epsilon is 0.00001 times 1.0000e300"), "{huge}");
    let config = AdamWConfig::new().with_epsilon(f32::NAN);
    assert_eq!(
        groups.adamw(&model, &config).err().unwrap().to_string(),
        "the epsilon of the AdamWConfig is not a finite number; correct it"
    );
}

#[test]
fn every_parameter_is_in_one_group() {
    let (model, plan) = model(&Mup::from(shapes()).with_tied(true));
    let groups = setup().groups(&model, &plan).unwrap();
    let text = |groups: &TrainingGroups| groups.check(&model).unwrap_err().to_string();
    let without = TrainingGroups::new(groups.iter().skip(1).cloned());
    assert!(
        text(&without).contains(": the parameter is in no group; make the groups from a plan of this model"),
        "{}",
        text(&without)
    );
    let twice = TrainingGroup { paths: vec!["transformer.wte.weight".into()], ..groups.iter().next().unwrap().clone() };
    let twice = TrainingGroups::new(groups.iter().cloned().chain([twice]));
    assert_eq!(text(&twice), "transformer.wte.weight: the parameter is in two groups; leave it in one of them");
    assert!(twice.adamw(&model, &AdamWConfig::new()).is_err());
    // What came after the plan is in none.
    let adapted = model.clone().apply_lora(Lora::new(2, 4.0));
    let error = setup().adamw(&adapted, &plan, &AdamWConfig::new()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unmatched);
    assert!(
        error.to_string().contains("lora.a [") && error.to_string().contains("the parameter is in no group"),
        "{error}"
    );
    // Blocks of one parameter cannot be trained differently.
    let split = from_fn(|param| Rule {
        learning_rate: if param.role() == Role::Query { 0.5 } else { 1.0 },
        ..Init::normal(0.1).into()
    });
    let plan = model.plan(&split).unwrap_err();
    // (The attached multipliers are told first: on a bare model it is the groups.)
    assert_eq!(plan.kind(), ErrorKind::Attached);
    let bare = nano(2, 32, &device());
    let error = bare.plan(&split).and_then(|plan| Setup::new().groups(&bare, &plan)).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "transformer.h.0.attn.c_attn.weight [32, 96]: the packed parameter is in two groups: its blocks query and key"
        ),
        "{error}"
    );
    // A prefix is of the plan, not of the module.
    let prefixed = setup().prefix("model");
    let plan = prefixed.plan(&bare, &burn_init::Gpt2::new()).unwrap();
    assert!(prefixed.groups(&bare, &plan).unwrap().get("transformer.wte.weight").is_some());
}
