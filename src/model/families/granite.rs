//! Granite: Llama with four scale factors, with and without experts. Some models have no positions.

use crate::model::keys::Keys;
use crate::model::{RopeStyle, Scores, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let all = tri!(keys.rms_decoder(RopeStyle::Adjacent));
    let spec = tri!(positions(keys, all));
    let spec = tri!(keys.mixture(spec, Scores::Softmax, true));
    scaled(keys, spec, [1.0; 3])
}

/// Removes rotary positions if the file has `rope.scaling.finetuned = false`, which the converter writes for models
/// without positions.
pub(super) const fn positions<'a>(keys: &mut Keys<'_, 'a>, spec: Spec<'a>) -> Result<Spec<'a>, Error> {
    match tri!(keys.switch("rope.scaling.finetuned")) {
        Some(false) => Ok(Spec { global: spec.global.unrotated(), local: spec.local.unrotated(), ..spec }),
        _ => Ok(spec),
    }
}

/// Reads the factors on embeddings and residuals, and the divisor of logits. Each of them has a default.
pub(super) const fn scaled<'a>(
    keys: &mut Keys<'_, 'a>,
    spec: Spec<'a>,
    [embedding, residual, divisor]: [f32; 3],
) -> Result<Spec<'a>, Error> {
    let embedding_scale = tri!(keys.or("embedding_scale", embedding));
    Ok(Spec {
        embedding_scale,
        #[cfg(feature = "vision")]
        picture_scale: embedding_scale,
        residual_scale: tri!(keys.or("residual_scale", residual)),
        logit_scale: 1.0 / tri!(keys.or("logit_scale", divisor)),
        ..spec
    })
}
