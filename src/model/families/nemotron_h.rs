//! Nemotron-H: each layer is Mamba-2, attention without positions, or a feed-forward (with experts in Nemotron 3). The
//! feed-forward has no gate and uses squared ReLU.

use crate::kernel::Activation;
use crate::model::keys::Keys;
use crate::model::{Experts, Gate, HeadSpec, Need, RecurrentKind, RopeStyle, Scores, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let all = tri!(keys.hybrid(RopeStyle::Halves));
    let spec = tri!(keys.without_next(all));
    let normed = match tri!(keys.switch("expert_weights_norm")) {
        Some(normed) => normed,
        None => false,
    };
    let experts = match tri!(keys.experts(normed)) {
        // Experts use the layer's width, which is 0 in layers without experts.
        Some(experts) => Some(Experts { width: None, ..experts }),
        None => None,
    };
    tri!(keys.nonzero("expert_shared_count", 1 << 10));
    let router = tri!(keys.router(Scores::Sigmoid)); // dense models have its keys, too
    Ok(Spec {
        norm_eps: tri!(keys.norm_eps()),
        global: HeadSpec { rope: None, ..spec.global },
        linear_bias: Need::Optional,
        qkv_bias: Need::Optional,
        recurrent: Some(tri!(keys.recurrent(RecurrentKind::Mamba2))),
        recurrent_layers: keys.layers_without_attention(),
        one_part: true,
        activation: Activation::ReluSquared,
        gate: Gate::None,
        shared_experts: if experts.is_some() { tri!(keys.shared_experts(false)) } else { None },
        router: if experts.is_some() { router } else { spec.router },
        experts,
        ..spec
    })
}
