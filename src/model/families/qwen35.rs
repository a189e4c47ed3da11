//! Qwen 3.5: gated delta nets, and in every fourth layer attention whose queries bring a gate.

use crate::model::keys::Keys;
use crate::model::layers::Pattern;
use crate::model::roles::Role;
use crate::model::{MAX_LAYERS, QkNorm, RecurrentKind, RopeStyle, Spec};
use crate::{Error, tri};

pub(super) const fn spec<'a>(keys: &mut Keys<'_, 'a>) -> Result<Spec<'a>, Error> {
    let spec = tri!(keys.decoder(RopeStyle::Halves));
    let interval = match tri!(keys.optional_size("full_attention_interval", MAX_LAYERS)) {
        Some(interval) => interval,
        None => 4, // llama.cpp's default
    };
    // Sections of the rotation are for images; in a text all of them hold the token's position.
    keys.known("rope.dimension_sections");
    let recurrent_layers = match tri!(keys.layers_where("attention.recurrent_layers", spec.layers)) {
        Some(pattern) => pattern,
        None => Pattern::AllBut(interval),
    };
    Ok(Spec {
        norm_eps: tri!(keys.required("attention.layer_norm_rms_epsilon")),
        qk_norm: QkNorm::Head,
        recurrent: Some(tri!(keys.recurrent(RecurrentKind::DeltaNet))),
        recurrent_layers,
        gated_query: true,
        renamed: &[(Role::PostAttentionNorm, Role::FfnNorm)],
        ..spec
    })
}
