//! Granite: Llama with four scale factors, with and without experts. Some models have no positions.

use crate::model::keys::Keys;
use crate::model::{HeadSpec, RopeStyle, Scores, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.rms_decoder(RopeStyle::Adjacent));
    let rope = match tri!(keys.switch("rope.scaling.finetuned")) {
        Some(false) => None, // the converter's sign for no positions
        _ => spec.global.rope,
    };
    let spec = tri!(keys.mixture(Spec { global: HeadSpec { rope, ..spec.global }, ..spec }, Scores::Softmax, true));
    scaled(keys, spec, [1.0; 3])
}

/// Reads the scale factors: those of embeddings and residuals and the divisor of logits, each with its default.
pub(super) const fn scaled<'a>(
    keys: &mut Keys<'_, 'a>,
    spec: Spec<'a>,
    [embedding, residual, divisor]: [f32; 3],
) -> Result<Spec<'a>, Error> {
    Ok(Spec {
        embedding_scale: tri!(keys.or("embedding_scale", embedding)),
        residual_scale: tri!(keys.or("residual_scale", residual)),
        logit_scale: 1.0 / tri!(keys.or("logit_scale", divisor)),
        ..spec
    })
}
