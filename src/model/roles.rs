//! Tensor roles: their names and shapes, and which of them an architecture has.

mod need;
mod shape;

use super::layers::{Layer, Mixer};
use super::{Residual, Spec, Stack};
use crate::{Name, built};
pub(super) use shape::Shape;

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
                // The names are one string, because a table of `&str` would take eight bytes of flash per role.
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
    Dense2Bias "dense_2.bias" false,
    Dense3 "dense_3.weight" false,
    Dense3Bias "dense_3.bias" false,
    Cls "cls.weight" false,
    ClsBias "cls.bias" false,
    ClsNorm "cls.norm.weight" false,
    #[cfg(feature = "nomic-bert")]
    ClsNormBias "cls.norm.bias" false SCORING,
    ClsOutput "cls.output.weight" false,
    ClsOutputBias "cls.output.bias" false,
    #[cfg(feature = "drafts")]
    NextPre "nextn.pre_projection.weight" false,
    #[cfg(feature = "drafts")]
    NextPost "nextn.post_projection.weight" false,
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
    #[cfg(feature = "drafts")]
    NextProj "nextn.eh_proj.weight" true,
    #[cfg(feature = "drafts")]
    NextTokenNorm "nextn.enorm.weight" true,
    #[cfg(feature = "drafts")]
    NextStateNorm "nextn.hnorm.weight" true,
    #[cfg(feature = "drafts")]
    NextHeadNorm "nextn.shared_head_norm.weight" true,
    #[cfg(feature = "drafts")]
    NextEmbd "nextn.embed_tokens.weight" true,
    #[cfg(feature = "drafts")]
    NextHead "nextn.shared_head_head.weight" true,
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
    // Layers for multi-token prediction. (`str::contains` would add kilobytes and a panic.)
    let (ahead, images) = (b".nextn.", b".vis_"); // CogVLM's layers have weights of their own for images
    is_other_modality(name)
        || IGNORED.iter().any(|end| name.ends_with(end))
        || name.as_bytes().windows(ahead.len()).any(|part| part == ahead)
        || built::LENIENT && name.as_bytes().windows(images.len()).any(|part| part == images)
}

/// True if a tensor belongs to the part of a model that decides about several questions together.
pub(super) fn is_of_joint_head(name: &str) -> bool {
    ["decision.", "dec.blk.", "token_types."].iter().any(|start| name.starts_with(start))
}

impl Role {
    /// Number of layers that may have a tensor of this role; 1 for a role of the whole model.
    pub(super) const fn layers(self, spec: &Spec<'_>) -> usize {
        if self.per_layer() { spec.own_layers() } else { 1 }
    }

    /// Finds the [`Place`] of the tensor called `name` in a stack.
    pub(super) fn of(name: &str, stack: Stack) -> Place {
        let (prefix, rest) = match split_at_dot(name) {
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
            // Tensors without a prefix belong to the decoder; the encoder may share the token embedding.
            (Stack::Source { own_words: false, .. }, Self::TokenEmbd) if prefix.is_empty() => {
                Place::Of(role, layer, piece)
            }
            (Stack::Source { .. }, _) if !is_mine => Place::Elsewhere,
            (Stack::Target { .. }, _) if prefix == "enc" => Place::Elsewhere,
            (Stack::Target { .. }, _) if role.is_shared() == is_mine => Place::Nowhere,
            (Stack::Target { .. }, _) => Place::Of(role, layer, piece),
            _ if is_mine => Place::Of(role, layer, piece),
            // The name of the final norm in NeoBERT's files.
            (Stack::Encoder, Self::OutputNorm) if prefix == "enc" => Place::Of(role, layer, piece),
            _ => Place::Nowhere,
        }
    }

    /// The norm before a layer's feed-forward, and its bias. In a layer with only a feed-forward, this is the layer's
    /// first norm.
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

    /// The role, in `spec`'s family, of a tensor with this role's name.
    pub(super) fn in_family(self, spec: &Spec<'_>) -> Self {
        let renamed = if built::RENAMED { spec.renamed } else { &[] };
        renamed.iter().find(|(name, _)| *name == self).map_or(self, |(_, role)| *role)
    }

    /// The role under whose name the family's files store this role's tensor.
    pub(super) fn in_files(self, spec: &Spec<'_>) -> Self {
        let renamed = if built::RENAMED { spec.renamed } else { &[] };
        renamed.iter().find(|(_, role)| *role == self).map_or(self, |(name, _)| *name)
    }

    /// True for the token embedding and the head. In an encoder-decoder, their names have no prefix, except the name of
    /// an encoder's own token embedding (`enc.`).
    const fn is_shared(self) -> bool {
        matches!(self, Self::TokenEmbd | Self::Output | Self::OutputBias)
    }

    /// Name of the role's tensor in files. `layer` is ignored for roles of the whole model.
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

    /// Name of the tensor of one expert, in files with one tensor per expert.
    pub(super) const fn of_expert(self, layer: usize, expert: usize) -> Name {
        let part = match self {
            Self::FfnGateExps => "ffn_gate",
            Self::FfnUpExps => "ffn_up",
            _ => "ffn_down",
        };
        Name::layered("", layer, part).with(b".").with_number(expert).with(b".weight")
    }

    /// Role, layer (0 for the whole model) and piece of the tensor called `name`, without the stack's prefix;
    /// `prefixed` is true if the stack has one.
    fn named(name: &str, prefixed: bool) -> Option<(Self, usize, Piece)> {
        let (name, layer) = match name.strip_prefix("blk.") {
            Some(rest) => {
                let (number, name) = split_at_dot(rest)?;
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

    /// Finds the role of a tensor that holds factors on a matrix, or the matrix of only one expert.
    fn pieced(name: &str) -> Option<(Self, Piece)> {
        for (end, piece) in [(".scale", Piece::Scale), (".input_scale", Piece::InputScale)] {
            if let (true, Some(base)) = (built::SCALES, name.strip_suffix(end)) {
                let role = Self::names().find(|(_, other)| other.strip_suffix(".weight") == Some(base))?.0;
                return Some((role, piece));
            }
        }
        let (part, rest) = split_at_dot(name).filter(|_| built::EXPERTS)?;
        let number = rest.strip_suffix(".weight")?;
        let role = match part {
            "ffn_gate" => Self::FfnGateExps,
            "ffn_up" => Self::FfnUpExps,
            "ffn_down" => Self::FfnDownExps,
            _ => return None,
        };
        Some((role, Piece::Expert(index(number)?)))
    }

    /// Index, from 0, of a role that has one tensor per expert in some files; `None` for other roles.
    pub(super) const fn expert_slot(self) -> Option<usize> {
        match self {
            Self::FfnGateExps => Some(0),
            Self::FfnUpExps => Some(1),
            Self::FfnDownExps => Some(2),
            _ => None,
        }
    }

    /// True if rows of the role's tensor are looked up instead of multiplied.
    pub(super) const fn is_lookup(self) -> bool {
        #[cfg(feature = "drafts")]
        if matches!(self, Self::NextEmbd) {
            return true;
        }
        matches!(self, Self::TokenEmbd | Self::PositionEmbd | Self::TokenTypes | Self::PerLayerTokenEmbd)
    }
}

/// Splits a name at its first dot. (With [`str::split_once`], a program built for size can contain a panic.)
fn split_at_dot(name: &str) -> Option<(&str, &str)> {
    let (first, rest) = name.split_at_checked(name.bytes().position(|byte| byte == b'.')?)?;
    Some((first, rest.strip_prefix('.')?))
}

/// Parses a number in a name. Accepts only the spelling that writers use, so that no two names mean the same tensor.
fn index(number: &str) -> Option<usize> {
    if number.len() > 1 && number.starts_with('0') || number.starts_with('+') {
        return None;
    }
    number.parse().ok()
}

/// Contents of a tensor, in relation to the weights of its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// All weights.
    Whole,
    /// The matrix of one expert.
    Expert(usize),
    /// Factors on the outputs of a matrix: one, or one for each expert.
    Scale,
    /// A hint for quantizing inputs, which is not used.
    InputScale,
}

/// Names of the attention output in stacks with a prefix (`enc.`, `dec.`).
const SHORT_OUTPUT: &str = "attn_o.weight";
const SHORT_OUTPUT_BIAS: &str = "attn_o.bias";

/// Relation of a tensor to a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A tensor of this stack: its role, its layer, and the piece of the role's weights that it holds.
    Of(Role, usize, Piece),
    /// A tensor of the other stack.
    Elsewhere,
    /// A tensor that no stack of this kind has.
    Nowhere,
}

impl Stack {
    /// Prefix of the stack's tensor names, without the dot.
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
