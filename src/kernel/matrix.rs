//! Weight matrices in the layout of the file.

use super::form::Form;
use crate::quant::{TensorType, formats_list, le_f32};

/// A weight matrix in the layout of the file: `rows` outputs, each with a row of `cols` weights.
///
/// [`Kind::matrix`] checks that `data` holds exactly these rows, that the rows are not empty and that the type is
/// built.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    kind: TensorType,
    form: Form,
    rows: usize,
    cols: usize,
    data: &'a [u8],
    /// Factors on the products, as little-endian f32: one factor for the matrix, or one for each of its experts. Empty
    /// if there are no factors.
    scales: &'a [u8],
    /// Position of the matrix's first row in the storage (outside of memory); `None` if the matrix is in memory. If it
    /// is in the storage, `data` is empty.
    #[cfg(feature = "storage")]
    stored: Option<u64>,
}

impl<'a> Matrix<'a> {
    /// The matrix that begins at byte `start` of `file`; `None` if the matrix would extend past the end of the file, or
    /// if the type is not built.
    #[cfg(any(test, feature = "internals"))] // models call `Kind::matrix`
    pub fn at(kind: TensorType, shape: (usize, usize), file: &'a [u8], start: usize) -> Option<Self> {
        Kind::number(kind)?.matrix(shape, file, start)
    }

    /// The type of the weights.
    pub fn kind(&self) -> TensorType {
        self.kind
    }

    /// Returns the form that activations must have to be multiplied with this matrix.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns. It is not 0, and a multiple of the number of weights in a block.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The bytes of all rows.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// True if the rows are in a storage instead of in memory. To be multiplied, they must first be read into memory:
    /// see [`band`](Self::band).
    #[inline(always)]
    pub fn is_stored(&self) -> bool {
        #[cfg(feature = "storage")]
        return self.stored.is_some();
        #[cfg(not(feature = "storage"))]
        false
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        #[cfg(feature = "storage")]
        if self.is_stored() {
            let (elements, bytes) = self.kind.block();
            return self.cols.checked_div(elements).unwrap_or(0) * bytes; // rows are whole blocks
        }
        self.data.len() / self.rows.max(1)
    }

    /// The bytes of row `r`; empty if `r` is out of range.
    pub fn row(&self, r: usize) -> &'a [u8] {
        let bytes = self.row_bytes();
        self.data.chunks_exact(bytes.max(1)).nth(r).unwrap_or(&[])
    }

    /// The matrix of rows `first..first + rows`; `None` if these rows are out of range.
    pub fn part(&self, first: usize, rows: usize) -> Option<Self> {
        if first == 0 && rows == self.rows {
            return Some(*self); // avoids the division
        }
        let bytes = self.row_bytes();
        #[cfg(feature = "storage")]
        if let Some(start) = self.stored {
            let end = first.checked_add(rows).filter(|end| *end <= self.rows);
            let start = start.checked_add((bytes as u64).checked_mul(first as u64)?)?;
            return end.map(|_| Self { rows, stored: Some(start), ..*self });
        }
        let data = self.data.get(first.checked_mul(bytes)?..)?.get(..rows.checked_mul(bytes)?)?;
        Some(Self { rows, data, ..*self })
    }

    /// The matrix of one expert, in a matrix with the rows of all experts: its `rows` rows begin at row `expert *
    /// rows`.
    pub fn expert(&self, expert: usize, rows: usize) -> Option<Self> {
        let scales = match self.scales.as_chunks::<4>().0.get(expert) {
            Some(scale) => scale,
            None => self.scales,
        };
        Some(Self { scales, ..self.part(expert.checked_mul(rows)?, rows)? })
    }

    /// Position in the storage of the matrix's first row. `None` if the matrix is in memory.
    #[cfg(feature = "storage")]
    pub(crate) fn stored(&self) -> Option<u64> {
        self.stored
    }

    /// Returns a matrix of the next `rows` rows of this matrix, which is in a storage. The caller has read these rows
    /// into `data`.
    #[cfg(feature = "storage")]
    pub(crate) fn band<'b>(&self, rows: usize, data: &'b [u8]) -> Matrix<'b>
    where
        'a: 'b,
    {
        Matrix { rows, data, stored: None, ..*self }
    }

    /// The same matrix with factors on its products.
    pub fn scaled(self, scales: &'a [u8]) -> Self {
        Self { scales, ..self }
    }

    /// Returns the factor by which all products of this matrix are multiplied: the first of its scales, or 1 if it has
    /// no scales.
    pub fn scale(&self) -> f32 {
        if self.scales.is_empty() { 1.0 } else { le_f32(self.scales, 0) }
    }
}

/// A weight type, by its index in the list of built types.
#[derive(Clone, Copy)]
pub(crate) struct Kind(pub u8);

/// The properties of a weight type that a matrix needs.
struct KindInfo {
    kind: TensorType,
    form: Form,
    /// Elements and bytes of a block.
    elements: u16,
    bytes: u16,
}

impl KindInfo {
    const fn of(kind: TensorType) -> Self {
        let (elements, bytes) = kind.block();
        let Some(form) = Form::of(kind) else { panic!("not a weight type of this build") };
        Self { kind, form, elements: elements as u16, bytes: bytes as u16 }
    }
}

macro_rules! kinds {
    ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
        static KINDS: &[KindInfo] = &[
            const { KindInfo::of(TensorType::F32) },
            #[cfg(feature = "half-floats")]
            const { KindInfo::of(TensorType::F16) },
            #[cfg(feature = "half-floats")]
            const { KindInfo::of(TensorType::BF16) },
            $(
                #[cfg(feature = $feature)]
                const { KindInfo::of(TensorType::$name) },
            )*
        ];
    };
}
formats_list!(kinds);

impl Kind {
    /// The index of a type; `None` if it is not built.
    #[inline(never)]
    pub fn number(kind: TensorType) -> Option<Self> {
        KINDS.iter().position(|info| info.kind == kind).map(|number| Self(number as u8))
    }

    /// The matrix of this type that begins at byte `start` of `file`; `None` if the matrix would extend past the end of
    /// the file.
    #[inline]
    pub fn matrix(self, (rows, cols): (usize, usize), file: &[u8], start: usize) -> Option<Matrix<'_>> {
        let KindInfo { kind, form, elements, bytes } = KINDS.get(usize::from(self.0))?;
        let blocks = cols.checked_div(usize::from(*elements))?;
        if cols == 0 || blocks * usize::from(*elements) != cols {
            return None;
        }
        let bytes = blocks.checked_mul(usize::from(*bytes))?.checked_mul(rows)?;
        let data = file.get(start..start.checked_add(bytes)?)?;
        Some(Matrix {
            kind: *kind,
            form: *form,
            rows,
            cols,
            data,
            scales: &[],
            #[cfg(feature = "storage")]
            stored: None,
        })
    }

    /// The matrix of this type that begins at byte `start` of a storage.
    #[cfg(feature = "storage")]
    pub fn stored(self, shape: (usize, usize), start: u64) -> Option<Matrix<'static>> {
        let (rows, cols) = shape;
        let empty = self.matrix((0, cols), &[], 0)?;
        Some(Matrix { rows, stored: Some(start), ..empty })
    }
}
