//! What is attached stays through burn's doings, once, and is told apart from what is there already.

use burn::{
    module::{Lora, Module, ModuleVisitor, Param},
    nn::{
        Linear, LinearConfig, LinearLayout,
        attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig},
    },
    optim::{GradientsParams, SgdConfig},
    tensor::{Tensor, TensorData},
};
use burn_init::{Init, Initializer, Layout, ModuleInit as _, Role, Rule, Setup, from_fn, parametrization::Multiplier};

use crate::{
    support::{device, values},
    trees::{NanoBlock, own},
};

/// What a visitor sees attached: path and factors.
pub fn attached<M: Module>(model: &M) -> Vec<(String, String)> {
    #[derive(Default)]
    struct Seen {
        path: Vec<String>,
        found: Vec<(String, String)>,
    }

    impl ModuleVisitor for Seen {
        fn enter_module(&mut self, name: &str, container_type: &str) {
            if container_type == "Multiplier" {
                self.found.push((self.path[..self.path.len() - 1].join("."), name.into()));
            }
            self.path.push(name.into());
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }
    }

    let mut seen = Seen::default();
    model.visit(&mut seen);
    seen.found
}

fn times(forward: f64, role: Role) -> impl Initializer {
    from_fn(move |param| {
        let forward = if param.role() == role { forward } else { 1.0 };
        let init = if param.role().is_bias() { Init::Zeros } else { Init::normal(0.2) };
        Rule { forward, ..init.into() }
    })
}

fn attention(device: &burn::tensor::Device) -> MultiHeadAttention {
    MultiHeadAttentionConfig::new(8, 2).init(device)
}

fn branch(model: &MultiHeadAttention) -> TensorData {
    let device = model.devices()[0].clone();
    let x: Vec<f32> = (0..24).map(|i| (i as f32 * 0.7).sin()).collect();
    let x = Tensor::<3>::from_data(TensorData::new(x, [1, 3, 8]), &device);
    model.forward(MhaInput::self_attn(x)).context.into_data()
}

fn halved(data: &TensorData) -> TensorData {
    let shape = data.shape().clone();
    TensorData::new(data.clone().try_into_vec::<f32>().unwrap().iter().map(|x| x * 0.5).collect::<Vec<_>>(), shape)
}

#[test]
fn a_branch_is_halved_exactly() {
    let plain = attention(&device()).initialize(&times(1.0, Role::AttentionOutput), 3).unwrap();
    let scheme = times(0.5, Role::AttentionOutput);
    let model = attention(&device()).initialize(&scheme, 3).unwrap();
    assert_eq!(attached(&plain), []);
    assert_eq!(attached(&model), [("output.weight".to_string(), "0.5".to_string())]);
    // The draw is the same, no parameter is added, and the plan does not warn.
    assert_eq!(values(&plain), values(&model));
    assert_eq!(plain.num_params(), model.num_params());
    let warnings = |forward| model.plan(&times(forward, Role::AttentionOutput)).map(|plan| plan.warnings().to_vec());
    assert_eq!(warnings(0.5).unwrap(), plain.plan(&times(1.0, Role::AttentionOutput)).unwrap().warnings());
    branch(&model).assert_eq(&halved(&branch(&plain)), true);

    // Again is not twice, and on values from a checkpoint `attach` alone does it.
    let again = model.clone().initialize(&scheme, 3).unwrap();
    branch(&again).assert_eq(&branch(&model), true);
    let loaded = attention(&device()).load_record(model.clone().into_record());
    branch(&loaded).assert_eq(&branch(&plain), true);
    let restored = loaded.attach(&scheme).unwrap().attach(&scheme).unwrap();
    branch(&restored).assert_eq(&branch(&model), true);

    // A plan from a file says it, too.
    let file = serde_json::to_string(&model.plan(&scheme).unwrap()).unwrap();
    let replayed: burn_init::Plan = serde_json::from_str(&file).unwrap();
    let restored = attention(&device()).load_record(model.clone().into_record()).attach(&replayed).unwrap();
    branch(&restored).assert_eq(&branch(&model), true);

    // Folding keeps what it computes and leaves no multiplier.
    let folded = model.clone().materialize();
    branch(&folded).assert_eq(&branch(&model), true);
    assert_eq!(attached(&folded), []);
    // It survives the ways of burn.
    for kept in
        [model.valid(), model.clone().fork(&device()), model.clone().to_device(&device()), model.clone().freeze()]
    {
        assert_eq!(attached(&kept), attached(&model));
        branch(&kept).assert_eq(&branch(&model), true);
    }
}

/// The gradient reaches the stored value through the factor, and the step leaves the factor where it is.
#[test]
fn it_trains_through_the_base() {
    let device = device().autodiff();
    let step = |scheme: &dyn Initializer| {
        let model = LinearConfig::new(3, 2).with_bias(false).init(&device);
        let setup = Setup::new().role("weight", Role::OutputHead);
        let model: Linear = setup.initialize(model, scheme, 4).unwrap();
        let before = values(&model)["weight"].clone();
        let loss = model.forward(Tensor::<2>::ones([1, 3], &device)).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let model = SgdConfig::new().init().step(1.0, model, gradients);
        let moved: Vec<f32> = values(&model)["weight"].iter().zip(before).map(|(now, before)| now - before).collect();
        (attached(&model), moved)
    };
    let (with, moved) = step(&times(0.25, Role::OutputHead));
    assert_eq!(with, [("weight".to_string(), "0.25".to_string())]);
    assert!(moved.iter().all(|delta| (delta + 0.25).abs() < 1e-6), "{moved:?}");
    let (without, moved) = step(&times(1.0, Role::OutputHead));
    assert_eq!(without, []);
    assert!(moved.iter().all(|delta| (delta + 1.0).abs() < 1e-6), "{moved:?}");
}

/// A lazy model stays lazy: attaching draws nothing.
#[test]
fn attaching_draws_nothing() {
    let layer = own::Linear::out_in(4, 6, false, &device());
    let setup = Setup::new().role("weight", Role::OutputHead).layout("weight", Layout::OutIn);
    let layer = setup.attach(layer, &times(0.5, Role::OutputHead)).unwrap();
    assert!(!layer.weight.is_initialized());
    assert_eq!(layer.weight.reparameterization::<Multiplier>().unwrap().factor(), Some(0.5));
}

/// Of a packed weight and its bias only the columns of the block, in either layout.
#[test]
fn blocks() {
    let device = device();
    let scheme = from_fn(|param| {
        let query = [Some(param.role()), param.weight_role()].contains(&Some(Role::Query));
        Rule { forward: if query { 2.0 } else { 1.0 }, ..Init::normal(0.5).into() }
    });
    let block = NanoBlock::new(4, &device).initialize(&scheme, 1).unwrap();
    let attention = &block.attn.c_attn;
    let factors = |param: &Param<Tensor<2>>, base: Vec<f32>| {
        let now = param.val().into_data().try_into_vec::<f32>().unwrap();
        now.iter().zip(base).map(|(now, base)| now / base).collect::<Vec<f32>>()
    };
    let base = |param: &Param<Tensor<2>>| param.base().into_data().try_into_vec::<f32>().unwrap();
    for (i, factor) in factors(&attention.weight, base(&attention.weight)).iter().enumerate() {
        assert_eq!(*factor, if i % 12 < 4 { 2.0 } else { 1.0 });
    }
    let bias = attention.bias.as_ref().unwrap();
    let ratio = (bias.val() / bias.base()).into_data();
    ratio.assert_eq(&TensorData::from([2f32, 2., 2., 2., 1., 1., 1., 1., 1., 1., 1., 1.]), true);

    // Stored [out, in] the columns are rows.
    let layer = own::Linear::out_in(2, 6, false, &device);
    let setup = Setup::new().packed("weight", [Role::Query, Role::Key, Role::Value]).layout("weight", Layout::OutIn);
    let layer = setup.initialize(layer, &scheme, 1).unwrap();
    assert_eq!(factors(&layer.weight, base(&layer.weight)), [2., 2., 2., 2., 1., 1., 1., 1., 1., 1., 1., 1.]);

    // burn's transposed layout computes with [in, out].
    let layer = LinearConfig::new(2, 6).with_layout(LinearLayout::Col).with_bias(false).init(&device);
    let setup = Setup::new().packed("weight", [Role::Query, Role::Key, Role::Value]);
    let layer: Linear = setup.initialize(layer, &scheme, 1).unwrap();
    assert_eq!(factors(&layer.weight, base(&layer.weight)), [2., 2., 1., 1., 1., 1., 2., 2., 1., 1., 1., 1.]);
}

#[test]
fn conflicts_are_errors() {
    let head = || times(0.5, Role::AttentionOutput);
    let model = || attention(&device()).initialize(&head(), 1).unwrap();
    let text = |result: Result<MultiHeadAttention, burn_init::Error>| result.unwrap_err().to_string();
    assert_eq!(
        text(model().initialize(&times(0.25, Role::AttentionOutput), 1)),
        "output.weight [8, 8]: it is multiplied by 0.5, and the scheme asks for 0.25; \
         build the model anew, or fold what is there with model.materialize()"
    );
    assert_eq!(
        text(model().initialize(&times(1.0, Role::AttentionOutput), 1)),
        "output.weight [8, 8]: it is multiplied by 0.5, and the scheme asks for no multiplier; \
         build the model anew, or fold what is there with model.materialize()"
    );
    assert!(model().materialize().initialize(&times(0.25, Role::AttentionOutput), 1).is_ok());
    let plain = attention(&device()).initialize(&times(1.0, Role::AttentionOutput), 1).unwrap();
    let adapted = plain.apply_lora(Lora::new(2, 4.0));
    assert_eq!(
        text(adapted.clone().attach(&head())),
        "output.weight [8, 8]: the scheme multiplies it by 0.5, and burn's one place for that is taken by lora; \
         attach first and materialize, then add the adapter"
    );
    assert!(adapted.attach(&times(1.0, Role::AttentionOutput)).is_ok());
    // A part is started without a look at the rest.
    assert!(model().initialize_only(Role::Query, &times(1.0, Role::Query), 2).is_ok());
}

/// What a file or a record does not hold is missed where it is read: by the audit, by the checkpoint, by the optimizer's groups.
#[test]
fn multipliers_are_not_lost_in_silence() {
    use burn::{module::Module as _, optim::AdamWConfig};
    use burn_init::{ErrorKind, checkpoint::Checkpoint, reference::TransformerConfig, schemes::Mup};

    let device = crate::support::device();
    let config = |width| TransformerConfig::new(60, 16, width, 2, 4).with_tied(false);
    let setup = config(64).setup();
    let build = |width| config(width).build(&device).unwrap();
    let scheme = Mup::from(setup.base_shapes(&build(64), &build(32)).unwrap());
    let plan = setup.plan(&build(64), &scheme).unwrap();
    let model = setup.initialize(build(64), &scheme, 1).unwrap();
    setup.audit(&model, &plan).unwrap().assert_started();

    let bare = build(64).load_record(model.into_record());
    let error = setup.audit(&bare, &plan).unwrap().check().unwrap_err().to_string();
    assert!(error.contains("is to be multiplied by 0.5 in the forward pass, and is not"), "{error}");

    let folder = std::env::temp_dir().join(format!("burn-init-multipliers-{}", std::process::id()));
    let error = Checkpoint::new(&plan, 1).safetensors(&folder).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Attached, "{error}");
    assert!(Checkpoint::new(&plan, 1).stored_only().files().is_ok());

    let error = setup.adamw(&build(128), &plan, &AdamWConfig::new()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Shape, "{error}");
}
