//! The names of the tensors of an encoder of pictures.

use super::projector::Projector;

/// Number and names of the tensors of a role.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// One tensor.
    Once,
    /// One in each block, after `v.blk.N.`.
    Block,
    /// One tensor in each of those layers whose states are also projected, for the first layers of the language model.
    /// The tensor's name follows `v.deepstack.N.`.
    Deep,
    /// One, with a name that depends on the projector.
    Projector,
}

pub(super) const BLOCK: &[u8] = b"v.blk.";
pub(super) const DEEP: &[u8] = b"v.deepstack.";

macro_rules! roles {
    ($($(#[$doc:meta])* $role:ident $place:ident $name:literal,)*) => {
        /// The purpose of a tensor in an encoder of pictures. If a role's place is [`Place::Projector`], its tensor's
        /// name depends on the kind of projector.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Role { $($(#[$doc])* $role),* }

        impl Role {
            pub const ALL: &[Self] = &[$(Self::$role),*];

            pub const fn place(self) -> Place {
                match self { $(Self::$role => Place::$place),* }
            }

            /// The tensor's name in the file, without the prefix and number of a layer.
            pub const fn name(self, projector: Projector) -> &'static str {
                match self {
                    _ if matches!(self.place(), Place::Projector) => self.of_projector(projector),
                    $(Self::$role => $name),*
                }
            }
        }
    };
}

roles! {
    Patches Once "v.patch_embd.weight",
    /// Weights of the second of two equal frames.
    PatchesAgain Once "v.patch_embd.weight.1",
    PatchesBias Once "v.patch_embd.bias",
    Places Once "v.position_embd.weight",
    Class Once "v.class_embd",
    NormBefore Once "v.pre_ln.weight",
    NormAfter Once "v.post_ln.weight",
    NormAfterBias Once "v.post_ln.bias",
    /// The projector's norm of each patch before patches are joined. In projectors that average patches, it is the norm
    /// of the mean. If this norm has a bias, it is a layer norm.
    PatchNorm Projector "",
    PatchNormBias Projector "",
    JoinNorm Projector "",
    JoinNormBias Projector "",
    /// Linear layer from joined patches to the width of one.
    Merger Projector "",
    First Projector "",
    FirstBias Projector "",
    Second Projector "",
    SecondBias Projector "",
    /// A matrix whose columns are the outputs.
    Transposed Projector "",
    Norm1 Block "ln1.weight",
    Norm1Bias Block "ln1.bias",
    Q Block "attn_q.weight",
    QBias Block "attn_q.bias",
    K Block "attn_k.weight",
    KBias Block "attn_k.bias",
    V Block "attn_v.weight",
    VBias Block "attn_v.bias",
    Qkv Block "attn_qkv.weight",
    QkvBias Block "attn_qkv.bias",
    Output Block "attn_out.weight",
    OutputBias Block "attn_out.bias",
    Scale1 Block "ls1.weight",
    Norm2 Block "ln2.weight",
    Norm2Bias Block "ln2.bias",
    Gate Block "ffn_gate.weight",
    GateBias Block "ffn_gate.bias",
    Up Block "ffn_up.weight",
    UpBias Block "ffn_up.bias",
    Down Block "ffn_down.weight",
    DownBias Block "ffn_down.bias",
    Scale2 Block "ls2.weight",
    DeepNorm Deep "norm.weight",
    DeepNormBias Deep "norm.bias",
    DeepFirst Deep "fc1.weight",
    DeepFirstBias Deep "fc1.bias",
    DeepSecond Deep "fc2.weight",
    DeepSecondBias Deep "fc2.bias",
}

impl Role {
    /// The name of a tensor of the projector; empty if the projector has no such tensor.
    pub const fn of_projector(self, projector: Projector) -> &'static str {
        match (projector, self) {
            (Projector::Idefics3, Self::First) => "mm.model.fc.weight",
            (Projector::Lfm2, Self::JoinNorm) => "mm.input_norm.weight",
            (Projector::Lfm2, Self::JoinNormBias) => "mm.input_norm.bias",
            (Projector::Gemma3, Self::PatchNorm) => "mm.soft_emb_norm.weight",
            (Projector::Gemma3, Self::Transposed) => "mm.input_projection.weight",
            (Projector::InternVl, Self::JoinNorm) => "mm.model.mlp.0.weight",
            (Projector::InternVl, Self::JoinNormBias) => "mm.model.mlp.0.bias",
            (Projector::InternVl, Self::First) => "mm.model.mlp.1.weight",
            (Projector::InternVl, Self::FirstBias) => "mm.model.mlp.1.bias",
            (Projector::InternVl, Self::Second) => "mm.model.mlp.3.weight",
            (Projector::InternVl, Self::SecondBias) => "mm.model.mlp.3.bias",
            (Projector::Pixtral, Self::PatchNorm) => "mm.input_norm.weight",
            (Projector::Pixtral, Self::Merger) => "mm.patch_merger.weight",
            (Projector::Qwen25Vl | Projector::Qwen3Vl, Self::PatchNorm) => "v.post_ln.weight",
            (Projector::Qwen3Vl, Self::PatchNormBias) => "v.post_ln.bias",
            (Projector::Lfm2 | Projector::Pixtral, Self::First) => "mm.1.weight",
            (Projector::Lfm2 | Projector::Pixtral, Self::FirstBias) => "mm.1.bias",
            (Projector::Qwen25Vl | Projector::Qwen3Vl, Self::First) => "mm.0.weight",
            (Projector::Qwen25Vl | Projector::Qwen3Vl, Self::FirstBias) => "mm.0.bias",
            (Projector::Idefics3 | Projector::Gemma3, _) => "",
            (_, Self::Second) => "mm.2.weight",
            (_, Self::SecondBias) => "mm.2.bias",
            _ => "",
        }
    }
}
