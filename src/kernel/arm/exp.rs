//! `exp` and the functions that use it, softmax and SiLU: four floats at a time in registers.

use super::assembly::{ZEROS, fpu, on_words};

/// The constants for computing [`exp`](crate::kernel::lanes::exp) of x or of -x.
#[repr(C)]
struct Constants {
    /// The constants that stay in registers s22 to s27: the first coefficient of the polynomial; the constants that
    /// compute the integer part `n` and the remainder `r` of the exponent; and a number below the square of the
    /// smallest and of the largest argument.
    kept: [f32; 6],
    /// The start value of `n`, for four floats.
    whole: [f32; 4],
    /// The coefficients that the steps of two polynomials add.
    polynomials: [[f32; 2]; 7],
    /// NaN, and the smallest and the largest argument of the function. Other arguments are replaced by the nearest of
    /// these two.
    ends: [f32; 3],
}

impl Constants {
    const fn of(sign: f32) -> Self {
        let [n, whole, high, low] = [core::f32::consts::LOG2_E, 12_582_912.0, -0.693_359_4, 2.121_944_4e-4];
        Self {
            kept: [1.987_569_1e-4, sign * n, whole, sign * high, sign * low, 7600.0],
            whole: [whole; 4],
            polynomials: [
                [1.398_199_9e-3; 2],
                [8.333_452e-3; 2],
                [4.166_579_6e-2; 2],
                [1.666_666_5e-1; 2],
                [0.5; 2],
                [1.0; 2],
                [1.0; 2],
            ],
            ends: if sign > 0.0 { [f32::NAN, 88.37, -87.33] } else { [f32::NAN, 87.33, -88.37] },
        }
    }
}

static OF_X: Constants = Constants::of(1.0);
static OF_MINUS_X: Constants = Constants::of(-1.0);

/// Branches to `9:` if the sum of the squares is above s27, because only then can a float be outside the range that
/// [`exp`] accepts. This is rare. (A NaN compares as unordered, which is not "lower or same", and so branches too.)
/// `$on` is the label to continue at.
macro_rules! inside {
    ($on:literal $first:literal $($x:literal)*) => {
        concat!(
            "vmul.f32 s29, ", $first, ", ", $first, "\n",
            $("vfma.f32 s29, ", $x, ", ", $x, "\n",)*
            "vcmp.f32 s29, s27\n",
            "vmrs APSR_nzcv, fpscr\n",
            "bls ", $on, "f\n",
            "adr {n}, ", $on, "f\n",
            "b 9f\n",
            $on, ":\n",
        )
    };
}

/// The code at label 9 clamps s0 to s3, one after the other, to the range of arguments. Any NaN becomes a NaN whose low
/// bits are 0, and [`parts`] keeps these bits.
macro_rules! ends {
    () => {
        concat!(
            "9:\n",
            "vldr s29, [{constants}, #72]\n",
            "vldr s30, [{constants}, #76]\n",
            "vldr s31, [{constants}, #80]\n",
            "mov {m}, #4\n",
            "12:\n",
            "vmov.f32 s4, s0\n",
            "vmov.f32 s0, s1\n",
            "vmov.f32 s1, s2\n",
            "vmov.f32 s2, s3\n",
            "vmov.f32 s3, s4\n",
            "vcmp.f32 s3, s30\n",
            "vmrs APSR_nzcv, fpscr\n",
            "it gt\n",
            "vmovgt.f32 s3, s30\n",
            "it vs\n",
            "vmovvs.f32 s3, s29\n",
            "vcmp.f32 s3, s31\n",
            "vmrs APSR_nzcv, fpscr\n",
            "it mi\n",
            "vmovmi.f32 s3, s31\n",
            "subs {m}, {m}, #1\n",
            "bne 12b\n",
            "mov pc, {n}\n",
        )
    };
}

/// Replaces x by the r of `lanes::exp_parts`, and leaves the n of that function in the low bits of a register that
/// begins as 1.5 * 2^23. (The last bit of a float of this size is worth 1.) Clobbers s29.
macro_rules! parts {
    ($($x:literal $n:literal),*) => {
        concat!($(
            "vfma.f32 ", $n, ", ", $x, ", s23\n",
            "vsub.f32 s29, ", $n, ", s24\n",
            "vfma.f32 ", $x, ", s29, s25\n",
            "vfma.f32 ", $x, ", s29, s26\n",
        )*)
    };
}

/// Assembly that evaluates the polynomial of r or, with VFMS as the instruction, the polynomial of -r. The coefficients
/// and the partial results are in every second register.
macro_rules! polynomial {
    ($fma:literal, $r:literal, $($q:literal $next:literal),*) => {
        concat!($($fma, ".f32 ", $next, ", ", $q, ", ", $r, "\n",)*)
    };
}

/// Assembly that finishes `exp` of two floats, in two core registers: computes a polynomial for each float and
/// multiplies it by a power of two. The multiplication adds to the exponent bits, which is right because no result is
/// denormal.
macro_rules! two {
    ($fma:literal, $x:literal, $y:literal, $n:literal, $m:literal, $a:literal, $b:literal $(, $again:literal)?) => {
        concat!(
            "vmov ", $a, ", ", $b, ", ", $n, ", ", $m, "\n",
            $($again,)?
            polynomial!($fma, $x, "s22" "s8", "s8" "s10", "s10" "s12", "s12" "s14", "s14" "s16", "s16" "s18", "s18" "s20"),
            polynomial!($fma, $y, "s22" "s9", "s9" "s11", "s11" "s13", "s13" "s15", "s15" "s17", "s17" "s19", "s19" "s21"),
            "vmov {n}, {m}, s20, s21\n",
            "add ", $a, ", {n}, ", $a, ", lsl #23\n",
            "add ", $b, ", {m}, ", $b, ", lsl #23\n",
        )
    };
}

/// Assembly that computes `exp` of s0 to s3, or of their negatives, as the constants at `{constants}` say. The results
/// go to r0 to r3; s22 to s28 are preserved.
macro_rules! exps {
    ($fma:literal) => {
        concat!(
            inside!("1" "s0" "s1" "s2" "s3"),
            "vldmia {constants}, {{s4-s21}}\n",
            parts!("s0" "s4", "s1" "s5", "s2" "s6", "s3" "s7"),
            two!($fma, "s0", "s1", "s4", "s5", "r0", "r1"),
            two!($fma, "s2", "s3", "s6", "s7", "r2", "r3", "vldmia {constants}, {{s4-s21}}\n"),
        )
    };
}

/// Loads four floats and subtracts s28.
macro_rules! differences {
    () => {
        concat!(
            "vldmia {x}, {{s0-s3}}\n",
            "vsub.f32 s0, s0, s28\n",
            "vsub.f32 s1, s1, s28\n",
            "vsub.f32 s2, s2, s28\n",
            "vsub.f32 s3, s3, s28\n",
        )
    };
}

/// `exp(x - best)` of `4 * fours` floats, in place: four at a time, so that everything stays in registers.
///
/// # Safety
///
/// `x` points to `4 * fours` floats, and `fours` is not 0.
#[inline(never)]
pub(super) unsafe fn exp(x: *mut f32, best: f32, fours: usize) {
    // SAFETY: reads and writes these floats only.
    unsafe {
        fpu!(
            on_words!(),
            "vldmia {constants}!, {{s22-s27}}",
            "vmov s28, {n}",
            "2:",
            differences!(),
            exps!("vfma"),
            "stmia {x}!, {{r0-r3}}",
            "subs {fours}, {fours}, #1",
            "bne 2b",
            "b 8f",
            ends!(),
            "8:",
            ;
            fours = inout(reg) fours => _,
            x = inout(reg) x => _,
            n = inout(reg) best.to_bits() => _,
            m = out(reg) _,
            constants = inout(reg) &raw const OF_X => _,
            out("r0") _,
            out("r1") _,
            out("r2") _,
            out("r3") _,
        );
    }
}

/// `exp(score - best)` of the scores `lane..end`, in place; `lane` is less than 16. The scores before `lane` and the 16
/// floats from `end` on become zeros, so that sums over whole groups of sixteen are right.
///
/// # Safety
///
/// `x` points to the scores, `end` is greater than `lane`, and there is room for 16 floats from `end` on.
#[inline(always)]
pub(super) unsafe fn weigh(x: *mut f32, lane: usize, end: usize, best: f32) {
    // SAFETY: the loop writes groups of four floats, from `lane & !3` to at most `end + 3`. Then zeros are written from
    // `end` to `end + 16`, and from 0 to `lane`. All of these floats are the caller's.
    unsafe {
        fpu!(
            on_words!(),
            "vldmia {constants}!, {{s22-s27}}",
            "vmov s28, {n}",
            "2:",
            differences!(),
            exps!("vfma"),
            "stmia {x}!, {{r0-r3}}",
            "cmp {x}, {end}",
            "blo 2b",
            "b 8f",
            ends!(),
            "8:",
            "vldmia {zeros}, {{s0-s15}}",
            "vstmia {end}, {{s0-s15}}",
            "b 5f",
            "4:",
            "sub {first}, {first}, #4",
            "vstr s0, [{first}]",
            "5:",
            "cmp {first}, {start}",
            "bne 4b",
            ;
            x = inout(reg) x.add(lane & !3) => _,
            start = in(reg) x,
            first = inout(reg) x.add(lane) => _,
            end = in(reg) x.add(end),
            zeros = in(reg) ZEROS.as_ptr(),
            n = inout(reg) best.to_bits() => _,
            m = out(reg) _,
            constants = inout(reg) &raw const OF_X => _,
            out("r0") _,
            out("r1") _,
            out("r2") _,
            out("r3") _,
        );
    }
}

/// `x / (1 + exp(-x))` of `4 * fours` floats, times `up`, in place.
///
/// # Safety
///
/// `x` and `up` point to `4 * fours` floats, and `fours` is not 0.
#[inline(never)]
pub(super) unsafe fn silu(x: *mut f32, up: *const f32, fours: usize) {
    // SAFETY: reads and writes these floats only.
    unsafe {
        fpu!(
            on_words!(),
            "vldmia {constants}!, {{s22-s27}}",
            "vmov.f32 s28, #1.0",
            "2:",
            "vldmia {x}, {{s0-s3}}",
            exps!("vfms"),
            "vmov s8, s9, r0, r1",
            "vmov s10, s11, r2, r3",
            "vldmia {x}, {{s0-s3}}",
            "vldmia {up}!, {{s4-s7}}",
            "vadd.f32 s8, s8, s28",
            "vadd.f32 s9, s9, s28",
            "vadd.f32 s10, s10, s28",
            "vadd.f32 s11, s11, s28",
            "vdiv.f32 s0, s0, s8",
            "vdiv.f32 s1, s1, s9",
            "vdiv.f32 s2, s2, s10",
            "vdiv.f32 s3, s3, s11",
            "vmul.f32 s0, s0, s4",
            "vmul.f32 s1, s1, s5",
            "vmul.f32 s2, s2, s6",
            "vmul.f32 s3, s3, s7",
            "vstmia {x}!, {{s0-s3}}",
            "subs {fours}, {fours}, #1",
            "bne 2b",
            "b 8f",
            ends!(),
            "8:",
            ;
            fours = inout(reg) fours => _,
            x = inout(reg) x => _,
            up = inout(reg) up => _,
            n = out(reg) _,
            m = out(reg) _,
            constants = inout(reg) &raw const OF_MINUS_X => _,
            out("r0") _,
            out("r1") _,
            out("r2") _,
            out("r3") _,
        );
    }
}
