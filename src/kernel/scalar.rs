//! The float kernels on an array of 16 f32: the reference for all tables, and the kernels of targets without SIMD.
//! Every other table computes the same bits.

use core::marker::PhantomData;
use core::ops::Range;

use super::lanes::{Elements, Isa, Lanes, Work};
use crate::quant;

/// Operations on numbers and rows for targets without SIMD. A target can replace them by instructions of its own. The
/// defaults are plain Rust, and the default fused multiply-add is computed with integers.
///
/// # Safety
///
/// The conditions of [`Isa`] hold.
pub(super) unsafe trait Unit: Copy {
    /// `a * b + c`, rounded once.
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        fma(a, b, c)
    }
    /// Returns `acc + f16 * scale * sum`, rounded only once. The caller ensures that the product `f16 * scale` is
    /// exact.
    #[inline(always)]
    fn add_scaled(f16: [u8; 2], scale: f32, sum: i32, acc: f32) -> f32 {
        #[cfg(all(any(target_arch = "arm", target_arch = "riscv32", target_arch = "xtensa"), not(arm_fpu)))]
        if cfg!(not(riscv_fpu)) {
            return super::fma::add_scaled(f16, scale, sum, acc);
        }
        Self::fma(Self::le_f16(f16) * scale, sum as f32, acc)
    }
    /// [`fma`](Self::fma) in each lane.
    #[inline(always)]
    fn fma_lanes(mut a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            *a = Self::fma(*a, b, c);
        }
        a
    }
    #[inline(always)]
    fn zero() -> [f32; 16] {
        [0.0; 16]
    }
    /// [`Lanes::sum`].
    #[inline(always)]
    fn sum(x: [f32; 16]) -> f32 {
        tree(x, |a, b| a + b)
    }
    /// Decodes a little-endian f16.
    #[inline(always)]
    fn le_f16(bytes: [u8; 2]) -> f32 {
        quant::le_f16(bytes)
    }
    /// Decodes sixteen little-endian f16.
    #[inline(always)]
    fn le_f16s(bytes: &[u8; 32]) -> [f32; 16] {
        bytemuck::must_cast_ref::<_, [[u8; 2]; 16]>(bytes).map(Self::le_f16)
    }
    /// Rounds `x` to a little-endian f16, to nearest even.
    #[inline(always)]
    fn to_f16(x: f32) -> [u8; 2] {
        half::f16::from_f32_const(x).to_le_bytes()
    }
    /// The same as [`Isa::add_rows`].
    ///
    /// # Safety
    ///
    /// The conditions of [`Isa::add_rows`] hold.
    #[inline(always)]
    unsafe fn add_rows(
        elements: Elements,
        sums: &mut [f32; 16],
        rows: *const u8,
        stride: usize,
        x: *const f32,
        n: usize,
    ) {
        for i in 0..n {
            // SAFETY: the caller promises row `i` and its factor.
            let (row, x) = unsafe { (Scalar::<Self>::HERE.load_row(elements, rows.add(i * stride)), *x.add(i)) };
            *sums = Self::fma_lanes(row.0, [x; 16], *sums);
        }
    }
    /// `x = y`, up to the shorter length.
    #[inline(always)]
    fn copy(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x = *y;
        }
    }
    /// `x += y`, up to the shorter length.
    #[inline(always)]
    fn add(x: &mut [f32], y: &[f32]) {
        for (x, y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }
    /// Rotates pairs. In every `dim` elements of `x`, each pair is multiplied by a complex number, whose real part is
    /// in `cos` and whose imaginary part is in `sin`. Stops at the end of the shortest slice.
    #[inline(always)]
    fn rotate_pairs(x: &mut [f32], dim: usize, cos: &[f32], sin: &[f32]) {
        for head in x.chunks_exact_mut(dim.max(1)) {
            for (([a, b], c), s) in head.as_chunks_mut().0.iter_mut().zip(cos).zip(sin) {
                (*a, *b) = (*a * c - *b * s, *a * s + *b * c);
            }
        }
    }
    /// The square root.
    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        libm::sqrtf(x)
    }
    /// `x = exp(x - less)`, in place: see [`Isa::exp`].
    #[inline(always)]
    fn exp(x: &mut [f32; 16], less: f32) {
        *x = super::lanes::exp(Scalar::<Self>::HERE, Array::new(x.map(|x| x - less))).0;
    }
    /// [`Isa::quantize_block`].
    #[inline(always)]
    fn quantize_block<const N: usize, const SUMS: usize>(x: &[f32; N], q: &mut [i8; N], sums: &mut [i16; SUMS]) -> f32 {
        super::lanes::quantize_block(Scalar::<Self>::HERE, x, q, sums)
    }
}

#[cfg(all(any(target_arch = "arm", target_arch = "riscv32", target_arch = "xtensa"), not(riscv_fpu)))]
use super::fma::fma;
/// The fused multiply-add of `libm`. These targets have instructions for doubles, so that this function is faster than
/// the one in integers.
#[cfg(not(any(target_arch = "arm", target_arch = "riscv32", target_arch = "xtensa")))]
use libm::fmaf as fma;

/// The instruction of RISC-V.
#[cfg(riscv_fpu)]
#[inline(always)]
fn fma(a: f32, b: f32, c: f32) -> f32 {
    let out;
    // SAFETY: uses registers only.
    unsafe {
        core::arch::asm!(
            "fmadd.s {out}, {a}, {b}, {c}",
            out = lateout(freg) out,
            a = in(freg) a,
            b = in(freg) b,
            c = in(freg) c,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
}

/// The defaults of [`Unit`], in plain Rust.
#[derive(Clone, Copy)]
pub(super) struct Portable;

// SAFETY: computes what the default methods do.
unsafe impl Unit for Portable {
    // On x86-64 and AArch64 the functions below are not inlined, because on these targets the scalar kernels are only a
    // reference, and inlining would lengthen compile time.
    #[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), inline(never))]
    #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), inline(always))]
    fn fma_lanes(mut a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
            *a = Self::fma(*a, b, c);
        }
        a
    }
    #[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), inline(never))]
    #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), inline(always))]
    fn exp(x: &mut [f32; 16], less: f32) {
        *x = super::lanes::exp(Scalar::<Self>::HERE, Array::new(x.map(|x| x - less))).0;
    }
}

#[cfg(cortex_m_fpu)]
pub(super) use super::arm::Fpu as Here;
/// The `Unit` of the processor for which this crate is compiled. It computes operations that belong to no table, and
/// the block formats of [`dot`](super::dot).
#[cfg(not(cortex_m_fpu))]
pub(super) use Portable as Here;

/// 1.5 * 2^23. The last bit of a float of this size is worth 1, so adding the constant to a small float rounds the
/// float to an integer, which is then in the low bits of the sum.
const INTEGERS: f32 = 12_582_912.0;

/// A processor without SIMD that is used like an instruction set with vectors. `U` has the few operations for which a
/// target may have its own instructions.
#[derive(Clone, Copy)]
pub(super) struct Scalar<U: Unit = Portable>(PhantomData<U>);

impl<U: Unit> Scalar<U> {
    /// The only value of this type.
    pub const HERE: Self = Self(PhantomData);
}

/// Sixteen f32 in an array.
#[derive(Clone, Copy)]
pub(super) struct Array<U: Unit>([f32; 16], PhantomData<U>);

impl<U: Unit> Array<U> {
    #[inline(always)]
    fn new(lanes: [f32; 16]) -> Self {
        Self(lanes, PhantomData)
    }

    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        Self::new(self.0.map(f))
    }

    #[inline(always)]
    fn zip(mut self, b: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        for (a, b) in self.0.iter_mut().zip(b.0) {
            *a = f(*a, b);
        }
        self
    }
}

// SAFETY: the methods need no special instructions, and every store writes a whole array.
unsafe impl<U: Unit> Isa for Scalar<U> {
    type V = Array<U>;
    const ROWS: usize = 1;

    #[inline(always)]
    unsafe fn new() -> Self {
        Self::HERE
    }
    #[inline(always)]
    fn apart<W: Work<Self>>(self, work: W) {
        #[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), inline(never))]
        #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), inline(always))]
        fn apart<S, W: Work<S>>(s: S, work: W) {
            work.run(s);
        }
        apart(self, work);
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Array<U> {
        Array::new([x; 16])
    }
    #[inline(always)]
    fn zero(self) -> Array<U> {
        Array::new(U::zero())
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> Array<U> {
        Array::new(*x)
    }
    #[inline(always)]
    fn load_f32(self, bytes: &[u8; 64]) -> Array<U> {
        Array::new(bytemuck::must_cast(*bytes))
    }
    #[inline(always)]
    fn load_f16(self, bytes: &[u8; 32]) -> Array<U> {
        Array::new(U::le_f16s(bytes))
    }
    #[inline(always)]
    fn load_bf16(self, bytes: &[u8; 32]) -> Array<U> {
        let halves: &[[u8; 2]; 16] = bytemuck::must_cast_ref(bytes);
        Array::new(halves.map(|half| half::bf16::from_le_bytes(half).to_f32_const()))
    }
    #[inline(always)]
    fn load_i8(self, bytes: &[u8; 16]) -> Array<U> {
        Array::new(bytes.map(|byte| f32::from(byte as i8)))
    }
    #[inline(always)]
    unsafe fn add_rows(
        self,
        elements: Elements,
        mut sums: Array<U>,
        rows: *const u8,
        stride: usize,
        x: *const f32,
        n: usize,
    ) -> Array<U> {
        // SAFETY: the caller promises the same.
        unsafe { U::add_rows(elements, &mut sums.0, rows, stride, x, n) };
        sums
    }
    #[inline(always)]
    fn exp(self, mut x: Array<U>) -> Array<U> {
        U::exp(&mut x.0, 0.0);
        x
    }
    #[inline(always)]
    fn quantize_block<const N: usize, const SUMS: usize>(
        self,
        x: &[f32; N],
        q: &mut [i8; N],
        sums: &mut [i16; SUMS],
    ) -> f32 {
        U::quantize_block(x, q, sums)
    }
    #[inline(always)]
    unsafe fn scale(self, at: *mut f32, factor: f32, lanes: Range<usize>, top: &mut Array<U>) {
        // Only one lane of `top` is updated with the maximum. This suffices, because the caller only uses the largest
        // lane.
        let [top, ..] = &mut top.0;
        for i in lanes {
            // SAFETY: the caller promises 16 floats.
            let score = unsafe { &mut *at.add(i) };
            *score *= factor;
            *top = if *top > *score { *top } else { *score };
        }
    }
    #[inline(always)]
    unsafe fn softmax(self, at: *mut f32, best: f32, lanes: Range<usize>, total: &mut Array<U>) {
        // SAFETY: the caller promises 16 floats.
        let scores: &mut [f32; 16] = unsafe { &mut *at.cast() };
        U::exp(scores, best);
        for (total, weight) in total.0.iter_mut().zip(scores).take(lanes.end).skip(lanes.start) {
            *total += *weight;
        }
    }
    #[inline(always)]
    fn round_to_f16(self, x: f32) -> f32 {
        U::le_f16(U::to_f16(x))
    }
}

impl<U: Unit> Lanes for Array<U> {
    #[inline(always)]
    fn store(self, to: &mut [f32; 16]) {
        *to = self.0;
    }
    #[inline(always)]
    fn store_f16(self, to: &mut [u8; 32]) {
        *to = bytemuck::must_cast(self.0.map(U::to_f16));
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8; 16]) {
        *to = self.0.map(|x| (x + INTEGERS).to_bits() as i8);
    }

    #[inline(always)]
    fn add(self, b: Self) -> Self {
        self.zip(b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        self.zip(b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        self.zip(b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        self.zip(b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        Self::new(U::fma_lanes(self.0, b.0, c.0))
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        self.zip(b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        self.zip(b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn abs(self) -> Self {
        self.map(f32::abs)
    }
    #[inline(always)]
    fn round(self) -> Self {
        self.map(|x| (x + INTEGERS) - INTEGERS)
    }
    #[inline(always)]
    fn exp2i(self) -> Self {
        self.map(|n| f32::from_bits(((n as i32 + 127) << 23) as u32))
    }
    #[inline(always)]
    fn select(mut self, mask: u16, other: Self) -> Self {
        for (i, (a, b)) in self.0.iter_mut().zip(other.0).enumerate() {
            if mask >> i & 1 == 0 {
                *a = b;
            }
        }
        self
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        U::sum(self.0)
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        let mut top = f32::NEG_INFINITY;
        for x in self.0 {
            top = if top > x { top } else { x };
        }
        top
    }
}

/// Combines lane `i` with lane `i + 8`, then with lane `i + 4`, then `i + 2`, then `i + 1`.
#[inline(always)]
fn tree(mut x: [f32; 16], f: impl Fn(f32, f32) -> f32) -> f32 {
    for half in [8, 4, 2, 1] {
        let Some((low, high)) = x.split_at_mut_checked(half) else { break };
        for (a, &b) in low.iter_mut().zip(high.iter()) {
            *a = f(*a, b);
        }
    }
    x[0]
}
