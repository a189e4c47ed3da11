//! LFM2: short gated convolutions, and in some layers attention with normed heads of q and k.

use crate::kernel::MAX_TAPS;
use crate::model::keys::Keys;
use crate::model::roles::Role;
use crate::model::{QkNorm, Recurrent, RecurrentKind, RopeStyle, Scores, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    edit!(keys.hybrid(RopeStyle::Halves), spec => convolutions(keys, spec))
}

const fn convolutions<'a>(keys: &mut Keys<'_, 'a>, spec: &mut Spec<'a>) -> Result<(), Error> {
    let taps = tri!(keys.size("shortconv.l_cache", MAX_TAPS));
    let kind = RecurrentKind::ShortConvolution;
    spec.norm_eps = tri!(keys.required("attention.layer_norm_rms_epsilon"));
    spec.qk_norm = QkNorm::Head;
    spec.recurrent = Some(Recurrent { kind, taps, heads: 1, groups: 1, keys: 0, width: spec.dim, ..Recurrent::NONE });
    spec.recurrent_layers = keys.layers_without_attention();
    spec.renamed = &[(Role::TokenEmbdNorm, Role::OutputNorm)];
    Ok(())
}

/// LFM2 with experts in all but the first layers.
pub(super) const fn experts<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    edit!(spec(keys), spec => routed(keys, spec))
}

const fn routed<'a>(keys: &mut Keys<'_, 'a>, spec: &mut Spec<'a>) -> Result<(), Error> {
    spec.expert_layers = keys.expert_layers();
    spec.experts = tri!(keys.experts(true));
    spec.router = tri!(keys.router(Scores::Sigmoid));
    Ok(())
}
