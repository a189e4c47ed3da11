//! Products with Helium, the M-profile vector extension: one instruction multiplies 16 pairs of bytes and adds the
//! products.
//!
//! This file has the blocks of 32 weights, of which four rows are computed at a time. For the float part, each row has
//! one lane. Helium flushes denormals to zero, and the reference does not. It reports that in the flags of the
//! floating-point unit, and then the product is computed again, without Helium. For the same reason the program must be
//! compiled for a processor without Helium: otherwise the compiler would use Helium for floats.

use core::arch::asm;

use super::assembly::fpu;
use crate::kernel::Job;
use crate::quant::formats::{iq4_nl, mxfp4};
use crate::quant::{Format, TensorType};

mod blocks;
pub(super) mod floats;
mod groups;

/// Runs a computation. Returns false if it flushed denormals: the results may then differ from the reference.
#[inline(always)]
fn without_denormals(compute: impl FnOnce()) -> bool {
    /// The flags "input denormal" and "underflow".
    const FLAGS: u32 = 0x88;
    let flags: u32;
    // SAFETY: clears and reads these flags only.
    unsafe {
        asm!(
            "vmrs {x}, fpscr",
            "bic {x}, {x}, {flags}",
            "vmsr fpscr, {x}",
            x = out(reg) _,
            flags = const FLAGS,
            options(nostack),
        );
        compute();
        asm!("vmrs {}, fpscr", out(reg) flags, options(nostack));
    }
    flags & FLAGS == 0
}

/// The operands of a kernel that stay the same for all rows. `step` is the size of three rows in bytes, and `end` the
/// end of the outputs. `factors` has, for each of four rows, the offset of the block's factor. The offsets count from
/// the first row's pointer after it has moved to the next block. `saved` is for registers.
#[repr(C)]
struct Operands {
    q: *const i8,
    d: *const f32,
    blocks: usize,
    step: usize,
    end: *const f32,
    factors: [usize; 4],
    table: *const i8,
    saved: [usize; 2],
}

type Kernel = unsafe fn(&mut Operands, *const u8, usize, *mut f32);

/// Returns the kernel of a type, the offset of the codes in a block, and the alignment of the factors.
const fn kernel(kind: TensorType) -> Option<(Kernel, usize, usize)> {
    match kind {
        TensorType::Q8_0 => Some((four_rows_of_q8_0, 2, 2)),
        TensorType::Q4_0 => Some((four_rows_of_q4_0, 2, 2)),
        TensorType::Q4_1 => Some((four_rows_of_q4_1, 4, 4)),
        TensorType::Q5_0 => Some((four_rows_of_q5_0, 6, 2)),
        TensorType::Q5_1 => Some((four_rows_of_q5_1, 8, 4)),
        TensorType::IQ4_NL => Some((four_rows_of_iq4_nl, 2, 2)),
        TensorType::MXFP4 => Some((four_rows_of_mxfp4, 1, 1)),
        _ => None,
    }
}

/// Multiplies all rows with all tokens. Returns false if the output is to be computed without Helium: there is no
/// kernel for the format, there are fewer than four rows, the factors are not aligned, or denormals occurred.
///
/// # Safety
///
/// `job` satisfies the promises of [`Job`].
#[inline(always)]
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>) -> bool {
    let Some((kernel, codes, align)) = (const { kernel(F::KIND) }) else {
        // SAFETY: the caller promises the same.
        return unsafe { blocks::matmul::<F>(job) || groups::matmul::<F>(job) };
    };
    if job.rows < 4 || !job.w.as_ptr().addr().is_multiple_of(align) {
        return false;
    }
    let (row_bytes, block_bytes) = (job.w.len() / job.rows, size_of::<F::Block>());
    let table = if matches!(F::KIND, TensorType::MXFP4) { &OF_MXFP4 } else { &OF_IQ4_NL };
    without_denormals(|| {
        for t in 0..job.x.tokens {
            let x = job.x.row(t);
            // If the number of rows is not a multiple of four, the last four rows overlap the previous four, so that no
            // row is left over.
            for (first, end) in [(0, job.rows & !3), (job.rows - 4, job.rows)] {
                if end == first || first != 0 && job.rows.is_multiple_of(4) {
                    continue;
                }
                // SAFETY: the job has the rows from `first` to `end`, a multiple of four and not 0, each with as many
                // blocks as the token, and an output for each row.
                unsafe {
                    let out = job.out.add(t * job.stride);
                    let mut operands = Operands {
                        q: x.q.as_ptr(),
                        d: x.d.as_ptr(),
                        blocks: row_bytes / block_bytes,
                        step: 3 * row_bytes,
                        end: out.add(end),
                        factors: [0, 1, 2, 3].map(|row: usize| (row * row_bytes).wrapping_sub(block_bytes + codes)),
                        table: table.as_ptr(),
                        saved: [0; 2],
                    };
                    kernel(&mut operands, job.w.as_ptr().add(first * row_bytes + codes), row_bytes, out.add(first));
                }
            }
        }
    })
}

/// The weights of the sixteen indices.
const fn signed(codes: &[u8; 16], bias: u8) -> [i8; 16] {
    let (mut table, mut i) = ([0; 16], 0);
    while i < 16 {
        table[i] = codes[i].wrapping_sub(bias) as i8;
        i += 1;
    }
    table
}
/// The weights of IQ4_NL and IQ4_XS.
static OF_IQ4_NL: [i8; 16] = signed(iq4_nl::TABLE, 127);
/// The weights of MXFP4, doubled.
static OF_MXFP4: [i8; 16] = signed(mxfp4::TABLE, 12);

/// Defines a kernel that multiplies four rows at a time. Its arguments are code:
///
/// - `$start` sets q6 and q7, which the other code reads.
/// - `$row` multiplies the codes of a row's block by the token's block in q0 and q1. It is given two registers: the
///   first one has the address of the codes, and is moved to the next block; the second one gets the sum.
/// - `$bias` corrects the four sums in q5.
/// - `$factors` loads the factors of the four blocks to q2. Their offsets from r1 are in q4; if another argument
///   changes q4, this code loads the offsets again.
/// - `$minimums` adds the minimums to the rows' sums in q3. The token's scale is in r4.
macro_rules! kernel {
    ($name:ident, $start:literal, $row:ident, $bias:literal, $factors:literal, $minimums:literal) => {
        /// # Safety
        ///
        /// `operands` has a token's activations and scales, and the number of blocks, which is the same for the token
        /// and each row, and is not 0. `w` points to the first row's codes; rows are `row_bytes` apart. There are as
        /// many rows as floats from `out` to the operands' `end`, a multiple of four and not 0.
        #[inline(never)]
        unsafe fn $name(operands: &mut Operands, w: *const u8, row_bytes: usize, out: *mut f32) {
            // The code begins each group of four rows by adding `operands.step` to the address, which then still points
            // to the end of the previous group's first row. The step skips three rows. It is subtracted here, before
            // the first group.
            let first = w.wrapping_sub(operands.step);
            // SAFETY: reads the blocks and writes the outputs that the caller promises. r6 and r7, which cannot be
            // operands, are saved and restored.
            unsafe {
                fpu!(
                    ".cpu cortex-m55",
                    "strd r6, r7, [r0, #40]",
                    "mov r7, r0",
                    "mov r6, r2",
                    "vldrw.u32 q4, [r7, #20]",
                    $start,
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
                    "vmov q5[2], q5[0], r4, r10",
                    "vmov q5[3], q5[1], r8, r12",
                    $bias,
                    "ldr r4, [r11], #4",
                    $factors,
                    "vcvt.f32.s32 q5, q5",
                    "vmul.f32 q2, q2, r4",
                    "vfma.f32 q3, q2, q5",
                    $minimums,
                    "le lr, 2b",
                    "vstrw.32 q3, [r6], #16",
                    "ldr r2, [r7, #16]",
                    "cmp r6, r2",
                    "bne 3b",
                    "ldrd r6, r7, [r7, #40]",
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
    // With an f16 as factor.
    ($name:ident, $start:literal, $row:ident, $bias:literal) => {
        kernel!($name, $start, $row, $bias, "vldrh.u32 q2, [r1, q4]\nvcvtb.f32.f16 q2, q2", "");
    };
    // With two f16, factor and minimum.
    ($name:ident, $start:literal, $row:ident with minimums) => {
        kernel!(
            $name, $start, $row, "",
            "vldrw.u32 q4, [r7, #20]\nvldrw.u32 q2, [r1, q4]\nvcvtt.f32.f16 q4, q2\nvcvtb.f32.f16 q2, q2",
            "vaddv.s8 r2, q0
            vaddva.s8 r2, q1
            vdup.32 q5, r2
            vcvt.f32.s32 q5, q5
            vmul.f32 q4, q4, r4
            vfma.f32 q3, q4, q5"
        );
    };
}

macro_rules! q8_0 {
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
kernel!(four_rows_of_q8_0, "", q8_0, "");

/// Assembly that multiplies the 16 bytes at `$w`, each with two four-bit codes, by the activations, and moves `$w` by
/// `$bytes`, the size of a block.
macro_rules! nibbles {
    ($w:literal $bytes:literal, $sum:literal) => {
        concat!(
            "vldrb.u8 q2, [",
            $w,
            "], #",
            $bytes,
            "\n",
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
macro_rules! q4_0 {
    ($w:literal, $sum:literal) => {
        nibbles!($w "18", $sum)
    };
}
macro_rules! q4_1 {
    ($w:literal, $sum:literal) => {
        nibbles!($w "20", $sum)
    };
}
// Subtracts eight times the sum of the activations.
kernel!(
    four_rows_of_q4_0,
    "vmov.i8 q6, #15",
    q4_0,
    "vaddv.s8 r2, q0\nvaddva.s8 r2, q1\nlsl r2, r2, #3\nvsub.i32 q5, q5, r2\n"
);
kernel!(four_rows_of_q4_1, "vmov.i8 q6, #15", q4_1 with minimums);

/// [`nibbles`] for codes of five bits. The fifth bits are in the four bytes before the other four bits of the codes.
/// The high half of a weight's byte is a half of q6 if the fifth bit is set, and a half of q7 if it is clear.
macro_rules! fives {
    ($w:literal $bytes:literal, $sum:literal) => {
        concat!(
            "ldrh r2, [",
            $w,
            ", #-2]\n",
            "ldrh ",
            $sum,
            ", [",
            $w,
            ", #-4]\n",
            "vldrb.u8 q2, [",
            $w,
            "], #",
            $bytes,
            "\n",
            "vmsr p0, r2\n",
            "vpsel q5, q6, q7\n",
            "vsri.8 q5, q2, #4\n",
            "vmsr p0, ",
            $sum,
            "\n",
            "vmladav.s8 ",
            $sum,
            ", q5, q1\n",
            "vpsel q5, q6, q7\n",
            "vsli.8 q2, q5, #4\n",
            "vmladava.s8 ",
            $sum,
            ", q2, q0\n",
        )
    };
}
macro_rules! q5_0 {
    ($w:literal, $sum:literal) => {
        fives!($w "22", $sum)
    };
}
macro_rules! q5_1 {
    ($w:literal, $sum:literal) => {
        fives!($w "24", $sum)
    };
}
// If the fifth bit is clear, the high half of the byte is 0xf, which subtracts 16.
kernel!(four_rows_of_q5_0, "vmov.i8 q6, #0\nvmov.i8 q7, #255", q5_0, "");
kernel!(four_rows_of_q5_1, "vmov.i8 q6, #0x11\nvmov.i8 q7, #0", q5_1 with minimums);

/// [`nibbles`] for codes that are indices into the table of the operands. Overwrites the register `$low`.
macro_rules! indices {
    ($w:literal $bytes:literal, $sum:literal, $low:literal) => {
        concat!(
            "ldr r2, [r7, #36]\n",
            "vldrb.u8 q2, [",
            $w,
            "], #",
            $bytes,
            "\n",
            "vand q5, q2, q6\n",
            "vldrb.u8 ",
            $low,
            ", [r2, q5]\n",
            "vshr.u8 q2, q2, #4\n",
            "vmladav.s8 ",
            $sum,
            ", ",
            $low,
            ", q0\n",
            "vldrb.u8 q5, [r2, q2]\n",
            "vmladava.s8 ",
            $sum,
            ", q5, q1\n",
        )
    };
}
macro_rules! iq4_nl {
    ($w:literal, $sum:literal) => {
        indices!($w "18", $sum, "q7")
    };
}
macro_rules! mxfp4 {
    ($w:literal, $sum:literal) => {
        indices!($w "17", $sum, "q4")
    };
}
kernel!(four_rows_of_iq4_nl, "vmov.i8 q6, #15", iq4_nl, "");
// The factors are those of `Mxfp4::d`, except that exponents below 2 give any denormal, which sets a flag.
kernel!(
    four_rows_of_mxfp4,
    "vmov.i8 q6, #15\nvmov.i32 q7, #0x400000",
    mxfp4,
    "",
    "vldrw.u32 q4, [r7, #20]
    vldrb.u32 q2, [r1, q4]
    mov r2, #0x800000
    vshl.i32 q2, q2, #23
    vsub.i32 q2, q2, r2
    vmax.s32 q2, q2, q7",
    ""
);
