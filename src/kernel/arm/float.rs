//! Float arithmetic with the instructions of the unit: VFMA rounds once, VLDM loads several floats.

use core::arch::asm;
use core::mem::MaybeUninit;

use super::attention::sum;
use super::exp::{exp, silu};
use super::plain;
use super::vectors::{self, add, copy, rotate_pairs};
use crate::kernel::cache::{self, Place};
use crate::kernel::scalar::{Scalar, Unit};
use crate::kernel::{Activation, float};
use crate::memory::KvType;

/// The floating-point unit of a Cortex-M4F and its successors, and the one beside NEON.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Fpu;

/// Enables instructions in the assembler that are detected at run time.
#[cfg(arm_linux)]
macro_rules! unit {
    () => {
        ".fpu neon-vfpv4"
    };
}
/// Empty, because the target has the instructions.
#[cfg(not(arm_linux))]
macro_rules! unit {
    () => {
        ""
    };
}
pub(super) use unit;

/// For code that takes addresses of its own labels. The assembler computes them relative to a word boundary, but
/// functions may begin at a half word.
macro_rules! on_words {
    () => {
        ".p2align 2"
    };
}
pub(super) use on_words;

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

/// `asm!` that clobbers all registers of the unit.
macro_rules! fpu {
    ($($code:expr,)* ; $($operands:tt)*) => {
        asm!(
            $crate::kernel::arm::float::unit!(),
            $($code,)*
            $($operands)*
            out("s0") _, out("s1") _, out("s2") _, out("s3") _, out("s4") _, out("s5") _, out("s6") _, out("s7") _,
            out("s8") _, out("s9") _, out("s10") _, out("s11") _, out("s12") _, out("s13") _, out("s14") _,
            out("s15") _, out("s16") _, out("s17") _, out("s18") _, out("s19") _, out("s20") _, out("s21") _,
            out("s22") _, out("s23") _, out("s24") _, out("s25") _, out("s26") _, out("s27") _, out("s28") _,
            out("s29") _, out("s30") _, out("s31") _,
            options(nostack),
        )
    };
}
pub(super) use fpu;

/// Sixteen multiply-adds of the floats at two pointers, which move on; or eight.
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

/// Adds a register to each of several others.
macro_rules! sums {
    ($($x:literal $y:literal),*) => { concat!($("vadd.f32 ", $x, ", ", $x, ", ", $y, "\n",)*) };
}
pub(super) use sums;

/// Joins sixteen sums into the first register: those of the lower lanes, then those of the upper; s0 to s15 by default.
macro_rules! tree {
    () => {
        tree!("s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7", "s8" "s9" "s10" "s11" "s12" "s13" "s14" "s15")
    };
    (
        $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal $h:literal,
        $i:literal $j:literal $k:literal $l:literal $m:literal $n:literal $o:literal $p:literal
    ) => {
        concat!(
            sums!($a $i, $b $j, $c $k, $d $l, $e $m, $f $n, $g $o, $h $p),
            sums!($a $e, $b $f, $c $g, $d $h),
            sums!($a $c, $b $d),
            sums!($a $b),
        )
    };
}
pub(super) use tree;

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
        // SAFETY: reads three arrays of 16, and writes the whole result.
        unsafe {
            fpu!(
                "vldmia {c}, {{s0-s15}}",
                products!(16, "{a}", "{b}"),
                "vstmia {out}, {{s0-s15}}",
                ;
                a = inout(reg) a.as_ptr() => _,
                b = inout(reg) b.as_ptr() => _,
                c = in(reg) c.as_ptr(),
                out = in(reg) out.as_mut_ptr(),
            );
            out.assume_init()
        }
    }

    #[inline(always)]
    fn zero() -> [f32; 16] {
        let mut out = MaybeUninit::<[f32; 16]>::uninit();
        // SAFETY: reads 16 floats of `ZEROS`, and writes the whole result. (The compiler would call a loop that clears
        // bytes.)
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
            // SAFETY: `x` has `heads * dim` floats, and `cos` and `sin` have `pairs`.
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

/// [`Kernels::activate`](crate::kernel::Kernels): SiLU in assembly, the other functions over [`Fpu`].
pub(super) unsafe fn activate(f: Activation, x: &mut [f32], up: Option<&[f32]>) {
    if !float::is_silu(f) {
        return other_activation(f, x, up);
    }
    let len = up.map_or(x.len(), |up| up.len().min(x.len()));
    // Floats after the last whole four are computed one by one, and so are all floats if there is no `up`.
    let whole = if up.is_some() { len & !3 } else { 0 };
    let x = x.as_mut_ptr();
    // SAFETY: `x` has at least `len` floats, and so has `up`.
    unsafe {
        if let (Some(up), 4..) = (up, whole) {
            silu(x, up.as_ptr(), whole / 4);
        }
        for i in whole..len {
            let (mut four, up) = ([*x.add(i); 4], [up.map_or(1.0, |up| *up.as_ptr().add(i)); 4]);
            silu(four.as_mut_ptr(), up.as_ptr(), 1);
            *x.add(i) = four[0];
        }
    }
}

#[inline(never)]
fn other_activation(f: Activation, x: &mut [f32], up: Option<&[f32]>) {
    float::activate(Scalar::<Fpu>::HERE, f, x, up);
}

/// [`Kernels::rms_norm`](crate::kernel::Kernels).
pub(super) unsafe fn rms_norm(x: &mut [f32], weight: &[u8], eps: f32) {
    let fits = x.len().is_multiple_of(16)
        && !x.is_empty()
        && weight.len() == 4 * x.len()
        && weight.as_ptr().addr().is_multiple_of(4);
    if fits {
        // SAFETY: the length is a multiple of 16 and not 0, and there are as many aligned weights.
        unsafe { vectors::rms_norm(x.as_mut_ptr(), weight.as_ptr(), x.len(), eps) };
    } else {
        plain::rms_norm(x, weight, eps);
    }
}

/// [`Kernels::store_floats`](crate::kernel::Kernels).
pub(super) unsafe fn store_floats(at: &Place, tiles: &mut [u8], keys: &[f32], values: &[f32]) {
    if const { KvType::F32.is_built() } && !store_fast(at, tiles, keys, values) {
        cache::store_floats(at, tiles, keys, values);
    }
}

/// Stores keys and values of a `dim` that is a multiple of four. Returns false for others, and if a slice is too short.
fn store_fast(at: &Place, tiles: &mut [u8], keys: &[f32], values: &[f32]) -> bool {
    let Some(Ok(tiles)) = tiles.get_mut(at.start..).map(bytemuck::try_cast_slice_mut::<_, f32>) else { return false };
    let (dim, slot, apart) = (at.layout.dim, at.slot, at.head_bytes / 4);
    let width = dim.next_multiple_of(16);
    let (tile, count) = (16 * (dim + width), |numbers: &[f32]| numbers.len().checked_div(dim).unwrap_or(0));
    let heads = count(keys).min(count(values)).min(tiles.len().div_ceil(apart.max(1)));
    let fits = heads > 0
        && dim.is_multiple_of(4)
        && slot < 16
        && !at.layout.shares()
        && tile <= apart.min(tiles.len())
        && (heads - 1) * apart <= tiles.len() - tile;
    if fits {
        // SAFETY: `keys` and `values` have `heads * dim` floats, the last head's tile ends inside `tiles`, and the
        // conditions on `dim`, `slot` and `heads` are checked above.
        unsafe {
            vectors::store_kv((keys.as_ptr(), values.as_ptr()), tiles.as_mut_ptr(), (heads, apart), (dim, width), slot)
        };
    }
    fits
}

/// The start values of sums.
pub(super) static ZEROS: [f32; 16] = [0.0; 16];
