//! Tensor roles: their names, and the component to which each belongs. A component's table has a row for each of its
//! tensors: which models need the tensor, and the tensor's shape.

mod attention;
mod ends;
mod feed_forward;
#[cfg(feature = "drafts")]
mod next;
mod norms;
mod recurrent;
mod row;
mod streams;

use super::layers::{Layer, Mixer};
use super::{Need, Residual, Spec, Stack};
use crate::{Name, built};
use row::Row;
pub(super) use row::Shape;

macro_rules! roles {
    ($($(#[$cfg:meta])? $role:ident $name:literal $per_layer:literal $table:ident :: $row:ident $($ability:ident)?,)*) => {
        /// The purpose of a tensor.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Role { $($(#[$cfg])? $role),* }

        impl Role {
            /// All roles, ordered by number.
            pub const ALL: &[Self] = &[$($(#[$cfg])? Self::$role),*];

            /// Returns all roles, with the names of their tensors without `blk.N.`. The name is empty if this build
            /// lacks the ability that the role needs.
            fn names() -> impl Iterator<Item = (Self, &'static str)> {
                // The tensor names are concatenated to one string, because a table of `&str` would take eight bytes of
                // flash per role.
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

            /// True if each layer has a tensor of its own for this role. False if the whole model has only one.
            pub const fn per_layer(self) -> bool {
                match self { $($(#[$cfg])? Self::$role => $per_layer),* }
            }

            /// Returns the row that describes the tensor in the table of its component. A role that is only a second
            /// name of another role has no row: see `in_family`.
            const fn row(self, spec: &Spec<'_>, layer: &Layer) -> Row {
                match self { $($(#[$cfg])? Self::$role => $table::$row(self, spec, layer)),* }
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
    TokenEmbd "token_embd.weight" false ends::row,
    PositionEmbd "position_embd.weight" false ends::row,
    RopeFreqs "rope_freqs.weight" false ends::row,
    RopeFactorsShort "rope_factors_short.weight" false ends::row,
    RopeFactorsLong "rope_factors_long.weight" false ends::row,
    PerLayerTokenEmbd "per_layer_token_embd.weight" false streams::row GEMMA4,
    PerLayerModelProj "per_layer_model_proj.weight" false streams::row GEMMA4,
    PerLayerProjNorm "per_layer_proj_norm.weight" false streams::row GEMMA4,
    AltupProj "altup_proj.weight" false streams::altup ALTUP,
    AltupUnembdProj "altup_unembd_proj.weight" false streams::altup ALTUP,
    TokenTypes "token_types.weight" false ends::row,
    #[cfg(feature = "sound")]
    Conv1 "conv1.weight" false ends::of_sound,
    #[cfg(feature = "sound")]
    Conv1Bias "conv1.bias" false ends::of_sound,
    #[cfg(feature = "sound")]
    Conv1Norm "conv1_norm.weight" false ends::of_sound,
    #[cfg(feature = "sound")]
    Conv1NormBias "conv1_norm.bias" false ends::of_sound,
    #[cfg(feature = "sound")]
    Conv2 "conv2.weight" false ends::of_sound,
    #[cfg(feature = "sound")]
    Conv2Bias "conv2.bias" false ends::of_sound,
    #[cfg(feature = "sound")]
    Conv3 "conv3.weight" false ends::of_sound,
    #[cfg(feature = "sound")]
    Conv3Bias "conv3.bias" false ends::of_sound,
    TokenEmbdNorm "token_embd_norm.weight" false ends::row,
    TokenEmbdNormBias "token_embd_norm.bias" false ends::row,
    OutputNorm "output_norm.weight" false ends::row,
    OutputNormBias "output_norm.bias" false ends::row,
    Output "output.weight" false ends::row,
    OutputBias "output.bias" false ends::row,
    #[cfg(feature = "llama-like")]
    HrmInit "hrm.z_l_init" false ends::row LOOPS,
    Dense2 "dense_2.weight" false ends::pooled,
    Dense2Bias "dense_2.bias" false ends::pooled,
    Dense3 "dense_3.weight" false ends::pooled,
    Dense3Bias "dense_3.bias" false ends::pooled,
    Cls "cls.weight" false ends::row,
    ClsBias "cls.bias" false ends::pooled,
    ClsNorm "cls.norm.weight" false ends::pooled,
    #[cfg(feature = "nomic-bert")]
    ClsNormBias "cls.norm.bias" false ends::pooled SCORING,
    ClsOutput "cls.output.weight" false ends::pooled,
    ClsOutputBias "cls.output.bias" false ends::pooled,
    #[cfg(feature = "drafts")]
    NextPre "nextn.pre_projection.weight" false next::row,
    #[cfg(feature = "drafts")]
    NextPost "nextn.post_projection.weight" false next::row,
    AttnNorm "attn_norm.weight" true norms::row,
    AttnNormBias "attn_norm.bias" true norms::row,
    AttnNorm2 "attn_norm_2.weight" true norms::row,
    AttnNorm2Bias "attn_norm_2.bias" true norms::row,
    AttnSubNorm "attn_sub_norm.weight" true attention::row,
    AttnQkv "attn_qkv.weight" true attention::row,
    AttnQkvBias "attn_qkv.bias" true attention::row,
    AttnQ "attn_q.weight" true attention::row,
    AttnQBias "attn_q.bias" true attention::row,
    AttnK "attn_k.weight" true attention::row,
    AttnKBias "attn_k.bias" true attention::row,
    AttnV "attn_v.weight" true attention::row,
    AttnVBias "attn_v.bias" true attention::row,
    AttnQNorm "attn_q_norm.weight" true attention::row,
    AttnKNorm "attn_k_norm.weight" true attention::row,
    AttnOutput "attn_output.weight" true attention::row,
    AttnOutputBias "attn_output.bias" true attention::row,
    AttnRelB "attn_rel_b.weight" true attention::row,
    AttnSinks "attn_sinks.weight" true attention::row,
    AttnGate "attn_gate.weight" true attention::row,
    AttnQA "attn_q_a.weight" true attention::row LATENT,
    AttnQANorm "attn_q_a_norm.weight" true attention::row LATENT,
    AttnQB "attn_q_b.weight" true attention::row LATENT,
    AttnKvA "attn_kv_a_mqa.weight" true attention::row LATENT,
    AttnKvANorm "attn_kv_a_norm.weight" true attention::row LATENT,
    AttnKvB "attn_kv_b.weight" true attention::row LATENT,
    AttnKB "attn_k_b.weight" true attention::row LATENT,
    AttnVB "attn_v_b.weight" true attention::row LATENT,
    SsmIn "ssm_in.weight" true recurrent::row CONVOLUTION,
    SsmConv "ssm_conv1d.weight" true recurrent::row CONVOLUTION,
    SsmConvBias "ssm_conv1d.bias" true recurrent::row CONVOLUTION,
    SsmAlpha "ssm_alpha.weight" true recurrent::row CONVOLUTION,
    SsmBeta "ssm_beta.weight" true recurrent::row CONVOLUTION,
    SsmBetaAlpha "ssm_ba.weight" true recurrent::row CONVOLUTION,
    #[cfg(feature = "mla")]
    SsmConvQ "ssm_conv1d_q.weight" true recurrent::kimi KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmConvK "ssm_conv1d_k.weight" true recurrent::kimi KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmConvV "ssm_conv1d_v.weight" true recurrent::kimi KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmFA "ssm_f_a.weight" true recurrent::kimi KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmFB "ssm_f_b.weight" true recurrent::kimi KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmGA "ssm_g_a.weight" true recurrent::kimi KIMI_DELTA,
    #[cfg(feature = "mla")]
    SsmGB "ssm_g_b.weight" true recurrent::kimi KIMI_DELTA,
    SsmX "ssm_x.weight" true recurrent::row SELECTIVE,
    SsmDt "ssm_dt.weight" true recurrent::row SELECTIVE,
    SsmDtNorm "ssm_dt_norm.weight" true recurrent::row SELECTIVE,
    SsmBNorm "ssm_b_norm.weight" true recurrent::row SELECTIVE,
    SsmCNorm "ssm_c_norm.weight" true recurrent::row SELECTIVE,
    SsmDtNormBare "ssm_dt_norm" true recurrent::row SELECTIVE,
    SsmBNormBare "ssm_b_norm" true recurrent::row SELECTIVE,
    SsmCNormBare "ssm_c_norm" true recurrent::row SELECTIVE,
    SsmDtBias "ssm_dt.bias" true recurrent::row CONVOLUTION,
    SsmA "ssm_a" true recurrent::row CONVOLUTION,
    SsmD "ssm_d" true recurrent::row CONVOLUTION,
    SsmNorm "ssm_norm.weight" true recurrent::row CONVOLUTION,
    SsmOut "ssm_out.weight" true recurrent::row CONVOLUTION,
    ShortConvIn "shortconv.in_proj.weight" true recurrent::row CONVOLUTION,
    ShortConv "shortconv.conv.weight" true recurrent::row CONVOLUTION,
    ShortConvOut "shortconv.out_proj.weight" true recurrent::row CONVOLUTION,
    TimeMixW0 "time_mix_w0.weight" true recurrent::rwkv RWKV,
    TimeMixW1 "time_mix_w1.weight" true recurrent::rwkv RWKV,
    TimeMixW2 "time_mix_w2.weight" true recurrent::rwkv RWKV,
    TimeMixA0 "time_mix_a0.weight" true recurrent::rwkv RWKV,
    TimeMixA1 "time_mix_a1.weight" true recurrent::rwkv RWKV,
    TimeMixA2 "time_mix_a2.weight" true recurrent::rwkv RWKV,
    TimeMixV0 "time_mix_v0.weight" true recurrent::rwkv RWKV,
    TimeMixV1 "time_mix_v1.weight" true recurrent::rwkv RWKV,
    TimeMixV2 "time_mix_v2.weight" true recurrent::rwkv RWKV,
    TimeMixG1 "time_mix_g1.weight" true recurrent::rwkv RWKV,
    TimeMixG2 "time_mix_g2.weight" true recurrent::rwkv RWKV,
    TimeMixLerpX "time_mix_lerp_x.weight" true recurrent::rwkv RWKV,
    TimeMixFirst "time_mix_first.weight" true recurrent::rwkv RWKV,
    TimeMixDecay "time_mix_decay.weight" true recurrent::rwkv RWKV,
    TimeMixDecayW1 "time_mix_decay_w1.weight" true recurrent::rwkv RWKV,
    TimeMixDecayW2 "time_mix_decay_w2.weight" true recurrent::rwkv RWKV,
    TimeMixGate "time_mix_gate.weight" true recurrent::rwkv RWKV,
    ChannelMixLerpR "channel_mix_lerp_r.weight" true recurrent::rwkv RWKV,
    ChannelMixReceptance "channel_mix_receptance.weight" true recurrent::rwkv RWKV,
    TimeMixLerp "time_mix_lerp_fused.weight" true recurrent::rwkv RWKV,
    TimeMixKk "time_mix_k_k.weight" true recurrent::rwkv RWKV,
    TimeMixKa "time_mix_k_a.weight" true recurrent::rwkv RWKV,
    TimeMixRk "time_mix_r_k.weight" true recurrent::rwkv RWKV,
    TimeMixKey "time_mix_key.weight" true recurrent::rwkv RWKV,
    TimeMixValue "time_mix_value.weight" true recurrent::rwkv RWKV,
    TimeMixReceptance "time_mix_receptance.weight" true recurrent::rwkv RWKV,
    #[cfg(feature = "rwkv")]
    TimeMixKeyBias "time_mix_key.bias" true recurrent::rwkv RWKV,
    #[cfg(feature = "rwkv")]
    TimeMixValueBias "time_mix_value.bias" true recurrent::rwkv RWKV,
    #[cfg(feature = "rwkv")]
    TimeMixReceptanceBias "time_mix_receptance.bias" true recurrent::rwkv RWKV,
    TimeMixLn "time_mix_ln.weight" true recurrent::rwkv RWKV,
    TimeMixLnBias "time_mix_ln.bias" true recurrent::rwkv RWKV,
    TimeMixOutput "time_mix_output.weight" true recurrent::rwkv RWKV,
    ChannelMixLerp "channel_mix_lerp_k.weight" true recurrent::rwkv RWKV,
    ChannelMixKey "channel_mix_key.weight" true recurrent::rwkv RWKV,
    ChannelMixValue "channel_mix_value.weight" true recurrent::rwkv RWKV,
    PostAttentionNorm "post_attention_norm.weight" true norms::row,
    AttnOutputNorm "attn_output_norm.weight" true norms::row,
    AttnOutputNormBias "attn_output_norm.bias" true norms::row,
    CrossAttnNorm "cross_attn_norm.weight" true attention::cross CROSS_ATTENTION,
    CrossAttnNormBias "cross_attn_norm.bias" true attention::cross CROSS_ATTENTION,
    CrossAttnQ "cross_attn_q.weight" true attention::cross CROSS_ATTENTION,
    CrossAttnQBias "cross_attn_q.bias" true attention::cross CROSS_ATTENTION,
    CrossAttnK "cross_attn_k.weight" true attention::cross CROSS_ATTENTION,
    CrossAttnKBias "cross_attn_k.bias" true attention::cross CROSS_ATTENTION,
    CrossAttnV "cross_attn_v.weight" true attention::cross CROSS_ATTENTION,
    CrossAttnVBias "cross_attn_v.bias" true attention::cross CROSS_ATTENTION,
    CrossAttnOutput "cross_attn_o.weight" true attention::cross CROSS_ATTENTION,
    CrossAttnOutputBias "cross_attn_o.bias" true attention::cross CROSS_ATTENTION,
    CrossAttnOutputNorm "cross_attn_output_norm.weight" true attention::cross CROSS_ATTENTION,
    CrossAttnOutputNormBias "cross_attn_output_norm.bias" true attention::cross CROSS_ATTENTION,
    FfnNorm "ffn_norm.weight" true norms::row,
    FfnNormBias "ffn_norm.bias" true norms::row,
    FfnNormBare "ffn_norm" true norms::row,
    PostAttentionNormBare "post_attention_norm" true norms::row,
    PostFfwNormBare "post_ffw_norm" true norms::row,
    FfnSubNorm "ffn_sub_norm.weight" true feed_forward::row,
    FfnGate "ffn_gate.weight" true feed_forward::row,
    FfnGateBias "ffn_gate.bias" true feed_forward::row,
    FfnUp "ffn_up.weight" true feed_forward::row,
    FfnUpBias "ffn_up.bias" true feed_forward::row,
    FfnDown "ffn_down.weight" true feed_forward::row,
    FfnDownBias "ffn_down.bias" true feed_forward::row,
    FfnGateInp "ffn_gate_inp.weight" true feed_forward::experts,
    FfnGateInpBias "ffn_gate_inp.bias" true feed_forward::experts,
    FfnGateInpScale "ffn_gate_inp.scale" true feed_forward::experts,
    PreFfwNorm2 "pre_ffw_norm_2.weight" true feed_forward::experts,
    PostFfwNorm1 "post_ffw_norm_1.weight" true feed_forward::experts,
    PostFfwNorm2 "post_ffw_norm_2.weight" true feed_forward::experts,
    FfnGateUpExps "ffn_gate_up_exps.weight" true feed_forward::experts,
    FfnGateExps "ffn_gate_exps.weight" true feed_forward::experts,
    FfnGateExpsBias "ffn_gate_exps.bias" true feed_forward::experts,
    FfnUpExps "ffn_up_exps.weight" true feed_forward::experts,
    FfnUpExpsBias "ffn_up_exps.bias" true feed_forward::experts,
    FfnDownExps "ffn_down_exps.weight" true feed_forward::experts,
    FfnDownExpsBias "ffn_down_exps.bias" true feed_forward::experts,
    #[cfg(feature = "mixtures")]
    FfnNormExps "ffn_norm_exps.weight" true feed_forward::experts EXPERTS_OF_INPUT,
    #[cfg(feature = "mixtures")]
    FfnGateChexps "ffn_gate_chexps.weight" true feed_forward::experts GROUP_EXPERTS,
    #[cfg(feature = "mixtures")]
    FfnUpChexps "ffn_up_chexps.weight" true feed_forward::experts GROUP_EXPERTS,
    #[cfg(feature = "mixtures")]
    FfnDownChexps "ffn_down_chexps.weight" true feed_forward::experts GROUP_EXPERTS,
    ExpProbsBias "exp_probs_b.bias" true feed_forward::experts,
    ExpProbsBare "exp_probs_b" true feed_forward::experts,
    FfnGateInpShexp "ffn_gate_inp_shexp.weight" true feed_forward::experts,
    FfnGateShexp "ffn_gate_shexp.weight" true feed_forward::experts,
    FfnUpShexp "ffn_up_shexp.weight" true feed_forward::experts,
    FfnDownShexp "ffn_down_shexp.weight" true feed_forward::experts,
    PostFfwNorm "post_ffw_norm.weight" true norms::row,
    LayerOutputNorm "layer_output_norm.weight" true norms::row,
    LayerOutputNormBias "layer_output_norm.bias" true norms::row,
    InpGate "inp_gate.weight" true streams::row GEMMA4,
    Proj "proj.weight" true streams::row GEMMA4,
    PostNorm "post_norm.weight" true streams::row GEMMA4,
    LayerOutputScale "layer_output_scale.weight" true streams::row GEMMA4,
    AltupRouter "altup_router.weight" true streams::altup ALTUP,
    AltupRouterNorm "altup_router_norm.weight" true streams::altup ALTUP,
    AltupPredictCoef "altup_predict_coef.weight" true streams::altup ALTUP,
    AltupCorrectCoef "altup_correct_coef.weight" true streams::altup ALTUP,
    AltupCorrectScale "altup_correct_scale.weight" true streams::altup ALTUP,
    LaurelL "laurel_l.weight" true streams::altup ALTUP,
    LaurelR "laurel_r.weight" true streams::altup ALTUP,
    LaurelPostNorm "laurel_post_norm.weight" true streams::altup ALTUP,
    #[cfg(feature = "drafts")]
    NextProj "nextn.eh_proj.weight" true next::row,
    #[cfg(feature = "drafts")]
    NextTokenNorm "nextn.enorm.weight" true next::row,
    #[cfg(feature = "drafts")]
    NextStateNorm "nextn.hnorm.weight" true next::row,
    #[cfg(feature = "drafts")]
    NextHeadNorm "nextn.shared_head_norm.weight" true next::row,
    #[cfg(feature = "drafts")]
    NextEmbd "nextn.embed_tokens.weight" true next::row,
    #[cfg(feature = "drafts")]
    NextHead "nextn.shared_head_head.weight" true next::row,
}

/// Name endings of tensors that occur in files and that no forward pass reads.
const IGNORED: [&str; 2] = [
    ".cross_attn_rel_b.weight",  // T5 has no such tensor; early converters wrote one
    ".attn.rotary_emb.inv_freq", // rotary frequencies, written by some old converters
];

/// True if a tensor belongs to the vision or audio part that some files hold in addition to the language model.
pub fn is_other_modality(name: &str) -> bool {
    ["v.", "mm.", "a."].iter().any(|start| name.starts_with(start))
}

/// True if a tensor with this name may occur in any file and is not read.
pub fn is_ignored(name: &str) -> bool {
    // Looks for layers for multi-token prediction. (`str::contains` is not used, because it would add kilobytes and a
    // panic.)
    let (ahead, images) = (b".nextn.", b".vis_"); // CogVLM's layers have weights of their own for images
    is_other_modality(name)
        || IGNORED.iter().any(|end| name.ends_with(end))
        || name.as_bytes().windows(ahead.len()).any(|part| part == ahead)
        || built::LENIENT && name.as_bytes().windows(images.len()).any(|part| part == images)
}

/// True if a tensor belongs to a head that decides about several questions together.
pub(super) fn is_of_joint_head(name: &str) -> bool {
    ["decision.", "dec.blk.", "token_types."].iter().any(|start| name.starts_with(start))
}

impl Role {
    /// Number of layers that may have a tensor of this role; 1 for a role of the whole model.
    pub(super) const fn layers(self, spec: &Spec<'_>) -> usize {
        if self.per_layer() { spec.own_layers() } else { 1 }
    }

    /// Requirement of `spec` for a tensor of this role, and the tensor's shape. For roles of layers, both apply to
    /// `layer`.
    #[inline(never)] // makes the binary smaller
    pub(super) const fn tensor(self, spec: &Spec<'_>, layer: &Layer) -> Row {
        let row = self.row(spec, layer);
        #[cfg(feature = "drafts")]
        let row = (next::of_model(self, spec, row.0), row.1);
        row
    }

    /// Whether `spec` requires, allows or forbids a tensor of this role. For roles of layers, the answer is that for
    /// `layer`.
    #[inline(never)] // makes the binary smaller
    pub(super) const fn need(self, spec: &Spec<'_>, layer: &Layer) -> Need {
        self.tensor(spec, layer).0
    }

    /// Tells to which role, layer and piece the tensor called `name` belongs, in a file whose spec describes the stack
    /// `stack`.
    pub(super) fn of(name: &str, stack: Stack) -> Place {
        let (prefix, rest) = match split_at_dot(name) {
            Some((prefix @ ("enc" | "dec"), rest)) => (prefix, rest),
            _ => ("", name),
        };
        let own = stack.prefix();
        let Some((role, layer, piece)) = Self::named(rest, !own.is_empty()) else {
            // In an encoder-decoder each stack owns the names with its prefix; the decoder also owns the names without
            // a prefix.
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

    /// Returns the role of the norm before a layer's feed-forward, and the role of this norm's bias. If the layer has
    /// only a feed-forward, this is the first norm of the layer.
    pub const fn before_ffn(spec: &Spec<'_>, layer: &Layer) -> (Self, Self) {
        match (layer.mixer, spec.residual()) {
            (Mixer::None, _) if spec.one_part() => (Self::AttnNorm, Self::AttnNormBias),
            (_, Residual::Parallel { one_norm: true }) => (Self::AttnNorm, Self::AttnNormBias),
            _ => (Self::FfnNorm, Self::FfnNormBias),
        }
    }

    /// Applies the renaming of `spec`'s family: returns the role of a tensor whose name usually belongs to the role
    /// `self`.
    pub(super) fn in_family(self, spec: &Spec<'_>) -> Self {
        let renamed = if built::RENAMED { spec.renamed } else { &[] };
        renamed.iter().find(|(name, _)| *name == self).map_or(self, |(_, role)| *role)
    }

    /// Returns the role under whose tensor name the family's files store the tensor of this role. Usually, both are the
    /// same role.
    pub(super) fn in_files(self, spec: &Spec<'_>) -> Self {
        let renamed = if built::RENAMED { spec.renamed } else { &[] };
        renamed.iter().find(|(_, role)| *role == self).map_or(self, |(name, _)| *name)
    }

    /// True for the token embedding and the head, which encoder and decoder share. In files of encoder-decoders, their
    /// names have no prefix, except that of an encoder's own token embedding (`enc.`).
    const fn is_shared(self) -> bool {
        matches!(self, Self::TokenEmbd | Self::Output | Self::OutputBias)
    }

    /// Returns the name that the tensor of a role has in files. For roles of the whole model, `layer` is ignored.
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

    /// Parses a tensor's name into its role, its layer (0 for a tensor of the whole model) and its piece: all weights,
    /// one expert's matrix, or factors on the outputs. `name` lacks the prefix of an encoder or decoder (`enc.`,
    /// `dec.`); `prefixed` is true if there was one.
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

    /// Finds the role of a tensor that is only a piece: the factors on a matrix's outputs, or the matrix of only one
    /// expert.
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

    /// Index from 0 to 2 of a role whose tensor some files divide into one tensor per expert; `None` for other roles.
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

/// Splits a name at its first dot. ([`str::split_once`] is not used, because a program built for size could then
/// contain a panic.)
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

/// What a tensor holds: all weights of its role, the weights of one expert, or numbers that accompany the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// All weights.
    Whole,
    /// The matrix of one expert.
    Expert(usize),
    /// The factors `.scale` of a matrix's outputs: one for the matrix, or one for each expert.
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
    /// A tensor of this stack of layers: its role, its layer, and which piece of the role's weights it contains.
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
