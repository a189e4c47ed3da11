//! EmbeddingGemma: Gemma 3 as an encoder, with local layers that attend equally far in both directions. The mean of the
//! states goes through two linear layers if the file has them.

use super::gemma;
use crate::model::keys::Keys;
use crate::model::layers::HeadSpec;
use crate::model::{PooledActivation, PooledHead, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let gemma3 = tri!(gemma::gemma3(keys));
    let spec = tri!(keys.encoder(gemma3));
    // The file stores the window's total width in both directions, without the token itself.
    let window = match spec.local.window {
        Some(both) => Some(both / 2 + 1),
        None => None,
    };
    let (before, inner) = (
        tri!(keys.nonzero("dense_2_feat_in", Keys::MAX_WIDTH)),
        tri!(keys.nonzero("dense_2_feat_out", Keys::MAX_WIDTH)),
    );
    let (after, out) = (
        tri!(keys.nonzero("dense_3_feat_in", Keys::MAX_WIDTH)),
        tri!(keys.nonzero("dense_3_feat_out", Keys::MAX_WIDTH)),
    );
    let pooled_head = match (before, inner, after, out) {
        (None, None, None, None) => None,
        (Some(before), Some(inner), Some(after), Some(out)) if before == spec.dim && inner == after => {
            Some(PooledHead { inner, out, activation: PooledActivation::None })
        }
        _ => return Err(keys.wrong("dense_2_feat_in", "and the other sizes of the dense layers do not fit together")),
    };
    Ok(Spec { local: HeadSpec { window, ..spec.local }, pooled_head, ..spec })
}
