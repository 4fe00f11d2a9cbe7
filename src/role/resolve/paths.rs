//! Prefix and alias make paths, so that they have to be paths themselves.

use crate::{
    error::{Error, ErrorKind},
    role::Setup,
};

/// Whether prefix and aliases are names of modules with dots between them. The target of an alias may be empty: it takes names away.
pub(super) fn check(setup: &Setup) -> Result<(), Error> {
    let shown = |given: &str, before: &str, after: &str| format!("{before}{given:?}{after}");
    if !setup.prefix.is_empty() {
        is_path(&setup.prefix, &|given| shown(given, ".prefix(", ")"))?;
    }
    for (from, to) in &setup.aliases {
        if from.is_empty() {
            let found = format!(".alias(\"\", {to:?}) names no module");
            return Err(Error::new(ErrorKind::Config, found, format!("to put it before every path: .prefix({to:?})")));
        }
        is_path(from, &|given| shown(given, ".alias(", ", …)"))?;
        if !to.is_empty() {
            is_path(to, &|given| shown(given, ".alias(…, ", ")"))?;
        }
    }
    Ok(())
}

fn is_path(given: &str, shown: &dyn Fn(&str) -> String) -> Result<(), Error> {
    let error = |what: &str, todo: String| Err(Error::new(ErrorKind::Config, format!("{} {what}", shown(given)), todo));
    if given.contains('*') {
        return error("is a pattern, and not a path", "write the names of the modules".into());
    }
    if given.split('.').all(|segment| !segment.is_empty()) {
        return Ok(());
    }
    let names: Vec<&str> = given.split('.').filter(|segment| !segment.is_empty()).collect();
    match names.is_empty() {
        true => error("names no module", "leave it out".into()),
        false => error("has a dot too many", format!("write {}", shown(&names.join(".")))),
    }
}
