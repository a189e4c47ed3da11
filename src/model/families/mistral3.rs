//! Mistral 3 (Ministral): Llama with YaRN context scaling and an attention temperature.

use crate::model::keys::Keys;
use crate::model::rope::{Rope, Scaling};
use crate::model::{RopeStyle, Spec, Temperature};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Adjacent));
    tri!(keys.window_everywhere(&spec));
    let length = match spec.global.rope {
        Some(Rope { scaling: Scaling::Yarn { original, .. }, .. }) => original as usize,
        _ => spec.context,
    };
    let temperature = match tri!(keys.unless_zero("attention.temperature_scale")) {
        Some(scale) => Some(Temperature { scale, length, offset: 0, only_unrotated: false }),
        None => None,
    };
    Ok(Spec { norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")), temperature, ..spec })
}
