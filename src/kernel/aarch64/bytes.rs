//! Thirty-two bytes in two registers.

use super::safe::*;
use core::arch::asm;

use bytemuck::must_cast;

use crate::quant::{Bytes, Format};

/// An implementation of [`Bytes`] in two registers. This type needs no detection, because every target that compiles
/// this module has NEON.
#[derive(Clone, Copy)]
pub(super) struct Pair;

impl Pair {
    /// Converts codes to signed bytes. The bias is subtracted only from codes that do not fit signed bytes; otherwise
    /// the bias remains in the bytes, see [`bias`].
    #[inline(always)]
    pub fn signed<F: Format>(self, codes: [uint8x16_t; 2]) -> [int8x16_t; 2] {
        let codes = if F::MAX > 127 { self.sub(codes, self.splat(F::BIAS)) } else { codes };
        codes.map(|x| vreinterpretq_s8_u8(x))
    }

    /// Decodes a little-endian f16.
    #[inline(always)]
    pub fn f16(self, bytes: [u8; 2]) -> f32 {
        let out: f32;
        // SAFETY: computes in registers, by instructions of NEON.
        unsafe {
            asm!(
                "fmov {out:s}, {bits:w}",
                "fcvt {out:s}, {out:h}",
                out = out(vreg) out,
                bits = in(reg) u32::from(u16::from_le_bytes(bytes)),
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        out
    }
}

/// The bias that must still be subtracted from the bytes that [`Pair::signed`] returns.
pub(super) const fn bias<F: Format>() -> u8 {
    if F::MAX > 127 { 0 } else { F::BIAS }
}

/// Converts four f16 to f32. `vcvt_f32_f16` is not used, because it is not stable in the minimum supported compiler
/// version.
#[inline(always)]
pub(super) fn four_halves(x: uint16x4_t) -> float32x4_t {
    let out;
    // SAFETY: computes in registers, by an instruction of NEON.
    unsafe {
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) out, in(vreg) x, options(pure, nomem, nostack, preserves_flags))
    };
    out
}

/// Converts the first four of eight f16.
#[inline(always)]
pub(super) fn low_halves(x: uint16x8_t) -> float32x4_t {
    four_halves(vget_low_u16(x))
}

/// Converts the last four of eight f16.
#[inline(always)]
pub(super) fn high_halves(x: uint16x8_t) -> float32x4_t {
    let out;
    // SAFETY: computes in registers, by an instruction of NEON.
    unsafe {
        asm!("fcvtl2 {0:v}.4s, {1:v}.8h", out(vreg) out, in(vreg) x, options(pure, nomem, nostack, preserves_flags))
    };
    out
}

/// The sum of the lanes of each of four vectors.
#[inline(always)]
pub(super) fn join(x: [int32x4_t; 4]) -> int32x4_t {
    vpaddq_s32(vpaddq_s32(x[0], x[1]), vpaddq_s32(x[2], x[3]))
}

impl Bytes for Pair {
    type V = [uint8x16_t; 2];
    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> Self::V {
        must_cast(*bytes)
    }
    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> Self::V {
        let x = must_cast(*bytes);
        [vandq_u8(x, vdupq_n_u8(15)), vshrq_n_u8::<4>(x)]
    }
    #[inline(always)]
    fn words(self, [a, b, c, d]: [u64; 4]) -> Self::V {
        let two = |a, b| vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(a), vcreate_u64(b)));
        [two(a, b), two(c, d)]
    }
    #[inline(always)]
    fn splat(self, byte: u8) -> Self::V {
        [vdupq_n_u8(byte); 2]
    }
    #[inline(always)]
    fn or(self, a: Self::V, b: Self::V) -> Self::V {
        [vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])]
    }
    #[inline(always)]
    fn and(self, a: Self::V, b: Self::V) -> Self::V {
        [vandq_u8(a[0], b[0]), vandq_u8(a[1], b[1])]
    }
    #[inline(always)]
    fn xor(self, a: Self::V, b: Self::V) -> Self::V {
        [veorq_u8(a[0], b[0]), veorq_u8(a[1], b[1])]
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        [vaddq_u8(a[0], b[0]), vaddq_u8(a[1], b[1])]
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        [vsubq_u8(a[0], b[0]), vsubq_u8(a[1], b[1])]
    }
    #[inline(always)]
    fn shift(self, x: Self::V, left: i32, mask: u8) -> Self::V {
        let shifted = match left {
            -7 => x.map(|x| vshrq_n_u8::<7>(x)),
            -6 => x.map(|x| vshrq_n_u8::<6>(x)),
            -5 => x.map(|x| vshrq_n_u8::<5>(x)),
            -4 => x.map(|x| vshrq_n_u8::<4>(x)),
            -3 => x.map(|x| vshrq_n_u8::<3>(x)),
            -2 => x.map(|x| vshrq_n_u8::<2>(x)),
            -1 => x.map(|x| vshrq_n_u8::<1>(x)),
            0 => x,
            1 => x.map(|x| vshlq_n_u8::<1>(x)),
            2 => x.map(|x| vshlq_n_u8::<2>(x)),
            3 => x.map(|x| vshlq_n_u8::<3>(x)),
            _ => x.map(|x| vshlq_n_u8::<4>(x)),
        };
        // A right shift fills with zeros. If the mask keeps all other bits, it has no effect and is left out.
        if left < 0 && mask == 0xff >> -left { shifted } else { self.and(shifted, self.splat(mask)) }
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], x: Self::V) -> Self::V {
        let table = must_cast(*table);
        x.map(|x| vqtbl1q_u8(table, x))
    }
    #[inline(always)]
    fn spread(self, bits: u32) -> Self::V {
        // Each of the four bytes is copied to eight lanes; then each lane tests one bit.
        let bytes = vreinterpretq_u8_u32(vdupq_n_u32(bits));
        let bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
        let eight = |byte: u8| vdup_n_u8(byte);
        [[0, 1], [2, 3]].map(|[a, b]| vtstq_u8(vqtbl1q_u8(bytes, vcombine_u8(eight(a), eight(b))), bit))
    }
    #[inline(always)]
    fn at_least(self, x: Self::V, least: u8) -> Self::V {
        x.map(|x| vcgeq_u8(x, vdupq_n_u8(least)))
    }
}
