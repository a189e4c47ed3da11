//! Tensors: their names, which of them an architecture has, and in which shapes.

use super::layers::Layer;
use super::rope::Scaling;
use super::{Gate, Need, Norm, Positions, QkNorm, Spec};

macro_rules! roles {
    ($($role:ident $name:literal $per_layer:literal,)*) => {
        /// What a tensor is for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Role { $($role),* }

        impl Role {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$role),*];

            /// The tensor's name, without `blk.N.`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$role => $name),* }
            }

            /// Whether every layer has one.
            pub const fn per_layer(self) -> bool {
                match self { $(Self::$role => $per_layer),* }
            }
        }
    };
}

roles! {
    TokenEmbd "token_embd.weight" false,
    PositionEmbd "position_embd.weight" false,
    RopeFreqs "rope_freqs.weight" false,
    RopeFactorsShort "rope_factors_short.weight" false,
    RopeFactorsLong "rope_factors_long.weight" false,
    PerLayerTokenEmbd "per_layer_token_embd.weight" false,
    PerLayerModelProj "per_layer_model_proj.weight" false,
    PerLayerProjNorm "per_layer_proj_norm.weight" false,
    OutputNorm "output_norm.weight" false,
    OutputNormBias "output_norm.bias" false,
    Output "output.weight" false,
    AttnNorm "attn_norm.weight" true,
    AttnNormBias "attn_norm.bias" true,
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
    PostAttentionNorm "post_attention_norm.weight" true,
    FfnNorm "ffn_norm.weight" true,
    FfnNormBias "ffn_norm.bias" true,
    FfnGate "ffn_gate.weight" true,
    FfnGateBias "ffn_gate.bias" true,
    FfnUp "ffn_up.weight" true,
    FfnUpBias "ffn_up.bias" true,
    FfnDown "ffn_down.weight" true,
    FfnDownBias "ffn_down.bias" true,
    FfnGateInp "ffn_gate_inp.weight" true,
    FfnGateExps "ffn_gate_exps.weight" true,
    FfnUpExps "ffn_up_exps.weight" true,
    FfnDownExps "ffn_down_exps.weight" true,
    PostFfwNorm "post_ffw_norm.weight" true,
    InpGate "inp_gate.weight" true,
    Proj "proj.weight" true,
    PostNorm "post_norm.weight" true,
    LayerOutputScale "layer_output_scale.weight" true,
}

/// Tensors that files carry and no forward pass needs, by the end of their names.
const IGNORED: [&str; 1] = [
    ".attn.rotary_emb.inv_freq", // some old converters wrote the rotary frequencies out
];

/// Whether a tensor may be in any file, for nothing.
pub(super) fn is_ignored(name: &str) -> bool {
    IGNORED.iter().any(|end| name.ends_with(end))
}

/// The shape of a tensor, in the order of the file's dimensions: the inputs of a matrix come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Numbers that are used as they are: F32.
    Vector(usize),
    /// So many vectors of one length.
    Vectors(usize, usize),
    /// Inputs and outputs.
    Matrix(usize, usize),
    /// Inputs and outputs, and how many such matrices there are.
    Matrices(usize, usize, usize),
}

impl Shape {
    /// As a file has them.
    pub const fn dims(self) -> [u64; 4] {
        match self {
            Self::Vector(len) => [len as u64, 1, 1, 1],
            Self::Vectors(cols, rows) | Self::Matrix(cols, rows) => [cols as u64, rows as u64, 1, 1],
            Self::Matrices(cols, rows, count) => [cols as u64, rows as u64, count as u64, 1],
        }
    }

    /// Whether it holds vectors.
    pub const fn is_vector(self) -> bool {
        matches!(self, Self::Vector(_) | Self::Vectors(..))
    }
}

impl Role {
    /// Whether `spec` has this tensor (in that layer, for the roles of layers).
    pub fn need(self, spec: &Spec<'_>, layer: &Layer) -> Need {
        use Need::{Absent, Optional, Required, Unused};
        let only = |condition| if condition { Required } else { Absent };
        let also = |condition, need| if condition { need } else { Absent };
        // Layers that share keys and values need none of their own; some files carry them all the same.
        let own = |need| if layer.owns_kv || need == Absent { need } else { Unused };
        let first = spec.rope(0);
        let long = first.is_some_and(|rope| matches!(rope.scaling, Scaling::Long { .. }));
        let (dense, gated) = (spec.experts.is_none(), spec.gate == Gate::Separate);
        match self {
            Self::TokenEmbd | Self::OutputNorm | Self::AttnOutput => Required,
            Self::Output => Optional, // absent: the token embedding is the head as well
            Self::PositionEmbd => only(spec.positions == Positions::Learned),
            Self::RopeFreqs => also(first.is_some() && !long, Optional),
            Self::RopeFactorsShort | Self::RopeFactorsLong => also(long, Optional),
            Self::PerLayerTokenEmbd | Self::PerLayerModelProj | Self::PerLayerProjNorm => {
                only(spec.per_layer_input > 0)
            }
            Self::AttnNorm | Self::FfnNorm => only(spec.placement.before),
            Self::AttnNormBias | Self::FfnNormBias => only(spec.placement.before && spec.norm == Norm::Layer),
            Self::OutputNormBias => only(spec.norm == Norm::Layer),
            Self::PostAttentionNorm | Self::PostFfwNorm => only(spec.placement.behind),
            Self::AttnQkv => only(spec.fused_qkv),
            Self::AttnQkvBias => also(spec.fused_qkv, spec.qkv_bias),
            Self::AttnQ => only(!spec.fused_qkv),
            Self::AttnK => own(only(!spec.fused_qkv)),
            Self::AttnV => own(also(!spec.fused_qkv, if spec.v_from_k { Optional } else { Required })),
            Self::AttnQBias => also(!spec.fused_qkv, spec.qkv_bias),
            Self::AttnKBias | Self::AttnVBias => own(also(!spec.fused_qkv, spec.qkv_bias)),
            Self::AttnQNorm => spec.qk_norm.need(),
            Self::AttnKNorm => own(spec.qk_norm.need()),
            Self::AttnOutputBias => spec.linear_bias,
            Self::FfnUp | Self::FfnDown => only(dense),
            Self::FfnUpBias | Self::FfnDownBias => also(dense, spec.linear_bias),
            Self::FfnGate => only(dense && gated),
            Self::FfnGateBias => also(dense && gated, spec.linear_bias),
            Self::FfnGateInp | Self::FfnGateExps | Self::FfnUpExps | Self::FfnDownExps => only(!dense),
            Self::InpGate | Self::Proj | Self::PostNorm => only(spec.per_layer_input > 0),
            Self::LayerOutputScale => spec.layer_scale,
        }
    }

    /// Its shape.
    pub(super) fn shape(self, spec: &Spec<'_>, layer: &Layer) -> Shape {
        use Shape::{Matrices, Matrix, Vector, Vectors};
        let (dim, ffn, input) = (spec.dim, layer.ffn, spec.per_layer_input);
        let (q, kv) = (layer.q_dim(), layer.kv_dim());
        let experts = spec.experts.map_or(0, |experts| experts.count);
        let turned = spec.rope(0).map_or(0, |rope| rope.dim / 2);
        let heads = |count| match spec.qk_norm {
            QkNorm::None | QkNorm::Head => Vector(layer.head.dim),
            QkNorm::EachHead => Vectors(layer.head.dim, count),
            QkNorm::Whole => Vector(layer.head.dim * count),
        };
        match self {
            Self::TokenEmbd | Self::Output => Matrix(dim, spec.vocab),
            Self::PositionEmbd => Matrix(dim, spec.context),
            Self::RopeFreqs | Self::RopeFactorsShort | Self::RopeFactorsLong => Vector(turned),
            Self::PerLayerTokenEmbd => Matrix(spec.layers * input, spec.vocab),
            Self::PerLayerModelProj => Matrix(dim, spec.layers * input),
            Self::PerLayerProjNorm => Vector(input),
            Self::OutputNorm | Self::OutputNormBias | Self::AttnNorm | Self::AttnNormBias => Vector(dim),
            Self::FfnNorm | Self::FfnNormBias | Self::AttnOutputBias | Self::FfnDownBias => Vector(dim),
            Self::PostAttentionNorm | Self::PostFfwNorm | Self::PostNorm => Vector(dim),
            Self::AttnQkv => Matrix(dim, q + 2 * kv),
            Self::AttnQkvBias => Vector(q + 2 * kv),
            Self::AttnQ => Matrix(dim, q),
            Self::AttnQBias => Vector(q),
            Self::AttnK | Self::AttnV => Matrix(dim, kv),
            Self::AttnKBias | Self::AttnVBias => Vector(kv),
            Self::AttnQNorm => heads(layer.heads),
            Self::AttnKNorm => heads(layer.kv_heads),
            Self::AttnOutput => Matrix(q, dim),
            Self::FfnUp if spec.gate == Gate::Fused => Matrix(dim, 2 * ffn),
            Self::FfnGate | Self::FfnUp => Matrix(dim, ffn),
            Self::FfnGateBias | Self::FfnUpBias => Vector(ffn),
            Self::FfnDown => Matrix(ffn, dim),
            Self::FfnGateInp => Matrix(dim, experts),
            Self::FfnGateExps | Self::FfnUpExps => Matrices(dim, ffn, experts),
            Self::FfnDownExps => Matrices(ffn, dim, experts),
            Self::InpGate => Matrix(dim, input),
            Self::Proj => Matrix(input, dim),
            Self::LayerOutputScale => Vector(1),
        }
    }

    /// The role and the layer (0 for the whole model's) of the tensor with this name.
    pub fn of(name: &str) -> Option<(Self, usize)> {
        let (name, layer) = match name.strip_prefix("blk.") {
            Some(rest) => {
                let (number, name) = rest.split_once('.')?;
                // Only the spelling that writers use, so that no two names mean one tensor.
                if number.len() > 1 && number.starts_with('0') || number.starts_with('+') {
                    return None;
                }
                (name, Some(number.parse().ok()?))
            }
            None => (name, None),
        };
        let role = *Self::ALL.iter().find(|role| role.per_layer() == layer.is_some() && role.name() == name)?;
        Some((role, layer.unwrap_or(0)))
    }
}

impl QkNorm {
    /// Whether files have its weights.
    const fn need(self) -> Need {
        match self {
            Self::None => Need::Absent,
            Self::Head | Self::Whole => Need::Required,
            Self::EachHead => Need::Optional,
        }
    }
}
