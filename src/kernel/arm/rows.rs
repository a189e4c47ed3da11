//! Assembly that converts rows of the KV cache, each of sixteen elements, to floats.

use core::mem::MaybeUninit;

use super::assembly::fpu;
use super::attention::sum_rows;
use crate::kernel::lanes::Elements;
use crate::memory::{KvType, TILE};

/// Converts two f16 of each register.
macro_rules! halves {
    ($($from:literal $low:literal $high:literal),*) => {
        concat!($("vcvtb.f32.f16 ", $low, ", ", $from, "\n", "vcvtt.f32.f16 ", $high, ", ", $from, "\n",)*)
    };
}

/// Extracts four signed fields from each of the words r0 to r3, and converts them to floats. The fields have `$bits`
/// bits and begin at the bits `$i`, `$j`, `$k` and `$l`.
macro_rules! fields {
    ($bits:literal, $i:literal $j:literal $k:literal $l:literal) => {
        concat!(
            fields!(@ $bits, $i $j $k $l, "r0", "s0" "s1" "s2" "s3"),
            fields!(@ $bits, $i $j $k $l, "r1", "s4" "s5" "s6" "s7"),
            fields!(@ $bits, $i $j $k $l, "r2", "s8" "s9" "s10" "s11"),
            fields!(@ $bits, $i $j $k $l, "r3", "s12" "s13" "s14" "s15"),
        )
    };
    (
        @ $bits:literal, $i:literal $j:literal $k:literal $l:literal, $from:literal,
        $a:literal $b:literal $c:literal $d:literal
    ) => {
        concat!(
            "sbfx r4, ", $from, ", #", $i, ", #", $bits, "\n",
            "sbfx r5, ", $from, ", #", $j, ", #", $bits, "\n",
            "vmov ", $a, ", ", $b, ", r4, r5\n",
            "sbfx r4, ", $from, ", #", $k, ", #", $bits, "\n",
            "sbfx r5, ", $from, ", #", $l, ", #", $bits, "\n",
            "vmov ", $c, ", ", $d, ", r4, r5\n",
            "vcvt.f32.s32 ", $a, ", ", $a, "\n",
            "vcvt.f32.s32 ", $b, ", ", $b, "\n",
            "vcvt.f32.s32 ", $c, ", ", $c, "\n",
            "vcvt.f32.s32 ", $d, ", ", $d, "\n",
        )
    };
}

/// Assembly that converts fields of four bits to floats. Inverts the highest bit of each field first: read as a signed
/// number, the field is then 8 less.
macro_rules! nibbles {
    ($i:literal $j:literal $k:literal $l:literal) => {
        concat!(
            "eor r0, r0, {flip}\n",
            "eor r1, r1, {flip}\n",
            "eor r2, r2, {flip}\n",
            "eor r3, r3, {flip}\n",
            fields!("4", $i $j $k $l),
        )
    };
}

/// Defines a function that processes rows one by one. `$load` loads 16 elements of a row, and `$row` converts them to
/// floats in s0 to s15.
macro_rules! conversion {
    ($name:ident, $load:literal, $row:expr $(, $operand:ident = $value:expr)?) => {
        /// # Safety
        ///
        /// The conditions of [`convert`] hold.
        #[inline(never)]
        unsafe fn $name(to: *mut f32, rows: *const u8, stride: usize, n: usize) {
            // SAFETY: reads only the rows that the caller promises, and writes as many rows of floats.
            unsafe {
                fpu!(
                    "2:",
                    $load,
                    "add {rows}, {rows}, {stride}",
                    $row,
                    "vstmia {to}!, {{s0-s15}}",
                    "subs {n}, {n}, #1",
                    "bne 2b",
                    ;
                    to = inout(reg) to => _,
                    rows = inout(reg) rows => _,
                    stride = in(reg) stride,
                    n = inout(reg) n => _,
                    $($operand = in(reg) $value,)?
                    out("r0") _, out("r1") _, out("r2") _, out("r3") _, out("r4") _, out("r5") _,
                );
            }
        }
    };
}

conversion!(
    of_halves,
    "vldmia {rows}, {{s16-s23}}",
    concat!(
        halves!("s16" "s0" "s1", "s17" "s2" "s3", "s18" "s4" "s5", "s19" "s6" "s7"),
        halves!("s20" "s8" "s9", "s21" "s10" "s11", "s22" "s12" "s13", "s23" "s14" "s15"),
    )
);
conversion!(of_bytes, "ldmia {rows}, {{r0-r3}}", fields!("8", "0" "8" "16" "24"));
conversion!(of_low_halves, "ldmia {rows}, {{r0-r3}}", nibbles!("0" "8" "16" "24"), flip = 0x0808_0808u32);
conversion!(of_high_halves, "ldmia {rows}, {{r0-r3}}", nibbles!("4" "12" "20" "28"), flip = 0x8080_8080u32);

/// Converts `n` rows of sixteen elements, `stride` bytes apart, to contiguous rows of floats. Does nothing if the
/// features of this build do not include the element type.
///
/// # Safety
///
/// The rows may be read and are aligned to four bytes; `to` has room for `n` rows of floats; `n` is not 0.
#[inline(always)]
pub(super) unsafe fn convert(elements: Elements, to: *mut f32, rows: *const u8, stride: usize, n: usize) {
    let convert = match elements {
        Elements::F16 => of_halves,
        Elements::I8 if const { KvType::Q8_0.is_built() || KvType::Q8_0Q4_0.is_built() } => of_bytes,
        Elements::I4 { high: false } if const { KvType::Q4_0.is_built() } => of_low_halves,
        Elements::I4 { high: true } if const { KvType::Q4_0.is_built() } => of_high_halves,
        _ => return,
    };
    // SAFETY: the caller promises the same.
    unsafe { convert(to, rows, stride, n) };
}

/// Multiplies `n` rows by their factors and adds them to the sums. Rows are `stride` bytes apart.
///
/// # Safety
///
/// The rows and the factors may be read. Rows are aligned to four bytes.
#[inline(never)]
pub(super) unsafe fn add_rows(
    elements: Elements,
    sums: &mut [f32; 16],
    rows: *const u8,
    stride: usize,
    x: *const f32,
    n: usize,
) {
    let mut floats = MaybeUninit::<[[f32; 16]; TILE]>::uninit();
    let (floats, sums) = (floats.as_mut_ptr().cast(), sums.as_mut_ptr());
    for i in (0..n).step_by(TILE) {
        let count = TILE.min(n - i);
        // SAFETY: the caller promises rows `i..i + count` and their factors, and `floats` has room for as many rows.
        unsafe {
            convert(elements, floats, rows.add(i * stride), stride, count);
            sum_rows(floats, x.add(i), count, sums, sums);
        }
    }
}
