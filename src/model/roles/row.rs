//! A row of a component's table: whether a model needs a tensor, and the tensor's shape.

use super::Layer;
use crate::model::{Need, Norm, Recurrent, Spec};

/// Requirement for a tensor, and the tensor's shape. The shape of an absent tensor has no meaning.
pub(super) type Row = (Need, Shape);

/// A tensor that the model lacks.
pub(super) const ABSENT: Row = (Need::Absent, Shape::Vector(0));

/// A tensor's shape, with dimensions in the file's order: a matrix's inputs come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Shape {
    /// A vector of this length.
    Vector(usize),
    /// Vectors: length and count.
    Vectors(usize, usize),
    /// A matrix: inputs and outputs.
    Matrix(usize, usize),
    /// Matrices: inputs, outputs and count.
    Matrices(usize, usize, usize),
    /// Vectors that are stored as `[length, 1, 1, count]`: their length, then their count.
    Apart(usize, usize),
    /// `count` vectors of length `length` that are stored as `[length, 1, count]`. The fields are the length and the
    /// count.
    #[cfg(feature = "mla")]
    Between(usize, usize),
}

impl Shape {
    /// The dimensions as stored in a file.
    pub const fn dims(self) -> [u64; 4] {
        match self {
            Self::Vector(len) => [len as u64, 1, 1, 1],
            Self::Vectors(cols, rows) | Self::Matrix(cols, rows) => [cols as u64, rows as u64, 1, 1],
            Self::Matrices(cols, rows, count) => [cols as u64, rows as u64, count as u64, 1],
            Self::Apart(cols, rows) => [cols as u64, 1, 1, rows as u64],
            #[cfg(feature = "mla")]
            Self::Between(cols, rows) => [cols as u64, 1, rows as u64, 1],
        }
    }

    /// True if a tensor of this shape consists of vectors, false if it consists of matrices.
    pub const fn is_vector(self) -> bool {
        match self {
            Self::Vector(_) | Self::Vectors(..) | Self::Apart(..) => true,
            #[cfg(feature = "mla")]
            Self::Between(..) => true,
            Self::Matrix(..) | Self::Matrices(..) => false,
        }
    }
}

/// Required if `condition` holds, else absent.
pub(super) const fn required_if(condition: bool) -> Need {
    need_if(condition, Need::Required)
}

/// `need` if `condition` holds, else absent.
pub(super) const fn need_if(condition: bool, need: Need) -> Need {
    if condition { need } else { Need::Absent }
}

/// The recurrent mixer of a layer, if it has one.
pub(super) const fn mixer_of(spec: &Spec<'_>, layer: &Layer) -> Option<Recurrent> {
    if layer.has_state() { spec.recurrent() } else { None }
}

/// True if the norms of a layer have biases.
pub(super) const fn has_norm_bias(spec: &Spec<'_>, layer: &Layer) -> bool {
    let biased = spec.norm_bias || spec.scores(layer.index);
    biased && !matches!(spec.norm(), Norm::Rms) && !spec.bare_norm()
}
