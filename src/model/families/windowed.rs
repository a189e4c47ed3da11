//! Architectures whose local layers differ from the global layers not only in the sliding window, but also in sizes or
//! positions.

use super::granite;
use super::llama_like::{adjacent, halves};
use super::mixtures;
use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::{HeadSpec, Pattern};
use crate::model::roles::Role;
use crate::model::rope::Rope;
use crate::model::spec::Special;
use crate::model::{Gate, HeadGate, Need, Norm, Placement, QkNorm, Residual, RopeStyle, Scores, SharedExperts, Spec};
use crate::{Error, tri};

/// Granite with windows and attention sinks, with and without experts.
pub(super) const fn granite<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(granite::spec(keys));
    let spec = tri!(keys.windowed(spec, Pattern::AllButFirst(4)));
    Ok(Spec { attention_sinks: Need::Required, ..spec })
}

/// Cohere 2 with experts: global layers have no rotary positions, except the first layers, which have no experts.
pub(super) const fn cohere2moe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let rms = tri!(keys.unless_zero("attention.layer_norm_rms_epsilon"));
    let spec = tri!(keys.layer_norm_decoder(RopeStyle::Adjacent));
    let spec = tri!(keys.mixture(spec, Scores::Sigmoid, false));
    let spec = tri!(keys.windowed(spec, Pattern::AllBut(4)));
    let shared_experts = match spec.shared_experts {
        Some(shared) => Some(SharedExperts { averaged: true, ..shared }),
        None => None,
    };
    Ok(Spec {
        global: spec.global.unrotated(),
        rotated_first: tri!(keys.count("leading_dense_block_count", spec.layers)),
        norm: if rms.is_some() { Norm::Rms } else { Norm::Layer },
        norm_bias: false,
        residual: Residual::Parallel { one_norm: true },
        logit_scale: tri!(keys.required("logit_scale")),
        shared_experts,
        ..spec
    })
}

/// Laguna: gates on the outputs of heads, and numbers of heads that differ between layers.
pub(super) const fn laguna<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(mixtures::dots1(keys));
    let spec = tri!(keys.windowed(spec, Pattern::AllButFirst(4)));
    let per_head = keys.rows("blk.0.attn_gate.weight") == spec.heads.get(0);
    Ok(Spec { heads_gated: Some(HeadGate { per_head, softplus: true }), local: spec.local.unscaled(), ..spec })
}

/// MiMo 2: values are shorter than keys, and layers with a window have attention sinks.
pub(super) const fn mimo2<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let spec = tri!(keys.mixture(spec, Scores::Sigmoid, true));
    let spec = tri!(keys.windowed(spec, Pattern::Never));
    Ok(Spec { attention_sinks: Need::Optional, ..spec })
}

/// Spark 2.5: GELU, and a gate for each head.
pub(super) const fn spark<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let spec = tri!(keys.windowed(spec, Pattern::Never));
    let heads_gated = Some(HeadGate { per_head: true, softplus: false });
    Ok(Spec { activation: Activation::GeluTanh, heads_gated, ..spec })
}

/// Maple: norms of the heads of q and k, limits of gates; global layers have no rotary positions.
pub(super) const fn maple<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    let spec = tri!(keys.mixture(spec, Scores::Softmax, true));
    let spec = tri!(keys.windowed(spec, Pattern::Never));
    let special = tri!(limited(keys, &spec, true));
    Ok(Spec { global: spec.global.unrotated(), qk_norm: QkNorm::Head, special, ..spec })
}

/// Step 3.5: gates and norms of heads, limits of gates in some layers. Global layers rotate half as many elements as local
/// layers.
pub(super) const fn step35<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(mixtures::dots1(keys));
    let spec = tri!(keys.windowed(spec, Pattern::Never));
    let gated = keys.has_in_layers("attn_gate.weight");
    let normed = keys.has_in_layers("attn_q_norm.weight");
    let rope = match spec.global.rope {
        Some(rope) => Some(Rope { dim: rope.dim / 4 * 2, ..rope }),
        None => None,
    };
    let special = tri!(limited(keys, &spec, false));
    Ok(Spec {
        special,
        global: HeadSpec { rope, ..spec.global },
        qk_norm: if normed { QkNorm::Head } else { QkNorm::None },
        heads_gated: if gated { Some(HeadGate { per_head: true, softplus: false }) } else { None },
        ..spec
    })
}

/// Reads the limits of gates, if the file has them.
const fn limited<'a>(keys: &mut Keys<'_, 'a>, spec: &Spec<'a>, before: bool) -> Result<Special<'a>, Error> {
    Ok(match tri!(keys.limits(before, spec.layers)) {
        Some(limits) => Special::Limits(limits),
        None => Special::None,
    })
}

/// Muse Glimmer: norms before and after attention and feed-forward, of the embedding, and of the heads of q and k;
/// gates on the outputs of heads. Global layers have no rotary positions.
pub(super) const fn muse_glimmer<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(adjacent(keys));
    let spec = tri!(keys.windowed(spec, Pattern::AllBut(4)));
    Ok(Spec {
        global: spec.global.unrotated(),
        embedding_norm: Need::Optional,
        placement: Placement::BOTH,
        post_norm_eps: Some(1e-8),
        qk_norm: QkNorm::Head,
        heads_gated: Some(HeadGate { per_head: false, softplus: false }),
        logit_scale: tri!(keys.required("logit_scale")),
        logit_cap: tri!(keys.unless_zero("final_logit_softcapping")),
        ..spec
    })
}

/// PLaMo 3: norms before and after attention and feed-forward, and of the heads of q and k.
pub(super) const fn plamo3<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(halves(keys));
    Ok(Spec {
        placement: Placement::BOTH,
        fused_qkv: true,
        qk_norm: QkNorm::Head,
        gate: Gate::Fused,
        renamed: &[(Role::PostAttentionNormBare, Role::PostAttentionNorm), (Role::PostFfwNormBare, Role::PostFfwNorm)],
        ..tri!(keys.windowed(spec, Pattern::AllBut(8)))
    })
}
