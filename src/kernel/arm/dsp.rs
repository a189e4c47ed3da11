//! Integer dot products by SMLAD, which adds two products of 16 bits in one instruction.
//!
//! Two rows are multiplied at a time: four registers hold eight quants of the token, which are multiplied with words of
//! both rows.

use core::arch::asm;
use core::mem::MaybeUninit;

use super::assembly::ZEROS;
use super::fives::{two_rows_of_q5_0, two_rows_of_q5_1};
use super::pairs::{of_codes, of_indices, of_nibbles, table};
use super::two_rows::{Spread, add, add_with_minimums, kernel, quants};
use crate::kernel::Job;
use crate::quant::formats::{iq4_nl, mxfp4};
use crate::quant::{Format, Shape, TensorType};

/// Number of blocks of 32 columns that are processed together.
const BLOCKS: usize = 8;

/// Spreads the bytes of eight words to pairs of i16, in sixteen words. The first word is `first`, and the other seven
/// are at `rest`.
///
/// # Safety
///
/// `rest` points to seven words, at any address, and `to` has room for sixteen.
#[inline(always)]
unsafe fn spread_all(first: u32, rest: *const i8, to: *mut u32) {
    // SAFETY: reads and writes these words only.
    unsafe {
        asm!(
            "b 3f",
            "2:",
            "ldr r0, [{rest}], #4",
            "3:",
            "ldr r1, [{rest}], #4",
            "sxtb16 r2, r0",
            "sxtb16 r3, r0, ror #8",
            "sxtb16 r4, r1",
            "sxtb16 r5, r1, ror #8",
            "stmia {to}!, {{r2-r5}}",
            "cmp {to}, {end}",
            "bne 2b",
            rest = inout(reg) rest => _,
            to = inout(reg) to => _,
            end = in(reg) to.add(16),
            inout("r0") first => _,
            out("r1") _,
            out("r2") _,
            out("r3") _,
            out("r4") _,
            out("r5") _,
            options(nostack),
        );
    }
}

impl Spread {
    /// Writes the block's activations in the order in which the kernel reads them. If the block is the first of two
    /// that are read together in words, `next` is the scale of the second; the last two activations are then written
    /// first. (The block is written in place, because copying it would take as long as writing it.)
    #[inline(always)]
    fn write<F: Format>(to: &mut MaybeUninit<Self>, q: &[i8; 32], [a, b]: [i16; 2], scale: f32, next: Option<f32>) {
        let words: &[[u8; 4]; 8] = bytemuck::must_cast_ref(q);
        // SAFETY: the fields may be written, and `pairs` has 64 bytes. `spread_all` reads seven words, from the fourth
        // byte or from the second byte on, which end inside the 32 quants.
        unsafe {
            let to = to.as_mut_ptr();
            let pairs = &raw mut (*to).pairs;
            (*to).scale = scale;
            (*to).start = next.map_or(0, |next| next.to_bits() as i32);
            if let Some(of_halves) = const { of_halves::<F>() } {
                let order = const { order::<F>() };
                for (i, [a, b]) in order.into_iter().enumerate() {
                    let quants = of_halves(u32::from_le_bytes(words[a % 8]), u32::from_le_bytes(words[b % 8]));
                    pairs.cast::<[u32; 4]>().add(i).write(quants);
                }
                let sum = i32::from(a) + i32::from(b);
                (*to).start =
                    if F::M.is_some() { (sum as f32).to_bits() as i32 } else { -256 * i32::from(F::BIAS) * sum };
            } else {
                let (first, last) = (u32::from_le_bytes(words[0]), u32::from_le_bytes(words[7]));
                let (first, rest) = if next.is_some() { (first << 16 | last >> 16, 2) } else { (first, 4) };
                spread_all(first, q.as_ptr().add(rest), pairs.cast());
            }
        }
    }
}

/// True if this module or `halves.rs` has a kernel for the format. Such a kernel takes fewer instructions than the
/// general kernels of `words.rs`.
pub(super) const fn has<F: Format>() -> bool {
    of_halves::<F>().is_some() || matches!(F::SHAPE, Shape::Bytes(2) | Shape::Halves(_))
}

/// Returns a function for formats in which each byte has four bits of one weight in its low half and four bits of
/// another in its high half; `None` for other formats. The function takes a word of the activations for the low halves
/// and a word for the high halves, and returns four words with a pair of i16 each.
const fn of_halves<F: Format>() -> Option<fn(u32, u32) -> [u32; 4]> {
    match F::KIND {
        TensorType::Q4_0 | TensorType::Q4_1 => Some(of_nibbles),
        TensorType::Q5_0 | TensorType::Q5_1 => Some(of_codes),
        TensorType::IQ4_NL | TensorType::MXFP4 => Some(of_indices),
        _ => None,
    }
}

/// The order in which the kernel reads the words of a token's block, which have four activations each. Two words are
/// read at a time.
const fn order<F: Format>() -> [[usize; 2]; 4] {
    match F::KIND {
        TensorType::Q5_0 | TensorType::Q5_1 => [[0, 1], [4, 5], [2, 3], [6, 7]],
        _ => [[0, 4], [1, 5], [2, 6], [3, 7]],
    }
}

/// Multiplies all rows with all tokens. Between two groups of 256 columns, the output holds the unfinished sums.
///
/// # Safety
///
/// There is a kernel for `F` (see [`has`]), and `job` satisfies the promises of [`Job`].
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>) {
    if let Shape::Halves(place) = F::SHAPE {
        // SAFETY: the caller promises the same.
        return unsafe { super::halves::matmul::<F>(job, place) };
    }
    let row_bytes = job.w.len() / job.rows.max(1);
    // If all rows start at multiples of four bytes, they can be read in words: two blocks of 34 bytes are 17 words.
    let in_words = matches!(F::SHAPE, Shape::Bytes(_)) && (job.w.as_ptr().addr() | row_bytes).is_multiple_of(4);
    let kernel = match F::KIND {
        TensorType::Q4_0 => two_rows_of_nibbles,
        TensorType::Q4_1 => two_rows_of_q4_1,
        TensorType::Q5_0 => two_rows_of_q5_0,
        TensorType::Q5_1 => two_rows_of_q5_1,
        TensorType::IQ4_NL => two_rows_of_iq4_nl,
        TensorType::MXFP4 => two_rows_of_mxfp4,
        _ if in_words => two_rows_in_words,
        _ => two_rows,
    };
    for t in 0..job.x.tokens {
        let x = job.x.row(t);
        let blocks = x.q.as_chunks::<32>().0.chunks(BLOCKS);
        let scales = x.d.chunks(BLOCKS).zip(x.sums.as_chunks::<2>().0.chunks(BLOCKS));
        for (chunk, (q, (d, sums))) in blocks.zip(scales).enumerate() {
            let mut spread = [const { MaybeUninit::<Spread>::uninit() }; BLOCKS];
            let mut n = 0;
            for (((spread, q), scale), sums) in spread.iter_mut().zip(q).zip(d).zip(sums) {
                n += 1;
                let next = if in_words && n % 2 == 1 { d.get(n).copied() } else { None };
                Spread::write::<F>(spread, q, *sums, *scale, next);
            }
            // SAFETY: the token has an output per row. `n` blocks of the token, at least one, are written, and each row
            // has `n` blocks from `w` on; rows are `row_bytes` apart. With `in_words`, `row_bytes` is a multiple of 4,
            // so the number of blocks of 34 bytes in a row is even, and so is every `n`.
            unsafe {
                let out = job.out.add(t * job.stride);
                if chunk == 0 {
                    clear(out, job.rows);
                }
                let x = spread.as_ptr().cast::<Spread>();
                let w = job.w.as_ptr().add(chunk * BLOCKS * size_of::<F::Block>());
                let pairs = job.rows & !1;
                if pairs > 0 {
                    let step = 2 * row_bytes - n * size_of::<F::Block>();
                    kernel(x, w, w.add(row_bytes), x.add(n), step, out, out.add(pairs));
                }
                if pairs < job.rows {
                    // An odd last row is passed as both of the two rows.
                    let (w, out) = (w.add(pairs * row_bytes), out.add(pairs));
                    let mut both = [*out; 2];
                    kernel(x, w, w, x.add(n), 0, both.as_mut_ptr(), both.as_mut_ptr().add(2));
                    *out = both[0];
                }
            }
        }
    }
}

/// Writes `n` zeros, at least one. This is assembly, because the function that the compiler would call takes four
/// instructions per float.
///
/// # Safety
///
/// `at` has room for `n` floats.
pub(super) unsafe fn clear(at: *mut f32, n: usize) {
    // SAFETY: writes these floats only.
    unsafe {
        asm!(
            "vldmia {zeros}, {{s0-s7}}",
            "b 3f",
            "2:",
            "vstmia {at}!, {{s0-s7}}",
            "3:",
            "subs {n}, {n}, #8",
            "bge 2b",
            "adds {n}, {n}, #8",
            "beq 5f",
            "4:",
            "vstmia {at}!, {{s0}}",
            "subs {n}, {n}, #1",
            "bne 4b",
            "5:",
            zeros = in(reg) ZEROS.as_ptr(),
            at = inout(reg) at => _,
            n = inout(reg) n => _,
            out("s0") _, out("s1") _, out("s2") _, out("s3") _, out("s4") _, out("s5") _, out("s6") _, out("s7") _,
            options(nostack),
        );
    }
}

/// Multiplies eight weights of a row, in r6 and r11, with the quants, and adds the products to `$sum`. With `first`,
/// the products begin a new sum, by SMUAD.
macro_rules! eight {
    ($sum:literal) => {
        concat!("sxtb16 r12, r6\n", "smlad ", $sum, ", r12, r5, ", $sum, "\n", eight!(@ $sum))
    };
    (first $sum:literal) => {
        concat!("sxtb16 r12, r6\n", "smuad ", $sum, ", r12, r5\n", eight!(@ $sum))
    };
    (@ $sum:literal) => {
        concat!(
            "sxtb16 r6, r6, ror #8\n",
            "smlad ", $sum, ", r6, r8, ", $sum, "\n",
            "sxtb16 r12, r11\n",
            "smlad ", $sum, ", r12, r9, ", $sum, "\n",
            "sxtb16 r11, r11, ror #8\n",
            "smlad ", $sum, ", r11, r10, ", $sum, "\n",
        )
    };
}

/// Multiplies eight quants with eight weights of each of two rows. All of them are loaded first. With `words`, the
/// weights are aligned to four bytes.
macro_rules! eights {
    ($($first:ident)?) => {
        concat!(
            quants!(),
            "ldr r6, [r1], #4\n",
            "ldr r11, [r1], #4\n",
            eight!($($first)? "r3"),
            "ldr r6, [r2], #4\n",
            "ldr r11, [r2], #4\n",
            eight!($($first)? "r4"),
        )
    };
    (words $on:literal) => {
        concat!(quants!(), eights!(@ $on))
    };
    (words first) => {
        // Loads six words at once, because a single instruction does so. Two of them are the fields `start` and `scale`
        // of the block, which are not used.
        concat!("ldmia r0!, {{r3, r4, r5, r8, r9, r10}}\n", eights!(@ "8" first))
    };
    (@ $on:literal $($first:ident)?) => {
        concat!(
            "ldrd r6, r11, [r1], #", $on, "\n",
            eight!($($first)? "r3"),
            "ldrd r6, r11, [r2], #", $on, "\n",
            eight!($($first)? "r4"),
        )
    };
}

/// Assembly that multiplies the first eight weights that are read of two neighbouring blocks of Q8_0. The first word
/// has the first block's scale and its first two weights; the ninth word has the first block's last two weights and the
/// second block's scale. Therefore the four weights of these two words are joined to one word. The other four weights
/// are the second word. Both scales go to `$scale`.
macro_rules! first {
    ($w:literal, $sum:literal, $scale:literal) => {
        concat!(
            "ldr r12, [", $w, ", #32]\n",
            "ldrd r6, r11, [", $w, "], #8\n",
            "vmov ", $scale, ", r6, r12\n",
            "pkhbt r6, r12, r6\n",
            eight!(first $sum),
        )
    };
}

/// Loads the scales of the current blocks of two rows to s6 and s8. In a block, the scale comes before the weights.
macro_rules! scales {
    () => {
        concat!("ldrh r6, [r1], #2\n", "vmov s6, r6\n", "ldrh r6, [r2], #2\n", "vmov s8, r6\n")
    };
}

/// Multiplies eight weights of a row with the quants. The low halves of a word's bytes have four of the weights, the
/// high halves the other four.
macro_rules! nibbles {
    ($w:literal, $sum:literal) => {
        concat!(
            "ldr r6, [",
            $w,
            "], #4\n",
            "and r11, r6, #0x000f000f\n",
            "smlad ",
            $sum,
            ", r11, r5, ",
            $sum,
            "\n",
            "and r11, r6, #0x0f000f00\n",
            "smlad ",
            $sum,
            ", r11, r8, ",
            $sum,
            "\n",
            "and r11, r6, #0x00f000f0\n",
            "smlad ",
            $sum,
            ", r11, r9, ",
            $sum,
            "\n",
            "and r11, r12, r6, lsr #4\n", // the shift keeps the last weight from being negative
            "smlad ",
            $sum,
            ", r11, r10, ",
            $sum,
            "\n",
        )
    };
}

kernel! {
    two_rows_in_words, "",
    "vldmia r0!, {{s4-s5}}",
    quants!(),
    first!("r1", "r3", "s6, s7"),
    first!("r2", "r4", "s8, s9"),
    ".rept 2",
    eights!(words "8"),
    ".endr",
    eights!(words "12"),
    add!("b", "s6", "s8", "s5", ""),
    eights!(words first),
    ".rept 3",
    eights!(words "8"),
    ".endr",
    add!("t", "s7", "s9", "s4", ""),
}
kernel! {
    two_rows, "",
    "vldmia r0!, {{s4-s5}}",
    scales!(),
    eights!(first),
    ".rept 3",
    eights!(),
    ".endr",
    add!("b", "s6", "s8", "s5", ""),
}
kernel! {
    two_rows_of_nibbles, "mov r12, #0x0f000f00",
    "vldmia r0!, {{s4-s5}}",
    scales!(),
    "vmov r3, s4",
    "mov r4, r3",
    ".rept 4",
    quants!(),
    nibbles!("r1", "r3"),
    nibbles!("r2", "r4"),
    ".endr",
    add!("b", "s6", "s8", "s5", ", #8"),
}

kernel! {
    two_rows_of_q4_1, "mov r12, #0x0f000f00",
    "vldmia r0!, {{s4-s5}}",
    "ldr r6, [r1], #4",
    "ldr r11, [r2], #4",
    "vmov s2, s3, r6, r11",
    "mov r3, #0",
    "mov r4, #0",
    ".rept 4",
    quants!(),
    nibbles!("r1", "r3"),
    nibbles!("r2", "r4"),
    ".endr",
    "vmov r6, r11, s2, s3",
    add_with_minimums!(),
}

/// The weights of IQ4_NL for every byte of indices.
pub(super) static OF_IQ4_NL: [u32; 256] = table(iq4_nl::TABLE, 127);
/// The weights of MXFP4 for every byte of indices.
static OF_MXFP4: [u32; 256] = table(mxfp4::TABLE, 12);

/// Multiplies four bytes of indices of a row, from offset `$at` on, with the quants in the last four registers. The
/// first register has the address of the table; the second register is overwritten. With `first`, the products begin a
/// new sum.
macro_rules! indices {
    (first $w:literal, $sum:literal, $table:literal $x:literal $a:literal $b:literal $c:literal $d:literal, $at:literal) => {
        concat!(
            "ldrb ", $x, ", [", $w, ", #", $at, "]\n",
            "ldr ", $x, ", [", $table, ", ", $x, ", lsl #2]\n",
            "smuad ", $sum, ", ", $x, ", ", $a, "\n",
            $crate::kernel::arm::dsp::indices!(@ $w, $sum, $table $x, $at, "1" $b "2" $c "3" $d),
        )
    };
    ($w:literal, $sum:literal, $table:literal $x:literal $a:literal $b:literal $c:literal $d:literal, $at:literal) => {
        $crate::kernel::arm::dsp::indices!(@ $w, $sum, $table $x, $at, "0" $a "1" $b "2" $c "3" $d)
    };
    (@ $w:literal, $sum:literal, $table:literal $x:literal, $at:literal, $($byte:literal $quants:literal)*) => {
        concat!($(
            "ldrb ", $x, ", [", $w, ", #", $at, " + ", $byte, "]\n",
            "ldr ", $x, ", [", $table, ", ", $x, ", lsl #2]\n",
            "smlad ", $sum, ", ", $x, ", ", $quants, ", ", $sum, "\n",
        )*)
    };
}
pub(super) use indices;

/// Multiplies a block of indices of each of two rows.
macro_rules! block_of_indices {
    (first $at:literal) => {
        concat!(
            quants!(),
            indices!(first "r1", "r3", "r12" "r6" "r5" "r8" "r9" "r10", $at),
            indices!(first "r2", "r4", "r12" "r6" "r5" "r8" "r9" "r10", $at),
        )
    };
    ($at:literal) => {
        concat!(
            quants!(),
            indices!("r1", "r3", "r12" "r6" "r5" "r8" "r9" "r10", $at),
            indices!("r2", "r4", "r12" "r6" "r5" "r8" "r9" "r10", $at),
        )
    };
    ($first:literal $($at:literal)*) => {
        concat!(block_of_indices!(first $first), $(block_of_indices!($at)),*)
    };
}

kernel! {
    two_rows_of_iq4_nl of OF_IQ4_NL, "",
    "vldmia r0!, {{s4-s5}}",
    block_of_indices!("2" "6" "10" "14"),
    "ldrh r6, [r1], #18",
    "ldrh r11, [r2], #18",
    "vmov s6, s7, r6, r11",
    add!("b", "s6", "s7", "s5", ""),
}
// The code before label 2 computes the scale for exponents below 2, which are rare: see `Mxfp4::d`.
kernel! {
    two_rows_of_mxfp4 of OF_MXFP4,
    "b 5f
    4:
    mov r5, #0x00200000
    cmp r6, #1
    itee ls
    lslls r6, r5, r6
    lslhi r6, r6, #23
    subhi r6, r6, #0x00800000
    cmp r11, #1
    itee ls
    lslls r11, r5, r11
    lslhi r11, r11, #23
    subhi r11, r11, #0x00800000
    b 6f
    5:",
    "vldmia r0!, {{s4-s5}}",
    block_of_indices!("1" "5" "9" "13"),
    "ldrb r6, [r1], #17",
    "ldrb r11, [r2], #17",
    "cmp r6, #2",
    "blo 4b",
    "cmp r11, #2",
    "blo 4b",
    "lsl r6, r6, #23",
    "lsl r11, r11, #23",
    "sub r6, r6, #0x00800000",
    "sub r11, r11, #0x00800000",
    "6:",
    "vmov s6, s7, r6, r11",
    "vmov s10, s11, r3, r4",
    "vcvt.f32.s32 s10, s10",
    "vcvt.f32.s32 s11, s11",
    "vmul.f32 s6, s6, s5",
    "vmul.f32 s7, s7, s5",
    "vfma.f32 s0, s6, s10",
    "vfma.f32 s1, s7, s11",
}
