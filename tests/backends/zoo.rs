//! Models that show what a backend could get wrong, and their bits.

use std::collections::BTreeMap;

use burn::{
    module::{Module, ModuleVisitor, Param},
    nn::{Linear, LinearConfig, LinearLayout},
    tensor::{Device, Tensor, TensorData},
};
use burn_init::{Dtype, Error, Fill, Init, Initializer, Setup, from_fn, reference::TransformerConfig};

/// Every initial distribution.
pub fn distributions() -> Vec<Init> {
    vec![
        Init::Zeros,
        Init::Ones,
        Init::constant(0.1),
        Init::normal(0.02),
        Init::truncated_normal(0.02, 2.0),
        Init::truncated_normal_compensated(0.02, 1.0),
        Init::uniform(0.3),
        Init::xavier_uniform(1.0),
        Init::kaiming_normal(1.0),
        Init::lecun_normal(),
        Init::orthogonal(1.0),
        Init::Fill(Fill::named("unit_rows")),
        Init::Fill(Fill::named("sinusoidal")),
    ]
}

/// One layer for each distribution and memory layout.
#[derive(Module, Debug)]
pub struct Zoo {
    row: Vec<Linear>,
    col: Vec<Linear>,
}

/// The zoo, started on `device`: weights by their place in [`distributions`], biases uniform.
pub fn zoo(dtype: Option<Dtype>, seed: u64, device: &Device) -> Result<Zoo, Error> {
    let layers = |layout| {
        let linear = |_: &Init| LinearConfig::new(96, 80).with_layout(layout).init(device);
        distributions().iter().map(linear).collect()
    };
    let zoo = Zoo { row: layers(LinearLayout::Row), col: layers(LinearLayout::Col) };
    let scheme = from_fn(|param| {
        let place = param.path().split('.').nth(1).and_then(|place| place.parse::<usize>().ok())?;
        Some(if param.path().ends_with("bias") { Init::uniform(0.1) } else { distributions().remove(place) })
    });
    let setup = dtype.into_iter().fold(Setup::new(), Setup::dtype);
    setup.initialize(zoo, &scheme as &dyn Initializer, seed)
}

/// A Transformer with heads, packed by no one, untied, with learned positions and biases.
pub fn transformer() -> TransformerConfig {
    TransformerConfig::new(32, 16, 32, 2, 2).with_tied(false).with_seed(42)
}

/// Every float parameter by its path, as the device holds it, in row-major order of the shape that burn computes with.
pub fn bits<M: Module>(model: &M) -> BTreeMap<String, TensorData> {
    #[derive(Default)]
    struct Reader {
        path: Vec<String>,
        bits: BTreeMap<String, TensorData>,
    }

    impl ModuleVisitor for Reader {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.into());
        }

        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            assert!(param.is_initialized(), "{} holds no value", self.path.join("."));
            self.bits.insert(self.path.join("."), param.base().into_data());
        }
    }

    let mut reader = Reader::default();
    model.visit(&mut reader);
    reader.bits
}

/// Fails with the first parameter whose type, shape or bits differ.
#[track_caller]
pub fn assert_same_bits(found: &BTreeMap<String, TensorData>, expected: &BTreeMap<String, TensorData>) {
    assert!(found.keys().eq(expected.keys()), "other parameters");
    for (path, expected) in expected {
        let found = &found[path];
        assert_eq!((found.dtype(), found.shape()), (expected.dtype(), expected.shape()), "{path}");
        let first = found.as_bytes().iter().zip(expected.as_bytes()).position(|(a, b)| a != b);
        assert_eq!(first, None, "{path}: the first byte that differs");
    }
}

/// A digest of the bits, the same in every process of one build.
pub fn digest(bits: &BTreeMap<String, TensorData>) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bits.iter().for_each(|(path, data)| (path, data.as_bytes()).hash(&mut hasher));
    hasher.finish()
}
