//! Integer dot products by SMLAD: two products of 16 bits and their sum in one instruction.

use core::arch::asm;

use crate::kernel::Row;
use crate::kernel::quantized::Blocks;
use crate::kernel::scalar::{self, Here, Unit};

/// Blocks of 32 bytes with an f16 scale before them.
pub(super) struct Q8_0;

/// Eight groups of four weights in each of four rows times four quants: bytes are spread to pairs of
/// 16 bits, those of the token once for all rows.
macro_rules! row {
    ($w:literal, $acc:literal) => {
        concat!(
            "ldr r6, [",
            $w,
            "], #4\n",
            "sxtb16 r7, r6, ror #8\n",
            "sxtb16 r6, r6\n",
            "smlad ",
            $acc,
            ", r6, r11, ",
            $acc,
            "\n",
            "smlad ",
            $acc,
            ", r7, r12, ",
            $acc,
            "\n",
        )
    };
}

impl Blocks for Q8_0 {
    const ROWS: usize = 4;

    #[inline(always)]
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
        let mut acc = [0.0f32; 4];
        let (mut w, mut q) = (w, x.q.as_ptr());
        for &dx in x.d {
            let rows: [*const u8; 4] = core::array::from_fn(|r| w.wrapping_add(r * row_bytes));
            // SAFETY: every row begins with two bytes.
            let scales = rows.map(|row| Here::le_f16(unsafe { row.cast::<[u8; 2]>().read() }));
            let (a, b, c, d): (i32, i32, i32, i32);
            // SAFETY: 32 quants, and 32 bytes behind the scale of each row; r6 and r7 are restored.
            unsafe {
                asm!(
                    "push {{r6, r7}}",
                    ".rept 8",
                    "ldr r11, [r0], #4",
                    "sxtb16 r12, r11, ror #8",
                    "sxtb16 r11, r11",
                    row!("r1", "r5"),
                    row!("r2", "r8"),
                    row!("r3", "r9"),
                    row!("r4", "r10"),
                    ".endr",
                    "pop {{r6, r7}}",
                    inout("r0") q => q,
                    inout("r1") rows[0].add(2) => _,
                    inout("r2") rows[1].add(2) => _,
                    inout("r3") rows[2].add(2) => _,
                    inout("r4") rows[3].add(2) => _,
                    inout("r5") 0 => a,
                    inout("r8") 0 => b,
                    inout("r9") 0 => c,
                    inout("r10") 0 => d,
                    out("r11") _,
                    out("r12") _,
                    options(readonly, preserves_flags),
                );
            }
            for ((acc, sum), dw) in acc.iter_mut().zip([a, b, c, d]).zip(scales) {
                *acc = Here::fma(dw * dx, sum as f32, *acc);
            }
            w = w.wrapping_add(34);
        }
        // SAFETY: four outputs.
        unsafe { out.cast::<[f32; 4]>().write_unaligned(acc) };
    }

    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        scalar::dot_q8_0(row, x)
    }
}
