//! An existing start against a plan: healthy ones raise nothing, ill ones are named first, with the path.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use burn::{
    module::{Module, ModuleMapper, Param},
    nn::{EmbeddingConfig, LinearConfig, transformer::TransformerEncoderConfig},
    tensor::{DType, Device, Tensor, TensorData},
};
use burn_init::{
    Dtype, ErrorKind, Fill, Gpt2, Gpt2Normal, Init, Initializer as _, ModuleInit as _, NormPlacement, Plan, Role,
    Scheme, Setup, TorchDefault, Xavier,
    audit::{Audit, Deviation, Severity, identify},
    from_fn,
    sample::Distribution,
};

use crate::{
    support::{device, setup_for},
    trees::{Llama, NanoGpt},
};

fn nano(device: &Device) -> NanoGpt {
    NanoGpt::new(3, 64, 1000, 32, device)
}

/// Changes the values at one path.
struct Surgery<F> {
    path: &'static str,
    change: F,
    segments: Vec<String>,
    done: bool,
}

impl<F: FnMut(usize, &mut f32)> ModuleMapper for Surgery<F> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.segments.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.segments.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.segments.join(".") != self.path {
            return param;
        }
        self.done = true;
        let (id, tensor, mapper) = param.consume();
        let (shape, device) = (tensor.dims(), tensor.device());
        let mut values: Vec<f32> = tensor.into_data().try_to_vec().unwrap();
        values.iter_mut().enumerate().for_each(|(i, value)| (self.change)(i, value));
        Param::from_mapped_value(id, Tensor::from_data(TensorData::new(values, shape), &device), mapper)
    }
}

fn ill<M: Module>(model: M, path: &'static str, change: impl FnMut(usize, &mut f32)) -> M {
    let mut surgery = Surgery { path, change, segments: Vec::new(), done: false };
    let model = model.map(&mut surgery);
    assert!(surgery.done, "no parameter {path}");
    model
}

/// The only line that deviates, and why.
#[track_caller]
fn only(audit: &Audit, path: &str, deviation: Deviation, severity: Severity) {
    let off: Vec<_> = audit.deviations().collect();
    assert_eq!(off.len(), 1, "{audit:#}");
    assert_eq!(off[0].path, path, "{audit:#}");
    assert_eq!((off[0].findings[0].deviation, off[0].findings[0].severity), (deviation, severity), "{audit:#}");
}

/// Every scheme that can start these trees, with a seed of its own each: 2 x 50 audits of 30 lines.
#[test]
fn healthy_models_raise_nothing() {
    let device = device();
    let mut audited = 0;
    for (seed, (name, scheme, _)) in Scheme::all().into_iter().enumerate() {
        let setup = setup_for(name, 4);
        if let Ok(model) = setup.initialize(nano(&device), &scheme, seed as u64) {
            let audit = setup.audit(&model, &setup.plan(&model, &scheme).unwrap()).unwrap();
            assert!(audit.is_started(), "{name}\n{audit:#}");
            audited += 1;
        }
        if let Ok(model) = setup.initialize(Llama::new(3, 64, 32, 160, 500, &device), &scheme, seed as u64) {
            let audit = setup.audit(&model, &setup.plan(&model, &scheme).unwrap()).unwrap();
            assert!(audit.is_started(), "{name}\n{audit:#}");
            audited += 1;
        }
    }
    assert!(audited > 90, "{audited}");
}

/// Every dtype is judged by its own rounding.
#[test]
fn half_precision() {
    let device = device();
    let dtypes = [Dtype::F16, Dtype::BF16].map(|dtype| (dtype, Setup::new().dtype(dtype)));
    for (dtype, setup) in dtypes
        .into_iter()
        .filter(|(dtype, _)| device.supports_dtype(if *dtype == Dtype::F16 { DType::F16 } else { DType::BF16 }))
    {
        for scheme in [Gpt2::new().into(), Scheme::from(TorchDefault::new()), "bert".parse().unwrap()] {
            let model = NanoGpt::new(1, 128, 4000, 32, &device);
            let model = setup.initialize(model, &scheme, 3).unwrap();
            let audit = model.plan(&scheme).unwrap().audit(&model).unwrap();
            assert!(audit.is_started(), "{dtype:?} {scheme}\n{audit:#}");
        }
    }
}

fn started() -> (NanoGpt, Plan) {
    let model = nano(&device()).initialize(&Gpt2::new(), 7).unwrap();
    let plan = model.plan(&Gpt2::new()).unwrap();
    (model, plan)
}

const C_FC: &str = "transformer.h.1.mlp.c_fc.weight";
const C_PROJ: &str = "transformer.h.1.mlp.c_proj.weight";
const C_ATTN: &str = "transformer.h.2.attn.c_attn.weight";
const WTE: &str = "transformer.wte.weight";

#[test]
fn a_wrong_std() {
    let (model, plan) = started();
    let audit = plan.audit(&ill(model, C_FC, |_, x| *x *= 1.1)).unwrap();
    only(&audit, C_FC, Deviation::Std, Severity::Error);
    let line = audit.get(C_FC).unwrap();
    assert!((line.ratio.unwrap() - 1.1).abs() < 0.02 && line.z_std.unwrap() > 10.0, "{line:?}");

    // By a little only: what a truncation at three sigmas takes away.
    let (model, plan) = started();
    let model = ill(model, WTE, |_, x| *x *= 0.97);
    only(&plan.audit(&model).unwrap(), WTE, Deviation::Std, Severity::Warning);
}

#[test]
fn an_unscaled_projection() {
    let (model, plan) = started();
    let audit = plan.audit(&ill(model, C_PROJ, |_, x| *x *= 6f32.sqrt())).unwrap();
    only(&audit, C_PROJ, Deviation::Std, Severity::Error);
    assert!((audit.get(C_PROJ).unwrap().ratio.unwrap() - 6f64.sqrt()).abs() < 0.05);
}

#[test]
fn one_block_of_a_packed_weight() {
    let (model, plan) = started();
    let audit = plan
        .audit(&ill(model, C_ATTN, |i, x| {
            if i % 192 >= 128 {
                *x *= 2.0
            }
        }))
        .unwrap();
    only(&audit, C_ATTN, Deviation::Std, Severity::Error);
    let block = audit.deviations().next().unwrap().block.unwrap();
    assert_eq!((block.index, block.start, block.len), (2, 128, 64));
}

#[test]
fn one_row_of_a_table() {
    let (model, plan) = started();
    let audit = plan
        .audit(&ill(model, WTE, |i, x| {
            if i / 64 == 321 {
                *x *= 10.0
            }
        }))
        .unwrap();
    only(&audit, WTE, Deviation::Row, Severity::Error);
    assert!(audit.deviations().next().unwrap().findings[0].text.starts_with("row 321 is out of scale"), "{audit:#}");
}

#[test]
fn a_padding_row() {
    let device = device();
    let padded = Gpt2::new().padding_row(5);
    let model = nano(&device).initialize(&padded, 7).unwrap();
    assert!(model.plan(&padded).unwrap().audit(&model).unwrap().is_started());
    // Where the plan has none, the row is told, and nothing else.
    let audit = model.plan(&Gpt2::new()).unwrap().audit(&model).unwrap();
    only(&audit, WTE, Deviation::PaddingRow, Severity::Warning);
    assert!(audit.deviations().next().unwrap().findings[0].text.contains(".padding_row(5)"));
    // And where the model has none.
    let (model, _) = started();
    let audit = model.plan(&padded).unwrap().audit(&model).unwrap();
    only(&audit, WTE, Deviation::PaddingRow, Severity::Error);
}

#[test]
fn constants() {
    let (model, plan) = started();
    let model = ill(model, "transformer.h.0.attn.c_attn.bias", |i, x| {
        if i == 3 {
            *x = 1e-4
        }
    });
    only(&plan.audit(&model).unwrap(), "transformer.h.0.attn.c_attn.bias", Deviation::NotConstant, Severity::Error);

    let (model, plan) = started();
    let audit = plan.audit(&ill(model, "transformer.ln_f.gamma", |_, x| *x = 0.9)).unwrap();
    only(&audit, "transformer.ln_f.gamma", Deviation::NotConstant, Severity::Error);
    assert_eq!(audit.deviations().next().unwrap().findings[0].text, "all 0.9 instead of 1");

    let (model, plan) = started();
    only(&plan.audit(&ill(model, C_FC, |_, x| *x = 0.0)).unwrap(), C_FC, Deviation::Constant, Severity::Error);
}

#[test]
fn values_that_no_draw_has() {
    let (model, plan) = started();
    only(
        &plan
            .audit(&ill(model, C_FC, |i, x| {
                if i == 9 {
                    *x = f32::NAN
                }
            }))
            .unwrap(),
        C_FC,
        Deviation::NonFinite,
        Severity::Error,
    );

    let (model, plan) = started();
    only(
        &plan
            .audit(&ill(model, C_FC, |i, x| {
                if i == 9 {
                    *x = 0.2
                }
            }))
            .unwrap(),
        C_FC,
        Deviation::Outlier,
        Severity::Error,
    );

    // Also where it moves the std of the whole.
    let (model, plan) = started();
    only(
        &plan
            .audit(&ill(model, C_FC, |i, x| {
                if i == 9 {
                    *x = -50.0
                }
            }))
            .unwrap(),
        C_FC,
        Deviation::Outlier,
        Severity::Error,
    );

    let (model, plan) = started();
    let sparse = ill(model, C_FC, |i, x| {
        if i % 50 == 0 {
            *x = 0.0
        }
    });
    only(&plan.audit(&sparse).unwrap(), C_FC, Deviation::Zeros, Severity::Warning);

    let (model, plan) = started();
    let audit = plan.audit(&ill(model, C_FC, |_, x| *x += 0.002)).unwrap();
    only(&audit, C_FC, Deviation::Mean, Severity::Error);
}

/// Uniform, normal and truncated normals of one std, each against the others.
#[test]
fn distributions_of_equal_std_are_told_apart() {
    let device = device();
    let inits = [
        Init::normal(0.02),
        Init::uniform(0.02 * 3f64.sqrt()),
        Init::truncated_normal_compensated(0.02, 2.0),
        Init::truncated_normal_compensated(0.02, 3.0),
    ];
    let scheme = |init: &Init| {
        let init = init.clone();
        from_fn(move |_| init.clone())
    };
    for (i, drawn) in inits.iter().enumerate() {
        let model = LinearConfig::new(400, 400).with_bias(false).init(&device).initialize(&scheme(drawn), 1).unwrap();
        for (j, planned) in inits.iter().enumerate() {
            let audit = model.plan(&scheme(planned)).unwrap().audit(&model).unwrap();
            assert_eq!(audit.is_started(), i == j, "{drawn} against {planned}\n{audit}");
            if i != j {
                let found = audit.lines()[0].findings[0].deviation;
                let expected = [Deviation::Distribution, Deviation::Bounds, Deviation::Outlier];
                assert!(expected.contains(&found), "{drawn} against {planned}\n{audit}");
            }
        }
    }
}

#[test]
fn orthogonal_matrices() {
    let device = device();
    let orthogonal = from_fn(|_| Init::orthogonal(2.0));
    let plan_of = |model: &burn::nn::Linear| model.plan(&orthogonal).unwrap();
    for (rows, columns) in [(64, 64), (96, 32), (32, 96)] {
        let linear = || LinearConfig::new(rows, columns).with_bias(false).init(&device);
        let model = linear().initialize(&orthogonal, 5).unwrap();
        assert!(plan_of(&model).audit(&model).unwrap().is_started());
        // A normal of the same std is none.
        let std = 2.0 / (rows.max(columns) as f64).sqrt();
        let model = linear().initialize(&from_fn(move |_| Init::normal(std)), 5).unwrap();
        let audit = plan_of(&model).audit(&model).unwrap();
        assert!(
            audit.lines()[0].findings.iter().any(|finding| finding.deviation == Deviation::Orthogonality),
            "{audit}"
        );
    }
}

#[test]
fn fills() {
    let device = device();
    let table = || EmbeddingConfig::new(50, 32).init(&device);
    for name in ["sinusoidal", "identity", "unit_rows", "unit_columns"] {
        let scheme = from_fn(move |_| Init::Fill(Fill::named(name)));
        let setup = Setup::new().role("weight", Role::TokenEmbedding);
        let model = setup.initialize(table(), &scheme, 11).unwrap();
        let plan = setup.plan(&model, &scheme).unwrap();
        let audit = plan.audit(&model).unwrap();
        assert!(audit.is_started(), "{name}\n{audit}");
        let audit = plan
            .audit(&ill(model, "weight", |i, x| {
                if i / 32 == 7 {
                    *x *= 1.5
                }
            }))
            .unwrap();
        assert!(!audit.is_started(), "{name}\n{audit}");
    }
}

/// A fill is computed once, and a second time only where the values may be another draw of it.
#[test]
fn fills_are_computed_no_more_than_needed() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let fill = Fill::new("counted", move |context, out: &mut [f32]| {
        counted.fetch_add(1, Ordering::Relaxed);
        context.stream.fill(&Distribution::Normal { mean: 0.0, std: 0.02 }, 0, out);
    });
    let linear = || LinearConfig::new(40, 30).with_bias(false).init(&device());
    let scheme = from_fn(move |_| Init::Fill(fill.clone()));
    let plan = linear().plan(&scheme).unwrap();
    let computed = |init: Init, started: bool| {
        let model = linear().initialize(&from_fn(move |_| init.clone()), 5).unwrap();
        calls.store(0, Ordering::Relaxed);
        assert_eq!(plan.audit(&model).unwrap().is_started(), started);
        calls.load(Ordering::Relaxed)
    };
    assert_eq!(computed(Init::normal(0.02), true), 2);
    assert_eq!(computed(Init::normal(0.03), false), 1);
}

#[test]
fn what_is_missing_lazy_or_of_another_shape() {
    let device = device();
    let (model, plan) = started();
    let audit = plan.audit(&nano(&device)).unwrap();
    assert!(audit.lines().iter().all(|line| line.findings[0].deviation == Deviation::NoValue), "{audit}");

    let deeper = model.plan(&Gpt2::new()).unwrap();
    let shallow = NanoGpt::new(2, 64, 1000, 32, &device).initialize(&Gpt2::new(), 7).unwrap();
    let audit = deeper.audit(&shallow).unwrap();
    let missing = |line: &&burn_init::audit::Line| line.findings[0].deviation == Deviation::Missing;
    assert_eq!(audit.deviations().filter(missing).count(), 16, "{audit}");

    let wider = NanoGpt::new(3, 32, 1000, 32, &device).initialize(&Gpt2::new(), 7).unwrap();
    let audit = plan.audit(&wider).unwrap();
    assert!(audit.lines().iter().all(|line| line.findings[0].deviation == Deviation::Shape), "{audit}");

    let error = plan.audit(&LinearConfig::new(4, 4).init(&device)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Audit);
}

/// A plan from a file knows no ids and finds the parameters by their paths.
#[test]
fn a_plan_from_a_file() {
    let (model, plan) = started();
    let plan: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    plan.audit(&model).unwrap().assert_started();
    let audit = plan.audit(&ill(model, C_FC, |_, x| *x *= 1.1)).unwrap();
    let back: Audit = serde_json::from_str(&serde_json::to_string(&audit).unwrap()).unwrap();
    assert_eq!(back, audit);
}

#[test]
fn ties() {
    #[derive(Module, Debug)]
    struct Tied {
        embedding: burn::nn::Embedding,
        body: burn::nn::Linear,
        lm_head: Param<Tensor<2>>,
    }
    let device = device();
    let embedding = EmbeddingConfig::new(100, 32).init(&device);
    let lm_head = embedding.weight.clone();
    let model = Tied { embedding, body: LinearConfig::new(32, 32).init(&device), lm_head };
    let model = model.initialize(&Gpt2Normal::new(), 1).unwrap();
    let plan = model.plan(&Gpt2Normal::new()).unwrap();
    plan.audit(&model).unwrap().assert_started();
    let audit = plan.audit(&ill(model, "lm_head", |_, x| *x *= 1.001)).unwrap();
    only(&audit, "embedding.weight", Deviation::Tie, Severity::Error);

    // A layer that is a copy of another one.
    let encoder = TransformerEncoderConfig::new(32, 64, 4, 2).init(&device).initialize(&Gpt2::new(), 1).unwrap();
    let plan = encoder.plan(&Gpt2::new()).unwrap();
    let first: Vec<f32> = encoder.layers[0].mha.query.weight.val().into_data().try_to_vec().unwrap();
    let audit = plan.audit(&ill(encoder, "layers.1.mha.query.weight", |i, x| *x = first[i])).unwrap();
    only(&audit, "layers.1.mha.query.weight", Deviation::Duplicate, Severity::Error);
}

#[test]
fn stacked_experts() {
    #[derive(Module, Debug)]
    struct Moe {
        experts: Experts,
    }
    #[derive(Module, Debug)]
    struct Experts {
        w_in: Param<Tensor<3>>,
    }
    let device = device();
    let model = || Moe { experts: Experts { w_in: crate::trees::raw([4, 64, 128], &device) } };
    let setup = Setup::new().role("experts.w_in", Role::MlpIn).layout("experts.w_in", burn_init::Layout::InOut);
    let model = setup.initialize(model(), &Gpt2Normal::new(), 2).unwrap();
    let plan = setup.plan(&model, &Gpt2Normal::new()).unwrap();
    plan.audit(&model).unwrap().assert_started();
    let audit = plan
        .audit(&ill(model, "experts.w_in", |i, x| {
            if i / (64 * 128) == 2 {
                *x *= 1.2
            }
        }))
        .unwrap();
    only(&audit, "experts.w_in", Deviation::Std, Severity::Error);
    assert!(audit.lines()[0].findings[0].text.starts_with("expert 2 of 4: std"), "{audit}");
}

/// What training does to gains, biases and matrices.
#[test]
fn a_trained_model() {
    struct Train(u32);
    impl ModuleMapper for Train {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let (id, tensor, mapper) = param.consume();
            let device = tensor.device();
            let shape = tensor.dims();
            let mut values: Vec<f32> = tensor.into_data().try_to_vec().unwrap();
            for value in &mut values {
                self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *value = 1.2 * *value + 0.01 * (self.0 >> 8) as f32 / 16_777_216.0;
            }
            Param::from_mapped_value(id, Tensor::from_data(TensorData::new(values, shape), &device), mapper)
        }
    }
    let (model, plan) = started();
    let audit = plan.audit(&model.map(&mut Train(1))).unwrap();
    assert!(audit.looks_trained() && audit.to_string().contains("the values look trained"), "{audit}");
    assert!(audit.lines().iter().all(|line| line.deviates()), "{audit}");
}

#[test]
fn errors_and_panics_show_the_table() {
    let (model, plan) = started();
    let audit = plan.audit(&ill(model, C_FC, |_, x| *x *= 1.1)).unwrap();
    let error = audit.check().unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Audit, Some(C_FC)));
    let text = error.to_string();
    assert!(text.starts_with("transformer.h.1.mlp.c_fc.weight [64, 256]: std 0.02"), "{text}");
    assert!(text.contains("1 of 52 lines are not as planned"), "{text}");
    let panic = std::panic::catch_unwind(|| audit.assert_started()).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains(C_FC));
}

/// Each scheme is found again, first or among those that nothing tells apart on this tree.
#[test]
fn schemes_are_identified() {
    let device = device();
    let mut found = 0;
    for (seed, (name, scheme, _)) in Scheme::all().into_iter().enumerate() {
        let model = NanoGpt::new(2, 64, 500, 32, &device);
        let setup = Setup::new();
        let setup = if name.starts_with("deepnorm") { setup.norms("**", NormPlacement::Post) } else { setup };
        let Ok(model) = setup.initialize(model, &scheme, seed as u64) else { continue };
        let identity = setup.identify(&model).unwrap();
        let fits = identity.fitting().any(|candidate| candidate.names.iter().any(|other| other == name));
        assert!(fits, "{name}\n{identity}");
        found += 1;
    }
    assert!(found > 40, "{found}");

    let model = nano(&device).initialize(&Gpt2::new(), 1).unwrap();
    let identity = identify(&ill(model, C_PROJ, |_, x| *x *= 6f32.sqrt())).unwrap();
    assert!(identity.closest().names.iter().any(|name| name == "gpt2"), "{identity}");
    let off: Vec<_> = identity.closest().audit.deviations().map(|line| line.path.as_str()).collect();
    assert_eq!(off, [C_PROJ]);
    // T5 and others need what a tree does not show; they are told, with the reason.
    assert!(!identity.inapplicable().is_empty());

    let uniform = nano(&device).initialize(&Xavier::uniform(), 1).unwrap();
    assert!(identify(&uniform).unwrap().closest().names.contains(&"xavier-uniform".to_string()));
}

/// What has no parameter fits nothing, and what has no value neither.
#[test]
fn nothing_to_identify() {
    use burn::nn::{DropoutConfig, LinearConfig};

    let error = identify(&DropoutConfig::new(0.1).init()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Audit);
    assert!(error.to_string().contains("nothing to compare"), "{error}");

    let device = device();
    let error = identify(&LinearConfig::new(4, 3).init(&device)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Audit);
    assert_eq!(
        error.to_string(),
        "weight [4, 3]: it holds no value, nor does any other parameter; initialize first or read a checkpoint"
    );
}

/// The report says which schemes were left out, and why.
#[test]
fn schemes_that_were_not_compared_are_told() {
    let identity = identify(&nano(&device()).initialize(&Gpt2::new(), 1).unwrap()).unwrap();
    let (name, reason) = &identity.inapplicable()[0];
    let line = format!(
        "{} schemes cannot start this tree and are not compared, {name} for example: {reason}",
        identity.inapplicable().len()
    );
    assert!(identity.to_string().lines().any(|other| other == line), "{identity}");
}
