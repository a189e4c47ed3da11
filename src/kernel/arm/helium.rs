//! Products with Helium, the M-profile vector extension: one instruction multiplies 16 pairs of bytes and adds the
//! products.
//!
//! This file has Q8_0 and Q4_0, of which four rows are computed at a time. For the float part, each row has one lane.
//! Helium flushes denormals to zero, and the reference does not, so [`matmul`] leaves products that could yield a
//! denormal to `dsp.rs`. For the same reason the program must be compiled for a processor without Helium: otherwise the
//! compiler would use Helium for floats.

pub(super) mod blocks;
pub(super) mod floats;
pub(super) mod groups;

use super::assembly::fpu;
use crate::kernel::Job;
use crate::quant::{Format, Shape};

/// Minimum scale of activations, 2^-76. The scale of a block of weights is 0 or at least 2^-24, so the rounded product
/// of the two scales is 0 or at least 2^-100, and therefore a multiple of 2^-123. All sums are then multiples of
/// 2^-123, and none is denormal.
const SMALLEST: f32 = f32::from_bits((127 - 76) << 23);

/// The operands of a kernel that stay the same for all rows. `step` is the size of three rows in bytes, and `end` the
/// end of the outputs. `scales` has, for each of four rows, the offset of the row's scale. The offsets count from the
/// first row's pointer after it has moved past the block.
#[repr(C)]
struct Operands {
    q: *const i8,
    d: *const f32,
    blocks: usize,
    step: usize,
    end: *const f32,
    scales: [usize; 4],
}

/// Multiplies all rows with all tokens. Returns false without a result for a format other than Q8_0 and Q4_0, fewer
/// than four rows, scales at odd addresses, and tokens with scales below [`SMALLEST`] or NaN.
///
/// # Safety
///
/// `job` satisfies the promises of [`Job`].
#[inline(always)]
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>) -> bool {
    let kernel = match F::SHAPE {
        Shape::Bytes(2) => four_rows,
        Shape::Nibbles(2, None) if F::M.is_none() && F::BIAS == 8 => four_rows_of_nibbles,
        _ => return false,
    };
    let fits = job.rows >= 4 && job.w.as_ptr().addr().is_multiple_of(2);
    if !fits || !job.x.d.iter().all(|d| *d == 0.0 || d.abs() >= SMALLEST) {
        return false;
    }
    let (row_bytes, block_bytes) = (job.w.len() / job.rows, size_of::<F::Block>());
    for t in 0..job.x.tokens {
        let x = job.x.row(t);
        // If the number of rows is not a multiple of four, the last four rows overlap the previous four, so that no row
        // is left over.
        for (first, end) in [(0, job.rows & !3), (job.rows - 4, job.rows)] {
            if end == first || first != 0 && job.rows.is_multiple_of(4) {
                continue;
            }
            // SAFETY: the job has the rows from `first` to `end`, a multiple of four and not 0, each with as many
            // blocks as the token, and an output for each row.
            unsafe {
                let out = job.out.add(t * job.stride);
                let operands = Operands {
                    q: x.q.as_ptr(),
                    d: x.d.as_ptr(),
                    blocks: row_bytes / block_bytes,
                    step: 3 * row_bytes,
                    end: out.add(end),
                    scales: [0, 1, 2, 3].map(|row: usize| (row * row_bytes).wrapping_sub(block_bytes + 2)),
                };
                kernel(&operands, job.w.as_ptr().add(first * row_bytes + 2), row_bytes, out.add(first));
            }
        }
    }
    true
}

/// Defines a kernel that multiplies four rows at a time. `$row` is the code for a block of a row. It is given two
/// registers: the first one has the address of the block, and the second one gets the sum of the block's products with
/// the token's block in q0 and q1. `$bias` is the code that corrects the sums in q5.
macro_rules! kernel {
    ($name:ident, $row:ident, $bias:literal) => {
        /// # Safety
        ///
        /// `operands` has a token's activations and scales, and the number of blocks, which is the same for the token
        /// and each row, and is not 0. `w` points to the first row's weights; rows are `row_bytes` apart. There are as
        /// many rows as floats from `out` to the operands' `end`, a multiple of four and not 0.
        #[inline(never)]
        unsafe fn $name(operands: &Operands, w: *const u8, row_bytes: usize, out: *mut f32) {
            // The code begins each group of four rows by adding `operands.step` to the address, which then still points
            // to the end of the previous group's first row. The step skips three rows. It is subtracted here, before
            // the first group.
            let first = w.wrapping_sub(operands.step);
            // SAFETY: reads the blocks and writes the outputs that the caller promises. r6 and r7, which cannot be
            // operands, are kept in s28 and s29.
            unsafe {
                fpu!(
                    ".cpu cortex-m55",
                    "vmov s28, s29, r6, r7",
                    "mov r7, r0",
                    "mov r6, r2",
                    "vldrw.u32 q4, [r7, #20]",
                    "vmov.i8 q6, #15",
                    "3:",
                    "ldrd r0, r11, [r7]",
                    "ldrd lr, r2, [r7, #8]",
                    "add r1, r1, r2",
                    "add r3, r3, r2",
                    "add r5, r5, r2",
                    "add r9, r9, r2",
                    "vmov.i32 q3, #0",
                    "dls lr, lr",
                    "2:",
                    "vldrb.u8 q0, [r0], #16",
                    "vldrb.u8 q1, [r0], #16",
                    $row!("r1", "r4"),
                    $row!("r3", "r8"),
                    $row!("r5", "r10"),
                    $row!("r9", "r12"),
                    "vldrh.u32 q2, [r1, q4]", // the scales of four rows
                    "vmov q5[2], q5[0], r4, r10",
                    "vmov q5[3], q5[1], r8, r12",
                    $bias,
                    "ldr r2, [r11], #4",
                    "vcvtb.f32.f16 q2, q2",
                    "vcvt.f32.s32 q5, q5",
                    "vmul.f32 q2, q2, r2",
                    "vfma.f32 q3, q2, q5",
                    "le lr, 2b",
                    "vstrw.32 q3, [r6], #16",
                    "ldr r2, [r7, #16]",
                    "cmp r6, r2",
                    "bne 3b",
                    "vmov r6, r7, s28, s29",
                    ;
                    inout("r0") operands => _,
                    inout("r1") first => _,
                    inout("r2") out => _,
                    inout("r3") first.wrapping_add(row_bytes) => _,
                    inout("r5") first.wrapping_add(2 * row_bytes) => _,
                    inout("r9") first.wrapping_add(3 * row_bytes) => _,
                    out("r4") _,
                    out("r8") _,
                    out("r10") _,
                    out("r11") _,
                    out("r12") _,
                    out("lr") _,
                );
            }
        }
    };
}

/// Multiplies a block of bytes (Q8_0).
macro_rules! bytes {
    ($w:literal, $sum:literal) => {
        concat!(
            "vldrb.u8 q2, [",
            $w,
            ", #16]\n",
            "vldrb.u8 q5, [",
            $w,
            "], #34\n",
            "vmladav.s8 ",
            $sum,
            ", q2, q1\n",
            "vmladava.s8 ",
            $sum,
            ", q5, q0\n",
        )
    };
}

/// Multiplies a block of nibbles (Q4_0).
macro_rules! nibbles {
    ($w:literal, $sum:literal) => {
        concat!(
            "vldrb.u8 q2, [",
            $w,
            "], #18\n",
            "vand q5, q2, q6\n",
            "vshr.u8 q2, q2, #4\n",
            "vmladav.s8 ",
            $sum,
            ", q5, q0\n",
            "vmladava.s8 ",
            $sum,
            ", q2, q1\n",
        )
    };
}

kernel!(four_rows, bytes, "");
// Subtracts eight times the sum of the activations.
kernel!(four_rows_of_nibbles, nibbles, "vaddv.s8 r2, q0\nvaddva.s8 r2, q1\nlsl r2, r2, #3\nvsub.i32 q5, q5, r2\n");
