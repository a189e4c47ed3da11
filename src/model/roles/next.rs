//! Tensors of layers that predict further tokens.

use super::row::{ABSENT, Row, Shape, need_if, required_if};
use super::{Layer, Role};
use crate::model::{Need, Spec};

pub(super) const fn row(role: Role, spec: &Spec<'_>, _: &Layer) -> Row {
    use Shape::{Matrix, Vector};
    let Some(next) = spec.next() else { return ABSENT };
    let (dim, assists) = (spec.dim, spec.assists());
    match role {
        Role::NextPre => (required_if(assists), Matrix(2 * next.width, dim)),
        Role::NextPost => (required_if(assists), Matrix(dim, next.width)),
        Role::NextProj => (required_if(!assists), Matrix(2 * dim, dim)),
        Role::NextTokenNorm | Role::NextStateNorm => (required_if(!assists), Vector(dim)),
        Role::NextHeadNorm => (need_if(!assists, Need::Optional), Vector(dim)),
        Role::NextEmbd | Role::NextHead => (need_if(!assists, Need::Optional), Matrix(dim, spec.vocab)),
        _ => ABSENT,
    }
}

/// Returns whether a tensor of the whole model must be in the file. `need` is what the model's own layers require. If
/// the layers predict further tokens, the model's file may have the tensor instead.
pub(super) const fn of_model(role: Role, spec: &Spec<'_>, need: Need) -> Need {
    match role {
        _ if spec.next().is_none() => need,
        Role::TokenEmbd | Role::OutputNorm if spec.assists() => need,
        Role::TokenEmbd | Role::OutputNorm | Role::OutputNormBias => Need::Optional,
        _ => need,
    }
}
