//! Which tensors a [`Spec`] has, in which shapes, and where they lie in the file.
//!
//! A tensor is a [`Role`] in a layer, or of the whole model. The directory is walked once: every
//! tensor must have a role, every role its tensors. The result is a table of fixed-size entries in
//! the arena, so that the forward pass finds a weight without searching.

use bytemuck::{Pod, Zeroable};

use super::{MAX_LAYERS, Need, Norm, Spec};
use crate::gguf::Tensor;
use crate::kernel::{Form, Matrix};
use crate::quant::TensorType;
use crate::{Error, Gguf, Name};

macro_rules! roles {
    ($($role:ident $name:literal $per_layer:literal,)*) => {
        /// What a tensor is for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Role { $($role),* }

        impl Role {
            /// All of them, in the order of their numbers.
            const ALL: &[Self] = &[$(Self::$role),*];

            /// The tensor's name, without `blk.N.`.
            const fn name(self) -> &'static str {
                match self { $(Self::$role => $name),* }
            }

            /// Whether every layer has one.
            const fn per_layer(self) -> bool {
                match self { $(Self::$role => $per_layer),* }
            }
        }
    };
}

roles! {
    TokenEmbd "token_embd.weight" false,
    PositionEmbd "position_embd.weight" false,
    RopeFreqs "rope_freqs.weight" false,
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
    FfnNorm "ffn_norm.weight" true,
    FfnNormBias "ffn_norm.bias" true,
    FfnGate "ffn_gate.weight" true,
    FfnGateBias "ffn_gate.bias" true,
    FfnUp "ffn_up.weight" true,
    FfnUpBias "ffn_up.bias" true,
    FfnDown "ffn_down.weight" true,
    FfnDownBias "ffn_down.bias" true,
}

/// Tensors that files carry and no forward pass needs, by the end of their names.
const IGNORED: [&str; 1] = [
    ".attn.rotary_emb.inv_freq", // some old converters wrote the rotary frequencies out
];

/// Whether a file may carry a tensor of this name that no model reads.
pub fn is_ignored(name: &str) -> bool {
    IGNORED.iter().any(|end| name.ends_with(end))
}

impl Role {
    /// Whether `spec` has this tensor.
    fn need(self, spec: &Spec) -> Need {
        use Need::{Absent, Optional, Required};
        let only = |condition| if condition { Required } else { Absent };
        let also = |condition, need| if condition { need } else { Absent };
        match self {
            Self::TokenEmbd | Self::OutputNorm | Self::AttnNorm | Self::FfnNorm => Required,
            Self::AttnOutput | Self::FfnUp | Self::FfnDown => Required,
            Self::Output => Optional, // absent: the token embedding is the head as well
            Self::PositionEmbd => only(spec.rope.is_none()),
            Self::RopeFreqs => also(spec.rope.is_some(), Optional),
            Self::OutputNormBias | Self::AttnNormBias | Self::FfnNormBias => only(spec.norm == Norm::Layer),
            Self::AttnQkv => only(spec.fused_qkv),
            Self::AttnQkvBias => also(spec.fused_qkv, spec.qkv_bias),
            Self::AttnQ | Self::AttnK | Self::AttnV => only(!spec.fused_qkv),
            Self::AttnQBias | Self::AttnKBias | Self::AttnVBias => also(!spec.fused_qkv, spec.qkv_bias),
            Self::AttnQNorm | Self::AttnKNorm => spec.qk_norm,
            Self::AttnOutputBias | Self::FfnUpBias | Self::FfnDownBias => spec.linear_bias,
            Self::FfnGate => only(spec.gated),
            Self::FfnGateBias => also(spec.gated, spec.linear_bias),
        }
    }

    /// Inputs and outputs of a matrix; length and 0 of a vector.
    fn shape(self, spec: &Spec) -> (usize, usize) {
        let Spec { dim, ffn, head_dim, .. } = *spec;
        match self {
            Self::TokenEmbd | Self::Output => (dim, spec.vocab),
            Self::PositionEmbd => (dim, spec.context),
            Self::RopeFreqs => (spec.rope.map_or(0, |rope| rope.dim / 2), 0),
            Self::OutputNorm | Self::OutputNormBias | Self::AttnNorm | Self::AttnNormBias => (dim, 0),
            Self::FfnNorm | Self::FfnNormBias | Self::AttnOutputBias | Self::FfnDownBias => (dim, 0),
            Self::AttnQkv => (dim, spec.qkv_dim()),
            Self::AttnQkvBias => (spec.qkv_dim(), 0),
            Self::AttnQ => (dim, spec.q_dim()),
            Self::AttnQBias => (spec.q_dim(), 0),
            Self::AttnK | Self::AttnV => (dim, spec.kv_dim()),
            Self::AttnKBias | Self::AttnVBias => (spec.kv_dim(), 0),
            Self::AttnQNorm | Self::AttnKNorm => (head_dim, 0),
            Self::AttnOutput => (spec.q_dim(), dim),
            Self::FfnGate | Self::FfnUp => (dim, ffn),
            Self::FfnGateBias | Self::FfnUpBias => (ffn, 0),
            Self::FfnDown => (ffn, dim),
        }
    }

    /// The role and the layer (0 for the whole model's) of the tensor with this name.
    fn of(name: &str) -> Option<(Self, usize)> {
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

/// Where one tensor lies: an element of the table in the arena.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Entry {
    /// Bytes from the start of the file; 0 for a tensor that is not there.
    offset: u64,
    /// Number of its type.
    kind: u32,
    _padding: u32,
}

/// Calls `found` with the place in the table of every tensor, after checking that it belongs there.
fn walk(
    gguf: &Gguf<'_>,
    spec: &Spec,
    mut found: impl FnMut(Role, usize, &Tensor<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    for tensor in gguf.tensors() {
        let name = Name::new(tensor.name.as_bytes());
        let Some((role, layer)) = Role::of(tensor.name) else {
            if is_ignored(tensor.name) {
                continue;
            }
            return Err(Error::UnexpectedTensor { tensor: name });
        };
        if layer >= spec.layers || role.need(spec) == Need::Absent {
            return Err(Error::UnexpectedTensor { tensor: name });
        }
        let (cols, rows) = role.shape(spec);
        let expected = [cols as u64, rows.max(1) as u64, 1, 1];
        if tensor.dims != expected {
            return Err(Error::TensorShape { tensor: name, found: tensor.dims, expected });
        }
        let runs = if rows == 0 { tensor.kind == TensorType::F32 } else { Form::of(tensor.kind).is_some() };
        if !runs {
            return Err(Error::TensorType { tensor: name, kind: tensor.kind });
        }
        found(role, layer, &tensor)?;
    }
    Ok(())
}

/// Checks that every tensor of `spec` is in the file once, and nothing else.
pub(super) fn check(gguf: &Gguf<'_>, spec: &Spec) -> Result<(), Error> {
    // A bit for each layer of each role.
    let mut seen = [[0u64; MAX_LAYERS.div_ceil(64)]; Role::ALL.len()];
    walk(gguf, spec, |role, layer, tensor| {
        let bits = seen.get_mut(role as usize).and_then(|layers| layers.get_mut(layer / 64));
        if let Some(bits) = bits {
            if *bits >> (layer % 64) & 1 != 0 {
                return Err(Error::DuplicateTensor { tensor: Name::new(tensor.name.as_bytes()) });
            }
            *bits |= 1 << (layer % 64);
        }
        Ok(())
    })?;
    for (&role, seen) in Role::ALL.iter().zip(&seen) {
        let layers = if role.per_layer() { spec.layers } else { 1 };
        let missing = |layer: &usize| seen.get(layer / 64).is_none_or(|bits| bits >> (layer % 64) & 1 == 0);
        if role.need(spec) == Need::Required
            && let Some(layer) = (0..layers).find(missing)
        {
            let name = role.name();
            let tensor = if role.per_layer() { Name::layered(layer, name) } else { Name::new(name.as_bytes()) };
            return Err(Error::MissingTensor { tensor });
        }
    }
    Ok(())
}

/// All tensors of a model: roles of the whole model, then the roles of each layer.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'m, 'w> {
    file: &'m [u8],
    spec: &'m Spec,
    table: &'w [Entry],
}

impl<'m, 'w> Weights<'m, 'w> {
    /// Entries of the table.
    pub const fn len(layers: usize) -> usize {
        Role::ALL.len() * (layers + 1)
    }

    /// Fills `table`, which has [`len`](Self::len) entries.
    pub fn new(gguf: &Gguf<'m>, spec: &'m Spec, table: &'w mut [Entry]) -> Result<Self, Error> {
        table.fill(Entry::zeroed());
        walk(gguf, spec, |role, layer, tensor| {
            if let Some(entry) = table.get_mut(place(role, layer)) {
                *entry = Entry { offset: tensor.offset, kind: tensor.kind as u32, _padding: 0 };
            }
            Ok(())
        })?;
        Ok(Self { file: gguf.data(), spec, table })
    }

    /// The matrix of `role` in `layer`, if the file has it. Of the whole model's roles, pass 0.
    pub fn matrix(&self, role: Role, layer: usize) -> Option<Matrix<'m>> {
        let entry = self.table.get(place(role, layer)).filter(|entry| entry.offset != 0)?;
        let (cols, rows) = role.shape(self.spec);
        let kind = TensorType::from_id(entry.kind)?;
        let start = usize::try_from(entry.offset).ok()?;
        let bytes = kind.row_bytes(cols)?.checked_mul(rows.max(1))?;
        Some(Matrix { kind, rows, cols, data: self.file.get(start..start.checked_add(bytes)?)? })
    }

    /// The little-endian f32 of a vector; empty if the file does not have it.
    pub fn vector(&self, role: Role, layer: usize) -> &'m [u8] {
        self.matrix(role, layer).map_or(&[], |vector| vector.data)
    }
}

/// Place in the table: layer 0 comes after the whole model's roles.
fn place(role: Role, layer: usize) -> usize {
    let row = if role.per_layer() { layer + 1 } else { 0 };
    row * Role::ALL.len() + role as usize
}
