//! Norms around a layer's mixer and feed-forward.

use super::row::{Row, Shape, has_norm_bias, need_if, required_if};
use super::{Layer, Mixer, Role};
use crate::model::{Need, Placement, Residual, Spec};

pub(super) const fn row(role: Role, spec: &Spec<'_>, layer: &Layer) -> Row {
    let Placement { pre_norm, post_norm, residual_norm } = spec.placement();
    // True if the layer consists only of a feed-forward, without a mixer. The first norm of such a layer is the norm
    // before the feed-forward.
    let alone = matches!(layer.mixer, Mixer::None) && spec.one_part();
    let mixed = alone || !matches!(layer.mixer, Mixer::None);
    let own_norm = layer.ffn > 0 && !alone && !matches!(spec.residual(), Residual::Parallel { one_norm: true });
    let (weighted, biased) = (!spec.bare_norm(), has_norm_bias(spec, layer));
    let is_optional = layer.index == 0 && matches!(spec.embedding_norm(), Need::Required) && !spec.has_head();
    let need = match role {
        // If the embedding is normed, the first layer's norm before attention would be redundant, and some files lack
        // it.
        Role::AttnNorm if is_optional => need_if(pre_norm, Need::Optional),
        Role::AttnNorm => required_if(pre_norm && weighted && mixed),
        Role::AttnNormBias => required_if(pre_norm && biased && mixed),
        Role::FfnNorm => required_if(pre_norm && weighted && own_norm),
        Role::FfnNormBias => required_if(pre_norm && biased && own_norm),
        Role::PostAttentionNorm | Role::PostFfwNorm => required_if(post_norm),
        Role::AttnOutputNorm | Role::LayerOutputNorm => required_if(residual_norm),
        Role::AttnOutputNormBias | Role::LayerOutputNormBias => required_if(residual_norm && biased),
        // Some roles are only different names of the roles above, for some families. They have no row of their own,
        // because such a family replaces them before the look-up: see `in_family`.
        _ => Need::Absent,
    };
    (need, Shape::Vector(spec.dim))
}
