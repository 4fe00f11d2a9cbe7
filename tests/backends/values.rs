//! A drawn value is the same on every backend, to the bit.

use burn::{
    nn::LinearConfig,
    tensor::{DType, Device, Tensor},
};
use burn_init::{Dtype, ErrorKind, Init, ModuleInit as _, Scheme, Xavier};

use crate::{
    under_test,
    zoo::{assert_same_bits, bits, distributions, transformer, zoo},
};

/// C48: every distribution in every precision that the device has, in both memory layouts of `Linear`; the others are refused.
#[test]
fn every_distribution_and_precision() {
    check_precisions(&under_test());
}

pub fn check_precisions(device: &Device) {
    let flex = Device::flex();
    let mut drawn = Vec::new();
    for (dtype, burns) in
        [(Dtype::F32, DType::F32), (Dtype::F64, DType::F64), (Dtype::F16, DType::F16), (Dtype::BF16, DType::BF16)]
    {
        if device.supports_dtype(burns) {
            let found = bits(&zoo(Some(dtype), 7, device).unwrap());
            assert!(found.values().all(|data| data.dtype() == burns));
            assert_same_bits(&found, &bits(&zoo(Some(dtype), 7, &flex).unwrap()));
            drawn.push(burns);
        } else {
            let refused = zoo(Some(dtype), 7, device).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Config, "{refused}");
            assert!(refused.to_string().contains(&format!("has no {burns:?}")), "{refused}");
        }
    }
    println!("{device:?}: bits equal in {drawn:?}");
    assert!(drawn.contains(&DType::F32));
}

/// The check above can fail: another seed has other bits, but where nothing is drawn.
#[test]
fn another_seed_differs() {
    let device = under_test();
    let (found, other) = (bits(&zoo(None, 7, &device).unwrap()), bits(&zoo(None, 8, &device).unwrap()));
    let same: Vec<&str> = found.iter().filter(|(path, data)| other[*path] == **data).map(|(path, _)| &**path).collect();
    let drawn = |init: &Init| match init {
        Init::Zeros | Init::Ones | Init::Constant { .. } => false,
        Init::Fill(fill) => fill.name() != "sinusoidal",
        _ => true,
    };
    let fixed = distributions().into_iter().enumerate().filter(|(_, init)| !drawn(init));
    let mut expected: Vec<String> =
        fixed.flat_map(|(place, _)| [format!("col.{place}.weight"), format!("row.{place}.weight")]).collect();
    expected.sort();
    assert_eq!(same, expected);
    assert_eq!(same.len(), 8);
}

/// Published schemes on a whole model, on the plain device and on its autodiff twin.
#[test]
fn schemes() {
    let (device, flex) = (under_test(), Device::flex());
    for name in ["gpt2", "torch-default", "olmo-mitchell", "t5"] {
        let config = transformer().with_scheme(name.parse::<Scheme>().unwrap());
        let expected = bits(&config.init(&flex).unwrap());
        assert_same_bits(&bits(&config.init(&device).unwrap()), &expected);
        assert_same_bits(&bits(&config.init(&device.clone().autodiff()).unwrap()), &expected);
    }
}

/// C49: shards on the device, put together there, are the whole.
#[test]
fn shards() {
    let device = under_test();
    let linear = LinearConfig::new(96, 80).with_bias(false).init(&device);
    let plan = linear.plan(&Xavier::normal()).unwrap();
    let whole = linear.initialize(&Xavier::normal(), 7).unwrap().weight.val().into_data();
    for (axis, parts) in [(0, 2), (0, 3), (1, 4), (1, 8)] {
        let part = |part| plan.whole("weight", 7).unwrap().split(axis, part, parts).unwrap();
        let parts = (0..parts).map(|i| part(i).tensor::<2>(&device).unwrap()).collect();
        assert_eq!(Tensor::cat(parts, axis).into_data(), whole);
    }
}

/// C47: twice, and on 8 threads at once.
#[test]
fn repeat_and_threads() {
    let device = under_test();
    let expected = bits(&zoo(None, 7, &device).unwrap());
    assert_same_bits(&bits(&zoo(None, 7, &device).unwrap()), &expected);
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..8).map(|_| scope.spawn(|| bits(&zoo(None, 7, &device).unwrap()))).collect();
        started.into_iter().for_each(|thread| assert_same_bits(&thread.join().unwrap(), &expected));
    });
}
