//! Rows of f32 times tokens, sixteen sums of a row in the unit's registers.

use core::arch::asm;
use core::mem::MaybeUninit;

use super::float::{ZEROS, fpu, products, tree};
use crate::kernel::Job;
use crate::kernel::lanes::copy;

/// The end of a token's numbers and of a row's, padded.
#[repr(C)]
struct Tail {
    x: [f32; 16],
    w: [f32; 16],
}

/// Rows of f32 times tokens: 16 sums of a row in registers, joined by the tree.
///
/// # Safety
///
/// `job` as [`Job`] says; its weights on a boundary of 4 bytes.
pub(super) unsafe fn matmul(job: &mut Job<'_>) {
    if job.rows == 0 || job.cols == 0 {
        return;
    }
    for t in 0..job.x.tokens {
        let x = job.x.x.get(t * job.cols..(t + 1) * job.cols).unwrap_or_default();
        // SAFETY: all rows and this token are the job's.
        unsafe {
            let out = job.out.add(t * job.stride);
            if job.cols == 64 {
                times_64(job, x, out);
            } else {
                times(job, x, out);
            }
        }
    }
}

/// Sixteen multiply-adds of a row, of a token's numbers at two pointers, which stay.
macro_rules! sixteen {
    ($a:literal, $b:literal) => {
        concat!(
            half!($a, "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"),
            half!($b, "s8", "s9", "s10", "s11", "s12", "s13", "s14", "s15")
        )
    };
}

/// Eight of them.
macro_rules! half {
    ($x:literal, $a:literal, $b:literal, $c:literal, $d:literal, $e:literal, $f:literal, $g:literal, $h:literal) => {
        concat!(
            "vldmia {w}!, {{s16-s23}}\n",
            "vldmia {",
            $x,
            "}, {{s24-s31}}\n",
            "vfma.f32 ",
            $a,
            ", s16, s24\n",
            "vfma.f32 ",
            $b,
            ", s17, s25\n",
            "vfma.f32 ",
            $c,
            ", s18, s26\n",
            "vfma.f32 ",
            $d,
            ", s19, s27\n",
            "vfma.f32 ",
            $e,
            ", s20, s28\n",
            "vfma.f32 ",
            $f,
            ", s21, s29\n",
            "vfma.f32 ",
            $g,
            ", s22, s30\n",
            "vfma.f32 ",
            $h,
            ", s23, s31\n",
        )
    };
}

/// All rows times one token of 64 columns.
///
/// # Safety
///
/// As for [`matmul`]; `out` has room for the rows.
#[inline(always)]
unsafe fn times_64(job: &Job<'_>, x: &[f32], out: *mut f32) {
    let x = x.as_ptr();
    // SAFETY: reads the rows and the token to their ends, and writes a number for each row.
    unsafe {
        fpu!(
            "2:",
            "vldmia {zeros}, {{s0-s15}}",
            sixteen!("a", "b"),
            sixteen!("c", "d"),
            sixteen!("e", "f"),
            sixteen!("g", "h"),
            tree!(),
            "vstmia {out}!, {{s0}}",
            "subs {rows}, {rows}, #1",
            "bne 2b",
            ;
            zeros = in(reg) ZEROS.as_ptr(),
            a = in(reg) x,
            b = in(reg) x.add(8),
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

/// All rows times one token of any number of columns. Where the end of a row is not of whole fours, it is padded in a copy;
/// else the lanes that have nothing are left as they are (a sum is never -0, to which +0 would make a difference).
///
/// # Safety
///
/// As for [`times_64`].
#[inline(always)]
unsafe fn times(job: &Job<'_>, x: &[f32], out: *mut f32) {
    let rest = job.cols % 16;
    let mut tail = MaybeUninit::<Tail>::uninit();
    if !rest.is_multiple_of(4) {
        let tail = tail.write(Tail { x: [0.0; 16], w: [0.0; 16] });
        copy(x.get(job.cols - rest..).unwrap_or_default(), &mut tail.x);
    }
    // SAFETY: as there; the copy is read where there is a rest that is not of fours, for which it is written.
    unsafe {
        fpu!(
            // Where a row goes on after the sixteens.
            "adr {go}, 9f",
            "tst {rest}, #4",
            "it ne",
            "adrne {go}, 8f",
            "tst {rest}, #8",
            "it ne",
            "adrne {go}, 6f",
            "tst {rest}, #3",
            "it ne",
            "adrne {go}, 7f",
            "2:",
            "vldmia {zeros}, {{s0-s15}}",
            "mov {at}, {x}",
            "cmp {at}, {sixteens}",
            "it eq",
            "moveq pc, {go}",
            "tst {rest}, #16",
            "bne 4f",
            "5:",
            products!(16, "{at}", "{w}"),
            "4:",
            products!(16, "{at}", "{w}"),
            "cmp {at}, {sixteens}",
            "bne 5b",
            "mov pc, {go}",
            "6:",
            products!(8, "{at}", "{w}"),
            "tst {rest}, #4",
            "beq 9f",
            products!(4, "{at}", "{w}", "s8", "s9", "s10", "s11"),
            "b 9f",
            "8:",
            products!(4, "{at}", "{w}", "s0", "s1", "s2", "s3"),
            "b 9f",
            "7:",
            "add {at}, {tail}, #64",
            "mov {n}, {rest}",
            "tst {n}, #8",
            "itt ne",
            "vldmiane {w}!, {{s16-s23}}",
            "vstmiane {at}!, {{s16-s23}}",
            "tst {n}, #4",
            "itt ne",
            "vldmiane {w}!, {{s16-s19}}",
            "vstmiane {at}!, {{s16-s19}}",
            "tst {n}, #2",
            "itt ne",
            "vldmiane {w}!, {{s16-s17}}",
            "vstmiane {at}!, {{s16-s17}}",
            "tst {n}, #1",
            "itt ne",
            "vldmiane {w}!, {{s16}}",
            "vstmiane {at}!, {{s16}}",
            "mov {at}, {tail}",
            "add {n}, {tail}, #64",
            products!(16, "{at}", "{n}"),
            "9:",
            tree!(),
            "vstmia {out}!, {{s0}}",
            "subs {rows}, {rows}, #1",
            "bne 2b",
            ;
            zeros = in(reg) ZEROS.as_ptr(),
            tail = in(reg) tail.as_mut_ptr(),
            x = in(reg) x.as_ptr(),
            at = out(reg) _,
            w = inout(reg) job.w.as_ptr() => _,
            out = inout(reg) out => _,
            rows = inout(reg) job.rows => _,
            sixteens = in(reg) x.as_ptr().add(job.cols / 16 * 16),
            // Whether the sixteens are odd, too.
            rest = in(reg) job.cols % 32,
            n = out(reg) _,
            go = out(reg) _,
        );
    }
}
