//! Decodes weights that another program has quantized to integers: GPTQ, AWQ, compressed-tensors, MLX, bitsandbytes and
//! HQQ. The weights are decoded on each read, because all weights in F32 may not fit in memory.
//!
//! A weight is `(code - zero) * scale + bias`; all weights in a group share zero, scale and bias. With a code book, a
//! weight is `book[code] * scale`.

use super::leaf::{Codes, Factors, Groups, Order, Packed, Zeros};

impl Codes<'_> {
    /// The code at place `at` of `line`.
    fn get(&self, line: usize, at: usize) -> u32 {
        let word = |index: usize| self.word(index);
        let (index, shift) = (at * self.bits / 32, at * self.bits % 32);
        let (low, high) = match self.order {
            Order::Lines { words } => (word(line * words + index), word(line * words + index + 1)),
            Order::Interleaved { lines } => (word(index * lines + line), word((index + 1) * lines + line)),
            Order::Planes { lines, words } => return self.of_planes(line * lines, words, at),
            Order::Awq { words } => {
                let place = [0, 4, 1, 5, 2, 6, 3, 7][at % 8];
                return word(line * words + at / 8) >> (4 * place) & 15;
            }
            Order::Halves { codes } => {
                let at = line * codes + at;
                let byte = self.bytes.get(at / 2).copied().unwrap_or(0);
                return u32::from(if at.is_multiple_of(2) { byte >> 4 } else { byte & 15 });
            }
            Order::RowPairs { columns } => {
                let byte = self.bytes.get(line / 2 * columns + at).copied().unwrap_or(0);
                return u32::from(byte >> (line % 2 * 4) & 15);
            }
            Order::AwqFast { columns } => {
                // Within a block of 32 columns, the place of a code is computed from the five bits of the column
                // number, which are arranged in the order 0, 2, 1, 4, 3.
                let place = at % 8 / 2 * 8 + at % 2 * 4 + at % 32 / 8;
                let code = line % 4 * 64 + at % 64 / 32 * 32 + place;
                let word = line / 4 * columns + at / 64 * 64 + code / 4;
                let word = self.bytes.as_chunks::<2>().0.get(word).map_or(0, |word| u16::from_le_bytes(*word));
                return u32::from(word >> (code % 4 * 4) & 15);
            }
            Order::Parts { codes, words, bytes } => {
                let at = line * codes + at;
                let shift = (8 * bytes / self.bits).saturating_sub(1 + at / words) * self.bits;
                let index = at % words;
                let word =
                    if bytes == 1 { self.bytes.get(index).map_or(0, |byte| (*byte).into()) } else { word(index) };
                return word >> shift & self.most();
            }
        };
        let both = u64::from(low) | u64::from(high) << 32;
        (both >> shift) as u32 & self.most()
    }

    fn word(&self, index: usize) -> u32 {
        self.bytes.as_chunks::<4>().0.get(index).map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// The largest code.
    fn most(&self) -> u32 {
        (1 << self.bits) - 1
    }

    /// The code at place `at` of a line that begins at word `first` and whose words are `distance` words apart.
    fn of_planes(&self, first: usize, distance: usize, at: usize) -> u32 {
        let (mut code, mut low, mut words) = (0, 0, at / 32 * self.bits);
        for width in [8, 4, 2, 1].into_iter().filter(|width| self.bits & width != 0) {
            let bit = at % 32 * width;
            let word = self.word(first + (words + bit / 32) * distance);
            code |= (word >> (bit % 32) & ((1 << width) - 1)) << low;
            (low, words) = (low + width, words + width);
        }
        code
    }

    /// Returns the code at place `at` of `line` plus 1. GPTQModel adds the ones to whole words. So if no code extends
    /// over two words, the largest code becomes 0 and carries a 1 to the next code of its word. Otherwise, the largest
    /// code becomes 0 without a carry.
    pub fn next(&self, line: usize, at: usize) -> u32 {
        match self.order {
            Order::Lines { words } if 32usize.is_multiple_of(self.bits) => {
                let word = self.word(line * words + at * self.bits / 32).wrapping_add(u32::MAX / self.most());
                word >> (at * self.bits % 32) & self.most()
            }
            _ => (self.get(line, at) + 1) & self.most(),
        }
    }
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

impl Packed<'_> {
    fn zero(&self, line: usize, group: usize) -> f32 {
        match &self.zeros {
            Zeros::Constant(zero) => *zero,
            Zeros::Packed(codes) => codes.get(group, line) as f32,
            Zeros::PackedLess(codes) => codes.next(group, line) as f32,
            Zeros::PackedRows(codes) => codes.get(line, group) as f32,
            Zeros::Values(values) => values.get(line, group),
        }
    }

    /// The scale, the zero and the bias of a group.
    pub fn factors(&self, line: usize, group: usize) -> (f32, f32, Option<f32>) {
        let bias = self.biases.as_ref().map(|biases| biases.get(line, group));
        (self.scales.get(line, group), self.zero(line, group), bias)
    }

    /// Returns the line and the group that have the factors of the weight with the index `at`.
    fn place(&self, at: usize) -> (usize, usize) {
        let (row, column) = (at / self.columns, at % self.columns);
        match &self.groups {
            Groups::OfColumns(size) => (row, column / size),
            Groups::Listed(list) => (row, list.get(column).map_or(0, |group| *group as usize)),
            Groups::Flat(size) => (0, at / size),
            Groups::Apart(size) => (0, at % size),
        }
    }

    fn code(&self, at: usize) -> u32 {
        let (row, column) = (at / self.columns, at % self.columns);
        match self.codes.order {
            Order::Awq { .. } => self.codes.get(column, row),
            _ => self.codes.get(row, column),
        }
    }

    /// The code of weight `at`, and its scale, zero and bias.
    pub fn weight(&self, at: usize) -> (u32, [f32; 3]) {
        let (line, group) = self.place(at);
        let (scale, zero, bias) = self.factors(line, group);
        (self.code(at), [scale, zero, bias.unwrap_or(0.0)])
    }

    /// Decodes every `stride`th weight, from index `start` on.
    pub fn decode(&self, start: usize, stride: usize, out: &mut [f32]) {
        let mut last = None;
        let (mut scale, mut zero, mut bias) = (0.0, 0.0, None);
        for (i, out) in out.iter_mut().enumerate() {
            let at = start + i * stride;
            let place = self.place(at);
            if last != Some(place) {
                (scale, zero, bias) = self.factors(place.0, place.1);
                last = Some(place);
            }
            let code = self.code(at);
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
        // Codes of 3 bits: the codes 0 to 7, written twice. One code extends over two words.
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
