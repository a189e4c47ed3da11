//! OLMo 2 and 3: norms on the outputs of attention and feed-forward instead of their inputs, and norms over all of q and
//! all of k. In OLMo 3 three of four layers have a sliding window, and context scaling applies only to the global ones.

use crate::model::keys::Keys;
use crate::model::layers::{HeadSpec, Pattern};
use crate::model::rope::{Rope, Scaling};
use crate::model::{Placement, QkNorm, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let heads = spec.global;
    let local_layers = match (heads.window, tri!(keys.local_layers(spec.layers))) {
        (None, _) => Pattern::Never,
        (Some(_), Some(pattern)) => pattern,
        (Some(_), None) => Pattern::AllBut(4), // llama.cpp's default
    };
    let rope = match heads.rope {
        Some(rope) => {
            Some(Rope { base: tri!(keys.or("rope.freq_base_swa", rope.base)), scaling: Scaling::None, ..rope })
        }
        None => None,
    };
    Ok(Spec {
        global: HeadSpec { window: None, ..heads },
        local: HeadSpec { rope, ..heads },
        local_layers,
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        placement: Placement { pre_norm: false, post_norm: true, residual_norm: false },
        qk_norm: QkNorm::Whole,
        ..spec
    })
}
