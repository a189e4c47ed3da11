//! Gemma 4, text models, dense or with experts beside a dense feed-forward.
//!
//! Like Gemma 3, with these differences: local and global heads differ in width and number, the heads of v are normed
//! without a weight, scores are not scaled, and logits are capped. The last layers share the keys and values of earlier
//! ones; global layers may have no v. Each layer may receive an additional input per token, and ends with a scale
//! factor.

use super::gemma;
use crate::model::keys::Keys;
use crate::model::layers::HeadSpec;
use crate::model::rope::{Rope, Scaling};
use crate::model::{Need, Placement, QkNorm, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(gemma::gemma(keys));
    let heads = spec.global;
    let Some(local_layers) = tri!(keys.local_layers(spec.layers)) else {
        return Err(keys.missing("attention.sliding_window_pattern"));
    };
    if heads.window.is_none() {
        return Err(keys.missing("attention.sliding_window"));
    }
    let dim = match tri!(keys.optional_size("attention.key_length_swa", Keys::MAX_WIDTH)) {
        Some(dim) => dim,
        None => heads.dim,
    };
    tri!(keys.value_length("attention.value_length_swa", dim));
    let rope = match heads.rope {
        Some(rope) => Some(Rope {
            dim: tri!(keys.rope_dim("rope.dimension_count_swa", dim)),
            base: tri!(keys.required("rope.freq_base_swa")),
            scaling: Scaling::None,
            ..rope
        }),
        None => None,
    };
    let kv_shared = match tri!(keys.nonzero("attention.shared_kv_layers", spec.layers)) {
        Some(layers) => layers,
        None => 0,
    };
    let per_layer_input = match tri!(keys.nonzero("embedding_length_per_layer_input", Keys::MAX_WIDTH)) {
        Some(width) => width,
        None => 0,
    };
    let experts = tri!(keys.experts(true));
    Ok(Spec {
        global: HeadSpec { window: None, ..heads },
        local: HeadSpec { dim, rope, ..heads },
        local_layers,
        placement: Placement { pre_norm: true, post_norm: true, residual_norm: false },
        qk_norm: QkNorm::Head,
        v_norm: true,
        v_from_k: true,
        kv_shared,
        attention_scale: Some(1.0),
        logit_cap: tri!(keys.positive("final_logit_softcapping")),
        per_layer_input,
        layer_scale: Need::Optional,
        experts_beside: experts.is_some(),
        experts,
        ..spec
    })
}
