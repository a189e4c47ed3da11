//! EXAONE 4: norms on the outputs of attention and feed-forward, and on the heads of q and k. The 32B model has local
//! layers with a sliding window; its global layers, every fourth, have no rotary positions.

use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::{Placement, QkNorm, RopeStyle, Spec};
use crate::{Error, tri};

/// Default period of global layers: the last layer of each period is global.
const PERIOD: usize = 4;

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let spec = tri!(keys.rotated_windows(spec, Pattern::AllBut(PERIOD)));
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        placement: Placement::OUTPUTS,
        qk_norm: QkNorm::Head,
        ..spec
    })
}
