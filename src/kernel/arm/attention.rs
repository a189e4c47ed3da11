//! What attention of one row does with numbers in f32.

use core::arch::asm;

use super::float::fpu;

/// Sixteen numbers of a row, or its first eight, times a factor; the pointer moves on to the next row.
macro_rules! row {
    (16, $row:literal, $x:literal) => {
        concat!(
            row!(@ $row, "!", $x),
            "vldmia ", $row, ", {{s16-s23}}\n",
            "vfma.f32 s8, s16, ", $x, "\n",
            "vfma.f32 s9, s17, ", $x, "\n",
            "vfma.f32 s10, s18, ", $x, "\n",
            "vfma.f32 s11, s19, ", $x, "\n",
            "vfma.f32 s12, s20, ", $x, "\n",
            "vfma.f32 s13, s21, ", $x, "\n",
            "vfma.f32 s14, s22, ", $x, "\n",
            "vfma.f32 s15, s23, ", $x, "\n",
            "add ", $row, ", ", $row, ", {step}\n",
        )
    };
    (8, $row:literal, $x:literal) => {
        concat!(row!(@ $row, "", $x), "add ", $row, ", ", $row, ", {half_step}\n")
    };
    (@ $row:literal, $on:literal, $x:literal) => {
        concat!(
            "vldmia ", $row, $on, ", {{s16-s23}}\n",
            "vfma.f32 s0, s16, ", $x, "\n",
            "vfma.f32 s1, s17, ", $x, "\n",
            "vfma.f32 s2, s18, ", $x, "\n",
            "vfma.f32 s3, s19, ", $x, "\n",
            "vfma.f32 s4, s20, ", $x, "\n",
            "vfma.f32 s5, s21, ", $x, "\n",
            "vfma.f32 s6, s22, ", $x, "\n",
            "vfma.f32 s7, s23, ", $x, "\n",
        )
    };
}

/// Four numbers times s17, in place and to r0 to r3.
macro_rules! times_factor {
    () => {
        concat!(
            "vldmia {at}, {{s0-s3}}\n",
            "vmul.f32 s0, s0, s17\n",
            "vmul.f32 s1, s1, s17\n",
            "vmul.f32 s2, s2, s17\n",
            "vmul.f32 s3, s3, s17\n",
            "vstmia {at}, {{s0-s3}}\n",
            "ldmia {at}!, {{r0-r3}}\n",
        )
    };
}

/// The largest so far of r0 to r3, in the sense of a condition.
macro_rules! larger {
    ($than:literal) => {
        concat!(
            larger!(@ $than, "r0"),
            larger!(@ $than, "r1"),
            larger!(@ $than, "r2"),
            larger!(@ $than, "r3"),
        )
    };
    (@ $than:literal, $x:literal) => {
        concat!("cmp ", $x, ", {top}\n", "it ", $than, "\n", "mov", $than, " {top}, ", $x, "\n")
    };
}

/// [`Unit::add_products`], `all` rows of which some lie at the first place, `skip` elements on, and as many as
/// `each` says at the next ones.
///
/// # Safety
///
/// As there; the places are there.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // three pieces of memory, and how far they go
pub(super) unsafe fn add_rows(
    start: *const f32,
    at: *const *const f32,
    skip: usize,
    (all, first, each): (usize, usize, usize),
    stride: usize,
    x: *const f32,
    lanes: usize,
    to: *mut f32,
) {
    // SAFETY: the caller has 16 numbers at the start, these rows and as many factors, and room for 16.
    unsafe {
        fpu!(
            "vldmia {start}, {{s0-s15}}",
            "20:",
            "ldr {rows}, [{at}], #4",
            "add {rows}, {rows}, {skip}",
            "mov {skip}, #0",
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
            "mov {n}, {each}",
            "cmp {all}, #0",
            "bne 20b",
            "vstmia {to}, {{s0-s15}}",
            ;
            start = in(reg) start,
            to = in(reg) to,
            at = inout(reg) at => _,
            skip = inout(reg) 4 * skip => _,
            all = inout(reg) all => _,
            each = in(reg) each,
            rows = out(reg) _,
            n = inout(reg) first => _,
            x = inout(reg) x => _,
            lanes = in(reg) lanes,
            step = in(reg) stride.wrapping_mul(4).wrapping_sub(32),
            half_step = in(reg) stride.wrapping_mul(4),
        );
    }
}

/// Some numbers times a factor; the largest.
///
/// As bits, a number is larger than a negative one if it is lower without a sign, and than any other if it is greater with
/// one.
///
/// # Safety
///
/// There are `n` numbers.
#[inline(always)]
pub(super) unsafe fn scale(at: *mut f32, factor: f32, n: usize) -> f32 {
    let mut top = f32::NEG_INFINITY.to_bits();
    // SAFETY: reads and writes the caller's numbers.
    unsafe {
        fpu!(
            "vmov s17, {factor}",
            "b 4f",
            "2:",
            times_factor!(),
            // The first that is not negative need not be the largest of the four.
            larger!("lo"),
            "cmp {top}, #0",
            "bge 6f",
            "4:",
            "subs {n}, {n}, #4",
            "bge 2b",
            "b 7f",
            "5:",
            times_factor!(),
            "6:",
            larger!("gt"),
            "subs {n}, {n}, #4",
            "bge 5b",
            "7:",
            "adds {n}, {n}, #4",
            "beq 9f",
            "vmov s16, {top}",
            "8:",
            "vldr s0, [{at}]",
            "vmul.f32 s0, s0, s17",
            "vcmp.f32 s16, s0",
            "vmrs APSR_nzcv, fpscr",
            "it le",
            "vmovle.f32 s16, s0",
            "vstmia {at}!, {{s0}}",
            "subs {n}, {n}, #1",
            "bne 8b",
            "vmov {top}, s16",
            "9:",
            ;
            top = inout(reg) top,
            factor = in(reg) factor.to_bits(),
            at = inout(reg) at => _,
            n = inout(reg) n => _,
            out("r0") _,
            out("r1") _,
            out("r2") _,
            out("r3") _,
        );
    }
    f32::from_bits(top)
}
