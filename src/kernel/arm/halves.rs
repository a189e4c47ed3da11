//! Blocks of 256 codes of four bits by SMLAD: see [`Shape::Halves`](crate::quant::Shape).
//!
//! Codes are multiplied where they stand in their words, the even ones of four and the odd, in the low halves of bytes or
//! in the high ones. The quants are multiplied by what is missing, so that all products are 256 times what they should
//! be: a group's sum is less than 2^24.

use core::arch::asm;

use super::dsp::{sixteen_times, spread};
use crate::kernel::Job;
use crate::kernel::dot::dot;
use crate::kernel::scalar::{Here, Unit};
use crate::quant::Format;

/// The quants of a token's block: of four each, the even ones and the odd.
type Pairs = [[u32; 2]; 64];

fn pairs(q: &[i8; 256]) -> Pairs {
    let mut pairs = [[0; 2]; 64];
    for (chunk, (pairs, q)) in pairs.as_chunks_mut::<8>().0.iter_mut().zip(q.as_chunks::<32>().0).enumerate() {
        for (pairs, four) in pairs.iter_mut().zip(q.as_chunks().0) {
            let [even, odd] = spread(*four);
            // 256 times, or 16 times.
            let even = if chunk % 2 == 0 { (even & 0x00ff_00ff) << 8 } else { sixteen_times(even) };
            *pairs = [even, odd];
        }
    }
    pairs
}

/// Rows times tokens, four rows at once; sums that go on from one block to the next wait in the output.
///
/// # Safety
///
/// `F` has codes in [`Shape::Halves`](crate::quant::Shape) from `place`; `job` as [`Job`] says.
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>, place: usize) {
    let row_bytes = job.w.len() / job.rows.max(1);
    let fours = job.rows / 4;
    for t in 0..job.x.tokens {
        // SAFETY: this token's outputs.
        let out = unsafe { job.out.add(t * job.stride) };
        let x = job.x.row(t);
        let scaled = x.q.as_chunks::<256>().0.iter().zip(x.d).zip(x.sums.as_chunks::<16>().0);
        for (number, ((q, &d), sums)) in scaled.enumerate() {
            let pairs = pairs(q);
            for four in 0..fours {
                // SAFETY: four blocks and four outputs of the job's.
                unsafe {
                    let out = out.add(four * 4).cast::<[f32; 4]>();
                    let mut acc = if number == 0 { [0.0; 4] } else { out.read() };
                    let w = job.w.as_ptr().add(four * 4 * row_bytes + number * size_of::<F::Block>());
                    let blocks = [0, 1, 2, 3].map(|r| &*w.add(r * row_bytes).cast::<F::Block>());
                    let mut totals = [0; 4];
                    four_rows(w.add(place), row_bytes, &pairs, &blocks.map(F::scales), &mut totals);
                    for ((acc, block), total) in acc.iter_mut().zip(blocks).zip(totals) {
                        *acc = Here::fma(F::d(block, 0, Here::le_f16) * d, total as f32, *acc);
                        if F::M.is_some() {
                            let minimums = F::minimums(block);
                            let mut sum = 0;
                            for (minimum, [a, b]) in minimums.iter().zip(sums.as_chunks().0) {
                                sum += i32::from(*minimum) * (i32::from(*a) + i32::from(*b));
                            }
                            *acc = Here::fma(F::m(block, Here::le_f16) * d, sum as f32, *acc);
                        }
                    }
                    out.write(acc);
                }
            }
        }
        for (r, row) in job.w.chunks_exact(row_bytes.max(1)).enumerate().skip(fours * 4) {
            // SAFETY: one of the job's rows.
            unsafe { *out.add(r) = dot::<F>(row, x) };
        }
    }
}

/// Four codes of a row times four quants in r11 and r12: those in the low halves of the word at `$at`, or in the high
/// halves. `$first` is SMUAD where a sum begins.
macro_rules! four {
    ($first:tt, $w:literal, $sum:literal, low $at:literal) => {
        concat!(
            "ldr r6, [", $w, ", #", $at, "]\n",
            "and r7, r6, #0x0f000f00\n",
            "and r6, r6, #0x000f000f\n",
            four!(@ $first, $sum),
        )
    };
    ($first:tt, $w:literal, $sum:literal, high $at:literal) => {
        concat!(
            "ldr r6, [", $w, ", #", $at, "]\n",
            "and r7, lr, r6, lsr #4\n", // where the odd ones of the high halves would be negative
            "and r6, r6, #0x00f000f0\n",
            four!(@ $first, $sum),
        )
    };
    (@ "smuad", $sum:literal) => {
        concat!("smuad ", $sum, ", r6, r11\n", "smlad ", $sum, ", r7, r12, ", $sum, "\n")
    };
    (@ "smlad", $sum:literal) => {
        concat!("smlad ", $sum, ", r6, r11, ", $sum, "\n", "smlad ", $sum, ", r7, r12, ", $sum, "\n")
    };
}

/// Four codes of four rows.
macro_rules! fours {
    ($first:tt, $half:ident $at:literal) => {
        concat!(
            "ldrd r11, r12, [r0], #8\n",
            four!($first, "r1", "r5", $half $at),
            four!($first, "r2", "r8", $half $at),
            four!($first, "r3", "r9", $half $at),
            four!($first, "r4", "r10", $half $at),
        )
    };
}

/// The 32 codes of a group, of four rows.
macro_rules! group {
    ($half:ident) => {
        concat!(
            fours!("smuad", $half "0"),
            fours!("smlad", $half "4"),
            fours!("smlad", $half "8"),
            fours!("smlad", $half "12"),
            fours!("smlad", $half "16"),
            fours!("smlad", $half "20"),
            fours!("smlad", $half "24"),
            fours!("smlad", $half "28"),
        )
    };
}

/// A row's sum of a group times its scale, to its total.
macro_rules! total {
    ($at:literal, $sum:literal, $total:literal) => {
        concat!(
            "ldrsb r6, [r11, #",
            $at,
            "]\n",
            "vmov r7, ",
            $total,
            "\n",
            "asr ",
            $sum,
            ", ",
            $sum,
            ", #8\n",
            "mla r7, ",
            $sum,
            ", r6, r7\n",
            "vmov ",
            $total,
            ", r7\n",
        )
    };
}

/// The sums of a block's groups times their scales, of four rows.
///
/// # Safety
///
/// `w` points to the codes of a block, and there are three more, `row_bytes` apart.
#[inline(always)]
unsafe fn four_rows(w: *const u8, row_bytes: usize, x: &Pairs, scales: &[[i8; 16]; 4], totals: &mut [i32; 4]) {
    // SAFETY: the pointers stay in the blocks; r6 and r7, which cannot be named as operands, are restored.
    unsafe {
        asm!(
            "push {{r6, r7}}",
            "vldmia lr, {{s0-s3}}",
            "vmov s4, r5", // the scales
            "vmov s5, lr",
            "add r12, r0, #512",
            "vmov s6, r12",
            "mov lr, #0x0f000f00",
            "2:",
            group!(low),
            "vmov r11, s4",
            total!("0", "r5", "s0"),
            total!("16", "r8", "s1"),
            total!("32", "r9", "s2"),
            total!("48", "r10", "s3"),
            group!(high),
            "vmov r11, s4",
            total!("1", "r5", "s0"),
            total!("17", "r8", "s1"),
            total!("33", "r9", "s2"),
            total!("49", "r10", "s3"),
            "add r11, r11, #2",
            "vmov s4, r11",
            "add r1, r1, #32",
            "add r2, r2, #32",
            "add r3, r3, #32",
            "add r4, r4, #32",
            "vmov r12, s6",
            "cmp r0, r12",
            "bne 2b",
            "vmov lr, s5",
            "vstmia lr, {{s0-s3}}",
            "pop {{r6, r7}}",
            inout("r0") x.as_ptr() => _,
            inout("r1") w => _,
            inout("r2") w.add(row_bytes) => _,
            inout("r3") w.add(2 * row_bytes) => _,
            inout("r4") w.add(3 * row_bytes) => _,
            inout("r5") scales.as_ptr() => _,
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
            out("r12") _,
            inout("lr") totals.as_mut_ptr() => _,
            out("s0") _, out("s1") _, out("s2") _, out("s3") _, out("s4") _, out("s5") _, out("s6") _,
        );
    }
}
