//! Any split into ranges, on any number of threads, gives the same bits.

use burn_init::sample::{Distribution, Element, Stream};
use half::{bf16, f16};
use proptest::prelude::*;

const DISTRIBUTIONS: [Distribution; 5] = [
    Distribution::Uniform { low: -0.3, high: 0.7 },
    Distribution::Normal { mean: 0.0, std: 0.02 },
    Distribution::TruncatedNormal { mean: 0.0, std: 0.02, low: -2.0, high: 2.0 },
    Distribution::TruncatedNormal { mean: 1.0, std: 0.5, low: -1.0, high: 4.0 },
    Distribution::TruncatedNormal { mean: 0.0, std: 1.0, low: 2.0, high: f64::INFINITY },
];

fn fill<E: Element>(stream: Stream, distribution: &Distribution, offset: u64, len: usize) -> Vec<E> {
    let mut out = vec![E::default(); len];
    stream.fill(distribution, offset, &mut out);
    out
}

fn stream() -> Stream {
    Stream::new(42, "blocks.3.attn.query.weight")
}

/// C36: the lengths at which generators that work in pairs or blocks go wrong.
#[test]
fn a_tensor_is_a_prefix_of_a_longer_one() {
    fn check<E: Element>(distribution: &Distribution) {
        let longest: Vec<E> = fill(stream(), distribution, 0, 1024);
        for len in [0, 1, 2, 3, 5, 7, 8, 9, 63, 64, 65, 255, 256, 257, 1023, 1024] {
            assert_eq!(fill::<E>(stream(), distribution, 0, len), longest[..len], "{distribution:?}, {len} values");
        }
    }
    for distribution in &DISTRIBUTIONS {
        check::<f32>(distribution);
        check::<f64>(distribution);
        check::<f16>(distribution);
        check::<bf16>(distribution);
    }
}

#[test]
fn no_position_is_constant_over_seeds() {
    for distribution in &DISTRIBUTIONS {
        let over_seeds: Vec<Vec<f32>> = (0..8).map(|seed| fill(Stream::new(seed, "w"), distribution, 0, 300)).collect();
        for i in 0..300 {
            assert!(over_seeds.iter().any(|values| values[i] != over_seeds[0][i]), "{distribution:?}, position {i}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(42),
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_range_is_a_range_of_the_whole(which in 0..5_usize, offset in 0..5000_usize, len in 0..3000_usize) {
        let whole: Vec<f32> = fill(stream(), &DISTRIBUTIONS[which], 0, 8000);
        let range: Vec<f32> = fill(stream(), &DISTRIBUTIONS[which], offset as u64, len);
        prop_assert_eq!(range, &whole[offset..offset + len]);
    }
}

/// Far beyond what a 32-bit index reaches, a range is still a range.
#[test]
fn offsets_are_64_bits_wide() {
    for offset in [(1 << 32) - 100, (1 << 34) - 100, (1 << 40) - 100, u64::MAX - 1000] {
        let whole: Vec<f32> = fill(stream(), &DISTRIBUTIONS[1], offset, 600);
        let part: Vec<f32> = fill(stream(), &DISTRIBUTIONS[1], offset + 99, 301);
        assert_eq!(part, whole[99..400], "{offset}");
        let low = fill::<f32>(stream(), &DISTRIBUTIONS[1], offset & 0xffff_ffff, 600);
        assert_eq!(whole == low, offset < 1 << 32, "{offset}");
    }
}

/// C49: a matrix of 512 x 512 in 2, 4 and 8 shards of rows or of columns.
#[test]
fn shards_are_pieces_of_the_whole_and_no_two_are_alike() {
    const SIDE: usize = 512;
    let normal = &DISTRIBUTIONS[1];
    let whole: Vec<f32> = fill(stream(), normal, 0, SIDE * SIDE);
    for count in [2, 4, 8] {
        let width = SIDE / count;
        let by_rows: Vec<Vec<f32>> =
            (0..count).map(|shard| fill(stream(), normal, (shard * width * SIDE) as u64, width * SIDE)).collect();
        assert_eq!(by_rows.concat(), whole);
        let by_columns: Vec<Vec<f32>> = (0..count)
            .map(|shard| {
                (0..SIDE).flat_map(|row| fill(stream(), normal, (row * SIDE + shard * width) as u64, width)).collect()
            })
            .collect();
        for (shard, columns) in by_columns.iter().enumerate() {
            for (row, piece) in columns.chunks(width).enumerate() {
                assert_eq!(piece, &whole[row * SIDE + shard * width..][..width]);
            }
        }
        for shards in [by_rows, by_columns] {
            for (i, shard) in shards.iter().enumerate() {
                assert!(!shards[..i].contains(shard), "shards of {count} alike");
            }
        }
    }
}

/// C47, and C46: neither who else draws, nor in which order, nor on which thread.
#[test]
fn threads_and_order_change_nothing() {
    const LEN: usize = 300_000;
    let paths = ["wte.weight", "blocks.0.attn.query.weight", "blocks.0.mlp.up.weight", "head.weight"];
    let draw = |path| fill::<f32>(Stream::new(42, path), &DISTRIBUTIONS[1], 0, LEN);
    let alone = paths.map(draw);
    assert_eq!(alone, paths.map(draw), "twice in one process");
    std::thread::scope(|scope| {
        for first in 0..8 {
            let alone = &alone;
            scope.spawn(move || {
                for i in (0..paths.len()).map(|i| (i + first) % paths.len()) {
                    assert_eq!(draw(paths[i]), alone[i], "{}", paths[i]);
                }
            });
        }
    });
}

#[cfg(feature = "rayon")]
#[test]
fn the_size_of_the_pool_changes_nothing() {
    const LEN: usize = 1_000_003;
    let draw = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| DISTRIBUTIONS.map(|distribution| fill::<f32>(stream(), &distribution, 77, LEN)))
    };
    let one = draw(1);
    for threads in [2, 3, 8] {
        assert_eq!(draw(threads), one, "{threads} threads");
    }
}
