//! Tensors that change the residual stream besides attention and feed-forward: a token's input to each layer,
//! alternating updates, scales.

use super::row::{ABSENT, Row, Shape};
use super::{Layer, Role};
use crate::model::{Need, Spec};

pub(super) const fn row(role: Role, spec: &Spec<'_>, _: &Layer) -> Row {
    use Need::Required;
    use Shape::{Matrix, Vector};
    let (dim, input) = (spec.dim, spec.per_layer_input());
    match role {
        Role::LayerOutputScale => (spec.layer_scale(), Vector(1)),
        _ if input == 0 => ABSENT,
        Role::PerLayerTokenEmbd => (Required, Matrix(spec.layers * input, spec.vocab)),
        Role::PerLayerModelProj => (Required, Matrix(dim, spec.layers * input)),
        Role::PerLayerProjNorm => (Required, Vector(input)),
        Role::InpGate => (Required, Matrix(dim, input)),
        Role::Proj => (Required, Matrix(input, dim)),
        Role::PostNorm => (Required, Vector(dim)),
        _ => ABSENT,
    }
}

/// Requirement and shape of the tensors for alternating updates, and for the low-rank layers parallel to attention. The
/// same models have both.
pub(super) const fn altup(role: Role, spec: &Spec<'_>, _: &Layer) -> Row {
    use Need::Required;
    use Shape::{Matrices, Matrix, Vector};
    let Some(altup) = spec.altup() else { return ABSENT };
    let (dim, streams, rank) = (spec.dim, altup.streams, altup.rank);
    match role {
        Role::AltupProj | Role::AltupUnembdProj => (Required, Matrices(dim, dim, streams.saturating_sub(1))),
        Role::AltupRouter => (Required, Matrix(dim, streams)),
        Role::AltupRouterNorm | Role::AltupCorrectScale | Role::LaurelPostNorm => (Required, Vector(dim)),
        Role::AltupPredictCoef => (Required, Matrix(streams, streams * streams)),
        Role::AltupCorrectCoef => (Required, Matrix(streams, streams)),
        Role::LaurelL => (Required, Matrix(dim, rank)),
        Role::LaurelR => (Required, Matrix(rank, dim)),
        _ => ABSENT,
    }
}
