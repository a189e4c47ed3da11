//! Mistral 3 (Ministral): Llama with YaRN context scaling and an attention temperature.

use crate::model::keys::Keys;
use crate::model::{RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Adjacent));
    tri!(keys.window_everywhere(&spec));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        temperature: tri!(keys.temperature(&spec)),
        ..spec
    })
}
