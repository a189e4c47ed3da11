//! Tensor roles: their names, which an architecture has, and their shapes.

#[cfg(feature = "mixtures")]
use super::GroupExperts;
#[cfg(feature = "sound")]
use super::front::{Front, MAX_STAGES};
use super::layers::{Layer, Mixer};
use super::rope::Scaling;
use super::{
    Experts, Gate, HeadGate, Latent, Need, Norm, Placement, Positions, QkNorm, Recurrent, RecurrentKind, Residual,
    Router, SharedExperts, Spec, Stack, StepNorms,
};
use crate::{Name, built};

macro_rules! roles {
    ($($(#[$cfg:meta])? $role:ident $name:literal $per_layer:literal $($ability:ident)?,)*) => {
        /// The purpose of a tensor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Role { $($(#[$cfg])? $role),* }

        impl Role {
            /// All roles, ordered by number.
            pub const ALL: &[Self] = &[$($(#[$cfg])? Self::$role),*];

            /// All roles with the names of their tensors, without `blk.N.`; an empty name if the build lacks the ability.
            fn names() -> impl Iterator<Item = (Self, &'static str)> {
                // One string: a table of `&str` would take eight bytes of flash per role.
                const NAMES: &str = joined::<{ length(ALL) }>(&JOINED);
                const ALL: &[&str] = &[$($(#[$cfg])? if true $(&& built::$ability)? { $name } else { "" }),*];
                const JOINED: [u8; length(ALL)] = join(ALL);
                const LENGTHS: &[u8] = &lengths::<{ ALL.len() }>(ALL);
                let mut rest = NAMES;
                Self::ALL.iter().zip(LENGTHS).map_while(move |(role, length)| {
                    let (name, after) = rest.split_at_checked(usize::from(*length))?;
                    rest = after;
                    Some((*role, name))
                })
            }

            /// True if every layer has a tensor of this role (otherwise the model has one).
            pub const fn per_layer(self) -> bool {
                match self { $($(#[$cfg])? Self::$role => $per_layer),* }
            }
        }
    };
}

/// Bytes of all names.
const fn length(names: &[&str]) -> usize {
    let (mut total, mut i) = (0, 0);
    while i < names.len() {
        total += names[i].len();
        i += 1;
    }
    total
}

/// The names, one after another.
const fn join<const N: usize>(names: &[&str]) -> [u8; N] {
    let (mut all, mut at, mut i) = ([0; N], 0, 0);
    while i < names.len() {
        let (name, mut byte) = (names[i].as_bytes(), 0);
        while byte < name.len() {
            all[at] = name[byte];
            (at, byte) = (at + 1, byte + 1);
        }
        i += 1;
    }
    all
}

/// The length of each name.
const fn lengths<const N: usize>(names: &[&str]) -> [u8; N] {
    let (mut all, mut i) = ([0; N], 0);
    while i < names.len() {
        all[i] = names[i].len() as u8;
        i += 1;
    }
    all
}

/// Converts joined names to text; they are ASCII.
const fn joined<const N: usize>(names: &[u8; N]) -> &str {
    match core::str::from_utf8(names) {
        Ok(names) => names,
        Err(_) => "",
    }
}

roles! {
    TokenEmbd "token_embd.weight" false,
    PositionEmbd "position_embd.weight" false,
    RopeFreqs "rope_freqs.weight" false,
    RopeFactorsShort "rope_factors_short.weight" false,
    RopeFactorsLong "rope_factors_long.weight" false,
    PerLayerTokenEmbd "per_layer_token_embd.weight" false GEMMA4,
    PerLayerModelProj "per_layer_model_proj.weight" false GEMMA4,
    PerLayerProjNorm "per_layer_proj_norm.weight" false GEMMA4,
    AltupProj "altup_proj.weight" false ALTUP,
    AltupUnembdProj "altup_unembd_proj.weight" false ALTUP,
    TokenTypes "token_types.weight" false,
    #[cfg(feature = "sound")]
    Conv1 "conv1.weight" false,
    #[cfg(feature = "sound")]
    Conv1Bias "conv1.bias" false,
    #[cfg(feature = "sound")]
    Conv1Norm "conv1_norm.weight" false,
    #[cfg(feature = "sound")]
    Conv1NormBias "conv1_norm.bias" false,
    #[cfg(feature = "sound")]
    Conv2 "conv2.weight" false,
    #[cfg(feature = "sound")]
    Conv2Bias "conv2.bias" false,
    #[cfg(feature = "sound")]
    Conv3 "conv3.weight" false,
    #[cfg(feature = "sound")]
    Conv3Bias "conv3.bias" false,
    TokenEmbdNorm "token_embd_norm.weight" false,
    TokenEmbdNormBias "token_embd_norm.bias" false,
    OutputNorm "output_norm.weight" false,
    OutputNormBias "output_norm.bias" false,
    Output "output.weight" false,
    OutputBias "output.bias" false,
    #[cfg(feature = "llama-like")]
    HrmInit "hrm.z_l_init" false LOOPS,
    Dense2 "dense_2.weight" false,
    Dense3 "dense_3.weight" false,
    Cls "cls.weight" false,
    ClsBias "cls.bias" false,
    ClsNorm "cls.norm.weight" false,
    ClsOutput "cls.output.weight" false,
    ClsOutputBias "cls.output.bias" false,
    AttnNorm "attn_norm.weight" true,
    AttnNormBias "attn_norm.bias" true,
    AttnNorm2 "attn_norm_2.weight" true,
    AttnNorm2Bias "attn_norm_2.bias" true,
    AttnSubNorm "attn_sub_norm.weight" true,
    AttnQkv "attn_qkv.weight" true,
    AttnQkvBias "attn_qkv.bias" true,
    AttnQ "attn_q.weight" true,
    AttnQBias "attn_q.bias" true,
    AttnK "attn_k.weight" true,
    AttnKBias "attn_k.bias" true,
    AttnV "attn_v.weight" true,
    AttnVBias "attn_v.bias" true,
    AttnQNorm "attn_q_norm.weight" true,
    AttnKNorm "attn_k_norm.weight" true,
    AttnOutput "attn_output.weight" true,
    AttnOutputBias "attn_output.bias" true,
    AttnRelB "attn_rel_b.weight" true,
    AttnSinks "attn_sinks.weight" true,
    AttnGate "attn_gate.weight" true,
    AttnQA "attn_q_a.weight" true LATENT,
    AttnQANorm "attn_q_a_norm.weight" true LATENT,
    AttnQB "attn_q_b.weight" true LATENT,
    AttnKvA "attn_kv_a_mqa.weight" true LATENT,
    AttnKvANorm "attn_kv_a_norm.weight" true LATENT,
    AttnKvB "attn_kv_b.weight" true LATENT,
    AttnKB "attn_k_b.weight" true LATENT,
    AttnVB "attn_v_b.weight" true LATENT,
    SsmIn "ssm_in.weight" true CONVOLUTION,
    SsmConv "ssm_conv1d.weight" true CONVOLUTION,
    SsmConvBias "ssm_conv1d.bias" true CONVOLUTION,
    SsmAlpha "ssm_alpha.weight" true CONVOLUTION,
    SsmBeta "ssm_beta.weight" true CONVOLUTION,
    SsmBetaAlpha "ssm_ba.weight" true CONVOLUTION,
    #[cfg(feature = "mla")]
    SsmConvQ "ssm_conv1d_q.weight" true KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmConvK "ssm_conv1d_k.weight" true KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmConvV "ssm_conv1d_v.weight" true KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmFA "ssm_f_a.weight" true KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmFB "ssm_f_b.weight" true KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmGA "ssm_g_a.weight" true KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmGB "ssm_g_b.weight" true KIMI_DELTA,
    SsmX "ssm_x.weight" true SELECTIVE,
    SsmDt "ssm_dt.weight" true SELECTIVE,
    SsmDtNorm "ssm_dt_norm.weight" true SELECTIVE,
    SsmBNorm "ssm_b_norm.weight" true SELECTIVE,
    SsmCNorm "ssm_c_norm.weight" true SELECTIVE,
    SsmDtNormBare "ssm_dt_norm" true SELECTIVE,
    SsmBNormBare "ssm_b_norm" true SELECTIVE,
    SsmCNormBare "ssm_c_norm" true SELECTIVE,
    SsmDtBias "ssm_dt.bias" true CONVOLUTION,
    SsmA "ssm_a" true CONVOLUTION,
    SsmD "ssm_d" true CONVOLUTION,
    SsmNorm "ssm_norm.weight" true CONVOLUTION,
    SsmOut "ssm_out.weight" true CONVOLUTION,
    ShortConvIn "shortconv.in_proj.weight" true CONVOLUTION,
    ShortConv "shortconv.conv.weight" true CONVOLUTION,
    ShortConvOut "shortconv.out_proj.weight" true CONVOLUTION,
    TimeMixW0 "time_mix_w0.weight" true RWKV,
    TimeMixW1 "time_mix_w1.weight" true RWKV,
    TimeMixW2 "time_mix_w2.weight" true RWKV,
    TimeMixA0 "time_mix_a0.weight" true RWKV,
    TimeMixA1 "time_mix_a1.weight" true RWKV,
    TimeMixA2 "time_mix_a2.weight" true RWKV,
    TimeMixV0 "time_mix_v0.weight" true RWKV,
    TimeMixV1 "time_mix_v1.weight" true RWKV,
    TimeMixV2 "time_mix_v2.weight" true RWKV,
    TimeMixG1 "time_mix_g1.weight" true RWKV,
    TimeMixG2 "time_mix_g2.weight" true RWKV,
    TimeMixLerpX "time_mix_lerp_x.weight" true RWKV,
    TimeMixFirst "time_mix_first.weight" true RWKV,
    TimeMixDecay "time_mix_decay.weight" true RWKV,
    TimeMixDecayW1 "time_mix_decay_w1.weight" true RWKV,
    TimeMixDecayW2 "time_mix_decay_w2.weight" true RWKV,
    TimeMixGate "time_mix_gate.weight" true RWKV,
    ChannelMixLerpR "channel_mix_lerp_r.weight" true RWKV,
    ChannelMixReceptance "channel_mix_receptance.weight" true RWKV,
    TimeMixLerp "time_mix_lerp_fused.weight" true RWKV,
    TimeMixKk "time_mix_k_k.weight" true RWKV,
    TimeMixKa "time_mix_k_a.weight" true RWKV,
    TimeMixRk "time_mix_r_k.weight" true RWKV,
    TimeMixKey "time_mix_key.weight" true RWKV,
    TimeMixValue "time_mix_value.weight" true RWKV,
    TimeMixReceptance "time_mix_receptance.weight" true RWKV,
    #[cfg(feature = "rwkv")]
    TimeMixKeyBias "time_mix_key.bias" true RWKV,
    #[cfg(feature = "rwkv")]
    TimeMixValueBias "time_mix_value.bias" true RWKV,
    #[cfg(feature = "rwkv")]
    TimeMixReceptanceBias "time_mix_receptance.bias" true RWKV,
    TimeMixLn "time_mix_ln.weight" true RWKV,
    TimeMixLnBias "time_mix_ln.bias" true RWKV,
    TimeMixOutput "time_mix_output.weight" true RWKV,
    ChannelMixLerp "channel_mix_lerp_k.weight" true RWKV,
    ChannelMixKey "channel_mix_key.weight" true RWKV,
    ChannelMixValue "channel_mix_value.weight" true RWKV,
    PostAttentionNorm "post_attention_norm.weight" true,
    AttnOutputNorm "attn_output_norm.weight" true,
    AttnOutputNormBias "attn_output_norm.bias" true,
    CrossAttnNorm "cross_attn_norm.weight" true CROSS_ATTENTION,
    CrossAttnNormBias "cross_attn_norm.bias" true CROSS_ATTENTION,
    CrossAttnQ "cross_attn_q.weight" true CROSS_ATTENTION,
    CrossAttnQBias "cross_attn_q.bias" true CROSS_ATTENTION,
    CrossAttnK "cross_attn_k.weight" true CROSS_ATTENTION,
    CrossAttnKBias "cross_attn_k.bias" true CROSS_ATTENTION,
    CrossAttnV "cross_attn_v.weight" true CROSS_ATTENTION,
    CrossAttnVBias "cross_attn_v.bias" true CROSS_ATTENTION,
    CrossAttnOutput "cross_attn_o.weight" true CROSS_ATTENTION,
    CrossAttnOutputBias "cross_attn_o.bias" true CROSS_ATTENTION,
    CrossAttnOutputNorm "cross_attn_output_norm.weight" true CROSS_ATTENTION,
    CrossAttnOutputNormBias "cross_attn_output_norm.bias" true CROSS_ATTENTION,
    FfnNorm "ffn_norm.weight" true,
    FfnNormBias "ffn_norm.bias" true,
    FfnNormBare "ffn_norm" true,
    PostAttentionNormBare "post_attention_norm" true,
    PostFfwNormBare "post_ffw_norm" true,
    FfnSubNorm "ffn_sub_norm.weight" true,
    FfnGate "ffn_gate.weight" true,
    FfnGateBias "ffn_gate.bias" true,
    FfnUp "ffn_up.weight" true,
    FfnUpBias "ffn_up.bias" true,
    FfnDown "ffn_down.weight" true,
    FfnDownBias "ffn_down.bias" true,
    FfnGateInp "ffn_gate_inp.weight" true,
    FfnGateInpBias "ffn_gate_inp.bias" true,
    FfnGateInpScale "ffn_gate_inp.scale" true,
    PreFfwNorm2 "pre_ffw_norm_2.weight" true,
    PostFfwNorm1 "post_ffw_norm_1.weight" true,
    PostFfwNorm2 "post_ffw_norm_2.weight" true,
    FfnGateUpExps "ffn_gate_up_exps.weight" true,
    FfnGateExps "ffn_gate_exps.weight" true,
    FfnGateExpsBias "ffn_gate_exps.bias" true,
    FfnUpExps "ffn_up_exps.weight" true,
    FfnUpExpsBias "ffn_up_exps.bias" true,
    FfnDownExps "ffn_down_exps.weight" true,
    FfnDownExpsBias "ffn_down_exps.bias" true,
    #[cfg(feature = "mixtures")]
    FfnNormExps "ffn_norm_exps.weight" true EXPERTS_OF_INPUT,
    #[cfg(feature = "mixtures")]
    FfnGateChexps "ffn_gate_chexps.weight" true GROUP_EXPERTS,
    #[cfg(feature = "mixtures")]
    FfnUpChexps "ffn_up_chexps.weight" true GROUP_EXPERTS,
    #[cfg(feature = "mixtures")]
    FfnDownChexps "ffn_down_chexps.weight" true GROUP_EXPERTS,
    ExpProbsBias "exp_probs_b.bias" true,
    ExpProbsBare "exp_probs_b" true,
    FfnGateInpShexp "ffn_gate_inp_shexp.weight" true,
    FfnGateShexp "ffn_gate_shexp.weight" true,
    FfnUpShexp "ffn_up_shexp.weight" true,
    FfnDownShexp "ffn_down_shexp.weight" true,
    PostFfwNorm "post_ffw_norm.weight" true,
    LayerOutputNorm "layer_output_norm.weight" true,
    LayerOutputNormBias "layer_output_norm.bias" true,
    InpGate "inp_gate.weight" true GEMMA4,
    Proj "proj.weight" true GEMMA4,
    PostNorm "post_norm.weight" true GEMMA4,
    LayerOutputScale "layer_output_scale.weight" true GEMMA4,
    AltupRouter "altup_router.weight" true ALTUP,
    AltupRouterNorm "altup_router_norm.weight" true ALTUP,
    AltupPredictCoef "altup_predict_coef.weight" true ALTUP,
    AltupCorrectCoef "altup_correct_coef.weight" true ALTUP,
    AltupCorrectScale "altup_correct_scale.weight" true ALTUP,
    LaurelL "laurel_l.weight" true ALTUP,
    LaurelR "laurel_r.weight" true ALTUP,
    LaurelPostNorm "laurel_post_norm.weight" true ALTUP,
}

/// Name endings of tensors that occur in files and that no forward pass reads.
const IGNORED: [&str; 2] = [
    ".cross_attn_rel_b.weight",  // T5 has no such tensor; early converters wrote one
    ".attn.rotary_emb.inv_freq", // rotary frequencies, written by some old converters
];

/// True if a tensor belongs to the vision or audio part that some files hold beside the language model.
pub fn is_other_modality(name: &str) -> bool {
    ["v.", "mm.", "a."].iter().any(|start| name.starts_with(start))
}

/// True if a tensor with this name may occur in any file and is not read.
pub fn is_ignored(name: &str) -> bool {
    // Layers for multi-token prediction. (`str::contains` takes kilobytes, and the compiler keeps its panic.)
    let (ahead, images) = (b".nextn.", b".vis_"); // CogVLM's layers have weights of their own for images
    is_other_modality(name)
        || IGNORED.iter().any(|end| name.ends_with(end))
        || name.as_bytes().windows(ahead.len()).any(|part| part == ahead)
        || built::LENIENT && name.as_bytes().windows(images.len()).any(|part| part == images)
}

/// A tensor's shape, with dimensions in the file's order: a matrix's inputs come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A vector of this length, F32.
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

    /// True if its elements form vectors.
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
        let biased = !matches!(spec.norm(), Norm::Rms) && spec.norm_bias && weighted;
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
        // Layers that share keys and values have q alone.
        let fused = spec.fused_qkv() && layer.owns_kv;
        let apart = !fused && !latent;
        let altup = spec.altup().is_some();
        let front = spec.front();
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
            Self::ClsBias | Self::ClsNorm => need_if(pooled.0 > 0, Optional),
            Self::ClsOutputBias => need_if(pooled.1 > 0, Optional),
            Self::Cls | Self::ClsOutput => Need::Absent, // some families use these names for the two above
            Self::OutputNorm => required_if(spec.final_norm && weighted),
            Self::TokenTypes => required_if(spec.token_types() > 0),
            Self::TokenEmbdNorm => spec.embedding_norm(),
            Self::TokenEmbdNormBias => required_if(normed && biased),
            // In most models only the first layer has it; all layers share it.
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
            // Other names.
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
            // The first layer's are not used.
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
        }
    }

    /// Number of layers that may have one; 1 for a role of the whole model.
    pub(super) const fn layers(self, spec: &Spec<'_>) -> usize {
        if self.per_layer() { spec.own_layers() } else { 1 }
    }

    /// Shape of its tensor.
    pub(super) fn shape(self, spec: &Spec<'_>, layer: &Layer) -> Shape {
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
            Self::ClsBias | Self::ClsNorm => Vector(pooled.0),
            Self::ClsOutputBias => Vector(pooled.1),
            Self::PositionEmbd => Matrix(dim, spec.context),
            Self::RopeFreqs | Self::RopeFactorsShort | Self::RopeFactorsLong => Vector(turned),
            Self::PerLayerTokenEmbd => Matrix(spec.layers * input, spec.vocab),
            Self::PerLayerModelProj => Matrix(dim, spec.layers * input),
            Self::PerLayerProjNorm => Vector(input),
            Self::OutputNorm | Self::OutputNormBias | Self::AttnNorm | Self::AttnNormBias => Vector(dim),
            Self::TokenTypes => Matrix(dim, spec.token_types()),
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
            Self::FfnUp if spec.gate() == Gate::Fused => Matrix(dim, 2 * ffn),
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
        }
    }

    /// Finds the role of the tensor called `name` in a stack.
    pub(super) fn of(name: &str, stack: Stack) -> Place {
        let (prefix, rest) = match name.split_once('.') {
            Some((prefix @ ("enc" | "dec"), rest)) => (prefix, rest),
            _ => ("", name),
        };
        let own = stack.prefix();
        let Some((role, layer, piece)) = Self::named(rest, !own.is_empty()) else {
            // In an encoder-decoder each stack owns the names with its prefix; the decoder also owns those without a
            // prefix.
            let mine = prefix == own || own.is_empty() || prefix.is_empty() && matches!(stack, Stack::Target { .. });
            return if mine { Place::Nowhere } else { Place::Elsewhere };
        };
        let is_mine = prefix == own;
        match (stack, role) {
            // Tensors without a prefix belong to the decoder; the encoder may share its embeddings.
            (Stack::Source { own_words: false, .. }, Self::TokenEmbd) if prefix.is_empty() => {
                Place::Of(role, layer, piece)
            }
            (Stack::Source { .. }, _) if !is_mine => Place::Elsewhere,
            (Stack::Target { .. }, _) if prefix == "enc" => Place::Elsewhere,
            (Stack::Target { .. }, _) if role.is_shared() == is_mine => Place::Nowhere,
            (Stack::Target { .. }, _) => Place::Of(role, layer, piece),
            _ if is_mine => Place::Of(role, layer, piece),
            // The name in files of NeoBERT.
            (Stack::Encoder, Self::OutputNorm) if prefix == "enc" => Place::Of(role, layer, piece),
            _ => Place::Nowhere,
        }
    }

    /// The norm before a layer's feed-forward, and its bias. If the layer has only a feed-forward, this is its first
    /// norm.
    pub const fn before_ffn(spec: &Spec<'_>, layer: &Layer) -> (Self, Self) {
        match (layer.mixer, spec.residual()) {
            (Mixer::None, _) if spec.one_part() => (Self::AttnNorm, Self::AttnNormBias),
            (_, Residual::Parallel { one_norm: true }) => (Self::AttnNorm, Self::AttnNormBias),
            _ => (Self::FfnNorm, Self::FfnNormBias),
        }
    }

    /// True if layers without attention lack this tensor.
    const fn is_attention(self) -> bool {
        use Role::*;
        matches!(
            self,
            AttnQkv | AttnQkvBias | AttnQ | AttnQBias | AttnK | AttnKBias | AttnV | AttnVBias | AttnQNorm | AttnKNorm
        ) || matches!(self, AttnOutput | AttnOutputBias | AttnSinks | AttnRelB | AttnSubNorm | AttnQA | AttnQANorm)
            || matches!(self, AttnQB | AttnKvA | AttnKvANorm | AttnKvB | AttnKB | AttnVB)
    }

    /// The role that this tensor has in `spec`'s family, which may use a name for another role.
    pub(super) fn in_family(self, spec: &Spec<'_>) -> Self {
        let renamed = if built::RENAMED { spec.renamed } else { &[] };
        renamed.iter().find(|(name, _)| *name == self).map_or(self, |(_, role)| *role)
    }

    /// The role under whose name the family's files store this one.
    pub(super) fn in_files(self, spec: &Spec<'_>) -> Self {
        let renamed = if built::RENAMED { spec.renamed } else { &[] };
        renamed.iter().find(|(_, role)| *role == self).map_or(self, |(name, _)| *name)
    }

    /// True if its name has no prefix in an encoder-decoder.
    const fn is_shared(self) -> bool {
        matches!(self, Self::TokenEmbd | Self::Output | Self::OutputBias)
    }

    /// Name of its tensor as stored in files. `layer` is ignored for roles of the whole model.
    pub fn spelled(self, layer: usize, stack: Stack) -> Name {
        let prefix = match stack {
            Stack::Target { .. } if self.is_shared() => "",
            Stack::Source { own_words: false, .. } if self.is_shared() => "",
            _ => stack.prefix(),
        };
        let name = match self {
            Self::AttnOutput if !prefix.is_empty() => SHORT_OUTPUT,
            Self::AttnOutputBias if !prefix.is_empty() => SHORT_OUTPUT_BIAS,
            _ => Self::names().nth(self as usize).map_or("", |(_, name)| name),
        };
        match (prefix.is_empty(), self.per_layer()) {
            (_, true) => Name::layered(prefix, layer, name),
            (true, false) => Name::new(name.as_bytes()),
            (false, false) => Name::key(prefix, name),
        }
    }

    /// Name of the tensor of one expert, in files that have one for each.
    pub(super) const fn of_expert(self, layer: usize, expert: usize) -> Name {
        let part = match self {
            Self::FfnGateExps => "ffn_gate",
            Self::FfnUpExps => "ffn_up",
            _ => "ffn_down",
        };
        Name::layered("", layer, part).with(b".").with_number(expert).with(b".weight")
    }

    /// Role and layer (0 for the whole model) of the tensor called `name`, without the stack's prefix.
    fn named(name: &str, prefixed: bool) -> Option<(Self, usize, Piece)> {
        let (name, layer) = match name.strip_prefix("blk.") {
            Some(rest) => {
                let (number, name) = rest.split_once('.')?;
                (name, Some(index(number)?))
            }
            None => (name, None),
        };
        let (role, piece) = match name {
            SHORT_OUTPUT if prefixed => (Self::AttnOutput, Piece::Whole),
            SHORT_OUTPUT_BIAS if prefixed => (Self::AttnOutputBias, Piece::Whole),
            _ => {
                let has_short = |role| prefixed && matches!(role, Self::AttnOutput | Self::AttnOutputBias);
                let exact = Self::names().find(|(role, other)| *other == name && !has_short(*role));
                exact.map(|(role, _)| (role, Piece::Whole)).or_else(|| Self::pieced(name))?
            }
        };
        (role.per_layer() == layer.is_some()).then_some((role, layer.unwrap_or(0), piece))
    }

    /// The role of a tensor that belongs to another one, or that is one of several.
    fn pieced(name: &str) -> Option<(Self, Piece)> {
        for (end, piece) in [(".scale", Piece::Scale), (".input_scale", Piece::InputScale)] {
            if let (true, Some(base)) = (built::SCALES, name.strip_suffix(end)) {
                let role = Self::names().find(|(_, other)| other.strip_suffix(".weight") == Some(base))?.0;
                return Some((role, piece));
            }
        }
        let (part, rest) = name.split_once('.').filter(|_| built::EXPERTS)?;
        let number = rest.strip_suffix(".weight")?;
        let role = match part {
            "ffn_gate" => Self::FfnGateExps,
            "ffn_up" => Self::FfnUpExps,
            "ffn_down" => Self::FfnDownExps,
            _ => return None,
        };
        Some((role, Piece::Expert(index(number)?)))
    }

    /// The number of a role that has a tensor for each expert in some files, from 0.
    pub(super) const fn expert_slot(self) -> Option<usize> {
        match self {
            Self::FfnGateExps => Some(0),
            Self::FfnUpExps => Some(1),
            Self::FfnDownExps => Some(2),
            _ => None,
        }
    }

    /// True if rows of its tensor are looked up instead of multiplied.
    pub(super) const fn is_lookup(self) -> bool {
        matches!(self, Self::TokenEmbd | Self::PositionEmbd | Self::TokenTypes | Self::PerLayerTokenEmbd)
    }
}

/// A number in a name. Accepts only the spelling that writers use, so that no two names mean the same tensor.
fn index(number: &str) -> Option<usize> {
    if number.len() > 1 && number.starts_with('0') || number.starts_with('+') {
        return None;
    }
    number.parse().ok()
}

/// The part that a tensor has in its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// All of it.
    Whole,
    /// The matrix of one expert.
    Expert(usize),
    /// A factor on the products of the matrix, one for each expert.
    Scale,
    /// A hint for quantizing inputs, which is not used.
    InputScale,
}

/// Names of the attention output after `enc.` and `dec.`.
const SHORT_OUTPUT: &str = "attn_o.weight";
const SHORT_OUTPUT_BIAS: &str = "attn_o.bias";

/// Relation of a tensor to a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It has this role in this layer, or a piece of it.
    Of(Role, usize, Piece),
    /// It belongs to the other stack.
    Elsewhere,
    /// No model has it.
    Nowhere,
}

impl Stack {
    /// Prefix of the names of its blocks' tensors, without the dot.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Alone | Self::Encoder => "",
            Self::Source { .. } => "enc",
            Self::Target { .. } => "dec",
        }
    }
}

/// Output sizes of the first and of the last linear layer after pooling.
const fn pooled_sizes(spec: &Spec<'_>) -> (usize, usize) {
    match spec.pooled_head() {
        Some(head) => (head.inner, head.out),
        None => (0, 0),
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
