//! OLMo 2 and 3: norms on the outputs of attention and feed-forward instead of their inputs, and norms over all heads
//! of q and over all heads of k. In OLMo 3, three of four layers have a sliding window, and context scaling applies
//! only to the global layers.

use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::{Placement, QkNorm, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let spec = tri!(keys.windowed(spec, Pattern::AllBut(4))); // llama.cpp's default
    Ok(Spec {
        local: spec.local.unscaled(),
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        placement: Placement::OUTPUTS,
        qk_norm: QkNorm::Whole,
        ..spec
    })
}
