//! What a block format is.

use bytemuck::Pod;

/// A block format: how numbers lie in blocks of bytes. This is all that the rest of the crate knows of one; a
/// format knows nothing of instruction sets.
///
/// Kernels read at the places named here without a check: the list proves at compile time that they are in the block.
///
/// A number is `d * scale * (code - BIAS)`, and where there are minimums `+ m * minimum`: `code` is an unsigned byte
/// ([`unpack`](Self::unpack)), `scale` and `minimum` are whole numbers of its group, `d` and `m` are floats. All
/// products but the last are exact in f32.
pub(crate) trait Format: Copy + 'static {
    /// The bytes of a block: an array of them.
    type Block: Pod + AsRef<[u8]>;
    /// Numbers in a block: a multiple of 32. Blocks of 256 are multiplied with activations that have one scale for
    /// 256, the others with activations that have one for 32; see also [`F32_SCALES`](Self::F32_SCALES).
    const ELEMENTS: usize;
    /// Numbers for each scale and minimum: 16 or 32.
    const GROUP: usize = 32;
    /// What makes codes unsigned.
    const BIAS: u8 = 0;
    /// The largest code.
    #[allow(dead_code)] // only kernels with an instruction set read it
    const MAX: u8;
    /// Where the f16 of `d` lies, and what it is to be multiplied with (a power of two); `None` where `d` is something
    /// else, and [`d`](Self::d) says what.
    const D: Option<(usize, f32)> = Some((0, 1.0));
    /// Where the f16 of `m` lies, and what it is to be multiplied with; `None` where there are no minimums.
    const M: Option<(usize, f32)> = None;
    /// What 32 numbers look like, if it is something that kernels know how to take from two rows at once.
    const SHAPE: Shape = Shape::Other;
    /// Whether [`unpack`](Self::unpack) takes bytes of the block by `load` and `nibbles` alone, so that several blocks can
    /// be unpacked side by side.
    #[allow(dead_code)] // only kernels with an instruction set read it
    const BYTEWISE: bool = false;
    /// For kernels that have a form of their own for it.
    #[allow(dead_code)] // only kernels with an instruction set read it
    const SUPER: Option<SuperBlock> = None;
    /// Whether scales and minimums are those of Q4_K: `d` and `m`, then six bits of each in twelve bytes. Kernels read them of
    /// several rows at once.
    #[allow(dead_code)] // only kernels with an instruction set read it
    const SIX_BITS: bool = false;
    /// Whether the activations have an f32 scale for each block, instead of an f16 for each 32.
    const F32_SCALES: bool = false;
    /// Whether groups of 16 have a float `d` of their own, instead of a scale.
    const FLOAT_GROUPS: bool = false;
    /// Whether [`unpack`](Self::unpack) is much code, which plain Rust should have once: see [`codes`].
    const LONG: bool = false;

    /// `d` of the numbers from `at`, in f16 conversions of the caller's.
    #[inline(always)]
    fn d(block: &Self::Block, _at: usize, f16: impl Fn([u8; 2]) -> f32) -> f32 {
        Self::D.map_or(0.0, |(place, factor)| f16(*part(block.as_ref(), place)) * factor)
    }
    /// `m`, in the same way.
    #[inline(always)]
    fn m(block: &Self::Block, f16: impl Fn([u8; 2]) -> f32) -> f32 {
        Self::M.map_or(0.0, |(place, factor)| f16(*part(block.as_ref(), place)) * factor)
    }
    /// The groups' scales, signed bytes in two little-endian words, which kernels get into vectors without a detour
    /// through memory; of groups of 32, the first word.
    #[inline(always)]
    fn scale_words(_block: &Self::Block) -> [u64; 2] {
        [EACH; 2]
    }
    /// The groups' minimums, in the same order.
    #[inline(always)]
    fn minimum_words(_block: &Self::Block) -> [u64; 2] {
        [EACH; 2]
    }
    /// [`Self::scale_words`] as bytes.
    #[inline(always)]
    fn scales(block: &Self::Block) -> [i8; 16] {
        bytemuck::must_cast(Self::scale_words(block).map(u64::to_le_bytes))
    }
    /// [`Self::minimum_words`] as bytes.
    #[inline(always)]
    fn minimums(block: &Self::Block) -> [i8; 16] {
        bytemuck::must_cast(Self::minimum_words(block).map(u64::to_le_bytes))
    }
    /// The codes of numbers `32 * chunk ..`.
    fn unpack<S: Bytes>(s: S, block: &Self::Block, chunk: usize) -> S::V;
}

/// See [`Format::SHAPE`].
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// Of a block of 32: signed bytes from here, of which the codes are 128 more.
    Bytes(usize),
    /// Of a block of 32: four bits each, in 16 bytes from here, whose low halves come first; and the codes that they stand
    /// for, if not for themselves.
    #[allow(dead_code)] // only kernels with an instruction set read it
    Nibbles(usize, Option<&'static [u8; 16]>),
    /// Of a block of 256: from here 32 bytes for every 64 codes of four bits, whose low halves come first.
    #[allow(dead_code)] // only kernels with an instruction set read it
    Halves(usize),
    Other,
}

/// Blocks of 256 with scales of few bits: see [`Format::SUPER`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SuperBlock {
    Q2K,
    Q3K,
    Q4K,
    Iq4Xs,
}

/// Thirty-two bytes side by side, as some instruction set has them. A value of the type that implements this exists only
/// where the instruction set does.
pub(crate) trait Bytes: Copy {
    /// The bytes.
    type V: Copy;
    fn load(self, bytes: &[u8; 32]) -> Self::V;
    /// The low halves of 16 bytes, then their high halves.
    fn nibbles(self, bytes: &[u8; 16]) -> Self::V;
    /// Of four little-endian words.
    fn words(self, words: [u64; 4]) -> Self::V;
    /// Eight words of a grid.
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
    /// `(x << left) & mask`, or `(x >> -left) & mask`, of each byte.
    fn shift(self, x: Self::V, left: i32, mask: u8) -> Self::V;
    /// The bytes of the table at `x`, each less than 16.
    fn lookup(self, table: &[u8; 16], x: Self::V) -> Self::V;
    /// 255 where the bit is set, else 0.
    fn spread(self, bits: u32) -> Self::V;
    /// 255 where `x >= least`, else 0.
    fn at_least(self, x: Self::V, least: u8) -> Self::V;
}

/// Arrays.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

/// [`Format::unpack`] by plain Rust.
#[inline(always)]
pub(crate) fn codes<F: Format>(block: &F::Block, chunk: usize) -> [u8; 32] {
    #[inline(never)]
    fn once<F: Format>(block: &F::Block, chunk: usize) -> [u8; 32] {
        F::unpack(Plain, block, chunk)
    }
    if const { F::LONG } { once::<F>(block, chunk) } else { F::unpack(Plain, block, chunk) }
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

/// `N` bytes of a block from `at`, which has them.
#[inline(always)]
pub(crate) fn part<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block.get(at..).and_then(|rest| rest.first_chunk()).unwrap_or(const { &[0; N] })
}

/// The little-endian word at `at`.
#[inline(always)]
pub(super) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*part(block, at))
}

/// The little-endian word at `at`.
#[inline(always)]
pub(super) fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*part(block, at))
}

/// The little-endian word at `at`.
#[inline(always)]
pub(super) fn u64_at(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*part(block, at))
}

/// 1 in every byte.
pub(super) const EACH: u64 = 0x0101_0101_0101_0101;

/// A byte for every four bits.
#[inline(always)]
pub(super) fn fours(bits: u32) -> u64 {
    let x = u64::from(bits);
    let x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    (x | x << 4) & (15 * EACH)
}

/// A byte for every two bits.
#[inline(always)]
pub(super) fn twos(bits: u16) -> u64 {
    let x = u64::from(bits);
    let x = (x | x << 24) & 0x0000_00ff_0000_00ff;
    let x = (x | x << 12) & 0x000f_000f_000f_000f;
    (x | x << 6) & (3 * EACH)
}

/// Each byte minus `less`, where both are less than 128.
#[inline(always)]
pub(super) fn minus(bytes: u64, less: u8) -> u64 {
    ((bytes | (128 * EACH)) - u64::from(less) * EACH) ^ (128 * EACH)
}
