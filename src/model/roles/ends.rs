//! Tensors before the first layer and after the last layer: embeddings, positions, the front end for sounds, heads.

use super::row::{ABSENT, Row, Shape, has_norm_bias, need_if, required_if};
use super::{Layer, Role};
#[cfg(feature = "sound")]
use crate::model::front::{Front, MAX_STAGES};
use crate::model::rope::Scaling;
use crate::model::{Need, PooledHead, Spec};

pub(super) const fn row(role: Role, spec: &Spec<'_>, layer: &Layer) -> Row {
    use Need::Optional;
    use Shape::{Matrix, Vector};
    let dim = spec.dim;
    let types = match spec.scoring() {
        Some(scoring) => scoring.types,
        None => spec.token_types(),
    };
    let (is_long, pairs) = match (spec.rope(false), spec.rope(true)) {
        (Some(rope), _) | (None, Some(rope)) => (matches!(rope.scaling, Scaling::Long { .. }), rope.dim / 2),
        _ => (false, 0),
    };
    let is_rotated = spec.rope(false).is_some() || spec.rope(true).is_some();
    let normed = matches!(spec.embedding_norm(), Need::Required);
    let biased = has_norm_bias(spec, layer);
    match role {
        Role::TokenEmbd => (required_if(spec.front().is_none()), Matrix(dim, spec.vocab)),
        Role::TokenEmbdNorm => (spec.embedding_norm(), Vector(dim)),
        Role::TokenEmbdNormBias => (required_if(normed && biased), Vector(dim)),
        Role::TokenTypes => (required_if(types > 0), Matrix(dim, types)),
        Role::PositionEmbd => (required_if(spec.positions().are_learned()), Matrix(dim, spec.context)),
        Role::RopeFreqs => (need_if(is_rotated && !is_long, Optional), Vector(pairs)),
        Role::RopeFactorsShort | Role::RopeFactorsLong => (need_if(is_long, Optional), Vector(pairs)),
        #[cfg(feature = "llama-like")]
        Role::HrmInit => (required_if(spec.takes_turns()), Vector(dim)),
        Role::OutputNorm => (required_if(spec.final_norm && !spec.bare_norm()), Vector(dim)),
        Role::OutputNormBias => (required_if(spec.final_norm && biased), Vector(dim)),
        // The matrix of the head. If it is missing, the token embedding is also the head.
        Role::Output => (need_if(spec.has_head(), Optional), Matrix(dim, spec.vocab)),
        Role::OutputBias => (need_if(spec.has_head(), spec.output_bias), Vector(spec.vocab)),
        _ => ABSENT,
    }
}

/// Tensors of the linear layers after pooling. `Cls` and `ClsOutput` are other names of `Dense2` and `Dense3`, see
/// `in_family`.
pub(super) const fn pooled(role: Role, spec: &Spec<'_>, _: &Layer) -> Row {
    use Shape::{Matrix, Vector};
    let Some(PooledHead { inner, out, .. }) = spec.pooled_head() else { return ABSENT };
    let scores = spec.scoring().is_some();
    let (first, first_extra) = (required_if(inner > 0), need_if(inner > 0, Need::Optional));
    let (last, last_bias) = (required_if(out > 0), need_if(out > 0, Need::Optional));
    match role {
        Role::Dense2 => (first, Matrix(spec.dim, inner)),
        Role::Dense2Bias => (first_extra, Vector(inner)),
        Role::ClsNorm => (first_extra, Vector(if scores { spec.dim } else { inner })),
        #[cfg(feature = "nomic-bert")]
        Role::ClsNormBias if scores => (first_extra, Vector(spec.dim)),
        Role::Dense3 => (last, Matrix(if inner > 0 { inner } else { spec.dim }, out)),
        Role::Dense3Bias => (last_bias, Vector(out)),
        _ => ABSENT,
    }
}

/// Tensors of the convolutions that read a sound.
#[cfg(feature = "sound")]
pub(super) const fn of_sound(role: Role, spec: &Spec<'_>, _: &Layer) -> Row {
    let Some(front) = spec.front() else { return ABSENT };
    let is_mel = matches!(front, Front::LogMel { .. });
    let (index, is_matrix, is_there) = match role {
        Role::Conv1 => (0, true, true),
        Role::Conv1Bias => (0, false, is_mel),
        Role::Conv1Norm | Role::Conv1NormBias => (0, false, !is_mel),
        Role::Conv2 => (1, true, true),
        Role::Conv2Bias => (1, false, true),
        Role::Conv3 => (2, true, !is_mel),
        Role::Conv3Bias => (2, false, !is_mel),
        _ => return ABSENT,
    };
    let stages: [_; MAX_STAGES] = front.stages(spec.dim);
    let Some(stage) = &stages[index] else { return ABSENT };
    let shape =
        if is_matrix { Shape::Matrix(stage.taps * stage.inputs, stage.outputs) } else { Shape::Vector(stage.outputs) };
    (required_if(is_there), shape)
}
