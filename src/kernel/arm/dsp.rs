//! Integer dot products by SMLAD: two products of 16 bits and their sum in one instruction.

use core::arch::asm;
use core::mem::MaybeUninit;

use crate::kernel::Job;
use crate::kernel::dot::dot;
use crate::quant::{Format, Shape};

/// Blocks that are taken at once: 256 columns.
const BLOCKS: usize = 8;

/// A token's block for all rows: its bytes spread to pairs of 16 bits, the even ones of four and the odd.
#[derive(Clone, Copy)]
#[repr(C)]
struct Spread {
    /// What sums begin with, of nibbles: sixteen times what makes up for the bias.
    start: i32,
    scale: f32,
    pairs: [[u32; 2]; 8],
}

/// The even ones of four bytes and the odd, in pairs of 16 bits.
#[inline(always)]
pub(super) fn spread(four: [i8; 4]) -> [u32; 2] {
    let (even, odd);
    // SAFETY: only registers.
    unsafe {
        asm!(
            "sxtb16 {even}, {four}",
            "sxtb16 {odd}, {four}, ror #8",
            even = out(reg) even,
            odd = out(reg) odd,
            four = in(reg) u32::from_le_bytes(four.map(|x| x as u8)),
            options(pure, nomem, nostack),
        );
    }
    [even, odd]
}

/// Sixteen times each of a pair.
#[inline(always)]
pub(super) fn sixteen_times(pair: u32) -> u32 {
    (pair & 0x0fff_0fff) << 4
}

impl Spread {
    /// Of the first 16 bytes the sixteenfold for nibbles, of which the others are taken where they stand, in the
    /// upper halves of bytes.
    fn new<F: Format>(scale: f32, q: &[i8; 32], [a, b]: [i16; 2]) -> Self {
        let mut pairs = [[0; 2]; 8];
        for (i, (pairs, four)) in pairs.iter_mut().zip(q.as_chunks().0).enumerate() {
            *pairs = spread(*four);
            if is_nibbles::<F>() && i < 4 {
                *pairs = pairs.map(sixteen_times);
            }
        }
        let start = -16 * i32::from(F::BIAS) * (i32::from(a) + i32::from(b));
        Self { start, scale, pairs }
    }
}

/// Whether there are kernels for the format: Q8_0, Q4_0, Q4_K.
pub(super) const fn has<F: Format>() -> bool {
    is_nibbles::<F>() || matches!(F::SHAPE, Shape::Bytes(2) | Shape::Halves(_))
}

/// Whether the format is four bits that stand for themselves, after the scale.
const fn is_nibbles<F: Format>() -> bool {
    F::M.is_none() && F::BIAS > 0 && matches!(F::SHAPE, Shape::Nibbles(2, None))
}

/// Four weights of a row, their bytes spread, times four quants in r11 and r12; `$first` is SMUAD where a
/// sum begins.
macro_rules! row {
    ($w:literal, $sum:literal) => {
        concat!(row!(@ $w), "smlad ", $sum, ", r6, r11, ", $sum, "\n", "smlad ", $sum, ", r7, r12, ", $sum, "\n")
    };
    (first $w:literal, $sum:literal) => {
        concat!(row!(@ $w), "smuad ", $sum, ", r6, r11\n", "smlad ", $sum, ", r7, r12, ", $sum, "\n")
    };
    (@ $w:literal) => {
        concat!("ldr r6, [", $w, "], #4\n", "sxtb16 r7, r6, ror #8\n", "sxtb16 r6, r6\n")
    };
}

/// Four weights of a row, in the lower or upper halves (`$mask`) of four bytes, `$at` bytes on, times four quants.
macro_rules! nibbles {
    ($w:literal, $sum:literal, $at:literal, $mask:literal) => {
        concat!(
            "ldr r6, [",
            $w,
            ", #",
            $at,
            "]\n",
            "and r6, r6, #",
            $mask,
            "\n",
            "uxtb16 r7, r6, ror #8\n",
            "uxtb16 r6, r6\n",
            "smlad ",
            $sum,
            ", r6, r11, ",
            $sum,
            "\n",
            "smlad ",
            $sum,
            ", r7, r12, ",
            $sum,
            "\n",
        )
    };
    ($at:literal, $mask:literal) => {
        concat!(
            "ldrd r11, r12, [r0], #8\n",
            nibbles!("r1", "r5", $at, $mask),
            nibbles!("r2", "r8", $at, $mask),
            nibbles!("r3", "r9", $at, $mask),
            nibbles!("r4", "r10", $at, $mask),
        )
    };
}

/// The scales of two rows' blocks times that of the token's, in s5, to registers.
macro_rules! scales {
    ($a:literal $b:literal, $to_a:literal $to_b:literal) => {
        concat!(
            "ldrh r6, [",
            $a,
            "], #2\n",
            "ldrh r7, [",
            $b,
            "], #2\n",
            "vmov ",
            $to_a,
            ", ",
            $to_b,
            ", r6, r7\n",
            "vcvtb.f32.f16 ",
            $to_a,
            ", ",
            $to_a,
            "\n",
            "vcvtb.f32.f16 ",
            $to_b,
            ", ",
            $to_b,
            "\n",
            "vmul.f32 ",
            $to_a,
            ", ",
            $to_a,
            ", s5\n",
            "vmul.f32 ",
            $to_b,
            ", ",
            $to_b,
            ", s5\n",
        )
    };
}

/// One multiply-add for a block, of two rows.
macro_rules! add {
    ($acc_a:literal $acc_b:literal, $scale_a:literal $scale_b:literal, $a:literal $b:literal) => {
        concat!(
            "vmov s10, s11, ",
            $a,
            ", ",
            $b,
            "\n",
            "vcvt.f32.s32 s10, s10\n",
            "vcvt.f32.s32 s11, s11\n",
            "vfma.f32 ",
            $acc_a,
            ", ",
            $scale_a,
            ", s10\n",
            "vfma.f32 ",
            $acc_b,
            ", ",
            $scale_b,
            ", s11\n",
        )
    };
}

/// Rows times tokens, four rows at once; sums that go on from one 256 columns to the next wait in the output.
///
/// # Safety
///
/// `F` is a format that [`has`] a kernel; `job` as [`Job`] says.
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>) {
    if let Shape::Halves(place) = F::SHAPE {
        // SAFETY: as the caller says.
        return unsafe { super::halves::matmul::<F>(job, place) };
    }
    let row_bytes = job.w.len() / job.rows.max(1);
    let fours = job.rows / 4;
    for t in 0..job.x.tokens {
        // SAFETY: this token's outputs.
        let out = unsafe { job.out.add(t * job.stride) };
        let x = job.x.row(t);
        let blocks = x.q.as_chunks::<32>().0.chunks(BLOCKS);
        let scales = x.d.chunks(BLOCKS).zip(x.sums.as_chunks::<2>().0.chunks(BLOCKS));
        for (chunk, (q, (d, sums))) in blocks.zip(scales).enumerate() {
            let mut spread = [const { MaybeUninit::<Spread>::uninit() }; BLOCKS];
            for ((spread, q), (d, sums)) in spread.iter_mut().zip(q).zip(d.iter().zip(sums)) {
                spread.write(Spread::new::<F>(*d, q, *sums));
            }
            for four in 0..fours {
                // SAFETY: four rows and four outputs of the job's.
                unsafe {
                    let out = out.add(four * 4);
                    if chunk == 0 {
                        out.cast::<[f32; 4]>().write([0.0; 4]);
                    }
                    let w = job.w.as_ptr().add(four * 4 * row_bytes + chunk * BLOCKS * size_of::<F::Block>());
                    let x = spread.get(..q.len().min(d.len()).min(sums.len())).unwrap_or_default();
                    if is_nibbles::<F>() {
                        four_rows_of_nibbles(w, row_bytes, x, out);
                    } else {
                        four_rows(w, row_bytes, x, out);
                    }
                }
            }
        }
        for (r, row) in job.w.chunks_exact(row_bytes.max(1)).enumerate().skip(fours * 4) {
            // SAFETY: one of the job's rows.
            unsafe { *out.add(r) = dot::<F>(row, x) };
        }
    }
}

/// The loop over the blocks of a token: `$sums` makes the sums of four rows in r5, r8, r9 and r10.
macro_rules! four_rows {
    ($name:ident, $($sums:tt)*) => {
        /// Adds the dot products of some blocks, at least one, of four rows to `out`.
        ///
        /// # Safety
        ///
        /// `x` is written, `w` has as many blocks as `x`, and so have the rows after it, `row_bytes` apart; `out` has four
        /// numbers.
        #[inline(always)]
        unsafe fn $name(w: *const u8, row_bytes: usize, x: &[MaybeUninit<Spread>], out: *mut f32) {
            // SAFETY: the pointers stay in the blocks; r6 and r7, which cannot be named as operands, are restored.
            unsafe {
                asm!(
                    "push {{r6, r7}}",
                    "vldmia lr, {{s0-s3}}",
                    "push {{lr}}",
                    "mov lr, r5",
                    "2:",
                    "vldmia r0!, {{s4-s5}}",
                    scales!("r1" "r2", "s6" "s7"),
                    scales!("r3" "r4", "s8" "s9"),
                    $($sums)*
                    add!("s0" "s1", "s6" "s7", "r5" "r8"),
                    add!("s2" "s3", "s8" "s9", "r9" "r10"),
                    "cmp r0, lr",
                    "bne 2b",
                    "pop {{lr}}",
                    "vstmia lr, {{s0-s3}}",
                    "pop {{r6, r7}}",
                    inout("r0") x.as_ptr() => _,
                    inout("r1") w => _,
                    inout("r2") w.add(row_bytes) => _,
                    inout("r3") w.add(2 * row_bytes) => _,
                    inout("r4") w.add(3 * row_bytes) => _,
                    inout("r5") x.as_ptr_range().end => _,
                    out("r8") _,
                    out("r9") _,
                    out("r10") _,
                    out("r11") _,
                    out("r12") _,
                    inout("lr") out => _,
                    out("s0") _, out("s1") _, out("s2") _, out("s3") _, out("s4") _, out("s5") _, out("s6") _, out("s7") _,
                    out("s8") _, out("s9") _, out("s10") _, out("s11") _,
                );
            }
        }
    };
}
four_rows! {
    four_rows,
    "ldrd r11, r12, [r0], #8",
    row!(first "r1", "r5"),
    row!(first "r2", "r8"),
    row!(first "r3", "r9"),
    row!(first "r4", "r10"),
    ".rept 7",
    "ldrd r11, r12, [r0], #8",
    row!("r1", "r5"),
    row!("r2", "r8"),
    row!("r3", "r9"),
    row!("r4", "r10"),
    ".endr",
}
four_rows! {
    four_rows_of_nibbles,
    "vmov r5, s4",
    "mov r8, r5",
    "mov r9, r5",
    "mov r10, r5",
    nibbles!("0", "0x0f0f0f0f"),
    nibbles!("4", "0x0f0f0f0f"),
    nibbles!("8", "0x0f0f0f0f"),
    nibbles!("12", "0x0f0f0f0f"),
    nibbles!("0", "0xf0f0f0f0"),
    nibbles!("4", "0xf0f0f0f0"),
    nibbles!("8", "0xf0f0f0f0"),
    nibbles!("12", "0xf0f0f0f0"),
    "add r1, r1, #16",
    "add r2, r2, #16",
    "add r3, r3, #16",
    "add r4, r4, #16",
    "asr r5, r5, #4",
    "asr r8, r8, #4",
    "asr r9, r9, #4",
    "asr r10, r10, #4",
}
