//! A parameter's stream of values, each of which can be computed on its own.

use super::{
    dispatch::{Job, dispatch},
    distribution::Distribution,
    element::Element,
    normal::Normal,
    philox::{self, LANES, Words},
    pieces::each,
    truncated::Truncated,
    uniform::Uniform,
};

/// Values that are computed together: value `i` comes from word `(i mod TILE) / LANES` of block `(i / TILE) LANES + i mod LANES`,
/// so that the words of neighbouring blocks are stored as they are computed.
pub(super) const TILE: usize = 4 * LANES;

/// Values in one piece of parallel work.
const CHUNK: usize = 1 << 16;

/// How the words of a tile become values.
pub(super) trait Draw: Copy + Sync {
    fn draw<E: Element>(&self, words: &Words, out: &mut [E; TILE]);
}

/// The values of one parameter: a function of the seed, the path and the index, and of nothing else.
///
/// The words come from Philox4x32-10, keyed by the seed. Its 128-bit counter is the index of the block in the low half and
/// the 64-bit FNV-1a hash of the path's UTF-8 bytes in the high half. See [`STREAM_VERSION`](super::STREAM_VERSION).
///
/// ```
/// # use burn_init::sample::{Distribution, Stream};
/// let stream = Stream::new(42, "blocks.0.attn.query.weight");
/// let normal = Distribution::Normal { mean: 0.0, std: 0.02 };
///
/// let mut whole = [0.0_f32; 100];
/// stream.fill(&normal, 0, &mut whole);
///
/// let mut part = [0.0_f32; 10];
/// stream.fill(&normal, 50, &mut part);
/// assert_eq!(part, whole[50..60]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    pub(super) key: [u32; 2],
    pub(super) stream: u64,
}

impl Stream {
    /// The stream of the parameter at a path.
    pub fn new(seed: u64, path: &str) -> Self {
        Stream { key: [seed as u32, (seed >> 32) as u32], stream: fnv_1a(path.bytes().map(u64::from)) }
    }

    /// Draws the values `offset..offset + out.len()` of the parameter.
    ///
    /// Filling a tensor in pieces, in any order and on any number of threads, gives the bits of filling it at once. With the
    /// `rayon` feature a long slice is spread over the threads of the current pool.
    ///
    /// The numbers of the distribution are taken as they are, and an error is not possible here. With a standard deviation that is
    /// negative or not finite, `low >= high`, an interval narrower than the resolution, or one beyond what `f32` reaches the values
    /// mean nothing: [`Distribution::check`] refuses these, and so do [`Rule::check`](crate::Rule::check) and every plan.
    pub fn fill<E: Element>(&self, distribution: &Distribution, offset: u64, out: &mut [E]) {
        match *distribution {
            Distribution::Uniform { low, high } => {
                self.chunks(Uniform { middle: 0.5 * (low + high), half_width: 0.5 * (high - low) }, offset, out)
            }
            Distribution::Normal { mean, std } => self.chunks(Normal { mean, std }, offset, out),
            Distribution::TruncatedNormal { mean, std, low, high } => {
                self.chunks(Truncated::new(mean, std, low, high), offset, out)
            }
        }
    }

    fn chunks<D: Draw, E: Element>(&self, draw: D, offset: u64, out: &mut [E]) {
        each(out, CHUNK, |i, out| {
            let offset = offset.wrapping_add((i * CHUNK) as u64);
            dispatch(Fill { stream: *self, draw, offset, out });
        });
    }
}

struct Fill<'a, D, E> {
    stream: Stream,
    draw: D,
    offset: u64,
    out: &'a mut [E],
}

impl<D: Draw, E: Element> Job for Fill<'_, D, E> {
    #[inline(always)]
    fn run(self) {
        let Fill { stream, draw, offset, mut out } = self;
        let mut words = [[0; LANES]; 4];
        let mut tile = offset / TILE as u64;
        let mut skip = (offset % TILE as u64) as usize;
        while !out.is_empty() {
            philox::tile(stream.key, stream.stream, tile, &mut words);
            let (now, later) = out.split_at_mut(out.len().min(TILE - skip));
            match <&mut [E; TILE]>::try_from(&mut *now) {
                Ok(whole) => draw.draw(&words, whole),
                Err(_) => {
                    let mut whole = [E::default(); TILE];
                    draw.draw(&words, &mut whole);
                    now.copy_from_slice(&whole[skip..skip + now.len()]);
                }
            }
            (out, skip) = (later, 0);
            tile = tile.wrapping_add(1);
        }
    }
}

/// Fowler, Noll & Vo's hash (RFC 9923) of bytes, and by the same steps of wider words.
pub(crate) fn fnv_1a(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_hashes() {
        let bytes = |text: &'static [u8]| text.iter().copied().map(u64::from);
        assert_eq!(fnv_1a(bytes(b"")), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a(bytes(b"a")), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv_1a(bytes(b"foobar")), 0x8594_4171_f739_67e8);
    }
}
