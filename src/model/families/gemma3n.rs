//! Gemma 3n: like Gemma 4, but with several streams of hidden states, a low-rank path parallel to attention, and sparse
//! feed-forwards.

use super::gemma;
use crate::model::Spec;
use crate::model::altup::AltUp;
use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::spec::Special;
use crate::{Error, tri};

/// Number of layers that compute their own keys and values, in the published models.
const OWN: usize = 20;
/// Number of streams in the published models.
const STREAMS: usize = 4;

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(gemma::gemma(keys));
    let local = spec.global.with_base(10000.0).unscaled();
    let spec = tri!(gemma::with_inputs(keys, Spec { local, ..spec }, Pattern::AllBut(5)));
    if spec.per_layer_input == 0 {
        return Err(keys.missing("embedding_length_per_layer_input"));
    }
    if tri!(keys.count("altup.active_idx", AltUp::MOST)) > 0 {
        return Err(keys.wrong("altup.active_idx", "is not 0: not supported"));
    }
    let has_shared = keys.has_key("attention.shared_kv_layers");
    let altup = AltUp {
        streams: tri!(keys.size_or("altup.num_inputs", AltUp::MOST, STREAMS)),
        rank: tri!(keys.needed_rows("blk.0.laurel_l.weight")),
        sparsity: tri!(keys.floats("activation_sparsity_scale", spec.layers)),
    };
    Ok(Spec {
        kv_shared: if has_shared { spec.kv_shared } else { spec.layers.saturating_sub(OWN) },
        special: Special::AltUp(altup),
        ..spec
    })
}
