//! Multiplies rows of f16 and bf16 with tokens. The weights are converted in registers.

use super::assembly::{ZEROS, fpu, on_words, sums, tree};
use crate::kernel::Job;

/// Assembly that multiplies the two bf16 of a register by two columns of a token. A bf16 is converted by shifting,
/// because it is the upper half of a float.
macro_rules! bf16s {
    ($w:literal, $a:literal $x:literal, $b:literal $y:literal) => {
        concat!(
            "lsl r4, ",
            $w,
            ", #16\n",
            "bfc ",
            $w,
            ", #0, #16\n",
            "vmov s30, s31, r4, ",
            $w,
            "\n",
            "vfma.f32 ",
            $a,
            ", s30, ",
            $x,
            "\n",
            "vfma.f32 ",
            $b,
            ", s31, ",
            $y,
            "\n",
        )
    };
}

/// Multiplies sixteen bf16.
macro_rules! bf16_group {
    () => {
        concat!(
            bf16_group!(@ "s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7"),
            bf16_group!(@ "s8" "s9" "s10" "s11" "s12" "s13" "s14" "s15"),
        )
    };
    (@ $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal $h:literal) => {
        concat!(
            "ldmia.w {w}!, {{r0-r3}}\n",
            "vldmia {x}!, {{s16-s23}}\n",
            bf16s!("r0", $a "s16", $b "s17"),
            bf16s!("r1", $c "s18", $d "s19"),
            bf16s!("r2", $e "s20", $f "s21"),
            bf16s!("r3", $g "s22", $h "s23"),
        )
    };
}

/// Assembly that converts the low (`b`) or high (`t`) f16 of a register and multiplies it by a column of the token.
macro_rules! f16 {
    ($($half:literal $w:literal $sum:literal $x:literal),*) => {
        concat!($("vcvt", $half, ".f32.f16 s31, ", $w, "\n", "vfma.f32 ", $sum, ", s31, ", $x, "\n",)*)
    };
}

/// Assembly that multiplies sixteen f16 weights. Three loads are enough, because the second load of columns also fills
/// registers of weights that are not needed any more.
macro_rules! f16_group {
    () => {
        concat!(
            "vldmia {w}!, {{s23-s30}}\n",
            "vldmia {x}!, {{s16-s22}}\n",
            f16!("b" "s23" "s0" "s16", "t" "s23" "s1" "s17", "b" "s24" "s2" "s18", "t" "s24" "s3" "s19"),
            f16!("b" "s25" "s4" "s20", "t" "s25" "s5" "s21", "b" "s26" "s6" "s22"),
            "vldmia {x}!, {{s16-s24}}\n",
            f16!("t" "s26" "s7" "s16", "b" "s27" "s8" "s17", "t" "s27" "s9" "s18", "b" "s28" "s10" "s19"),
            f16!("t" "s28" "s11" "s20", "b" "s29" "s12" "s21", "t" "s29" "s13" "s22", "b" "s30" "s14" "s23"),
            f16!("t" "s30" "s15" "s24"),
        )
    };
}

/// Number of groups of sixteen columns that one iteration of the loop over a row multiplies.
const UNROLLED: usize = 4;

/// Defines a function that multiplies all rows with a token. `$group` is the code for sixteen columns, which takes
/// `$bytes` bytes.
macro_rules! rows {
    ($name:ident, $group:ident, $bytes:literal) => {
        /// # Safety
        ///
        /// `x` has floats up to `end`, a multiple of 16, at least 16. `out` is not empty, and for each float of `out`
        /// there is a row that has as many weights as `x` has floats. The first row begins at `w`, aligned to four
        /// bytes.
        #[inline(never)]
        unsafe fn $name(w: *const u8, x: *const f32, end: *const f32, out: *mut f32, out_end: *const f32) {
            // The code of the loop multiplies `UNROLLED` groups of columns per iteration. If the number of groups is
            // not a multiple of `UNROLLED`, a row begins in the middle of the first iteration: the jump skips the
            // missing groups.
            let missing = ((end.addr() - x.addr()) / 64).wrapping_neg() % UNROLLED;
            let mut start = [x.addr(), missing * $bytes];
            // SAFETY: the assembly reads the weights and the floats of the caller's promise, and writes only the
            // outputs and `start`.
            unsafe {
                fpu!(
                    on_words!(),
                    "adr r0, 2f",
                    "ldr r1, [{start}, #4]",
                    "add r0, r0, r1",
                    "orr r0, r0, #1", // the bit of a Thumb address
                    "str r0, [{start}, #4]",
                    "3:",
                    "vldmia {zeros}, {{s0-s15}}",
                    "ldr {x}, [{start}]",
                    "ldr pc, [{start}, #4]",
                    on_words!(),
                    "2:",
                    $group!(),
                    $group!(),
                    $group!(),
                    $group!(),
                    "cmp {x}, {end}",
                    "bne 2b",
                    tree!(),
                    "vstmia {out}!, {{s0}}",
                    "cmp {out}, {out_end}",
                    "bne 3b",
                    ;
                    zeros = in(reg) ZEROS.as_ptr(),
                    start = in(reg) start.as_mut_ptr(),
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
rows!(rows_of_f16, f16_group, 140);
rows!(rows_of_bf16, bf16_group, 176);

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
