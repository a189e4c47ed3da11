//! Blocks of 256 four-bit codes by SMLAD: see [`Shape::Halves`](crate::quant::Shape).
//!
//! Codes are multiplied at their bit position in a word, as in `dsp.rs`, so all products have the factor 256. Even with
//! this factor, the sum of a group is less than 2^24.

use core::arch::asm;

use super::pairs::{of_nibbles, spread};
use crate::kernel::Job;
use crate::kernel::scalar::{Here, Unit};
use crate::quant::Format;

/// A block of a token's activations, rearranged once for all rows.
struct Token {
    /// The quants for each word of codes.
    quants: [[u32; 4]; 32],
    /// For each group of quants, the sum of the group's quants, as i16. For every four groups, there is first a pair
    /// with the sums of the even groups, then a pair with the sums of the odd groups.
    sums: [[u32; 2]; 2],
}

impl Token {
    fn new(q: &[i8; 256], sums: &[i16; 16]) -> Self {
        let quants = Self::spread(q);
        let sums: &[[[i16; 2]; 4]; 2] = bytemuck::must_cast_ref(sums);
        let sums = sums.map(|four| {
            let [a, b, c, d] = four.map(|[a, b]| u32::from((a + b) as u16));
            [a | c << 16, b | d << 16]
        });
        Self { quants, sums }
    }

    /// Arranges the quants in the order in which the words of codes are multiplied with them.
    fn spread(q: &[i8; 256]) -> [[u32; 4]; 32] {
        let mut quants = [[0; 4]; 32];
        let groups: &[[[[u8; 4]; 8]; 2]; 4] = bytemuck::must_cast_ref(q);
        for (quants, [low, high]) in quants.as_chunks_mut::<8>().0.iter_mut().zip(groups) {
            for ((quants, low), high) in quants.iter_mut().zip(low).zip(high) {
                *quants = of_nibbles(u32::from_le_bytes(*low), u32::from_le_bytes(*high));
            }
        }
        quants
    }

    /// The sum of minimums times sums of the groups.
    #[inline(always)]
    fn minimum(&self, minimums: u64) -> i32 {
        let mut sum = 0;
        for (minimums, sums) in [minimums as u32, (minimums >> 32) as u32].into_iter().zip(self.sums) {
            for (minimums, sums) in spread(minimums).into_iter().zip(sums) {
                // SAFETY: uses registers only.
                unsafe {
                    asm!(
                        "smlad {sum}, {minimums}, {sums}, {sum}",
                        sum = inout(reg) sum,
                        minimums = in(reg) minimums,
                        sums = in(reg) sums,
                        options(pure, nomem, nostack),
                    );
                }
            }
        }
        sum
    }
}

/// The input and the output of a kernel for two rows: the scales of each row's groups; then, per row, the sum over the
/// groups of the group's products times its scale.
#[repr(C, align(8))]
struct Totals {
    scales: [u64; 2],
    totals: [i32; 2],
}

/// Multiplies all rows with all tokens, block by block. After each block, the output holds the sums so far.
///
/// # Safety
///
/// `F` has codes in [`Shape::Halves`](crate::quant::Shape) at `place`, and `job` satisfies the promises of [`Job`].
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>, place: usize) {
    let row_bytes = job.w.len() / job.rows.max(1);
    for t in 0..job.x.tokens {
        let x = job.x.row(t);
        let scaled = x.q.as_chunks::<256>().0.iter().zip(x.d).zip(x.sums.as_chunks::<16>().0);
        for (number, ((q, &d), sums)) in scaled.enumerate() {
            let token = Token::new(q, sums);
            for r in (0..job.rows).step_by(2) {
                // An odd last row is used as both of the two rows.
                let rows = [r, (r + 1).min(job.rows - 1)];
                // SAFETY: the job has these rows, each with as many blocks as the token, and an output for each row.
                unsafe {
                    let w = job.w.as_ptr().add(number * size_of::<F::Block>());
                    let blocks = rows.map(|r| &*w.add(r * row_bytes).cast::<F::Block>());
                    let mut totals = Totals { scales: blocks.map(|block| F::scale_words(block)[0]), totals: [0; 2] };
                    let [a, b] = blocks.map(|block| (&raw const *block).cast::<u8>().add(place));
                    two_rows(&token.quants, a, b, &mut totals);
                    let out = rows.map(|r| job.out.add(t * job.stride + r));
                    let mut acc = if number == 0 { [0.0; 2] } else { out.map(|out| *out) };
                    for k in 0..2 {
                        acc[k] = Here::fma(F::d(blocks[k], 0, Here::le_f16) * d, totals.totals[k] as f32, acc[k]);
                        if F::M.is_some() {
                            let sum = token.minimum(F::minimum_words(blocks[k])[0]);
                            acc[k] = Here::fma(F::m(blocks[k], Here::le_f16) * d, sum as f32, acc[k]);
                        }
                        *out[k] = acc[k];
                    }
                }
            }
        }
    }
}

/// Multiplies eight codes of a row with the quants in r8 to r11. The low halves of a word's bytes have four of the
/// codes, and the high halves the other four.
macro_rules! eight {
    ($w:literal, $low:literal, $high:literal) => {
        concat!(
            "ldr r12, [",
            $w,
            "], #4\n",
            "and lr, r12, #0x000f000f\n",
            "smlad ",
            $low,
            ", lr, r8, ",
            $low,
            "\n",
            "and lr, r12, #0x0f000f00\n",
            "smlad ",
            $low,
            ", lr, r9, ",
            $low,
            "\n",
            "and lr, r12, #0x00f000f0\n",
            "smlad ",
            $high,
            ", lr, r10, ",
            $high,
            "\n",
            "and lr, r7, r12, lsr #4\n", // the shift keeps the last code from being negative
            "smlad ",
            $high,
            ", lr, r11, ",
            $high,
            "\n",
        )
    };
}

/// Assembly that multiplies the sum of a group by the group's scale and adds the product to a row's total; for both
/// rows.
macro_rules! scaled {
    ($a:literal, $b:literal) => {
        concat!(
            "ldrsb r11, [r8, #8]\n",
            "ldrsb r12, [r8], #1\n",
            "asr ",
            $a,
            ", ",
            $a,
            ", #8\n",
            "asr ",
            $b,
            ", ",
            $b,
            ", #8\n",
            "mla r9, ",
            $a,
            ", r12, r9\n",
            "mla r10, ",
            $b,
            ", r11, r10\n",
        )
    };
}

/// Computes, for each of two rows, the sum over a block's groups of the group's sum of products times its scale.
///
/// # Safety
///
/// `a` and `b` point to the codes of a block.
#[inline(never)]
unsafe fn two_rows(quants: &[[u32; 4]; 32], a: *const u8, b: *const u8, totals: &mut Totals) {
    // SAFETY: reads 32 words of codes at `a` and at `b`, the quants and the scales, and writes the totals. r6 and r7,
    // which cannot be operands, are saved on the stack and restored.
    unsafe {
        asm!(
            "push {{r6, r7}}",
            "mov r7, #0x0f000f00",
            "2:", // 64 codes
            "vmov s0, r8",
            "vmov s1, s2, r9, r10",
            "mov r3, #0",
            "mov r4, #0",
            "mov r5, #0",
            "cmp r5, #0",
            "mov r6, #0",
            "3:", // runs once per half of the 64 codes; the flag "equal" is set for the first half
            ".rept 4",
            "ldmia r0!, {{r8, r9, r10, r11}}",
            eight!("r1", "r3", "r4"),
            eight!("r2", "r5", "r6"),
            ".endr",
            "bne 4f",
            "cmp r7, #0",
            "b 3b",
            "4:",
            "vmov r8, s0",
            "vmov r9, r10, s1, s2",
            scaled!("r3", "r5"),
            scaled!("r4", "r6"),
            "tst r8, #7", // r8 is a multiple of 8 again after eight scales
            "bne 2b",
            "strd r9, r10, [r8, #8]",
            "pop {{r6, r7}}",
            inout("r0") quants => _,
            inout("r1") a => _,
            inout("r2") b => _,
            out("r3") _,
            out("r4") _,
            out("r5") _,
            inout("r8") totals => _,
            inout("r9") 0 => _,
            inout("r10") 0 => _,
            out("r11") _,
            out("r12") _,
            out("lr") _,
            out("s0") _, out("s1") _, out("s2") _,
        );
    }
}
