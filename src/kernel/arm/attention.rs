//! The steps of attention for one query row over f32 keys and values.

use super::assembly::{ZEROS, fpu, sums, tree};

/// Assembly that adds eight floats of a row, times a factor, to `s0` to `s7` (`low!`) or `s8` to `s15` (`high`). A `!`
/// also moves the row's pointer past these eight floats.
macro_rules! eight {
    (low! $row:literal, $x:literal) => {
        concat!("vldmia ", $row, "!, {{s16-s23}}\n", eight!(@ $x, "s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7"))
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

/// Multiplies 16 floats of a row by a factor and adds them to the sums in the lanes. Moves the row's pointer to the
/// next row.
macro_rules! row {
    ($row:literal, $x:literal) => {
        concat!(eight!(low! $row, $x), eight!(high $row, $x), "add ", $row, ", ", $row, ", {step}\n")
    };
}

/// Assembly that multiplies a row of 16 key elements by one element of the query, and adds the products to the sums in
/// `s0` to `s15`. Then moves the pointer to the next row.
macro_rules! keys {
    ($x:literal) => {
        concat!(eight!(low! "{k}", $x), eight!(high "{k}!", $x))
    };
}

/// Multiplies the first eight floats of a row by a factor and adds them to the sums in the lanes. All 16 floats of the
/// row are loaded, so that the pointer moves to the next row.
macro_rules! half {
    ($row:literal, $x:literal) => {
        concat!(
            "vldmia ",
            $row,
            "!, {{s8-s23}}\n",
            half!(@ $x, "s0" "s8", "s1" "s9", "s2" "s10", "s3" "s11", "s4" "s12", "s5" "s13", "s6" "s14", "s7" "s15"),
        )
    };
    (@ $x:literal, $($sum:literal $number:literal),*) => {
        concat!($("vfma.f32 ", $sum, ", ", $number, ", ", $x, "\n",)*)
    };
}

/// Multiplies registers by s28.
macro_rules! times {
    ($($x:literal)*) => { concat!($("vmul.f32 ", $x, ", ", $x, ", s28\n",)*) };
}

/// Updates the running maximum with r0 to r3. The code for a new maximum is out of line, because a new maximum is rare.
///
/// - With a condition first, compares the four registers with the maximum, and branches to `$then` if the condition
///   says that a register is larger.
/// - With `or` first, emits the branches' targets for a negative maximum. If the new maximum is not negative, the four
///   registers are compared again by the other condition, from label 53 on.
/// - With `then` first, emits the branches' targets for a maximum that is not negative.
macro_rules! larger {
    ($than:literal $($x:literal $then:literal $on:literal),*) => {
        concat!($("cmp ", $x, ", {top}\n", "b", $than, " ", $then, "f\n", $on, ":\n",)*)
    };
    (or $($x:literal $then:literal $on:literal),*) => {
        concat!($($then, ":\n", "movs {top}, ", $x, "\n", "bmi ", $on, "b\n", "b 53b\n",)*)
    };
    (then $($x:literal $then:literal $on:literal),*) => {
        concat!($($then, ":\n", "mov {top}, ", $x, "\n", "b ", $on, "b\n",)*)
    };
}

/// Stores the largest of the `n` floats at `at` in `top`.
///
/// Floats are compared as integers. A float is larger than a negative maximum if it is lower as an unsigned integer,
/// and larger than any other maximum if it is greater as a signed integer.
macro_rules! largest {
    () => {
        concat!(
            "ldr {top}, [{at}]\n",
            "subs {n}, {n}, #4\n",
            "blo 57f\n",
            "50:\n",
            "cmp {top}, #0\n",
            "bge 52f\n",
            "51:\n",
            "ldmia {at}!, {{r0-r3}}\n",
            larger!("lo" "r0" "30" "40", "r1" "31" "41", "r2" "32" "42", "r3" "33" "43"),
            "subs {n}, {n}, #4\n",
            "bge 51b\n",
            "b 54f\n",
            "52:\n",
            "ldmia {at}!, {{r0-r3}}\n",
            "53:\n",
            larger!("gt" "r0" "34" "44", "r1" "35" "45", "r2" "36" "46", "r3" "37" "47"),
            "subs {n}, {n}, #4\n",
            "bge 52b\n",
            // If one to three floats remain, compares the last four floats. Comparing some of them twice does no harm.
            "54:\n",
            "adds {n}, {n}, #4\n",
            "beq 59f\n",
            "add {at}, {at}, {n}, lsl #2\n",
            "sub {at}, {at}, #16\n",
            "mov {n}, #0\n",
            "b 50b\n",
            // The code for fewer than four floats in total.
            "57:\n",
            "adds {n}, {n}, #4\n",
            "58:\n",
            "vldmia {at}!, {{s0}}\n",
            "vmov s1, {top}\n",
            "vcmp.f32 s1, s0\n",
            "vmrs APSR_nzcv, fpscr\n",
            "it le\n",
            "vmovle {top}, s0\n",
            "subs {n}, {n}, #1\n",
            "bne 58b\n",
            "b 59f\n",
            larger!(or "r0" "30" "40", "r1" "31" "41", "r2" "32" "42", "r3" "33" "43"),
            larger!(then "r0" "34" "44", "r1" "35" "45", "r2" "36" "46", "r3" "37" "47"),
            "59:\n",
        )
    };
}

/// Writes the scores of `n` positions, from the first position of a tile on: the dot products of the query with the
/// keys, times `factor`. Returns the largest score from position `lane` on. `at` has the distance of each tile from
/// `base`, in bytes; `dim` is a multiple of four, and not 0.
///
/// # Safety
///
/// `q` points to `dim` floats. Each tile of these positions has a row of 16 keys per element of the query, and `to` has
/// room for 16 scores per tile; `lane` is less than `n`.
#[inline(always)]
pub(super) unsafe fn scores(
    base: *const f32,
    at: *const *const f32,
    (q, dim): (*const f32, usize),
    factor: f32,
    (lane, n): (usize, usize),
    to: *mut f32,
) -> f32 {
    let top: u32;
    // SAFETY: the caller promises these tiles, a row of 16 in each per element of `q`, and room for the tiles' scores.
    unsafe {
        fpu!(
            "vmov s28, {top}",
            "20:",
            "ldr {k}, [r1], #4",
            "add {k}, {k}, r0",
            "mov {x}, r2",
            "vldmia {zeros}, {{s0-s15}}",
            "cmp {n}, #8",
            "bls 7f",
            "2:",
            "vldmia {x}!, {{s24-s27}}",
            keys!("s24"),
            keys!("s25"),
            keys!("s26"),
            keys!("s27"),
            "cmp {x}, r3",
            "bne 2b",
            times!("s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7" "s8" "s9" "s10" "s11" "s12" "s13" "s14" "s15"),
            "vstmia {to}!, {{s0-s15}}",
            "subs {n}, {n}, #16",
            "bhi 20b",
            "b 9f",
            // For at most eight positions, half of the lanes is enough.
            "7:",
            "vldmia {x}!, {{s24-s27}}",
            half!("{k}", "s24"),
            half!("{k}", "s25"),
            half!("{k}", "s26"),
            half!("{k}", "s27"),
            "cmp {x}, r3",
            "bne 7b",
            times!("s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7"),
            "vstmia {to}, {{s0-s7}}",
            "9:",
            "mov {n}, {seen}",
            largest!(),
            ;
            inout("r0") base => _,
            inout("r1") at => _,
            inout("r2") q => _,
            inout("r3") q.add(dim) => _,
            n = inout(reg) n => _,
            to = inout(reg) to => _,
            zeros = in(reg) ZEROS.as_ptr(),
            k = out(reg) _,
            x = out(reg) _,
            at = inout(reg) to.add(lane) => _,
            seen = in(reg) n - lane,
            top = inout(reg) factor.to_bits() => top,
        );
    }
    f32::from_bits(top)
}

/// The largest of the `n` floats at `at`, where `n` is not 0. A zero may have either sign; the result is arbitrary if a
/// float is NaN.
///
/// # Safety
///
/// `at` points to `n` floats.
#[inline(always)]
pub(super) unsafe fn largest(at: *const f32, n: usize) -> f32 {
    let top: u32;
    // SAFETY: reads these floats only.
    unsafe {
        fpu!(
            largest!(),
            ;
            n = inout(reg) n => _,
            at = inout(reg) at => _,
            top = out(reg) top,
            out("r0") _,
            out("r1") _,
            out("r2") _,
            out("r3") _,
        );
    }
    f32::from_bits(top)
}

/// `to = from + sum(rows[i] * x[i])` for `n` contiguous rows of 16 floats, with one fma per row, in order.
///
/// # Safety
///
/// `from` and each row have 16 floats, `x` has `n` floats, and `to` has room for 16 floats.
#[inline(never)]
pub(super) unsafe fn sum_rows(rows: *const f32, x: *const f32, n: usize, from: *const f32, to: *mut f32) {
    // SAFETY: the caller promises these rows, as many factors, and 16 sums.
    unsafe {
        fpu!(
            "vldmia {from}, {{s0-s15}}",
            "b 3f",
            // Adds four rows at a time, then single rows.
            "2:",
            "vldmia {x}!, {{s24-s27}}",
            keys!("s24"),
            keys!("s25"),
            keys!("s26"),
            keys!("s27"),
            "3:",
            "subs {n}, {n}, #4",
            "bge 2b",
            "adds {n}, {n}, #4",
            "beq 8f",
            "4:",
            "vldmia {x}!, {{s24}}",
            keys!("s24"),
            "subs {n}, {n}, #1",
            "bne 4b",
            "8:",
            "vstmia {to}, {{s0-s15}}",
            ;
            k = inout(reg) rows => _,
            x = inout(reg) x => _,
            n = inout(reg) n => _,
            from = in(reg) from,
            to = in(reg) to,
        );
    }
}

/// Computes `to = from + sum(row[i] * x[i])` for `all` rows of 16 floats, with one fma per row, in order. The rows lie
/// in several tiles: `at` has the distance in bytes of each tile's rows from `base`, and rows of a tile are `stride`
/// floats apart. From the first tile, `first` rows are used, from the row on that begins `skip` floats after the tile's
/// first row. From every other tile, up to sixteen rows are used. Only the first `lanes` lanes of the result are
/// needed.
///
/// # Safety
///
/// All pointers are aligned to 4 bytes. `from` and each row have 16 floats, `x` has `all` floats, `all` is not 0, and
/// `to` has room for 16 floats.
#[allow(clippy::too_many_arguments)] // four ranges of memory, and their sizes
#[inline(always)]
pub(super) unsafe fn add_rows(
    base: *const f32,
    at: *const *const f32,
    skip: usize,
    (all, first): (usize, usize),
    (stride, lanes): (usize, usize),
    x: *const f32,
    from: *const f32,
    to: *mut f32,
) {
    // SAFETY: the caller promises these rows, as many factors, and 16 sums.
    unsafe {
        fpu!(
            "vldmia {rows}, {{s0-s15}}",
            "20:",
            "ldr {rows}, [{at}], #4",
            "add {rows}, {rows}, {skip}",
            "mov {skip}, {base}",
            "cmp {all}, {n}",
            "it lo",
            "movlo {n}, {all}",
            "sub {all}, {all}, {n}",
            "cmp {lanes}, #8",
            "bls 6f",
            // Adds four rows at a time, then single rows.
            "b 3f",
            "2:",
            "vldmia {x}!, {{s24-s27}}",
            row!("{rows}", "s24"),
            row!("{rows}", "s25"),
            row!("{rows}", "s26"),
            row!("{rows}", "s27"),
            "3:",
            "subs {n}, {n}, #4",
            "bge 2b",
            "adds {n}, {n}, #4",
            "beq 8f",
            "4:",
            "vldmia {x}!, {{s24}}",
            row!("{rows}", "s24"),
            "subs {n}, {n}, #1",
            "bne 4b",
            "b 8f",
            // If at most eight lanes of the result are needed, only multiplies the first half of each row.
            "7:",
            "vldmia {x}!, {{s24-s27}}",
            half!("{rows}", "s24"),
            half!("{rows}", "s25"),
            half!("{rows}", "s26"),
            half!("{rows}", "s27"),
            "6:",
            "subs {n}, {n}, #4",
            "bge 7b",
            "adds {n}, {n}, #4",
            "beq 8f",
            "9:",
            "vldmia {x}!, {{s24}}",
            half!("{rows}", "s24"),
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
            base = in(reg) base,
            skip = inout(reg) base.wrapping_add(skip) => _,
            all = inout(reg) all => _,
            rows = inout(reg) from => _,
            n = inout(reg) first => _,
            x = inout(reg) x => _,
            // Rows with a different stride are computed in all lanes, because the code for half of the lanes needs
            // contiguous rows of sixteen.
            lanes = in(reg) if stride == 16 { lanes } else { 16 },
            step = in(reg) stride.wrapping_mul(4).wrapping_sub(32),
        );
    }
}

/// Adds sixteen floats to sixteen sums.
macro_rules! sixteen_sums {
    () => {
        concat!(
            sums!("s0" "s16", "s1" "s17", "s2" "s18", "s3" "s19", "s4" "s20", "s5" "s21", "s6" "s22", "s7" "s23"),
            sums!("s8" "s24", "s9" "s25", "s10" "s26", "s11" "s27", "s12" "s28", "s13" "s29", "s14" "s30", "s15" "s31"),
        )
    };
}

/// Adds the floats from `x` to `end` to sixteen sums: every run of sixteen floats that begins before `end` is added to
/// the sums at `from`. Stores the new sums to `to`.
///
/// # Safety
///
/// The floats and the 16 sums at `from` may be read, and `to` has room for 16 sums.
#[inline(always)]
pub(super) unsafe fn add_sixteens(x: *const f32, end: *const f32, from: *const f32, to: *mut f32) {
    // SAFETY: reads and writes these floats only.
    unsafe {
        fpu!(
            "vldmia {from}, {{s0-s15}}",
            "b 3f",
            "2:",
            "vldmia {x}!, {{s16-s31}}",
            sixteen_sums!(),
            "3:",
            "cmp {x}, {end}",
            "blo 2b",
            "vstmia {to}, {{s0-s15}}",
            ;
            from = in(reg) from,
            to = in(reg) to,
            x = inout(reg) x => _,
            end = in(reg) end,
        );
    }
}

/// The sum of sixteen lanes, as [`Lanes::sum`](crate::kernel::lanes::Lanes::sum).
///
/// # Safety
///
/// `x` points to 16 floats.
#[inline(always)]
pub(super) unsafe fn sum(x: *const f32) -> f32 {
    let sum;
    // SAFETY: reads these floats only.
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

/// Multiplies the `n` floats at `from` by `1 / sum`, where `sum` is the sum of the sixteen floats at `total`, and
/// stores them to `to`. `n` is a multiple of four, and not 0.
///
/// # Safety
///
/// `total` points to 16 floats, and `from` and `to` point to `n` floats each.
#[inline(always)]
pub(super) unsafe fn normalize(total: *const f32, from: *const f32, to: *mut f32, n: usize) {
    // SAFETY: reads and writes these floats only.
    unsafe {
        fpu!(
            "vldmia {total}, {{s0-s15}}",
            tree!(),
            "vmov.f32 s28, #1.0",
            "vdiv.f32 s28, s28, s0",
            "2:",
            "vldmia {from}!, {{s0-s3}}",
            times!("s0" "s1" "s2" "s3"),
            "vstmia {to}!, {{s0-s3}}",
            "subs {n}, {n}, #4",
            "bne 2b",
            ;
            total = in(reg) total,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            n = inout(reg) n => _,
        );
    }
}

/// `to = from * factor` for `n` floats; `to` may be `from`.
///
/// # Safety
///
/// `from` and `to` point to `n` floats.
#[inline(never)]
pub(super) unsafe fn multiply(from: *const f32, to: *mut f32, factor: f32, n: usize) {
    // SAFETY: reads and writes these floats only.
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
