//! Functions that read those fields of a [`Spec`] whose values may need an ability (see `built.rs`).
//!
//! The fields are private; the forward pass, the plan and the tensor checks read them with these functions. In a build
//! without the ability, a field's function returns a constant, so that the optimizer removes the code for all other
//! values.

use super::altup::AltUp;
use super::choices::{
    Experts, Gate, GroupExperts, HeadGate, Loops, Need, Norm, Placement, PooledHead, Positions, QkNorm, Residual,
    Router, Scoring, SharedExperts, Stack, Temperature, Values,
};
use super::latent::Latent;
use super::layers::{Limits, Pattern, Xielu};
use super::recurrent::{Recurrent, RecurrentKind};
use super::spec::{Spec, Special};
use crate::built::{self, Abilities};
use crate::kernel::Activation;

/// Defines a function for each listed field of a spec. An entry has the field, its type, and the value that every build
/// can run. After this follow patterns for all other values, each with the ability that a build needs for them.
macro_rules! parts {
    ($($(#[$doc:meta])* $see:vis $field:ident: $type:ty = $plain:expr, $($part:pat => $ability:ident),+;)*) => {
        impl<'a> Spec<'a> {
            $(
                $(#[$doc])*
                $see const fn $field(&self) -> $type {
                    match self.$field {
                        $(part @ $part if built::$ability => part,)+
                        _ => $plain,
                    }
                }
            )*

            /// Returns the name of a field whose value needs an ability that `abilities` does not contain. `None` if
            /// the abilities suffice for all fields.
            pub(super) const fn lacks(&self, abilities: Abilities) -> Option<&'static str> {
                $(
                    match self.$field {
                        $(
                            $part if const { Abilities::$ability.may_be_needed() } && !abilities.has(Abilities::$ability) => {
                                return Some(stringify!($field));
                            }
                        )+
                        _ => {}
                    }
                )*
                self.special.lacks(abilities)
            }
        }
    };
}

impl<'a> Spec<'a> {
    /// Sizes of attention over latent vectors, if the model's layers have such attention.
    pub(crate) const fn latent(&self) -> Option<Latent> {
        match self.special {
            Special::Latent(latent) if built::LATENT => Some(latent),
            _ => None,
        }
    }

    /// Sizes for AltUp, which updates several streams of hidden states in turn, if the model has such streams.
    pub(crate) const fn altup(&self) -> Option<AltUp<'a>> {
        match self.special {
            Special::AltUp(altup) if built::ALTUP => Some(altup),
            _ => None,
        }
    }

    /// Limits of the gates of feed-forwards.
    pub(crate) const fn limits(&self) -> Option<&Limits<'a>> {
        match &self.special {
            Special::Limits(limits) if built::LIMITS => Some(limits),
            _ => None,
        }
    }

    /// Parameters of the activation function xIELU, used in place of `activation`.
    pub(crate) const fn xielu(&self) -> Option<&Xielu<'a>> {
        match &self.special {
            Special::Xielu(xielu) if built::XIELU => Some(xielu),
            _ => None,
        }
    }
}

impl Spec<'_> {
    /// Shared experts, one for each group of experts.
    pub(crate) const fn group_experts(&self) -> Option<GroupExperts> {
        match self.special {
            Special::GroupExperts(group) if built::GROUP_EXPERTS => Some(group),
            _ => None,
        }
    }

    /// True if layers have both a dense feed-forward and experts, and the experts read the layer's input through a norm
    /// of their own.
    pub(crate) const fn experts_of_input(&self) -> bool {
        built::EXPERTS_OF_INPUT && matches!(self.special, Special::ExpertsOfInput)
    }

    /// Layers that score the options of a decision.
    pub(crate) const fn scoring(&self) -> Option<Scoring> {
        match self.special {
            Special::Scoring(scoring) if built::SCORING => Some(scoring),
            _ => None,
        }
    }

    /// True if the file has tensors that decide about all options of several questions together. The engine does not
    /// run these tensors; whoever runs them needs the states of all tokens after the final norm.
    pub(crate) const fn joint_head(&self) -> bool {
        built::JOINT_HEAD && matches!(self.special, Special::JointHead)
    }

    /// True if the token's embedding, times `layer_output_scale`, is added after every layer.
    pub(crate) const fn embedding_skip(&self) -> bool {
        built::EMBEDDING_SKIP && matches!(self.special, Special::EmbeddingSkip)
    }
}

impl Special<'_> {
    /// If this feature needs an ability that is not in `abilities`, returns the feature's name.
    const fn lacks(&self, abilities: Abilities) -> Option<&'static str> {
        match self {
            Self::Latent(_) if built::LENIENT && !abilities.has(Abilities::LATENT) => Some("latent"),
            Self::Limits(_) if built::LENIENT && !abilities.has(Abilities::LIMITS) => Some("limits"),
            Self::AltUp(_) if built::LENIENT && !abilities.has(Abilities::ALTUP) => Some("altup"),
            Self::Xielu(_) if built::LENIENT && !abilities.has(Abilities::XIELU) => Some("xielu"),
            Self::GroupExperts(_) if built::LENIENT && !abilities.has(Abilities::GROUP_EXPERTS) => Some("experts"),
            Self::ExpertsOfInput if built::LENIENT && !abilities.has(Abilities::EXPERTS_OF_INPUT) => Some("experts"),
            Self::Scoring(_) if built::LENIENT && !abilities.has(Abilities::SCORING) => Some("scoring"),
            Self::JointHead if built::LENIENT && !abilities.has(Abilities::JOINT_HEAD) => Some("joint_head"),
            Self::EmbeddingSkip if built::LENIENT && !abilities.has(Abilities::EMBEDDING_SKIP) => {
                Some("embedding_skip")
            }
            _ => None,
        }
    }
}

parts! {
    /// Kind of stack.
    pub stack: Stack = Stack::Alone,
        Stack::Encoder | Stack::Source { .. } => ENCODER,
        Stack::Target { .. } => CROSS_ATTENTION;
    /// Layers whose heads are described by `local`. The heads of all other layers are described by `global`.
    pub(crate) local_layers: Pattern<'a> = Pattern::Never,
        Pattern::Always | Pattern::Every(_) | Pattern::AllBut(_) | Pattern::AllButFirst(_) | Pattern::Steps { .. } | Pattern::Set(_) | Pattern::Where(_) | Pattern::Zero(_) => LOCAL_LAYERS;
    /// Kind of position encoding.
    pub positions: Positions = Positions::Rotary,
        Positions::Learned => LEARNED_POSITIONS,
        Positions::Sinusoidal { .. } => SINUSOIDAL_POSITIONS,
        Positions::Relative { .. } | Positions::Alibi { .. } => RELATIVE_POSITIONS;
    /// Number of token types (segments); 0 if there are none. Each type has an embedding. The embedding of the first
    /// type is added to every token.
    pub(crate) token_types: usize = 0, 1.. => TOKEN_TYPES;
    /// Whether the norm of the embedding needs a weight. `Absent` means that the embedding is not normed.
    pub(crate) embedding_norm: Need = Need::Absent, Need::Required | Need::Optional | Need::Unused => TOKEN_TYPES;
    /// The norm used in layers and before the head.
    pub(crate) norm: Norm = Norm::Rms, Norm::Layer => LAYER_NORM, Norm::Unbiased => UNBIASED_NORM;
    /// Positions of the norms in a layer.
    pub(crate) placement: Placement = Placement { pre_norm: true, post_norm: false, residual_norm: false },
        Placement { post_norm: true, residual_norm: false, .. } => POST_NORM,
        Placement { post_norm: false, residual_norm: true, .. } => RESIDUAL_NORM;
    /// True if q, k and v are one matrix, `attn_qkv`.
    pub(crate) fused_qkv: bool = false, true => FUSED_QKV;
    /// True if each expert has its own tensors, `ffn_up.E`.
    pub(crate) separate_experts: bool = false, true => EXPERTS;
    /// True if one tensor, `ffn_gate_up_exps`, holds gate and up of all experts.
    pub(crate) fused_experts: bool = false, true => EXPERTS;
    /// True if every layer has a table of its own for relative positions. Otherwise only the first layer has such a
    /// table, which all layers use.
    pub(crate) own_biases: bool = false, true => RELATIVE_POSITIONS;
    /// Norms of q and k. They are applied before rope, unless [`qk_norm_after_rope`](Self::qk_norm_after_rope) is true.
    pub(crate) qk_norm: QkNorm = QkNorm::None,
        QkNorm::Head => HEAD_NORM, QkNorm::EachHead | QkNorm::Gain => EACH_HEAD_NORM, QkNorm::Whole => WHOLE_NORM,
        QkNorm::Unweighted => LLAMA4;
    /// True if the norms of q and k come after rope.
    pub(crate) qk_norm_after_rope: bool = false, true => NORM_AFTER_ROPE;
    /// Factor on queries that grows with the position.
    pub(crate) temperature: Option<Temperature> = None, Some(_) => TEMPERATURE;
    /// Attention sinks (`attn_sinks`): each head has a learned score that counts in the softmax but has no value.
    pub(crate) attention_sinks: Need = Need::Absent, Need::Optional | Need::Required | Need::Unused => GPT_OSS;
    /// The mixer of recurrent layers.
    pub(crate) recurrent: Option<Recurrent> = None,
        Some(Recurrent { kind: RecurrentKind::ShortConvolution, .. }) => CONVOLUTION,
        Some(Recurrent { kind: RecurrentKind::DeltaNet | RecurrentKind::Mamba2, .. }) => RECURRENCE,
        Some(Recurrent { kind: RecurrentKind::Mamba, .. }) => SELECTIVE,
        Some(Recurrent { kind: RecurrentKind::Rwkv7 | RecurrentKind::Rwkv6 | RecurrentKind::Qrwkv6, .. }) => RWKV,
        Some(Recurrent { kind: RecurrentKind::KimiDelta, .. }) => KIMI_DELTA;
    /// Layers that have the recurrent mixer and no attention.
    pub(crate) recurrent_layers: Pattern<'a> = Pattern::Never,
        Pattern::Always | Pattern::Every(_) | Pattern::AllBut(_) | Pattern::AllButFirst(_) | Pattern::Steps { .. } | Pattern::Set(_) | Pattern::Where(_) | Pattern::Zero(_) => STATES;
    /// True if the matrix of queries also computes gates. The output of a head is then multiplied by the sigmoid of its
    /// gates.
    pub(crate) gated_query: bool = false, true => GATED_QUERY;
    /// True if each head of v is normed (without a weight).
    pub(crate) v_norm: bool = false, true => GEMMA4;
    /// True if a layer may have no matrix for values. The values are then the keys as they are before norm and rope.
    pub(crate) v_from_k: bool = false, true => GEMMA4;
    /// Number of last layers that have no keys and values of their own. Each of them reads the keys and values of an
    /// earlier layer: of the last layer that has the same type (global or local) and computes keys and values.
    pub(crate) kv_shared: usize = 0, 1.. => GEMMA4;
    /// Attention scores become `cap * tanh(score / cap)`.
    pub attention_cap: Option<f32> = None, Some(_) => CAPS;
    /// Logits become `cap * tanh(logit / cap)`.
    pub logit_cap: Option<f32> = None, Some(_) => CAPS;
    /// The feed-forward's activation function.
    pub activation: Activation = Activation::Silu,
        Activation::GeluTanh => GELU_TANH, Activation::GeluErf => GELU_ERF, Activation::Relu => RELU,
        Activation::ReluSquared => RELU_SQUARED,
        Activation::ClampedSwiglu => GPT_OSS;
    /// Kind of the feed-forward's gate.
    pub(crate) gate: Gate = Gate::Separate, Gate::Fused => FUSED_GATE, Gate::None => NO_GATE;
    /// Sizes of the experts that a router chooses from.
    pub experts: Option<Experts> = None, Some(_) => EXPERTS;
    /// Function from router scores to weights of experts.
    pub(crate) router: Router = Router::Softmax, Router::Scored { .. } => SCORED_ROUTER;
    /// The shared expert, which processes every token.
    pub(crate) shared_experts: Option<SharedExperts> = None, Some(_) => SHARED_EXPERTS;
    /// Layers with experts, if the model has any.
    pub(crate) expert_layers: Pattern<'a> = Pattern::Always,
        Pattern::Never | Pattern::Every(_) | Pattern::AllBut(_) | Pattern::AllButFirst(_) | Pattern::Steps { .. } | Pattern::Set(_) | Pattern::Where(_) | Pattern::Zero(_) => DENSE_LAYERS;
    /// True if each layer is either a mixer or a feed-forward, and has only one norm.
    pub(crate) one_part: bool = false, true => ONE_PART;
    /// Input of the feed-forward.
    pub(crate) residual: Residual = Residual::Serial, Residual::Parallel { .. } => PARALLEL;
    /// Largest absolute value of queries, keys and values.
    pub(crate) qkv_clamp: Option<f32> = None, Some(_) => CLAMP;
    /// True if norms have no weights.
    pub(crate) bare_norm: bool = false, true => BARE_NORM;
    /// True if the heads' output and the feed-forward's inner values are normed (`attn_sub_norm`, `ffn_sub_norm`).
    pub(crate) sub_norms: bool = false, true => SUB_NORMS;
    /// Gates on the outputs of heads, computed by a separate matrix.
    pub(crate) heads_gated: Option<HeadGate> = None, Some(_) => HEADS_GATED;
    /// Length of values and a factor by which values are multiplied, in models whose values are shorter than keys or
    /// have such a factor.
    pub(crate) values: Option<Values> = None, Some(_) => NARROW_VALUES;
    /// Layers that run several times.
    pub(crate) loops: Option<Loops> = None, Some(_) => LOOPS;
    /// Number of first layers that are global but have the rotary positions of local layers.
    pub(crate) rotated_first: usize = 0, 1.. => LOCAL_LAYERS;
    /// True if layers with experts also have a dense feed-forward, and experts and feed-forward have separate norms.
    pub(crate) experts_beside: bool = false, true => EXPERTS_BESIDE;
    /// True if the router reads the input of the layer instead of the input of the feed-forward.
    pub(crate) early_router: bool = false, true => EARLY_ROUTER;
    /// True if the router's weight of an expert multiplies the input of the expert. Otherwise it multiplies the output.
    pub(crate) weighted_inputs: bool = false, true => LLAMA4;
    /// Length of the chunks of positions: in layers with rotary positions, a token attends only within its chunk. The
    /// length is a multiple of a tile.
    pub(crate) chunk: Option<usize> = None, Some(_) => LLAMA4;
    /// Number of elements of the input that each layer receives per token in addition to the hidden state; 0 if there
    /// is no such input.
    pub(crate) per_layer_input: usize = 0, 1.. => GEMMA4;
    /// Factor on the hidden state after a layer (`layer_output_scale`).
    pub(crate) layer_scale: Need = Need::Absent, Need::Optional | Need::Required | Need::Unused => GEMMA4;
    /// Linear layers after pooling.
    pub(crate) pooled_head: Option<PooledHead> = None, Some(_) => POOLED_HEAD;
}
