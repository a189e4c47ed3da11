//! `exp`, and what is made of it: four numbers at a time in the unit's registers.

use core::arch::asm;
use core::ops::Range;

use super::float::fpu;

/// What [`exp`](crate::kernel::lanes::exp) needs in s16 to s22: its ends, the constants of `n` and `r`, and a number below the
/// square of an end.
const EXP: [f32; 7] = [88.37, -87.33, core::f32::consts::LOG2_E, 12_582_912.0, -0.693_359_4, 2.121_944_4e-4, 7600.0];
/// The polynomial of `exp`.
const POLYNOMIAL: [f32; 8] =
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5, 1.0, 1.0];

/// Cuts a number to the ends; NaN passes through.
macro_rules! ends {
    ($x:literal) => {
        concat!(
            "vcmp.f32 s16, ",
            $x,
            "\n",
            "vmrs APSR_nzcv, fpscr\n",
            "it mi\n",
            "vmovmi.f32 ",
            $x,
            ", s16\n",
            "vcmp.f32 s17, ",
            $x,
            "\n",
            "vmrs APSR_nzcv, fpscr\n",
            "it gt\n",
            "vmovgt.f32 ",
            $x,
            ", s17\n",
        )
    };
}

/// Of x: n, in the low bits of a register, and r in place of x. Changes s24.
macro_rules! parts {
    ($x:literal, $n:literal) => {
        concat!(
            "vmul.f32 s24, ",
            $x,
            ", s18\n",
            "vadd.f32 ",
            $n,
            ", s24, s19\n",
            "vsub.f32 s24, ",
            $n,
            ", s19\n",
            "vfma.f32 ",
            $x,
            ", s24, s20\n",
            "vfma.f32 ",
            $x,
            ", s24, s21\n",
        )
    };
}

/// Two n to powers of two.
macro_rules! powers {
    ($n:literal, $m:literal) => {
        concat!(
            "vmov {n}, {m}, ",
            $n,
            ", ",
            $m,
            "\n",
            "add {n}, {one}, {n}, lsl #23\n",
            "add {m}, {one}, {m}, lsl #23\n",
            "vmov ",
            $n,
            ", ",
            $m,
            ", {n}, {m}\n",
        )
    };
}

/// The polynomial of r times a power of two.
macro_rules! polynomial {
    ($r:literal, $power:literal, $to:literal) => {
        concat!(
            "vldmia {polynomial}, {{s8-s15}}\n",
            "vfma.f32 s9, s8, ",
            $r,
            "\n",
            "vfma.f32 s10, s9, ",
            $r,
            "\n",
            "vfma.f32 s11, s10, ",
            $r,
            "\n",
            "vfma.f32 s12, s11, ",
            $r,
            "\n",
            "vfma.f32 s13, s12, ",
            $r,
            "\n",
            "vfma.f32 s14, s13, ",
            $r,
            "\n",
            "vfma.f32 s15, s14, ",
            $r,
            "\n",
            "vmul.f32 ",
            $to,
            ", s15, ",
            $power,
            "\n",
        )
    };
}

/// `exp` of s0 to s3, to s28 to s31; s16 to s23 and s25 to s27 stay as they are.
macro_rules! exps {
    () => {
        concat!(
            // Few are beyond the ends: their squares together tell. (Beside a NaN they may be: no order is not "lower or same".)
            "vmul.f32 s24, s0, s0\n",
            "vfma.f32 s24, s1, s1\n",
            "vfma.f32 s24, s2, s2\n",
            "vfma.f32 s24, s3, s3\n",
            "vcmp.f32 s24, s22\n",
            "vmrs APSR_nzcv, fpscr\n",
            "bls 9f\n",
            ends!("s0"),
            ends!("s1"),
            ends!("s2"),
            ends!("s3"),
            "9:\n",
            parts!("s0", "s4"),
            parts!("s1", "s5"),
            parts!("s2", "s6"),
            parts!("s3", "s7"),
            powers!("s4", "s5"),
            powers!("s6", "s7"),
            polynomial!("s0", "s4", "s28"),
            polynomial!("s1", "s5", "s29"),
            polynomial!("s2", "s6", "s30"),
            polynomial!("s3", "s7", "s31"),
        )
    };
    // Of s0, to s28.
    (one) => {
        concat!(ends!("s0"), parts!("s0", "s4"), powers!("s4", "s5"), polynomial!("s0", "s4", "s28"))
    };
}

/// [`Unit::softmax`](crate::kernel::scalar::Unit::softmax), four numbers at a time, so that all stays in registers.
///
/// # Safety
///
/// As there.
#[inline(never)]
pub(super) unsafe fn softmax(at: *mut f32, best: f32, scores: Range<usize>, total: *mut f32) {
    let lane = scores.start % 16;
    // SAFETY: the caller's scores, of which those of a sixteen have their lane of the totals.
    unsafe {
        fpu!(
            "vldmia {ends}, {{s16-s22}}",
            "vmov s23, {best}",
            "6:",
            "mov {left}, {room}",
            "cmp {all}, {left}",
            "it lo",
            "movlo {left}, {all}",
            "sub {all}, {all}, {left}",
            "mov {room}, #16",
            "b 3f",
            "2:",
            "vldmia {at}, {{s0-s3}}",
            "vsub.f32 s0, s0, s23",
            "vsub.f32 s1, s1, s23",
            "vsub.f32 s2, s2, s23",
            "vsub.f32 s3, s3, s23",
            exps!(),
            "vldmia {total}, {{s24-s27}}",
            "vadd.f32 s24, s24, s28",
            "vadd.f32 s25, s25, s29",
            "vadd.f32 s26, s26, s30",
            "vadd.f32 s27, s27, s31",
            "vstmia {at}!, {{s28-s31}}",
            "vstmia {total}!, {{s24-s27}}",
            "3:",
            "subs {left}, {left}, #4",
            "bge 2b",
            "adds {left}, {left}, #4",
            "beq 5f",
            "4:",
            "vldr s0, [{at}]",
            "vsub.f32 s0, s0, s23",
            exps!(one),
            "vldr s24, [{total}]",
            "vadd.f32 s24, s24, s28",
            "vstmia {at}!, {{s28}}",
            "vstmia {total}!, {{s24}}",
            "subs {left}, {left}, #1",
            "bne 4b",
            "5:",
            "sub {total}, {total}, #64",
            "cmp {all}, #0",
            "bne 6b",
            ;
            left = out(reg) _,
            room = inout(reg) 16 - lane => _,
            all = inout(reg) scores.len() => _,
            at = inout(reg) at.add(scores.start) => _,
            total = inout(reg) total.add(lane) => _,
            best = in(reg) best.to_bits(),
            n = out(reg) _,
            m = out(reg) _,
            one = in(reg) 1f32.to_bits(),
            ends = in(reg) EXP.as_ptr(),
            polynomial = in(reg) POLYNOMIAL.as_ptr(),
        );
    }
}

/// [`Unit::silu`](crate::kernel::scalar::Unit::silu), in the same way.
///
/// # Safety
///
/// There are `left` numbers at `x`, and at `up` unless it is null.
#[inline(never)]
pub(super) unsafe fn silu(x: *mut f32, up: *const f32, left: usize) {
    // SAFETY: the caller's numbers.
    unsafe {
        fpu!(
            "vldmia {ends}, {{s16-s22}}",
            "vmov s23, {one}",
            "b 3f",
            "2:",
            "vldmia {x}, {{s0-s3}}",
            "vneg.f32 s0, s0",
            "vneg.f32 s1, s1",
            "vneg.f32 s2, s2",
            "vneg.f32 s3, s3",
            exps!(),
            "vldmia {x}, {{s0-s3}}",
            "vadd.f32 s28, s28, s23",
            "vadd.f32 s29, s29, s23",
            "vadd.f32 s30, s30, s23",
            "vadd.f32 s31, s31, s23",
            "vdiv.f32 s0, s0, s28",
            "vdiv.f32 s1, s1, s29",
            "vdiv.f32 s2, s2, s30",
            "vdiv.f32 s3, s3, s31",
            "cmp {up}, #0",
            "beq 6f",
            "vldmia {up}!, {{s4-s7}}",
            "vmul.f32 s0, s0, s4",
            "vmul.f32 s1, s1, s5",
            "vmul.f32 s2, s2, s6",
            "vmul.f32 s3, s3, s7",
            "6:",
            "vstmia {x}!, {{s0-s3}}",
            "3:",
            "subs {left}, {left}, #4",
            "bge 2b",
            "adds {left}, {left}, #4",
            "beq 5f",
            "4:",
            "vldr s0, [{x}]",
            "vneg.f32 s0, s0",
            exps!(one),
            "vldr s0, [{x}]",
            "vadd.f32 s28, s28, s23",
            "vdiv.f32 s0, s0, s28",
            "cmp {up}, #0",
            "itt ne",
            "vldmiane {up}!, {{s4}}",
            "vmulne.f32 s0, s0, s4",
            "vstmia {x}!, {{s0}}",
            "subs {left}, {left}, #1",
            "bne 4b",
            "5:",
            ;
            left = inout(reg) left => _,
            x = inout(reg) x => _,
            up = inout(reg) up => _,
            n = out(reg) _,
            m = out(reg) _,
            one = in(reg) 1f32.to_bits(),
            ends = in(reg) EXP.as_ptr(),
            polynomial = in(reg) POLYNOMIAL.as_ptr(),
        );
    }
}
