//! Gemma 4, text models. Layers have a dense feed-forward, and in some models also experts.
//!
//! Like Gemma 3, with these differences: local and global heads differ in width and number, the heads of v are normed
//! without a weight, scores are not scaled, and logits are capped. The last layers share the keys and values of earlier
//! layers; global layers may have no v. Each layer may receive an additional input per token, and ends with a scale
//! factor.

use super::gemma;
use crate::model::keys::Keys;
use crate::model::layers::{HeadSpec, Pattern};
#[cfg(feature = "drafts")]
use crate::model::next::Next;
use crate::model::rope::Rope;
use crate::model::{Need, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(gemma::gemma(keys));
    if !keys.has_key("attention.sliding_window_pattern") {
        return Err(keys.missing("attention.sliding_window_pattern"));
    }
    let local = tri!(local_heads(keys, spec.global.unscaled()));
    let spec = tri!(gemma::with_inputs(keys, Spec { local, ..spec }, Pattern::Never));
    let experts = tri!(keys.experts(true));
    Ok(Spec { v_from_k: true, layer_scale: Need::Optional, experts_beside: experts.is_some(), experts, ..spec })
}

/// Gemma 4's assistant: its layers have queries only, which read the last keys and values of the assisted model. There
/// are no keys yet for a token that the assistant reads, so windows end one position earlier.
pub(super) const fn assistant<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    #[cfg(not(feature = "drafts"))]
    return Err(Error::Unsupported { what: "architecture", name: crate::Name::new(keys.architecture.as_bytes()) });
    #[cfg(feature = "drafts")]
    {
        let width = tri!(keys.size("embedding_length_out", Keys::MAX_WIDTH));
        keys.known("nextn_predict_layers");
        let spec = tri!(spec(keys));
        let window = match spec.local.window {
            Some(window) => Some(if window > 1 { window - 1 } else { 1 }),
            None => None,
        };
        let next = Some(Next { first: 0, width, normed: true });
        let kv_shared = spec.layers;
        Ok(Spec { kv_shared, local: HeadSpec { window, ..spec.local }, next, ..spec })
    }
}

/// Returns the shape of the heads in local layers. Their width and their rotary positions differ from those of `heads`,
/// which are the heads of global layers.
const fn local_heads(keys: &mut Keys<'_, '_>, heads: HeadSpec) -> Result<HeadSpec, Error> {
    let dim = tri!(keys.size_or("attention.key_length_swa", Keys::MAX_WIDTH, heads.dim));
    tri!(keys.value_length("attention.value_length_swa", dim));
    let Some(rope) = heads.rope else { return Ok(heads) };
    let (rotated, base) =
        (tri!(keys.rope_dim("rope.dimension_count_swa", dim)), tri!(keys.required("rope.freq_base_swa")));
    Ok(HeadSpec { dim, rope: Some(Rope { dim: rotated, base, ..rope }), ..heads })
}
