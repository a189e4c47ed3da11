//! Decoders with layer norms. Most of them have feed-forwards without a gate; in some, attention and feed-forward read
//! the same hidden state.

use super::gpt2;
use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::roles::Role;
use crate::model::{Gate, Need, Positions, QkNorm, Residual, RopeStyle, Spec};
use crate::{Error, tri};

/// Reads the spec of a decoder with layer norms, and with a feed-forward without a gate. A linear layer has a bias if
/// the file has a tensor for it.
const fn plain<'a>(
    keys: &mut Keys<'_, 'a>,
    style: RopeStyle,
    activation: Activation,
    residual: Residual,
) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.layer_norm_decoder(style));
    Ok(Spec { fused_qkv: !keys.has("blk.0.attn_q.weight"), gate: Gate::None, activation, residual, ..spec })
}

const ONE_NORM: Residual = Residual::Parallel { one_norm: true };

/// Phi 1 to 2.
pub(super) const fn phi2<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    plain(keys, RopeStyle::Halves, Activation::GeluTanh, ONE_NORM)
}

/// GPT-J.
pub(super) const fn gptj<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    plain(keys, RopeStyle::Adjacent, Activation::GeluTanh, ONE_NORM)
}

/// GPT-NeoX and Pythia.
pub(super) const fn gptneox<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let residual = match tri!(keys.switch("use_parallel_residual")) {
        Some(false) => Residual::Serial,
        Some(true) => Residual::Parallel { one_norm: false },
        None => return Err(keys.missing("use_parallel_residual")),
    };
    plain(keys, RopeStyle::Halves, Activation::GeluErf, residual)
}

/// Falcon 1 and 2. The larger models have a separate norm for attention.
pub(super) const fn falcon<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    const BOTH: &[(Role, Role)] = &[
        (Role::AttnNorm, Role::FfnNorm),
        (Role::AttnNormBias, Role::FfnNormBias),
        (Role::AttnNorm2, Role::AttnNorm),
        (Role::AttnNorm2Bias, Role::AttnNormBias),
    ];
    let one_norm = !keys.has("blk.0.attn_norm_2.weight");
    let spec = tri!(plain(keys, RopeStyle::Halves, Activation::GeluErf, Residual::Parallel { one_norm }));
    Ok(Spec { renamed: if one_norm { &[] } else { BOTH }, ..spec })
}

/// StarCoder 2.
pub(super) const fn starcoder2<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(plain(keys, RopeStyle::Halves, Activation::GeluTanh, Residual::Serial));
    tri!(keys.window_everywhere(&spec));
    Ok(spec)
}

/// Nemotron and Jais 2.
pub(super) const fn nemotron<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    plain(keys, RopeStyle::Halves, Activation::ReluSquared, Residual::Serial)
}

/// BLOOM: ALiBi, and a norm of the embedding.
pub(super) const fn bloom<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(plain(keys, RopeStyle::Halves, Activation::GeluTanh, Residual::Serial));
    let global = spec.global.unrotated();
    Ok(Spec { global, positions: Positions::Alibi { bias: 8.0 }, embedding_norm: Need::Required, ..spec })
}

/// Jais: ALiBi, and a gate; scores are divided by the length of a head.
pub(super) const fn jais<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.layer_norm_decoder(RopeStyle::Halves));
    let Some(bias) = tri!(keys.positive("attention.max_alibi_bias")) else {
        return Err(keys.missing("attention.max_alibi_bias"));
    };
    Ok(Spec {
        global: spec.global.unrotated(),
        fused_qkv: true,
        positions: Positions::Alibi { bias },
        attention_scale: Some(1.0 / spec.global.dim as f32),
        ..spec
    })
}

/// MPT: ALiBi or learned positions; norms have biases only if the final norm has a bias.
pub(super) const fn mpt<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(plain(keys, RopeStyle::Halves, Activation::GeluErf, Residual::Serial));
    let positions = match tri!(keys.unless_zero("attention.max_alibi_bias")) {
        Some(bias) => Positions::Alibi { bias },
        None => Positions::Learned,
    };
    Ok(Spec {
        global: spec.global.unrotated(),
        positions,
        norm_bias: keys.has("output_norm.bias"),
        qkv_clamp: tri!(keys.positive("attention.clamp_kqv")),
        ..spec
    })
}

/// StarCoder: GPT-2 with one head of keys and values.
pub(super) const fn starcoder<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    gpt2::spec(keys)
}

/// Orion: Llama with layer norms.
pub(super) const fn orion<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    keys.layer_norm_decoder(RopeStyle::Halves)
}

/// OLMo 1: norms without weights.
pub(super) const fn olmo<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        bare_norm: true,
        qkv_clamp: tri!(keys.positive("attention.clamp_kqv")),
        ..tri!(keys.layer_norm_decoder(RopeStyle::Adjacent))
    })
}

/// Command R: one norm per layer, without bias, and in the largest models a norm for every head of q and k.
pub(super) const fn command_r<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_bias: false,
        residual: ONE_NORM,
        qk_norm: QkNorm::EachHead,
        logit_scale: tri!(keys.required("logit_scale")),
        ..tri!(keys.layer_norm_decoder(RopeStyle::Adjacent))
    })
}

/// Cohere 2: every fourth layer is global, without rotary positions; the other layers have a sliding window.
pub(super) const fn cohere2<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let all = tri!(command_r(keys));
    let spec = tri!(keys.always_windowed(all, Pattern::AllBut(4)));
    Ok(Spec { global: spec.global.unrotated(), qk_norm: QkNorm::None, ..spec })
}
