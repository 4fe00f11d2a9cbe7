//! Which parameters an override is about.

use std::{fmt, sync::Arc};

use super::{Pattern, Role};
use crate::{
    error::{Error, ErrorKind},
    param::ParamSpec,
};

type Predicate = dyn Fn(&ParamSpec) -> bool + Send + Sync;
/// By burn's id and the path.
type Group = dyn Fn(u64, &str) -> bool + Send + Sync;

/// A selection of parameters: by path pattern, by role, by burn's `ParamGroup` or by a predicate.
///
/// In a pattern `*` is one segment (or a part of one) and `**` any number of segments, and it is anchored at both ends. A pattern or a
/// group selects weights; it selects a bias or a gain only if the pattern names it (`**.bias`, `ln_f.weight`), so that `"h.*.mlp.**"` does
/// not draw biases by the rule of a matrix. A role selects exactly the parameters with that role. A predicate is asked about the parameters
/// whose roles are known.
#[derive(Clone)]
pub struct Select(Kind);

#[derive(Clone)]
enum Kind {
    Pattern(Pattern),
    Roles(Vec<Role>),
    Group(Arc<Group>),
    Predicate(String, Arc<Predicate>),
}

impl Select {
    /// By a predicate, with a name for messages.
    pub fn predicate(name: impl Into<String>, predicate: impl Fn(&ParamSpec) -> bool + Send + Sync + 'static) -> Self {
        Self(Kind::Predicate(name.into(), Arc::new(predicate)))
    }

    /// By a group of burn's.
    pub(crate) fn group(group: impl Fn(u64, &str) -> bool + Send + Sync + 'static) -> Self {
        Self(Kind::Group(Arc::new(group)))
    }

    /// Whether `param` is selected.
    pub fn matches(&self, param: &ParamSpec) -> bool {
        match &self.0 {
            Kind::Pattern(pattern) => {
                pattern.matches(param.path()) && (param.role().is_weight() || pattern.names(param.path()))
            }
            Kind::Roles(roles) => roles.contains(&param.role()),
            Kind::Group(group) => param.role().is_weight() && group(param.id.0, param.path()),
            Kind::Predicate(_, predicate) => predicate(param),
        }
    }

    /// Whether it selects a parameter whose role is not known.
    pub(crate) fn matches_unknown(&self, id: u64, path: &str) -> bool {
        match &self.0 {
            Kind::Pattern(pattern) => pattern.matches(path),
            Kind::Group(group) => group(id, path),
            Kind::Roles(_) | Kind::Predicate(..) => false,
        }
    }

    /// The error of a selection that matches nothing, with a path to show what they look like.
    pub(crate) fn unmatched(&self, example: Option<&ParamSpec>) -> Error {
        let example = example.map_or("(the tree is empty)", ParamSpec::path);
        Error::new(
            ErrorKind::Unmatched,
            format!("{self} matches no parameter"),
            format!("paths look like {example}; biases and gains are selected by name (\"**.bias\") or by role"),
        )
    }
}

impl From<&str> for Select {
    fn from(pattern: &str) -> Self {
        Self(Kind::Pattern(Pattern::new(pattern)))
    }
}

impl From<String> for Select {
    fn from(pattern: String) -> Self {
        Self(Kind::Pattern(Pattern::new(pattern)))
    }
}

impl From<Role> for Select {
    fn from(role: Role) -> Self {
        Self(Kind::Roles(vec![role]))
    }
}

impl<const N: usize> From<[Role; N]> for Select {
    fn from(roles: [Role; N]) -> Self {
        Self(Kind::Roles(roles.into()))
    }
}

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Pattern(pattern) => write!(f, "the pattern {pattern}"),
            Kind::Roles(roles) => {
                let names: Vec<_> = roles.iter().map(|role| role.name()).collect();
                write!(f, "the role {}", names.join(" or "))
            }
            Kind::Group(_) => write!(f, "the parameter group"),
            Kind::Predicate(name, _) => write!(f, "{name}"),
        }
    }
}

impl fmt::Debug for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Select({self})")
    }
}
