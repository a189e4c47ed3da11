//! EXAONE 4: norms on the outputs of attention and feed-forward, and on the heads of q and k. The 32B model has local
//! layers with a sliding window; its global layers, every fourth, have no rotary positions.

use crate::model::keys::Keys;
use crate::model::layers::{HeadSpec, Pattern};
use crate::model::{Placement, QkNorm, RopeStyle, Spec};
use crate::{Error, tri};

/// Default period of global layers: the last layer of each period is global.
const PERIOD: usize = 4;

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let heads = spec.global;
    let local_layers = match (heads.window, tri!(keys.local_layers(spec.layers))) {
        (None, _) => Pattern::Never,
        (Some(_), Some(pattern)) => pattern,
        (Some(_), None) => Pattern::AllBut(PERIOD),
    };
    let global = if heads.window.is_some() { HeadSpec { rope: None, window: None, ..heads } } else { heads };
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        global,
        local: heads,
        local_layers,
        placement: Placement { pre_norm: false, post_norm: true, residual_norm: false },
        qk_norm: QkNorm::Head,
        ..spec
    })
}
