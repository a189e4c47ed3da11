//! T5 and related encoder-decoders: no biases, RMS norms before attention and feed-forward, positions as a bias on
//! scores, and unscaled scores. T5 1.1 and Flan have a gated feed-forward and a separate head; if the embedding is the
//! head, the decoder's states are scaled by `1 / sqrt(dim)`.

use super::gemma::root;
use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::{Gate, Positions, RopeStyle, Spec, Stack};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let spec = tri!(keys.target(spec));
    let tied = !keys.has("output.weight");
    Ok(Spec { logit_scale: if tied { 1.0 / root(spec.dim) } else { 1.0 }, ..tri!(parts(keys, spec)) })
}

/// T5's encoder without a decoder.
pub(super) const fn encoder<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let spec = tri!(keys.encoder(spec));
    Ok(Spec {
        stack: Stack::Source {
            own_words: false,
            #[cfg(feature = "sound")]
            front: None,
        },
        ..tri!(parts(keys, spec))
    })
}

const fn parts<'a>(keys: &mut Keys<'_, 'a>, spec: Spec<'a>) -> Result<Spec<'a>, Error> {
    let heads = spec.global;
    let norm_eps = tri!(keys.required("attention.layer_norm_rms_epsilon"));
    let buckets = tri!(keys.relative_buckets());
    let gated = keys.has("enc.blk.0.ffn_gate.weight");
    Ok(Spec {
        global: heads.unrotated(),
        positions: Positions::Relative { buckets, embedded: false },
        own_biases: keys.has("enc.blk.1.attn_rel_b.weight"), // UMT5
        norm_eps,
        attention_scale: Some(1.0),
        activation: if gated { Activation::GeluTanh } else { Activation::Relu },
        gate: if gated { Gate::Separate } else { Gate::None },
        ..spec
    })
}
