//! Sixteen floats in four vectors, and the fused multiply-add that WebAssembly lacks.

use core::arch::wasm32::*;

use crate::kernel::lanes::{Isa, Lanes};

/// WebAssembly's instructions for 128-bit vectors. This whole module is compiled for them.
#[derive(Clone, Copy)]
pub(super) struct Simd128;

/// Sixteen f32 in four vectors.
#[derive(Clone, Copy)]
pub(super) struct Floats([v128; 4]);

impl Floats {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(v128, v128) -> v128) -> Self {
        let ([a, b, c, d], [e, g, h, i]) = (self.0, other.0);
        Self([f(a, e), f(b, g), f(c, h), f(d, i)])
    }
}

/// Moves the second half of a vector to the first.
#[inline(always)]
fn upper(x: v128) -> v128 {
    i64x2_shuffle::<1, 1>(x, x)
}

/// Returns `a * b + c` of four f32, computed in f64, and a vector that is not zero in lanes where rounding twice may
/// give a different result than rounding once.
///
/// In f64 the product is exact, so the sum is rounded to 53 bits and then to 24. The result may differ from rounding
/// once in only two cases: the sum, rounded to 53 bits, is exactly between two f32, or it is so small that an f32 has
/// fewer than 24 bits.
#[inline(always)]
fn fma_but(a: v128, b: v128, c: v128) -> (v128, v128) {
    let wide = |a, b, c| {
        f64x2_add(f64x2_mul(f64x2_promote_low_f32x4(a), f64x2_promote_low_f32x4(b)), f64x2_promote_low_f32x4(c))
    };
    let (first, second) = (wide(a, b, c), wide(upper(a), upper(b), upper(c)));
    let result = i64x2_shuffle::<0, 2>(f32x4_demote_f64x2_zero(first), f32x4_demote_f64x2_zero(second));
    let ends = i32x4_shuffle::<0, 2, 4, 6>(first, second);
    let middle = i32x4_eq(v128_and(ends, i32x4_splat(0x1fff_ffff)), i32x4_splat(0x1000_0000));
    // A lane is small if its sum is below 2^-126 but not 0. `magnitude` is the upper half of the f64, shifted to drop
    // the sign bit; it is 0x7020_0000 for 2^-126. The code subtracts 1 from both sides of the comparison, so that 0
    // becomes the largest value. Then it flips the highest bit of both sides, so that the signed comparison compares
    // them as unsigned.
    let magnitude = i32x4_shl(i32x4_shuffle::<1, 3, 5, 7>(first, second), 1);
    let small = i32x4_lt(i32x4_add(magnitude, i32x4_splat(0x7fff_ffff)), i32x4_splat(0x7020_0000 - 1 + i32::MIN));
    (result, v128_or(middle, small))
}

/// `a * b + c` of four f32, rounded once.
#[inline(always)]
pub(super) fn fma(a: v128, b: v128, c: v128) -> v128 {
    let (result, unsure) = fma_but(a, b, c);
    if v128_any_true(unsure) { each(a, b, c) } else { result }
}

/// [`fma`] lane by lane.
#[cold]
#[inline(never)]
fn each(a: v128, b: v128, c: v128) -> v128 {
    macro_rules! lane {
        ($i:literal) => {
            libm::fmaf(f32x4_extract_lane::<$i>(a), f32x4_extract_lane::<$i>(b), f32x4_extract_lane::<$i>(c))
        };
    }
    f32x4(lane!(0), lane!(1), lane!(2), lane!(3))
}

/// Converts four f16 to f32. Each f16 is in the lower half of 32 bits. A multiplication corrects the exponents, also of
/// subnormals. Infinity and NaN are corrected separately.
#[inline(always)]
pub(super) fn from_f16(halves: v128) -> v128 {
    let magnitude = i32x4_shl(v128_and(halves, i32x4_splat(0x7fff)), 13);
    let sign = i32x4_shl(v128_and(halves, i32x4_splat(0x8000)), 16);
    let number = f32x4_mul(magnitude, f32x4_splat(5.192_296_9e33)); // 2^112
    let special = v128_and(i32x4_gt(magnitude, i32x4_splat(0x0f7f_ffff)), i32x4_splat(0x7f80_0000));
    v128_or(v128_or(number, sign), special)
}

/// Loads sixteen 16-bit words to 32-bit lanes.
#[inline(always)]
fn words(bytes: &[u8; 32]) -> [v128; 4] {
    let p: *const u8 = bytes.as_ptr();
    // SAFETY: loads four times eight of the 32 bytes.
    unsafe { [0, 8, 16, 24].map(|at| u32x4_load_extend_u16x4(p.add(at).cast())) }
}

/// 1.5 * 2^23. The last bit of a float of this size is worth 1, so adding the constant to a small float leaves an
/// integer in the low bits.
const INTEGERS: f32 = 12_582_912.0;

// SAFETY: the module is compiled for vectors, and every store method of `Floats` writes the whole array.
unsafe impl Isa for Simd128 {
    type V = Floats;
    const ROWS: usize = 2;

    #[inline(always)]
    unsafe fn new() -> Self {
        Self
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Floats {
        Floats([f32x4_splat(x); 4])
    }
    #[inline(always)]
    fn load_f32(self, bytes: &[u8; 64]) -> Floats {
        let p: *const v128 = bytes.as_ptr().cast();
        // SAFETY: loads the 64 bytes as four vectors of 16; vectors may be loaded from any address.
        Floats(unsafe { [v128_load(p), v128_load(p.add(1)), v128_load(p.add(2)), v128_load(p.add(3))] })
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8; 32]) -> Floats {
        Floats(words(bytes).map(from_f16))
    }
    /// A bf16 is the upper half of an f32.
    #[inline(always)]
    fn load_bf16(self, bytes: &[u8; 32]) -> Floats {
        Floats(words(bytes).map(|x| i32x4_shl(x, 16)))
    }
    #[inline(always)]
    fn load_i8(self, bytes: &[u8; 16]) -> Floats {
        let p = bytes.as_ptr();
        // SAFETY: loads twice eight of the 16 bytes.
        let (a, b) = unsafe { (i16x8_load_extend_i8x8(p.cast()), i16x8_load_extend_i8x8(p.add(8).cast())) };
        let wide = [a, b].map(|x| [i32x4_extend_low_i16x8(x), i32x4_extend_high_i16x8(x)]);
        Floats([wide[0][0], wide[0][1], wide[1][0], wide[1][1]].map(|x| f32x4_convert_i32x4(x)))
    }
}

impl Lanes for Floats {
    #[inline(always)]
    fn store(self, to: &mut [f32; 16]) {
        let p: *mut v128 = to.as_mut_ptr().cast();
        for (i, x) in self.0.into_iter().enumerate() {
            // SAFETY: stores the 16 floats as four vectors of four; vectors may be stored to any address.
            unsafe { v128_store(p.add(i), x) };
        }
    }
    #[inline(always)]
    fn store_f16(self, to: &mut [u8; 32]) {
        let mut x = [0.0; 16];
        self.store(&mut x);
        *to = bytemuck::must_cast(x.map(|x| half::f16::from_f32_const(x).to_le_bytes()));
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8; 16]) {
        let [a, b, c, d] =
            self.0.map(|x| i32x4_sub(f32x4_add(x, f32x4_splat(INTEGERS)), i32x4_splat(INTEGERS.to_bits() as i32)));
        let bytes = i8x16_narrow_i16x8(i16x8_narrow_i32x4(a, b), i16x8_narrow_i32x4(c, d));
        // SAFETY: stores the 16 bytes.
        unsafe { v128_store(to.as_mut_ptr().cast(), bytes) };
    }

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.zip(b, |a, b| f32x4_add(a, b))
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        self.zip(b, |a, b| f32x4_sub(a, b))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.zip(b, |a, b| f32x4_mul(a, b))
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        self.zip(b, |a, b| f32x4_div(a, b))
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        let ([a0, a1, a2, a3], [b0, b1, b2, b3], [c0, c1, c2, c3]) = (self.0, b.0, c.0);
        let [(w, i), (x, j), (y, k), (z, l)] =
            [fma_but(a0, b0, c0), fma_but(a1, b1, c1), fma_but(a2, b2, c2), fma_but(a3, b3, c3)];
        if v128_any_true(v128_or(v128_or(i, j), v128_or(k, l))) {
            return Self([each(a0, b0, c0), each(a1, b1, c1), each(a2, b2, c2), each(a3, b3, c3)]);
        }
        Self([w, x, y, z])
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        self.zip(b, |a, b| f32x4_pmax(b, a))
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        self.zip(b, |a, b| f32x4_pmin(b, a))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.map(|x| f32x4_abs(x)))
    }
    #[inline(always)]
    fn round(self) -> Self {
        Self(self.0.map(|x| f32x4_nearest(x)))
    }
    #[inline(always)]
    fn exp2i(self) -> Self {
        // The shift removes the upper bits of `INTEGERS`.
        Self(self.0.map(|x| i32x4_shl(i32x4_add(f32x4_add(x, f32x4_splat(INTEGERS)), i32x4_splat(127)), 23)))
    }
    #[inline(always)]
    fn select(self, mask: u16, other: Self) -> Self {
        let mask = i32x4_splat(mask.into());
        let bits =
            [i32x4(1, 2, 4, 8), i32x4(16, 32, 64, 128), i32x4(256, 512, 1024, 2048), i32x4(4096, 8192, 16384, 32768)];
        let mut all = self.0;
        for ((a, b), bits) in all.iter_mut().zip(other.0).zip(bits) {
            *a = v128_bitselect(*a, b, i32x4_eq(v128_and(mask, bits), bits));
        }
        Self(all)
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        let [a, b, c, d] = self.0;
        let four = f32x4_add(f32x4_add(a, c), f32x4_add(b, d));
        let two = f32x4_add(four, upper(four));
        f32x4_extract_lane::<0>(two) + f32x4_extract_lane::<1>(two)
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        let [a, b, c, d] = self.0;
        let four = f32x4_pmax(f32x4_pmax(a, c), f32x4_pmax(b, d));
        let two = f32x4_pmax(four, upper(four));
        let (a, b) = (f32x4_extract_lane::<0>(two), f32x4_extract_lane::<1>(two));
        if a > b { a } else { b }
    }
}
