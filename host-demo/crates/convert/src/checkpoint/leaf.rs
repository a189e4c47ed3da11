//! A stored tensor: its bytes, the encoding of its values, and the order of the values.

use std::sync::Arc;

use arenite::quant::{TensorType, decode_row};
use half::{bf16, f16};

/// The encoding of a stored tensor's values.
#[derive(Clone, Debug, PartialEq)]
pub enum Coding {
    F64,
    F32,
    F16,
    BF16,
    F8E4M3,
    F8E5M2,
    /// Powers of two.
    F8E8M0,
    I64,
    I32,
    I16,
    U8,
    I8,
    /// BitNet's format: two bits per weight. Each of the `rows` packed rows holds four rows of the matrix.
    Ternary {
        rows: usize,
        columns: usize,
        factor: f32,
    },
    /// Weights of 4 bits, in groups that have one factor of 8 bits each. The lower half of a byte is the first of its
    /// two weights.
    Four(FourBits),
    /// GGUF's blocks.
    Blocks(TensorType),
    /// Integers with factors: see [`Leaf::packed`].
    Packed,
}

/// Formats of 4-bit weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FourBits {
    /// NVFP4: groups of 16 weights. The factors are floats with four bits for the exponent and three for the mantissa.
    Nv,
    /// Groups of 32; factors are powers of two.
    Mx,
}

impl FourBits {
    /// Number of weights in a group.
    pub fn group(self) -> usize {
        match self {
            Self::Nv => 16,
            Self::Mx => 32,
        }
    }
}

impl Coding {
    /// Number of bytes of a value.
    pub fn size(&self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 | Self::I16 => 2,
            _ => 1,
        }
    }
}

/// The scales of the blocks of a matrix.
#[derive(Clone, Debug)]
pub struct Scale {
    pub values: Vec<f32>,
    /// Numbers that are subtracted from the stored values of each block before the block is scaled. Empty if all these
    /// numbers are 0.
    pub zeros: Vec<f32>,
    /// Number of columns of the matrix.
    pub columns: usize,
    /// Rows and columns of a block.
    pub block: [usize; 2],
    /// Number of blocks in a row of blocks.
    pub across: usize,
}

impl Scale {
    /// The factor and the zero of value `at`.
    pub fn at(&self, at: usize) -> [f32; 2] {
        let (row, column) = (at / self.columns / self.block[0], at % self.columns / self.block[1]);
        let block = row * self.across + column;
        [self.values.get(block).copied().unwrap_or(1.0), self.zeros.get(block).copied().unwrap_or(0.0)]
    }
}

/// A stored tensor.
#[derive(Clone, Debug)]
pub struct Leaf<'f> {
    pub name: String,
    pub bytes: &'f [u8],
    pub coding: Coding,
    /// The outermost dimension first.
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
    pub scale: Option<Scale>,
    /// Factors of groups of 4-bit weights.
    pub groups: &'f [u8],
    /// If the coding is [`Coding::Packed`], the packed weights, which another program has quantized to integers.
    pub packed: Option<Arc<Packed<'f>>>,
    /// Factors of columns. ModelOpt multiplies the inputs of a matrix by `pre_quant_scale`, which has the same effect
    /// as multiplying the columns.
    pub of_columns: Option<Arc<[f32]>>,
    /// For weights of -1, 0 and 1. If set, each value is multiplied by this number and rounded to -1, 0 or 1; the
    /// result is divided by the number again.
    pub rounding: Option<f32>,
}

/// A matrix `[rows, columns]` of integer codes, with the factors of its groups. The functions in the module
/// [`packed`](super::packed) decode it.
#[derive(Clone, Debug)]
pub struct Packed<'f> {
    pub codes: Codes<'f>,
    pub columns: usize,
    pub groups: Groups,
    pub scales: Factors<'f>,
    pub zeros: Zeros<'f>,
    /// Added to each weight of a group.
    pub biases: Option<Factors<'f>>,
    /// Values of codes, before they are scaled.
    pub book: Option<Vec<f32>>,
}

/// Codes of a few bits in little-endian 32-bit words.
#[derive(Clone, Debug)]
pub struct Codes<'f> {
    pub bytes: &'f [u8],
    /// Bits of a code, from 2 to 8.
    pub bits: usize,
    pub order: Order,
}

/// The order in which the codes of a matrix are stored. A *line* is a row or a column of the matrix whose codes are
/// stored one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The words of each line are consecutive. A code may extend over two words.
    Lines {
        /// Number of words of a line.
        words: usize,
    },
    /// All lines are interleaved: the first words of all lines come first, then the second words of all lines, and so
    /// on.
    Interleaved {
        /// Number of lines.
        lines: usize,
    },
    /// The bits of each group of 32 codes are stored in several planes of 8, 4, 2 or 1 bits per code. The plane of the
    /// lowest bits is the first.
    Planes {
        /// Distance in words of a line from the next line.
        lines: usize,
        /// Distance of the words of a line from each other.
        words: usize,
    },
    /// Each word has eight codes. AWQ stores them in the order 0, 2, 4, 6, 1, 3, 5, 7.
    Awq {
        /// Number of words of a line.
        words: usize,
    },
    /// The order of AWQ's version `gemv_fast`. A word has 16 bits and contains four codes. The words are arranged in
    /// blocks of four rows and 64 columns.
    AwqFast {
        /// Number of columns of the matrix.
        columns: usize,
    },
    /// Each byte has two codes, and its higher half is the first one. The codes of a line follow each other without
    /// gaps.
    Halves {
        /// Number of codes of a line.
        codes: usize,
    },
    /// Each row of bytes has the codes of two rows of the matrix. The codes of the first of the two rows are in the
    /// lower halves of the bytes.
    RowPairs {
        /// Number of columns of the matrix.
        columns: usize,
    },
    /// The codes in a word belong to lines that are far apart. The matrix is divided into parts: the highest bits of a
    /// word have a code of the first part, the next bits a code of the second part, and so on.
    Parts {
        /// Number of codes of a line.
        codes: usize,
        /// Number of words.
        words: usize,
        /// Bytes of a word: 1 or 4.
        bytes: usize,
    },
}

/// The group of a weight.
#[derive(Clone, Debug)]
pub enum Groups {
    /// Consecutive columns of a row.
    OfColumns(usize),
    /// The group of each column (act-order).
    Listed(Vec<u32>),
    /// A group is this number of consecutive weights, counted through the whole matrix, so that it may extend over the
    /// end of a row.
    Flat(usize),
    /// A group consists of weights that are this number of weights apart from each other, counted through the whole
    /// matrix.
    Apart(usize),
}

/// A factor for each group.
#[derive(Clone, Debug)]
pub struct Factors<'f> {
    pub leaf: Arc<Leaf<'f>>,
    /// Number of groups of a row.
    pub groups: usize,
    /// If this is set, the factors are ordered by group: the factors of all rows for the first group come first. The
    /// value is then the number of rows. If this is not set, the factors are ordered by row.
    pub rows: Option<usize>,
    /// If the factors are themselves quantized (bitsandbytes' double quantization), how to compute them.
    pub nested: Option<Nested>,
}

/// Factors that are themselves quantized: each is `book[factor] * scales[at / block] + offset`.
#[derive(Clone, Debug)]
pub struct Nested {
    pub book: Vec<f32>,
    pub scales: Vec<f32>,
    pub block: usize,
    pub offset: f32,
}

/// The zero of a group.
#[derive(Clone, Debug)]
pub enum Zeros<'f> {
    Constant(f32),
    /// The zeros are stored as codes. A line of codes has the zeros of all rows for one group.
    Packed(Codes<'f>),
    /// Like `Packed`, but each code is 1 less than the zero, as in the first version of GPTQ's format: see
    /// [`Codes::next`].
    PackedLess(Codes<'f>),
    /// The zeros of all groups in a row are a line of codes.
    PackedRows(Codes<'f>),
    /// Stored like the scales.
    Values(Factors<'f>),
}

impl<'f> Leaf<'f> {
    pub fn new(name: &str, bytes: &'f [u8], coding: Coding, shape: &[usize]) -> Self {
        let strides = contiguous(shape);
        Self {
            name: name.to_owned(),
            bytes,
            coding,
            shape: shape.to_vec(),
            strides,
            scale: None,
            groups: &[],
            packed: None,
            of_columns: None,
            rounding: None,
        }
    }

    /// Makes the tensor of quantized weights: a matrix, or a stack of matrices. The weights are integers and have
    /// factors.
    pub fn of_packed(name: &str, shape: &[usize], packed: Packed<'f>) -> Self {
        let mut leaf = Self::new(name, packed.codes.bytes, Coding::Packed, shape);
        leaf.packed = Some(Arc::new(packed));
        leaf
    }

    /// Returns the stored blocks that contain the `len` values from `start` on.
    pub fn blocks(&self, kind: TensorType, start: usize, len: usize) -> &'f [u8] {
        let (values, bytes) = kind.block();
        self.bytes.get(start / values * bytes..(start + len).div_ceil(values) * bytes).unwrap_or_default()
    }

    fn decode_blocks(&self, kind: TensorType, start: usize, stride: usize, out: &mut [f32]) {
        let (first, end) = (start - start % kind.block().0, start + out.len().saturating_sub(1) * stride + 1);
        let mut values = vec![0.0; (end - first).next_multiple_of(kind.block().0)];
        decode_row(kind, self.blocks(kind, first, end - first), &mut values);
        out.iter_mut().zip(values[start - first..].iter().step_by(stride)).for_each(|(out, value)| *out = *value);
    }

    /// Returns the 4-bit code of weight `at`.
    pub fn code(&self, at: usize) -> u8 {
        self.bytes.get(at / 2).map_or(0, |byte| byte >> (at % 2 * 4) & 15)
    }

    /// Decodes stored values to `out`: the value at index `start`, and then every `stride`th value after it.
    pub fn decode(&self, start: usize, stride: usize, out: &mut [f32]) {
        fn each<const N: usize>(
            bytes: &[u8],
            start: usize,
            stride: usize,
            out: &mut [f32],
            f: impl Fn([u8; N]) -> f32,
        ) {
            let values = bytes.as_chunks::<N>().0;
            for (i, out) in out.iter_mut().enumerate() {
                *out = values.get(start + i * stride).map_or(0.0, |value| f(*value));
            }
        }
        let bytes = self.bytes;
        match self.coding {
            Coding::F64 => each(bytes, start, stride, out, |b| f64::from_le_bytes(b) as f32),
            Coding::F32 => each(bytes, start, stride, out, f32::from_le_bytes),
            Coding::F16 => each(bytes, start, stride, out, |b| f16::from_le_bytes(b).to_f32()),
            Coding::BF16 => each(bytes, start, stride, out, |b| bf16::from_le_bytes(b).to_f32()),
            Coding::F8E4M3 => each(bytes, start, stride, out, |[b]| e4m3(b)),
            Coding::F8E5M2 => each(bytes, start, stride, out, |[b]| f16::from_bits(u16::from(b) << 8).to_f32()),
            Coding::F8E8M0 => each(bytes, start, stride, out, |[b]| e8m0(b)),
            Coding::I64 => each(bytes, start, stride, out, |b| i64::from_le_bytes(b) as f32),
            Coding::I32 => each(bytes, start, stride, out, |b| i32::from_le_bytes(b) as f32),
            Coding::I16 => each(bytes, start, stride, out, |b| i16::from_le_bytes(b).into()),
            Coding::U8 => each(bytes, start, stride, out, |[b]| b.into()),
            Coding::I8 => each(bytes, start, stride, out, |[b]| (b as i8).into()),
            Coding::Four(kind) => {
                for (i, out) in out.iter_mut().enumerate() {
                    let at = start + i * stride;
                    let scale = self.groups.get(at / kind.group()).copied().unwrap_or(0);
                    let scale = match kind {
                        FourBits::Nv => e4m3(scale),
                        FourBits::Mx => e8m0(scale),
                    };
                    let code = self.code(at);
                    let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
                    *out = if code & 8 == 0 { size } else { -size } * scale;
                }
            }
            Coding::Ternary { rows, columns, factor } => {
                for (i, out) in out.iter_mut().enumerate() {
                    let (row, column) = ((start + i * stride) / columns, (start + i * stride) % columns);
                    let byte = bytes.get(row % rows * columns + column).copied().unwrap_or(1);
                    let weight = f32::from(byte >> (row / rows * 2) & 3) - 1.0;
                    *out = weight * factor;
                }
            }
            Coding::Blocks(kind) => self.decode_blocks(kind, start, stride, out),
            Coding::Packed => match &self.packed {
                Some(packed) => packed.decode(start, stride, out),
                None => out.fill(0.0),
            },
        }
        if let Some(scale) = &self.scale {
            for (i, out) in out.iter_mut().enumerate() {
                let [factor, zero] = scale.at(start + i * stride);
                *out = (*out - zero) * factor;
            }
        }
        if let Some(factors) = &self.of_columns {
            for (i, out) in out.iter_mut().enumerate() {
                *out *= factors[(start + i * stride) % factors.len()];
            }
        }
        if let Some(scale) = self.rounding {
            out.iter_mut().for_each(|out| *out = (*out * scale).round_ties_even().clamp(-1.0, 1.0) / scale);
        }
    }
}

/// Decodes a float with four exponent bits, three mantissa bits, and no infinities.
fn e4m3(byte: u8) -> f32 {
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    sign * match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    }
}

/// Decodes a power of two.
pub fn e8m0(byte: u8) -> f32 {
    2f32.powi(i32::from(byte) - 127)
}

/// Returns the strides of a contiguous tensor.
pub fn contiguous(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bit_floats() {
        for (byte, value) in [(0x38, 1.0), (0xb8, -1.0), (0x7e, 448.0), (0x01, 1.0 / 512.0), (0x08, 1.0 / 64.0)] {
            assert_eq!(e4m3(byte), value, "{byte:#x}");
        }
        assert!(e4m3(0x7f).is_nan());
        let leaf = Leaf::new("x", &[0x3c, 0xc0], Coding::F8E5M2, &[2]);
        let mut out = [0.0; 2];
        leaf.decode(0, 1, &mut out);
        assert_eq!(out, [1.0, -2.0]);
    }

    #[test]
    fn factors_of_blocks() {
        let mut leaf = Leaf::new("x", &[0x38; 8], Coding::F8E4M3, &[2, 4]);
        leaf.scale = Some(Scale { values: vec![2.0, 3.0], zeros: Vec::new(), columns: 4, block: [2, 2], across: 2 });
        let mut out = [0.0; 8];
        leaf.decode(0, 1, &mut out);
        assert_eq!(out, [2.0, 2.0, 3.0, 3.0, 2.0, 2.0, 3.0, 3.0]);
    }

    #[test]
    fn four_ternary_rows_in_one() {
        let leaf = Leaf::new("x", &[0b10_00_01_10], Coding::Ternary { rows: 1, columns: 1, factor: 2.0 }, &[4, 1]);
        let mut out = [0.0; 4];
        leaf.decode(0, 1, &mut out);
        assert_eq!(out, [2.0, 0.0, -2.0, 2.0]);
    }
}
