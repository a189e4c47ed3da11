//! Attention over latent vectors: DeepSeek 2 and 3 (also Kimi K2, GLM 4.7 Flash and others under this name), Mistral 4,
//! MiniCPM 3 and PLM.

use super::gemma::root;
use super::granite;
use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::rope::{Rope, Scaling};
use crate::model::{Gate, HeadSpec, RopeStyle, Scores, SharedExperts, Spec, Temperature};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let all = tri!(keys.latent(RopeStyle::Adjacent));
    let spec = tri!(keys.without_next(all));
    let normed = match tri!(keys.switch("expert_weights_norm")) {
        Some(normed) => normed,
        None => false,
    };
    let experts = tri!(keys.experts(normed));
    let shared = tri!(keys.nonzero("expert_shared_count", 1 << 10));
    let shared_experts = match (experts, shared) {
        (Some(experts), Some(shared)) => match experts.width {
            Some(width) if width as u64 * shared as u64 <= Keys::MAX_WIDTH as u64 => {
                Some(SharedExperts::new(width * shared))
            }
            Some(_) => return Err(keys.wrong("expert_shared_count", "is too large")),
            None => return Err(keys.missing("expert_feed_forward_length")),
        },
        _ => None,
    };
    // Files of GLM 4.7 Flash without the key: llama.cpp also recognizes them by these numbers.
    let scores = match spec.layers {
        47 | 48 if spec.vocab == 154_880 => Scores::Sigmoid,
        _ => Scores::Softmax,
    };
    let router = tri!(keys.router(scores));
    let expert_layers = tri!(keys.behind_dense_layers());
    let length = match tri!(keys.optional_size("attention.temperature_length", i32::MAX as usize)) {
        Some(length) => length,
        None => match spec.global.rope {
            Some(Rope { scaling: Scaling::Yarn { original, .. }, .. }) => original as usize,
            _ => spec.context,
        },
    };
    let temperature = match tri!(keys.positive("attention.temperature_scale")) {
        Some(scale) => Some(Temperature { scale, length, offset: 0, only_unrotated: false }),
        None => None,
    };
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        router: if experts.is_some() { router } else { spec.router },
        experts,
        shared_experts,
        expert_layers,
        temperature,
        ..spec
    })
}

/// MiniCPM 3, whose scales are not in the file.
pub(super) const fn minicpm3<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.latent(RopeStyle::Halves));
    let rope = match spec.global.rope {
        Some(rope) => Some(Rope { scaling: Scaling::Long { original: spec.context, attn_factor: 1.0 }, ..rope }),
        None => None,
    };
    let norm_eps = tri!(keys.required("attention.layer_norm_rms_epsilon"));
    let spec = Spec { norm_eps, global: HeadSpec { rope, ..spec.global }, ..spec };
    // Files of llama.cpp have no keys for the factors.
    granite::scaled(keys, spec, [12.0, 1.4 / root(spec.layers), spec.dim as f32 / 256.0])
}

/// PLM: no gate, and the square of the positive part.
pub(super) const fn plm<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        gate: Gate::None,
        activation: Activation::ReluSquared,
        ..tri!(keys.latent(RopeStyle::Adjacent))
    })
}
