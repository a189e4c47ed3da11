//! Thirty-two bytes in two vectors.

use core::arch::wasm32::*;

use crate::quant::Bytes;

/// An implementation of [`Bytes`] in two 128-bit vectors. This type needs no detection, because this file is compiled
/// only for targets with such vectors.
#[derive(Clone, Copy)]
pub(super) struct Pair;

#[inline(always)]
fn load(bytes: &[u8; 16]) -> v128 {
    // SAFETY: the reference has 16 bytes, and vectors may be loaded from any address.
    unsafe { v128_load(bytes.as_ptr().cast()) }
}

#[inline(always)]
fn zip(a: [v128; 2], b: [v128; 2], f: impl Fn(v128, v128) -> v128) -> [v128; 2] {
    [f(a[0], b[0]), f(a[1], b[1])]
}

impl Bytes for Pair {
    type V = [v128; 2];
    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> Self::V {
        let halves: &[[u8; 16]; 2] = bytemuck::must_cast_ref(bytes);
        [load(&halves[0]), load(&halves[1])]
    }
    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> Self::V {
        let x = load(bytes);
        [v128_and(x, u8x16_splat(15)), u8x16_shr(x, 4)]
    }
    #[inline(always)]
    fn words(self, [a, b, c, d]: [u64; 4]) -> Self::V {
        [u64x2(a, b), u64x2(c, d)]
    }
    #[inline(always)]
    fn splat(self, byte: u8) -> Self::V {
        [u8x16_splat(byte); 2]
    }
    #[inline(always)]
    fn or(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| v128_or(a, b))
    }
    #[inline(always)]
    fn and(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| v128_and(a, b))
    }
    #[inline(always)]
    fn xor(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| v128_xor(a, b))
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| u8x16_add(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| u8x16_sub(a, b))
    }
    #[inline(always)]
    fn shift(self, x: Self::V, left: i32, mask: u8) -> Self::V {
        let by = left.unsigned_abs();
        let shifted = if left < 0 { x.map(|x| u8x16_shr(x, by)) } else { x.map(|x| u8x16_shl(x, by)) };
        self.and(shifted, self.splat(mask))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], x: Self::V) -> Self::V {
        let table = load(table);
        x.map(|x| u8x16_swizzle(table, x))
    }
    #[inline(always)]
    fn spread(self, bits: u32) -> Self::V {
        let [a, b, c, d] = bits.to_le_bytes().map(|byte| u64::from_le_bytes([byte; 8]));
        let bit = u64x2_splat(0x8040_2010_0804_0201);
        [u64x2(a, b), u64x2(c, d)].map(|x| u8x16_eq(v128_and(x, bit), bit))
    }
    #[inline(always)]
    fn at_least(self, x: Self::V, least: u8) -> Self::V {
        x.map(|x| u8x16_ge(x, u8x16_splat(least)))
    }
}
