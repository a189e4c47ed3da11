//! Nemotron-H: each layer is Mamba-2, attention without positions, or a feed-forward (with experts in Nemotron 3). The
//! feed-forward has no gate and uses squared ReLU.

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::{Experts, Gate, Need, RecurrentKind, RopeStyle, Scores, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let all = tri!(keys.hybrid(RopeStyle::Halves));
    let spec = tri!(keys.mixture(all, Scores::Sigmoid, false));
    Ok(Spec {
        norm_eps: tri!(keys.norm_eps()),
        global: spec.global.unrotated(),
        linear_bias: Need::Optional,
        qkv_bias: Need::Optional,
        recurrent: Some(tri!(keys.recurrent(RecurrentKind::Mamba2))),
        recurrent_layers: keys.layers_without_attention(),
        one_part: true,
        activation: Activation::ReluSquared,
        gate: Gate::None,
        experts: match spec.experts {
            // With `None`, the experts have the width of each layer, which is 0 in layers without experts.
            Some(experts) => Some(Experts { width: None, ..experts }),
            None => None,
        },
        ..spec
    })
}
