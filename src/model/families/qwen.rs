//! Qwen 2 and 2.5 (biases on q, k and v) and Qwen 3 (norms on the heads of q and k instead), with a dense feed-forward
//! or with experts.

use crate::model::keys::Keys;
use crate::model::layers::{Pattern, PerLayer};
use crate::model::{Need, PooledActivation, QkNorm, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn qwen2<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        qkv_bias: Need::Optional, // Qwen 2 has them, some relatives do not
        output_bias: Need::Optional,
        ..tri!(keys.decoder(RopeStyle::Halves))
    })
}

/// Qwen 2 and 2.5-VL. Without the feature `vision`, all rotary positions are positions in a text.
pub(super) const fn qwen2vl<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    edit!(qwen2(keys), spec => axes(keys, spec, false))
}

/// Qwen 3-VL.
pub(super) const fn qwen3vl<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    edit!(qwen3(keys), spec => axes(keys, spec, true))
}

/// Qwen 3-VL with experts.
pub(super) const fn qwen3vlmoe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    edit!(qwen3moe(keys), spec => axes(keys, spec, true))
}

/// Reads the axes of rotary positions.
const fn axes<'a>(keys: &mut Keys<'_, 'a>, spec: &mut Spec<'a>, in_turns: bool) -> Result<(), Error> {
    #[cfg(feature = "vision")]
    return keys.sections(spec, in_turns);
    #[cfg(not(feature = "vision"))]
    {
        let _ = (keys, spec, in_turns);
        Ok(())
    }
}

pub(super) const fn qwen3<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let mut spec = tri!(keys.decoder(RopeStyle::Halves));
    tri!(keys.ranking(PooledActivation::None, &mut spec));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        qkv_bias: Need::Optional,
        linear_bias: Need::Optional,
        qk_norm: QkNorm::Head,
        ..spec
    })
}

pub(super) const fn qwen3moe<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(qwen3(keys));
    let experts = tri!(keys.experts(true));
    if experts.is_none() {
        return Err(keys.missing("expert_count"));
    }
    // `feed_forward_length` is the width of layers without experts; most of these models have no such layers.
    let expert_layers = keys.expert_layers();
    let ffn = match expert_layers {
        Pattern::Always => PerLayer::All(tri!(keys.size("expert_feed_forward_length", Keys::MAX_WIDTH))),
        _ => spec.ffn,
    };
    Ok(Spec { ffn, experts, expert_layers, ..spec })
}
