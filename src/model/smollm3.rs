//! SmolLM 3: Llama, but every fourth layer has no rotary positions.

use super::keys::Keys;
use super::layers::{Heads, Pattern};
use super::{RopeStyle, Spec};
use crate::{Error, tri};

/// Files do not say it; llama.cpp has it as a constant, too.
const WITHOUT_ROPE: usize = 4;

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Adjacent));
    let [heads, _] = spec.kinds;
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        kinds: [heads, Heads { rope: None, ..heads }],
        second: Pattern::Every(WITHOUT_ROPE),
        ..spec
    })
}
