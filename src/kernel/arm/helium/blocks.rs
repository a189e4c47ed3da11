//! Blocks of 64 and 128 weights: two rows at a time, each with one sum. The floating-point unit computes the float
//! part, so denormals are as in the reference.

use super::super::assembly::fpu;
use crate::kernel::Job;
use crate::quant::{Format, TensorType};

/// The activations of a token, and the number of blocks of a row.
#[repr(C)]
struct Token {
    q: *const i8,
    d: *const f32,
    blocks: usize,
}

/// Adds up the products of two rows with a token, and writes both sums.
type Kernel = unsafe fn(&Token, *const u8, *const u8, *mut [f32; 2]);

const fn kernel(kind: TensorType) -> Option<Kernel> {
    match kind {
        TensorType::Q1_0 => Some(two_rows_of_q1_0),
        TensorType::Q2_0 => Some(two_rows_of_q2_0),
        _ => None,
    }
}

/// Multiplies all rows with all tokens. Returns false without a result if there is no kernel for the format.
///
/// # Safety
///
/// `job` satisfies the promises of [`Job`].
#[inline(always)]
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>) -> bool {
    let Some(kernel) = (const { kernel(F::KIND) }) else { return false };
    let row_bytes = job.w.len() / job.rows.max(1);
    for t in 0..job.x.tokens {
        let x = job.x.row(t);
        let blocks = row_bytes / size_of::<F::Block>();
        let token = Token { q: x.q.as_ptr(), d: x.d.as_ptr(), blocks };
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
    true
}

/// Defines a kernel. `$start` is code that sets q6, q7 and r5. `$block` is code that adds the products of a block of
/// each row to the sums in s16 and s17, and moves the addresses in r0 (the token's quants), r4 (the token's scales), r1
/// and r2 (the rows) to the next block.
macro_rules! kernel {
    ($name:ident, $start:expr, $($block:expr,)*) => {
        /// # Safety
        ///
        /// `token` has the activations of at least one block, and `a` and `b` point to rows of as many blocks.
        #[inline(never)]
        unsafe fn $name(token: &Token, a: *const u8, b: *const u8, sums: *mut [f32; 2]) {
            // SAFETY: reads the blocks and the activations, and writes the sums.
            unsafe {
                fpu!(
                    ".cpu cortex-m55",
                    "ldm r0, {{r0, r4, lr}}",
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
                    out("r12") _,
                    out("lr") _,
                );
            }
        }
    };
}

/// Assembly that loads 32 quants.
macro_rules! quants {
    () => {
        "vldrb.u8 q0, [r0], #16\nvldrb.u8 q1, [r0], #16\n"
    };
}

/// Assembly that converts the f16 in the low halves of r9 and r11 to s20 and s21.
macro_rules! factors {
    () => {
        "vmov s20, s21, r9, r11\nvcvtb.f32.f16 s20, s20\nvcvtb.f32.f16 s21, s21\n"
    };
}

/// Assembly that adds two integer sums, times the rows' factors in s20 and s21 and the token's scale, to s16 and s17.
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

/// Assembly that multiplies 32 weights of a row, whose bits are at offset `$at`: 1 if the bit is set, and otherwise -1.
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
/// Assembly that multiplies 32 weights of both rows, whose bits are at offset `$at`.
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

/// Assembly that multiplies the codes in q7 by every fourth quant. The sum of both chunks goes to r8, the sum of the
/// first chunk to r10.
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
/// Assembly that multiplies two chunks of a row. Each of their 16 bytes has two bits of four consecutive weights. The
/// sums go to r10 and `$second`.
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
