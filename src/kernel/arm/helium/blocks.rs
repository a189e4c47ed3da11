//! Blocks of 32, 64 and 128 weights: two rows at a time, each with one sum. The floating-point unit computes the float
//! part, so denormals are as in the reference.

use super::super::assembly::fpu;
use crate::kernel::Job;
use crate::quant::formats::{iq4_nl, mxfp4};
use crate::quant::{Format, TensorType};

/// The activations of a token, and the number of blocks of a row.
#[repr(C)]
struct Token {
    q: *const i8,
    d: *const f32,
    sums: *const i16,
    blocks: usize,
}

/// Adds up the products of two rows with a token, and writes both sums.
type Kernel = unsafe fn(&Token, *const u8, *const u8, *mut [f32; 2]);

const fn kernel(kind: TensorType) -> Option<Kernel> {
    match kind {
        TensorType::Q4_1 => Some(two_rows_of_q4_1),
        TensorType::Q5_0 => Some(two_rows_of_q5_0),
        TensorType::Q5_1 => Some(two_rows_of_q5_1),
        TensorType::IQ4_NL => Some(two_rows_of_iq4_nl),
        TensorType::MXFP4 => Some(two_rows_of_mxfp4),
        TensorType::Q1_0 => Some(two_rows_of_q1_0),
        TensorType::Q2_0 => Some(two_rows_of_q2_0),
        _ => None,
    }
}

/// True if this module has a kernel for the format.
pub(in crate::kernel::arm) const fn has<F: Format>() -> bool {
    kernel(F::KIND).is_some()
}

/// Multiplies all rows with all tokens.
///
/// # Safety
///
/// There is a kernel for `F` (see [`has`]), and `job` satisfies the promises of [`Job`].
pub(in crate::kernel::arm) unsafe fn matmul<F: Format>(job: &mut Job<'_>) {
    let Some(kernel) = (const { kernel(F::KIND) }) else { return };
    let row_bytes = job.w.len() / job.rows.max(1);
    for t in 0..job.x.tokens {
        let x = job.x.row(t);
        let blocks = row_bytes / size_of::<F::Block>();
        let token = Token { q: x.q.as_ptr(), d: x.d.as_ptr(), sums: x.sums.as_ptr(), blocks };
        for r in (0..job.rows).step_by(2) {
            // An odd last row is used as both of the two rows.
            let last = (r + 1).min(job.rows - 1);
            let mut sums = [0.0; 2];
            // SAFETY: the job has these rows, each with as many blocks as the token, and an output for each row.
            unsafe {
                let w = job.w.as_ptr();
                kernel(&token, w.add(r * row_bytes), w.add(last * row_bytes), &mut sums);
                let out = job.out.add(t * job.stride);
                *out.add(r) = sums[0];
                *out.add(last) = if last == r { sums[0] } else { sums[1] };
            }
        }
    }
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
pub(super) static OF_IQ4_NL: [i8; 16] = signed(iq4_nl::TABLE, 127);
/// The weights of MXFP4, doubled.
static OF_MXFP4: [i8; 16] = signed(mxfp4::TABLE, 12);

/// Defines a kernel. `$start` sets q6, q7 and, in formats without minimums, r5. `$block` adds the products of a block
/// to the sums in s16 and s17. It moves r0 past the token's quants, r4 past its scales, and r1 and r2 past the blocks
/// of the rows; r5 points to the sums of the token's groups. r12 is the address of `$table`.
macro_rules! kernel {
    ($name:ident, $start:expr, $($block:expr,)*) => {
        kernel!($name(out("r12") _,), $start, $($block,)*);
    };
    ($name:ident of $table:ident, $start:expr, $($block:expr,)*) => {
        kernel!($name(in("r12") $table.as_ptr(),), $start, $($block,)*);
    };
    ($name:ident($($r12:tt)*), $start:expr, $($block:expr,)*) => {
        /// # Safety
        ///
        /// `token` has the activations of at least one block, and `a` and `b` point to rows of as many blocks.
        #[inline(never)]
        unsafe fn $name(token: &Token, a: *const u8, b: *const u8, sums: *mut [f32; 2]) {
            // SAFETY: reads the blocks and the activations, and writes the sums.
            unsafe {
                fpu!(
                    ".cpu cortex-m55",
                    "ldm r0, {{r0, r4, r5, lr}}",
                    $start,
                    "vmov.i32 q4, #0",
                    "dls lr, lr",
                    "2:",
                    $($block,)*
                    "le lr, 2b",
                    "vstmia r3, {{s16-s17}}",
                    ;
                    inout("r0") token => _,
                    inout("r1") a => _,
                    inout("r2") b => _,
                    in("r3") sums,
                    out("r4") _,
                    out("r5") _,
                    out("r8") _,
                    out("r9") _,
                    out("r10") _,
                    out("r11") _,
                    $($r12)*
                    out("lr") _,
                );
            }
        }
    };
}

/// Loads 32 quants.
macro_rules! quants {
    () => {
        "vldrb.u8 q0, [r0], #16\nvldrb.u8 q1, [r0], #16\n"
    };
}

/// Converts the f16 in the low halves of r9 and r11 to s20 and s21.
macro_rules! factors {
    () => {
        "vmov s20, s21, r9, r11\nvcvtb.f32.f16 s20, s20\nvcvtb.f32.f16 s21, s21\n"
    };
}

/// Adds the integer sums in two registers, times the rows' factors in s20 and s21 and the token's scale.
macro_rules! add {
    ($a:literal $b:literal) => {
        concat!(
            "vmov s18, s19, ",
            $a,
            ", ",
            $b,
            "\n",
            "vldmia r4!, {{s22}}\n",
            "vcvt.f32.s32 s18, s18\n",
            "vcvt.f32.s32 s19, s19\n",
            "vmul.f32 s8, s20, s22\n",
            "vmul.f32 s9, s21, s22\n",
            "vfma.f32 s16, s8, s18\n",
            "vfma.f32 s17, s9, s19\n",
        )
    };
}

/// [`add`] of r8 and r10 with the factors in the low halves of r9 and r11, then the minimums in the high halves of r9
/// and r11, times the sum of the token's quants and the token's scale.
macro_rules! add_with_minimums {
    () => {
        concat!(
            factors!(),
            add!("r8" "r10"),
            "vmov s10, s11, r9, r11\n",
            "ldr r12, [r5], #4\n",
            "sxth r9, r12\n",
            "add r12, r9, r12, asr #16\n",
            "vmov s18, r12\n",
            "vcvt.f32.s32 s18, s18\n",
            "vcvtt.f32.f16 s10, s10\n",
            "vcvtt.f32.f16 s11, s11\n",
            "vmul.f32 s10, s10, s22\n",
            "vmul.f32 s11, s11, s22\n",
            "vfma.f32 s16, s10, s18\n",
            "vfma.f32 s17, s11, s18\n",
        )
    };
}

/// Multiplies 16 bytes of codes of a row at offset `$at`.
macro_rules! nibbles {
    ($w:literal $at:literal, $sum:literal) => {
        concat!(
            "vldrb.u8 q2, [",
            $w,
            ", #",
            $at,
            "]\n",
            "vand q3, q2, q6\n",
            "vshr.u8 q2, q2, #4\n",
            "vmladav.s8 ",
            $sum,
            ", q3, q0\n",
            "vmladava.s8 ",
            $sum,
            ", q2, q1\n",
        )
    };
}
kernel! {
    two_rows_of_q4_1, "vmov.i8 q6, #15",
    quants!(),
    nibbles!("r1" "4", "r8"),
    nibbles!("r2" "4", "r10"),
    "ldr r9, [r1], #20",
    "ldr r11, [r2], #20",
    add_with_minimums!(),
}

/// Multiplies 16 bytes of codes of a row, with the fifth bits of the weights at offset `$bits`. The high half of a
/// weight is a half of q6 where the fifth bit is set, and of q7 elsewhere.
macro_rules! fives {
    ($w:literal $bits:literal $at:literal, $sum:literal) => {
        concat!(
            "ldr r12, [",
            $w,
            ", #",
            $bits,
            "]\n",
            "vldrb.u8 q2, [",
            $w,
            ", #",
            $at,
            "]\n",
            "lsr r9, r12, #16\n",
            "vmsr p0, r9\n",
            "vpsel q3, q6, q7\n",
            "vsri.8 q3, q2, #4\n",
            "vmladav.s8 ",
            $sum,
            ", q3, q1\n",
            "vmsr p0, r12\n",
            "vpsel q3, q6, q7\n",
            "vsli.8 q2, q3, #4\n",
            "vmladava.s8 ",
            $sum,
            ", q2, q0\n",
        )
    };
}
// A clear fifth bit subtracts 16.
kernel! {
    two_rows_of_q5_0, "vmov.i8 q6, #0\nvmov.i8 q7, #255",
    quants!(),
    fives!("r1" "2" "6", "r8"),
    fives!("r2" "2" "6", "r10"),
    "ldrh r9, [r1], #22",
    "ldrh r11, [r2], #22",
    factors!(),
    add!("r8" "r10"),
}
kernel! {
    two_rows_of_q5_1, "vmov.i8 q6, #0x11\nvmov.i8 q7, #0",
    quants!(),
    fives!("r1" "4" "8", "r8"),
    fives!("r2" "4" "8", "r10"),
    "ldr r9, [r1], #24",
    "ldr r11, [r2], #24",
    add_with_minimums!(),
}

/// Multiplies 16 bytes of indices of a row at offset `$at`.
macro_rules! indices {
    ($w:literal $at:literal, $sum:literal) => {
        concat!(
            "vldrb.u8 q2, [",
            $w,
            ", #",
            $at,
            "]\n",
            "vand q3, q2, q6\n",
            "vldrb.u8 q5, [r12, q3]\n",
            "vshr.u8 q2, q2, #4\n",
            "vmladav.s8 ",
            $sum,
            ", q5, q0\n",
            "vldrb.u8 q3, [r12, q2]\n",
            "vmladava.s8 ",
            $sum,
            ", q3, q1\n",
        )
    };
}
kernel! {
    two_rows_of_iq4_nl of OF_IQ4_NL, "vmov.i8 q6, #15",
    quants!(),
    indices!("r1" "2", "r8"),
    indices!("r2" "2", "r10"),
    "ldrh r9, [r1], #18",
    "ldrh r11, [r2], #18",
    factors!(),
    add!("r8" "r10"),
}

/// Sets a register to the bits of the factor that belongs to an exponent: see `Mxfp4::d`. r5 is 0x400000.
macro_rules! exponent {
    ($x:literal) => {
        concat!(
            "subs ",
            $x,
            ", ",
            $x,
            ", #1\n",
            "ite hi\n",
            "lslhi ",
            $x,
            ", ",
            $x,
            ", #23\n",
            "addls ",
            $x,
            ", r5, ",
            $x,
            ", lsl #21\n",
        )
    };
}
kernel! {
    two_rows_of_mxfp4 of OF_MXFP4, "vmov.i8 q6, #15\nmov r5, #0x400000",
    quants!(),
    indices!("r1" "1", "r8"),
    indices!("r2" "1", "r10"),
    "ldrb r9, [r1], #17",
    "ldrb r11, [r2], #17",
    exponent!("r9"),
    exponent!("r11"),
    "vmov s20, s21, r9, r11",
    add!("r8" "r10"),
}

/// Multiplies 32 bits of a row at offset `$at`.
macro_rules! bits {
    ($w:literal $at:literal, $sum:literal) => {
        concat!(
            "ldr r12, [",
            $w,
            ", #",
            $at,
            "]\n",
            "vmsr p0, r12\n",
            "lsr r12, r12, #16\n",
            "vpsel q3, q6, q7\n",
            "vmladav.s8 ",
            $sum,
            ", q3, q0\n",
            "vmsr p0, r12\n",
            "vpsel q3, q6, q7\n",
            "vmladava.s8 ",
            $sum,
            ", q3, q1\n",
        )
    };
}
/// Multiplies a chunk of bits of both rows.
macro_rules! chunk_of_bits {
    ($at:literal) => {
        concat!(quants!(), bits!("r1" $at, "r8"), bits!("r2" $at, "r10"), add!("r8" "r10"))
    };
}
kernel! {
    two_rows_of_q1_0, "vmov.i8 q6, #1\nvmov.i8 q7, #255",
    "ldrh r9, [r1]",
    "ldrh r11, [r2]",
    factors!(),
    chunk_of_bits!("2"),
    chunk_of_bits!("6"),
    chunk_of_bits!("10"),
    chunk_of_bits!("14"),
    "add r1, r1, #18",
    "add r2, r2, #18",
}

/// Multiplies codes in q7 with every fourth quant. The sum of both chunks goes to r8, that of the first chunk to r10.
macro_rules! fours {
    ($x:literal $a:literal) => {
        concat!(
            "vsub.i8 q7, q7, r5\n",
            "vmladav",
            $a,
            ".s8 r8, q7, ",
            $x,
            "\n",
            "vpst\n",
            "vmladav",
            $a,
            "t.s8 r10, q7, ",
            $x,
            "\n",
        )
    };
}
/// Multiplies 16 bytes of a row, each with two bits of four consecutive weights. The sums of the chunks go to r10 and
/// `$second`.
macro_rules! two_chunks {
    ($w:literal, $second:literal) => {
        concat!(
            "vldrb.u8 q5, [", $w, ", #2]\n",
            "vand q7, q5, q6\n",
            fours!("q0" ""),
            "vshr.u8 q7, q5, #2\nvand q7, q7, q6\n",
            fours!("q1" "a"),
            "vshr.u8 q7, q5, #4\nvand q7, q7, q6\n",
            fours!("q2" "a"),
            "vshr.u8 q7, q5, #6\n",
            fours!("q3" "a"),
            "sub ", $second, ", r8, r10\n",
        )
    };
}
kernel! {
    two_rows_of_q2_0, "mov r5, #255\nvmsr p0, r5\nmov r5, #1\nvmov.i8 q6, #3",
    "vld40.8 {{q0, q1, q2, q3}}, [r0]",
    "vld41.8 {{q0, q1, q2, q3}}, [r0]",
    "vld42.8 {{q0, q1, q2, q3}}, [r0]",
    "vld43.8 {{q0, q1, q2, q3}}, [r0]!",
    two_chunks!("r1", "r11"),
    "mov r12, r10",
    two_chunks!("r2", "r8"),
    "ldrh r9, [r1], #18",
    "vmov s20, r9",
    "ldrh r9, [r2], #18",
    "vmov s21, r9",
    "vcvtb.f32.f16 s20, s20",
    "vcvtb.f32.f16 s21, s21",
    add!("r12" "r10"),
    add!("r11" "r8"),
}
