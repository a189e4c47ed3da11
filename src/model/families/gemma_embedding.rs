//! EmbeddingGemma: Gemma 3 as an encoder, with local layers that attend equally far in both directions. The mean of the
//! states goes through two linear layers if the file has them.

use super::gemma;
use crate::model::keys::Keys;
use crate::model::{PooledActivation, PooledHead, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let gemma3 = tri!(gemma::gemma3(keys));
    let spec = tri!(keys.encoder(gemma3));
    let sizes = [
        tri!(keys.count("dense_2_feat_in", Keys::MAX_WIDTH)),
        tri!(keys.count("dense_2_feat_out", Keys::MAX_WIDTH)),
        tri!(keys.count("dense_3_feat_in", Keys::MAX_WIDTH)),
        tri!(keys.count("dense_3_feat_out", Keys::MAX_WIDTH)),
    ];
    let pooled_head = match sizes {
        [0, 0, 0, 0] => None,
        [before, inner, after, out] if before == spec.dim && inner == after && inner > 0 && out > 0 => {
            Some(PooledHead { inner, out, activation: PooledActivation::None })
        }
        _ => return Err(keys.wrong("dense_2_feat_in", "and the other sizes of the dense layers do not fit together")),
    };
    Ok(Spec { local: spec.local.with_window_both_ways(), pooled_head, ..spec })
}
