//! Mamba-2: alone, alternating with attention layers (Granite 4), or parallel to attention in every layer (Falcon-H1).

use super::granite;
use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::roles::Role;
use crate::model::{RecurrentKind, RopeStyle, Scores, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.hybrid(RopeStyle::Halves));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        global: spec.global.unrotated(),
        recurrent: Some(tri!(keys.recurrent(RecurrentKind::Mamba2))),
        recurrent_layers: Pattern::Always,
        ..spec
    })
}

/// Granite 4: the scale factors of Granite 3; rotary positions only if a key enables them.
pub(super) const fn granite<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let all = tri!(keys.hybrid(RopeStyle::Adjacent));
    let spec = tri!(granite::positions(keys, all));
    // In models without experts, the shared expert is the only feed-forward, and the converter stores it as such.
    let spec = tri!(keys.mixture(spec, Scores::Softmax, true));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        recurrent: Some(tri!(keys.recurrent(RecurrentKind::Mamba2))),
        recurrent_layers: keys.layers_without_attention(),
        ..tri!(granite::scaled(keys, spec, [1.0; 3]))
    })
}

/// Falcon-H1: in every layer, Mamba-2 and attention process the same input.
pub(super) const fn falcon<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        recurrent: Some(tri!(keys.recurrent(RecurrentKind::Mamba2))),
        side_by_side: true,
        renamed: &[(Role::FfnNormBare, Role::FfnNorm)],
        ..tri!(keys.hybrid(RopeStyle::Halves))
    })
}
