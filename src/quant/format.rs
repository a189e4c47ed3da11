//! The trait that describes a block format, and the byte operations that unpack formats.

use bytemuck::Pod;

use super::TensorType;

/// The weight type of a format. Kernels that have special code for some formats select it by this type.
/// `formats/mod.rs` implements this trait for every format of the list.
pub(crate) trait Named {
    const KIND: TensorType;
}

/// A block format: the layout of quantized weights. The rest of the crate uses a format only through this trait; a
/// format does not depend on any instruction set.
///
/// - A **block** is the unit of storage: `ELEMENTS` consecutive weights of a row.
/// - A **group** is `GROUP` (16 or 32) consecutive weights of a block that share a scale and a minimum.
/// - A **chunk** is 32 consecutive weights of a block, the unit that [`unpack`](Self::unpack) returns.
/// - A **code** is the unsigned byte that stands for one weight.
///
/// A weight is `d * scale * (code - BIAS)`, plus `m * minimum` in formats with minimums. `scale` and `minimum` are
/// integers of the group, `d` and `m` are floats. Every product but the last is exact in f32.
///
/// Kernels read at the offsets below without bounds checks. [`TensorType`](super::TensorType) checks at compile time
/// that they are inside the block.
pub(crate) trait Format: Named + Copy + 'static {
    /// The bytes of a block, an array.
    type Block: Pod + AsRef<[u8]>;
    /// Number of weights in a block, a multiple of 32. Blocks of 256 are multiplied with activations that have one
    /// scale per 256 elements, all other blocks with activations that have one scale per 32 elements; see also
    /// [`F32_SCALES`](Self::F32_SCALES).
    const ELEMENTS: usize;
    /// Weights per group, 16 or 32.
    const GROUP: usize = 32;
    /// The code of a weight of 0.
    const BIAS: u8 = 0;
    /// The largest code.
    #[allow(dead_code)] // only kernels with an instruction set read it
    const MAX: u8;
    /// The byte offset in a block of the f16 scale `d`, and a power of two by which `d` is multiplied. `None` if the
    /// format stores `d` in another way, which the format's own [`d`](Self::d) implements.
    const D: Option<(usize, f32)> = Some((0, 1.0));
    /// The byte offset in a block of the f16 `m`, which scales minimums, and a factor by which `m` is multiplied.
    /// `None` for formats without minimums.
    const M: Option<(usize, f32)> = None;
    /// Where the weights of a chunk are in a block. For some of these layouts, kernels load chunks of two rows at once.
    const SHAPE: Shape = Shape::Other;
    /// True if [`unpack`](Self::unpack) reads the block only through `load` and `nibbles`. Several blocks can then be
    /// unpacked side by side.
    #[allow(dead_code)] // only kernels with an instruction set read it
    const BYTEWISE: bool = false;
    /// True if the activations have an f32 scale per block, instead of an f16 scale per 32 elements.
    const F32_SCALES: bool = false;
    /// True if each group of 16 weights has a float `d` of its own. Otherwise groups have integer scales.
    const FLOAT_GROUPS: bool = false;

    /// Returns the float `d` of a block, by which the weights from element `at` on are scaled. `f16` converts two
    /// little-endian bytes.
    #[inline(always)]
    fn d(block: &Self::Block, _at: usize, f16: impl Fn([u8; 2]) -> f32) -> f32 {
        Self::D.map_or(0.0, |(offset, factor)| f16(*bytes_at(block.as_ref(), offset)) * factor)
    }
    /// `m` of the block.
    #[inline(always)]
    fn m(block: &Self::Block, f16: impl Fn([u8; 2]) -> f32) -> f32 {
        Self::M.map_or(0.0, |(offset, factor)| f16(*bytes_at(block.as_ref(), offset)) * factor)
    }
    /// Returns the scales of all groups of a block, each a signed byte, in two little-endian words. Words are used
    /// because they go into vector registers without a detour through memory. Formats with groups of 32 weights need
    /// only the first word.
    #[inline(always)]
    fn scale_words(_block: &Self::Block) -> [u64; 2] {
        [ONES; 2]
    }
    /// Returns the minimums of all groups of a block, in the form in which [`scale_words`](Self::scale_words) returns
    /// scales.
    #[inline(always)]
    fn minimum_words(_block: &Self::Block) -> [u64; 2] {
        [ONES; 2]
    }
    /// [`scale_words`](Self::scale_words) as bytes.
    #[inline(always)]
    fn scales(block: &Self::Block) -> [i8; 16] {
        bytemuck::must_cast(Self::scale_words(block).map(u64::to_le_bytes))
    }
    /// [`minimum_words`](Self::minimum_words) as bytes.
    #[inline(always)]
    fn minimums(block: &Self::Block) -> [i8; 16] {
        bytemuck::must_cast(Self::minimum_words(block).map(u64::to_le_bytes))
    }
    /// The codes of chunk `chunk`.
    fn unpack<S: Bytes>(s: S, block: &Self::Block, chunk: usize) -> S::V;
}

/// How a chunk of weights is stored, and where in its block: see [`Format::SHAPE`].
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Blocks of 32 with one signed byte per weight, from this byte offset on. The code is the byte plus 128.
    Bytes(usize),
    /// For blocks of 32: 16 bytes from this offset on have four bits for each weight. The first 16 weights are in the
    /// low halves of the bytes. If there is a table, it maps the four bits to codes.
    #[allow(dead_code)] // only kernels with an instruction set read it
    Nibbles(usize, Option<&'static [u8; 16]>),
    /// Blocks of 256 weights with four bits each: from this byte offset on, 32 bytes for every 64 weights. The low
    /// halves of these bytes are the first 32 weights, the high halves the next 32.
    #[allow(dead_code)] // only kernels with an instruction set read it
    Halves(usize),
    Other,
}

/// A vector of 32 bytes, and the operations that unpack formats. A value of the implementing type is a proof that the
/// processor has the instruction set.
pub(crate) trait Bytes: Copy {
    /// The vector.
    type V: Copy;
    fn load(self, bytes: &[u8; 32]) -> Self::V;
    /// The low halves of the 16 bytes, then their high halves.
    fn nibbles(self, bytes: &[u8; 16]) -> Self::V;
    /// Four little-endian words.
    fn words(self, words: [u64; 4]) -> Self::V;
    /// Eight words of a grid, in order.
    #[inline(always)]
    fn grid(self, [a, b, c, d, e, f, g, h]: [u32; 8]) -> Self::V {
        self.words([(a, b), (c, d), (e, f), (g, h)].map(|(low, high)| u64::from(low) | u64::from(high) << 32))
    }
    fn splat(self, byte: u8) -> Self::V;
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// Shifts each byte and masks it: `(x << left) & mask`, or `(x >> -left) & mask` for a negative `left`.
    fn shift(self, x: Self::V, left: i32, mask: u8) -> Self::V;
    /// Each byte becomes `table[x]`; every `x` is less than 16.
    fn lookup(self, table: &[u8; 16], x: Self::V) -> Self::V;
    /// Byte `i` is 255 where bit `i` is set, else 0.
    fn spread(self, bits: u32) -> Self::V;
    /// Byte `i` is `value` where bit `i` is set, else 0.
    #[inline(always)]
    fn flags(self, bits: u32, value: u8) -> Self::V {
        self.and(self.spread(bits), self.splat(value))
    }
    /// Each byte becomes 255 where `x >= least`, else 0.
    fn at_least(self, x: Self::V, least: u8) -> Self::V;
}

/// [`Bytes`] as arrays, in plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

/// [`Format::unpack`] in plain Rust. The code for TQ1_0 is long, and is therefore compiled once instead of inlined.
#[inline(always)]
pub(crate) fn codes<F: Format>(block: &F::Block, chunk: usize) -> [u8; 32] {
    #[inline(never)]
    fn once<F: Format>(block: &F::Block, chunk: usize) -> [u8; 32] {
        F::unpack(Plain, block, chunk)
    }
    if const { matches!(F::KIND, TensorType::TQ1_0) } {
        once::<F>(block, chunk)
    } else {
        F::unpack(Plain, block, chunk)
    }
}

impl Bytes for Plain {
    type V = [u8; 32];
    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> [u8; 32] {
        *bytes
    }
    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> [u8; 32] {
        let mut all = [0; 32];
        let (low, high) = all.split_at_mut(16);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
            (*low, *high) = (byte & 15, byte >> 4);
        }
        all
    }
    #[inline(always)]
    fn words(self, words: [u64; 4]) -> [u8; 32] {
        bytemuck::must_cast(words.map(u64::to_le_bytes))
    }
    #[inline(always)]
    fn splat(self, byte: u8) -> [u8; 32] {
        [byte; 32]
    }
    #[inline(always)]
    fn or(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        zip(a, b, |a, b| a | b)
    }
    #[inline(always)]
    fn and(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        zip(a, b, |a, b| a & b)
    }
    #[inline(always)]
    fn xor(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        zip(a, b, |a, b| a ^ b)
    }
    #[inline(always)]
    fn add(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        zip(a, b, u8::wrapping_add)
    }
    #[inline(always)]
    fn sub(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        zip(a, b, u8::wrapping_sub)
    }
    #[inline(always)]
    fn shift(self, x: [u8; 32], left: i32, mask: u8) -> [u8; 32] {
        if left < 0 {
            x.map(|x| x.unbounded_shr(left.unsigned_abs()) & mask)
        } else {
            x.map(|x| x.unbounded_shl(left as u32) & mask)
        }
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], x: [u8; 32]) -> [u8; 32] {
        x.map(|x| table[usize::from(x % 16)])
    }
    #[inline(always)]
    fn spread(self, bits: u32) -> [u8; 32] {
        core::array::from_fn(|i| if bits >> (i % 32) & 1 == 1 { 255 } else { 0 })
    }
    #[inline(always)]
    fn at_least(self, x: [u8; 32], least: u8) -> [u8; 32] {
        x.map(|x| if x >= least { 255 } else { 0 })
    }
}

#[inline(always)]
fn zip(mut a: [u8; 32], b: [u8; 32], f: impl Fn(u8, u8) -> u8) -> [u8; 32] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = f(*a, b);
    }
    a
}

/// `N` bytes of a block, from byte `at` on. Returns zeros instead of panicking if these bytes are not inside the block.
#[inline(always)]
pub(crate) fn bytes_at<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block.get(at..).and_then(|rest| rest.first_chunk()).unwrap_or(const { &[0; N] })
}

/// The little-endian u16 at `at`.
#[inline(always)]
pub(super) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes_at(block, at))
}

/// The little-endian u32 at `at`.
#[inline(always)]
pub(super) fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes_at(block, at))
}

/// The little-endian u64 at `at`.
#[inline(always)]
pub(super) fn u64_at(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes_at(block, at))
}

/// The byte 1, eight times.
pub(super) const ONES: u64 = 0x0101_0101_0101_0101;

/// Spreads eight nibbles into eight bytes.
#[inline(always)]
pub(super) fn spread_nibbles(bits: u32) -> u64 {
    let x = u64::from(bits);
    let x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    (x | x << 4) & (15 * ONES)
}

/// Spreads eight pairs of bits into eight bytes.
#[inline(always)]
pub(super) fn spread_pairs(bits: u16) -> u64 {
    let x = u64::from(bits);
    let x = (x | x << 24) & 0x0000_00ff_0000_00ff;
    let x = (x | x << 12) & 0x000f_000f_000f_000f;
    (x | x << 6) & (3 * ONES)
}

/// Subtracts `less` from each byte of a word. All bytes and `less` are below 128; the bytes of the result are signed.
#[inline(always)]
pub(super) fn minus(bytes: u64, less: u8) -> u64 {
    ((bytes | (128 * ONES)) - u64::from(less) * ONES) ^ (128 * ONES)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{vec, vec::Vec};

    use super::*;
    use crate::quant::{formats, formats_list};

    macro_rules! codes {
        ({} $($name:ident = $number:literal, $module:ident :: $format:ident, $feature:literal;)*) => {
            /// Tests that no code exceeds `Format::MAX`, whatever bytes a block has. The proofs of `.ci/bounds` rely on
            /// this.
            #[test]
            fn codes_are_at_most_their_maximum() {
                $(largest_code::<formats::$module::$format>(stringify!($name));)*
            }
        };
    }
    formats_list!(codes);

    fn largest_code<F: Format>(name: &str) {
        let (mut state, mut largest) = (41u64, 0);
        let mut random = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        let mut take = |bytes: &[u8]| {
            let block: F::Block = bytemuck::pod_read_unaligned(bytes);
            let codes = (0..F::ELEMENTS / 32).flat_map(|chunk| F::unpack(Plain, &block, chunk));
            largest = largest.max(codes.max().unwrap_or(0));
        };
        (0..=255).for_each(|byte| take(&vec![byte; size_of::<F::Block>()]));
        // The largest table of a format has 2048 entries; random blocks read each of them about 300 times.
        for _ in 0..20_000 {
            take(&(0..size_of::<F::Block>()).map(|_| random()).collect::<Vec<_>>());
        }
        assert_eq!(largest, F::MAX, "{name}");
    }
}
