//! Gemma 1 to 3: RMS norms (the converter has added the 1 to their weights), a feed-forward gated
//! by the tanh form of GELU, embeddings times the root of their width, and the embedding as the head.
//!
//! Gemma 2 and 3 also have norms on the outputs of attention and feed-forward, and local layers that see a
//! window: every other one in Gemma 2, five of six in Gemma 3. Gemma 2 caps scores and logits;
//! Gemma 3 norms the heads of q and k, and turns those of local layers with a base of their own.

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
    let spec = tri!(with_post_norms(keys, 2, 46));
    Ok(Spec {
        attention_cap: Some(tri!(keys.required("attn_logit_softcapping"))),
        logit_cap: Some(tri!(keys.required("final_logit_softcapping"))),
        ..spec
    })
}

pub(super) const fn gemma3<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(with_post_norms(keys, 6, 62));
    let local = spec.local;
    let rope = match local.rope {
        // The stretching to long contexts is that of the global layers alone.
        Some(rope) => Some(Rope { base: tri!(keys.or("rope.freq_base_swa", 10000.0)), scaling: Scaling::None, ..rope }),
        None => None,
    };
    Ok(Spec {
        local: HeadSpec { rope, ..local },
        qk_norm: QkNorm::Head,
        logit_cap: tri!(keys.positive("final_logit_softcapping")),
        ..spec
    })
}

/// What Gemma 2 and 3 share. Of `period` layers the last is global. The models of `largest` layers,
/// the 27B ones, scale scores by the share of a head in the width, not by the width of a head: the
/// files do not say so, and llama.cpp goes by the number of layers, too.
const fn with_post_norms<'a>(keys: &mut Keys<'_, 'a>, period: usize, largest: usize) -> Result<Spec<'a>, Error> {
    let spec = tri!(gemma(keys));
    let heads = spec.global;
    if heads.window.is_none() {
        return Err(keys.missing("attention.sliding_window"));
    }
    let pattern = match tri!(keys.local_layers(spec.layers)) {
        Some(pattern) => pattern,
        None => Pattern::AllBut(period),
    };
    let share = match spec.dim.checked_div(spec.heads) {
        Some(width) => 1.0 / root(width),
        None => 1.0, // no heads: refused before
    };
    Ok(Spec {
        global: HeadSpec { window: None, ..heads },
        local: heads,
        local_layers: pattern,
        placement: Placement { pre_norm: true, post_norm: true, residual_norm: false },
        attention_scale: if spec.layers == largest { Some(share) } else { None },
        ..spec
    })
}

/// The square root of a width. (That of `libm` is no `const fn`.)
pub(super) const fn root(width: usize) -> f32 {
    let n = width as f64;
    let (mut root, mut step) = (n, 0);
    // Newton's method from above: at most 11 halvings down to the root of 2^22, then digits double.
    while step < 24 && root > 0.0 {
        root = (root + n / root) / 2.0;
        step += 1;
    }
    root as f32
}
