//! Granite 3: Llama with four scale factors.

use crate::model::keys::Keys;
use crate::model::{RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        attention_scale: Some(tri!(keys.required("attention.scale"))),
        embedding_scale: tri!(keys.required("embedding_scale")),
        residual_scale: tri!(keys.required("residual_scale")),
        logit_scale: 1.0 / tri!(keys.required("logit_scale")), // the file has the divisor
        ..tri!(keys.decoder(RopeStyle::Adjacent))
    })
}
