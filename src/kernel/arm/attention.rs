//! What attention of one row does with numbers in f32.

use core::arch::asm;

use super::float::{ZEROS, fpu, tree, unit};

/// Eight numbers of a row times a factor, to the lower lanes or the upper; the pointer may move on.
macro_rules! eight {
    (low! $row:literal, $x:literal) => {
        concat!("vldmia ", $row, "!, {{s16-s23}}\n", eight!(@ $x, "s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7"))
    };
    (low $row:literal, $x:literal) => {
        concat!("vldmia ", $row, ", {{s16-s23}}\n", eight!(@ $x, "s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7"))
    };
    (high $row:literal, $x:literal) => {
        concat!("vldmia ", $row, ", {{s16-s23}}\n", eight!(@ $x, "s8" "s9" "s10" "s11" "s12" "s13" "s14" "s15"))
    };
    (@ $x:literal, $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal $h:literal) => {
        concat!(
            "vfma.f32 ", $a, ", s16, ", $x, "\n",
            "vfma.f32 ", $b, ", s17, ", $x, "\n",
            "vfma.f32 ", $c, ", s18, ", $x, "\n",
            "vfma.f32 ", $d, ", s19, ", $x, "\n",
            "vfma.f32 ", $e, ", s20, ", $x, "\n",
            "vfma.f32 ", $f, ", s21, ", $x, "\n",
            "vfma.f32 ", $g, ", s22, ", $x, "\n",
            "vfma.f32 ", $h, ", s23, ", $x, "\n",
        )
    };
}

/// Sixteen numbers of a row, or its first eight, times a factor; the pointer moves on to the next row.
macro_rules! row {
    (16, $row:literal, $x:literal) => {
        concat!(eight!(low! $row, $x), eight!(high $row, $x), "add ", $row, ", ", $row, ", {step}\n")
    };
    (8, $row:literal, $x:literal) => {
        concat!(eight!(low $row, $x), "add ", $row, ", ", $row, ", {half_step}\n")
    };
}

/// A row of 16 keys, or the first eight, times a number of the query, and on to the next.
macro_rules! keys {
    (16, $x:literal) => {
        concat!(eight!(low "{k}!", $x), eight!(high "{k}!", $x))
    };
    // All sixteen come at once, so that the pointer moves on.
    (8, $x:literal) => {
        concat!(
            "vldmia {k}!, {{s8-s23}}\n",
            "vfma.f32 s0, s8, ", $x, "\n",
            "vfma.f32 s1, s9, ", $x, "\n",
            "vfma.f32 s2, s10, ", $x, "\n",
            "vfma.f32 s3, s11, ", $x, "\n",
            "vfma.f32 s4, s12, ", $x, "\n",
            "vfma.f32 s5, s13, ", $x, "\n",
            "vfma.f32 s6, s14, ", $x, "\n",
            "vfma.f32 s7, s15, ", $x, "\n",
        )
    };
}

/// Sums times s28.
macro_rules! times {
    ($($x:literal)*) => { concat!($("vmul.f32 ", $x, ", ", $x, ", s28\n",)*) };
}

/// What [`Unit::scores`](crate::kernel::scalar::Unit::scores) makes of `n` positions, from a tile's first on.
///
/// # Safety
///
/// As there.
#[inline(always)]
pub(super) unsafe fn scores(at: *const *const f32, q: &[f32], factor: f32, n: usize, to: *mut f32) {
    // SAFETY: the caller has these tiles, a row of 16 in each for each number of `q`, and room for the tiles' scores.
    unsafe {
        fpu!(
            "vmov s28, {d}",
            "20:",
            "ldr {k}, [{at}], #4",
            "mov {x}, {q}",
            "mov {d}, {dim}",
            "vldmia {zeros}, {{s0-s15}}",
            "cmp {n}, #8",
            "bls 6f",
            // Four rows at a time, then the rest.
            "b 3f",
            "2:",
            "vldmia {x}!, {{s24-s27}}",
            keys!(16, "s24"),
            keys!(16, "s25"),
            keys!(16, "s26"),
            keys!(16, "s27"),
            "3:",
            "subs {d}, {d}, #4",
            "bge 2b",
            "adds {d}, {d}, #4",
            "beq 8f",
            "4:",
            "vldmia {x}!, {{s24}}",
            keys!(16, "s24"),
            "subs {d}, {d}, #1",
            "bne 4b",
            "8:",
            times!("s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7" "s8" "s9" "s10" "s11" "s12" "s13" "s14" "s15"),
            "vstmia {to}!, {{s0-s15}}",
            "subs {n}, {n}, #16",
            "bhi 20b",
            "b 9f",
            // Half of the lanes will do.
            "7:",
            "vldmia {x}!, {{s24-s27}}",
            keys!(8, "s24"),
            keys!(8, "s25"),
            keys!(8, "s26"),
            keys!(8, "s27"),
            "6:",
            "subs {d}, {d}, #4",
            "bge 7b",
            "adds {d}, {d}, #4",
            "beq 8f",
            "4:",
            "vldmia {x}!, {{s24}}",
            keys!(8, "s24"),
            "subs {d}, {d}, #1",
            "bne 4b",
            "8:",
            times!("s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7"),
            "vstmia {to}, {{s0-s7}}",
            "9:",
            ;
            at = inout(reg) at => _,
            q = in(reg) q.as_ptr(),
            dim = in(reg) q.len(),
            n = inout(reg) n => _,
            to = inout(reg) to => _,
            zeros = in(reg) ZEROS.as_ptr(),
            d = inout(reg) factor.to_bits() => _,
            k = out(reg) _,
            x = out(reg) _,
        );
    }
}

/// The largest so far of r0 to r3, in the sense of a condition, which seldom is true: what is done then lies elsewhere.
macro_rules! larger {
    ($than:literal $($x:literal $then:literal $on:literal),*) => {
        concat!($("cmp ", $x, ", {top}\n", "b", $than, " ", $then, "f\n", $on, ":\n",)*)
    };
    (then $($x:literal $then:literal $on:literal),*) => {
        concat!($($then, ":\n", "mov {top}, ", $x, "\n", "b ", $on, "b\n",)*)
    };
}

/// [`Unit::add_rows`](crate::kernel::scalar::Unit::add_rows): `all` rows, `values` elements on from each place: at
/// the first of them `first`, `skip` elements further on, at the others sixteen.
///
/// # Safety
///
/// As there; the places are there.
#[inline(always)]
pub(super) unsafe fn add_rows(
    at: *const *const f32,
    (values, skip): (usize, usize),
    (all, first): (usize, usize),
    stride: usize,
    x: *const f32,
    lanes: usize,
    to: *mut f32,
) {
    // SAFETY: the caller has these rows, as many factors, and 16 sums.
    unsafe {
        fpu!(
            "vldmia {to}, {{s0-s15}}",
            "20:",
            "ldr {rows}, [{at}], #4",
            "add {rows}, {rows}, {skip}",
            "mov {skip}, {values}",
            "cmp {all}, {n}",
            "it lo",
            "movlo {n}, {all}",
            "sub {all}, {all}, {n}",
            "cmp {lanes}, #8",
            "bls 6f",
            // Four rows at a time, then the rest.
            "b 3f",
            "2:",
            "vldmia {x}!, {{s24-s27}}",
            row!(16, "{rows}", "s24"),
            row!(16, "{rows}", "s25"),
            row!(16, "{rows}", "s26"),
            row!(16, "{rows}", "s27"),
            "3:",
            "subs {n}, {n}, #4",
            "bge 2b",
            "adds {n}, {n}, #4",
            "beq 8f",
            "4:",
            "vldmia {x}!, {{s24}}",
            row!(16, "{rows}", "s24"),
            "subs {n}, {n}, #1",
            "bne 4b",
            "b 8f",
            // Half of the lanes will do.
            "7:",
            "vldmia {x}!, {{s24-s27}}",
            row!(8, "{rows}", "s24"),
            row!(8, "{rows}", "s25"),
            row!(8, "{rows}", "s26"),
            row!(8, "{rows}", "s27"),
            "6:",
            "subs {n}, {n}, #4",
            "bge 7b",
            "adds {n}, {n}, #4",
            "beq 8f",
            "9:",
            "vldmia {x}!, {{s24}}",
            row!(8, "{rows}", "s24"),
            "subs {n}, {n}, #1",
            "bne 9b",
            "8:",
            "mov {n}, #16",
            "cmp {all}, #0",
            "bne 20b",
            "vstmia {to}, {{s0-s15}}",
            ;
            to = in(reg) to,
            at = inout(reg) at => _,
            values = in(reg) 4 * values,
            skip = inout(reg) 4 * (values + skip) => _,
            all = inout(reg) all => _,
            rows = out(reg) _,
            n = inout(reg) first => _,
            x = inout(reg) x => _,
            lanes = in(reg) lanes,
            step = in(reg) stride.wrapping_mul(4).wrapping_sub(32),
            half_step = in(reg) stride.wrapping_mul(4),
        );
    }
}

/// Zeros, whole sixteens of them.
///
/// # Safety
///
/// There is room for them.
#[inline(always)]
pub(super) unsafe fn clear(at: *mut f32, n: usize) {
    // SAFETY: within that room.
    unsafe {
        fpu!(
            "vldmia {zeros}, {{s0-s15}}",
            "2:",
            "subs {n}, {n}, #16",
            "vstmia {at}!, {{s0-s15}}",
            "bhi 2b",
            ;
            zeros = in(reg) ZEROS.as_ptr(),
            at = inout(reg) at => _,
            n = inout(reg) n => _,
        );
    }
}

/// The sum of sixteen lanes, as [`Lanes::sum`](crate::kernel::lanes::Lanes::sum).
///
/// # Safety
///
/// They are there.
#[inline(always)]
pub(super) unsafe fn sum(x: *const f32) -> f32 {
    let sum;
    // SAFETY: reads the caller's numbers.
    unsafe {
        fpu!(
            "vldmia {x}, {{s0-s15}}",
            tree!(),
            "vmov {x}, s0",
            ;
            x = inout(reg) x => sum,
        );
    }
    f32::from_bits(sum)
}

/// Some numbers times a factor, to another place or the same.
///
/// # Safety
///
/// There are `n` numbers, and room for them.
#[inline(never)]
pub(super) unsafe fn multiply(from: *const f32, to: *mut f32, factor: f32, n: usize) {
    // SAFETY: the caller's numbers.
    unsafe {
        fpu!(
            "vmov s28, {factor}",
            "b 3f",
            "2:",
            "vldmia {from}!, {{s0-s3}}",
            times!("s0" "s1" "s2" "s3"),
            "vstmia {to}!, {{s0-s3}}",
            "3:",
            "subs {n}, {n}, #4",
            "bge 2b",
            "adds {n}, {n}, #4",
            "beq 5f",
            "4:",
            "vldmia {from}!, {{s0}}",
            times!("s0"),
            "vstmia {to}!, {{s0}}",
            "subs {n}, {n}, #1",
            "bne 4b",
            "5:",
            ;
            factor = in(reg) factor.to_bits(),
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            n = inout(reg) n => _,
        );
    }
}

/// The largest of some numbers.
///
/// As bits, a number is larger than a negative one if it is lower without a sign, and than any other if it is greater with
/// one.
///
/// # Safety
///
/// There are `n` numbers.
#[inline(never)]
pub(super) unsafe fn largest(at: *const f32, n: usize) -> f32 {
    let mut top = f32::NEG_INFINITY.to_bits();
    // SAFETY: reads the caller's numbers.
    unsafe {
        asm!(
            unit!(),
            "b 4f",
            "2:",
            "ldmia {at}!, {{r0-r3}}",
            // The first that is not negative need not be the largest of the four.
            larger!("lo" "r0" "30" "40", "r1" "31" "41", "r2" "32" "42", "r3" "33" "43"),
            "cmp {top}, #0",
            "bge 6f",
            "4:",
            "subs {n}, {n}, #4",
            "bge 2b",
            "b 7f",
            "5:",
            "ldmia {at}!, {{r0-r3}}",
            "6:",
            larger!("gt" "r0" "34" "44", "r1" "35" "45", "r2" "36" "46", "r3" "37" "47"),
            "subs {n}, {n}, #4",
            "bge 5b",
            "7:",
            "adds {n}, {n}, #4",
            "beq 9f",
            "vmov s16, {top}",
            "8:",
            "vldmia {at}!, {{s0}}",
            "vcmp.f32 s16, s0",
            "vmrs APSR_nzcv, fpscr",
            "it le",
            "vmovle.f32 s16, s0",
            "subs {n}, {n}, #1",
            "bne 8b",
            "vmov {top}, s16",
            "b 9f",
            larger!(then "r0" "30" "40", "r1" "31" "41", "r2" "32" "42", "r3" "33" "43"),
            larger!(then "r0" "34" "44", "r1" "35" "45", "r2" "36" "46", "r3" "37" "47"),
            "9:",
            top = inout(reg) top,
            at = inout(reg) at => _,
            n = inout(reg) n => _,
            out("r0") _,
            out("r1") _,
            out("r2") _,
            out("r3") _,
            out("s0") _,
            out("s16") _,
            options(nostack, readonly),
        );
    }
    f32::from_bits(top)
}
