//! Float arithmetic by the unit's own instructions: VFMA rounds once, VLDM brings eight numbers.

use core::arch::asm;
use core::mem::MaybeUninit;
use core::ops::Range;

use super::attention::{add_rows, largest, multiply, scores, sum};
use super::exp::{exp, silu, softmax};
use super::plain;
use crate::kernel::scalar::Unit;

/// The floating-point unit of a Cortex-M4F and its successors, and the one beside NEON.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Fpu;

/// Tells the assembler of what is found at run time.
#[cfg(arm_linux)]
macro_rules! unit {
    () => {
        ".fpu neon-vfpv4"
    };
}
/// The target has the unit.
#[cfg(not(arm_linux))]
macro_rules! unit {
    () => {
        ""
    };
}
pub(super) use unit;

/// For what takes addresses of its own code: the assembler counts them from a boundary of a word, and has to know where that
/// is, for functions begin at half words.
macro_rules! on_words {
    () => {
        ".p2align 2"
    };
}
pub(super) use on_words;

/// The bits of what an instruction makes of a number in `s0`.
macro_rules! of_one {
    ($instruction:literal, $x:expr) => {{
        let mut x = $x.to_bits();
        // SAFETY: registers only.
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

/// `asm!` that changes all registers of the unit.
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

/// Sixteen multiply-adds of what lies at two pointers, which move on; or the first eight.
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

/// A square to each sum.
macro_rules! squares {
    ($($sum:literal $x:literal),*) => { concat!($("vfma.f32 ", $sum, ", ", $x, ", ", $x, "\n",)*) };
}

/// Numbers times s0 and a weight.
macro_rules! scaled {
    ($($x:literal $w:literal),*) => {
        concat!($("vmul.f32 ", $x, ", ", $x, ", s0\n",)* $("vmul.f32 ", $x, ", ", $x, ", ", $w, "\n",)*)
    };
}

/// Joins sixteen sums in s0.
macro_rules! tree {
    () => {
        concat!(
            "vadd.f32 s0, s0, s8\n",
            "vadd.f32 s1, s1, s9\n",
            "vadd.f32 s2, s2, s10\n",
            "vadd.f32 s3, s3, s11\n",
            "vadd.f32 s4, s4, s12\n",
            "vadd.f32 s5, s5, s13\n",
            "vadd.f32 s6, s6, s14\n",
            "vadd.f32 s7, s7, s15\n",
            "vadd.f32 s0, s0, s4\n",
            "vadd.f32 s1, s1, s5\n",
            "vadd.f32 s2, s2, s6\n",
            "vadd.f32 s3, s3, s7\n",
            "vadd.f32 s0, s0, s2\n",
            "vadd.f32 s1, s1, s3\n",
            "vadd.f32 s0, s0, s1\n",
        )
    };
}
pub(super) use tree;

// SAFETY: each block says what it reads and writes.
unsafe impl Unit for Fpu {
    #[cfg(cortex_m_fpu)]
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        let mut d = c.to_bits();
        // SAFETY: registers only.
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
        // SAFETY: registers only.
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
        // SAFETY: three arrays of 16, and the whole result is written.
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
        // SAFETY: 16 numbers from there to here. The compiler would call a loop that clears bytes.
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
        // SAFETY: 16 numbers from there.
        unsafe { sum(x.as_ptr()) }
    }

    #[inline(always)]
    fn le_f16(bytes: [u8; 2]) -> f32 {
        let mut x = u32::from(u16::from_le_bytes(bytes));
        // SAFETY: registers only.
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
        // SAFETY: 32 bytes from there, and the whole result is written. No f16 is a denormal f32.
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
        // SAFETY: as many numbers are there.
        unsafe { copy(x.as_mut_ptr(), y.as_ptr(), x.len().min(y.len())) };
    }

    #[inline(always)]
    fn add(x: &mut [f32], y: &[f32]) {
        // SAFETY: as many numbers are there.
        unsafe { add(x.as_mut_ptr(), y.as_ptr(), x.len().min(y.len())) };
    }

    #[inline(always)]
    fn keep(key: &[f32], column: &mut [f32], value: &[f32], row: &mut [f32]) -> bool {
        let n = key.len();
        let fits = n > 0
            && n.is_multiple_of(4)
            && value.len() == n
            && column.len() > 16 * (n - 1)
            && row.len() >= n
            && row.len().is_multiple_of(4);
        if fits {
            // SAFETY: as many are there.
            unsafe { keep(key.as_ptr(), column.as_mut_ptr(), value.as_ptr(), row.as_mut_ptr(), n, row.len()) };
        }
        fits
    }

    #[inline(always)]
    fn rotate_pairs(x: &mut [f32], dim: usize, cos: &[f32], sin: &[f32]) {
        let heads = x.len().checked_div(dim).unwrap_or(0);
        let pairs = (dim / 2).min(cos.len()).min(sin.len());
        if heads > 0 {
            // SAFETY: as many are there.
            unsafe { rotate_pairs(x.as_mut_ptr(), (heads, dim), cos.as_ptr(), sin.as_ptr(), pairs) };
        }
    }

    #[inline(always)]
    fn sqrt(x: f32) -> f32 {
        f32::from_bits(of_one!("vsqrt.f32 s0, s0", x))
    }

    #[inline(always)]
    fn exp(mut x: [f32; 16]) -> [f32; 16] {
        // SAFETY: four fours.
        unsafe { exp(x.as_mut_ptr(), 0.0, 4) };
        x
    }

    #[inline(always)]
    fn silu(x: &mut [f32], up: Option<&[f32]>) -> bool {
        static ONES: [f32; 4] = [1.0; 4];
        let len = up.map_or(x.len(), |up| up.len().min(x.len()));
        let (up, step) = up.map_or((ONES.as_ptr(), 0), |up| (up.as_ptr(), 1));
        let x = x.as_mut_ptr();
        // SAFETY: as many numbers are there.
        unsafe {
            if len >= 4 {
                silu(x, up, 16 * step, len / 4);
            }
            // What is left, four times each.
            for i in len & !3..len {
                let (mut four, up) = ([*x.add(i); 4], [*up.add(i * step); 4]);
                silu(four.as_mut_ptr(), up.as_ptr(), 16, 1);
                *x.add(i) = four[0];
            }
        }
        true
    }

    #[inline(always)]
    fn rms_norm(x: &mut [f32], weight: &[u8], eps: f32) -> bool {
        let fits = x.len().is_multiple_of(16)
            && !x.is_empty()
            && weight.len() == 4 * x.len()
            && weight.as_ptr().addr().is_multiple_of(4);
        if fits {
            // SAFETY: whole sixteens of numbers, and as many weights on a boundary.
            unsafe { rms_norm(x.as_mut_ptr(), weight.as_ptr(), x.len(), eps) };
        } else {
            plain::rms_norm(x, weight, eps);
        }
        true
    }

    #[cfg(cortex_m_dsp)]
    #[inline(always)]
    fn quantize(x: &[f32], q: &mut [i8], sums: &mut [i16]) -> Option<f32> {
        Some(super::quantize::quantize(x, q, sums))
    }

    #[inline(always)]
    unsafe fn scale(at: *mut f32, factor: f32, scores: Range<usize>) -> f32 {
        // SAFETY: passed on to the caller.
        unsafe {
            let at = at.add(scores.start);
            multiply(at, at, factor, scores.len());
            largest(at, scores.len())
        }
    }

    #[inline(always)]
    unsafe fn scores(at: &[*const f32; 4], q: &[f32], factor: f32, seen: Range<usize>, to: *mut f32) -> f32 {
        let first = seen.start / 16;
        // SAFETY: passed on to the caller.
        unsafe {
            if q.is_empty() || !q.len().is_multiple_of(4) {
                return Self::scores_by_rows(at, q, factor, seen, to);
            }
            let (base, seen) = (core::ptr::null(), (seen.start % 16, seen.end - 16 * first));
            scores(base, at.as_ptr().add(first), (q.as_ptr(), q.len()), factor, seen, to.add(16 * first))
        }
    }

    #[inline(always)]
    unsafe fn softmax(at: *mut f32, best: f32, scores: Range<usize>, total: &mut [f32; 16]) {
        // SAFETY: passed on to the caller.
        unsafe { softmax(at, best, scores, total.as_mut_ptr()) };
    }

    #[inline(always)]
    unsafe fn add_rows(
        at: &[*const f32; 4],
        stride: usize,
        x: *const f32,
        rows: Range<usize>,
        lanes: usize,
        to: *mut f32,
    ) {
        let (first, lane) = (rows.start / 16, rows.start % 16);
        // SAFETY: passed on to the caller.
        unsafe {
            let (at, x) = (at.as_ptr().add(first), x.add(rows.start));
            let base = core::ptr::null();
            add_rows(base, at, lane * stride, (rows.len(), 16 - lane), (stride, lanes), x, to, to);
        }
    }
}

/// [`Unit::copy`] of some numbers.
///
/// # Safety
///
/// There are `n` numbers.
#[inline(never)]
unsafe fn copy(x: *mut f32, y: *const f32, n: usize) {
    // SAFETY: reads and writes what the caller has.
    unsafe {
        fpu!(
            "b 3f",
            "2:",
            "vldmia {y}!, {{s0-s15}}",
            "vstmia {x}!, {{s0-s15}}",
            "3:",
            "subs {n}, {n}, #16",
            "bge 2b",
            "adds {n}, {n}, #16",
            "beq 5f",
            "4:",
            "vldmia {y}!, {{s0}}",
            "vstmia {x}!, {{s0}}",
            "subs {n}, {n}, #1",
            "bne 4b",
            "5:",
            ;
            x = inout(reg) x => _,
            y = inout(reg) y => _,
            n = inout(reg) n => _,
        );
    }
}

/// [`Unit::keep`] of some fours of numbers.
///
/// # Safety
///
/// There are `n` numbers, four at least, of each, and a column as long; a row has whole fours, `width` numbers in all.
#[inline(never)]
unsafe fn keep(key: *const f32, column: *mut f32, value: *const f32, row: *mut f32, n: usize, width: usize) {
    // SAFETY: reads and writes what the caller has.
    unsafe {
        fpu!(
            "2:",
            "vldmia {key}!, {{s0-s3}}",
            "vldmia {value}!, {{s4-s7}}",
            "vstr s0, [{column}]",
            "vstr s1, [{column}, #64]",
            "vstr s2, [{column}, #128]",
            "vstr s3, [{column}, #192]",
            "add {column}, {column}, #256",
            "vstmia {row}!, {{s4-s7}}",
            "cmp {row}, {last}",
            "bne 2b",
            "vldmia {zeros}, {{s0-s3}}",
            "b 4f",
            "3:",
            "vstmia {row}!, {{s0-s3}}",
            "4:",
            "cmp {row}, {end}",
            "bne 3b",
            ;
            key = inout(reg) key => _,
            column = inout(reg) column => _,
            value = inout(reg) value => _,
            row = inout(reg) row => _,
            last = in(reg) row.add(n),
            end = in(reg) row.add(width),
            zeros = in(reg) ZEROS.as_ptr(),
        );
    }
}

/// A number to each of some.
macro_rules! sums {
    ($($x:literal $y:literal),*) => { concat!($("vadd.f32 ", $x, ", ", $x, ", ", $y, "\n",)*) };
}
pub(super) use sums;

/// [`Unit::add`] of some numbers.
///
/// # Safety
///
/// There are `n` numbers.
#[inline(never)]
unsafe fn add(x: *mut f32, y: *const f32, n: usize) {
    // SAFETY: reads and writes what the caller has.
    unsafe {
        fpu!(
            "b 3f",
            "2:",
            "vldmia {x}, {{s0-s7}}",
            "vldmia {y}!, {{s8-s15}}",
            sums!("s0" "s8", "s1" "s9", "s2" "s10", "s3" "s11", "s4" "s12", "s5" "s13", "s6" "s14", "s7" "s15"),
            "vstmia {x}!, {{s0-s7}}",
            "3:",
            "subs {n}, {n}, #8",
            "bge 2b",
            "adds {n}, {n}, #8",
            "beq 5f",
            "4:",
            "vldr s0, [{x}]",
            "vldmia {y}!, {{s8}}",
            "vadd.f32 s0, s0, s8",
            "vstmia {x}!, {{s0}}",
            "subs {n}, {n}, #1",
            "bne 4b",
            "5:",
            ;
            x = inout(reg) x => _,
            y = inout(reg) y => _,
            n = inout(reg) n => _,
        );
    }
}

/// Pairs times cosines and sines, to other registers. (VMLA and VMLS round the product, too.)
macro_rules! turned {
    ($($a:literal $b:literal, $cos:literal $sin:literal, $x:literal $y:literal);*) => {
        concat!($(
            "vmul.f32 ", $x, ", ", $a, ", ", $cos, "\n",
            "vmul.f32 ", $y, ", ", $a, ", ", $sin, "\n",
            "vmls.f32 ", $x, ", ", $b, ", ", $sin, "\n",
            "vmla.f32 ", $y, ", ", $b, ", ", $cos, "\n",
        )*)
    };
}

/// [`Unit::rotate_pairs`] of some pairs of each head.
///
/// # Safety
///
/// There are `heads` times `dim` numbers, one head at least, and `pairs` in each.
#[inline(never)]
unsafe fn rotate_pairs(x: *mut f32, (heads, dim): (usize, usize), cos: *const f32, sin: *const f32, pairs: usize) {
    // SAFETY: reads and writes what the caller has.
    unsafe {
        fpu!(
            "20:",
            "mov {c}, {cos}",
            "mov {s}, {sin}",
            "mov {n}, {pairs}",
            "b 3f",
            "2:",
            "vldmia {x}, {{s0-s7}}",
            "vldmia {c}!, {{s8-s11}}",
            "vldmia {s}!, {{s12-s15}}",
            turned!(
                "s0" "s1", "s8" "s12", "s16" "s17"; "s2" "s3", "s9" "s13", "s18" "s19";
                "s4" "s5", "s10" "s14", "s20" "s21"; "s6" "s7", "s11" "s15", "s22" "s23"
            ),
            "vstmia {x}!, {{s16-s23}}",
            "3:",
            "subs {n}, {n}, #4",
            "bge 2b",
            "adds {n}, {n}, #4",
            "beq 5f",
            "4:",
            "vldmia {x}, {{s0-s1}}",
            "vldmia {c}!, {{s8}}",
            "vldmia {s}!, {{s12}}",
            turned!("s0" "s1", "s8" "s12", "s16" "s17"),
            "vstmia {x}!, {{s16-s17}}",
            "subs {n}, {n}, #1",
            "bne 4b",
            "5:",
            "add {x}, {x}, {rest}",
            "subs {heads}, {heads}, #1",
            "bne 20b",
            ;
            x = inout(reg) x => _,
            heads = inout(reg) heads => _,
            rest = in(reg) 4 * (dim - 2 * pairs),
            cos = in(reg) cos,
            sin = in(reg) sin,
            pairs = in(reg) pairs,
            c = out(reg) _,
            s = out(reg) _,
            n = out(reg) _,
        );
    }
}

/// [`Unit::rms_norm`].
///
/// # Safety
///
/// `len` numbers at `x`, whole sixteens and one at least, and as many weights on a boundary of 4 bytes.
unsafe fn rms_norm(x: *mut f32, weight: *const u8, len: usize, eps: f32) {
    // SAFETY: reads and writes what the caller has.
    unsafe {
        fpu!(
            "vldmia {zeros}, {{s0-s15}}",
            "2:",
            "vldmia {at}!, {{s16-s31}}",
            squares!("s0" "s16", "s1" "s17", "s2" "s18", "s3" "s19", "s4" "s20", "s5" "s21", "s6" "s22", "s7" "s23"),
            squares!("s8" "s24", "s9" "s25", "s10" "s26", "s11" "s27", "s12" "s28", "s13" "s29", "s14" "s30", "s15" "s31"),
            "cmp {at}, {end}",
            "bne 2b",
            tree!(),
            "vmov s1, s2, {len}, {eps}",
            "vdiv.f32 s0, s0, s1",
            "vadd.f32 s0, s0, s2",
            "vsqrt.f32 s0, s0",
            "vmov.f32 s1, #1.0",
            "vdiv.f32 s0, s1, s0",
            "3:",
            "vldmia {x}, {{s8-s15}}",
            "vldmia {weight}!, {{s16-s23}}",
            scaled!("s8" "s16", "s9" "s17", "s10" "s18", "s11" "s19", "s12" "s20", "s13" "s21", "s14" "s22", "s15" "s23"),
            "vstmia {x}!, {{s8-s15}}",
            "cmp {x}, {end}",
            "bne 3b",
            ;
            zeros = in(reg) ZEROS.as_ptr(),
            at = inout(reg) x => _,
            x = inout(reg) x => _,
            end = in(reg) x.add(len),
            weight = inout(reg) weight => _,
            len = in(reg) (len as f32).to_bits(),
            eps = in(reg) eps.to_bits(),
        );
    }
}

/// Where sums begin.
pub(super) static ZEROS: [f32; 16] = [0.0; 16];
