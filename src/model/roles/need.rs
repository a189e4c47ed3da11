//! The tensors that a model needs.

use super::{Role, pooled_sizes};
#[cfg(feature = "sound")]
use crate::model::front::Front;
use crate::model::layers::{Layer, Mixer};
use crate::model::rope::Scaling;
use crate::model::{
    Experts, Gate, Need, Norm, Placement, Positions, QkNorm, Recurrent, RecurrentKind, Residual, Router, SharedExperts,
    Spec, StepNorms,
};

impl Role {
    /// Requirement of `spec` for a tensor of this role (in this layer, for roles of layers).
    pub const fn need(self, spec: &Spec<'_>, layer: &Layer) -> Need {
        use Need::{Optional, Required};
        let (turned, long) = match (spec.rope(false), spec.rope(true)) {
            (Some(rope), _) | (None, Some(rope)) => (true, matches!(rope.scaling, Scaling::Long { .. })),
            _ => (false, false),
        };
        let beside = layer.has_experts && spec.experts_beside();
        let (dense, gated) =
            ((!layer.has_experts || spec.has_dense_beside()) && layer.ffn > 0, matches!(spec.gate(), Gate::Separate));
        let alone = matches!(layer.mixer, Mixer::None) && spec.one_part();
        let normed = matches!(spec.embedding_norm(), Need::Required);
        let mixed = alone || !matches!(layer.mixer, Mixer::None);
        let weighted = !spec.bare_norm();
        let biased = !matches!(spec.norm(), Norm::Rms) && (spec.norm_bias || spec.scores(layer.index)) && weighted;
        let own_norm = layer.ffn > 0 && !alone && !matches!(spec.residual(), Residual::Parallel { one_norm: true });
        let shared = if layer.has_experts { spec.shared_experts() } else { None };
        let scored = layer.has_experts && matches!(spec.router(), Router::Scored { .. });
        let pooled = pooled_sizes(spec);
        let mixer = mixer_of(spec, layer);
        let in_turns = matches!(mixer, Some(Recurrent { in_turns: true, .. }));
        let Placement { pre_norm, post_norm, residual_norm } = spec.placement();
        let cross = spec.has_cross_attention();
        let short = matches!(mixer, Some(Recurrent { kind: RecurrentKind::ShortConvolution, .. }));
        let delta = matches!(mixer, Some(Recurrent { kind: RecurrentKind::DeltaNet, .. }));
        let mamba = matches!(mixer, Some(Recurrent { kind: RecurrentKind::Mamba2, .. }));
        let scan = matches!(mixer, Some(Recurrent { kind: RecurrentKind::Mamba, .. }));
        let seven = matches!(mixer, Some(Recurrent { kind: RecurrentKind::Rwkv7, .. }));
        let six = matches!(mixer, Some(Recurrent { kind: RecurrentKind::Rwkv6, .. }));
        let linear = matches!(mixer, Some(Recurrent { kind: RecurrentKind::Qrwkv6, .. }));
        let rwkv = seven || six || linear;
        let mixing = matches!(mixer, Some(Recurrent { channel_mixing: true, .. }));
        let normed_heads = matches!(mixer, Some(Recurrent { head_norms: true, .. }));
        let kimi = matches!(mixer, Some(Recurrent { kind: RecurrentKind::KimiDelta, .. }));
        let gated_rwkv = seven && matches!(mixer, Some(Recurrent { ranks: [_, _, _, (1..)], .. }));
        let (latent, absorbed, low) = match spec.latent() {
            Some(latent) => (true, latent.absorbed, latent.q_rank > 0),
            None => (false, false, false),
        };
        // Layers that read the keys and values of another layer only have q.
        let fused = spec.fused_qkv() && layer.owns_kv;
        let apart = !fused && !latent;
        let altup = spec.altup().is_some();
        let front = spec.front();
        #[cfg(feature = "drafts")]
        if let Some(need) = self.need_in_next(spec) {
            return need;
        }
        if !layer.has_attention() && self.is_attention() && !(delta && matches!(self, Self::AttnQkv)) {
            let shared = matches!(self, Self::AttnQ | Self::AttnK | Self::AttnV | Self::AttnOutput);
            return required_if(kimi && shared);
        }
        match self {
            Self::TokenEmbd => required_if(front.is_none()),
            Self::AttnOutput => Required,
            #[cfg(feature = "sound")]
            Self::Conv1 | Self::Conv2 | Self::Conv2Bias => required_if(front.is_some()),
            #[cfg(feature = "sound")]
            Self::Conv1Bias => required_if(matches!(front, Some(Front::LogMel { .. }))),
            #[cfg(feature = "sound")]
            Self::Conv1Norm | Self::Conv1NormBias | Self::Conv3 | Self::Conv3Bias => {
                required_if(matches!(front, Some(Front::Samples)))
            }
            #[cfg(feature = "llama-like")]
            Self::HrmInit => required_if(spec.takes_turns()),
            Self::Output => need_if(spec.has_head(), Optional), // absent: the token embedding is the head as well
            Self::OutputBias => need_if(spec.has_head(), spec.output_bias),
            Self::Dense2 => required_if(pooled.0 > 0),
            Self::Dense3 => required_if(pooled.1 > 0),
            Self::Dense2Bias | Self::ClsNorm => need_if(pooled.0 > 0, Optional),
            #[cfg(feature = "nomic-bert")]
            Self::ClsNormBias => need_if(pooled.0 > 0 && spec.scoring().is_some(), Optional),
            Self::Dense3Bias => need_if(pooled.1 > 0, Optional),
            // Other names of `Dense2` and `Dense3` in some families.
            Self::Cls | Self::ClsOutput | Self::ClsBias | Self::ClsOutputBias => Need::Absent,
            Self::OutputNorm => required_if(spec.final_norm && weighted),
            Self::TokenTypes => required_if(spec.token_types() > 0 || spec.scoring().is_some()),
            Self::TokenEmbdNorm => spec.embedding_norm(),
            Self::TokenEmbdNormBias => required_if(normed && biased),
            // In most models only the first layer has this tensor, which all layers share.
            Self::AttnRelB => required_if(
                matches!(spec.positions(), Positions::Relative { .. }) && (layer.index == 0 || spec.own_biases()),
            ),
            Self::AttnOutputNorm | Self::LayerOutputNorm => required_if(residual_norm),
            Self::AttnOutputNormBias | Self::LayerOutputNormBias => required_if(residual_norm && biased),
            Self::CrossAttnNorm => required_if(cross && pre_norm),
            Self::CrossAttnNormBias => required_if(cross && pre_norm && biased),
            Self::CrossAttnOutputNorm => required_if(cross && residual_norm),
            Self::CrossAttnOutputNormBias => required_if(cross && residual_norm && biased),
            Self::CrossAttnQ | Self::CrossAttnK | Self::CrossAttnV | Self::CrossAttnOutput => required_if(cross),
            Self::CrossAttnQBias | Self::CrossAttnKBias | Self::CrossAttnVBias => need_if(cross, spec.qkv_bias),
            Self::CrossAttnOutputBias => need_if(cross, spec.linear_bias),
            Self::PositionEmbd => required_if(matches!(spec.positions(), Positions::Learned)),
            Self::RopeFreqs => need_if(turned && !long, Optional),
            Self::RopeFactorsShort | Self::RopeFactorsLong => need_if(long, Optional),
            Self::PerLayerTokenEmbd | Self::PerLayerModelProj | Self::PerLayerProjNorm => {
                required_if(spec.per_layer_input() > 0)
            }
            // If the embedding is normed, the first layer may lack this norm.
            Self::AttnNorm if layer.index == 0 && normed && !spec.has_head() => need_if(pre_norm, Optional),
            Self::AttnNorm => required_if(pre_norm && weighted && mixed),
            Self::AttnNormBias => required_if(pre_norm && biased && mixed),
            Self::FfnNorm => required_if(pre_norm && own_norm && weighted),
            Self::FfnNormBias => required_if(pre_norm && biased && own_norm),
            // Other names of some roles, see `in_family`.
            Self::ExpProbsBare | Self::SsmDtNormBare | Self::SsmBNormBare | Self::SsmCNormBare => Need::Absent,
            Self::FfnNormBare | Self::PostAttentionNormBare | Self::PostFfwNormBare => Need::Absent,
            Self::AttnNorm2 | Self::AttnNorm2Bias => Need::Absent,
            Self::AttnSubNorm => required_if(spec.sub_norms()),
            Self::FfnSubNorm => required_if(spec.sub_norms() && dense),
            Self::AttnGate => required_if(delta || spec.heads_gated().is_some() && layer.has_attention()),
            Self::SsmAlpha => required_if(delta && in_turns),
            Self::SsmBeta => required_if(delta && in_turns || kimi),
            Self::SsmBetaAlpha => required_if(delta && !in_turns),
            Self::SsmIn | Self::SsmD => required_if(mamba || scan),
            Self::SsmConv | Self::SsmOut => required_if(delta || mamba || scan),
            Self::SsmDtBias | Self::SsmA => required_if(delta || mamba || scan || kimi),
            #[cfg(feature = "mla")]
            Self::SsmConvQ | Self::SsmConvK | Self::SsmConvV | Self::SsmFA | Self::SsmGA => required_if(kimi),
            #[cfg(feature = "mla")]
            Self::SsmFB => required_if(kimi && matches!(mixer, Some(Recurrent { ranks: [(1..), ..], .. }))),
            #[cfg(feature = "mla")]
            Self::SsmGB => required_if(kimi && matches!(mixer, Some(Recurrent { ranks: [_, (1..), ..], .. }))),
            Self::SsmConvBias => need_if(mamba || scan, Optional),
            Self::SsmX | Self::SsmDt => required_if(scan),
            Self::SsmDtNorm | Self::SsmBNorm | Self::SsmCNorm => {
                required_if(scan && matches!(mixer, Some(Recurrent { step_norms: StepNorms::Weighted, .. })))
            }
            Self::SsmNorm => {
                if delta || kimi {
                    Required
                } else {
                    need_if(mamba, Optional)
                }
            }
            Self::ShortConvIn | Self::ShortConv | Self::ShortConvOut => required_if(short),
            Self::OutputNormBias => required_if(spec.final_norm && biased),
            Self::PostAttentionNorm | Self::PostFfwNorm => required_if(post_norm),
            Self::AttnQkv => required_if(fused || delta),
            Self::AttnQkvBias => need_if(fused, spec.qkv_bias),
            Self::AttnQ => required_if(apart || latent && !low),
            Self::AttnQA | Self::AttnQANorm | Self::AttnQB => required_if(low),
            Self::AttnKvA | Self::AttnKvANorm => required_if(latent),
            Self::AttnKB | Self::AttnVB => required_if(absorbed),
            Self::AttnKvB => required_if(latent && !absorbed),
            Self::AttnK => need_if_owned(layer, required_if(apart)),
            Self::AttnV => need_if_owned(layer, need_if(apart, if spec.v_from_k() { Optional } else { Required })),
            Self::AttnQBias => need_if(!fused, spec.qkv_bias),
            Self::AttnKBias | Self::AttnVBias => need_if_owned(layer, need_if(!fused, spec.qkv_bias)),
            Self::AttnQNorm => spec.qk_norm().need(),
            Self::AttnKNorm if matches!(spec.qk_norm(), QkNorm::Gain) => Need::Absent,
            Self::AttnKNorm => need_if_owned(layer, spec.qk_norm().need()),
            Self::AttnOutputBias => spec.linear_bias,
            Self::FfnUp | Self::FfnDown => required_if(dense),
            Self::FfnUpBias | Self::FfnDownBias => need_if(dense, spec.linear_bias),
            Self::FfnGate => required_if(dense && gated),
            Self::FfnGateBias => need_if(dense && gated, spec.linear_bias),
            Self::FfnGateInp | Self::FfnDownExps => required_if(layer.has_experts),
            Self::FfnUpExps => required_if(layer.has_experts && !spec.fused_experts()),
            Self::FfnGateExps => required_if(layer.has_experts && gated && !spec.fused_experts()),
            Self::FfnGateUpExps => required_if(layer.has_experts && spec.fused_experts()),
            Self::FfnGateInpScale | Self::PreFfwNorm2 | Self::PostFfwNorm1 | Self::PostFfwNorm2 => required_if(beside),
            #[cfg(feature = "mixtures")]
            Self::FfnNormExps => required_if(layer.has_experts && spec.experts_of_input()),
            #[cfg(feature = "mixtures")]
            Self::FfnGateChexps | Self::FfnUpChexps | Self::FfnDownChexps => {
                required_if(layer.has_experts && spec.group_experts().is_some())
            }
            Self::ExpProbsBias => need_if(scored, Optional),
            Self::FfnUpShexp | Self::FfnDownShexp => required_if(shared.is_some()),
            Self::FfnGateShexp => required_if(gated && matches!(shared, Some(SharedExperts { fused: false, .. }))),
            Self::FfnGateInpShexp => required_if(matches!(shared, Some(SharedExperts { gated: true, .. }))),
            Self::FfnGateInpBias | Self::FfnGateExpsBias | Self::FfnUpExpsBias | Self::FfnDownExpsBias => {
                required_if(matches!(spec.experts(), Some(Experts { biases: true, .. })))
            }
            Self::AttnSinks => spec.attention_sinks(),
            Self::ChannelMixKey | Self::ChannelMixValue => Need::Absent,
            Self::TimeMixW1 | Self::TimeMixW2 | Self::TimeMixLerp => required_if(rwkv),
            Self::ChannelMixLerp => required_if(rwkv && mixing),
            #[cfg(feature = "rwkv")]
            Self::TimeMixKeyBias | Self::TimeMixValueBias | Self::TimeMixReceptanceBias => need_if(linear, Optional),
            Self::TimeMixKey | Self::TimeMixValue | Self::TimeMixReceptance | Self::TimeMixOutput => required_if(rwkv),
            Self::TimeMixLn | Self::TimeMixLnBias => required_if(rwkv && normed_heads),
            Self::TimeMixW0 | Self::TimeMixA0 | Self::TimeMixA1 | Self::TimeMixA2 => required_if(seven),
            Self::TimeMixKk | Self::TimeMixKa | Self::TimeMixRk => required_if(seven),
            // The first layer does not use these tensors.
            Self::TimeMixV0 | Self::TimeMixV1 | Self::TimeMixV2 => {
                need_if(seven, if layer.index > 0 { Required } else { Optional })
            }
            Self::TimeMixG1 | Self::TimeMixG2 => required_if(gated_rwkv),
            Self::TimeMixFirst => required_if(six),
            Self::TimeMixLerpX | Self::TimeMixDecay | Self::TimeMixDecayW1 => required_if(six || linear),
            Self::TimeMixDecayW2 | Self::TimeMixGate => required_if(six || linear),
            Self::ChannelMixLerpR | Self::ChannelMixReceptance => required_if(six),
            Self::AltupProj | Self::AltupUnembdProj | Self::AltupRouter | Self::AltupRouterNorm => required_if(altup),
            Self::AltupPredictCoef | Self::AltupCorrectCoef | Self::LaurelL | Self::LaurelR => required_if(altup),
            Self::LaurelPostNorm | Self::AltupCorrectScale => required_if(altup),
            Self::InpGate | Self::Proj | Self::PostNorm => required_if(spec.per_layer_input() > 0),
            Self::LayerOutputScale => spec.layer_scale(),
            #[cfg(feature = "drafts")]
            Self::NextProj | Self::NextTokenNorm | Self::NextStateNorm | Self::NextHeadNorm => Need::Absent,
            #[cfg(feature = "drafts")]
            Self::NextEmbd | Self::NextHead | Self::NextPre | Self::NextPost => Need::Absent,
        }
    }

    /// Requirement of layers that predict further tokens, where it differs from that of other layers: their own
    /// tensors, and those of the whole model, which another file may have.
    #[cfg(feature = "drafts")]
    const fn need_in_next(self, spec: &Spec<'_>) -> Option<Need> {
        if spec.next().is_none() {
            return None;
        }
        let assists = spec.assists();
        match self {
            Self::NextPre | Self::NextPost => Some(required_if(assists)),
            Self::NextProj | Self::NextTokenNorm | Self::NextStateNorm => Some(required_if(!assists)),
            Self::NextHeadNorm | Self::NextEmbd | Self::NextHead => Some(need_if(!assists, Need::Optional)),
            Self::TokenEmbd | Self::OutputNorm if assists => None,
            Self::TokenEmbd | Self::OutputNorm | Self::OutputNormBias => Some(Need::Optional),
            _ => None,
        }
    }
}

/// The recurrent mixer of a layer, if it has one.
const fn mixer_of(spec: &Spec<'_>, layer: &Layer) -> Option<Recurrent> {
    if layer.has_state() { spec.recurrent() } else { None }
}

/// Required if `condition` holds, else absent.
const fn required_if(condition: bool) -> Need {
    need_if(condition, Need::Required)
}

/// `need` if `condition` holds, else absent.
const fn need_if(condition: bool, need: Need) -> Need {
    if condition { need } else { Need::Absent }
}

/// `need` for layers that compute keys and values. Other layers do not use the tensor, but some files contain it.
const fn need_if_owned(layer: &Layer, need: Need) -> Need {
    if layer.owns_kv || matches!(need, Need::Absent) { need } else { Need::Unused }
}

impl QkNorm {
    /// Requirement for weights of this norm.
    const fn need(self) -> Need {
        match self {
            Self::None | Self::Unweighted => Need::Absent,
            Self::Head | Self::Whole | Self::Gain => Need::Required,
            Self::EachHead => Need::Optional,
        }
    }
}
