//! Rows of f32 times tokens, sixteen sums of a row in the unit's registers.

use core::arch::asm;
use core::mem::MaybeUninit;

use super::float::{ZEROS, fpu, on_words, tree};
use crate::kernel::Job;

/// The start of all rows: twice eight zeros, with which sums begin, and eight of a token's first sixteen numbers: one load
/// brings both.
struct Start(MaybeUninit<[[f32; 8]; 4]>);

impl Start {
    const EMPTY: Self = Self(MaybeUninit::uninit());

    /// Writes it. (In registers: the compiler would copy it twice.)
    ///
    /// # Safety
    ///
    /// A token has sixteen numbers from `first` on.
    #[inline(always)]
    unsafe fn write(&mut self, first: *const f32) -> *const f32 {
        // SAFETY: sixteen numbers from there, and room for twice as many.
        unsafe {
            fpu!(
                "vldmia {zeros}, {{s0-s7}}",
                "vldmia {x}!, {{s8-s15}}",
                "vstmia {start}!, {{s0-s15}}",
                "vldmia {x}, {{s8-s15}}",
                "vstmia {start}, {{s0-s15}}",
                ;
                zeros = in(reg) ZEROS.as_ptr(),
                x = inout(reg) first => _,
                start = inout(reg) self.0.as_mut_ptr() => _,
            );
        }
        self.0.as_ptr().cast()
    }
}

/// Rows of f32 times tokens: 16 sums of a row in registers, joined by the tree.
///
/// # Safety
///
/// `job` as [`Job`] says; its weights on a boundary of 4 bytes, and columns in whole fours, 16 at least.
pub(super) unsafe fn matmul(job: &mut Job<'_>) {
    let mut start = Start::EMPTY;
    for t in 0..job.x.tokens {
        // SAFETY: all rows, one at least, and this token are the job's.
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

/// A multiply-add to each sum.
macro_rules! fmas {
    ($($sum:literal $w:literal $x:literal),*) => { concat!($("vfma.f32 ", $sum, ", ", $w, ", ", $x, "\n",)*) };
}

/// The sums of the first sixteen columns.
macro_rules! start {
    () => {
        concat!(
            "vldmia {start}, {{s0-s15}}\n",
            "vldmia {w}!, {{s16-s31}}\n",
            fmas!("s0" "s16" "s8", "s1" "s17" "s9", "s2" "s18" "s10", "s3" "s19" "s11"),
            fmas!("s4" "s20" "s12", "s5" "s21" "s13", "s6" "s22" "s14", "s7" "s23" "s15"),
            "vldmia {next}, {{s8-s23}}\n",
            fmas!("s8" "s24" "s16", "s9" "s25" "s17", "s10" "s26" "s18", "s11" "s27" "s19"),
            fmas!("s12" "s28" "s20", "s13" "s29" "s21", "s14" "s30" "s22", "s15" "s31" "s23"),
        )
    };
}

/// Eight columns more, in the lower lanes or the upper: a token's numbers at a pointer, and maybe how it moves on.
macro_rules! eight {
    (low $x:literal) => {
        concat!("vldmia {w}!, {{s16-s23}}\n", "vldmia ", $x, ", {{s24-s31}}\n", eight!(@ low))
    };
    (high $x:literal) => {
        concat!("vldmia {w}!, {{s16-s23}}\n", "vldmia ", $x, ", {{s24-s31}}\n", eight!(@ high))
    };
    (@ low) => {
        concat!(
            fmas!("s0" "s16" "s24", "s1" "s17" "s25", "s2" "s18" "s26", "s3" "s19" "s27"),
            fmas!("s4" "s20" "s28", "s5" "s21" "s29", "s6" "s22" "s30", "s7" "s23" "s31"),
        )
    };
    (@ high) => {
        concat!(
            fmas!("s8" "s16" "s24", "s9" "s17" "s25", "s10" "s18" "s26", "s11" "s19" "s27"),
            fmas!("s12" "s20" "s28", "s13" "s21" "s29", "s14" "s22" "s30", "s15" "s23" "s31"),
        )
    };
}

/// A row of 64 columns.
macro_rules! row {
    () => {
        concat!(
            start!(),
            eight!(low "{c}"),
            eight!(high "{d}"),
            eight!(low "{e}"),
            eight!(high "{f}"),
            eight!(low "{g}"),
            eight!(high "{h}"),
            tree!(),
            "vstmia {out}!, {{s0}}\n",
        )
    };
}

/// All rows times one token of 64 columns.
///
/// # Safety
///
/// As for [`matmul`]; `start` is the token's, and `out` has room for the rows.
#[inline(always)]
unsafe fn times_64(job: &Job<'_>, start: *const f32, x: *const f32, out: *mut f32) {
    // SAFETY: reads the rows and the token to their ends, and writes a number for each row.
    unsafe {
        fpu!(
            // Two at a time; of an odd number the first is the second of two.
            "add {rows}, {rows}, #1",
            "lsrs {rows}, {rows}, #1",
            "bcc 3f",
            "2:",
            row!(),
            "3:",
            row!(),
            "subs {rows}, {rows}, #1",
            "bne 2b",
            ;
            start = in(reg) start,
            next = in(reg) start.add(16),
            c = in(reg) x.add(16),
            d = in(reg) x.add(24),
            e = in(reg) x.add(32),
            f = in(reg) x.add(40),
            g = in(reg) x.add(48),
            h = in(reg) x.add(56),
            w = inout(reg) job.w.as_ptr() => _,
            out = inout(reg) out => _,
            rows = inout(reg) job.rows => _,
        );
    }
}

/// Four columns, in the lanes that are named.
macro_rules! four {
    ($a:literal, $b:literal, $c:literal, $d:literal) => {
        concat!(
            "vldmia {w}!, {{s16-s19}}\n",
            "vldmia {at}!, {{s24-s27}}\n",
            fmas!($a "s16" "s24", $b "s17" "s25", $c "s18" "s26", $d "s19" "s27"),
        )
    };
}

/// All rows times one token of any number of columns that is whole fours.
///
/// # Safety
///
/// As for [`times_64`].
#[inline(always)]
unsafe fn times(job: &Job<'_>, start: *const f32, x: *const f32, out: *mut f32) {
    let (sixteens, rest) = (job.cols / 16, job.cols % 16);
    // SAFETY: as there.
    unsafe {
        fpu!(
            on_words!(),
            // Where a row goes on after the first sixteen: others, of 80 bytes each, are taken in fours.
            "adr {go}, 5f",
            "add {after}, {after}, {go}",
            // And after the last.
            "adr {go}, 8f",
            "cmp {rest}, #8",
            "it eq",
            "adreq {go}, 6f",
            "it hi",
            "adrhi {go}, 7f",
            "cmp {rest}, #0",
            "it eq",
            "adreq {go}, 9f",
            "cmp {x}, {end}",
            "it eq",
            "moveq {after}, {go}",
            "2:",
            start!(),
            "mov {at}, {x}",
            "mov pc, {after}",
            "5:",
            ".rept 4",
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
            four!("s0", "s1", "s2", "s3"),
            "b 3f",
            "7:",
            eight!(low "{at}!"),
            four!("s8", "s9", "s10", "s11"),
            // The other lanes' zeros make a difference where all sums are -0, and so does one of them.
            "3:",
            "vldr s16, [{start}]",
            "vadd.f32 s15, s15, s16",
            "9:",
            tree!(),
            "vstmia {out}!, {{s0}}",
            "subs {rows}, {rows}, #1",
            "bne 2b",
            ;
            start = in(reg) start,
            next = in(reg) start.add(16),
            x = in(reg) x.add(16),
            at = out(reg) _,
            w = inout(reg) job.w.as_ptr() => _,
            out = inout(reg) out => _,
            rows = inout(reg) job.rows => _,
            end = in(reg) x.add(16 * sixteens),
            rest = in(reg) rest,
            go = out(reg) _,
            after = inout(reg) sixteens.wrapping_sub(1).wrapping_neg() % 4 * 80 => _,
        );
    }
}
