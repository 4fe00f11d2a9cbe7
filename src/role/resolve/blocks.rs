//! Fans, and the blocks of packed parameters.

use crate::{
    error::{Error, ErrorKind},
    param::{Block, Fans, ParamSpec, product},
    role::{PackedBlock, Role, names::Holder},
};

pub(super) fn fans(
    role: Role,
    holder: Holder,
    shape: &[u64],
    layout_known: bool,
    experts: Option<u64>,
) -> Option<Fans> {
    let matrix = if experts.is_some() { &shape[1..] } else { shape };
    match (holder, matrix) {
        (Holder::Convolution, [out, inner, kernel @ ..]) => {
            let field = product(kernel);
            Some(Fans { fan_in: inner.saturating_mul(field), fan_out: out.saturating_mul(field) })
        }
        (Holder::TransposedConvolution, [inner, out, kernel @ ..]) => {
            let field = product(kernel);
            Some(Fans { fan_in: inner.saturating_mul(field), fan_out: out.saturating_mul(field) })
        }
        (Holder::Norm | Holder::Activation, _) => None,
        (_, [rest @ .., last]) if role.is_table() && !rest.is_empty() => {
            Some(Fans { fan_in: *last, fan_out: product(rest) })
        }
        (_, [fan_in, fan_out]) if layout_known => Some(Fans { fan_in: *fan_in, fan_out: *fan_out }),
        _ => None,
    }
}

pub(super) fn split(whole: &ParamSpec, blocks: &[PackedBlock], layout_known: bool) -> Result<Vec<ParamSpec>, Error> {
    let width = whole.shape.last().copied().unwrap_or(0);
    let given: Option<Vec<u64>> = blocks.iter().map(|block| block.width).collect();
    let roles: Vec<_> = blocks.iter().map(|block| format!("Role::{:?}", block.role)).collect();
    let line = |widths: &str| {
        let blocks: Vec<_> = roles.iter().map(|role| format!("({role}, {widths})")).collect();
        format!("give their widths: .packed(\"{}\", [{}])", whole.path, blocks.join(", "))
    };
    if !layout_known {
        return Err(whole.error(
            ErrorKind::Layout,
            "it is packed, and it cannot be seen which dimension is the output",
            format!("state how it is stored: .layout(\"{}\", Layout::InOut) or Layout::OutIn", whole.path),
        ));
    }
    let widths = match given {
        Some(widths) => widths,
        None if blocks.is_empty() || !width.is_multiple_of(blocks.len() as u64) => {
            return Err(whole.error(
                ErrorKind::Shape,
                format!("{width} output columns do not split into {} equal blocks", blocks.len()),
                line("…"),
            ));
        }
        None => vec![width / blocks.len() as u64; blocks.len()],
    };
    let reads_stream = blocks.iter().any(|block| block.role == Role::Query);
    let square = whole.shape.len() == 2 && whole.shape[0].checked_mul(blocks.len() as u64) == Some(width);
    if blocks.iter().all(|block| block.width.is_none()) && reads_stream && blocks.len() == 3 && !square {
        return Err(whole.error(
            ErrorKind::Shape,
            format!(
                "{width} output columns are not three times the {} inputs, so the blocks are not equally wide",
                whole.shape[0]
            ),
            line("…"),
        ));
    }
    if widths.contains(&0) || widths.iter().try_fold(0u64, |sum, &w| sum.checked_add(w)) != Some(width) {
        return Err(whole.error(
            ErrorKind::Shape,
            format!("the blocks have {widths:?} output columns, and the weight has {width}"),
            line("…"),
        ));
    }
    let mut start = 0;
    Ok(blocks
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(index, (block, len))| {
            let spec = ParamSpec {
                role: block.role,
                block: Some(Block { index: index as u64, start, len }),
                fans: whole.fans.or_else(|| matrix_fans(whole)).map(|fans| Fans { fan_out: len, ..fans }),
                ..whole.clone()
            };
            start += len;
            spec
        })
        .collect())
}

pub(super) fn matrix_fans(whole: &ParamSpec) -> Option<Fans> {
    match whole.shape[..] {
        [.., fan_in, fan_out] => Some(Fans { fan_in, fan_out }),
        _ => None,
    }
}
