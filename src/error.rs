//! The one error of the crate: where it is, what was found, what to do.

use std::fmt;

/// What went wrong, for code that wants to react to it; the text is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The role of a parameter cannot be told from its type or its name.
    UnknownRole,
    /// No part of the scheme answers for a parameter.
    NoRule,
    /// The rule needs a fact about the parameter that the tree does not show: fans, stack or heads.
    MissingFact,
    /// A number is not usable: a negative or NaN standard deviation, an empty interval.
    InvalidValue,
    /// A pattern, role or depth rule matches no parameter.
    Unmatched,
    /// A parameter has two depth factors.
    ScaledTwice,
    /// A factor is applied to a parameter that is kept as it is, or a packed one is kept in part.
    ScaledKept,
    /// A shape that the role, the packing or the replayed plan cannot have.
    Shape,
    /// The memory layout of a user's own layer has to be stated.
    Layout,
    /// A quantised parameter, whose values cannot be drawn.
    Quantized,
    /// A parameter that has another multiplier or adapter attached than the scheme asks for.
    Attached,
    /// A dimension that grows, or a parameter that differs, between a model and its base where the scheme does not allow it.
    Widening,
    /// A name or a text that does not parse.
    Parse,
    /// A model configuration that cannot be built, or an input that does not fit the model.
    Config,
    /// A measurement met values it cannot use, such as logits that are not finite.
    Measurement,
    /// An existing model differs from the plan it is audited against.
    Audit,
    /// A file that cannot be read or written, or that is not what it should be.
    File,
    /// A picture that cannot be drawn or written.
    Picture,
    /// A device that does not answer, or that failed while it was written to or read from.
    Device,
}

/// The error of every fallible function of this crate.
///
/// Its text is in lower case and has the form `path [shape]: what was found; what to do`,
/// with the path and the shape left out where there are none.
///
/// ```
/// use burn_init::{Init, ErrorKind};
///
/// let error = Init::normal(-0.02).check().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidValue);
/// assert_eq!(error.to_string(), "normal(std = -0.02): std is negative; use 0 or more");
/// ```
#[derive(Clone, PartialEq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq)]
struct Inner {
    kind: ErrorKind,
    path: Option<String>,
    shape: Option<Vec<u64>>,
    found: String,
    todo: String,
}

impl Error {
    /// An error of `kind`: what was found, and what to do about it.
    ///
    /// Public, so that initializers outside of this crate report as its own do.
    pub fn new(kind: ErrorKind, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, path: None, shape: None, found: found.into(), todo: todo.into() }))
    }

    /// An invalid model configuration.
    pub fn config(found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, found, todo)
    }

    /// Names the parameter, unless an inner one is named already.
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.0.path.get_or_insert_with(|| path.into());
        self
    }

    /// Shows the shape of the parameter, unless one is shown already.
    pub fn shaped(mut self, shape: impl Into<Vec<u64>>) -> Self {
        self.0.shape.get_or_insert_with(|| shape.into());
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The path of the parameter it is about, where it is about one.
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// The shape of that parameter, where it matters.
    pub fn shape(&self) -> Option<&[u64]> {
        self.0.shape.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { path, shape, found, todo, .. } = &*self.0;
        if let Some(path) = path {
            write!(f, "{path}")?;
            if let Some(shape) = shape {
                write!(f, " {shape:?}")?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{found}")?;
        if !todo.is_empty() {
            write!(f, "; {todo}")?;
        }
        Ok(())
    }
}

// `fn main() -> Result<(), Error>` prints the Debug form: make it readable.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {}
