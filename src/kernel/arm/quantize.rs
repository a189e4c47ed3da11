//! Quantizes activations: finds the largest magnitude by comparing integers, and packs and sums four bytes at a time.

use core::arch::asm;

/// The bits of infinity; the bits of a NaN are larger.
const INFINITE: u32 = f32::INFINITY.to_bits();

/// Does the same as [`Unit::quantize_block`](crate::kernel::scalar::Unit::quantize_block), for a multiple of 16 floats.
/// (The function is not generic, so that an image has one copy for blocks of 32 and of 256.)
#[inline(never)]
pub(super) fn quantize(x: &[f32], q: &mut [i8], sums: &mut [i16]) -> f32 {
    let sixteens = x.len().min(q.len()).min(16 * sums.len()) / 16;
    if sixteens == 0 {
        return 0.0;
    }
    // SAFETY: `x` has at least `16 * sixteens` floats.
    let largest = unsafe { largest(x.as_ptr(), sixteens) };
    if largest >= INFINITE {
        q.fill(0);
        sums.fill(0);
        return f32::NAN;
    }
    let largest = f32::from_bits(largest);
    // If `largest` is 0 or so small that the scale becomes 0, all quants are 0.
    let inverse = 127.0 / largest;
    let inverse = if inverse == f32::INFINITY { 0.0 } else { inverse };
    // SAFETY: `x` and `q` have at least `16 * sixteens` elements, and `sums` has `sixteens` elements; `largest *
    // inverse` is at most 127.
    unsafe { round(x.as_ptr(), inverse, sixteens, q.as_mut_ptr(), sums.as_mut_ptr()) };
    largest
}

/// Assembly that compares magnitudes, as bits shifted left by 1 to drop the sign, with the largest magnitude so far. A
/// new maximum is rare, so its branch is out of line.
macro_rules! compare {
    ($($x:literal $then:literal $on:literal),*) => {
        concat!($("cmp {most}, ", $x, ", lsl #1\n", "blo ", $then, "f\n", $on, ":\n",)*)
    };
    (then $($x:literal $then:literal $on:literal),*) => {
        concat!($($then, ":\n", "lsl {most}, ", $x, ", #1\n", "b ", $on, "b\n",)*)
    };
}

/// Returns the largest magnitude of the floats, as bits shifted left by 1 to drop the sign.
///
/// # Safety
///
/// `x` points to `16 * sixteens` floats, and `sixteens` is not 0.
unsafe fn largest(x: *const f32, sixteens: usize) -> u32 {
    let mut most = 0u32;
    // SAFETY: reads these floats only.
    unsafe {
        asm!(
            "2:",
            "ldmia {x}!, {{r0-r3}}",
            compare!("r0" "30" "40", "r1" "31" "41", "r2" "32" "42", "r3" "33" "43"),
            "ldmia {x}!, {{r0-r3}}",
            compare!("r0" "34" "44", "r1" "35" "45", "r2" "36" "46", "r3" "37" "47"),
            "cmp {x}, {end}",
            "bne 2b",
            "b 3f",
            compare!(then "r0" "30" "40", "r1" "31" "41", "r2" "32" "42", "r3" "33" "43"),
            compare!(then "r0" "34" "44", "r1" "35" "45", "r2" "36" "46", "r3" "37" "47"),
            "3:",
            x = inout(reg) x => _,
            end = in(reg) x.add(16 * sixteens),
            most = inout(reg) most,
            out("r0") _,
            out("r1") _,
            out("r2") _,
            out("r3") _,
            options(nostack, readonly),
        );
    }
    most >> 1
}

/// Assembly that packs the low bytes of four rounded floats to a word and stores the word. Also adds the bytes to the
/// sums, as pairs of i16.
macro_rules! four {
    ($s0:literal, $s1:literal, $s2:literal, $s3:literal) => {
        concat!(
            "vmov {a}, {b}, ",
            $s0,
            ", ",
            $s1,
            "\n",
            "vmov {c}, {d}, ",
            $s2,
            ", ",
            $s3,
            "\n",
            "bfi {a}, {b}, #8, #8\n",
            "bfi {a}, {c}, #16, #8\n",
            "bfi {a}, {d}, #24, #8\n",
            "str {a}, [{q}], #4\n",
            "sxtab16 {sum}, {sum}, {a}\n",
            "sxtab16 {sum}, {sum}, {a}, ror #8\n",
        )
    };
}

/// Assembly that multiplies floats by s16, the inverse of the scale, and rounds the products. s17 is 1.5 * 2^23: adding
/// it rounds to an integer, because the last bit of a float of this size is worth 1.
macro_rules! rounded {
    ($($s:literal)*) => {
        concat!($("vmul.f32 ", $s, ", ", $s, ", s16\n", "vadd.f32 ", $s, ", ", $s, ", s17\n",)*)
    };
}

/// Multiplies floats by `inverse` and rounds half to even. Writes the results as bytes to `q`, and the sum of every 16
/// results to `sums`.
///
/// # Safety
///
/// `x` and `q` point to `16 * sixteens` elements, `sums` points to `sixteens` elements, and `sixteens` is not 0; the
/// products are at most 127.
unsafe fn round(x: *const f32, inverse: f32, sixteens: usize, q: *mut i8, sums: *mut i16) {
    // SAFETY: reads and writes these elements only. Words may be stored at any address.
    unsafe {
        asm!(
            "vmov s16, s17, {a}, {b}", // the inverse, and 1.5 * 2^23
            "2:",
            "vldmia {x}!, {{s0-s15}}",
            rounded!("s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7" "s8" "s9" "s10" "s11" "s12" "s13" "s14" "s15"),
            "mov {sum}, #0",
            four!("s0", "s1", "s2", "s3"),
            four!("s4", "s5", "s6", "s7"),
            four!("s8", "s9", "s10", "s11"),
            four!("s12", "s13", "s14", "s15"),
            "add {sum}, {sum}, {sum}, lsl #16", // the upper half becomes the total
            "asr {sum}, {sum}, #16",
            "strh {sum}, [{sums}], #2",
            "cmp {x}, {end}",
            "bne 2b",
            x = inout(reg) x => _,
            end = in(reg) x.add(16 * sixteens),
            q = inout(reg) q => _,
            sums = inout(reg) sums => _,
            sum = out(reg) _,
            a = inout(reg) inverse.to_bits() => _,
            b = inout(reg) 12_582_912f32.to_bits() => _,
            c = out(reg) _,
            d = out(reg) _,
            out("s0") _, out("s1") _, out("s2") _, out("s3") _, out("s4") _, out("s5") _, out("s6") _, out("s7") _,
            out("s8") _, out("s9") _, out("s10") _, out("s11") _, out("s12") _, out("s13") _, out("s14") _,
            out("s15") _, out("s16") _, out("s17") _,
            options(nostack),
        );
    }
}
