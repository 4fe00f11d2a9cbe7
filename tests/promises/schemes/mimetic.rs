//! Two parameters of one matrix: their product is near the identity, whoever is drawn first and whoever is left out.

use burn_init::{ErrorKind, Init, Plan, Scheme, Setup, Side, schemes::Mimetic};

use crate::{
    support::{device, values},
    trees::{Llama, NanoGpt},
};

const D: usize = 64;

fn llama(kv: usize) -> Llama {
    Llama::new(2, D, kv, 96, 50, &device())
}

/// `A B` for `A` `[m, n]` and `B` `[n, m]`, or `A B'` for `B` `[m, n]`.
fn product(a: &[f32], b: &[f32], n: usize, transposed: bool) -> Vec<f64> {
    let m = a.len() / n;
    let at = |k: usize, j: usize| f64::from(if transposed { b[j * n + k] } else { b[k * m + j] });
    let entry = |i: usize, j: usize| (0..n).map(|k| f64::from(a[i * n + k]) * at(k, j)).sum();
    (0..m).flat_map(|i| (0..m).map(move |j| (i, j))).map(|(i, j)| entry(i, j)).collect()
}

/// The columns of one head.
fn head(values: &[f32], width: usize, start: usize, len: usize) -> Vec<f32> {
    values.chunks(width).flat_map(|row| row[start..start + len].to_vec()).collect()
}

/// Mean of the diagonal, and the root mean square beside it.
fn diagonal(product: &[f64]) -> (f64, f64) {
    let d = (product.len() as f64).sqrt() as usize;
    let mean = (0..d).map(|i| product[i * d + i]).sum::<f64>() / d as f64;
    let beside = product.iter().enumerate().filter(|(i, _)| i / d != i % d).map(|(_, x)| x * x).sum::<f64>();
    (mean, (beside / (d * (d - 1)) as f64).sqrt())
}

/// With one head nothing is cut off: the products are `b I + a Z` with `Z ~ N(0, 1/d)` itself.
#[test]
fn products_are_near_the_identity() {
    let drawn = values(&Setup::new().heads("**", 1).initialize(llama(D), &Mimetic::new(), 1).unwrap());
    let part = |layer: usize, name: &str| &drawn[&format!("model.layers.{layer}.self_attn.{name}.weight")];
    for layer in 0..2 {
        for (identity, noise, product) in [
            (0.7, 0.7, product(part(layer, "q_proj"), part(layer, "k_proj"), D, true)),
            (-0.4, 0.4, product(part(layer, "v_proj"), part(layer, "o_proj"), D, false)),
        ] {
            let (mean, beside) = diagonal(&product);
            let std = noise / (D as f64).sqrt();
            // A mean of d values, and a root mean square of d(d - 1).
            assert!((mean - identity).abs() < 5.0 * std / (D as f64).sqrt(), "{mean}");
            assert!((beside / std - 1.0).abs() < 5.0 / ((2 * D * (D - 1)) as f64).sqrt(), "{beside}, {std}");
        }
    }
    // Another layer's key does not fit, nor that of another seed.
    let (mean, _) = diagonal(&product(part(0, "q_proj"), part(1, "k_proj"), D, true));
    assert!(mean.abs() < 0.3, "{mean}");
}

/// In each head both sides are orthogonal, and of the same lengths; heads differ. Packed and apart.
#[test]
fn heads_are_cut_by_their_singular_values() {
    const HEADS: usize = 4;
    let rank = D / HEADS;
    let setup = Setup::new().heads("**", HEADS as u64);
    let apart = values(&setup.initialize(llama(D), &Mimetic::new(), 1).unwrap());
    let packed = values(&setup.initialize(NanoGpt::new(2, D, 50, 8, &device()), &Mimetic::new(), 1).unwrap());
    let packed = &packed["transformer.h.1.attn.c_attn.weight"];
    let layer = |name: &str| &apart[&format!("model.layers.1.self_attn.{name}.weight")];
    let mut heads = Vec::new();
    for at in 0..HEADS {
        let start = at * rank;
        heads.push((head(layer("q_proj"), D, start, rank), head(layer("k_proj"), D, start, rank)));
        heads.push((head(packed, 3 * D, start, rank), head(packed, 3 * D, D + start, rank)));
    }
    for (query, key) in &heads {
        let gram = |side: &[f32], i: usize, j: usize| -> f64 {
            side.chunks(rank).map(|row| f64::from(row[i]) * f64::from(row[j])).sum()
        };
        for i in 0..rank {
            let value = gram(query, i, i);
            // The largest of A = 0.7 (I + Z) are below 0.7 (1 + 2) and above 0.7.
            assert!((gram(key, i, i) / value - 1.0).abs() < 1e-5 && (0.7..2.2).contains(&value), "{value}");
            for j in 0..i {
                assert!(gram(query, i, j).abs() < 1e-5 && gram(key, i, j).abs() < 1e-5);
            }
        }
        assert_eq!(heads.iter().filter(|(other, _)| other == query).count(), 1);
    }
}

/// Each side is a function of the seed and of its attention's name: alone or with the other, as a plan or from its file.
#[test]
fn sides_are_addressable() {
    let setup = Setup::new().heads("**", 4);
    let scheme = Mimetic::over(Scheme::gpt2());
    let whole = values(&setup.initialize(llama(D), &scheme, 3).unwrap());
    for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
        let path = format!("model.layers.1.self_attn.{name}.weight");
        let other = setup.initialize(llama(D), &Scheme::gpt2(), 9).unwrap();
        let alone = values(&setup.initialize_only(other, path.as_str(), &scheme, 3).unwrap());
        assert_eq!(alone[&path], whole[&path]);
    }
    let plan = setup.plan(&llama(D), &scheme).unwrap();
    let query = plan.get("model.layers.1.self_attn.q_proj.weight").unwrap();
    let Init::Split(split) = &query.rule().init else { panic!("{}", query.rule()) };
    assert_eq!((split.side, split.of.as_str()), (Side::Left, "model.layers.1.self_attn.query_key"));
    assert!(query.std().is_nan());
    let replayed: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(values(&setup.initialize(llama(D), &replayed, 3).unwrap()), whole);
    // Folded, the layers are one.
    let folded = format!("{plan:#}");
    assert_eq!(folded.matches("left of model.layers.*.self_attn.query_key: 0.7 I + 0.7 Z").count(), 1, "{folded}");
    assert!(!folded.contains("layers.0.") && !folded.contains("layers.1."), "{folded}");
    plan.lock(3).unwrap().check(&plan).unwrap();
    // The rest is the base's.
    let base = setup.plan(&llama(D), &Scheme::gpt2()).unwrap();
    assert_eq!(plan.get("model.layers.0.mlp.down_proj.weight"), base.get("model.layers.0.mlp.down_proj.weight"));
}

#[test]
fn what_has_no_product_is_an_error() {
    let fails = |setup: Setup, model: &Llama, text: &str| {
        let error = setup.plan(model, &Mimetic::new()).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        error.kind()
    };
    let heads = |heads| Setup::new().heads("**", heads);
    assert_eq!(fails(heads(4), &llama(D / 2), "have no square product"), ErrorKind::Shape);
    assert_eq!(fails(Setup::new(), &llama(D), "state it: .heads(\"**\", 12)"), ErrorKind::MissingFact);
    assert_eq!(fails(heads(5), &llama(D), "not 5 heads of equal width"), ErrorKind::Shape);
    let renamed = heads(4).role("model.layers.*.self_attn.k_proj.weight", burn_init::Role::Linear);
    assert_eq!(fails(renamed, &llama(D), "without a parameter of the role key"), ErrorKind::Shape);
}
