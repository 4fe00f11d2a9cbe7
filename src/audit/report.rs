//! An audit as it is printed.

use std::fmt;

use super::{Audit, Line, compare::sigmas};
use crate::rule::short;

const HEAD: [&str; 8] = ["verdict", "path", "shape", "planned", "mean", "std", "ratio", "z"];

fn cells(line: &Line) -> [String; 8] {
    let mut path = line.path.clone();
    if let Some(block) = line.block {
        path += &format!("[{}..{}]", block.start, block.start + block.len);
    }
    if let Some(name) = &line.name {
        path += &format!(" ({name})");
    }
    let shape: Vec<_> = line.shape.iter().map(u64::to_string).collect();
    let measured =
        |value: fn(&super::Statistics) -> f64| line.measured.as_ref().map_or(String::new(), |s| short(value(s)));
    [
        line.severity().map_or("ok".into(), |severity| severity.to_string()),
        path,
        shape.join(" x "),
        line.expected.clone(),
        measured(|s| s.mean),
        measured(|s| s.std),
        line.ratio.map_or(String::new(), short),
        sigmas(line.z_std),
    ]
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<&Line> = self.lines().iter().filter(|line| !f.alternate() || line.deviates()).collect();
        let rows: Vec<_> = shown.iter().map(|line| cells(line)).collect();
        let mut widths = HEAD.map(str::len);
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut print = |cells: [&str; 8], found: &str| {
            let padded: Vec<_> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            writeln!(f, "{}", format!("{}  {found}", padded.join("  ")).trim_end())
        };
        if !rows.is_empty() {
            print(HEAD, "found")?;
        }
        for (row, line) in rows.iter().zip(&shown) {
            let found: Vec<_> = line.findings.iter().map(|finding| finding.text.as_str()).collect();
            print(row.each_ref().map(String::as_str), &found.join("; "))?;
        }
        let (all, off) = (self.lines().len(), self.deviations().count());
        match off {
            0 => writeln!(f, "all {all} lines are as planned")?,
            _ => writeln!(f, "{off} of {all} lines are not as planned")?,
        }
        if self.looks_trained() {
            writeln!(f, "gains and biases have a spread of their own: the values look trained")?;
        }
        for note in self.notes() {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}
