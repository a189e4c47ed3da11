//! Gemma 1 to 3: RMS norms (the converter has added the 1 to their weights), a feed-forward gated by the tanh form of
//! GELU, embeddings scaled by the square root of their width, and the embedding as the head.
//!
//! Gemma 2 and 3 also have norms on the outputs of attention and feed-forward, and local layers with a sliding window:
//! every other layer in Gemma 2, five of six in Gemma 3. Gemma 2 caps scores and logits. Gemma 3 norms the heads of q
//! and k and rotates those of local layers with a different base.

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::layers::{HeadSpec, Pattern};
use crate::model::rope::{Rope, Scaling};
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
    let spec = tri!(with_post_norms(keys, Some(4096), 2, 46));
    Ok(Spec {
        attention_cap: tri!(cap(keys, "attn_logit_softcapping", Some(50.0))),
        logit_cap: tri!(cap(keys, "final_logit_softcapping", Some(30.0))),
        ..spec
    })
}

pub(super) const fn gemma3<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(with_post_norms(keys, None, 6, 62));
    // Ollama's names of the two bases. Its early files also have a cap that the model was not trained with.
    let of_ollama = tri!(keys.positive("rope.global.freq_base"));
    let local_base = tri!(keys.or("rope.local.freq_base", 10000.0));
    let cap = tri!(cap(keys, "final_logit_softcapping", None));
    let Some(rope) = spec.global.rope else { return Ok(spec) };
    let base = match of_ollama {
        Some(base) => base,
        None => rope.base,
    };
    let base_swa = tri!(keys.or("rope.freq_base_swa", local_base));
    Ok(Spec {
        global: HeadSpec { rope: Some(Rope { base, ..rope }), ..spec.global },
        // Context scaling applies only to global layers.
        local: HeadSpec { rope: Some(Rope { base: base_swa, scaling: Scaling::None, ..rope }), ..spec.local },
        qk_norm: QkNorm::Head,
        logit_cap: if of_ollama.is_some() { None } else { cap },
        ..spec
    })
}

/// Reads a soft cap: 0 means none, a missing key means `default`.
const fn cap(keys: &mut Keys<'_, '_>, name: &'static str, default: Option<f32>) -> Result<Option<f32>, Error> {
    if keys.has_key(name) { keys.unless_zero(name) } else { Ok(default) }
}

/// Spec shared by Gemma 2 and 3. `window` is the window of local layers if the file gives none. The last layer of every
/// `period` is global. Models with `largest` layers (27B) scale scores by `1 / sqrt(dim / heads)` instead of
/// `1 / sqrt(head_dim)`. Files have no key for this; llama.cpp also decides by the number of layers.
const fn with_post_norms<'a>(
    keys: &mut Keys<'_, 'a>,
    window: Option<usize>,
    period: usize,
    largest: usize,
) -> Result<Spec<'a>, Error> {
    let spec = tri!(gemma(keys));
    let mut heads = spec.global;
    if heads.window.is_none() {
        heads.window = window;
    }
    if heads.window.is_none() {
        return Err(keys.missing("attention.sliding_window"));
    }
    let pattern = match tri!(keys.local_layers(spec.layers)) {
        Some(pattern) => pattern,
        None => Pattern::AllBut(period),
    };
    let share = match spec.dim.checked_div(spec.heads.get(0)) {
        Some(width) => 1.0 / root(width),
        None => 1.0, // no heads: refused earlier
    };
    Ok(Spec {
        global: HeadSpec { window: None, ..heads },
        local: heads,
        local_layers: pattern,
        placement: Placement { pre_norm: true, post_norm: true, residual_norm: false },
        attention_scale: match spec.attention_scale {
            None if spec.layers == largest => Some(share),
            scale => scale,
        },
        ..spec
    })
}

/// Square root of a width (`libm`'s is not a `const fn`).
pub(super) const fn root(width: usize) -> f32 {
    let n = width as f64;
    let (mut root, mut step) = (n, 0);
    // Newton's method from above: at most 11 halvings to reach the root of 2^22, then quadratic convergence.
    while step < 24 && root > 0.0 {
        root = (root + n / root) / 2.0;
        step += 1;
    }
    root as f32
}
