//! Multiplies rows of f32 with tokens, with the sixteen sums of a row in registers.

use core::mem::MaybeUninit;

use super::assembly::{ZEROS, fpu, on_words, sums, tree};
use crate::kernel::Job;

/// The data that is loaded at the start of every row: three groups of eight floats of a token, and zeros as start
/// values of sums. The order in memory is: first group, third group, zeros, second group, zeros. In this order one load
/// fills several groups of registers.
struct Start(MaybeUninit<[[f32; 8]; 5]>);

impl Start {
    const EMPTY: Self = Self(MaybeUninit::uninit());

    /// Writes the start data of a kernel and returns their address. (This is assembly, because the compiler would copy
    /// the data twice.)
    ///
    /// # Safety
    ///
    /// `first` points to 24 floats.
    #[inline(always)]
    unsafe fn write(&mut self, first: *const f32) -> *const f32 {
        // SAFETY: reads 24 floats at `first` and 8 floats of `ZEROS`, and writes all 40 floats.
        unsafe {
            fpu!(
                "vldmia {x}, {{s0-s23}}",
                "vldmia {zeros}, {{s24-s31}}",
                "vstmia {start}!, {{s0-s7}}",
                "vstmia {start}!, {{s16-s31}}",
                "vstmia {start}!, {{s8-s15}}",
                "vstmia {start}, {{s24-s31}}",
                ;
                zeros = in(reg) ZEROS.as_ptr(),
                x = in(reg) first,
                start = inout(reg) self.0.as_mut_ptr() => _,
            );
        }
        self.0.as_ptr().cast()
    }
}

/// Multiplies rows of f32 with tokens. A row's 16 sums are in registers and are added up as a tree.
///
/// # Safety
///
/// `job` satisfies the promises of [`Job`]; the weights are aligned to 4 bytes, and `cols` is a multiple of four, at
/// least 32.
pub(super) unsafe fn matmul(job: &mut Job<'_>) {
    let mut start = Start::EMPTY;
    for t in 0..job.x.tokens {
        // SAFETY: the job has at least one row, and token `t`.
        unsafe {
            let (x, out) = (job.x.x.as_ptr().add(t * job.cols), job.out.add(t * job.stride));
            let start = start.write(x);
            if job.cols == 64 {
                times_64(job, start, x, out);
            } else {
                times(job, start, x, out);
            }
        }
    }
}

/// For each sum, adds the product of two registers.
macro_rules! fmas {
    ($($sum:literal $w:literal $x:literal),*) => { concat!($("vfma.f32 ", $sum, ", ", $w, ", ", $x, "\n",)*) };
}

/// Assembly that multiplies eight columns of the weights by eight floats of a token. The products are added to the sums
/// of the lower lanes (`low`) or the upper lanes. `$x` points to the token's floats; with a `!`, the pointer moves past
/// them.
macro_rules! eight {
    (@ low) => {
        concat!(
            fmas!("s24" "s0" "s8", "s25" "s1" "s9", "s26" "s2" "s10", "s27" "s3" "s11"),
            fmas!("s28" "s4" "s12", "s29" "s5" "s13", "s30" "s6" "s14", "s31" "s7" "s15"),
        )
    };
    (@ high) => {
        concat!(
            fmas!("s16" "s0" "s8", "s17" "s1" "s9", "s18" "s2" "s10", "s19" "s3" "s11"),
            fmas!("s20" "s4" "s12", "s21" "s5" "s13", "s22" "s6" "s14", "s23" "s7" "s15"),
        )
    };
    ($lanes:ident $x:literal) => {
        concat!("vldmia {w}!, {{s0-s7}}\n", "vldmia ", $x, ", {{s8-s15}}\n", eight!(@ $lanes))
    };
}

/// Assembly that multiplies the first 24 columns of a row. The sums of the lower lanes are in s24 to s31, the sums of
/// the upper lanes in s16 to s23.
macro_rules! start {
    () => {
        concat!(
            "vldmia {start}, {{s8-s31}}\n",
            "vldmia {w}!, {{s0-s7}}\n",
            eight!(@ low),
            // The second and the third eight columns.
            "vldmia {w}!, {{s0-s15}}\n",
            fmas!("s24" "s8" "s16", "s25" "s9" "s17", "s26" "s10" "s18", "s27" "s11" "s19"),
            fmas!("s28" "s12" "s20", "s29" "s13" "s21", "s30" "s14" "s22", "s31" "s15" "s23"),
            "vldmia {next}, {{s8-s23}}\n",
            eight!(@ high),
        )
    };
}

/// Joins the sums, and stores the product.
macro_rules! end {
    () => {
        concat!(
            tree!("s24" "s25" "s26" "s27" "s28" "s29" "s30" "s31", "s16" "s17" "s18" "s19" "s20" "s21" "s22" "s23"),
            "vstmia {out}!, {{s24}}\n",
        )
    };
}

/// Multiplies a row of 64 columns.
macro_rules! row {
    () => {
        concat!(
            start!(),
            eight!(high "{c}"),
            eight!(low "{d}"),
            eight!(high "{e}"),
            eight!(low "{f}"),
            eight!(high "{g}"),
            end!(),
        )
    };
}

/// Multiplies all rows with one token, for matrices of 64 columns.
///
/// # Safety
///
/// The conditions of [`matmul`] hold; `start` was filled from this token, and `out` has room for an output per row.
#[inline(always)]
unsafe fn times_64(job: &Job<'_>, start: *const f32, x: *const f32, out: *mut f32) {
    // SAFETY: reads 64 floats of the token and of each row, and writes a float per row.
    unsafe {
        fpu!(
            // Each iteration of the loop multiplies four rows. If `rows` is not a multiple of four, the code jumps into
            // the middle of the loop at first, so that the first iteration multiplies the one to three rows that are
            // left over.
            "ands {over}, {rows}, #3",
            "add {rows}, {rows}, #3",
            "lsr {rows}, {rows}, #2",
            "beq 2f",
            "cmp {over}, #2",
            "beq 4f",
            "bhi 3f",
            "b 5f",
            "2:",
            row!(),
            "3:",
            row!(),
            "4:",
            row!(),
            "5:",
            row!(),
            "subs {rows}, {rows}, #1",
            "bne 2b",
            ;
            start = in(reg) start,
            next = in(reg) start.add(24),
            c = in(reg) x.add(24),
            d = in(reg) x.add(32),
            e = in(reg) x.add(40),
            f = in(reg) x.add(48),
            g = in(reg) x.add(56),
            w = inout(reg) job.w.as_ptr() => _,
            out = inout(reg) out => _,
            rows = inout(reg) job.rows => _,
            over = out(reg) _,
        );
    }
}

/// Multiplies four columns of a row with those of the token, and adds the four products to the sums in the registers
/// `$a` to `$d`.
macro_rules! four {
    ($a:literal, $b:literal, $c:literal, $d:literal) => {
        concat!(
            "vldmia {w}!, {{s0-s3}}\n",
            "vldmia {at}!, {{s8-s11}}\n",
            fmas!($a "s0" "s8", $b "s1" "s9", $c "s2" "s10", $d "s3" "s11"),
        )
    };
}

/// Multiplies all rows with one token. The number of columns is a multiple of four.
///
/// # Safety
///
/// The conditions of [`times_64`] hold, except that `cols` is any multiple of four from 32 on.
#[inline(always)]
unsafe fn times(job: &Job<'_>, start: *const f32, x: *const f32, out: *mut f32) {
    let (sixteens, rest) = (job.cols / 16, job.cols % 16);
    // SAFETY: each row, and the token, is read for 24 columns, then up to `end`, then for the `rest` of 4,
    // 8 or 12 columns; a float is written per row.
    unsafe {
        fpu!(
            on_words!(),
            // `after` becomes the address at which each row enters the loop after the row's first 24 columns. At this
            // address, the second half of a group of sixteen columns begins. The loop is unrolled five times, and each
            // group has 80 bytes of code.
            "adr {go}, 5f",
            "add {after}, {after}, {go}",
            // `go` becomes the address of the code that processes the columns after the last whole group.
            "adr {go}, 8f",
            "cmp {rest}, #8",
            "it eq",
            "adreq {go}, 6f",
            "it hi",
            "adrhi {go}, 7f",
            "cmp {rest}, #0",
            "it eq",
            "adreq {go}, 9f",
            "2:",
            start!(),
            "mov {at}, {x}",
            "mov pc, {after}",
            "5:",
            ".rept 5",
            eight!(low "{at}!"),
            eight!(high "{at}!"),
            ".endr",
            "cmp {at}, {end}",
            "bne 5b",
            "mov pc, {go}",
            "6:",
            eight!(low "{at}!"),
            "b 3f",
            "8:",
            four!("s24", "s25", "s26", "s27"),
            "b 3f",
            "7:",
            eight!(low "{at}!"),
            four!("s16", "s17", "s18", "s19"),
            // The last sixteen columns are fewer than sixteen in this row: adds a single 0 for all missing products.
            // One is enough, because adding zeros only changes a sum that is -0.
            "3:",
            "vldr s0, [{start}, #64]",
            "vadd.f32 s23, s23, s0",
            "9:",
            end!(),
            "subs {rows}, {rows}, #1",
            "bne 2b",
            ;
            start = in(reg) start,
            next = in(reg) start.add(24),
            x = in(reg) x.add(24),
            at = out(reg) _,
            w = inout(reg) job.w.as_ptr() => _,
            out = inout(reg) out => _,
            rows = inout(reg) job.rows => _,
            end = in(reg) x.add(16 * sixteens),
            rest = in(reg) rest,
            go = out(reg) _,
            // With n = sixteens - 1: -n modulo 5 is 4 n modulo 5.
            after = inout(reg) sixteens.wrapping_sub(1).wrapping_mul(4) % 5 * 80 + 40 => _,
        );
    }
}
