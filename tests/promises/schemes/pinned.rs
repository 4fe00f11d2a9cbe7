//! What two plans differ in, and what a lock tells.

use burn_init::{Blueprint, Depth, ErrorKind, Gpt2, Init, Initializer, Lock, ModuleInit as _, Role, Scheme, Xavier};

use crate::{support::device, trees::NanoGpt};

fn nano(layers: usize) -> NanoGpt {
    NanoGpt::new(layers, 32, 50, 8, &device())
}

#[test]
fn diffs_say_what_changes() {
    let gpt2 = nano(2).plan(&Gpt2::new()).unwrap();
    assert!(gpt2.diff(&gpt2).is_empty() && gpt2.diff(&gpt2).to_string().is_empty());

    let released: Scheme = "gpt2-released".parse().unwrap();
    assert_eq!(
        gpt2.diff(&nano(2).plan(&released).unwrap()).to_string(),
        "transformer.wpe.weight: 8 x 32 normal(std = 0.02) -> 8 x 32 normal(std = 0.01)\n\
         transformer.h.*.attn.c_proj.weight: 32 x 32 normal(std = 0.01) -> 32 x 32 normal(std = 0.02)\n\
         transformer.h.*.mlp.c_proj.weight: 128 x 32 normal(std = 0.01) -> 128 x 32 normal(std = 0.02)\n"
    );

    // Layers that do not change alike have a line each.
    let per_layer = gpt2.diff(&nano(2).plan(&Gpt2::new().with_depth(Depth::per_layer())).unwrap());
    assert_eq!(
        per_layer.to_string(),
        "transformer.h.0.attn.c_proj.weight: 32 x 32 normal(std = 0.01) -> 32 x 32 normal(std = 0.014142)\n\
         transformer.h.0.mlp.c_proj.weight: 128 x 32 normal(std = 0.01) -> 128 x 32 normal(std = 0.014142)\n"
    );

    // One block of a packed weight, and a padding row.
    let zero_query = gpt2.diff(&nano(2).plan(&Gpt2::new().with(Role::Query, Init::Zeros).padding_row(3)).unwrap());
    assert_eq!(
        zero_query.to_string(),
        "transformer.wte.weight: 50 x 32 normal(std = 0.02) -> 50 x 32 normal(std = 0.02), row 3 = 0\n\
         transformer.h.*.attn.c_attn.weight[0..32]: 32 x 96 normal(std = 0.02) -> 32 x 96 zeros\n"
    );

    // What the printed digits do not show is a difference all the same; what is but rounding of an f64 is none.
    let nearly =
        |std: f64| gpt2.diff(&nano(2).plan(&Gpt2::new().with(Role::TokenEmbedding, Init::normal(std))).unwrap());
    assert_eq!(
        nearly(0.0200001).to_string(),
        "transformer.wte.weight: 50 x 32 normal(std = 0.02), in full 0, 0.02 -> 50 x 32 normal(std = 0.02), in full 0, 0.0200001\n"
    );
    assert!(nearly(0.02 * (1.0 + f64::EPSILON)).is_empty());
    assert_eq!(
        serde_json::to_value(nearly(0.03)).unwrap(),
        serde_json::json!([{
            "path": "transformer.wte.weight", "before": "50 x 32 normal(std = 0.02)", "after": "50 x 32 normal(std = 0.03)"
        }])
    );

    // A deeper model: new layers, and another factor in the old ones.
    let deeper = gpt2.diff(&nano(3).plan(&Gpt2::new()).unwrap());
    let new = deeper.changes().iter().filter(|change| change.before.is_none());
    assert!(new.clone().all(|change| change.path.starts_with("transformer.h.2.")) && new.count() == 16);
    assert_eq!(deeper.changes().iter().filter(|change| change.before.is_some()).count(), 4);
}

#[test]
fn locks_hold() {
    let plan = nano(2).plan(&Gpt2::new()).unwrap();
    let lock = plan.lock(42).unwrap();
    assert_eq!((lock.seed(), lock.plan()), (42, &plan));
    let file = serde_json::to_string(&lock).unwrap();
    let lock: Lock = serde_json::from_str(&file).unwrap();
    lock.check(&plan).unwrap();
    assert_ne!(plan.lock(43).unwrap(), lock);
    let absurd = Blueprint::new().linear("weight", [u64::MAX / 2, 8]).plan(&Xavier::normal()).unwrap();
    assert_eq!(absurd.lock(42).unwrap_err().kind(), ErrorKind::Shape);

    let fails = |lock: &Lock, plan| {
        let error = lock.check(plan).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Audit);
        error.to_string()
    };
    let other = nano(2).plan(&Gpt2::new().with_std(0.03)).unwrap();
    assert!(fails(&lock, &other).contains("normal(std = 0.02) -> 50 x 32 normal(std = 0.03)"));

    let close = nano(2).plan(&Gpt2::new().with_std(0.0200001)).unwrap();
    assert!(fails(&lock, &close).starts_with("transformer.wte.weight: the plan is not the one that was pinned"));

    // One digit of one hash, and the version of the streams.
    let hash = file.find("\"transformer.wte.weight\":\"").unwrap() + "\"transformer.wte.weight\":\"".len();
    let digit = if &file[hash..=hash] == "0" { "1" } else { "0" };
    let moved: Lock = serde_json::from_str(&format!("{}{digit}{}", &file[..hash], &file[hash + 1..])).unwrap();
    assert!(fails(&moved, &plan).starts_with("transformer.wte.weight: the values are not those that were pinned"));
    let older = file.replacen("\"stream_version\":", "\"stream_version\":9", 1);
    let older: Lock = serde_json::from_str(&older).unwrap();
    assert!(fails(&older, &plan).starts_with("pinned with version 9"));
}
