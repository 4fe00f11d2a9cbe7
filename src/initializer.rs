//! The trait that decides what a parameter starts as, and its adaptors.

use std::{fmt, sync::Arc};

use crate::{
    depth::{Depth, DepthScaled},
    error::Error,
    param::ParamSpec,
    role::{Role, Select},
    rule::{Init, Rule},
};

/// Decides what each parameter starts as.
///
/// An initializer never touches a tensor, a device or a random number: it answers a [`ParamSpec`] with a [`Rule`], which is data. Small ones are
/// composed into whole schemes:
///
/// ```
/// use burn_init::{Depth, Gpt2Normal, Init, Initializer, NeutralNorm};
///
/// let scheme = Gpt2Normal::new()                  // normal(0.02) for every matrix and table, biases 0
///     .or(NeutralNorm::new())                     // gamma 1, beta 0
///     .depth_scaled(Depth::total())               // 1/sqrt(2N) on what writes into the residual stream
///     .with("lm_head.weight", Init::Zeros);       // the last word
/// ```
///
/// `.with` outside of `.depth_scaled` is final; inside of it, it is scaled like the rest.
pub trait Initializer: Send + Sync {
    /// The rule for `param`; `None` if it is not this initializer's to decide, so that the next one is asked.
    ///
    /// # Errors
    /// Where the rule needs a fact that the parameter does not show, such as [`ParamSpec::fans`].
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error>;

    /// Looks at the whole tree before any rule is asked for: a pattern that matches nothing is an error here.
    ///
    /// # Errors
    /// Where the initializer does not fit the tree.
    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        let _ = tree;
        Ok(())
    }

    /// What is not wrong with the tree but should be known, in words; [`Plan::warnings`](crate::Plan::warnings) lists it.
    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        let _ = tree;
        Vec::new()
    }

    /// This one, and `other` for what it does not answer.
    fn or<B: Initializer>(self, other: B) -> Or<Self, B>
    where
        Self: Sized,
    {
        Or { first: self, second: other }
    }

    /// This one, with another start for the selected parameters: by path pattern, role, burn's `ParamGroup` or predicate. An [`Init`] changes what is
    /// drawn and leaves the multipliers of the forward pass and of the training as they are; a whole [`Rule`] replaces all.
    fn with(self, select: impl Into<Select>, change: impl Into<Replacement>) -> With<Self>
    where
        Self: Sized,
    {
        With { base: self, select: select.into(), change: change.into() }
    }

    /// This one for the selected parameters only, so that others are left to `.or(…)`.
    fn only(self, select: impl Into<Select>) -> Only<Self>
    where
        Self: Sized,
    {
        Only { base: self, select: select.into() }
    }

    /// This one, with the row of the padding token set to 0 in the table of token vectors after the draw; the other rows are as they
    /// would be without. `row` is the token's id.
    fn padding_row(self, row: u64) -> PaddingRow<Self>
    where
        Self: Sized,
    {
        PaddingRow { base: self, row }
    }

    /// This one, with a depth factor on the projections that write into the residual stream.
    fn depth_scaled(self, depth: Depth) -> DepthScaled<Self>
    where
        Self: Sized,
    {
        DepthScaled::new(self, depth)
    }
}

macro_rules! delegate {
    ($($type:ty),*) => {$(
        impl<I: Initializer + ?Sized> Initializer for $type {
            fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
                (**self).rule(param)
            }

            fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
                (**self).check(tree)
            }

            fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
                (**self).warnings(tree)
            }
        }
    )*};
}
delegate!(&I, Box<I>, Arc<I>);

/// See [`Initializer::or`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Or<A, B> {
    first: A,
    second: B,
}

impl<A: Initializer, B: Initializer> Initializer for Or<A, B> {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        match self.first.rule(param)? {
            Some(rule) => Ok(Some(rule)),
            None => self.second.rule(param),
        }
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        self.first.check(tree)?;
        self.second.check(tree)
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        let mut warnings = self.first.warnings(tree);
        warnings.extend(self.second.warnings(tree));
        warnings
    }
}

fn must_match(select: &Select, tree: &[ParamSpec]) -> Result<(), Error> {
    match tree.iter().any(|param| select.matches(param)) {
        true => Ok(()),
        false => Err(select.unmatched(tree.first())),
    }
}

/// What [`Initializer::with`] puts in place.
#[derive(Debug, Clone, PartialEq)]
pub enum Replacement {
    /// Another start; the multipliers stay.
    Init(Init),
    /// Another rule.
    Rule(Rule),
}

impl From<Init> for Replacement {
    fn from(init: Init) -> Self {
        Replacement::Init(init)
    }
}

impl From<Rule> for Replacement {
    fn from(rule: Rule) -> Self {
        Replacement::Rule(rule)
    }
}

/// The start `init` with the multipliers that `base` has for the parameter. A base that cannot answer, as a fact is missing, has none.
pub(crate) fn restarted(base: &dyn Initializer, init: &Init, param: &ParamSpec) -> Rule {
    match base.rule(param) {
        Ok(Some(rule)) if *init != Init::Keep => rule.restarted(init.clone()),
        _ => init.clone().into(),
    }
}

/// See [`Initializer::with`].
#[derive(Debug, Clone)]
pub struct With<I> {
    base: I,
    select: Select,
    change: Replacement,
}

impl<I: Initializer> Initializer for With<I> {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        match self.select.matches(param) {
            true => Ok(Some(match &self.change {
                Replacement::Init(init) => restarted(&self.base, init, param),
                Replacement::Rule(rule) => rule.clone(),
            })),
            false => self.base.rule(param),
        }
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        must_match(&self.select, tree)?;
        self.base.check(tree)
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        self.base.warnings(tree)
    }
}

/// See [`Initializer::only`].
#[derive(Debug, Clone)]
pub struct Only<I> {
    base: I,
    select: Select,
}

impl<I: Initializer> Initializer for Only<I> {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        match self.select.matches(param) {
            true => self.base.rule(param),
            false => Ok(None),
        }
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        must_match(&self.select, tree)?;
        self.base.check(tree)
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        let own: Vec<ParamSpec> = tree.iter().filter(|param| self.select.matches(param)).cloned().collect();
        self.base.warnings(&own)
    }
}

/// See [`Initializer::padding_row`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaddingRow<I> {
    base: I,
    row: u64,
}

impl<I: Initializer> Initializer for PaddingRow<I> {
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        let rule = self.base.rule(param)?;
        Ok(match param.role() {
            Role::TokenEmbedding => rule.map(|rule| Rule { zero_row: Some(self.row), ..rule }),
            _ => rule,
        })
    }

    fn check(&self, tree: &[ParamSpec]) -> Result<(), Error> {
        must_match(&Role::TokenEmbedding.into(), tree)?;
        self.base.check(tree)
    }

    fn warnings(&self, tree: &[ParamSpec]) -> Vec<String> {
        self.base.warnings(tree)
    }
}

/// What a closure for [`from_fn`] may return.
pub trait Answer {
    /// As the trait wants it.
    ///
    /// # Errors
    /// The closure's own.
    fn answer(self) -> Result<Option<Rule>, Error>;
}

impl<R: Into<Rule>> Answer for Option<R> {
    fn answer(self) -> Result<Option<Rule>, Error> {
        Ok(self.map(Into::into))
    }
}

impl<R: Into<Rule>> Answer for Result<Option<R>, Error> {
    fn answer(self) -> Result<Option<Rule>, Error> {
        self.map(|answer| answer.map(Into::into))
    }
}

impl Answer for Init {
    fn answer(self) -> Result<Option<Rule>, Error> {
        Ok(Some(self.into()))
    }
}

impl Answer for Rule {
    fn answer(self) -> Result<Option<Rule>, Error> {
        Ok(Some(self))
    }
}

/// Makes an initializer of a closure that returns an [`Init`], a [`Rule`], an `Option` of one, or a `Result` of that.
///
/// ```
/// use burn_init::{from_fn, Gpt2, Init, Initializer, Role};
///
/// let scheme = from_fn(|param| match param.role() {
///     Role::Query => Some(Init::Zeros),
///     _ => None,
/// })
/// .or(Gpt2::new());
/// ```
pub fn from_fn<F, A>(function: F) -> FromFn<F>
where
    F: Fn(&ParamSpec) -> A + Send + Sync,
    A: Answer,
{
    FromFn { function }
}

/// See [`from_fn`].
#[derive(Clone, Copy)]
pub struct FromFn<F> {
    function: F,
}

impl<F, A> Initializer for FromFn<F>
where
    F: Fn(&ParamSpec) -> A + Send + Sync,
    A: Answer,
{
    fn rule(&self, param: &ParamSpec) -> Result<Option<Rule>, Error> {
        (self.function)(param).answer()
    }
}

impl<F> fmt::Debug for FromFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromFn")
    }
}
