//! SmolLM 3: Llama without rotary positions in every fourth layer.

use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::{RopeStyle, Spec};
use crate::{Error, tri};

/// Every fourth layer has no rotary positions. As in llama.cpp, this is a constant, because files do not store the
/// period.
const WITHOUT_ROPE: usize = 4;

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.rms_decoder(RopeStyle::Adjacent));
    let heads = spec.global;
    Ok(Spec { local: heads.unrotated(), local_layers: Pattern::Every(WITHOUT_ROPE), ..spec })
}
