//! RWKV-6 and -7: no attention, only states of fixed size.

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::roles::Role;
use crate::model::{Gate, HeadSpec, MAX_LAYERS, Need, Norm, Recurrent, RecurrentKind, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn rwkv7<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let gate = match tri!(keys.nonzero("attention.gate_lora_rank", Keys::MAX_WIDTH)) {
        Some(rank) => rank,
        None => 0,
    };
    let ranks = [
        tri!(keys.size("attention.decay_lora_rank", Keys::MAX_WIDTH)),
        tri!(keys.size("attention.iclr_lora_rank", Keys::MAX_WIDTH)),
        tri!(keys.size("attention.value_residual_mix_lora_rank", Keys::MAX_WIDTH)),
        gate,
    ];
    with_heads(keys, RecurrentKind::Rwkv7, ranks, 0)
}

pub(super) const fn rwkv6<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let ranks = [
        tri!(keys.size("time_decay_extra_dim", Keys::MAX_WIDTH)),
        tri!(keys.size("time_mix_extra_dim", Keys::MAX_WIDTH / 8)),
        0,
        0,
    ];
    let halved_every = match tri!(keys.nonzero("rescale_every_n_layers", MAX_LAYERS)) {
        Some(layers) => layers,
        None => 0,
    };
    with_heads(keys, RecurrentKind::Rwkv6, ranks, halved_every)
}

/// Reads the keys of both.
const fn with_heads<'a>(
    keys: &mut Keys<'_, 'a>,
    kind: RecurrentKind,
    ranks: [usize; 4],
    halved_every: usize,
) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.hybrid(RopeStyle::Halves));
    let width = tri!(keys.size("wkv.head_size", spec.dim));
    let heads = match spec.dim.checked_div(width) {
        Some(heads) if spec.dim == heads * width => heads,
        _ => return Err(keys.wrong("wkv.head_size", "does not divide embedding_length")),
    };
    match tri!(keys.optional_size("token_shift_count", 2)) {
        None | Some(2) => {}
        Some(_) => return Err(keys.wrong("token_shift_count", "is not 2: not supported")),
    }
    Ok(Spec {
        norm: Norm::Layer,
        norm_eps: tri!(keys.required("attention.layer_norm_epsilon")),
        embedding_norm: Need::Required,
        global: HeadSpec { rope: None, ..spec.global },
        gate: Gate::None,
        activation: Activation::ReluSquared,
        recurrent: Some(Recurrent { kind, heads, keys: width, width, ranks, halved_every, ..Recurrent::NONE }),
        recurrent_layers: Pattern::Always,
        renamed: &[
            (Role::AttnNorm2, Role::FfnNorm),
            (Role::AttnNorm2Bias, Role::FfnNormBias),
            (Role::ChannelMixKey, Role::FfnUp),
            (Role::ChannelMixValue, Role::FfnDown),
        ],
        ..spec
    })
}
