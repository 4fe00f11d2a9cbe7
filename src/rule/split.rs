//! A matrix that two parameters are the factors of.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Fill, FillContext, Law, short};
use crate::{
    error::{Error, ErrorKind},
    param::ParamSpec,
    sample::Stream,
};

/// Which factor of `A = L R` a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// `L`, `[d, r]`: the query of `W_Q W_K'`, the value of `W_V W_O`.
    Left,
    /// `R`, `[r, d]`: the attention output of `W_V W_O`.
    Right,
    /// `R'`, `[d, r]`: the key of `W_Q W_K'`.
    RightTransposed,
}

/// One factor of a random matrix that is drawn for two parameters together (Trockman and Kolter 2023).
///
/// The matrix is `A = identity I + noise Z`, `[d, d]`, with independent `Z ~ N(0, 1/d)`. With `A = U S V'` the factors are `L = U sqrt(S)`
/// and `R = sqrt(S) V'`, cut to the `r` largest singular values: `L R` is the best approximation of `A` that has rank `r`.
///
/// The parameter holds `matrices` such factors side by side, one for each head, so that `r` is its width over their number. `Z` comes from the
/// stream that is named `of[0]`, `of[1]`, … and not from that of the parameter: the two parameters with the same `of` fit each
/// other, whichever is drawn first and even if only one is drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// The name of the matrix.
    pub of: String,
    /// Which factor it is.
    pub side: Side,
    /// Factor of the identity.
    pub identity: f64,
    /// Factor of the noise.
    pub noise: f64,
    /// How many matrices stand side by side: the heads.
    #[serde(default = "one")]
    pub matrices: u64,
}

fn one() -> u64 {
    1
}

/// Largest `d`: the cost of the singular values grows with `d^3`.
const LARGEST: u64 = 2048;

impl Split {
    /// The width of the matrix and the rank of a factor.
    fn sizes(&self, param: &ParamSpec) -> Result<[usize; 2], Error> {
        let &[rows, columns] = param.shape() else {
            return Err(param.error(
                ErrorKind::Shape,
                "a factor of a split matrix has two dimensions",
                "choose another initialization for this parameter",
            ));
        };
        let (d, width) = match (self.side, param.block()) {
            (Side::Left | Side::RightTransposed, block) => (rows, block.map_or(columns, |block| block.len)),
            (Side::Right, None) => (columns, rows),
            (Side::Right, Some(_)) => {
                return Err(param.error(
                    ErrorKind::Shape,
                    "a block of a packed parameter cannot be the right factor of a split matrix",
                    "give the attention output a parameter of its own",
                ));
            }
        };
        if self.matrices == 0 || !width.is_multiple_of(self.matrices) {
            return Err(param.error(
                ErrorKind::Shape,
                format!("its width of {width} is not {} heads of equal width", self.matrices),
                "state the number of heads: .heads(\"**\", 12)",
            ));
        }
        let rank = width / self.matrices;
        if rank > d {
            return Err(param.error(
                ErrorKind::Shape,
                format!("a factor of {rank} columns is asked for, and the matrix has a rank of at most {d}"),
                "use heads no wider than the stream, or another scheme",
            ));
        }
        if d > LARGEST {
            return Err(param.error(
                ErrorKind::Shape,
                format!("the singular values of {d} x {d} would take hours"),
                format!("keep the width at {LARGEST} or less"),
            ));
        }
        Ok([d as usize, rank as usize])
    }

    pub(super) fn law(&self, factor: f64, param: &ParamSpec) -> Result<Law, Error> {
        let [d, rank] = self.sizes(param)?;
        let split = self.clone();
        let fill = Fill::new(self.to_string(), move |context, out| split.fill(context, d, rank, out));
        Ok(Law::Fill { fill, factor })
    }

    fn fill(&self, context: &FillContext<'_>, d: usize, rank: usize, out: &mut [f32]) {
        let matrices = self.matrices as usize;
        let factors = |matrix: usize| {
            let stream: Stream = context.stream.named(&format!("{}[{matrix}]", self.of));
            let factors = stream.split(d, rank, self.identity, self.noise);
            if self.side == Side::Left { factors.left } else { factors.right }
        };
        // Each has `rank` rows of length d.
        for (matrix, factor) in each(matrices, factors).iter().enumerate() {
            for (column, values) in factor.chunks(d.max(1)).enumerate() {
                let at = matrix * rank + column;
                for (row, &value) in values.iter().enumerate() {
                    let place = if self.side == Side::Right { at * d + row } else { row * matrices * rank + at };
                    out[place] = value as f32;
                }
            }
        }
    }
}

/// The results of `f` for `0..count`, on all threads with the `rayon` feature.
fn each<T: Send>(count: usize, f: impl Fn(usize) -> T + Send + Sync) -> Vec<T> {
    #[cfg(feature = "rayon")]
    {
        use rayon::prelude::*;
        (0..count).into_par_iter().map(f).collect()
    }
    #[cfg(not(feature = "rayon"))]
    (0..count).map(f).collect()
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Left => "left",
            Side::Right => "right",
            Side::RightTransposed => "right transposed",
        };
        write!(f, "{side} of {}: {} I + {} Z", self.of, short(self.identity), short(self.noise))?;
        if self.matrices == 1 { Ok(()) } else { write!(f, ", {} heads", self.matrices) }
    }
}
