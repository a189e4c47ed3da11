//! Operations on vectors between the matrix products: copy, add, rotate, norm, and storing keys and values.

use super::assembly::{ZEROS, fpu, sums, tree};

/// Does the same as [`Unit::copy`](crate::kernel::scalar::Unit::copy), for `n` floats.
///
/// # Safety
///
/// `x` and `y` point to `n` floats each.
#[inline(never)]
pub(super) unsafe fn copy(x: *mut f32, y: *const f32, n: usize) {
    // SAFETY: reads and writes these floats only.
    unsafe {
        fpu!(
            "b 3f",
            "2:",
            "vldmia {y}!, {{s0-s15}}",
            "vstmia {x}!, {{s0-s15}}",
            "3:",
            "subs {n}, {n}, #16",
            "bge 2b",
            "adds {n}, {n}, #16",
            "beq 5f",
            "4:",
            "vldmia {y}!, {{s0}}",
            "vstmia {x}!, {{s0}}",
            "subs {n}, {n}, #1",
            "bne 4b",
            "5:",
            ;
            x = inout(reg) x => _,
            y = inout(reg) y => _,
            n = inout(reg) n => _,
        );
    }
}

/// Writes keys and values of several heads to position `slot` of each head's tile. From one head's tile to the next
/// head's tile are `apart` floats. `dim` is a multiple of four. The tiles have the f32 layout of
/// [`HeadLayout`](crate::memory::HeadLayout): a key is a column of rows of 16, a value is a row padded with zeros.
///
/// # Safety
///
/// `keys` and `values` have `heads` times `dim` floats, and neither is 0; `dim` is a multiple of four. There is a tile
/// for each head, `apart` floats after the tile of the previous head. A tile's value rows have `width` floats, and
/// `slot` is less than 16.
#[inline(never)]
pub(super) unsafe fn store_kv(
    (keys, values): (*const f32, *const f32),
    tiles: *mut f32,
    (heads, apart): (usize, usize),
    (dim, width): (usize, usize),
    slot: usize,
) {
    // SAFETY: reads the keys and values, and writes a column and a row of each head's tile.
    unsafe {
        let row = tiles.add(16 * dim + slot * width);
        fpu!(
            "2:",
            "vldmia {key}!, {{s0-s3}}",
            "vldmia {value}!, {{s4-s7}}",
            "vstr s0, [{column}]",
            "vstr s1, [{column}, #64]",
            "vstr s2, [{column}, #128]",
            "vstr s3, [{column}, #192]",
            "add {column}, {column}, #256",
            "vstmia {row}!, {{s4-s7}}",
            "cmp {row}, {last}",
            "bne 2b",
            "vldmia {zeros}, {{s0-s3}}",
            "b 4f",
            "3:",
            "vstmia {row}!, {{s0-s3}}",
            "4:",
            "cmp {row}, {end}",
            "bne 3b",
            "add {column}, {column}, {on}",
            "add {row}, {row}, {over}",
            "add {last}, {last}, {apart}",
            "add {end}, {end}, {apart}",
            "subs {heads}, {heads}, #1",
            "bne 2b",
            ;
            key = inout(reg) keys => _,
            value = inout(reg) values => _,
            column = inout(reg) tiles.add(slot) => _,
            row = inout(reg) row => _,
            last = inout(reg) row.add(dim) => _,
            end = inout(reg) row.add(width) => _,
            zeros = in(reg) ZEROS.as_ptr(),
            heads = inout(reg) heads => _,
            apart = in(reg) 4 * apart,
            on = in(reg) 4 * (apart - 16 * dim),
            over = in(reg) 4 * (apart - width),
        );
    }
}

/// Does the same as [`Unit::add`](crate::kernel::scalar::Unit::add), for `n` floats.
///
/// # Safety
///
/// `x` and `y` point to `n` floats each.
#[inline(never)]
pub(super) unsafe fn add(x: *mut f32, y: *const f32, n: usize) {
    // SAFETY: reads and writes these floats only.
    unsafe {
        fpu!(
            "b 3f",
            "2:",
            "vldmia {x}, {{s0-s7}}",
            "vldmia {y}!, {{s8-s15}}",
            sums!("s0" "s8", "s1" "s9", "s2" "s10", "s3" "s11", "s4" "s12", "s5" "s13", "s6" "s14", "s7" "s15"),
            "vstmia {x}!, {{s0-s7}}",
            "3:",
            "subs {n}, {n}, #8",
            "bge 2b",
            "adds {n}, {n}, #8",
            "beq 5f",
            "4:",
            "vldr s0, [{x}]",
            "vldmia {y}!, {{s8}}",
            "vadd.f32 s0, s0, s8",
            "vstmia {x}!, {{s0}}",
            "subs {n}, {n}, #1",
            "bne 4b",
            "5:",
            ;
            x = inout(reg) x => _,
            y = inout(reg) y => _,
            n = inout(reg) n => _,
        );
    }
}

/// Assembly that rotates pairs (`$a`, `$b`) by cosines and sines, and writes the results to `$x` and `$y`. VMLA and
/// VMLS round each product before they add it, as the reference implementation does.
macro_rules! turned {
    ($($a:literal $b:literal, $cos:literal $sin:literal, $x:literal $y:literal);*) => {
        concat!($(
            "vmul.f32 ", $x, ", ", $a, ", ", $cos, "\n",
            "vmul.f32 ", $y, ", ", $a, ", ", $sin, "\n",
            "vmls.f32 ", $x, ", ", $b, ", ", $sin, "\n",
            "vmla.f32 ", $y, ", ", $b, ", ", $cos, "\n",
        )*)
    };
}

/// Does the same as [`Unit::rotate_pairs`](crate::kernel::scalar::Unit::rotate_pairs), for the first `pairs` pairs of
/// each head.
///
/// # Safety
///
/// `x` points to `heads` times `dim` floats, and `heads` is not 0; `2 * pairs <= dim`; `cos` and `sin` point to `pairs`
/// floats.
#[inline(never)]
pub(super) unsafe fn rotate_pairs(
    x: *mut f32,
    (heads, dim): (usize, usize),
    cos: *const f32,
    sin: *const f32,
    pairs: usize,
) {
    // SAFETY: reads and writes these floats only.
    unsafe {
        fpu!(
            "20:",
            "mov {c}, {cos}",
            "mov {s}, {sin}",
            "mov {n}, {pairs}",
            "b 3f",
            "2:",
            "vldmia {x}, {{s0-s7}}",
            "vldmia {c}!, {{s8-s11}}",
            "vldmia {s}!, {{s12-s15}}",
            turned!(
                "s0" "s1", "s8" "s12", "s16" "s17"; "s2" "s3", "s9" "s13", "s18" "s19";
                "s4" "s5", "s10" "s14", "s20" "s21"; "s6" "s7", "s11" "s15", "s22" "s23"
            ),
            "vstmia {x}!, {{s16-s23}}",
            "3:",
            "subs {n}, {n}, #4",
            "bge 2b",
            "adds {n}, {n}, #4",
            "beq 5f",
            "4:",
            "vldmia {x}, {{s0-s1}}",
            "vldmia {c}!, {{s8}}",
            "vldmia {s}!, {{s12}}",
            turned!("s0" "s1", "s8" "s12", "s16" "s17"),
            "vstmia {x}!, {{s16-s17}}",
            "subs {n}, {n}, #1",
            "bne 4b",
            "5:",
            "add {x}, {x}, {rest}",
            "subs {heads}, {heads}, #1",
            "bne 20b",
            ;
            x = inout(reg) x => _,
            heads = inout(reg) heads => _,
            rest = in(reg) 4 * (dim - 2 * pairs),
            cos = in(reg) cos,
            sin = in(reg) sin,
            pairs = in(reg) pairs,
            c = out(reg) _,
            s = out(reg) _,
            n = out(reg) _,
        );
    }
}

/// Adds the square of a register to each sum.
macro_rules! squares {
    ($($sum:literal $x:literal),*) => { concat!($("vfma.f32 ", $sum, ", ", $x, ", ", $x, "\n",)*) };
}

/// Multiplies registers by s0 and by a weight.
macro_rules! scaled {
    ($($x:literal $w:literal),*) => {
        concat!($("vmul.f32 ", $x, ", ", $x, ", s0\n",)* $("vmul.f32 ", $x, ", ", $x, ", ", $w, "\n",)*)
    };
}

/// RMS norm with weights.
///
/// # Safety
///
/// `x` points to `len` floats, a multiple of 16 and not 0; `weight` points to `len` floats, aligned to 4 bytes.
pub(super) unsafe fn rms_norm(x: *mut f32, weight: *const u8, len: usize, eps: f32) {
    // SAFETY: reads and writes these floats only.
    unsafe {
        fpu!(
            "vldmia {zeros}, {{s0-s15}}",
            "2:",
            "vldmia {at}!, {{s16-s31}}",
            squares!("s0" "s16", "s1" "s17", "s2" "s18", "s3" "s19", "s4" "s20", "s5" "s21", "s6" "s22", "s7" "s23"),
            squares!("s8" "s24", "s9" "s25", "s10" "s26", "s11" "s27", "s12" "s28", "s13" "s29", "s14" "s30", "s15" "s31"),
            "cmp {at}, {end}",
            "bne 2b",
            tree!(),
            "vmov s1, s2, {len}, {eps}",
            "vdiv.f32 s0, s0, s1",
            "vadd.f32 s0, s0, s2",
            "vsqrt.f32 s0, s0",
            "vmov.f32 s1, #1.0",
            "vdiv.f32 s0, s1, s0",
            "3:",
            "vldmia {x}, {{s8-s15}}",
            "vldmia {weight}!, {{s16-s23}}",
            scaled!("s8" "s16", "s9" "s17", "s10" "s18", "s11" "s19", "s12" "s20", "s13" "s21", "s14" "s22", "s15" "s23"),
            "vstmia {x}!, {{s8-s15}}",
            "cmp {x}, {end}",
            "bne 3b",
            ;
            zeros = in(reg) ZEROS.as_ptr(),
            at = inout(reg) x => _,
            x = inout(reg) x => _,
            end = in(reg) x.add(len),
            weight = inout(reg) weight => _,
            len = in(reg) (len as f32).to_bits(),
            eps = in(reg) eps.to_bits(),
        );
    }
}
