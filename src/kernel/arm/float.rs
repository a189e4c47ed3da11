//! Float arithmetic by the unit's own instructions: VFMA rounds once, VLDM brings eight numbers.

use core::arch::asm;
use core::mem::MaybeUninit;
use core::ops::Range;

use crate::kernel::Job;
use crate::kernel::lanes::copy;
use crate::kernel::scalar::Unit;

/// The floating-point unit of a Cortex-M4F and its successors.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Fpu;

/// `asm!` that changes all registers of the unit.
macro_rules! fpu {
    ($($code:expr,)* ; $($operands:tt)*) => {
        asm!(
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

/// Sixteen multiply-adds of what lies at two pointers, which move on.
macro_rules! sixteen {
    ($a:literal, $b:literal) => {
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
}

/// Multiplies a score with s17; the larger of it and of s16 to s16, of a NaN the NaN.
macro_rules! larger {
    ($score:literal) => {
        concat!(
            "vmul.f32 ",
            $score,
            ", ",
            $score,
            ", s17\n",
            "vcmp.f32 s16, ",
            $score,
            "\n",
            "vmrs APSR_nzcv, fpscr\n",
            "it le\n",
            "vmovle.f32 s16, ",
            $score,
            "\n",
        )
    };
}

/// `exp(x - s23)` to `x`, with the constants in s16 to s22; s0 to s10 are changed.
macro_rules! exp {
    ($x:literal) => {
        concat!(
            "vsub.f32 s0, ",
            $x,
            ", s23\n",
            // Few are beyond the ends; NaN passes through.
            "vabs.f32 s1, s0\n",
            "vcmp.f32 s1, s22\n",
            "vmrs APSR_nzcv, fpscr\n",
            "ble 9f\n",
            "vcmp.f32 s16, s0\n",
            "vmrs APSR_nzcv, fpscr\n",
            "it mi\n",
            "vmovmi.f32 s0, s16\n",
            "vcmp.f32 s17, s0\n",
            "vmrs APSR_nzcv, fpscr\n",
            "it gt\n",
            "vmovgt.f32 s0, s17\n",
            "9:\n",
            // n, also in the low bits of s2; and r.
            "vmul.f32 s1, s0, s18\n",
            "vadd.f32 s2, s1, s19\n",
            "vsub.f32 s1, s2, s19\n",
            "vfma.f32 s0, s1, s20\n",
            "vfma.f32 s0, s1, s21\n",
            "vmov {n}, s2\n",
            "vldmia {polynomial}, {{s3-s10}}\n",
            "vfma.f32 s4, s3, s0\n",
            "vfma.f32 s5, s4, s0\n",
            "vfma.f32 s6, s5, s0\n",
            "vfma.f32 s7, s6, s0\n",
            "vfma.f32 s8, s7, s0\n",
            "vfma.f32 s9, s8, s0\n",
            "vfma.f32 s10, s9, s0\n",
            "lsl {n}, {n}, #23\n",
            "add {n}, {n}, #0x3f800000\n",
            "vmov s1, {n}\n",
            "vmul.f32 ",
            $x,
            ", s10, s1\n",
        )
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

// SAFETY: each block says what it reads and writes.
unsafe impl Unit for Fpu {
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

    #[inline(always)]
    fn fma_lanes(a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        let mut out = MaybeUninit::<[f32; 16]>::uninit();
        // SAFETY: three arrays of 16, and the whole result is written.
        unsafe {
            fpu!(
                "vldmia {c}, {{s0-s15}}",
                sixteen!("{a}", "{b}"),
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
    fn le_f16(bytes: [u8; 2]) -> f32 {
        let mut x = u32::from(u16::from_le_bytes(bytes));
        // SAFETY: registers only.
        unsafe {
            asm!(
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

    #[inline(always)]
    fn to_f16(x: f32) -> [u8; 2] {
        let mut x = x.to_bits();
        // SAFETY: registers only.
        unsafe {
            asm!(
                "vmov s0, {x}",
                "vcvtb.f16.f32 s0, s0",
                "vmov {x}, s0",
                x = inout(reg) x,
                out("s0") _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        (x as u16).to_le_bytes()
    }

    #[inline(always)]
    fn exp(mut x: [f32; 16]) -> [f32; 16] {
        // What comes of the totals is not asked for.
        let mut total = MaybeUninit::<[f32; 16]>::uninit();
        // SAFETY: two arrays of 16.
        unsafe { softmax(x.as_mut_ptr(), 0.0, 0..16, total.as_mut_ptr().cast()) };
        x
    }

    #[inline(always)]
    unsafe fn scale(at: *mut f32, factor: f32, lanes: Range<usize>, top: f32) -> f32 {
        let mut top = top.to_bits();
        // SAFETY: the range is not empty and within 16, so that the loop ends at its end.
        unsafe {
            if lanes.len() == 16 {
                fpu!(
                    "vmov s16, s17, {top}, {factor}",
                    "vldmia {at}, {{s0-s15}}",
                    larger!("s0"),
                    larger!("s1"),
                    larger!("s2"),
                    larger!("s3"),
                    larger!("s4"),
                    larger!("s5"),
                    larger!("s6"),
                    larger!("s7"),
                    larger!("s8"),
                    larger!("s9"),
                    larger!("s10"),
                    larger!("s11"),
                    larger!("s12"),
                    larger!("s13"),
                    larger!("s14"),
                    larger!("s15"),
                    "vstmia {at}, {{s0-s15}}",
                    "vmov {top}, s16",
                    ;
                    top = inout(reg) top,
                    factor = in(reg) factor.to_bits(),
                    at = in(reg) at,
                );
            } else {
                fpu!(
                    "vmov s16, s17, {top}, {factor}",
                    "2:",
                    "vldr s0, [{at}]",
                    larger!("s0"),
                    "vstmia {at}!, {{s0}}",
                    "cmp {at}, {end}",
                    "bne 2b",
                    "vmov {top}, s16",
                    ;
                    top = inout(reg) top,
                    factor = in(reg) factor.to_bits(),
                    at = inout(reg) at.add(lanes.start) => _,
                    end = in(reg) at.add(lanes.end),
                );
            }
        }
        f32::from_bits(top)
    }

    #[inline(always)]
    unsafe fn softmax(at: *mut f32, best: f32, lanes: Range<usize>, total: &mut [f32; 16]) {
        // SAFETY: passed on to the caller.
        unsafe { softmax(at, best, lanes, total.as_mut_ptr()) };
    }

    #[inline(always)]
    unsafe fn add_products(
        start: *const f32,
        rows: *const f32,
        stride: usize,
        x: *const f32,
        n: usize,
        lanes: usize,
        to: *mut f32,
    ) {
        // SAFETY: the caller has 16 numbers at the start, n rows and n factors, and room for 16.
        unsafe {
            fpu!(
                "vldmia {start}, {{s0-s15}}",
                "cmp {n}, #0",
                "beq 4f",
                "cmp {lanes}, #8",
                "bls 3f",
                "2:",
                "vldmia {x}!, {{s24}}",
                "vldmia {rows}!, {{s16-s23}}",
                "vfma.f32 s0, s16, s24",
                "vfma.f32 s1, s17, s24",
                "vfma.f32 s2, s18, s24",
                "vfma.f32 s3, s19, s24",
                "vfma.f32 s4, s20, s24",
                "vfma.f32 s5, s21, s24",
                "vfma.f32 s6, s22, s24",
                "vfma.f32 s7, s23, s24",
                "vldmia {rows}, {{s16-s23}}",
                "add {rows}, {rows}, {step}",
                "subs {n}, {n}, #1",
                "vfma.f32 s8, s16, s24",
                "vfma.f32 s9, s17, s24",
                "vfma.f32 s10, s18, s24",
                "vfma.f32 s11, s19, s24",
                "vfma.f32 s12, s20, s24",
                "vfma.f32 s13, s21, s24",
                "vfma.f32 s14, s22, s24",
                "vfma.f32 s15, s23, s24",
                "bne 2b",
                "b 4f",
                // Half of them will do.
                "3:",
                "vldmia {x}!, {{s24}}",
                "vldmia {rows}!, {{s16-s23}}",
                "add {rows}, {rows}, {step}",
                "subs {n}, {n}, #1",
                "vfma.f32 s0, s16, s24",
                "vfma.f32 s1, s17, s24",
                "vfma.f32 s2, s18, s24",
                "vfma.f32 s3, s19, s24",
                "vfma.f32 s4, s20, s24",
                "vfma.f32 s5, s21, s24",
                "vfma.f32 s6, s22, s24",
                "vfma.f32 s7, s23, s24",
                "bne 3b",
                "4:",
                "vstmia {to}, {{s0-s15}}",
                ;
                start = in(reg) start,
                to = in(reg) to,
                rows = inout(reg) rows => _,
                x = inout(reg) x => _,
                n = inout(reg) n => _,
                lanes = in(reg) lanes,
                step = in(reg) stride.wrapping_mul(4).wrapping_sub(32),
            );
        }
    }
}

/// [`Unit::softmax`], lane after lane, so that all stays in registers.
///
/// # Safety
///
/// As there.
#[inline(never)]
unsafe fn softmax(at: *mut f32, best: f32, lanes: Range<usize>, total: *mut f32) {
    // The constants of `float::exp` in its order.
    const ENDS: [f32; 7] =
        [88.37, -87.33, core::f32::consts::LOG2_E, 12_582_912.0, -0.693_359_4, 2.121_944_4e-4, 87.33];
    const POLYNOMIAL: [f32; 8] =
        [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5, 1.0, 1.0];
    // SAFETY: the range is not empty and within 16.
    unsafe {
        fpu!(
            "vldmia {ends}, {{s16-s22}}",
            "vmov s23, {best}",
            "tst {odd}, #1",
            "beq 3f",
            "vldr s12, [{at}]",
            "vldr s14, [{total}]",
            exp!("s12"),
            "vadd.f32 s14, s14, s12",
            "vstmia {at}!, {{s12}}",
            "vstmia {total}!, {{s14}}",
            "b 4f",
            // Two by two.
            "3:",
            "vldmia {at}, {{s12-s13}}",
            "vldmia {total}, {{s14-s15}}",
            exp!("s12"),
            exp!("s13"),
            "vadd.f32 s14, s14, s12",
            "vadd.f32 s15, s15, s13",
            "vstmia {at}!, {{s12-s13}}",
            "vstmia {total}!, {{s14-s15}}",
            "4:",
            "cmp {at}, {end}",
            "bne 3b",
            ;
            odd = in(reg) lanes.len(),
            at = inout(reg) at.add(lanes.start) => _,
            end = in(reg) at.add(lanes.end),
            total = inout(reg) total.add(lanes.start) => _,
            best = in(reg) best.to_bits(),
            n = out(reg) _,
            ends = in(reg) ENDS.as_ptr(),
            polynomial = in(reg) POLYNOMIAL.as_ptr(),
        );
    }
}

/// Where sums begin.
static ZEROS: [f32; 16] = [0.0; 16];

/// The end of a token's numbers and of a row's, padded.
#[repr(C)]
struct Tail {
    x: [f32; 16],
    w: [f32; 16],
}

/// Rows of f32 times tokens: 16 sums of a row in registers, joined by the tree.
///
/// # Safety
///
/// `job` as [`Job`] says; its weights on a boundary of 4 bytes.
pub(super) unsafe fn matmul(job: &mut Job<'_>) {
    if job.rows == 0 || job.cols == 0 {
        return;
    }
    for t in 0..job.x.tokens {
        let x = job.x.x.get(t * job.cols..(t + 1) * job.cols).unwrap_or_default();
        // SAFETY: all rows and this token are the job's.
        unsafe {
            let out = job.out.add(t * job.stride);
            if job.cols.is_multiple_of(64) {
                times_fours(job, x, out);
            } else {
                times(job, x, out);
            }
        }
    }
}

/// All rows times one token of `4 * 16` columns, or a multiple.
///
/// # Safety
///
/// As for [`matmul`]; `out` has room for the rows.
#[inline(always)]
unsafe fn times_fours(job: &Job<'_>, x: &[f32], out: *mut f32) {
    // SAFETY: reads the rows and the token to their ends, and writes a number for each row.
    unsafe {
        fpu!(
            "2:",
            "vldmia {zeros}, {{s0-s15}}",
            "mov {at}, {x}",
            "3:",
            ".rept 4",
            sixteen!("{at}", "{w}"),
            ".endr",
            "cmp {at}, {end}",
            "bne 3b",
            tree!(),
            "vstmia {out}!, {{s0}}",
            "subs {rows}, {rows}, #1",
            "bne 2b",
            ;
            zeros = in(reg) ZEROS.as_ptr(),
            x = in(reg) x.as_ptr(),
            at = out(reg) _,
            w = inout(reg) job.w.as_ptr() => _,
            out = inout(reg) out => _,
            rows = inout(reg) job.rows => _,
            end = in(reg) x.as_ptr_range().end,
        );
    }
}

/// All rows times one token of any number of columns; the end of a row is padded in a copy.
///
/// # Safety
///
/// As for [`times_fours`].
#[inline(always)]
unsafe fn times(job: &Job<'_>, x: &[f32], out: *mut f32) {
    let rest = job.cols % 16;
    let mut tail = MaybeUninit::<Tail>::uninit();
    if rest > 0 {
        let tail = tail.write(Tail { x: [0.0; 16], w: [0.0; 16] });
        copy(x.get(job.cols - rest..).unwrap_or_default(), &mut tail.x);
    }
    // SAFETY: as there; the copy is read where there is a rest, for which it is written.
    unsafe {
        fpu!(
            "2:",
            "vldmia {zeros}, {{s0-s15}}",
            "mov {at}, {x}",
            "cmp {at}, {fours}",
            "beq 4f",
            "3:",
            ".rept 4",
            sixteen!("{at}", "{w}"),
            ".endr",
            "cmp {at}, {fours}",
            "bne 3b",
            "4:",
            // What is left of whole sixteens, then the end of the row from its copy.
            "cmp {at}, {sixteens}",
            "beq 6f",
            "5:",
            sixteen!("{at}", "{w}"),
            "cmp {at}, {sixteens}",
            "bne 5b",
            "6:",
            "movs {n}, {rest}",
            "beq 9f",
            "add {at}, {tail}, #64",
            "tst {n}, #8",
            "itt ne",
            "vldmiane {w}!, {{s16-s23}}",
            "vstmiane {at}!, {{s16-s23}}",
            "tst {n}, #4",
            "itt ne",
            "vldmiane {w}!, {{s16-s19}}",
            "vstmiane {at}!, {{s16-s19}}",
            "tst {n}, #2",
            "itt ne",
            "vldmiane {w}!, {{s16-s17}}",
            "vstmiane {at}!, {{s16-s17}}",
            "tst {n}, #1",
            "itt ne",
            "vldmiane {w}!, {{s16}}",
            "vstmiane {at}!, {{s16}}",
            "mov {at}, {tail}",
            "add {n}, {tail}, #64",
            sixteen!("{at}", "{n}"),
            "9:",
            tree!(),
            "vstmia {out}!, {{s0}}",
            "subs {rows}, {rows}, #1",
            "bne 2b",
            ;
            zeros = in(reg) ZEROS.as_ptr(),
            tail = in(reg) tail.as_mut_ptr(),
            x = in(reg) x.as_ptr(),
            at = out(reg) _,
            w = inout(reg) job.w.as_ptr() => _,
            out = inout(reg) out => _,
            rows = inout(reg) job.rows => _,
            fours = in(reg) x.as_ptr().add(job.cols / 64 * 64),
            sixteens = in(reg) x.as_ptr().add(job.cols / 16 * 16),
            rest = in(reg) rest,
            n = out(reg) _,
        );
    }
}
