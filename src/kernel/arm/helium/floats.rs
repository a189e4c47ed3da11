//! Products of f32, f16 and bf16: two rows at a time, first the lower eight of the sixteen lanes, then the upper eight.

use core::mem::MaybeUninit;

use super::super::assembly::{ZEROS, fpu, sums};
use super::without_denormals;
use crate::kernel::Job;
use crate::kernel::float::Weight;

/// The largest number of columns. A token's copy of them is on the stack.
const MOST: usize = 1024;

/// The operands of a kernel that stay the same for all rows. A kernel walks over a row twice: for the lower eight of
/// every sixteen columns, then for the upper eight. `next` is added to the address between the two walks, and `row`
/// after both, for the row after the next.
#[repr(C)]
struct Operands {
    x: *const f32,
    end: *const f32,
    /// Groups of sixteen columns: in fours, and the rest.
    groups: [usize; 2],
    next: usize,
    row: usize,
}

/// Multiplies all rows with all tokens. Returns false if the output is to be computed without Helium: the rows are not
/// aligned or too wide, their length is not a multiple of 16, or denormals occurred.
///
/// # Safety
///
/// The weights are of type `W`, and `job` satisfies the promises of [`Job`].
pub(in crate::kernel::arm) unsafe fn matmul<W: Weight>(job: &mut Job<'_>) -> bool {
    let aligned = job.w.as_ptr().addr().is_multiple_of(4);
    if !job.cols.is_multiple_of(16) || job.cols > MOST || !aligned {
        return false;
    }
    let kernel = match (W::BYTES, W::BRAIN) {
        (4, _) => rows_of_f32,
        (_, true) => rows_of_bf16,
        _ => rows_of_f16,
    };
    let (row_bytes, groups, pairs) = (job.cols * W::BYTES, job.cols / 16, job.rows & !1);
    let mut copy = MaybeUninit::<[f32; MOST]>::uninit();
    let copy: *mut f32 = copy.as_mut_ptr().cast();
    without_denormals(|| {
        for (t, x) in job.x.x.chunks_exact(job.cols.max(1)).enumerate() {
            // SAFETY: the copy has room for the columns; the job has these rows, and an output for each row.
            unsafe {
                copy_columns(x, copy, W::BYTES == 2);
                let (w, out) = (job.w.as_ptr(), job.out.add(t * job.stride));
                let mut operands = Operands {
                    x: copy,
                    end: out.add(pairs),
                    groups: [groups / 4, groups % 4],
                    next: (8 * W::BYTES).wrapping_sub(row_bytes),
                    row: row_bytes.wrapping_sub(8 * W::BYTES),
                };
                if pairs > 0 {
                    kernel(&operands, w, w.add(row_bytes), out);
                }
                if pairs < job.rows {
                    // An odd last row is passed as both of the two rows.
                    let (w, mut both) = (w.add(pairs * row_bytes), [0.0; 2]);
                    operands.end = both.as_ptr().add(2);
                    kernel(&operands, w, w, both.as_mut_ptr());
                    *out.add(pairs) = both[0];
                }
            }
        }
    })
}

/// Copies the columns of a token: the lower eight of every sixteen, then the upper eight. For weights of two bytes, the
/// even columns of each eight come first, because they are in the bottom halves of words.
///
/// # Safety
///
/// `to` has room for `x`, whose length is a multiple of 16.
unsafe fn copy_columns(x: &[f32], to: *mut f32, even_first: bool) {
    let half = x.len() / 2;
    for (group, sixteen) in x.as_chunks::<16>().0.iter().enumerate() {
        for (i, x) in sixteen.iter().enumerate() {
            let lane = i % 8;
            let place = if even_first { lane / 2 + lane % 2 * 4 } else { lane };
            // SAFETY: the place is less than the length of `x`.
            unsafe { *to.add(i / 8 * half + 8 * group + place) = *x };
        }
    }
}

/// Assembly that loads eight weights of a row to q6 and q7, and moves the address by sixteen weights.
macro_rules! f32s {
    ($w:literal) => {
        concat!("vldrw.u32 q7, [", $w, ", #16]\n", "vldrw.u32 q6, [", $w, "], #64\n")
    };
}
macro_rules! f16s {
    ($w:literal) => {
        concat!("vldrh.u16 q7, [", $w, "], #32\n", "vcvtb.f32.f16 q6, q7\n", "vcvtt.f32.f16 q7, q7\n")
    };
}
macro_rules! bf16s {
    ($w:literal) => {
        concat!("vldrh.u16 q7, [", $w, "], #32\n", "vshllb.u16 q6, q7, #16\n", "vshllt.u16 q7, q7, #16\n")
    };
}

/// Assembly that multiplies eight columns of both rows by the token.
macro_rules! eight {
    ($load:ident) => {
        concat!(
            "vldmia r0!, {{s16-s23}}\n",
            $load!("r1"),
            "vfma.f32 q0, q6, q4\n",
            "vfma.f32 q1, q7, q5\n",
            $load!("r2"),
            "vfma.f32 q2, q6, q4\n",
            "vfma.f32 q3, q7, q5\n",
        )
    };
}

/// Assembly that multiplies the lower or the upper eight of every sixteen columns, for both rows.
macro_rules! lanes {
    ($load:ident) => {
        concat!(
            "vldmia r11, {{s0-s15}}\n",
            "wls lr, r8, 4f\n",
            "3:\n",
            eight!($load),
            eight!($load),
            eight!($load),
            eight!($load),
            "le lr, 3b\n",
            "4:\n",
            "wls lr, r9, 6f\n",
            "5:\n",
            eight!($load),
            "le lr, 5b\n",
            "6:\n",
        )
    };
}

/// Assembly that adds up the eight lanes of each row, in the order of [`tree`](super::super::assembly). The sums go to
/// s0 and s8.
macro_rules! in_order {
    () => {
        sums!("q0" "q1", "q2" "q3", "s0" "s2", "s1" "s3", "s8" "s10", "s9" "s11", "s0" "s1", "s8" "s9")
    };
}
/// [`in_order`] for lanes of which the even ones come first.
macro_rules! even_first {
    () => {
        concat!(
            sums!("s0" "s2", "s1" "s3", "s4" "s6", "s5" "s7", "s0" "s1", "s4" "s5", "s0" "s4"),
            sums!("s8" "s10", "s9" "s11", "s12" "s14", "s13" "s15", "s8" "s9", "s12" "s13", "s8" "s12"),
        )
    };
}

/// Defines a loop over rows.
macro_rules! rows {
    ($name:ident, $load:ident, $sum:ident) => {
        /// # Safety
        ///
        /// `operands` has a copy of a token's columns, at least sixteen. `a` and `b` point to two rows of as many
        /// weights, aligned to four bytes, which the rows of the outputs from `out` on to the operands' `end`, an even
        /// number and not 0, follow.
        #[inline(never)]
        unsafe fn $name(operands: &Operands, a: *const u8, b: *const u8, out: *mut f32) {
            let mut lower = MaybeUninit::<[f32; 16]>::uninit();
            // SAFETY: reads these weights and columns, and writes the outputs and `lower`.
            unsafe {
                fpu!(
                    ".cpu cortex-m55",
                    "2:",
                    "ldrd r8, r9, [r4, #8]",
                    "ldr r0, [r4]",
                    lanes!($load),
                    "ldr r10, [r4, #16]",
                    "vstmia r5, {{s0-s15}}",
                    "add r1, r1, r10",
                    "add r2, r2, r10",
                    lanes!($load),
                    "vldmia r5, {{s16-s31}}",
                    "ldr r10, [r4, #20]",
                    sums!("q0" "q4", "q1" "q5", "q2" "q6", "q3" "q7"),
                    $sum!(),
                    "vmov.f32 s1, s8",
                    "add r1, r1, r10",
                    "add r2, r2, r10",
                    "vstmia r3!, {{s0-s1}}",
                    "ldr r10, [r4, #4]",
                    "cmp r3, r10",
                    "bne 2b",
                    ;
                    out("r0") _,
                    inout("r1") a => _,
                    inout("r2") b => _,
                    inout("r3") out => _,
                    in("r4") operands,
                    in("r5") lower.as_mut_ptr(),
                    out("r8") _,
                    out("r9") _,
                    out("r10") _,
                    in("r11") ZEROS.as_ptr(),
                    out("lr") _,
                );
            }
        }
    };
}
rows!(rows_of_f32, f32s, in_order);
rows!(rows_of_f16, f16s, even_first);
rows!(rows_of_bf16, bf16s, even_first);
