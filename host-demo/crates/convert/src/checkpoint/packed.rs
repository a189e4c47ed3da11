//! Weights that another program has quantized to integers: GPTQ, AWQ, compressed-tensors, MLX and bitsandbytes. They are
//! decoded when they are read, because all weights in F32 may not fit in memory.
//!
//! A weight is `(code - zero) * scale + bias`; zero, scale and bias belong to a group of weights of one row. With a
//! code book, a weight is `book[code] * scale`.

use std::sync::Arc;

use super::leaf::Leaf;

/// A matrix `[rows, columns]` of codes with the factors of groups.
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

/// The order of codes. A line is a row or a column of the matrix whose codes follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Words of one line follow each other. A code may lie in two words.
    Lines {
        /// Number of words of a line.
        words: usize,
    },
    /// The first words of all lines come first, then the second ones.
    Interleaved {
        /// Number of lines.
        lines: usize,
    },
    /// Eight codes of a word in AWQ's order: 0, 2, 4, 6, 1, 3, 5, 7.
    Awq {
        /// Number of words of a line.
        words: usize,
    },
    /// Two codes of a byte, the first one in the higher half, in lines without gaps.
    Halves {
        /// Number of codes of a line.
        codes: usize,
    },
}

impl Codes<'_> {
    /// The code at place `at` of `line`.
    fn get(&self, line: usize, at: usize) -> u32 {
        let word = |index: usize| self.bytes.as_chunks::<4>().0.get(index).map_or(0, |word| u32::from_le_bytes(*word));
        let (index, shift) = (at * self.bits / 32, at * self.bits % 32);
        let (low, high) = match self.order {
            Order::Lines { words } => (word(line * words + index), word(line * words + index + 1)),
            Order::Interleaved { lines } => (word(index * lines + line), word((index + 1) * lines + line)),
            Order::Awq { words } => {
                let place = [0, 4, 1, 5, 2, 6, 3, 7][at % 8];
                return word(line * words + at / 8) >> (4 * place) & 15;
            }
            Order::Halves { codes } => {
                let at = line * codes + at;
                let byte = self.bytes.get(at / 2).copied().unwrap_or(0);
                return u32::from(if at.is_multiple_of(2) { byte >> 4 } else { byte & 15 });
            }
        };
        let both = u64::from(low) | u64::from(high) << 32;
        (both >> shift) as u32 & ((1 << self.bits) - 1)
    }
}

/// The group of a weight.
#[derive(Clone, Debug)]
pub enum Groups {
    /// Consecutive columns of a row.
    OfColumns(usize),
    /// The group of each column (act-order).
    Listed(Vec<u32>),
    /// Consecutive weights of the whole matrix, which may reach over the end of a row.
    Flat(usize),
}

/// A factor for each group.
#[derive(Clone, Debug)]
pub struct Factors<'f> {
    pub leaf: Arc<Leaf<'f>>,
    /// Number of groups of a row.
    pub groups: usize,
    /// If set, the factors of all rows in a group follow each other. The value is the number of rows.
    pub rows: Option<usize>,
    /// The factors are themselves quantized: bitsandbytes' double quantization.
    pub nested: Option<Nested>,
}

/// Quantized factors: `book[factor] * scales[at / block] + offset`.
#[derive(Clone, Debug)]
pub struct Nested {
    pub book: Vec<f32>,
    pub scales: Vec<f32>,
    pub block: usize,
    pub offset: f32,
}

impl Factors<'_> {
    fn get(&self, row: usize, group: usize) -> f32 {
        let at = self.rows.map_or(row * self.groups + group, |rows| group * rows + row);
        let mut value = [0.0];
        self.leaf.decode(at, 1, &mut value);
        let Some(nested) = &self.nested else { return value[0] };
        let code = nested.book.get(value[0] as usize).copied().unwrap_or(0.0);
        code * nested.scales.get(at / nested.block).copied().unwrap_or(0.0) + nested.offset
    }
}

/// The zero of a group.
#[derive(Clone, Debug)]
pub enum Zeros<'f> {
    Constant(f32),
    /// The zeros of all rows in a group are a line of codes, to which a number is added.
    Packed(Codes<'f>, f32),
}

impl Packed<'_> {
    /// Decodes every `stride`th weight, from index `start` on.
    pub fn decode(&self, start: usize, stride: usize, out: &mut [f32]) {
        let mut last = None;
        let (mut scale, mut zero, mut bias) = (0.0, 0.0, None);
        for (i, out) in out.iter_mut().enumerate() {
            let at = start + i * stride;
            let (row, column) = (at / self.columns, at % self.columns);
            let (line, group) = match &self.groups {
                Groups::OfColumns(size) => (row, column / size),
                Groups::Listed(list) => (row, list.get(column).map_or(0, |group| *group as usize)),
                Groups::Flat(size) => (0, at / size),
            };
            if last != Some((line, group)) {
                scale = self.scales.get(line, group);
                bias = self.biases.as_ref().map(|biases| biases.get(line, group));
                zero = match &self.zeros {
                    Zeros::Constant(zero) => *zero,
                    Zeros::Packed(codes, more) => codes.get(group, row) as f32 + more,
                };
                last = Some((line, group));
            }
            let code = match self.codes.order {
                Order::Awq { .. } => self.codes.get(column, row),
                _ => self.codes.get(row, column),
            };
            let value = match &self.book {
                Some(book) => book.get(code as usize).copied().unwrap_or(0.0),
                None => code as f32 - zero,
            };
            *out = value * scale + bias.unwrap_or(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(bits: usize, order: Order, bytes: &'static [u8]) -> Codes<'static> {
        Codes { bytes, bits, order }
    }

    #[test]
    fn orders_of_codes() {
        // 3 bits: the codes 0 to 7, and so on, over the border of two words.
        let stream = codes(3, Order::Lines { words: 2 }, &[0x88, 0xc6, 0xfa, 0x88, 0xc6, 0xfa, 0, 0]);
        assert_eq!((0..16).map(|at| stream.get(0, at)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7].repeat(2));
        let nibbles = &[0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe];
        let awq = codes(4, Order::Awq { words: 1 }, nibbles);
        assert_eq!((0..8).map(|at| awq.get(0, at)).collect::<Vec<_>>(), [0, 4, 1, 5, 2, 6, 3, 7]);
        let crossed = codes(4, Order::Interleaved { lines: 2 }, nibbles);
        assert_eq!([crossed.get(0, 1), crossed.get(1, 1)], [1, 9]);
        let halves = codes(4, Order::Halves { codes: 3 }, nibbles);
        assert_eq!([halves.get(0, 0), halves.get(0, 1), halves.get(1, 0)], [1, 0, 2]);
    }
}
