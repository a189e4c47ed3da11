//! Sums rows of the KV cache, each row times a factor. A row has sixteen elements, which are converted in registers.

use super::assembly::fpu;
use crate::kernel::lanes::Elements;

/// Adds products of floats and s24 to sums.
macro_rules! fmas {
    ($($sum:literal $x:literal)*) => { concat!($("vfma.f32 ", $sum, ", ", $x, ", s24\n",)*) };
}

/// Multiplies the two f16 of each register.
macro_rules! halves {
    ($($from:literal $a:literal $b:literal),*) => {
        concat!($("vcvtb.f32.f16 s25, ", $from, "\n", "vcvtt.f32.f16 s26, ", $from, "\n", fmas!($a "s25" $b "s26"),)*)
    };
}

/// Multiplies four signed fields of each word by a factor and adds the products to the lanes. The fields have `$bits`
/// bits and begin at the bits `$i` to `$l`. First, the bits of `$first` are inverted.
macro_rules! fields {
    ($first:literal, $bits:literal, $i:literal $j:literal $k:literal $l:literal) => {
        concat!(
            fields!(@ $first, $bits, $i $j $k $l, "r0", "s0" "s1" "s2" "s3"),
            fields!(@ $first, $bits, $i $j $k $l, "r1", "s4" "s5" "s6" "s7"),
            fields!(@ $first, $bits, $i $j $k $l, "r2", "s8" "s9" "s10" "s11"),
            fields!(@ $first, $bits, $i $j $k $l, "r3", "s12" "s13" "s14" "s15"),
        )
    };
    (@ "0", $from:literal) => { "" };
    (@ $first:literal, $from:literal) => { concat!("eor ", $from, ", ", $from, ", #", $first, "\n") };
    (
        @ $first:literal, $bits:literal, $i:literal $j:literal $k:literal $l:literal, $from:literal,
        $a:literal $b:literal $c:literal $d:literal
    ) => {
        concat!(
            fields!(@ $first, $from),
            "sbfx r4, ", $from, ", #", $i, ", #", $bits, "\n",
            "sbfx r5, ", $from, ", #", $j, ", #", $bits, "\n",
            "vmov s25, s26, r4, r5\n",
            "sbfx r4, ", $from, ", #", $k, ", #", $bits, "\n",
            "sbfx r5, ", $from, ", #", $l, ", #", $bits, "\n",
            "vmov s27, s28, r4, r5\n",
            "vcvt.f32.s32 s25, s25\n",
            "vcvt.f32.s32 s26, s26\n",
            "vcvt.f32.s32 s27, s27\n",
            "vcvt.f32.s32 s28, s28\n",
            fmas!($a "s25" $b "s26" $c "s27" $d "s28"),
        )
    };
}

/// Defines a loop over rows. `$load` loads a row, `$row` adds the row's products to s0 to s15.
macro_rules! sum_of_rows {
    ($name:ident, $load:literal, $row:expr) => {
        #[inline(never)]
        unsafe fn $name(sums: *mut f32, rows: *const u8, stride: usize, x: *const f32, n: usize) {
            // SAFETY: reads only the rows and factors that the caller promises, and updates the sums.
            unsafe {
                fpu!(
                    "vldmia {sums}, {{s0-s15}}",
                    "b 3f",
                    "2:",
                    $load,
                    "vldmia {x}!, {{s24}}",
                    "add {rows}, {rows}, {stride}",
                    $row,
                    "3:",
                    "subs {n}, {n}, #1",
                    "bhs 2b",
                    "vstmia {sums}, {{s0-s15}}",
                    ;
                    sums = in(reg) sums,
                    rows = inout(reg) rows => _,
                    stride = in(reg) stride,
                    x = inout(reg) x => _,
                    n = inout(reg) n => _,
                    out("r0") _, out("r1") _, out("r2") _, out("r3") _, out("r4") _, out("r5") _,
                );
            }
        }
    };
}

sum_of_rows!(
    of_halves,
    "vldmia {rows}, {{s16-s23}}",
    concat!(
        halves!("s16" "s0" "s1", "s17" "s2" "s3", "s18" "s4" "s5", "s19" "s6" "s7"),
        halves!("s20" "s8" "s9", "s21" "s10" "s11", "s22" "s12" "s13", "s23" "s14" "s15"),
    )
);
sum_of_rows!(of_bytes, "ldmia {rows}, {{r0-r3}}", fields!("0", "8", "0" "8" "16" "24"));
// Inverting the highest bit of four subtracts 8.
sum_of_rows!(of_low_halves, "ldmia {rows}, {{r0-r3}}", fields!("0x08080808", "4", "0" "8" "16" "24"));
sum_of_rows!(of_high_halves, "ldmia {rows}, {{r0-r3}}", fields!("0x80808080", "4", "4" "12" "20" "28"));

/// Adds `n` rows, each times its factor, to the sums. Rows are `stride` bytes apart.
///
/// # Safety
///
/// The rows and the factors may be read. Rows are aligned to four bytes.
#[inline(always)]
pub(super) unsafe fn add_rows(
    elements: Elements,
    sums: &mut [f32; 16],
    rows: *const u8,
    stride: usize,
    x: *const f32,
    n: usize,
) {
    let add = match elements {
        Elements::F16 => of_halves,
        Elements::I8 => of_bytes,
        Elements::I4 { high: false } => of_low_halves,
        Elements::I4 { high: true } => of_high_halves,
    };
    // SAFETY: the caller promises the same.
    unsafe { add(sums.as_mut_ptr(), rows, stride, x, n) };
}
