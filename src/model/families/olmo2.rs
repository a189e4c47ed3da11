//! OLMo 2: norms on the outputs of attention and feed-forward instead of their inputs, and norms over all of q and all
//! of k.

use crate::model::keys::Keys;
use crate::model::{Placement, QkNorm, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        placement: Placement { pre_norm: false, post_norm: true, residual_norm: false },
        qk_norm: QkNorm::Whole,
        ..tri!(keys.decoder(RopeStyle::Halves))
    })
}
