//! EmbeddingGemma: Gemma 3 as an encoder, with local layers that attend equally far in both directions. The mean of the
//! states goes through two linear layers, if the file has these layers.

use super::gemma;
use crate::model::Spec;
use crate::model::keys::Keys;
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let gemma3 = tri!(gemma::gemma3(keys));
    let spec = tri!(keys.encoder(gemma3));
    let mut spec = Spec { local: spec.local.with_window_both_ways(), ..spec };
    tri!(keys.dense(&mut spec));
    Ok(spec)
}
