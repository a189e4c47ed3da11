//! RWKV-6 and RWKV-7: no attention, only states of fixed size. Some models combine either of the two with the other
//! parts of Qwen 2.

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::{Pattern, PerLayer};
use crate::model::roles::Role;
use crate::model::{Gate, MAX_LAYERS, Need, Norm, Recurrent, RecurrentKind, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn rwkv7<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let mixer = Recurrent { channel_mixing: true, head_norms: true, ..tri!(seven(keys)) };
    alone(keys, mixer)
}

pub(super) const fn rwkv6<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let halved_every = tri!(keys.count("rescale_every_n_layers", MAX_LAYERS));
    let mixer = tri!(six(keys, RecurrentKind::Rwkv6));
    alone(keys, Recurrent { halved_every, channel_mixing: true, head_norms: true, ..mixer })
}

/// ARWKV: RWKV-7 in Qwen 2.
pub(super) const fn arwkv7<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let mixer = Recurrent { head_norms: keys.has("blk.0.time_mix_ln.weight"), ..tri!(seven(keys)) };
    in_qwen(keys, mixer)
}

/// QRWKV: gated linear attention with the projections of RWKV-6 but without a bonus for the token's own key, in Qwen 2.
pub(super) const fn rwkv6qwen2<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let mixer = tri!(six(keys, RecurrentKind::Qrwkv6));
    in_qwen(keys, mixer)
}

/// Reads the ranks of RWKV-7.
const fn seven(keys: &mut Keys<'_, '_>) -> Result<Recurrent, Error> {
    let ranks = [
        tri!(keys.size("attention.decay_lora_rank", Keys::MAX_WIDTH)),
        tri!(keys.size("attention.iclr_lora_rank", Keys::MAX_WIDTH)),
        tri!(keys.size("attention.value_residual_mix_lora_rank", Keys::MAX_WIDTH)),
        tri!(keys.count("attention.gate_lora_rank", Keys::MAX_WIDTH)),
    ];
    Ok(Recurrent { kind: RecurrentKind::Rwkv7, ranks, ..Recurrent::NONE })
}

/// Reads the ranks of RWKV-6.
const fn six(keys: &mut Keys<'_, '_>, kind: RecurrentKind) -> Result<Recurrent, Error> {
    let ranks = [
        tri!(keys.size("time_decay_extra_dim", Keys::MAX_WIDTH)),
        tri!(keys.size("time_mix_extra_dim", Keys::MAX_WIDTH / 8)),
        0,
        0,
    ];
    Ok(Recurrent { kind, ranks, ..Recurrent::NONE })
}

/// RWKV itself: layer norms, and a feed-forward that also mixes each token with the previous token.
const fn alone<'a>(keys: &mut Keys<'_, 'a>, mixer: Recurrent) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm: Norm::Layer,
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        embedding_norm: Need::Required,
        gate: Gate::None,
        activation: Activation::ReluSquared,
        renamed: &[
            (Role::AttnNorm2, Role::FfnNorm),
            (Role::AttnNorm2Bias, Role::FfnNormBias),
            (Role::ChannelMixKey, Role::FfnUp),
            (Role::ChannelMixValue, Role::FfnDown),
        ],
        ..tri!(with_heads(keys, mixer))
    })
}

/// RWKV in place of attention, with the norms and the feed-forward of Qwen 2. Several heads may share keys and values.
const fn in_qwen<'a>(keys: &mut Keys<'_, 'a>, mixer: Recurrent) -> Result<Spec<'a>, Error> {
    let norm_eps = tri!(keys.required("attention.layer_norm_rms_epsilon"));
    let spec = tri!(with_heads(keys, mixer));
    let recurrent = match (spec.recurrent, spec.kv_heads) {
        (Some(mixer), PerLayer::All(0)) => Some(Recurrent { groups: mixer.heads, ..mixer }),
        (Some(mixer), PerLayer::All(groups)) if groups <= mixer.heads && mixer.heads.is_multiple_of(groups) => {
            Some(Recurrent { groups, ..mixer })
        }
        _ => return Err(keys.wrong("attention.head_count_kv", "does not divide the number of heads")),
    };
    Ok(Spec { norm_eps, recurrent, ..spec })
}

/// Reads the keys that all of these families have.
const fn with_heads<'a>(keys: &mut Keys<'_, 'a>, mixer: Recurrent) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.hybrid(RopeStyle::Halves));
    let width = tri!(keys.size("wkv.head_size", spec.dim));
    let heads = match spec.dim.checked_div(width) {
        Some(heads) if spec.dim == heads * width => heads,
        _ => return Err(keys.wrong("wkv.head_size", "does not divide embedding_length")),
    };
    let shifts = if mixer.channel_mixing { 2 } else { 1 };
    match tri!(keys.optional_size("token_shift_count", 2)) {
        Some(count) if count != shifts => {
            return Err(keys.wrong("token_shift_count", "is not that of the architecture: not supported"));
        }
        _ => {}
    }
    Ok(Spec {
        global: spec.global.unrotated(),
        recurrent: Some(Recurrent { heads, keys: width, width, ..mixer }),
        recurrent_layers: Pattern::Always,
        ..spec
    })
}
