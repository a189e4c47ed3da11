//! BitNet b1.58: Llama with norms inside attention and feed-forward, for ternary weights.

use crate::model::keys::Keys;
use crate::model::{RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    Ok(Spec { sub_norms: true, ..tri!(keys.rms_decoder(RopeStyle::Halves)) })
}
