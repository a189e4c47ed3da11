//! Kimi delta attention, and in some layers attention over latent vectors: Kimi Linear, and Ling 3.

use crate::kernel::MAX_TAPS;
use crate::model::keys::Keys;
use crate::model::layers::PerLayer;
use crate::model::{HeadGate, Recurrent, RecurrentKind, RopeStyle, Scores, Spec};
use crate::{Error, tri};

/// Kimi Linear: no positions; decays and gates of low rank.
pub(super) const fn linear<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(delta(keys, RopeStyle::Adjacent, true));
    let recurrent = match spec.recurrent {
        Some(mixer) => Some(Recurrent { ranks: [mixer.keys, mixer.keys, 0, 0], ..mixer }),
        None => None,
    };
    Ok(Spec { global: spec.global.unrotated(), recurrent, ..spec })
}

/// Ling 3: decays with a lower bound, and a gate for each attention head.
pub(super) const fn ling<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    if let Some(false) = tri!(keys.switch("kda.safe_gate")) {
        return Err(keys.wrong("kda.safe_gate", "is false: not supported"));
    }
    // The variant of this model that reads images has rotary sections, which make no difference for text. The two
    // elements of each of its rotary pairs are in different halves of a head.
    let style = if keys.has_key("rope.dimension_sections") { RopeStyle::Halves } else { RopeStyle::Adjacent };
    let floor = tri!(keys.negative("kda.gate_lower_bound"));
    let spec = tri!(delta(keys, style, false));
    let recurrent = match spec.recurrent {
        Some(mixer) => Some(Recurrent { floor, ..mixer }),
        None => None,
    };
    Ok(Spec { recurrent, heads_gated: Some(HeadGate { per_head: true, softplus: false }), ..spec })
}

/// Reads the keys that Kimi Linear and Ling 3 share. If the file does not say whether the weights of experts are
/// divided by their sum, `normed` decides.
const fn delta<'a>(keys: &mut Keys<'_, 'a>, style: RopeStyle, normed: bool) -> Result<Spec<'a>, Error> {
    keys.partial_layers = true;
    let recurrent_layers = keys.layers_without_attention();
    let all = tri!(keys.latent(style));
    let taps = tri!(keys.size("ssm.conv_kernel", MAX_TAPS));
    let width = tri!(keys.size("kda.head_dim", Keys::MAX_WIDTH));
    let PerLayer::All(heads) = all.heads else {
        return Err(keys.wrong("attention.head_count", "must be the same for all layers"));
    };
    if heads as u64 * width as u64 > Keys::MAX_WIDTH as u64 / 8 {
        return Err(keys.wrong("kda.head_dim", "is too large"));
    }
    let spec = tri!(keys.mixture(all, Scores::Sigmoid, normed));
    let kind = RecurrentKind::KimiDelta;
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        recurrent: Some(Recurrent { kind, taps, heads, groups: heads, keys: width, width, ..Recurrent::NONE }),
        recurrent_layers,
        ..spec
    })
}
