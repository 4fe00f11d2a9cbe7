//! What logits of a given spread cost: log-sum-exp, entropy and loss.

use super::gauss;

/// The logits of one position: all but one of the `vocab` are independent N(0, std^2); the one of the
/// input token itself is N(mean, std^2) with its own mean and spread, where head and embedding are tied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LogitLaw {
    pub vocab: f64,
    pub std: f64,
    pub own: Option<Own>,
}

/// An own-token logit so far above the others is all of the sum, and leaves the steps of the integral no digits.
const ALONE: f64 = 1e12;

/// From this spread on the softmax is all but the largest logit: the entropy falls like 1/s.
const FROZEN: f64 = 20.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Own {
    pub mean: f64,
    pub std: f64,
}

impl LogitLaw {
    /// `E ln S`, with S = sum_i e^(z_i), for any spread.
    ///
    /// For small `std` this is ln V + s^2/2 - (e^(s^2) - 1)/(2V). For large it freezes at the largest logit
    /// and so grows linearly: beyond [`FROZEN`] it is continued along its slope.
    pub fn log_sum_exp(&self) -> f64 {
        let widest = self.std.max(self.own.map_or(0.0, |own| own.std));
        if widest <= FROZEN {
            return self.integral();
        }
        let frozen = self.times(FROZEN / widest);
        frozen.integral() + (widest / FROZEN - 1.0) * frozen.slope()
    }

    /// The mean entropy of the softmax, ln S - sum_i p_i z_i.
    pub fn entropy(&self) -> f64 {
        if self.centre() > ALONE {
            return 0.0;
        }
        if self.std > FROZEN {
            return self.times(FROZEN / self.std).entropy() * FROZEN / self.std;
        }
        (self.log_sum_exp() - self.slope()).max(0.0)
    }

    /// With G a standard Gumbel, P(ln S + G <= u) = E exp(-S e^-u), a product over the independent logits. So
    /// E ln S is the mean of that distribution less the mean of G, and comparing it with G shifted to
    /// `centre` leaves a smooth integral.
    fn integral(&self) -> f64 {
        const STEP: f64 = 0.25;
        let centre = self.centre();
        if centre > ALONE {
            return centre;
        }
        let gumbel = |u: f64| (-(centre - u).exp()).exp();
        let difference = |u: f64| gumbel(u) - self.cdf(u);
        let mut sum = difference(centre);
        for i in 1.. {
            let u = centre + i as f64 * STEP;
            sum += difference(u);
            if 1.0 - self.cdf(u) < 1e-14 && 1.0 - gumbel(u) < 1e-14 {
                break;
            }
        }
        for i in 1.. {
            let u = centre - i as f64 * STEP;
            sum += difference(u);
            if self.cdf(u) < 1e-16 && gumbel(u) < 1e-16 {
                break;
            }
        }
        centre + STEP * sum
    }

    /// d/db of E ln S with all logits times b, at b = 1: `E sum_i p_i z_i`.
    fn slope(&self) -> f64 {
        const STEP: f64 = 1e-3;
        (self.times(1.0 + STEP).integral() - self.times(1.0 - STEP).integral()) / (2.0 * STEP)
    }

    /// The same without the own-token logit.
    pub fn without_own(self) -> Self {
        Self { own: None, ..self }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            std: self.std * factor,
            own: self.own.map(|own| Own { mean: own.mean * factor, std: own.std * factor }),
            ..self
        }
    }

    /// Near the answer: any value works, a good one saves steps.
    fn centre(&self) -> f64 {
        let ln_v = self.vocab.ln();
        let bulk = (ln_v + self.std * self.std / 2.0).min(ln_v.sqrt() * (self.std * 2f64.sqrt() + 1.0) + 1.0);
        self.own.map_or(bulk, |own| bulk.max(own.mean))
    }

    /// P(ln S + G <= u)
    fn cdf(&self, u: f64) -> f64 {
        let missing = |mean: f64, std: f64| gauss::mean(|z| -(-(mean + std * z - u).exp()).exp_m1(), std);
        let others = self.vocab - if self.own.is_some() { 1.0 } else { 0.0 };
        let own = self.own.map_or(0.0, |own| (-missing(own.mean, own.std)).ln_1p());
        (others * (-missing(0.0, self.std)).ln_1p() + own).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(vocab: f64, std: f64) -> LogitLaw {
        LogitLaw { vocab, std, own: None }
    }

    /// Whatever a file says.
    #[test]
    fn an_own_logit_without_end() {
        let law = LogitLaw { own: Some(Own { mean: 1e30, std: 0.0 }), ..law(100.0, 0.0) };
        assert_eq!((law.log_sum_exp(), law.entropy()), (1e30, 0.0));
    }

    #[test]
    fn equal_logits_give_ln_v() {
        let law = law(50257.0, 0.0);
        assert!((law.log_sum_exp() - 50257f64.ln()).abs() < 1e-9);
        assert!((law.entropy() - 50257f64.ln()).abs() < 1e-9);
    }

    /// The second-order expansion holds to its own next order while s is small.
    #[test]
    fn small_spread_is_ln_v_plus_half_the_variance() {
        for (vocab, s) in [(50257.0, 0.5542), (1024.0, 0.32), (1000.0, 0.5542), (1024.0, 1.0)] {
            let s2: f64 = s * s;
            let expansion = f64::ln(vocab) + s2 / 2.0 - (s2.exp() - 1.0) / (2.0 * vocab);
            let lse = law(vocab, s).log_sum_exp();
            assert!((lse - expansion).abs() < 1e-5 * s2.exp(), "{vocab} {s}: {lse} {expansion}");
        }
    }

    /// Against a simulation of 200 draws (V = 50257). The largest of them has an sd of 0.28 s: three of those over sqrt(200).
    #[test]
    fn large_spread_freezes() {
        for (s, lse, entropy) in [
            (0.5, 10.950, 10.700),
            (1.0, 11.324, 10.325),
            (2.0, 12.823, 8.829),
            (3.0, 15.300, 6.515),
            (4.0, 18.571, 4.373),
            (6.0, 26.23, 2.21),
            (10.0, 42.67, 1.02),
            (27.7, 117.1, 0.31),
        ] {
            let law = law(50257.0, s);
            let tolerance = (0.002 + 0.002 * s * s).min(0.06 * s);
            assert!((law.log_sum_exp() - lse).abs() < tolerance, "{s}: {}", law.log_sum_exp());
            assert!((law.entropy() - entropy).abs() < 0.002 + 0.02 * s.min(4.0), "{s}: {}", law.entropy());
        }
    }

    /// The own-token logit is averaged outside of the logarithm: 743, not 767.
    #[test]
    fn a_huge_own_logit_is_safe() {
        let own = Own { mean: 743.08, std: 6.93 };
        let law = LogitLaw { vocab: 1000.0, std: 27.7, own: Some(own) };
        assert!((law.log_sum_exp() - 743.08).abs() < 1e-6, "{}", law.log_sum_exp());
        assert!(law.entropy() < 1e-6);
    }

    /// The continued line meets the integral.
    #[test]
    fn frozen_logits_grow_linearly() {
        for vocab in [60.0, 1000.0, 50257.0] {
            for s in [21.0, 30.0, 60.0] {
                let law = law(vocab, s);
                assert!(
                    (law.log_sum_exp() / law.integral() - 1.0).abs() < 2e-3,
                    "{vocab} {s} {} {}",
                    law.log_sum_exp(),
                    law.integral()
                );
            }
        }
    }

    /// GPT-2 small with zero-initialised branches: 11.601 and 6.48.
    #[test]
    fn an_own_logit_near_ln_v_costs_entropy() {
        let q = 8e-4 / (8e-4 + 1e-5);
        let s = (768.0 * 4e-4f64 * q).sqrt();
        let own = Own { mean: 768.0 * 4e-4 / f64::sqrt(8e-4 + 1e-5), std: s * (1.0f64 - 4e-4 / (8e-4 + 1e-5)).sqrt() };
        let law = LogitLaw { vocab: 50257.0, std: s, own: Some(own) };
        assert!((law.log_sum_exp() - 11.601).abs() < 1e-3, "{}", law.log_sum_exp());
        assert!((law.entropy() - 6.48).abs() < 1e-2, "{}", law.entropy());
    }
}
