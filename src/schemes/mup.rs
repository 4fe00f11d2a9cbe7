//! Maximal update parametrization: muP, depth-muP and CompleteP.

use serde::{Deserialize, Serialize};

use super::{Megatron, Modified, PlainNormal, Scheme};
use crate::{
    depth::Depth,
    error::{Error, ErrorKind},
    initializer::Initializer,
    param::{ParamSpec, Stack},
    parametrization::{Base, BaseShapes, BaseSize, Widening, head_width},
    role::{NormPlacement, Role},
    rule::{Factor, FactorKind, Family, Init, Rule, VarianceScaling, short},
};

/// Whose learning rates [`Mup`] scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MupOptimizer {
    /// Adam, AdamW and others whose update does not depend on the size of the gradient.
    Adam,
    /// Stochastic gradient descent, with momentum or without.
    Sgd,
}

/// Which parameters' Adam epsilon [`Mup`] divides by the width, as the gradient is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MupEpsilon {
    /// None.
    Unscaled,
    /// Of hidden matrices.
    Hidden,
    /// Of everything.
    All,
}

/// muP (Yang et al. 2022): the hyperparameters that are best at the width of the base model stay best as the width grows.
///
/// `start` is drawn as it would be in the base model, and what grows is corrected, with `m` the width multiplier of the inputs (of
/// the outputs where the inputs do not grow), see [`Widening`]:
///
/// | | std | forward | Adam: rate, decay | SGD: rate, decay |
/// |---|---|---|---|---|
/// | hidden: query, key, value, attention output, MLP | `1/sqrt(m)` | 1 | `1/m`, `m` | `m_out/m`, `m/m_out` |
/// | input: tables, gains, biases | 1 | 1 | 1, 1 | `m`, `1/m` |
/// | output: head, router | 1 | `1/m`, not on the bias | 1, 1 | `m`, `1/m` |
/// | query and its bias | | `sqrt(h_0/h)`, so that scores go by `1/h` where the model has `1/sqrt(h)` | | |
///
/// With [`depth`](Self::depth) `alpha` each branch is multiplied by `m_L^-alpha`, `m_L` being how many times as many layers there are: on the weight and
/// the bias of what writes into the stream; the rates of everything in a layer go by `m_L^(alpha - 1)`. `alpha = 1/2` is depth-muP (Yang et al.
/// 2023), `alpha = 1` CompleteP (Dey et al. 2025). `start` may then have no depth factor of its own.
///
/// A **tied** head cannot have a multiplier of its own, as its weight is the table's. The norm before it can: with gain and shift times `1/m` the
/// logits are those of a head times `1/m`, and every update is, too. So the tree has to show its last norm ([`ParamSpec::is_final_norm`]).
///
/// The size of the base is told by numbers, as in configuration files, or by the shapes of a base model, for any tree:
///
/// ```
/// use burn::tensor::Device;
/// use burn_init::{prelude::*, reference::TransformerConfig, schemes::Mup};
///
/// let config = |width, heads| TransformerConfig::new(1000, 64, width, 4, heads).with_tied(false);
/// let (small, large) = (config(64, 4), config(256, 4));
/// let device = Device::flex();
/// let (model, base) = (large.build(&device)?, small.build(&device)?);      // lazy: nothing is drawn
/// let shapes = large.setup().base_shapes(&model, &base)?;
///
/// let scheme = Mup::new().with_base(shapes);
/// let plan = large.setup().plan(&model, &scheme)?;
/// let query = plan.get("blocks.0.attention.query.weight").unwrap();
/// assert_eq!((query.std(), query.rule().learning_rate), (0.01, 0.25));
/// assert_eq!(plan.get("head.weight").unwrap().rule().forward, 0.25);
/// let model = large.setup().initialize(model, &scheme, 42)?;
/// # let _ = model;
/// # Ok::<(), burn_init::Error>(())
/// ```
///
/// Source: microsoft/mup, `init.py`, `layer.py`, `optim.py`; EleutherAI/nanoGPT-mup, `model.py` (CompleteP); Megatron-LM core; Cerebras Model Zoo,
/// `gpt2_model.py`; Yang et al. 2022 (arXiv:2203.03466, table 8); Dey et al. 2025 (arXiv:2505.01618, table 1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mup {
    /// What the base model is started with.
    pub start: Box<Scheme>,
    /// The base model.
    pub base: Base,
    /// Whose learning rates are scaled.
    pub optimizer: MupOptimizer,
    /// The exponent `alpha` of the branches; nothing for no multiplier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<f64>,
    /// Whether the head starts at 0, which takes out the fluctuation of the first logits.
    pub zero_readout: bool,
    /// Whether queries start at 0, which takes out that of the first scores.
    pub zero_query: bool,
    /// Whether scores go by `1/h`, through the query; needs the number of heads.
    pub attention: bool,
    /// Multiplier of the tables that feed the stream.
    pub embedding_multiplier: f64,
    /// Multiplier of the logits beside `1/m`.
    pub readout_multiplier: f64,
    /// Whether the token table is the head, too. Has to be said where the tree shows no head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tied: Option<bool>,
    /// Whether a tied table starts `sqrt(m)` times as large, as microsoft/mup's `set_base_shapes` leaves it.
    pub tied_rescale: bool,
    /// Whose epsilon goes by `1/m`, and by `m_L^-alpha` in layers.
    pub epsilon: MupEpsilon,
    /// Whether the weight decay is scaled against the learning rate of the widths, so that their product, by which AdamW decays, stays as the
    /// width grows. With a [`depth`](Self::depth) below 1 the rate goes by the depth, too, and the product with it.
    pub weight_decay: bool,
    /// Whether gains and biases decay.
    pub decay_vectors: bool,
}

impl Default for Mup {
    fn default() -> Self {
        Self {
            start: Box::new(Scheme::gpt2()),
            base: BaseSize::default().into(),
            optimizer: MupOptimizer::Adam,
            depth: None,
            zero_readout: false,
            zero_query: false,
            attention: true,
            embedding_multiplier: 1.0,
            readout_multiplier: 1.0,
            tied: None,
            tied_rescale: false,
            epsilon: MupEpsilon::Unscaled,
            weight_decay: true,
            decay_vectors: true,
        }
    }
}

impl Mup {
    /// For Adam, over GPT-2's start.
    pub fn new() -> Self {
        Self::default()
    }

    /// For SGD, over GPT-2's start.
    pub fn sgd() -> Self {
        Self { optimizer: MupOptimizer::Sgd, ..Self::default() }
    }

    /// CompleteP: `alpha = 1`, epsilon by width and depth, no decay of gains and biases, 0.02 without a depth factor.
    pub fn complete_p() -> Self {
        Self {
            start: Box::new(super::Gpt2::new().with_depth(Depth::none()).into()),
            depth: Some(1.0),
            epsilon: MupEpsilon::All,
            decay_vectors: false,
            ..Self::default()
        }
    }

    /// Depth-muP: as [CompleteP](Self::complete_p) with `alpha = 1/2`.
    pub fn depth() -> Self {
        Self { depth: Some(0.5), ..Self::complete_p() }
    }

    /// As Megatron-LM combines them: `N(0, 0.02)`, `1/sqrt(2N)` on what writes into the stream, muP's widths; epsilon of hidden matrices by `1/m`,
    /// weight decay as it is.
    pub fn megatron() -> Self {
        Self {
            start: Box::new(Megatron::new().into()),
            epsilon: MupEpsilon::Hidden,
            weight_decay: false,
            ..Self::default()
        }
    }

    /// As Cerebras-GPT: 0.08 cut at 2 sigma, `1/sqrt(2N)` on what writes into the stream, muP's widths, tables times 10; base 256.
    pub fn cerebras() -> Self {
        let family = Family::TruncatedNormal { bound: 2.0, compensated: false };
        let plain = PlainNormal { std: 0.08, family, padding_row: None };
        let start = Modified { depth: Depth::total(), ..Modified::of(plain) };
        Self { start: Box::new(start.into()), embedding_multiplier: 10.0, weight_decay: false, ..Self::default() }
    }

    /// With another start of the base model.
    pub fn with_start(self, start: impl Into<Scheme>) -> Self {
        Self { start: Box::new(start.into()), ..self }
    }

    /// With another base: a [`BaseSize`], or the [`BaseShapes`] of a model.
    pub fn with_base(self, base: impl Into<Base>) -> Self {
        Self { base: base.into(), ..self }
    }

    /// With a head that is the token table, or says that there is none.
    pub fn with_tied(self, tied: bool) -> Self {
        Self { tied: Some(tied), ..self }
    }

    /// With the head at 0 in the beginning, and queries, too: what its authors recommend.
    pub fn with_zeros(self) -> Self {
        Self { zero_readout: true, zero_query: true, ..self }
    }

    /// Without the multiplier of the query: for a model that divides its scores by `h` itself, or whose heads keep their width.
    pub fn without_attention(self) -> Self {
        Self { attention: false, ..self }
    }

    /// The parameter as `start` sees it: the widths of the base model, the depth of the model.
    fn seen(base: &ParamSpec, param: &ParamSpec) -> ParamSpec {
        let stack = match (param.stack, base.stack) {
            (Some(stack), Some(small)) => Some(Stack { d_model: small.d_model, ..stack }),
            _ => param.stack,
        };
        ParamSpec {
            path: param.path.clone(),
            layer: param.layer,
            stack,
            branches_so_far: param.branches_so_far,
            writes: param.writes,
            norm_placement: param.norm_placement,
            ..base.clone()
        }
    }

    /// The depth of the model and that of its base, where it is less.
    fn shallower(&self, param: &ParamSpec) -> Option<(u64, u64)> {
        let (stack, small) = (param.stack?, self.base.spec(param).ok()?.stack?);
        (stack.layers < small.layers).then_some((stack.layers, small.layers))
    }

    /// The width of the model and that of its base, where it is less.
    fn narrower(&self, param: &ParamSpec) -> Option<(u64, u64)> {
        let base = self.base.spec(param).ok()?;
        let (width, small) = match (param.stack, base.stack, param.fans, base.fans) {
            (Some(stack), Some(small), ..) => (stack.d_model, small.d_model),
            (.., Some(fans), Some(small)) => (fans.fan_in, small.fan_in),
            _ => return None,
        };
        (width < small).then_some((width, small))
    }

    fn width(&self, rule: &mut Rule, param: &ParamSpec, growth: Widening) {
        let m = growth.multiple();
        if let Widening::Hidden { fan_in, .. } = growth
            && !matches!(rule.init, Init::Orthogonal { .. } | Init::Zeros)
        {
            let because = format!("1/sqrt(m), m = {}", short(fan_in));
            rule.factors.push(Factor { kind: FactorKind::Width, value: 1.0 / fan_in.sqrt(), because });
        }
        if let Widening::Output(m) = growth {
            rule.forward /= m;
        }
        let rate = match (self.optimizer, growth) {
            (_, Widening::Fixed) => 1.0,
            (MupOptimizer::Adam, Widening::Hidden { fan_in, .. }) => 1.0 / fan_in,
            (MupOptimizer::Adam, _) => 1.0,
            (MupOptimizer::Sgd, Widening::Hidden { fan_in, fan_out }) => fan_out / fan_in,
            (MupOptimizer::Sgd, _) => m,
        };
        rule.learning_rate *= rate;
        if self.weight_decay {
            rule.weight_decay /= rate;
        }
        let vector = !param.role().is_weight();
        if vector && !self.decay_vectors {
            rule.weight_decay = 0.0;
        }
        match self.epsilon {
            MupEpsilon::Hidden if !matches!(growth, Widening::Hidden { .. }) => {}
            MupEpsilon::Unscaled => {}
            _ => rule.epsilon /= m,
        }
    }

    fn deepen(&self, rule: &mut Rule, param: &ParamSpec, base: &ParamSpec, alpha: f64) -> Result<(), Error> {
        if let Some(factor) = rule.factors.iter().find(|factor| factor.kind == FactorKind::Depth) {
            return Err(param.error(
                ErrorKind::ScaledTwice,
                format!("scaled for depth twice: by {} and by the multiplier of its branch", factor.because),
                "start it without a depth factor: Gpt2::new().with_depth(Depth::none())",
            ));
        }
        if param.layer().is_none() {
            return Ok(());
        }
        let layers = (param.stack()?.layers as f64, base.stack()?.layers as f64);
        let multiple = layers.0 / layers.1;
        if writes(param) {
            heard(param, multiple.powf(-alpha), "its branch")?;
            rule.forward *= multiple.powf(-alpha);
        }
        rule.learning_rate *= multiple.powf(alpha - 1.0);
        if self.epsilon == MupEpsilon::All {
            rule.epsilon *= multiple.powf(-alpha);
        }
        Ok(())
    }

    /// The multipliers of the tables, of a tied head, and of the query.
    fn parts(&self, rule: &mut Rule, param: &ParamSpec, base: &ParamSpec, growth: Widening) -> Result<(), Error> {
        let tied = self.tied == Some(true);
        match param.role() {
            role if role.is_table() && role != Role::RelativeBias => {
                rule.forward *= self.embedding_multiplier;
                if tied && self.tied_rescale && role == Role::TokenEmbedding {
                    let m = growth.multiple();
                    let because = format!("sqrt(m), m = {}", short(m));
                    rule.factors.push(Factor { kind: FactorKind::Other, value: m.sqrt(), because });
                }
            }
            Role::OutputHead => {
                rule.forward *= self.readout_multiplier;
                if self.zero_readout {
                    *rule = Rule { init: Init::Zeros, factors: Vec::new(), ..rule.clone() };
                }
            }
            Role::NormGain | Role::NormBias if tied && param.is_final_norm() => {
                rule.forward *= self.readout_multiplier / (growth.multiple() * self.embedding_multiplier);
            }
            Role::Query if self.zero_query => *rule = Rule { init: Init::Zeros, factors: Vec::new(), ..rule.clone() },
            _ => {}
        }
        if self.attention && [Some(param.role()), param.weight_role()].contains(&Some(Role::Query)) {
            let scores = (self.base.head_width(base)? / head_width(param)?).sqrt();
            heard(param, scores, "the scores")?;
            rule.forward *= scores;
        }
        Ok(())
    }
}

/// Whether it is a projection that writes into the stream, or the bias of one.
pub(super) fn writes(param: &ParamSpec) -> bool {
    param.role().writes() || param.weight_role().is_some_and(Role::writes)
}

/// A multiplier of 0 from settings that are none has been rounded to it.
pub(super) fn not_zero(rule: Rule, param: &ParamSpec) -> Result<Rule, Error> {
    match rule.forward == 0.0 {
        true => Err(param.error(
            ErrorKind::InvalidValue,
            "its forward multiplier is too small for a number and comes out as 0, which takes it out of the model",
            "use settings of the scheme that are nearer to 1",
        )),
        false => Ok(rule),
    }
}

/// Whether it sets multipliers and rates of its own by the size of the model, and what it is called.
fn parametrization(scheme: &Scheme) -> Option<&'static str> {
    match scheme {
        Scheme::Mup(_) => Some("mup"),
        Scheme::UMup(_) => Some("u-mup"),
        Scheme::Modified(modified) => parametrization(&modified.base),
        Scheme::EncoderDecoder(sides) => parametrization(&sides.encoder).or_else(|| parametrization(&sides.decoder)),
        _ => None,
    }
}

/// Whether the forward pass hears a multiplier of the parameter, which a norm after it would take out again.
pub(super) fn heard(param: &ParamSpec, multiplier: f64, of: &str) -> Result<(), Error> {
    if multiplier == 1.0 || !param.is_normed() {
        return Ok(());
    }
    let found =
        format!("the multiplier {} of {of} is to go here, and a norm after it takes it out again", short(multiplier));
    Err(param.error(
        ErrorKind::Config,
        found,
        match param.norm_placement().is_on_branch() && writes(param) {
            true => "multiply the branch after its norm in the model, under a scheme without such a multiplier",
            false => "scale the scores in the model and say .without_attention(), or leave the norm of the queries out",
        },
    ))
}

/// The init with the fans of the base model put in.
fn numbers(init: Init, base: &ParamSpec) -> Result<Init, Error> {
    match init {
        Init::VarianceScaling(VarianceScaling { scale, fan, family }) => {
            Ok(family.with_std((scale / fan.of(base.fans()?)).sqrt()))
        }
        init => Ok(init),
    }
}

impl Initializer for Mup {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let base = self.base.spec(param)?;
        let seen = Self::seen(&base, param);
        let Some(mut rule) = self.start.rule(&seen)? else { return Ok(None) };
        if rule.init == Init::Keep {
            return Ok(Some(rule));
        }
        let growth = Widening::between(&base, param)?;
        let mean = rule.law(&seen)?.mean();
        if matches!(growth, Widening::Hidden { .. }) && mean != 0.0 && !mean.is_nan() {
            return Err(param.error(
                ErrorKind::InvalidValue,
                format!("a hidden matrix starts with the mean {mean}, whose effect grows with the width"),
                "start it with the mean 0",
            ));
        }
        rule.init = numbers(rule.init, &seen)?;
        self.width(&mut rule, param, growth);
        if let Some(alpha) = self.depth {
            self.deepen(&mut rule, param, &base, alpha)?;
        }
        self.parts(&mut rule, param, &base, growth)?;
        not_zero(rule, param).map(Some)
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        let config = |found: &str, todo: &str| Err(Error::config(found, todo));
        if let Some(name) = parametrization(&self.start) {
            return config(
                &format!("the start is {name}, which has multipliers and rates of its own"),
                "the start of muP is a plain scheme, such as gpt2",
            );
        }
        if let Base::Size(size) = &self.base {
            size.check()?;
        }
        if self.depth.is_some() && self.optimizer == MupOptimizer::Sgd {
            return config("the multipliers of depth are for Adam, and the optimizer is SGD", "use Adam, or no depth");
        }
        if self.depth.is_some_and(|alpha| !(0.0..=1.0).contains(&alpha)) {
            return config("the exponent of the depth is not from 0 to 1", "use 0.5 for depth-muP and 1 for CompleteP");
        }
        for (name, value) in [("embedding", self.embedding_multiplier), ("readout", self.readout_multiplier)] {
            if !(value.is_finite() && value != 0.0) {
                return config(&format!("the {name} multiplier is {value}"), "use a finite number other than 0");
            }
        }
        check_tied(self.tied, tree)?;
        self.start.check(tree)
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        let todo = |size: &'static str| match self.base {
            Base::Size(_) => size,
            Base::Shapes(_) => "base_shapes(&model, &base) takes the model first",
        };
        let narrower = tree.iter().find_map(|param| self.narrower(param)).map(|(width, base)| {
            format!(
                "the model is narrower than its base ({width} against {base}), so that multipliers go the other way; \
                 if that is not meant, {}",
                todo("state its width: Mup::new().with_base(BaseSize { width: 64, ..BaseSize::default() })")
            )
        });
        let mut warnings = self.start.warnings(tree);
        warnings.extend(narrower);
        if self.depth.is_some() {
            warnings.extend(tree.iter().find_map(|param| self.shallower(param)).map(|(layers, base)| {
                format!(
                    "the model is shallower than its base ({layers} layers against {base}), so that the multipliers of depth go the other \
                     way; if that is not meant, {}",
                    todo("state its layers: Mup::complete_p().with_base(BaseSize { layers: 2, ..BaseSize::default() })")
                )
            }));
            let post = |param: &&ParamSpec| writes(param) && param.norm_placement() == NormPlacement::Post;
            warnings.extend(tree.iter().find(post).map(|param| {
                format!(
                    "{}: the multipliers of depth are derived for Pre-Norm models, in whose stream the branches add up; a norm after \
                     the addition resets it in every layer, so use mup without a depth",
                    param.path()
                )
            }));
        }
        if let Base::Shapes(shapes) = &self.base {
            warnings.extend(shapes.guessed());
        }
        warnings
    }
}

/// Whether the tree shows what a tied head needs, and no more than it may.
pub(super) fn check_tied(tied: Option<bool>, tree: &[ParamSpec]) -> Result<(), Error> {
    let table = tree.iter().find(|param| param.role() == Role::TokenEmbedding);
    let head = tree.iter().find(|param| param.role() == Role::OutputHead);
    match (tied, table, head) {
        (Some(true), _, Some(head)) => Err(head.error(
            ErrorKind::Config,
            "the tree has a head of its own, and the scheme is told that it is tied",
            "leave out .with_tied(true)",
        )),
        (None, Some(table), None) => Err(table.error(
            ErrorKind::MissingFact,
            "the tree has no head, so that this table may be the head, too, whose logits are to be multiplied once",
            "say .with_tied(true) if it is, .with_tied(false) if the model has no head",
        )),
        (Some(true), Some(table), None) if !tree.iter().any(ParamSpec::is_final_norm) => Err(table.error(
            ErrorKind::MissingFact,
            "it is the head, too, and its multiplier goes on the norm before it; the tree has none, or several that could be it",
            "keep the head in a parameter of its own, or call the norm ln_f or final_norm",
        )),
        (Some(true), _, None) => match tree.iter().find(|p| p.is_final_norm() && p.role() == Role::NormGainOffset) {
            Some(gain) => Err(gain.error(
                ErrorKind::Config,
                "the gain of the last norm is stored as an offset from 1, and a multiplier cannot reach the 1",
                "keep the head in a parameter of its own",
            )),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

impl From<BaseShapes> for Mup {
    /// For Adam over GPT-2's start.
    fn from(shapes: BaseShapes) -> Self {
        Self::new().with_base(shapes)
    }
}
