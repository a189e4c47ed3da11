//! Multiplies rows of f16 and bf16 with tokens. The weights are converted in registers.

use super::assembly::{ZEROS, fpu, sums, tree};
use crate::kernel::Job;

/// For each sum, adds the product of two registers.
macro_rules! fmas {
    ($($sum:literal $w:literal $x:literal),*) => { concat!($("vfma.f32 ", $sum, ", ", $w, ", ", $x, "\n",)*) };
}

/// Multiplies the two f16 of a register with two columns.
macro_rules! f16s {
    ($w:literal, $a:literal $x:literal, $b:literal $y:literal) => {
        concat!(
            "vcvtb.f32.f16 s28, ",
            $w,
            "\n",
            "vcvtt.f32.f16 s29, ",
            $w,
            "\n",
            fmas!($a "s28" $x, $b "s29" $y),
        )
    };
}

/// Multiplies the two bf16 of a register with two columns: a bf16 is the upper half of a float.
macro_rules! bf16s {
    ($w:literal, $a:literal $x:literal, $b:literal $y:literal) => {
        concat!(
            "lsl r4, ",
            $w,
            ", #16\n",
            "bfc ",
            $w,
            ", #0, #16\n",
            "vmov s28, s29, r4, ",
            $w,
            "\n",
            fmas!($a "s28" $x, $b "s29" $y),
        )
    };
}

/// Defines a loop over rows. `$load` loads eight weights, as pairs in four registers; `$two` multiplies a pair.
macro_rules! rows {
    ($name:ident, $load:literal, $two:ident, $a:literal $b:literal $c:literal $d:literal) => {
        /// # Safety
        ///
        /// `x` has floats up to `end`, a multiple of 16, at least 16. `out` is not empty, and for each float of `out`
        /// there is a row that has as many weights as `x` has floats. The first row begins at `w`, aligned to four
        /// bytes.
        #[inline(never)]
        unsafe fn $name(w: *const u8, x: *const f32, end: *const f32, out: *mut f32, out_end: *const f32) {
            // SAFETY: reads these weights and floats, and writes the outputs.
            unsafe {
                fpu!(
                    "3:",
                    "vldmia {zeros}, {{s0-s15}}",
                    "mov {x}, {first}",
                    "2:",
                    $load,
                    "vldmia {x}!, {{s20-s27}}",
                    $two!($a, "s0" "s20", "s1" "s21"),
                    $two!($b, "s2" "s22", "s3" "s23"),
                    $two!($c, "s4" "s24", "s5" "s25"),
                    $two!($d, "s6" "s26", "s7" "s27"),
                    $load,
                    "vldmia {x}!, {{s20-s27}}",
                    $two!($a, "s8" "s20", "s9" "s21"),
                    $two!($b, "s10" "s22", "s11" "s23"),
                    $two!($c, "s12" "s24", "s13" "s25"),
                    $two!($d, "s14" "s26", "s15" "s27"),
                    "cmp {x}, {end}",
                    "bne 2b",
                    tree!(),
                    "vstmia {out}!, {{s0}}",
                    "cmp {out}, {out_end}",
                    "bne 3b",
                    ;
                    zeros = in(reg) ZEROS.as_ptr(),
                    first = in(reg) x,
                    x = out(reg) _,
                    end = in(reg) end,
                    w = inout(reg) w => _,
                    out = inout(reg) out => _,
                    out_end = in(reg) out_end,
                    out("r0") _, out("r1") _, out("r2") _, out("r3") _, out("r4") _,
                );
            }
        }
    };
}
rows!(rows_of_f16, "vldmia {w}!, {{s16-s19}}", f16s, "s16" "s17" "s18" "s19");
rows!(rows_of_bf16, "ldmia {w}!, {{r0-r3}}", bf16s, "r0" "r1" "r2" "r3");

/// Multiplies all rows with all tokens. Returns false without a result if the length of the rows is not a multiple of
/// 16, or if they are not aligned to four bytes.
///
/// # Safety
///
/// The weights are f16 or, with `brain`, bf16, and `job` satisfies the promises of [`Job`].
pub(super) unsafe fn matmul(job: &mut Job<'_>, brain: bool) -> bool {
    if !job.cols.is_multiple_of(16) || !job.w.as_ptr().addr().is_multiple_of(4) {
        return false;
    }
    let rows = if brain { rows_of_bf16 } else { rows_of_f16 };
    for t in 0..job.x.tokens {
        // SAFETY: the job has at least one row and block, token `t`, and an output per row.
        unsafe {
            let (x, out) = (job.x.x.as_ptr().add(t * job.cols), job.out.add(t * job.stride));
            rows(job.w.as_ptr(), x, x.add(job.cols), out, out.add(job.rows));
        }
    }
    true
}
