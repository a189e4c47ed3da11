//! Gemma 1 to 3: RMS norms (the converter has added 1 to their weights), a feed-forward gated by the tanh form of GELU,
//! embeddings scaled by the square root of their width, and the embedding as the head.
//!
//! Gemma 2 and 3 also have norms on the outputs of attention and feed-forward, and local layers with a sliding window:
//! every other layer in Gemma 2, five of six in Gemma 3. Gemma 2 caps scores and logits. Gemma 3 norms the heads of q
//! and k, and its local layers have their own rotary base.

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::{Placement, QkNorm, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn gemma<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        embedding_scale: root(spec.dim),
        activation: Activation::GeluTanh,
        ..spec
    })
}

pub(super) const fn gemma2<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let mut spec = tri!(gemma(keys));
    if spec.global.window.is_none() {
        (spec.global.window, spec.local.window) = (Some(4096), Some(4096));
    }
    let spec = tri!(with_post_norms(keys, spec, 2, 46));
    Ok(Spec {
        attention_cap: tri!(cap(keys, "attn_logit_softcapping", Some(50.0))),
        logit_cap: tri!(cap(keys, "final_logit_softcapping", Some(30.0))),
        ..spec
    })
}

pub(super) const fn gemma3<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    // Files of Ollama have their own names for the two rotary bases. Early files of Ollama have a cap that Gemma 3 was
    // not trained with.
    let of_ollama = tri!(keys.positive("rope.global.freq_base"));
    let local_base = tri!(keys.or("rope.local.freq_base", 10000.0));
    let cap = tri!(cap(keys, "final_logit_softcapping", None));
    let spec = tri!(gemma(keys));
    // Context scaling applies only to global layers.
    let local = spec.global.with_base(local_base).unscaled();
    let spec = tri!(with_post_norms(keys, Spec { local, ..spec }, 6, 62));
    Ok(Spec {
        global: match of_ollama {
            Some(base) => spec.global.with_base(base),
            None => spec.global,
        },
        qk_norm: QkNorm::Head,
        logit_cap: if of_ollama.is_some() { None } else { cap },
        ..spec
    })
}

/// Reads a soft cap from the key `name`. The value 0 means that there is no cap; if the key is missing, `default`
/// applies.
const fn cap(keys: &mut Keys<'_, '_>, name: &'static str, default: Option<f32>) -> Result<Option<f32>, Error> {
    if keys.has_key(name) { keys.unless_zero(name) } else { Ok(default) }
}

/// The spec that Gemma 2 and 3 share. The last layer of every `period` layers is global, unless the file has a pattern.
/// A model with `largest` layers (27B) scales scores by `1 / sqrt(dim / heads)` instead of `1 / sqrt(head_dim)`. The
/// number of layers decides this, as in llama.cpp, because files have no key for the scale.
const fn with_post_norms<'a>(
    keys: &mut Keys<'_, 'a>,
    spec: Spec<'a>,
    period: usize,
    largest: usize,
) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.always_windowed(spec, Pattern::AllBut(period)));
    let attention_scale = match (spec.attention_scale, spec.dim.checked_div(spec.heads.get(0))) {
        (None, Some(width)) if spec.layers == largest => Some(1.0 / root(width)),
        (scale, _) => scale,
    };
    Ok(Spec { placement: Placement::BOTH, attention_scale, ..spec })
}

/// Spec shared by Gemma 3n and 4: norms of the heads of v, keys and values shared by layers, and an input for each
/// layer.
pub(super) const fn with_inputs<'a>(
    keys: &mut Keys<'_, 'a>,
    spec: Spec<'a>,
    otherwise: Pattern<'a>,
) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.always_windowed(spec, otherwise));
    Ok(Spec {
        placement: Placement::BOTH,
        qk_norm: QkNorm::Head,
        v_norm: true,
        kv_shared: tri!(keys.count("attention.shared_kv_layers", spec.layers)),
        attention_scale: Some(1.0),
        logit_cap: tri!(keys.positive("final_logit_softcapping")),
        per_layer_input: tri!(keys.count("embedding_length_per_layer_input", Keys::MAX_WIDTH)),
        ..spec
    })
}

/// Square root of a width. `libm::sqrt` is not used, because it is not a `const fn`.
pub(super) const fn root(width: usize) -> f32 {
    let n = width as f64;
    let (mut root, mut step) = (n, 0);
    // Newton's method, from a start above the root. For 2^22, the largest width, it halves the value up to 11 times;
    // from there on, each step doubles the number of correct bits.
    while step < 24 && root > 0.0 {
        root = (root + n / root) / 2.0;
        step += 1;
    }
    root as f32
}
