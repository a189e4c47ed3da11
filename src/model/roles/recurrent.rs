//! Tensors of recurrent mixers. Recurrent mixers also use some tensors with names of attention, see `attention.rs`.

use super::row::{ABSENT, Row, Shape, mixer_of, need_if, required_if};
use super::{Layer, Role};
use crate::model::{Need, Recurrent, RecurrentKind, Spec, StepNorms};

pub(super) const fn row(role: Role, spec: &Spec<'_>, layer: &Layer) -> Row {
    use Need::Optional;
    use Shape::{Matrix, Vector, Vectors};
    let Some(mixer) = mixer_of(spec, layer) else { return ABSENT };
    let (dim, inner) = (spec.dim, mixer.inner());
    let Recurrent { heads, groups, keys, width, taps, in_turns, step_norms, .. } = mixer;
    let is_delta = matches!(mixer.kind, RecurrentKind::DeltaNet);
    let is_kimi = matches!(mixer.kind, RecurrentKind::KimiDelta);
    let is_mamba2 = matches!(mixer.kind, RecurrentKind::Mamba2);
    let is_mamba = matches!(mixer.kind, RecurrentKind::Mamba);
    let is_short = matches!(mixer.kind, RecurrentKind::ShortConvolution);
    let [rank, ..] = mixer.ranks;
    let steps = match width.checked_div(mixer.shared) {
        Some(steps) => steps,
        None => 0,
    };
    let stepped = required_if(is_mamba && matches!(step_norms, StepNorms::Weighted));
    match role {
        Role::ShortConvIn => (required_if(is_short), Matrix(dim, 3 * dim)),
        Role::ShortConv => (required_if(is_short), Vectors(taps, dim)),
        Role::ShortConvOut => (required_if(is_short), Matrix(dim, dim)),
        Role::SsmIn if is_mamba => (Need::Required, Matrix(dim, 2 * width)),
        Role::SsmIn => (required_if(is_mamba2), Matrix(dim, mixer.row_len().saturating_sub(heads))),
        Role::SsmConv => (required_if(is_delta || is_mamba2 || is_mamba), Vectors(taps, mixer.channels())),
        Role::SsmConvBias => (need_if(is_mamba2 || is_mamba, Optional), Vector(mixer.channels())),
        Role::SsmAlpha => (required_if(is_delta && in_turns), Matrix(dim, heads)),
        Role::SsmBeta => (required_if(is_delta && in_turns || is_kimi), Matrix(dim, heads)),
        Role::SsmBetaAlpha => (required_if(is_delta && !in_turns), Matrix(dim, 2 * heads)),
        Role::SsmX => (required_if(is_mamba), Matrix(width, rank + 2 * keys)),
        Role::SsmDt => (required_if(is_mamba), Matrix(rank, steps)),
        Role::SsmDtNorm => (stepped, Vector(rank)),
        Role::SsmBNorm | Role::SsmCNorm => (stepped, Vector(keys)),
        Role::SsmDtBias if is_mamba => (Need::Required, Vector(steps)),
        Role::SsmDtBias if is_kimi => (Need::Required, Vector(inner)),
        Role::SsmDtBias => (required_if(is_delta || is_mamba2), Vector(heads)),
        Role::SsmA if is_mamba && mixer.shared > 1 => (Need::Required, Vector(steps)),
        Role::SsmA if is_mamba => (Need::Required, Vectors(keys, width)),
        Role::SsmA if is_delta => (Need::Required, Vector(heads)),
        Role::SsmA => (required_if(is_mamba2 || is_kimi), Vectors(1, heads)),
        Role::SsmD if is_mamba => (Need::Required, Vector(steps)),
        Role::SsmD => (required_if(is_mamba2), Vectors(1, heads)),
        Role::SsmNorm if is_delta || is_kimi => (Need::Required, Vector(width)),
        Role::SsmNorm => match inner.checked_div(groups) {
            Some(len) => (need_if(is_mamba2, Optional), Vectors(len, groups)),
            None => (need_if(is_mamba2, Optional), Vectors(0, groups)),
        },
        Role::SsmOut => (required_if(is_delta || is_mamba2 || is_mamba), Matrix(inner, dim)),
        _ => ABSENT,
    }
}

/// Tensors of Kimi delta attention alone.
#[cfg(feature = "mla")]
pub(super) const fn kimi(role: Role, spec: &Spec<'_>, layer: &Layer) -> Row {
    use Need::Required;
    use Shape::{Between, Matrix};
    let Some(mixer @ Recurrent { kind: RecurrentKind::KimiDelta, taps, ranks: [decay, gate, ..], .. }) =
        mixer_of(spec, layer)
    else {
        return ABSENT;
    };
    let (dim, inner) = (spec.dim, mixer.inner());
    match role {
        Role::SsmConvQ | Role::SsmConvK | Role::SsmConvV => (Required, Between(taps, inner)),
        Role::SsmFA => (Required, Matrix(dim, if decay > 0 { decay } else { inner })),
        Role::SsmFB => (required_if(decay > 0), Matrix(decay, inner)),
        Role::SsmGA => (Required, Matrix(dim, if gate > 0 { gate } else { inner })),
        Role::SsmGB => (required_if(gate > 0), Matrix(gate, inner)),
        _ => ABSENT,
    }
}

/// Tensors of RWKV, and of the mixers with its projections.
pub(super) const fn rwkv(role: Role, spec: &Spec<'_>, layer: &Layer) -> Row {
    use Need::Required;
    use Shape::{Apart, Matrices, Matrix, Vector, Vectors};
    let Some(mixer) = mixer_of(spec, layer) else { return ABSENT };
    let is_seven = match mixer.kind {
        RecurrentKind::Rwkv7 => true,
        RecurrentKind::Rwkv6 | RecurrentKind::Qrwkv6 => false,
        _ => return ABSENT,
    };
    let is_six = matches!(mixer.kind, RecurrentKind::Rwkv6);
    let dim = spec.dim;
    let [decay, learning, mixed, gate] = mixer.ranks;
    let read = if mixer.groups > 0 { mixer.groups * mixer.width } else { dim };
    // The first layer does not use its learned mix of values.
    let (mixes, mix_rank) = if layer.index > 0 { (Required, mixed) } else { (Need::Optional, learning) };
    let (seven, mixes) = (required_if(is_seven), need_if(is_seven, mixes));
    match role {
        Role::TimeMixLerp => (Required, Apart(dim, if gate > 0 { 6 } else { 5 })),
        Role::TimeMixW1 => (Required, Matrix(dim, if is_seven { decay } else { 5 * learning })),
        Role::TimeMixW2 if is_seven => (Required, Matrix(decay, dim)),
        Role::TimeMixW2 => (Required, Matrices(learning, dim, 5)),
        Role::TimeMixKey | Role::TimeMixValue => (Required, Matrix(dim, read)),
        Role::TimeMixReceptance | Role::TimeMixOutput => (Required, Matrix(dim, dim)),
        Role::TimeMixLn | Role::TimeMixLnBias => (required_if(mixer.head_norms), Vector(dim)),
        Role::TimeMixW0 | Role::TimeMixA0 | Role::TimeMixKk | Role::TimeMixKa | Role::TimeMixRk => (seven, Vector(dim)),
        Role::TimeMixA1 => (seven, Matrix(dim, learning)),
        Role::TimeMixA2 => (seven, Matrix(learning, dim)),
        Role::TimeMixV0 => (mixes, Vector(dim)),
        Role::TimeMixV1 => (mixes, Matrix(dim, mix_rank)),
        Role::TimeMixV2 => (mixes, Matrix(mix_rank, dim)),
        Role::TimeMixG1 => (required_if(is_seven && gate > 0), Matrix(dim, gate)),
        Role::TimeMixG2 => (required_if(is_seven && gate > 0), Matrix(gate, dim)),
        Role::TimeMixLerpX | Role::TimeMixDecay => (required_if(!is_seven), Vector(dim)),
        Role::TimeMixDecayW1 => (required_if(!is_seven), Matrix(dim, decay)),
        Role::TimeMixDecayW2 => (required_if(!is_seven), Matrix(decay, dim)),
        Role::TimeMixGate => (required_if(!is_seven), Matrix(dim, dim)),
        Role::TimeMixFirst => (required_if(is_six), Vectors(mixer.keys, mixer.heads)),
        #[cfg(feature = "rwkv")]
        Role::TimeMixKeyBias | Role::TimeMixValueBias => (need_if(!is_seven && !is_six, Need::Optional), Vector(read)),
        #[cfg(feature = "rwkv")]
        Role::TimeMixReceptanceBias => (need_if(!is_seven && !is_six, Need::Optional), Vector(dim)),
        Role::ChannelMixLerp => (required_if(mixer.channel_mixing), Vector(dim)),
        Role::ChannelMixLerpR => (required_if(is_six), Vector(dim)),
        Role::ChannelMixReceptance => (required_if(is_six), Matrix(dim, dim)),
        _ => ABSENT,
    }
}
