//! Parts of a [`Spec`] that a build may be without.
//!
//! The forward pass, the plan and the tensors ask these functions instead of the fields. In a build without a
//! part the answer is a constant, and the optimizer leaves out what would run it.

use super::layers::Pattern;
use super::roles::Role;
use super::spec::{Experts, Gate, Need, Norm, Placement, Positions, QkNorm, Spec, Stack, Temperature};
use crate::built;
use crate::kernel::Activation;

/// For each field: its type, what it is in the plainest model, and what else it may be, if that is built.
macro_rules! parts {
    ($($field:ident: $type:ty = $plain:expr, $($part:pat => $built:ident),+;)*) => {
        impl<'a> Spec<'a> {
            $(
                pub(crate) const fn $field(&self) -> $type {
                    match self.$field {
                        $(part @ $part if built::$built => part,)+
                        _ => $plain,
                    }
                }
            )*

            /// The name of a field that asks for a part which is not in this build.
            pub(super) const fn unbuilt(&self) -> Option<&'static str> {
                $(
                    match self.$field {
                        $($part if !built::$built => return Some(stringify!($field)),)+
                        _ => {}
                    }
                )*
                None
            }
        }
    };
}

parts! {
    stack: Stack = Stack::Alone,
        Stack::Encoder { .. } | Stack::Source { .. } => ENCODER,
        Stack::Target { .. } => CROSS_ATTENTION;
    second: Pattern<'a> = Pattern::Never,
        Pattern::Every(_) | Pattern::AllBut(_) | Pattern::Where(_) => TWO_KINDS;
    positions: Positions = Positions::Rotary,
        Positions::Learned => LEARNED_POSITIONS,
        Positions::Sinusoidal { .. } => SINUSOIDAL_POSITIONS,
        Positions::Relative { .. } => RELATIVE_POSITIONS;
    token_types: usize = 0, 1.. => TOKEN_TYPES;
    embedding_norm: bool = false, true => TOKEN_TYPES;
    norm: Norm = Norm::Rms, Norm::Layer => LAYER_NORM, Norm::Unbiased => UNBIASED_NORM;
    placement: Placement = Placement { before: true, behind: false, after: false },
        Placement { behind: true, after: false, .. } => NORM_BEHIND,
        Placement { behind: false, after: true, .. } => NORM_AFTER;
    fused_qkv: bool = false, true => FUSED_QKV;
    qk_norm: QkNorm = QkNorm::None,
        QkNorm::Head => HEAD_NORM, QkNorm::EachHead => EACH_HEAD_NORM, QkNorm::Whole => WHOLE_NORM;
    qk_norm_after_rope: bool = false, true => HUNYUAN;
    attention_sinks: bool = false, true => SINKS;
    renamed: &'static [(Role, Role)] = &[], [_, ..] => RENAMED;
    temperature: Option<Temperature> = None, Some(_) => MISTRAL3;
    v_norm: bool = false, true => GEMMA4;
    v_from_k: bool = false, true => GEMMA4;
    kv_shared: usize = 0, 1.. => GEMMA4;
    attention_cap: Option<f32> = None, Some(_) => CAPS;
    logit_cap: Option<f32> = None, Some(_) => CAPS;
    activation: Activation = Activation::Silu,
        Activation::GeluTanh => GELU_TANH, Activation::GeluErf => GELU_ERF, Activation::Relu => RELU,
        Activation::ClampedSwiglu => GPT_OSS;
    gate: Gate = Gate::Separate, Gate::Fused => FUSED_GATE, Gate::None => NO_GATE;
    experts: Option<Experts> = None, Some(_) => EXPERTS;
    per_layer_input: usize = 0, 1.. => GEMMA4;
    layer_scale: Need = Need::Absent, Need::Optional | Need::Required | Need::Unused => GEMMA4;
}
