//! Attention over latent vectors: DeepSeek 2 and 3 (and others with the same architecture name: Kimi K2, GLM 4.7
//! Flash), Mistral 4, MiniCPM 3 and PLM.

use super::gemma::root;
use super::granite;
use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::mixture::SharedWidth;
use crate::model::{Gate, HeadSpec, RopeStyle, Scores, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.latent(RopeStyle::Adjacent));
    // Some files of GLM 4.7 Flash lack the key for the router's function. They are recognized by the same numbers of
    // layers and tokens as in llama.cpp.
    let scores = match spec.layers {
        47 | 48 if spec.vocab == 154_880 => Scores::Sigmoid,
        _ => Scores::Softmax,
    };
    // As in llama.cpp, the width of the shared experts follows from their number, whatever width the file gives.
    let spec = tri!(keys.mixture_with(spec, scores, false, SharedWidth::Count));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        temperature: tri!(keys.temperature(&spec)),
        ..spec
    })
}

/// MiniCPM 3. Its scale factors have defaults, because files of llama.cpp have no keys for these factors.
pub(super) const fn minicpm3<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.latent(RopeStyle::Halves));
    let rope = tri!(super::phi3::long(keys, &spec));
    let norm_eps = tri!(keys.required("attention.layer_norm_rms_epsilon"));
    let spec = Spec { norm_eps, global: HeadSpec { rope, ..spec.global }, ..spec };
    granite::scaled(keys, spec, [12.0, 1.4 / root(spec.layers), spec.dim as f32 / 256.0])
}

/// PLM: no gate, and squared ReLU.
pub(super) const fn plm<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        gate: Gate::None,
        activation: Activation::ReluSquared,
        ..tri!(keys.latent(RopeStyle::Adjacent))
    })
}
