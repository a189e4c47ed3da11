//! LFM2: short gated convolutions, and in some layers attention with normed heads of q and k.

use crate::kernel::MAX_TAPS;
use crate::model::keys::Keys;
use crate::model::roles::Role;
use crate::model::{QkNorm, Recurrent, RecurrentKind, RopeStyle, Scores, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.hybrid(RopeStyle::Halves));
    let taps = tri!(keys.size("shortconv.l_cache", MAX_TAPS));
    let kind = RecurrentKind::ShortConvolution;
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        qk_norm: QkNorm::Head,
        recurrent: Some(Recurrent { kind, taps, heads: 1, groups: 1, keys: 0, width: spec.dim, ..Recurrent::NONE }),
        recurrent_layers: keys.layers_without_attention(),
        renamed: &[(Role::TokenEmbdNorm, Role::OutputNorm)],
        ..spec
    })
}

/// LFM2 with experts in all but the first layers.
pub(super) const fn experts<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let expert_layers = tri!(keys.behind_dense_layers());
    let (experts, router) = (tri!(keys.experts(true)), tri!(keys.router(Scores::Sigmoid)));
    Ok(Spec { experts, router, expert_layers, ..tri!(spec(keys)) })
}
