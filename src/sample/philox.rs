//! Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as
//! 1, 2, 3" (SC 2011).

const ROUNDS: u32 = 10;
const MULTIPLIER: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const LOW: u64 = 0xFFFF_FFFF;

/// Blocks that are computed together.
pub(super) const LANES: usize = 64;

/// The four words of `LANES` successive blocks: `words[k][i]` is word `k` of block `i`.
pub(super) type Words = [[u32; LANES]; 4];

/// Each number lives in the low half of a 64-bit lane and what is in the high half is never read, so that a round is two
/// widening multiplications, two shifts and four exclusive ors on any vector unit.
#[inline(always)]
fn rounds(counter: [u64; 4], key: [u32; 2]) -> [u64; 4] {
    let [mut a, mut b, mut c, mut d] = counter;
    for round in 0..ROUNDS {
        let left = (a & LOW) * MULTIPLIER[0];
        let right = (c & LOW) * MULTIPLIER[1];
        let bump = |i: usize| u64::from(key[i].wrapping_add(WEYL[i].wrapping_mul(round)));
        a = (right >> 32) ^ b ^ bump(0);
        b = right;
        c = (left >> 32) ^ d ^ bump(1);
        d = left;
    }
    [a, b, c, d]
}

/// The block at a counter, least significant word first.
#[cfg(test)]
pub(super) fn block(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    rounds(counter.map(u64::from), key).map(|word| word as u32)
}

/// The blocks `LANES * tile ..` of a stream: the counter is the block's index below and the stream above.
#[inline(always)]
pub(super) fn tile(key: [u32; 2], stream: u64, tile: u64, words: &mut Words) {
    let first = tile.wrapping_mul(LANES as u64);
    let [w0, w1, w2, w3] = words;
    for i in 0..LANES {
        let [a, b, c, d] = rounds([(first & LOW) | i as u64, first >> 32, stream & LOW, stream >> 32], key);
        w0[i] = a as u32;
        w1[i] = b as u32;
        w2[i] = c as u32;
        w3[i] = d as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that Random123 ships for philox4x32 with ten rounds.
    #[test]
    fn random123_known_answers() {
        assert_eq!(block([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(block([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            block([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn a_tile_is_its_blocks() {
        let (key, stream) = ([0xa409_3822, 0x299f_31d0], 0x0370_7344_1319_8a2e);
        for index in [0, 1, (1 << 26) - 1, 1 << 26, u64::MAX / LANES as u64] {
            let mut words = [[0; LANES]; 4];
            tile(key, stream, index, &mut words);
            for i in 0..LANES {
                let at = index * LANES as u64 + i as u64;
                let expected = block([at as u32, (at >> 32) as u32, 0x1319_8a2e, 0x0370_7344], key);
                assert_eq!(words.each_ref().map(|word| word[i]), expected, "tile {index}, lane {i}");
            }
        }
    }

    /// The words of one stream, in the order in which they become values, for the tests of Brown's dieharder (installed by a
    /// package of that name): `cargo test --release dieharder -- --ignored --nocapture`, most of an hour, or a part of them
    /// with `DIEHARDER="-d 203 -n 14"`. One result in a hundred is called weak by chance.
    #[test]
    #[ignore = "an hour, and needs dieharder"]
    fn dieharder() {
        use std::io::Write;
        let tests = std::env::var("DIEHARDER").unwrap_or_else(|_| "-a".into());
        let mut battery = std::process::Command::new("dieharder")
            .args(tests.split_whitespace())
            .args(["-g", "200", "-k", "2"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("dieharder is installed");
        let mut pipe = battery.stdin.take().unwrap();
        let mut words = [[0; LANES]; 4];
        for index in 0.. {
            tile([42, 0], 0x0123_4567_89ab_cdef, index, &mut words);
            let bytes: Vec<u8> = words.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
            if pipe.write_all(&bytes).is_err() {
                break;
            }
        }
        assert!(battery.wait().unwrap().success());
    }
}
