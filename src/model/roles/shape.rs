//! Shapes of tensors.

use super::{Role, pooled_sizes};
#[cfg(feature = "mixtures")]
use crate::model::GroupExperts;
#[cfg(feature = "sound")]
use crate::model::front::MAX_STAGES;
use crate::model::layers::Layer;
use crate::model::{Gate, HeadGate, Latent, Positions, QkNorm, Recurrent, RecurrentKind, Spec};

/// A tensor's shape, with dimensions in the file's order: a matrix's inputs come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Shape {
    /// A vector of this length.
    Vector(usize),
    /// Vectors: length and count.
    Vectors(usize, usize),
    /// A matrix: inputs and outputs.
    Matrix(usize, usize),
    /// Matrices: inputs, outputs and count.
    Matrices(usize, usize, usize),
    /// Vectors stored as `[length, 1, 1, count]`: length and count.
    Apart(usize, usize),
    /// Vectors stored as `[length, 1, count]`: length and count.
    #[cfg(feature = "mla")]
    Between(usize, usize),
}

impl Shape {
    /// The dimensions as stored in a file.
    pub const fn dims(self) -> [u64; 4] {
        match self {
            Self::Vector(len) => [len as u64, 1, 1, 1],
            Self::Vectors(cols, rows) | Self::Matrix(cols, rows) => [cols as u64, rows as u64, 1, 1],
            Self::Matrices(cols, rows, count) => [cols as u64, rows as u64, count as u64, 1],
            Self::Apart(cols, rows) => [cols as u64, 1, 1, rows as u64],
            #[cfg(feature = "mla")]
            Self::Between(cols, rows) => [cols as u64, 1, rows as u64, 1],
        }
    }

    /// True if the tensor consists of vectors rather than matrices.
    pub const fn is_vector(self) -> bool {
        match self {
            Self::Vector(_) | Self::Vectors(..) | Self::Apart(..) => true,
            #[cfg(feature = "mla")]
            Self::Between(..) => true,
            Self::Matrix(..) | Self::Matrices(..) => false,
        }
    }
}

impl Role {
    /// Shape of the role's tensor.
    pub(in crate::model) fn shape(self, spec: &Spec<'_>, layer: &Layer) -> Shape {
        use Shape::{Matrices, Matrix, Vector, Vectors};
        let (dim, ffn, width, input) = (spec.dim, layer.ffn, layer.expert_width, spec.per_layer_input());
        let (q, kv) = (layer.q_dim(), layer.kv_dim());
        let v = spec.value_width(layer) * layer.kv_heads;
        let mixer = spec.recurrent().unwrap_or(Recurrent::NONE);
        let experts = spec.experts().map_or(0, |experts| experts.count);
        let shared = spec.shared_experts().map_or(0, |shared| shared.width);
        #[cfg(feature = "mixtures")]
        let group = spec.group_experts().unwrap_or(GroupExperts { size: 0, width: 0, scale: 0.0 });
        #[cfg(feature = "mixtures")]
        let groups_of_experts = experts.checked_div(group.size).unwrap_or(0);
        let turned = spec.rope(false).or(spec.rope(true)).map_or(0, |rope| rope.dim / 2);
        let pooled = pooled_sizes(spec);
        let latent = spec.latent();
        let Latent { q_rank, rank, nope, rope, value, .. } = latent.unwrap_or(Latent::NONE);
        let [decay, learning, mixed, gate] = mixer.ranks;
        let scan = mixer.kind == RecurrentKind::Mamba;
        let six = matches!(mixer.kind, RecurrentKind::Rwkv6 | RecurrentKind::Qrwkv6);
        let kimi = mixer.kind == RecurrentKind::KimiDelta;
        let read = if mixer.groups > 0 { mixer.groups * mixer.width } else { dim };
        let groups = mixer.width.checked_div(mixer.shared).unwrap_or(0);
        let (streams, laurel) = spec.altup().map_or((0, 0), |altup| (altup.streams, altup.rank));
        let heads = |count| match spec.qk_norm() {
            QkNorm::None | QkNorm::Unweighted | QkNorm::Head => Vector(layer.head.dim),
            QkNorm::EachHead => Vectors(layer.head.dim, count),
            QkNorm::Gain => Vectors(1, count),
            QkNorm::Whole => Vector(layer.head.dim * count),
        };
        match self {
            Self::TokenEmbd | Self::Output => Matrix(dim, spec.vocab),
            #[cfg(feature = "llama-like")]
            Self::HrmInit => Vector(dim),
            Self::Dense2 => Matrix(dim, pooled.0),
            Self::Dense3 => Matrix(if pooled.0 > 0 { pooled.0 } else { dim }, pooled.1),
            Self::Cls | Self::ClsOutput => Matrix(dim, dim),
            Self::Dense2Bias | Self::ClsBias => Vector(pooled.0),
            Self::ClsNorm => Vector(if spec.scoring().is_some() { dim } else { pooled.0 }),
            #[cfg(feature = "nomic-bert")]
            Self::ClsNormBias => Vector(dim),
            Self::Dense3Bias | Self::ClsOutputBias => Vector(pooled.1),
            Self::PositionEmbd => Matrix(dim, spec.context),
            Self::RopeFreqs | Self::RopeFactorsShort | Self::RopeFactorsLong => Vector(turned),
            Self::PerLayerTokenEmbd => Matrix(spec.layers * input, spec.vocab),
            Self::PerLayerModelProj => Matrix(dim, spec.layers * input),
            Self::PerLayerProjNorm => Vector(input),
            Self::OutputNorm | Self::OutputNormBias | Self::AttnNorm | Self::AttnNormBias => Vector(dim),
            Self::TokenTypes => Matrix(dim, spec.scoring().map_or(spec.token_types(), |scoring| scoring.types)),
            #[cfg(feature = "sound")]
            Self::Conv1 | Self::Conv2 | Self::Conv3 => convolution(spec, self).0,
            #[cfg(feature = "sound")]
            Self::Conv1Bias | Self::Conv1Norm | Self::Conv1NormBias => convolution(spec, Self::Conv1).1,
            #[cfg(feature = "sound")]
            Self::Conv2Bias => convolution(spec, Self::Conv2).1,
            #[cfg(feature = "sound")]
            Self::Conv3Bias => convolution(spec, Self::Conv3).1,
            Self::TokenEmbdNorm | Self::TokenEmbdNormBias => Vector(dim),
            Self::OutputBias => Vector(spec.vocab),
            Self::AttnRelB => match spec.positions() {
                Positions::Relative { buckets } => Vectors(layer.heads, buckets),
                _ => Vectors(0, 0),
            },
            Self::AttnOutputNorm | Self::AttnOutputNormBias | Self::LayerOutputNorm => Vector(dim),
            Self::LayerOutputNormBias | Self::CrossAttnNorm | Self::CrossAttnNormBias => Vector(dim),
            Self::CrossAttnOutputNorm | Self::CrossAttnOutputNormBias | Self::CrossAttnOutputBias => Vector(dim),
            Self::CrossAttnQ => Matrix(dim, q),
            Self::CrossAttnQBias => Vector(q),
            Self::CrossAttnK | Self::CrossAttnV => Matrix(dim, kv),
            Self::CrossAttnKBias | Self::CrossAttnVBias => Vector(kv),
            Self::CrossAttnOutput => Matrix(q, dim),
            Self::FfnNorm | Self::FfnNormBias | Self::AttnOutputBias | Self::FfnDownBias => Vector(dim),
            Self::PostAttentionNorm | Self::PostFfwNorm | Self::PostNorm => Vector(dim),
            Self::AttnQkv if !layer.has_attention() => Matrix(dim, mixer.channels()),
            Self::AttnQkv => Matrix(dim, q + kv + v),
            Self::AttnQkvBias => Vector(q + kv + v),
            Self::AttnQ | Self::AttnK | Self::AttnV if !layer.has_attention() => Matrix(dim, mixer.inner()),
            Self::AttnOutput if !layer.has_attention() => Matrix(mixer.inner(), dim),
            Self::AttnQ if latent.is_some() => Matrix(dim, layer.heads * (nope + rope)),
            Self::AttnOutput if latent.is_some() => Matrix(layer.heads * value, dim),
            Self::AttnQA => Matrix(dim, q_rank),
            Self::AttnQANorm => Vector(q_rank),
            Self::AttnQB => Matrix(q_rank, layer.heads * (nope + rope)),
            Self::AttnKvA => Matrix(dim, rank + rope),
            Self::AttnKvANorm => Vector(rank),
            Self::AttnKvB => Matrix(rank, layer.heads * (nope + value)),
            Self::AttnKB => Matrices(nope, rank, layer.heads),
            Self::AttnVB => Matrices(rank, value, layer.heads),
            Self::ChannelMixLerp => Vector(dim),
            Self::TimeMixW0 | Self::TimeMixA0 | Self::TimeMixV0 | Self::TimeMixKk | Self::TimeMixKa => Vector(dim),
            Self::TimeMixRk | Self::TimeMixLn | Self::TimeMixLnBias => Vector(dim),
            Self::TimeMixLerpX | Self::TimeMixDecay | Self::ChannelMixLerpR => Vector(dim),
            Self::TimeMixFirst => Vectors(mixer.keys, mixer.heads),
            Self::TimeMixDecayW1 => Matrix(dim, decay),
            Self::TimeMixDecayW2 => Matrix(decay, dim),
            Self::TimeMixGate | Self::ChannelMixReceptance => Matrix(dim, dim),
            Self::TimeMixW1 if six => Matrix(dim, 5 * learning),
            Self::TimeMixW2 if six => Matrices(learning, dim, 5),
            Self::TimeMixW1 => Matrix(dim, decay),
            Self::TimeMixW2 => Matrix(decay, dim),
            Self::TimeMixA1 => Matrix(dim, learning),
            Self::TimeMixA2 => Matrix(learning, dim),
            Self::TimeMixV1 => Matrix(dim, if layer.index > 0 { mixed } else { learning }),
            Self::TimeMixV2 => Matrix(if layer.index > 0 { mixed } else { learning }, dim),
            Self::TimeMixG1 => Matrix(dim, gate),
            Self::TimeMixG2 => Matrix(gate, dim),
            Self::TimeMixLerp => Shape::Apart(dim, if gate > 0 { 6 } else { 5 }),
            Self::TimeMixKey | Self::TimeMixValue => Matrix(dim, read),
            Self::TimeMixReceptance | Self::TimeMixOutput => Matrix(dim, dim),
            #[cfg(feature = "rwkv")]
            Self::TimeMixKeyBias | Self::TimeMixValueBias => Vector(read),
            #[cfg(feature = "rwkv")]
            Self::TimeMixReceptanceBias => Vector(dim),
            Self::ChannelMixKey => Matrix(dim, ffn),
            Self::ChannelMixValue => Matrix(ffn, dim),
            Self::AltupProj | Self::AltupUnembdProj => Matrices(dim, dim, streams.saturating_sub(1)),
            Self::AltupRouter => Matrix(dim, streams),
            Self::AltupRouterNorm | Self::AltupCorrectScale | Self::LaurelPostNorm => Vector(dim),
            Self::AltupPredictCoef => Matrix(streams, streams * streams),
            Self::AltupCorrectCoef => Matrix(streams, streams),
            Self::LaurelL => Matrix(dim, laurel),
            Self::LaurelR => Matrix(laurel, dim),
            Self::AttnQ if spec.gated_query() => Matrix(dim, 2 * q),
            Self::AttnQ => Matrix(dim, q),
            Self::AttnGate if layer.has_attention() => match spec.heads_gated() {
                Some(HeadGate { per_head: true, .. }) => Matrix(dim, layer.heads),
                _ => Matrix(dim, q),
            },
            Self::AttnGate => Matrix(dim, mixer.inner()),
            Self::SsmX => Matrix(mixer.width, decay + 2 * mixer.keys),
            Self::SsmDt => Matrix(decay, groups),
            Self::SsmDtNorm | Self::SsmDtNormBare => Vector(decay),
            Self::SsmBNorm | Self::SsmCNorm | Self::SsmBNormBare | Self::SsmCNormBare => Vector(mixer.keys),
            Self::SsmIn if scan => Matrix(dim, 2 * mixer.width),
            Self::SsmDtBias | Self::SsmD if scan => Vector(groups),
            Self::SsmA if scan && mixer.shared > 1 => Vector(groups),
            Self::SsmA if scan => Vectors(mixer.keys, mixer.width),
            Self::SsmIn => Matrix(dim, mixer.row_len() - mixer.heads),
            Self::SsmConv => Vectors(mixer.taps, mixer.channels()),
            Self::SsmConvBias => Vector(mixer.channels()),
            Self::SsmAlpha | Self::SsmBeta => Matrix(dim, mixer.heads),
            Self::SsmBetaAlpha => Matrix(dim, 2 * mixer.heads),
            Self::SsmDtBias if kimi => Vector(mixer.inner()),
            Self::SsmDtBias => Vector(mixer.heads),
            #[cfg(feature = "mla")]
            Self::SsmConvQ | Self::SsmConvK | Self::SsmConvV => Shape::Between(mixer.taps, mixer.inner()),
            #[cfg(feature = "mla")]
            Self::SsmFA => Matrix(dim, if decay > 0 { decay } else { mixer.inner() }),
            #[cfg(feature = "mla")]
            Self::SsmFB => Matrix(decay, mixer.inner()),
            #[cfg(feature = "mla")]
            Self::SsmGA => Matrix(dim, if learning > 0 { learning } else { mixer.inner() }),
            #[cfg(feature = "mla")]
            Self::SsmGB => Matrix(learning, mixer.inner()),
            Self::SsmA if mixer.kind == RecurrentKind::DeltaNet => Vector(mixer.heads),
            Self::SsmA | Self::SsmD => Vectors(1, mixer.heads),
            Self::SsmNorm if mixer.kind == RecurrentKind::DeltaNet || kimi => Vector(mixer.width),
            Self::SsmNorm => Vectors(mixer.inner().checked_div(mixer.groups).unwrap_or(0), mixer.groups),
            Self::SsmOut => Matrix(mixer.inner(), dim),
            Self::ShortConvIn => Matrix(dim, 3 * dim),
            Self::ShortConv => Vectors(mixer.taps, dim),
            Self::ShortConvOut => Matrix(dim, dim),
            Self::FfnNormBare | Self::PostAttentionNormBare | Self::PostFfwNormBare => Vector(dim),
            Self::AttnNorm2 | Self::AttnNorm2Bias => Vector(dim),
            Self::AttnSubNorm => Vector(q),
            Self::FfnSubNorm => Vector(ffn),
            Self::AttnQBias => Vector(q),
            Self::AttnK => Matrix(dim, kv),
            Self::AttnKBias => Vector(kv),
            Self::AttnV => Matrix(dim, v),
            Self::AttnVBias => Vector(v),
            Self::AttnQNorm => heads(layer.heads),
            Self::AttnKNorm => heads(layer.kv_heads),
            Self::AttnOutput => Matrix(spec.value_width(layer) * layer.heads, dim),
            Self::FfnUp if spec.gate_in(layer) == Gate::Fused => Matrix(dim, 2 * ffn),
            Self::FfnGate | Self::FfnUp => Matrix(dim, ffn),
            Self::FfnGateBias | Self::FfnUpBias => Vector(ffn),
            Self::FfnDown => Matrix(ffn, dim),
            Self::FfnGateInp => Matrix(dim, experts),
            Self::FfnGateInpBias => Vector(experts),
            Self::FfnGateExpsBias | Self::FfnUpExpsBias => Vectors(width, experts),
            Self::FfnDownExpsBias => Vectors(dim, experts),
            Self::AttnSinks => Vector(layer.heads),
            Self::FfnGateInpScale | Self::PreFfwNorm2 | Self::PostFfwNorm1 | Self::PostFfwNorm2 => Vector(dim),
            #[cfg(feature = "mixtures")]
            Self::FfnNormExps => Vector(dim),
            #[cfg(feature = "mixtures")]
            Self::FfnGateChexps | Self::FfnUpChexps => Matrices(dim, group.width, groups_of_experts),
            #[cfg(feature = "mixtures")]
            Self::FfnDownChexps => Matrices(group.width, dim, groups_of_experts),
            Self::ExpProbsBias | Self::ExpProbsBare => Vector(experts),
            Self::FfnGateInpShexp => Matrix(dim, 1),
            Self::FfnUpShexp if spec.shared_experts().is_some_and(|shared| shared.fused) => Matrix(dim, 2 * shared),
            Self::FfnGateShexp | Self::FfnUpShexp => Matrix(dim, shared),
            Self::FfnDownShexp => Matrix(shared, dim),
            Self::FfnGateUpExps => Matrices(dim, 2 * width, experts),
            Self::FfnGateExps | Self::FfnUpExps => Matrices(dim, width, experts),
            Self::FfnDownExps => Matrices(width, dim, experts),
            Self::InpGate => Matrix(dim, input),
            Self::Proj => Matrix(input, dim),
            Self::LayerOutputScale => Vector(1),
            #[cfg(feature = "drafts")]
            Self::NextProj => Matrix(2 * dim, dim),
            #[cfg(feature = "drafts")]
            Self::NextTokenNorm | Self::NextStateNorm | Self::NextHeadNorm => Vector(dim),
            #[cfg(feature = "drafts")]
            Self::NextEmbd | Self::NextHead => Matrix(dim, spec.vocab),
            #[cfg(feature = "drafts")]
            Self::NextPre => Matrix(2 * spec.next().map_or(0, |next| next.width), dim),
            #[cfg(feature = "drafts")]
            Self::NextPost => Matrix(dim, spec.next().map_or(0, |next| next.width)),
        }
    }
}

/// Shapes of a convolution's matrix and of its vectors.
#[cfg(feature = "sound")]
fn convolution(spec: &Spec<'_>, role: Role) -> (Shape, Shape) {
    let stages = spec.front().map_or([None; MAX_STAGES], |front| front.stages(spec.dim));
    let stage = stages.into_iter().zip([Role::Conv1, Role::Conv2, Role::Conv3]).find(|(_, other)| *other == role);
    match stage {
        Some((Some(stage), _)) => {
            (Shape::Matrix(stage.taps * stage.inputs, stage.outputs), Shape::Vector(stage.outputs))
        }
        _ => (Shape::Matrix(0, 0), Shape::Vector(0)),
    }
}
