//! Gemma 3n: as Gemma 4, with several streams of hidden states, a low-rank path beside attention, and sparse feed-forwards.

use super::gemma;
use crate::model::altup::AltUp;
use crate::model::keys::Keys;
use crate::model::layers::{HeadSpec, Pattern};
use crate::model::rope::{Rope, Scaling};
use crate::model::spec::Special;
use crate::model::{Placement, QkNorm, Spec};
use crate::{Error, tri};

/// Number of layers with their own keys and values, and of streams, in the published models.
const OWN: usize = 20;
const STREAMS: usize = 4;

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(gemma::gemma(keys));
    let heads = spec.global;
    let local_layers = match tri!(keys.local_layers(spec.layers)) {
        Some(pattern) => pattern,
        None => Pattern::AllBut(5),
    };
    if heads.window.is_none() {
        return Err(keys.missing("attention.sliding_window"));
    }
    let rope = match heads.rope {
        Some(rope) => Some(Rope { base: tri!(keys.or("rope.freq_base_swa", 10000.0)), scaling: Scaling::None, ..rope }),
        None => None,
    };
    const SHARED: &str = "attention.shared_kv_layers";
    let kv_shared = match tri!(keys.nonzero(SHARED, spec.layers)) {
        Some(layers) => layers,
        None if keys.has_key(SHARED) => 0,
        None => spec.layers.saturating_sub(OWN),
    };
    if tri!(keys.nonzero("altup.active_idx", AltUp::MOST)).is_some() {
        return Err(keys.wrong("altup.active_idx", "is not 0: not supported"));
    }
    let streams = match tri!(keys.optional_size("altup.num_inputs", AltUp::MOST)) {
        Some(streams) => streams,
        None => STREAMS,
    };
    Ok(Spec {
        global: HeadSpec { window: None, ..heads },
        local: HeadSpec { rope, ..heads },
        local_layers,
        placement: Placement { pre_norm: true, post_norm: true, residual_norm: false },
        qk_norm: QkNorm::Head,
        v_norm: true,
        kv_shared,
        attention_scale: Some(1.0),
        logit_cap: tri!(keys.positive("final_logit_softcapping")),
        per_layer_input: tri!(keys.size("embedding_length_per_layer_input", Keys::MAX_WIDTH)),
        special: Special::AltUp(AltUp {
            streams,
            rank: tri!(keys.needed_rows("blk.0.laurel_l.weight")),
            sparsity: tri!(keys.floats("activation_sparsity_scale", spec.layers)),
        }),
        ..spec
    })
}
