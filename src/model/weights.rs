//! Which tensors a [`Spec`] has, in which shapes, and where they lie in the file.
//!
//! A tensor is a [`Role`] in a layer, or of the whole model. The directory is walked once: every
//! tensor must have a role, every role its tensors. The result is a table of fixed-size entries in
//! the arena, so that the forward pass finds a weight without searching or computing.

use bytemuck::{Pod, Zeroable};

use super::roles::{Place, Role, Shape, is_ignored};
use super::{MAX_LAYERS, Need, Spec};
use crate::gguf::Tensor;
use crate::kernel::{Form, Matrix};
use crate::quant::TensorType;
use crate::{Error, Gguf, Name};

/// One tensor, as an element of the table in the arena: zeros for one that is not there.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Entry {
    /// The number of its type in the lowest byte, above it the bytes from the start of the file.
    place: u64,
    rows: u32,
    cols: u32,
}

/// Calls `found` with every tensor's role, layer and shape, after checking that it belongs there.
fn walk(
    gguf: &Gguf<'_>,
    spec: &Spec<'_>,
    mut found: impl FnMut(Role, usize, &Tensor<'_>, Shape) -> Result<(), Error>,
) -> Result<(), Error> {
    for tensor in gguf.tensors() {
        let name = Name::new(tensor.name.as_bytes());
        let (role, layer) = match Role::of(tensor.name, spec.stack()) {
            Place::Of(role, layer) => (role.in_family(spec), layer),
            Place::Elsewhere => continue,
            Place::Nowhere if is_ignored(tensor.name) => continue,
            Place::Nowhere => return Err(Error::UnexpectedTensor { tensor: name }),
        };
        if layer >= spec.layers && layer < spec.layers + spec.unused_layers {
            continue;
        }
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
        found(role, layer, &tensor, shape)?;
    }
    Ok(())
}

/// Checks that every tensor of `spec` is in the file once, and nothing else.
pub(super) fn check(gguf: &Gguf<'_>, spec: &Spec<'_>) -> Result<(), Error> {
    // A bit for each layer of each role.
    let mut seen = [[0u64; MAX_LAYERS.div_ceil(64)]; Role::ALL.len()];
    walk(gguf, spec, |role, layer, tensor, _| {
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
            return Err(Error::MissingTensor { tensor: role.in_files(spec).spelled(layer, spec.stack()) });
        }
    }
    Ok(())
}

/// Where in the table a role's tensors are: first those of the whole model, then those of each layer, as far
/// as the model has them.
#[derive(Clone, Copy)]
struct Slots {
    /// Of each role, or [`NONE`](Self::NONE); in the first layer, for the roles of layers.
    first: [u8; Role::ALL.len()],
    /// Entries before the first layer's.
    whole: usize,
    /// Entries of a layer.
    layer: usize,
}

impl Slots {
    const NONE: u8 = u8::MAX;

    const fn of(spec: &Spec<'_>) -> Self {
        let mut slots = Self { first: [Self::NONE; Role::ALL.len()], whole: 0, layer: 0 };
        let used = Self::used(spec);
        let mut number = 0;
        while number < Role::ALL.len() {
            let role = Role::ALL[number];
            if used[number] {
                // The roles of layers come last.
                slots.first[number] = (slots.whole + slots.layer) as u8;
                if role.per_layer() {
                    slots.layer += 1;
                } else {
                    slots.whole += 1;
                }
            }
            number += 1;
        }
        slots
    }

    /// Which roles any layer has tensors of.
    const fn used(spec: &Spec<'_>) -> [bool; Role::ALL.len()] {
        let mut used = [false; Role::ALL.len()];
        let (mut seen, mut index) = (0u32, 0);
        while index < spec.layers {
            let layer = spec.layer(index);
            let bit = 1 << layer.parts();
            let mut number = if seen & bit == 0 { 0 } else { Role::ALL.len() };
            while number < Role::ALL.len() {
                used[number] |= matches!(Role::ALL[number].need(spec, &layer), Need::Required | Need::Optional);
                number += 1;
            }
            seen |= bit;
            index += 1;
        }
        used
    }

    /// The place of a tensor; the layer is 0 for the whole model's roles.
    fn place(&self, role: Role, layer: usize) -> Option<usize> {
        let first = *self.first.get(role as usize).filter(|first| **first != Self::NONE)?;
        Some(usize::from(first) + layer * self.layer)
    }
}

/// All tensors of a model.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'m, 'w> {
    file: &'m [u8],
    slots: Slots,
    table: &'w [Entry],
}

impl<'m, 'w> Weights<'m, 'w> {
    /// Entries of the table.
    pub const fn len(spec: &Spec<'_>) -> usize {
        let slots = Slots::of(spec);
        slots.whole + slots.layer * spec.layers
    }

    /// Fills `table`, which has [`len`](Self::len) entries.
    pub fn new(gguf: &Gguf<'m>, spec: &Spec<'_>, table: &'w mut [Entry]) -> Result<Self, Error> {
        table.fill(Entry::zeroed());
        let slots = Slots::of(spec);
        walk(gguf, spec, |role, layer, tensor, shape| {
            let (cols, rows) = match shape {
                Shape::Vector(len) => (len, 1),
                Shape::Vectors(len, count) => (len, count),
                Shape::Matrix(cols, rows) => (cols, rows),
                Shape::Matrices(cols, rows, count) => (cols, rows * count),
            };
            if let Some(entry) = slots.place(role, layer).and_then(|place| table.get_mut(place)) {
                let place = tensor.offset << 8 | tensor.kind as u64;
                *entry = Entry { place, rows: rows as u32, cols: cols as u32 };
            }
            Ok(())
        })?;
        Ok(Self { file: gguf.data(), slots, table })
    }

    /// The matrix of `role` in `layer`, if the file has it. Of the whole model's roles, pass 0.
    pub fn matrix(&self, role: Role, layer: usize) -> Option<Matrix<'m>> {
        let entry = self.table.get(self.slots.place(role, layer)?).filter(|entry| entry.place != 0)?;
        let (rows, cols) = (entry.rows as usize, entry.cols as usize);
        let kind = TensorType::from_id(entry.place as u8 as u32)?;
        let start = usize::try_from(entry.place >> 8).ok()?;
        let bytes = kind.row_bytes(cols)?.checked_mul(rows)?;
        Some(Matrix { kind, rows, cols, data: self.file.get(start..start.checked_add(bytes)?)? })
    }

    /// The little-endian f32 of a vector; empty if the file does not have it.
    pub fn vector(&self, role: Role, layer: usize) -> &'m [u8] {
        self.matrix(role, layer).map_or(&[], |vector| vector.data)
    }
}
