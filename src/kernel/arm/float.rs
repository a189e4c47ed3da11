//! Float arithmetic with the instructions of the floating-point unit: VFMA rounds once, VLDM loads several floats.

use core::arch::asm;
use core::mem::MaybeUninit;

use super::assembly::{ZEROS, fpu, unit};
use super::attention::sum;
use super::exp::exp;
use super::vectors::{add, copy, rotate_pairs};
use crate::kernel::lanes::Elements;
use crate::kernel::scalar::Unit;

/// The floating-point unit of a Cortex-M4F and its successors, and of 32-bit Arm processors with VFPv4.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Fpu;

/// The bits of an instruction's result for a float in `s0`.
macro_rules! of_one {
    ($instruction:literal, $x:expr) => {{
        let mut x = $x.to_bits();
        // SAFETY: uses registers only.
        unsafe {
            asm!(
                unit!(),
                "vmov s0, {x}",
                $instruction,
                "vmov {x}, s0",
                x = inout(reg) x,
                out("s0") _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        x
    }};
}

/// Multiplies sixteen or eight floats at `$a` with those at `$b`, and adds the products to the sums in s0 to s15. Moves
/// the pointers past these floats.
macro_rules! products {
    (16, $a:literal, $b:literal) => {
        concat!(
            products!(8, $a, $b),
            "vldmia ",
            $a,
            "!, {{s16-s23}}\n",
            "vldmia ",
            $b,
            "!, {{s24-s31}}\n",
            "vfma.f32 s8, s16, s24\n",
            "vfma.f32 s9, s17, s25\n",
            "vfma.f32 s10, s18, s26\n",
            "vfma.f32 s11, s19, s27\n",
            "vfma.f32 s12, s20, s28\n",
            "vfma.f32 s13, s21, s29\n",
            "vfma.f32 s14, s22, s30\n",
            "vfma.f32 s15, s23, s31\n",
        )
    };
    (8, $a:literal, $b:literal) => {
        concat!(
            "vldmia ",
            $a,
            "!, {{s16-s23}}\n",
            "vldmia ",
            $b,
            "!, {{s24-s31}}\n",
            "vfma.f32 s0, s16, s24\n",
            "vfma.f32 s1, s17, s25\n",
            "vfma.f32 s2, s18, s26\n",
            "vfma.f32 s3, s19, s27\n",
            "vfma.f32 s4, s20, s28\n",
            "vfma.f32 s5, s21, s29\n",
            "vfma.f32 s6, s22, s30\n",
            "vfma.f32 s7, s23, s31\n",
        )
    };
}

/// `to = a * b + c` for sixteen floats, rounded once.
///
/// # Safety
///
/// `a`, `b` and `c` point to 16 floats, and `to` has room for as many.
#[inline(always)]
pub(super) unsafe fn add_products(a: *const f32, b: *const f32, c: *const f32, to: *mut f32) {
    // SAFETY: reads and writes these floats only.
    unsafe {
        fpu!(
            "vldmia {c}, {{s0-s15}}",
            products!(16, "{a}", "{b}"),
            "vstmia {to}, {{s0-s15}}",
            ;
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            c = in(reg) c,
            to = in(reg) to,
        );
    }
}

// SAFETY: each block states what it reads and writes.
unsafe impl Unit for Fpu {
    #[cfg(cortex_m_fpu)]
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        let mut d = c.to_bits();
        // SAFETY: uses registers only.
        unsafe {
            asm!(
                "vmov s0, {d}",
                "vmov s1, s2, {a}, {b}",
                "vfma.f32 s0, s1, s2",
                "vmov {d}, s0",
                a = in(reg) a.to_bits(),
                b = in(reg) b.to_bits(),
                d = inout(reg) d,
                out("s0") _, out("s1") _, out("s2") _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        f32::from_bits(d)
    }

    #[cfg(arm_linux)]
    #[inline(always)]
    fn fma(a: f32, b: f32, mut c: f32) -> f32 {
        // SAFETY: uses registers only.
        unsafe {
            asm!(
                unit!(),
                "vfma.f32 {c}, {a}, {b}",
                a = in(sreg) a,
                b = in(sreg) b,
                c = inout(sreg) c,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        c
    }

    #[inline(always)]
    fn fma_lanes(a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        let mut out = MaybeUninit::<[f32; 16]>::uninit();
        // SAFETY: reads three arrays of 16 floats, and writes the whole result.
        unsafe {
            add_products(a.as_ptr(), b.as_ptr(), c.as_ptr(), out.as_mut_ptr().cast());
            out.assume_init()
        }
    }

    #[inline(always)]
    fn zero() -> [f32; 16] {
        let mut out = MaybeUninit::<[f32; 16]>::uninit();
        // SAFETY: reads 16 floats of `ZEROS`, and writes the whole result. (This is assembly, because the compiler
        // would call a function that clears byte by byte.)
        unsafe {
            fpu!(
                "vldmia {zeros}, {{s0-s15}}",
                "vstmia {out}, {{s0-s15}}",
                ;
                zeros = in(reg) ZEROS.as_ptr(),
                out = in(reg) out.as_mut_ptr(),
            );
            out.assume_init()
        }
    }

    #[inline(always)]
    fn sum(x: [f32; 16]) -> f32 {
        // SAFETY: `x` has 16 floats.
        unsafe { sum(x.as_ptr()) }
    }

    #[inline(always)]
    fn le_f16(bytes: [u8; 2]) -> f32 {
        let mut x = u32::from(u16::from_le_bytes(bytes));
        // SAFETY: uses registers only.
        unsafe {
            asm!(
                unit!(),
                "vmov s0, {x}",
                "vcvtb.f32.f16 s0, s0",
                "vmov {x}, s0",
                x = inout(reg) x,
                out("s0") _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        f32::from_bits(x)
    }

    #[cfg(arm_linux)]
    #[inline(always)]
    fn le_f16s(bytes: &[u8; 32]) -> [f32; 16] {
        let mut out = MaybeUninit::<[f32; 16]>::uninit();
        // SAFETY: reads 32 bytes, and writes the whole result. (No f16 becomes a denormal f32, which NEON would flush
        // to zero.)
        unsafe {
            fpu!(
                "vld1.8 {{d8-d11}}, [{bytes}]",
                "vcvt.f32.f16 q0, d8",
                "vcvt.f32.f16 q1, d9",
                "vcvt.f32.f16 q2, d10",
                "vcvt.f32.f16 q3, d11",
                "vstmia {out}, {{s0-s15}}",
                ;
                bytes = in(reg) bytes.as_ptr(),
                out = in(reg) out.as_mut_ptr(),
            );
            out.assume_init()
        }
    }

    #[inline(always)]
    fn to_f16(x: f32) -> [u8; 2] {
        (of_one!("vcvtb.f16.f32 s0, s0", x) as u16).to_le_bytes()
    }

    #[inline(always)]
    unsafe fn add_rows(
        elements: Elements,
        sums: &mut [f32; 16],
        rows: *const u8,
        stride: usize,
        x: *const f32,
        n: usize,
    ) {
        // SAFETY: the caller promises the same.
        unsafe { super::rows::add_rows(elements, sums, rows, stride, x, n) };
    }

    #[inline(always)]
    fn copy(x: &mut [f32], y: &[f32]) {
        // SAFETY: both slices have at least this many floats.
        unsafe { copy(x.as_mut_ptr(), y.as_ptr(), x.len().min(y.len())) };
    }

    #[inline(always)]
    fn add(x: &mut [f32], y: &[f32]) {
        // SAFETY: both slices have at least this many floats.
        unsafe { add(x.as_mut_ptr(), y.as_ptr(), x.len().min(y.len())) };
    }

    #[inline(always)]
    fn rotate_pairs(x: &mut [f32], dim: usize, cos: &[f32], sin: &[f32]) {
        let heads = x.len().checked_div(dim).unwrap_or(0);
        let pairs = (dim / 2).min(cos.len()).min(sin.len());
        if heads > 0 {
            // SAFETY: `x` has `heads * dim` floats, and `cos` and `sin` have `pairs` floats each.
            unsafe { rotate_pairs(x.as_mut_ptr(), (heads, dim), cos.as_ptr(), sin.as_ptr(), pairs) };
        }
    }

    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        f32::from_bits(of_one!("vsqrt.f32 s0, s0", x))
    }

    #[inline(always)]
    fn exp(x: &mut [f32; 16], less: f32) {
        // SAFETY: the array has four times four floats.
        unsafe { exp(x.as_mut_ptr(), less, 4) };
    }

    #[cfg(cortex_m_dsp)]
    #[inline(always)]
    fn quantize_block<const N: usize, const SUMS: usize>(x: &[f32; N], q: &mut [i8; N], sums: &mut [i16; SUMS]) -> f32 {
        super::quantize::quantize(x, q, sums)
    }
}
