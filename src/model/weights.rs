//! Which tensors a [`Spec`] has, in which shapes, and where they lie in the file.
//!
//! A tensor is a [`Role`] in a layer, or of the whole model. The directory is walked once: every
//! tensor must have a role, every role its tensors. The result is a table of fixed-size entries in
//! the arena, so that the forward pass finds a weight without searching.

use bytemuck::{Pod, Zeroable};

use super::roles::{Place, Role, Shape, is_ignored};
use super::{MAX_LAYERS, Need, Spec};
use crate::gguf::Tensor;
use crate::kernel::{Form, Matrix};
use crate::quant::TensorType;
use crate::{Error, Gguf, Name};

/// Where one tensor lies: an element of the table in the arena. The number of its type in the lowest
/// byte, above it the bytes from the start of the file; 0 for a tensor that is not there.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct Entry(u64);

/// Calls `found` with the place in the table of every tensor, after checking that it belongs there.
fn walk(
    gguf: &Gguf<'_>,
    spec: &Spec<'_>,
    mut found: impl FnMut(Role, usize, &Tensor<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    for tensor in gguf.tensors() {
        let name = Name::new(tensor.name.as_bytes());
        let (role, layer) = match Role::of(tensor.name, spec.stack()) {
            Place::Of(role, layer) => (role, layer),
            Place::Elsewhere => continue,
            Place::Nowhere if is_ignored(tensor.name) => continue,
            Place::Nowhere => return Err(Error::UnexpectedTensor { tensor: name }),
        };
        if layer >= spec.layers {
            return Err(Error::UnexpectedTensor { tensor: name });
        }
        let place = spec.layer(layer);
        let need = role.need(spec, &place);
        if need == Need::Absent {
            return Err(Error::UnexpectedTensor { tensor: name });
        }
        let shape = role.shape(spec, &place);
        let expected = shape.dims();
        if tensor.dims != expected {
            return Err(Error::TensorShape { tensor: name, found: tensor.dims, expected });
        }
        let runs = if shape.is_vector() { tensor.kind == TensorType::F32 } else { Form::of(tensor.kind).is_some() };
        if !runs {
            return Err(Error::TensorType { tensor: name, kind: tensor.kind });
        }
        if need == Need::Unused {
            continue;
        }
        found(role, layer, &tensor)?;
    }
    Ok(())
}

/// Checks that every tensor of `spec` is in the file once, and nothing else.
pub(super) fn check(gguf: &Gguf<'_>, spec: &Spec<'_>) -> Result<(), Error> {
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
        let needed = |layer: &usize| role.need(spec, &spec.layer(*layer)) == Need::Required;
        if let Some(layer) = (0..layers).filter(needed).find(missing) {
            return Err(Error::MissingTensor { tensor: role.spelled(layer, spec.stack()) });
        }
    }
    Ok(())
}

/// All tensors of a model: roles of the whole model, then the roles of each layer.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'m, 'w> {
    file: &'m [u8],
    spec: &'m Spec<'m>,
    table: &'w [Entry],
}

impl<'m, 'w> Weights<'m, 'w> {
    /// Entries of the table.
    pub const fn len(layers: usize) -> usize {
        Role::ALL.len() * (layers + 1)
    }

    /// Fills `table`, which has [`len`](Self::len) entries.
    pub fn new(gguf: &Gguf<'m>, spec: &'m Spec<'m>, table: &'w mut [Entry]) -> Result<Self, Error> {
        table.fill(Entry::zeroed());
        walk(gguf, spec, |role, layer, tensor| {
            if let Some(entry) = table.get_mut(place(role, layer)) {
                *entry = Entry(tensor.offset << 8 | tensor.kind as u64);
            }
            Ok(())
        })?;
        Ok(Self { file: gguf.data(), spec, table })
    }

    /// The matrix of `role` in `layer`, if the file has it. Of the whole model's roles, pass 0.
    pub fn matrix(&self, role: Role, layer: usize) -> Option<Matrix<'m>> {
        let Entry(entry) = *self.table.get(place(role, layer)).filter(|entry| entry.0 != 0)?;
        let (cols, rows) = match role.shape(self.spec, &self.spec.layer(layer)) {
            Shape::Vector(len) => (len, 1),
            Shape::Vectors(len, count) => (len, count),
            Shape::Matrix(cols, rows) => (cols, rows),
            Shape::Matrices(cols, rows, count) => (cols, rows * count),
        };
        let kind = TensorType::from_id(entry as u8 as u32)?;
        let start = usize::try_from(entry >> 8).ok()?;
        let bytes = kind.row_bytes(cols)?.checked_mul(rows)?;
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
