//! Locates the tensors of a [`Spec`] in the file and checks their shapes.
//!
//! A tensor is identified by a [`Role`] and, for roles of layers, by a layer. One walk over the directory checks that
//! every tensor has a role and that every required tensor is present. The result is a table of fixed-size entries in
//! the arena, so the forward pass finds a weight by index.

use bytemuck::{Pod, Zeroable};

use super::roles::{Place, Role, Shape, is_ignored};
use super::{MAX_LAYERS, Need, Spec};
use crate::gguf::Tensor;
use crate::kernel::{Kind, Matrix};
use crate::quant::TensorType;
use crate::{Error, Gguf, Name};

/// One tensor, as an element of the table in the arena; all zeros if the file does not have it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Entry {
    /// [`Kind`] in the lowest byte; above it the offset in bytes from the start of the file.
    place: u64,
    rows: u32,
    cols: u32,
}

impl Entry {
    /// The tensor in its file. (Not inlined: most look-ups find no entry.)
    #[inline(never)]
    fn matrix<'m>(&self, file: &'m [u8]) -> Option<Matrix<'m>> {
        let start = usize::try_from(self.place >> 8).ok()?;
        Kind(self.place as u8).matrix((self.rows as usize, self.cols as usize), file, start)
    }
}

/// A tensor with its role.
struct Found<'t> {
    role: Role,
    layer: usize,
    need: Need,
    shape: Shape,
    kind: Kind,
    tensor: &'t Tensor<'t>,
}

impl Found<'_> {
    fn duplicate(&self) -> Error {
        Error::DuplicateTensor { tensor: Name::new(self.tensor.name.as_bytes()) }
    }
}

/// Checks every tensor and calls `found` with it. (Not generic, so that its code exists once.)
fn walk(gguf: &Gguf<'_>, spec: &Spec<'_>, found: &mut dyn FnMut(Found<'_>) -> Result<(), Error>) -> Result<(), Error> {
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
        let runs = !shape.is_vector() || tensor.kind == TensorType::F32;
        let Some(kind) = Kind::number(tensor.kind).filter(|_| runs) else {
            return Err(Error::TensorType { tensor: name, kind: tensor.kind });
        };
        if need == Need::Unused {
            continue;
        }
        found(Found { role, layer, need, shape, kind, tensor: &tensor })?;
    }
    Ok(())
}

/// Checks that the file has every tensor of `spec` and no other. (A duplicate under an alternative name is found when
/// the table is filled.)
#[inline(never)] // keeps its temporaries off the caller's stack
pub(super) fn check(gguf: &Gguf<'_>, spec: &Spec<'_>) -> Result<(), Error> {
    // Tensors counted per role: a bit for each layer would take kilobytes of stack.
    let mut counts = [0u16; Role::ALL.len()];
    walk(gguf, spec, &mut |found| {
        if let Some(count) = counts.get_mut(found.role as usize).filter(|_| found.need == Need::Required) {
            *count = count.saturating_add(1);
        }
        Ok(())
    })?;
    for (&role, &count) in Role::ALL.iter().zip(&counts) {
        if (0..role.layers(spec)).filter(|layer| role.need(spec, &spec.layer(*layer)) == Need::Required).count()
            != usize::from(count)
        {
            return blame(gguf, spec, role);
        }
    }
    Ok(())
}

/// Finds which tensor of a role is missing or occurs twice.
#[cold]
#[inline(never)]
fn blame(gguf: &Gguf<'_>, spec: &Spec<'_>, role: Role) -> Result<(), Error> {
    let mut seen = [0u64; MAX_LAYERS.div_ceil(64)];
    walk(gguf, spec, &mut |found| {
        if let Some(bits) = seen.get_mut(found.layer / 64).filter(|_| found.role == role) {
            if *bits >> (found.layer % 64) & 1 != 0 {
                return Err(found.duplicate());
            }
            *bits |= 1 << (found.layer % 64);
        }
        Ok(())
    })?;
    let is_missing = |layer: &usize| seen.get(layer / 64).is_none_or(|bits| bits >> (layer % 64) & 1 == 0);
    let is_needed = |layer: &usize| role.need(spec, &spec.layer(*layer)) == Need::Required;
    match (0..role.layers(spec)).filter(is_needed).find(is_missing) {
        Some(layer) => Err(Error::MissingTensor { tensor: role.in_files(spec).spelled(layer, spec.stack()) }),
        None => Ok(()),
    }
}

/// Indices of roles in the table: first the tensors of the whole model, then those of each layer. Roles that the model
/// does not have take no entry.
#[derive(Clone, Copy)]
struct Slots {
    /// Index of each role's tensor (in the first layer, for roles of layers), or [`NONE`](Self::NONE).
    first: [u8; Role::ALL.len()],
    /// Entries before the first layer.
    whole: usize,
    /// Entries per layer.
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
                // Roles of layers come last.
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

    /// Roles that occur in at least one layer.
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

    /// Index of a tensor; `layer` is 0 for roles of the whole model.
    fn place(&self, role: Role, layer: usize) -> Option<usize> {
        let first = *self.first.get(role as usize).filter(|first| **first != Self::NONE)?;
        Some(usize::from(first) + layer * self.layer)
    }
}

/// Table of all tensors of a model.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'m, 'w> {
    file: &'m [u8],
    slots: Slots,
    table: &'w [Entry],
}

impl<'m, 'w> Weights<'m, 'w> {
    /// Number of entries in the table.
    pub const fn len(spec: &Spec<'_>) -> usize {
        let slots = Slots::of(spec);
        slots.whole + slots.layer * spec.layers
    }

    /// Fills `table`, which has [`len`](Self::len) entries.
    pub fn new(gguf: &Gguf<'m>, spec: &Spec<'_>, table: &'w mut [Entry]) -> Result<Self, Error> {
        table.fill(Entry::zeroed());
        let slots = Slots::of(spec);
        walk(gguf, spec, &mut |found| {
            let (cols, rows) = match found.shape {
                Shape::Vector(len) => (len, 1),
                Shape::Vectors(len, count) | Shape::Apart(len, count) => (len, count),
                Shape::Matrix(cols, rows) => (cols, rows),
                Shape::Matrices(cols, rows, count) => (cols, rows * count),
            };
            if let Some(entry) = slots.place(found.role, found.layer).and_then(|place| table.get_mut(place)) {
                if entry.place != 0 {
                    return Err(found.duplicate());
                }
                let place = found.tensor.offset << 8 | u64::from(found.kind.0);
                *entry = Entry { place, rows: rows as u32, cols: cols as u32 };
            }
            Ok(())
        })?;
        Ok(Self { file: gguf.data(), slots, table })
    }

    /// The matrix of `role` in `layer`, if the file has it. Pass 0 as the layer for roles of the whole model.
    pub fn matrix(&self, role: Role, layer: usize) -> Option<Matrix<'m>> {
        let entry = self.table.get(self.slots.place(role, layer)?).filter(|entry| entry.place != 0)?;
        entry.matrix(self.file)
    }

    /// A vector as little-endian f32; empty if the file does not have it.
    pub fn vector(&self, role: Role, layer: usize) -> &'m [u8] {
        self.matrix(role, layer).map_or(&[], |vector| vector.data())
    }
}
