//! Locates the tensors of a [`Spec`] in the file and checks their shapes.
//!
//! A tensor is identified by a [`Role`] and, for roles of layers, by a layer. One walk over the directory checks that
//! every tensor has a role and that every required tensor is present. The result is a table of fixed-size entries in
//! the arena, so that the forward pass finds a weight by index.

use bytemuck::{Pod, Zeroable};

#[cfg(feature = "llama-like")]
use super::Loops;
#[cfg(feature = "lora")]
use super::TensorUse;
use super::roles::{Piece, Place, Role, Shape, is_ignored, is_of_joint_head};
use super::{MAX_LAYERS, Need, Spec};
use crate::gguf::{Pieces, Tensor};
use crate::kernel::{Kind, Matrix};
use crate::quant::{TensorType, decode_row};
use crate::{Error, Gguf, Name, built};

/// One tensor, as an element of the table in the arena; all zeros if the file does not have the tensor.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Entry {
    /// The tensor's location and type. The lowest byte is the [`Kind`]. The bytes above it are the byte offset in the
    /// file. For a converted vector, they are [`CONVERTED`] and the byte offset in [`Weights::converted`].
    place: u64,
    rows: u32,
    cols: u32,
}

impl Entry {
    /// Makes the entry of an adapter's tensor. The rows of all matrices of the tensor are counted together. `None` if
    /// there are too many rows, or if this build cannot run the type.
    #[cfg(feature = "lora")]
    pub fn of(tensor: &Tensor<'_>) -> Option<Self> {
        let [cols, rows, slabs, _] = tensor.dims;
        let place = tensor.offset << 8 | u64::from(Kind::number(tensor.kind)?.0);
        Some(Self { place, rows: rows.checked_mul(slabs)?.try_into().ok()?, cols: cols.try_into().ok()? })
    }

    /// Makes the entry of a tensor that is at a byte offset of the file. The tensor has `rows` rows of `cols` elements.
    #[cfg(feature = "vision")]
    pub fn at(offset: u64, kind: Kind, (rows, cols): (usize, usize)) -> Self {
        Self { place: offset << 8 | u64::from(kind.0), rows: rows as u32, cols: cols as u32 }
    }

    /// True if the file does not have the tensor.
    #[cfg(feature = "vision")]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Elements per row.
    #[cfg(feature = "lora")]
    pub fn cols(&self) -> usize {
        self.cols as usize
    }

    /// Returns the matrix, as it is in its file or in a storage. The function is not inlined, because most look-ups
    /// find no entry.
    #[inline(never)]
    pub fn matrix<'m>(&self, file: Pieces<'m>) -> Option<Matrix<'m>> {
        #[cfg(feature = "storage")]
        if let Some(at) = file.in_storage(self.place >> 8) {
            return Kind(self.place as u8).stored((self.rows as usize, self.cols as usize), at);
        }
        let (file, start) = file.find(usize::try_from(self.place >> 8).ok()?);
        Kind(self.place as u8).matrix((self.rows as usize, self.cols as usize), file, start)
    }
}

/// A tensor with its role.
struct Found<'t> {
    role: Role,
    layer: usize,
    piece: Piece,
    need: Need,
    shape: Shape,
    kind: Kind,
    tensor: &'t Tensor<'t>,
}

impl Found<'_> {
    /// Writes a vector in F16 or BF16 as little-endian f32 at `start`; returns the end of the written bytes.
    fn convert(&self, converted: &mut [u8], start: usize) -> Result<usize, Error> {
        let (halves, mut at) = (self.tensor.data.as_chunks::<2>().0, start);
        for half in halves {
            let mut value = [0.0];
            let Some(place) = converted.get_mut(at..at + 4).filter(|_| decode_row(self.tensor.kind, half, &mut value))
            else {
                return Err(Error::TensorType {
                    tensor: Name::new(self.tensor.name.as_bytes()),
                    kind: self.tensor.kind,
                });
            };
            let [value] = value;
            place.iter_mut().zip(value.to_le_bytes()).for_each(|(place, byte)| *place = byte);
            at += 4;
        }
        Ok(at)
    }

    fn duplicate(&self) -> Error {
        Error::DuplicateTensor { tensor: Name::new(self.tensor.name.as_bytes()) }
    }
}

/// Checks every tensor and calls `found` with each tensor that the stack uses. The function is not generic, so that its
/// code exists only once.
fn walk(gguf: &Gguf<'_>, spec: &Spec<'_>, found: &mut dyn FnMut(Found<'_>) -> Result<(), Error>) -> Result<(), Error> {
    for tensor in gguf.tensors() {
        if tensor.is_empty() || spec.joint_head() && is_of_joint_head(tensor.name) {
            continue;
        }
        let name = Name::new(tensor.name.as_bytes());
        let (role, layer, piece) = match Role::of(tensor.name, spec.stack()) {
            #[cfg(feature = "drafts")]
            Place::Of(role, ..) if role.is_next() && spec.next().is_none() => continue,
            Place::Of(role, layer, piece) => (role.in_family(spec), layer, piece),
            Place::Elsewhere => continue,
            Place::Nowhere if is_ignored(tensor.name) => continue,
            Place::Nowhere => return Err(Error::UnexpectedTensor { tensor: name }),
        };
        let Some(layer) = (if role.per_layer() { layer.checked_sub(spec.in_file(0)) } else { Some(layer) }) else {
            continue;
        };
        if layer >= spec.layers && layer < spec.layers + spec.unused_layers {
            continue;
        }
        if layer >= spec.own_layers() {
            return Err(Error::UnexpectedTensor { tensor: name });
        }
        let place = spec.layer(layer);
        let (need, shape) = role.tensor(spec, &place);
        let Some(shape) = piece.shape(shape, spec, role).filter(|_| need != Need::Absent) else {
            return Err(Error::UnexpectedTensor { tensor: name });
        };
        if piece == Piece::InputScale {
            continue;
        }
        let expected = shape.dims();
        if tensor.dims != expected {
            return Err(Error::TensorShape { tensor: name, found: tensor.dims, expected });
        }
        let is_half = built::HALF_VECTORS && matches!(tensor.kind, TensorType::F16 | TensorType::BF16);
        let runs = !shape.is_vector() || tensor.kind == TensorType::F32 || is_half && piece == Piece::Whole;
        let Some(kind) = Kind::number(tensor.kind).filter(|_| runs) else {
            return Err(Error::TensorType { tensor: name, kind: tensor.kind });
        };
        if need == Need::Unused {
            continue;
        }
        if shape.is_vector() && tensor.in_storage() {
            let (offset, size) = (tensor.offset, tensor.bytes());
            return Err(Error::TensorData { tensor: name, offset, size, file: gguf.data().len() as u64 });
        }
        found(Found { role, layer, piece, need, shape, kind, tensor: &tensor })?;
    }
    Ok(())
}

/// Returns how a forward pass uses the tensor called `name`: whether its rows are multiplied, looked up, or neither.
/// `spec` describes the stack of layers.
#[cfg(feature = "lora")]
pub(super) fn use_of(spec: &Spec<'_>, name: &str) -> TensorUse {
    match read_as(spec, name) {
        Some((Role::TokenEmbd, _)) => TensorUse::Embedding,
        Some((role, shape)) if !shape.is_vector() && !role.is_lookup() => TensorUse::Product,
        _ => TensorUse::Other,
    }
}

/// True if the stack that `spec` describes multiplies or looks up the rows of the tensor called `name`.
pub(super) fn is_matrix(spec: &Spec<'_>, name: &str) -> bool {
    read_as(spec, name).is_some_and(|(_, shape)| !shape.is_vector())
}

/// Returns the role and shape of the tensor called `name`; `None` if the stack of layers that `spec` describes does not
/// read it.
fn read_as(spec: &Spec<'_>, name: &str) -> Option<(Role, Shape)> {
    let Place::Of(role, layer, piece) = Role::of(name, spec.stack()) else { return None };
    let role = role.in_family(spec);
    let layer = if role.per_layer() { layer.checked_sub(spec.in_file(0))? } else { layer };
    let place = spec.layer(layer.min(spec.layers.saturating_sub(1)));
    let (need, shape) = role.tensor(spec, &place);
    let is_read = layer < spec.layers && !matches!(need, Need::Absent | Need::Unused);
    piece.shape(shape, spec, role).filter(|_| is_read).map(|shape| (role, shape))
}

impl Piece {
    /// Shape of a tensor that is this piece of a role's weights; `whole` is the shape of all weights of the role.
    /// `None` if no file has such a piece.
    fn shape(self, whole: Shape, spec: &Spec<'_>, role: Role) -> Option<Shape> {
        let separate = spec.separate_experts() && role.expert_slot().is_some();
        Some(match (self, whole) {
            (Self::Whole, shape) if !separate => shape,
            (Self::Expert(expert), Shape::Matrices(cols, rows, count)) if separate && expert < count => {
                Shape::Matrix(cols, rows)
            }
            (Self::Scale | Self::InputScale, Shape::Matrix(..)) if built::SCALES && !role.is_lookup() => {
                Shape::Vector(1)
            }
            (Self::Scale | Self::InputScale, Shape::Matrices(.., count)) if built::SCALES && !separate => {
                Shape::Vector(count)
            }
            _ => return None,
        })
    }
}

/// Checks that the file has every tensor of `spec` and no other tensors. (A duplicate under an alternative name is
/// found when the table is filled.)
#[inline(never)] // keeps its temporaries off the caller's stack
pub(super) fn check(gguf: &Gguf<'_>, spec: &Spec<'_>) -> Result<(), Error> {
    // Counts the tensors of each role, because a bit for each layer would take kilobytes of stack. `blame` then finds
    // the missing tensor.
    let mut counts = [0u16; Role::ALL.len()];
    walk(gguf, spec, &mut |found| {
        let counts_for = found.need == Need::Required && found.piece != Piece::Scale;
        if let Some(count) = counts.get_mut(found.role as usize).filter(|_| counts_for) {
            *count = count.saturating_add(1);
        }
        Ok(())
    })?;
    for (&role, &count) in Role::ALL.iter().zip(&counts) {
        let layers = (0..role.layers(spec)).filter(|layer| role.need(spec, &spec.layer(*layer)) == Need::Required);
        let each = separate_experts(spec, role).unwrap_or(1);
        if layers.count() * each != usize::from(count) {
            return blame(gguf, spec, role);
        }
    }
    Ok(())
}

/// Number of experts, if each has a tensor of this role.
fn separate_experts(spec: &Spec<'_>, role: Role) -> Option<usize> {
    let experts = spec.experts().filter(|_| spec.separate_experts() && role.expert_slot().is_some())?;
    Some(experts.count)
}

/// Finds which tensor of a role is missing or occurs twice.
#[cold]
#[inline(never)]
fn blame(gguf: &Gguf<'_>, spec: &Spec<'_>, role: Role) -> Result<(), Error> {
    if let Some(count) = separate_experts(spec, role) {
        for (layer, expert) in (0..spec.layers).flat_map(|layer| (0..count).map(move |expert| (layer, expert))) {
            let tensor = role.of_expert(layer, expert);
            let is_there = core::str::from_utf8(tensor.bytes()).is_ok_and(|name| gguf.tensor(name).is_some());
            if spec.layer(layer).has_experts && !is_there {
                return Err(Error::MissingTensor { tensor });
            }
        }
        return Ok(());
    }
    let mut seen = [0u64; MAX_LAYERS.div_ceil(64)];
    walk(gguf, spec, &mut |found| {
        let is_it = found.role == role && found.piece == Piece::Whole;
        if let Some(bits) = seen.get_mut(found.layer / 64).filter(|_| is_it) {
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

/// Indices of roles in the table: first the tensors of the whole model, then the tensors of each layer. Roles that the
/// model does not have take no entry in the table.
#[derive(Clone, Copy)]
struct Slots {
    /// For each role, the index of its tensor, or [`NONE`](Self::NONE). For a role that exists in every layer, this is
    /// the tensor of the first layer.
    first: [u8; Role::ALL.len()],
    /// Entries before the first layer.
    whole: usize,
    /// Entries per layer.
    layer: usize,
    /// Number of layers with tensors.
    own: usize,
    /// Layers that run several times.
    #[cfg(feature = "llama-like")]
    loops: Option<Loops>,
    /// In the table, the entry of a matrix's scales is this many entries after the matrix's own. 0 if the file has no
    /// scales.
    scales: usize,
    /// If each expert has tensors of its own: the index, in the table, of the first expert's first matrix, and the
    /// number of experts.
    separate: (usize, usize),
}

impl Slots {
    const NONE: u8 = u8::MAX;

    const fn of(spec: &Spec<'_>) -> Self {
        let mut slots = Self {
            first: [Self::NONE; Role::ALL.len()],
            whole: 0,
            layer: 0,
            own: spec.own_layers(),
            #[cfg(feature = "llama-like")]
            loops: spec.loops(),
            scales: 0,
            separate: (0, 0),
        };
        let used = Self::used(spec);
        let mut number = 0;
        while number < Role::ALL.len() {
            let role = Role::ALL[number];
            if used[number] {
                // When the loop reaches the first role of a layer, `slots.whole` has its final value, because `ALL`
                // lists the roles of the whole model first.
                slots.first[number] = (slots.whole + slots.layer) as u8;
                if role.per_layer() {
                    slots.layer += 1;
                } else {
                    slots.whole += 1;
                }
            }
            number += 1;
        }
        let all = slots.whole + slots.layer * slots.own;
        slots.scales = if built::SCALES && spec.scaled { all } else { 0 };
        if let (true, Some(experts)) = (spec.separate_experts(), spec.experts()) {
            slots.separate = (all + slots.scales, experts.count);
        }
        slots
    }

    /// Table index of the matrix of one expert, if each expert has its own matrix.
    fn expert(&self, role: Role, layer: usize, expert: usize) -> Option<usize> {
        let (first, count) = self.separate;
        let slot = role.expert_slot().filter(|_| built::EXPERTS && count > 0)?;
        Some(first + (layer * 3 + slot) * count + expert)
    }

    /// Roles that occur in at least one layer.
    const fn used(spec: &Spec<'_>) -> [bool; Role::ALL.len()] {
        let mut used = [false; Role::ALL.len()];
        let (mut seen, mut index) = (0u32, 0);
        while index < spec.layers {
            let layer = spec.layer(index);
            // There is one bit for each kind of layer. Layers that score options have bit 1 of the kind's number, too.
            // For other layers, this bit means recurrent states, which a model with scoring layers never has.
            let bit = 1 << (layer.parts() | (spec.scores(index) as u32) << 1);
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

    /// The layer of the file that runs as layer `layer`.
    #[inline]
    fn own(&self, layer: usize) -> Option<usize> {
        #[cfg(feature = "llama-like")]
        if let Some(loops) = self.loops {
            return loops.own(layer);
        }
        Some(layer)
    }

    /// Index in the table of the tensor that has a role in a layer. For roles of the whole model, `layer` is 0.
    fn place(&self, role: Role, layer: usize) -> Option<usize> {
        let first = *self.first.get(role as usize).filter(|first| **first != Self::NONE)?;
        Some(usize::from(first) + layer * self.layer)
    }
}

/// Table of all tensors of a model.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'m, 'w> {
    file: Pieces<'m>,
    slots: Slots,
    table: &'w [Entry],
    /// A copy of those vectors of the model that the file does not store as f32. In the copy, they are little-endian
    /// f32.
    converted: &'w [u8],
}

/// Bit of [`Entry::place`] that marks a converted vector.
const CONVERTED: u64 = 1 << 63;

impl<'m, 'w> Weights<'m, 'w> {
    /// Number of entries in the table.
    pub const fn len(spec: &Spec<'_>) -> usize {
        let slots = Slots::of(spec);
        let (_, separate) = slots.separate;
        slots.whole + slots.layer * slots.own + slots.scales + 3 * spec.layers * separate
    }

    /// The tensors in a table that was [filled](Self::fill).
    pub fn new(gguf: &Gguf<'m>, spec: &Spec<'_>, table: &'w [Entry], converted: &'w [u8]) -> Self {
        Self { file: gguf.pieces(), slots: Slots::of(spec), table, converted }
    }

    /// Fills `table`, which has [`len`](Self::len) entries, and `converted`, which has 4 bytes for each of
    /// [`Spec::half_vectors`].
    #[inline(never)] // keeps its temporaries off the caller's stack
    pub fn fill(gguf: &Gguf<'_>, spec: &Spec<'_>, table: &mut [Entry], converted: &mut [u8]) -> Result<(), Error> {
        table.fill(Entry::zeroed());
        let mut used = 0;
        let slots = Slots::of(spec);
        walk(gguf, spec, &mut |found| {
            let (cols, rows) = match found.shape {
                Shape::Vector(len) => (len, 1),
                Shape::Vectors(len, count) | Shape::Apart(len, count) => (len, count),
                #[cfg(feature = "mla")]
                Shape::Between(len, count) => (len, count),
                Shape::Matrix(cols, rows) => (cols, rows),
                Shape::Matrices(cols, rows, count) => (cols, rows * count),
            };
            let place = match found.piece {
                Piece::Expert(expert) => slots.expert(found.role, found.layer, expert),
                Piece::Scale => slots.place(found.role, found.layer).map(|place| place + slots.scales),
                Piece::Whole | Piece::InputScale => slots.place(found.role, found.layer),
            };
            if let Some(entry) = place.and_then(|place| table.get_mut(place)) {
                if entry.place != 0 {
                    return Err(found.duplicate());
                }
                let mut place = found.tensor.offset << 8 | u64::from(found.kind.0);
                if built::HALF_VECTORS && found.shape.is_vector() && found.tensor.kind != TensorType::F32 {
                    place = CONVERTED | used as u64;
                    used = found.convert(converted, used)?;
                }
                *entry = Entry { place, rows: rows as u32, cols: cols as u32 };
            }
            Ok(())
        })
    }

    /// The matrix of `role` in `layer`, if the file has this matrix. Pass 0 as the layer for roles of the whole model.
    pub fn matrix(&self, role: Role, layer: usize) -> Option<Matrix<'m>> {
        self.at(self.slots.place(role, self.slots.own(layer)?)?)
    }

    /// The matrix of one expert, of `rows` rows.
    pub fn expert(&self, role: Role, layer: usize, expert: usize, rows: usize) -> Option<Matrix<'m>> {
        match self.slots.expert(role, layer, expert) {
            Some(place) => self.at(place),
            None => self.matrix(role, layer)?.expert(expert, rows),
        }
    }

    /// The matrix at an index of the table, with its scales, if the file has scales.
    fn at(&self, place: usize) -> Option<Matrix<'m>> {
        let entry = self.entry(place)?;
        if built::SCALES && place < self.slots.scales {
            return self.scaled(entry, place);
        }
        entry.matrix(self.file)
    }

    #[inline(never)] // few files have scales
    fn scaled(&self, entry: &Entry, place: usize) -> Option<Matrix<'m>> {
        let matrix = entry.matrix(self.file)?;
        let scales = self.entry(place + self.slots.scales).and_then(|scales| scales.matrix(self.file));
        Some(matrix.scaled(scales.map_or(&[], |scales| scales.data())))
    }

    fn entry(&self, place: usize) -> Option<&Entry> {
        self.table.get(place).filter(|entry| entry.place != 0)
    }

    /// A vector as little-endian f32; empty if the file does not have the vector.
    pub fn vector(&self, role: Role, layer: usize) -> &[u8] {
        let Some(entry) =
            self.slots.own(layer).and_then(|layer| self.slots.place(role, layer)).and_then(|place| self.entry(place))
        else {
            return &[];
        };
        if built::HALF_VECTORS && entry.place & CONVERTED != 0 {
            let start = (entry.place & !CONVERTED) as usize;
            let len = (entry.rows as usize).saturating_mul(entry.cols as usize).saturating_mul(4);
            return self.converted.get(start..).and_then(|rest| rest.get(..len)).unwrap_or(&[]);
        }
        entry.matrix(self.file).map_or(&[], |vector| vector.data())
    }
}
