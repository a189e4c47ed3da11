//! Parts of a [`Spec`] that a build may be without.
//!
//! The forward pass, the plan and the tensors ask these functions; the fields are private. In a build without a
//! part the answer is a constant, and the optimizer leaves out what would run it.

use super::layers::Pattern;
use super::recurrent::{Recurrent, RecurrentKind};
use super::spec::{
    Experts, Gate, Need, Norm, Placement, PooledHead, Positions, QkNorm, Router, SharedExperts, Spec, Stack,
    Temperature,
};
use crate::built::{self, Abilities};
use crate::kernel::Activation;

/// For each field: its type, what it is in the plainest model, and what else it may be, with that ability.
macro_rules! parts {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $plain:expr, $($part:pat => $ability:ident),+;)*) => {
        impl<'a> Spec<'a> {
            $(
                $(#[$doc])*
                pub const fn $field(&self) -> $type {
                    match self.$field {
                        $(part @ $part if built::$ability => part,)+
                        _ => $plain,
                    }
                }
            )*

            /// The name of a field that needs an ability which is not among these.
            pub(super) const fn lacks(&self, abilities: Abilities) -> Option<&'static str> {
                $(
                    match self.$field {
                        $($part if !abilities.has(Abilities::$ability) => return Some(stringify!($field)),)+
                        _ => {}
                    }
                )*
                None
            }
        }
    };
}

parts! {
    /// What the stack is for.
    stack: Stack = Stack::Alone,
        Stack::Encoder | Stack::Source { .. } => ENCODER,
        Stack::Target { .. } => CROSS_ATTENTION;
    /// Which layers are local.
    local_layers: Pattern<'a> = Pattern::Never,
        Pattern::Always | Pattern::Every(_) | Pattern::AllBut(_) | Pattern::AllButFirst(_) | Pattern::Where(_) | Pattern::Zero(_) => LOCAL_LAYERS;
    /// How positions enter.
    positions: Positions = Positions::Rotary,
        Positions::Learned => LEARNED_POSITIONS,
        Positions::Sinusoidal { .. } => SINUSOIDAL_POSITIONS,
        Positions::Relative { .. } | Positions::Alibi => RELATIVE_POSITIONS;
    /// Token types (segments), each with an embedding, of which the first is added to every token's; 0 for none.
    token_types: usize = 0, 1.. => TOKEN_TYPES;
    /// Whether there is a norm after the embedding.
    embedding_norm: bool = false, true => TOKEN_TYPES;
    /// The norm around attention and feed-forward and before the head.
    norm: Norm = Norm::Rms, Norm::Layer => LAYER_NORM, Norm::Unbiased => UNBIASED_NORM;
    /// Where in a block the norms are.
    placement: Placement = Placement { pre_norm: true, post_norm: false, residual_norm: false },
        Placement { post_norm: true, residual_norm: false, .. } => POST_NORM,
        Placement { post_norm: false, residual_norm: true, .. } => RESIDUAL_NORM;
    /// Whether q, k and v are one matrix, `attn_qkv`.
    fused_qkv: bool = false, true => FUSED_QKV;
    /// Norms of q and k, before rope.
    qk_norm: QkNorm = QkNorm::None,
        QkNorm::Head => HEAD_NORM, QkNorm::EachHead => EACH_HEAD_NORM, QkNorm::Whole => WHOLE_NORM;
    /// Whether the norms of q and k come after rope.
    qk_norm_after_rope: bool = false, true => NORM_AFTER_ROPE;
    /// A factor on queries that grows with the position.
    temperature: Option<Temperature> = None, Some(_) => TEMPERATURE;
    /// Whether every head has a learned score in the softmax that has no value, `attn_sinks`.
    attention_sinks: bool = false, true => GPT_OSS;
    /// The mixer of layers that have a state of fixed size.
    recurrent: Option<Recurrent> = None,
        Some(Recurrent { kind: RecurrentKind::ShortConvolution, .. }) => CONVOLUTION,
        Some(Recurrent { kind: RecurrentKind::DeltaNet | RecurrentKind::Mamba2, .. }) => RECURRENCE;
    /// Which layers have that mixer alone, without attention.
    recurrent_layers: Pattern<'a> = Pattern::Never,
        Pattern::Always | Pattern::Every(_) | Pattern::AllBut(_) | Pattern::AllButFirst(_) | Pattern::Where(_) | Pattern::Zero(_) => CONVOLUTION;
    /// Whether the matrix of q makes a gate of every head, too: the head's output is multiplied by its sigmoid.
    gated_query: bool = false, true => GATED_QUERY;
    /// Whether each head of v is normed, without a weight.
    v_norm: bool = false, true => GEMMA4;
    /// Whether a layer may lack the matrix of v: its values are then what its k is before norm and rope.
    v_from_k: bool = false, true => GEMMA4;
    /// The number of last layers that have no keys and values of their own: they read those of the last
    /// layer before them that is global or local like them.
    kv_shared: usize = 0, 1.. => GEMMA4;
    /// Attention scores become `cap * tanh(score / cap)`.
    attention_cap: Option<f32> = None, Some(_) => CAPS;
    /// Logits become `cap * tanh(logit / cap)`.
    logit_cap: Option<f32> = None, Some(_) => CAPS;
    /// The feed-forward's activation function.
    activation: Activation = Activation::Silu,
        Activation::GeluTanh => GELU_TANH, Activation::GeluErf => GELU_ERF, Activation::Relu => RELU,
        Activation::ReluSquared => RELU_SQUARED,
        Activation::ClampedSwiglu => GPT_OSS;
    /// What the feed-forward's gate is.
    gate: Gate = Gate::Separate, Gate::Fused => FUSED_GATE, Gate::None => NO_GATE;
    /// The feed-forward is several, and a router chooses among them.
    experts: Option<Experts> = None, Some(_) => EXPERTS;
    /// How a router chooses among experts.
    router: Router = Router::Softmax, Router::Sigmoid { .. } => SIGMOID_ROUTER;
    /// What every token goes to, as well as to its experts.
    shared_experts: Option<SharedExperts> = None, Some(_) => SHARED_EXPERTS;
    /// How many of the first layers have no experts.
    dense_layers: usize = 0, 1.. => DENSE_LAYERS;
    /// Whether a layer is either a mixer or a feed-forward, with one norm.
    one_part: bool = false, true => ONE_PART;
    /// Elements of each layer's own input for a token; 0 for none.
    per_layer_input: usize = 0, 1.. => GEMMA4;
    /// Factor on the hidden state after a layer, `layer_output_scale`.
    layer_scale: Need = Need::Absent, Need::Optional | Need::Required | Need::Unused => GEMMA4;
    /// Linear layers after pooling.
    pooled_head: Option<PooledHead> = None, Some(_) => POOLED_HEAD;
}
