//! Tensors of attention, which some recurrent mixers share.

use super::row::{ABSENT, Row, Shape, has_norm_bias, mixer_of, need_if, required_if};
use super::{Layer, Role};
use crate::model::{HeadGate, Latent, Need, Positions, QkNorm, RecurrentKind, Spec};

#[inline(always)] // makes the smallest program 260 bytes smaller
pub(super) const fn row(role: Role, spec: &Spec<'_>, layer: &Layer) -> Row {
    use Need::{Optional, Required};
    use Shape::{Matrix, Vector, Vectors};
    if !layer.has_attention() {
        return of_mixer(role, spec, layer);
    }
    let (dim, q, kv, heads) = (spec.dim, layer.q_dim(), layer.kv_dim(), layer.heads);
    let (width, v) = (spec.value_width(layer), spec.value_width(layer) * layer.kv_heads);
    let value = match spec.latent() {
        Some(latent) => latent.value,
        None => width,
    };
    if let Some(latent) = spec.latent()
        && let Some(row) = of_latent(role, &latent, (dim, heads))
    {
        return row;
    }
    // A layer that reads the keys and values of another layer has only a matrix of queries, so it has no fused matrix.
    let fused = spec.fused_qkv() && layer.owns_kv;
    let apart = !fused && spec.latent().is_none();
    let buckets = match spec.positions() {
        Positions::Relative { buckets, .. } => Some(buckets),
        _ => None,
    };
    match role {
        Role::AttnQkv => (required_if(fused), Matrix(dim, q + kv + v)),
        Role::AttnQkvBias => (need_if(fused, spec.qkv_bias), Vector(q + kv + v)),
        Role::AttnQ => (required_if(apart), Matrix(dim, if spec.gated_query() { 2 * q } else { q })),
        Role::AttnQBias => (need_if(!fused, spec.qkv_bias), Vector(q)),
        Role::AttnK => (need_if_owned(layer, required_if(apart)), Matrix(dim, kv)),
        Role::AttnKBias => (need_if_owned(layer, need_if(!fused, spec.qkv_bias)), Vector(kv)),
        Role::AttnV => {
            let need = if spec.v_from_k() { Optional } else { Required };
            (need_if_owned(layer, need_if(apart, need)), Matrix(dim, v))
        }
        Role::AttnVBias => (need_if_owned(layer, need_if(!fused, spec.qkv_bias)), Vector(v)),
        Role::AttnQNorm => head_norm(spec, layer, heads),
        Role::AttnKNorm if matches!(spec.qk_norm(), QkNorm::Gain) => ABSENT,
        Role::AttnKNorm => {
            let (need, shape) = head_norm(spec, layer, layer.kv_heads);
            (need_if_owned(layer, need), shape)
        }
        Role::AttnSinks => (spec.attention_sinks(), Vector(heads)),
        // In most models only the first layer has a tensor of relative biases, and all layers share it.
        Role::AttnRelB => match buckets {
            Some(buckets) => (required_if(layer.index == 0 || spec.own_biases()), Vectors(heads, buckets)),
            None => ABSENT,
        },
        Role::AttnGate => match spec.heads_gated() {
            Some(HeadGate { per_head: true, .. }) => (Required, Matrix(dim, heads)),
            Some(_) => (Required, Matrix(dim, q)),
            None => ABSENT,
        },
        Role::AttnSubNorm => (required_if(spec.sub_norms()), Vector(q)),
        Role::AttnOutput => (Required, Matrix(value * heads, dim)),
        Role::AttnOutputBias => (spec.linear_bias, Vector(dim)),
        _ => ABSENT,
    }
}

/// Requirement and shape of a recurrent mixer's tensor that has the same name as a tensor of attention. A layer with
/// such a mixer has no attention.
const fn of_mixer(role: Role, spec: &Spec<'_>, layer: &Layer) -> Row {
    let Some(mixer) = mixer_of(spec, layer) else { return ABSENT };
    let shape = match (mixer.kind, role) {
        (RecurrentKind::DeltaNet, Role::AttnQkv) => Shape::Matrix(spec.dim, mixer.channels()),
        (RecurrentKind::DeltaNet, Role::AttnGate) => Shape::Matrix(spec.dim, mixer.inner()),
        (RecurrentKind::KimiDelta, Role::AttnQ | Role::AttnK | Role::AttnV) => Shape::Matrix(spec.dim, mixer.inner()),
        (RecurrentKind::KimiDelta, Role::AttnOutput) => Shape::Matrix(mixer.inner(), spec.dim),
        _ => return ABSENT,
    };
    (Need::Required, shape)
}

/// Requirement and shape of a tensor of latent attention; `None` for a tensor that ordinary attention also has, with
/// the same shape.
const fn of_latent(role: Role, latent: &Latent, (dim, heads): (usize, usize)) -> Option<Row> {
    use Shape::{Matrices, Matrix, Vector};
    let Latent { q_rank, rank, nope, rope, value, absorbed, .. } = *latent;
    let low = q_rank > 0;
    Some(match role {
        Role::AttnQ => (required_if(!low), Matrix(dim, heads * (nope + rope))),
        Role::AttnQA => (required_if(low), Matrix(dim, q_rank)),
        Role::AttnQANorm => (required_if(low), Vector(q_rank)),
        Role::AttnQB => (required_if(low), Matrix(q_rank, heads * (nope + rope))),
        Role::AttnKvA => (Need::Required, Matrix(dim, rank + rope)),
        Role::AttnKvANorm => (Need::Required, Vector(rank)),
        Role::AttnKvB => (required_if(!absorbed), Matrix(rank, heads * (nope + value))),
        Role::AttnKB => (required_if(absorbed), Matrices(nope, rank, heads)),
        Role::AttnVB => (required_if(absorbed), Matrices(rank, value, heads)),
        _ => return None,
    })
}

/// Tensors of attention to an encoder's states.
pub(super) const fn cross(role: Role, spec: &Spec<'_>, layer: &Layer) -> Row {
    use Shape::{Matrix, Vector};
    if !spec.has_cross_attention() {
        return ABSENT;
    }
    let (dim, q, kv) = (spec.dim, layer.q_dim(), layer.kv_dim());
    let (before, after) = (spec.placement().pre_norm, spec.placement().residual_norm);
    let biased = has_norm_bias(spec, layer);
    match role {
        Role::CrossAttnNorm => (required_if(before), Vector(dim)),
        Role::CrossAttnNormBias => (required_if(before && biased), Vector(dim)),
        Role::CrossAttnQ => (Need::Required, Matrix(dim, q)),
        Role::CrossAttnQBias => (spec.qkv_bias, Vector(q)),
        Role::CrossAttnK | Role::CrossAttnV => (Need::Required, Matrix(dim, kv)),
        Role::CrossAttnKBias | Role::CrossAttnVBias => (spec.qkv_bias, Vector(kv)),
        Role::CrossAttnOutput => (Need::Required, Matrix(q, dim)),
        Role::CrossAttnOutputBias => (spec.linear_bias, Vector(dim)),
        Role::CrossAttnOutputNorm => (required_if(after), Vector(dim)),
        Role::CrossAttnOutputNormBias => (required_if(after && biased), Vector(dim)),
        _ => ABSENT,
    }
}

/// Requirement and shape of the norm's weights for queries or keys, in a layer with `count` heads of them.
const fn head_norm(spec: &Spec<'_>, layer: &Layer, count: usize) -> Row {
    let dim = layer.head.dim;
    match spec.qk_norm() {
        QkNorm::None | QkNorm::Unweighted => ABSENT,
        QkNorm::Head => (Need::Required, Shape::Vector(dim)),
        QkNorm::EachHead => (Need::Optional, Shape::Vectors(dim, count)),
        QkNorm::Gain => (Need::Required, Shape::Vectors(1, count)),
        QkNorm::Whole => (Need::Required, Shape::Vector(dim * count)),
    }
}

/// Returns `need` for a layer that computes its own keys and values. Other layers do not use the tensor, but some files
/// contain it nevertheless.
const fn need_if_owned(layer: &Layer, need: Need) -> Need {
    if layer.owns_kv || matches!(need, Need::Absent) { need } else { Need::Unused }
}
