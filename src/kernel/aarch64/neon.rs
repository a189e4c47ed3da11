//! NEON: sixteen floats in four registers, and dot products of bytes by widening multiplication.

use super::safe::*;
use core::arch::asm;
use core::ops::Range;

use bytemuck::must_cast;

use super::blocks::Dot;
use super::bytes::{high_halves, join, low_halves};
use super::panel::Along;
use crate::kernel::lanes::{Isa, Lanes, Work};

/// NEON, which every target that compiles this module has.
#[derive(Clone, Copy)]
pub(super) struct Neon;

/// Sixteen f32 in four registers.
#[derive(Clone, Copy)]
pub(super) struct Floats([float32x4_t; 4]);

impl Floats {
    #[inline(always)]
    fn map(self, f: impl Fn(float32x4_t) -> float32x4_t) -> Self {
        let [a, b, c, d] = self.0;
        Self([f(a), f(b), f(c), f(d)])
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(float32x4_t, float32x4_t) -> float32x4_t) -> Self {
        let ([a, b, c, d], [e, g, h, i]) = (self.0, other.0);
        Self([f(a, e), f(b, g), f(c, h), f(d, i)])
    }
}

/// Rounds eight f32 to f16, to nearest even.
#[inline(always)]
fn to_halves(low: float32x4_t, high: float32x4_t) -> uint16x8_t {
    let out;
    // SAFETY: computes in registers, by instructions of NEON.
    unsafe {
        asm!(
            "fcvtn {0:v}.4h, {1:v}.4s",
            "fcvtn2 {0:v}.8h, {2:v}.4s",
            out(vreg) out,
            in(vreg) low,
            in(vreg) high,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
}

// SAFETY: every store method of `Floats` writes the whole array.
unsafe impl Isa for Neon {
    type V = Floats;
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn new() -> Self {
        Self
    }
    #[inline(always)]
    fn apart<W: Work<Self>>(self, work: W) {
        #[inline(never)]
        fn apart<W: Work<Neon>>(work: W) {
            work.run(Neon);
        }
        apart(work);
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Floats {
        Floats([vdupq_n_f32(x); 4])
    }
    #[inline(always)]
    fn load_f32(self, bytes: &[u8; 64]) -> Floats {
        Floats(must_cast(*bytes))
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8; 32]) -> Floats {
        let [a, b] = must_cast(*bytes);
        Floats([low_halves(a), high_halves(a), low_halves(b), high_halves(b)])
    }
    /// A bf16 is the upper half of an f32.
    #[inline(always)]
    fn load_bf16(self, bytes: &[u8; 32]) -> Floats {
        let [a, b] = must_cast(*bytes);
        let wide = [
            vshll_n_u16::<16>(vget_low_u16(a)),
            vshll_high_n_u16::<16>(a),
            vshll_n_u16::<16>(vget_low_u16(b)),
            vshll_high_n_u16::<16>(b),
        ];
        Floats(wide.map(|x| vreinterpretq_f32_u32(x)))
    }
    #[inline(always)]
    fn load_i8(self, bytes: &[u8; 16]) -> Floats {
        let x = must_cast(*bytes);
        let (a, b) = (vmovl_s8(vget_low_s8(x)), vmovl_high_s8(x));
        let wide = [vmovl_s16(vget_low_s16(a)), vmovl_high_s16(a), vmovl_s16(vget_low_s16(b)), vmovl_high_s16(b)];
        Floats(wide.map(|x| vcvtq_f32_s32(x)))
    }
    #[inline(always)]
    fn round_to_f16(self, x: f32) -> f32 {
        let out;
        // SAFETY: computes in registers, by instructions of NEON.
        unsafe {
            asm!(
                "fcvt {out:h}, {x:s}",
                "fcvt {out:s}, {out:h}",
                out = out(vreg) out,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        out
    }
}

impl Lanes for Floats {
    #[inline(always)]
    fn store(self, to: &mut [f32; 16]) {
        *to = must_cast(self.0);
    }
    #[inline(always)]
    fn store_f16(self, to: &mut [u8; 32]) {
        let [a, b, c, d] = self.0;
        *to = must_cast([to_halves(a, b), to_halves(c, d)]);
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8; 16]) {
        let [a, b, c, d] = self.0.map(|x| vcvtq_s32_f32(x));
        let low = vqmovn_high_s32(vqmovn_s32(a), b);
        let high = vqmovn_high_s32(vqmovn_s32(c), d);
        *to = must_cast(vqmovn_high_s16(vqmovn_s16(low), high));
    }

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.zip(b, |a, b| vaddq_f32(a, b))
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        self.zip(b, |a, b| vsubq_f32(a, b))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.zip(b, |a, b| vmulq_f32(a, b))
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        self.zip(b, |a, b| vdivq_f32(a, b))
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        let ([a0, a1, a2, a3], [b0, b1, b2, b3], [c0, c1, c2, c3]) = (self.0, b.0, c.0);
        Self([vfmaq_f32(c0, a0, b0), vfmaq_f32(c1, a1, b1), vfmaq_f32(c2, a2, b2), vfmaq_f32(c3, a3, b3)])
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        self.zip(b, |a, b| vmaxq_f32(a, b))
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        self.zip(b, |a, b| vminq_f32(a, b))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        self.map(|x| vabsq_f32(x))
    }
    #[inline(always)]
    fn round(self) -> Self {
        self.map(|x| vrndnq_f32(x))
    }
    #[inline(always)]
    fn exp2i(self) -> Self {
        self.map(|x| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(x), vdupq_n_s32(127)))))
    }
    #[inline(always)]
    fn select(self, mask: u16, other: Self) -> Self {
        const BITS: [[u32; 4]; 4] =
            [[1, 2, 4, 8], [16, 32, 64, 128], [256, 512, 1024, 2048], [4096, 8192, 16384, 32768]];
        let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (self.0, other.0);
        let mask = vdupq_n_u32(mask.into());
        let [m0, m1, m2, m3] = BITS.map(|bits| vtstq_u32(mask, must_cast(bits)));
        Self([vbslq_f32(m0, a0, b0), vbslq_f32(m1, a1, b1), vbslq_f32(m2, a2, b2), vbslq_f32(m3, a3, b3)])
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        let [a, b, c, d] = self.0;
        let four = vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d));
        vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        let [a, b, c, d] = self.0;
        vmaxvq_f32(vmaxq_f32(vmaxq_f32(a, c), vmaxq_f32(b, d)))
    }
}

/// Dot products by widening multiplication. The i16 sums of two products are exact, and so are the i32 sums.
#[derive(Clone, Copy)]
pub(super) struct Widening;

impl Dot for Widening {
    #[inline(always)]
    unsafe fn new() -> Self {
        Self
    }

    /// Quants are at least -127, so the sum of two products fits an i16. The products are one block of assembly,
    /// because otherwise the compiler would interleave the products of all rows and run out of registers.
    #[inline(always)]
    fn dot(self, sums: int32x4_t, w: [int8x16_t; 2], x: [int8x16_t; 2]) -> int32x4_t {
        let out;
        // SAFETY: computes in registers, by instructions of NEON.
        unsafe {
            asm!(
                "smull {a:v}.8h, {w0:v}.8b, {x0:v}.8b",
                "smull {b:v}.8h, {w1:v}.8b, {x1:v}.8b",
                "smlal2 {a:v}.8h, {w0:v}.16b, {x0:v}.16b",
                "smlal2 {b:v}.8h, {w1:v}.16b, {x1:v}.16b",
                "sadalp {sums:v}.4s, {a:v}.8h",
                "sadalp {sums:v}.4s, {b:v}.8h",
                a = out(vreg) _,
                b = out(vreg) _,
                sums = inout(vreg) sums => out,
                w0 = in(vreg) w[0],
                w1 = in(vreg) w[1],
                x0 = in(vreg) x[0],
                x1 = in(vreg) x[1],
                options(nomem, nostack, preserves_flags)
            );
        }
        out
    }

    #[inline(always)]
    fn dot16(self, sums: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        vpadalq_s16(sums, vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(x)), w, x))
    }
}

/// The rows of a panel are stored one after the other, as in the file. An instruction multiplies consecutive weights of
/// one row.
// SAFETY: `put` writes the 128 bytes of four rows; `products` reads the codes of eight rows and the quants that
// `halves` selects.
unsafe impl Along for Widening {
    #[inline(always)]
    fn put(to: &mut [u8; 128], rows: [[int8x16_t; 2]; 4]) {
        *to = must_cast(rows);
    }

    #[inline(always)]
    unsafe fn products<const T: usize>(w: *const u8, q: [*const i8; T], halves: Range<usize>) -> [[int32x4_t; 2]; T] {
        // SAFETY: the caller promises the codes and the quants.
        unsafe {
            let w: *const i8 = w.cast();
            let mut sums = [[vdupq_n_s32(0); 2]; T];
            for four in 0..2 {
                let row = |r: usize, half: usize| vld1q_s8(w.add(four * 128 + r * 32 + half * 16));
                if halves.len() == 2 {
                    let rows: [_; 4] = core::array::from_fn(|r| [row(r, 0), row(r, 1)]);
                    for (sums, q) in sums.iter_mut().zip(q) {
                        let quants = [vld1q_s8(q), vld1q_s8(q.add(16))];
                        sums[four] = join(rows.map(|w| Widening.dot(vdupq_n_s32(0), w, quants)));
                    }
                } else {
                    let rows: [_; 4] = core::array::from_fn(|r| row(r, halves.start));
                    for (sums, q) in sums.iter_mut().zip(q) {
                        let quants = vld1q_s8(q.add(halves.start * 16));
                        sums[four] = join(rows.map(|w| Widening.dot16(vdupq_n_s32(0), w, quants)));
                    }
                }
            }
            sums
        }
    }
}
