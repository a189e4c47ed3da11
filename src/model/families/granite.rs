//! Granite 3, and dense Granite 4: Llama with four scale factors. Some models have no positions.

use crate::model::keys::Keys;
use crate::model::{HeadSpec, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Adjacent));
    let rope = match tri!(keys.switch("rope.scaling.finetuned")) {
        Some(false) => None, // the converter's sign for no positions
        _ => spec.global.rope,
    };
    Ok(Spec {
        global: HeadSpec { rope, ..spec.global },
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        attention_scale: Some(tri!(keys.required("attention.scale"))),
        embedding_scale: tri!(keys.required("embedding_scale")),
        residual_scale: tri!(keys.required("residual_scale")),
        logit_scale: 1.0 / tri!(keys.required("logit_scale")), // the file has the divisor
        ..spec
    })
}
