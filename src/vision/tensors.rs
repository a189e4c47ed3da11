//! The tensors of an encoder of pictures: which tensors a file must have, their shapes, and a table for finding them.

use bytemuck::Zeroable;

use super::projector::{Places, Projector};
use super::roles::{BLOCK, DEEP, Place, Role};
use super::spec::{Spec, Tensors, after};
use crate::gguf::Pieces;
use crate::kernel::{Kind, Matrix};
use crate::model::{Entry, Need, Norm};
use crate::quant::TensorType;
use crate::{Error, Gguf, Name};

/// Beginnings of the names of tensors that this crate does not need: tensors of an encoder of sounds, and a copy of a
/// row of the language model's embedding.
const IGNORED: &[&str] = &["a.", "mm.a.", "v.token_embd.img_break"];

impl Role {
    /// The role of the tensor called `name`, and its layer.
    fn of(name: &[u8], spec: &Spec<'_>) -> Option<(Self, usize)> {
        let (place, layer, name) = match (after(name, BLOCK), after(name, DEEP)) {
            (Some(rest), _) => numbered(Place::Block, rest)?,
            (_, Some(rest)) => numbered(Place::Deep, rest)?,
            _ => (Place::Once, 0, name),
        };
        let is_it = |role: &&Self| {
            let at = if role.place() == Place::Projector { Place::Once } else { role.place() };
            let is_name = at == place && role.name(spec.projector).as_bytes() == name;
            is_name && role.shape(spec, layer).0 != Need::Absent
        };
        let role = *Self::ALL.iter().find(is_it)?;
        // Files of 2024 have the names of the feed-forward's two matrices exchanged.
        let role = match role {
            Self::Up if spec.tensors.swapped => Self::Down,
            Self::UpBias if spec.tensors.swapped => Self::DownBias,
            Self::Down if spec.tensors.swapped => Self::Up,
            Self::DownBias if spec.tensors.swapped => Self::UpBias,
            role => role,
        };
        Some((role, layer))
    }

    /// Returns whether a layer needs a tensor of this role, and the shape that the tensor must have.
    fn shape(self, spec: &Spec<'_>, layer: usize) -> (Need, [usize; 4]) {
        let Spec { dim, ffn, patch, .. } = *spec;
        let Tensors { has_class, fused, gated, biased, table, inner, out, .. } = spec.tensors;
        let (vector, matrix) = (|len: usize| [len, 1, 1, 1], |cols: usize, rows: usize| [cols, rows, 1, 1]);
        let when = |is_there: bool| if is_there { Need::Required } else { Need::Absent };
        let optional = |is_possible: bool| if is_possible { Need::Optional } else { Need::Absent };
        let layered = matches!(spec.rules.norm, Norm::Layer);
        let qwen = matches!(spec.projector, Projector::Qwen25Vl | Projector::Qwen3Vl);
        let (merged, deep) = (spec.tensors.has_merger, spec.is_deep(layer));
        let named = !self.of_projector(spec.projector).is_empty();
        let joined = spec.block() * dim;
        match self {
            Self::Patches => (Need::Required, [patch, patch, 3, dim]),
            Self::PatchesAgain => (when(qwen), [patch, patch, 3, dim]),
            Self::PatchesBias => (Need::Optional, vector(dim)),
            Self::Places => (when(spec.rules.places != Places::Unlearned), matrix(dim, table)),
            Self::Class => (when(has_class), vector(dim)),
            Self::NormBefore => (when(spec.projector == Projector::Pixtral), vector(dim)),
            Self::NormAfter | Self::NormAfterBias => (when(spec.rules.norm_after), vector(dim)),
            Self::PatchNorm => (when(named && (merged || spec.projector != Projector::Pixtral)), vector(dim)),
            Self::PatchNormBias => (when(named), vector(dim)),
            Self::JoinNorm | Self::JoinNormBias => (when(named && spec.tensors.has_join_norm), vector(joined)),
            Self::Merger => (when(merged), matrix(joined, dim)),
            Self::First => (when(named), matrix(if merged { dim } else { joined }, inner)),
            Self::FirstBias => (optional(named), vector(inner)),
            Self::Second => (when(named), matrix(inner, out)),
            Self::SecondBias => (optional(named), vector(out)),
            Self::Transposed => (when(named), matrix(out, dim)),
            Self::Norm1 | Self::Norm2 => (Need::Required, vector(dim)),
            Self::Norm1Bias | Self::Norm2Bias => (when(layered), vector(dim)),
            Self::Q | Self::K | Self::V => (when(!fused), matrix(dim, dim)),
            Self::QBias | Self::KBias | Self::VBias => (when(!fused && biased), vector(dim)),
            Self::Qkv => (when(fused), matrix(dim, 3 * dim)),
            Self::QkvBias => (when(fused && biased), vector(3 * dim)),
            Self::Output => (Need::Required, matrix(dim, dim)),
            Self::OutputBias | Self::DownBias => (when(biased), vector(dim)),
            Self::Scale1 | Self::Scale2 => (when(spec.projector == Projector::InternVl), vector(dim)),
            Self::Gate => (when(gated), matrix(dim, ffn)),
            Self::GateBias => (when(gated && biased), vector(ffn)),
            Self::Up => (Need::Required, matrix(dim, ffn)),
            Self::UpBias => (when(biased), vector(ffn)),
            Self::Down => (Need::Required, matrix(ffn, dim)),
            Self::DeepNorm | Self::DeepNormBias => (when(deep), vector(joined)),
            Self::DeepFirst => (when(deep), matrix(joined, joined)),
            Self::DeepFirstBias => (when(deep), vector(joined)),
            Self::DeepSecond => (when(deep), matrix(joined, out)),
            Self::DeepSecondBias => (when(deep), vector(out)),
        }
    }

    /// Number of layers that may have a tensor of this role.
    fn layers(self, spec: &Spec<'_>) -> usize {
        match self.place() {
            Place::Block | Place::Deep => spec.layers,
            Place::Once | Place::Projector => 1,
        }
    }

    /// The full name of the tensor in a layer.
    fn spelled(self, spec: &Spec<'_>, layer: usize) -> Name {
        let name = self.name(spec.projector).as_bytes();
        let before = match self.place() {
            Place::Block => BLOCK,
            Place::Deep => DEEP,
            Place::Once | Place::Projector => return Name::new(name),
        };
        Name::new(before).with_number(layer).with(b".").with(name)
    }
}

/// Splits `N.name` at its first dot.
fn numbered(place: Place, rest: &[u8]) -> Option<(Place, usize, &[u8])> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = rest.split_at_checked(digits)?;
    let mut layer = 0usize;
    for digit in number {
        layer = layer.checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
    }
    Some((place, layer, after(rest, b".")?)).filter(|_| digits > 0)
}

/// A tensor with its role.
struct Found {
    role: Role,
    layer: usize,
    /// Byte offset in the file.
    offset: u64,
    kind: Kind,
    dims: [usize; 4],
}

/// Calls `found` with each tensor of the encoder.
fn walk(gguf: &Gguf<'_>, spec: &Spec<'_>, found: &mut dyn FnMut(Found)) -> Result<(), Error> {
    for tensor in gguf.tensors() {
        let (bytes, name) = (tensor.name.as_bytes(), Name::new(tensor.name.as_bytes()));
        if tensor.data.is_empty() || IGNORED.iter().any(|ignored| after(bytes, ignored.as_bytes()).is_some()) {
            continue;
        }
        let role = Role::of(bytes, spec).filter(|(role, layer)| *layer < role.layers(spec));
        let (role, layer) = role.ok_or(Error::UnexpectedTensor { tensor: name })?;
        let (_, dims) = role.shape(spec, layer);
        let expected = dims.map(|side| side as u64);
        if tensor.dims != expected {
            return Err(Error::TensorShape { tensor: name, found: tensor.dims, expected });
        }
        let runs = !is_vector(dims) || tensor.kind == TensorType::F32 || role == Role::Class;
        let Some(kind) = Kind::number(tensor.kind).filter(|_| runs) else {
            return Err(Error::TensorType { tensor: name, kind: tensor.kind });
        };
        found(Found { role, layer, offset: tensor.offset, kind, dims });
    }
    Ok(())
}

/// True if the dimensions are those of a vector. An encoder's vectors must be in F32. The class embedding is an
/// exception, because it is decoded like a position.
fn is_vector(dims: [usize; 4]) -> bool {
    matches!(dims, [_, 1, 1, 1])
}

/// Checks that the file has every tensor of the encoder, with the right shape and a type that this build runs, and no
/// other tensors.
#[inline(never)]
pub(super) fn check(gguf: &Gguf<'_>, spec: &Spec<'_>) -> Result<(), Error> {
    if spec.tensors.out == 0 {
        let first = match Role::First.name(spec.projector) {
            "" => Role::Transposed,
            _ => Role::First,
        };
        return Err(Error::MissingTensor { tensor: first.spelled(spec, 0) });
    }
    walk(gguf, spec, &mut |_| ())?;
    for (role, layer) in all(spec).filter(|(role, layer)| role.shape(spec, *layer).0 == Need::Required) {
        let name = role.spelled(spec, layer);
        // Some files exchange the names of two matrices. `name` then belongs to the other of the two, which is
        // required, too.
        let is_there = core::str::from_utf8(name.bytes()).is_ok_and(|name| gguf.tensor(name).is_some());
        if !is_there {
            return Err(Error::MissingTensor { tensor: name });
        }
    }
    Ok(())
}

/// All roles in all layers.
fn all(spec: &Spec<'_>) -> impl Iterator<Item = (Role, usize)> {
    Role::ALL.iter().flat_map(move |role| (0..role.layers(spec)).map(|layer| (*role, layer)))
}

/// Finds tensors by role and layer.
#[derive(Clone, Copy)]
pub(super) struct Table<'m, 'w> {
    file: Pieces<'m>,
    entries: &'w [Entry],
}

impl<'m, 'w> Table<'m, 'w> {
    /// Number of entries for this many layers.
    pub const fn len(layers: usize) -> usize {
        Role::ALL.len() * layers
    }

    /// Index in the table of the entry for a role and layer. Roles of the whole encoder use layer 0.
    fn index(role: Role, layer: usize) -> usize {
        layer * Role::ALL.len() + role as usize
    }

    /// Fills the table, which has [`len`](Self::len) entries.
    pub fn fill(gguf: &Gguf<'m>, spec: &Spec<'_>, entries: &'w mut [Entry]) -> Result<Self, Error> {
        entries.fill(Entry::zeroed());
        walk(gguf, spec, &mut |Found { role, layer, offset, kind, dims }| {
            // The weights of a convolution are treated as a matrix that has a row for each output.
            let shape = match dims {
                [cols, rows, 1, 1] => (rows, cols),
                [width, height, colors, rows] => (rows, width * height * colors),
            };
            if let Some(entry) = entries.get_mut(Self::index(role, layer)) {
                *entry = Entry::at(offset, kind, shape);
            }
        })?;
        Ok(Self { file: gguf.pieces(), entries })
    }

    /// The matrix of `role`, if the file has this matrix. Pass 0 as the layer for roles of the whole encoder.
    pub fn matrix(&self, role: Role, layer: usize) -> Option<Matrix<'m>> {
        let entry = self.entries.get(Self::index(role, layer)).filter(|entry| !entry.is_empty())?;
        entry.matrix(self.file)
    }

    /// A vector as little-endian f32; empty if the file does not have the vector.
    pub fn vector(&self, role: Role, layer: usize) -> &'m [u8] {
        self.matrix(role, layer).map_or(&[], |vector| vector.data())
    }
}
