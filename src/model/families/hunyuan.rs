//! Hunyuan, dense: Llama with norms on the heads of q and k, after rope. The converter has folded the context scaling
//! into the rotary base.

use crate::model::keys::Keys;
use crate::model::{QkNorm, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        qk_norm: QkNorm::Head,
        qk_norm_after_rope: true,
        ..tri!(keys.decoder(RopeStyle::Halves))
    })
}
