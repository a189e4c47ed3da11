//! Blocks of 32 codes of five bits (Q5_0, Q5_1), by SMLAD.
//!
//! A block stores the high bits of its codes in four bytes, and the low four bits in four words. A table gives, for
//! each byte of high bits, the two words that these bits add to eight codes.

use core::arch::asm;

use super::pairs::BYTE_FLAGS;
use super::two_rows::{Spread, add, add_with_minimums, kernel, quants};

/// A line of assembly.
macro_rules! line {
    ($($part:expr),*) => { concat!($($part,)* "\n") };
}

/// Multiplies eight codes of a row with the quants in r5, r8, r9 and r10. Their fifth bits are the byte at offset
/// `$at`, for which `BYTE_FLAGS` has the two words `$a` and `$b`. `$first` and `$second` load four bits of each code,
/// to the operands `$x` and `$y`. `$multiply` and `$start` are the instruction of the first product, and its operand
/// that begins the sum.
macro_rules! eight_codes {
    (
        $w:literal $at:expr, $multiply:literal $start:literal, $sum:literal, $a:literal $b:literal,
        $first:expr, $x:literal, $second:expr, $y:literal
    ) => {
        concat!(
            line!("ldrb ", $a, ", [", $w, ", #", $at, "]"),
            line!("add ", $a, ", r12, ", $a, ", lsl #3"),
            line!("ldrd ", $a, ", ", $b, ", [", $a, "]"),
            $first,
            line!("orr ", $a, ", ", $a, ", ", $x),
            line!($multiply, " ", $sum, ", ", $a, ", r8", $start),
            line!("uxtb16 ", $a, ", ", $a),
            line!("smlad ", $sum, ", ", $a, ", r5, ", $sum),
            $second,
            line!("orr ", $b, ", ", $b, ", ", $y),
            line!("smlad ", $sum, ", ", $b, ", r10, ", $sum),
            line!("uxtb16 ", $b, ", ", $b),
            line!("smlad ", $sum, ", ", $b, ", r9, ", $sum),
        )
    };
}

/// Assembly that loads a word with two codes per byte to the first register, and copies the low or the high halves of
/// its bytes to the second register.
macro_rules! halves {
    (low $w:literal $at:expr, $word:literal $to:literal) => {
        concat!("ldr ", $word, ", [", $w, ", #", $at, "]\n", "and ", $to, ", ", $word, ", #0x0f0f0f0f\n")
    };
    (high $w:literal $at:expr, $to:literal) => {
        concat!("ldr ", $to, ", [", $w, ", #", $at, "]\n", halves!(high $to))
    };
    (high $word:literal) => {
        concat!("and ", $word, ", ", $word, ", #0xf0f0f0f0\n")
    };
}

/// Multiplies sixteen codes of each of two rows. The codes' low bits are in the words at the offsets `$at + $p` and
/// `$at + $q`, and their fifth bits at `$at + $low` and `$at + $high`. `$quants` loads the first quants. The sums begin
/// with `$a` and `$b`. The words of the first row stay in r11 and r6, because their high halves have further codes.
/// There are no registers to keep the words of the second row.
macro_rules! sixteen_codes {
    (
        $quants:expr, $multiply:literal $a:literal $b:literal, $at:literal, $low:literal $high:literal,
        $p:literal $q:literal
    ) => {
        concat!(
            $quants,
            eight_codes!(
                "r2" concat!($at, $low), $multiply $b, "r4", "r6" "r7",
                halves!(low "r2" concat!($at, $p), "r11" "r11"), "r11",
                halves!(low "r2" concat!($at, $q), "r11" "r11"), "r11"
            ),
            eight_codes!(
                "r1" concat!($at, $low), $multiply $a, "r3", "r6" "r7",
                halves!(low "r1" concat!($at, $p), "r11" "lr"), "lr",
                halves!(low "r1" concat!($at, $q), "r6" "lr"), "lr"
            ),
            quants!(),
            eight_codes!(
                "r1" concat!($at, $high), "smlad" ", r3", "r3", "r7" "lr",
                halves!(high "r11"), "r11, lsr #4", halves!(high "r6"), "r6, lsr #4"
            ),
            eight_codes!(
                "r2" concat!($at, $high), "smlad" ", r4", "r4", "r6" "r7",
                halves!(high "r2" concat!($at, $p), "r11"), "r11, lsr #4",
                halves!(high "r2" concat!($at, $q), "r11"), "r11, lsr #4"
            ),
        )
    };
}

/// Multiplies a block of each of two rows with the quants. In the block, the bytes with the fifth bits of the codes
/// begin at offset `$at`. `$head` loads the first quants.
macro_rules! block_of_codes {
    ($head:literal, $multiply:literal $start:literal, $at:literal) => {
        concat!(
            sixteen_codes!($head, $multiply $start $start, $at, " + 0" " + 2", " + 4" " + 8"),
            sixteen_codes!(quants!(), "smlad" ", r3" ", r4", $at, " + 1" " + 3", " + 12" " + 16"),
        )
    };
}

/// Saves r7 and lr, which `two_blocks` restores. If the number of blocks is odd, the first iteration begins with its
/// second block. (A block has 72 bytes, so that bit 3 of the size of all blocks is set for an odd number.)
macro_rules! start_of_row {
    () => {
        "vmov s2, s3, r7, lr
        sub r5, lr, r0
        tst r5, #8
        bne 4f
        "
    };
}
macro_rules! two_blocks {
    ($block:expr) => {
        concat!($block, "4:\n", $block, "vmov r7, lr, s2, s3\n")
    };
}
kernel! {
    two_rows_of_q5_0 of BYTE_FLAGS, start_of_row!(),
    two_blocks!(concat!(
        block_of_codes!("ldmia r0!, {{r3, r4, r5, r8, r9, r10}}\nvmov s5, r4\n", "smlad" ", r3", "2"),
        "ldrh r6, [r1], #22\n",
        "ldrh r11, [r2], #22\n",
        "vmov s6, s7, r6, r11\n",
        add!("b", "s6", "s7", "s5", ", #8"),
    )),
}
kernel! {
    two_rows_of_q5_1 of BYTE_FLAGS, start_of_row!(),
    two_blocks!(concat!(
        block_of_codes!("vldmia r0!, {{s4-s5}}\nldmia r0!, {{r5, r8, r9, r10}}\n", "smuad" "", "4"),
        "ldr r6, [r1], #24\n",
        "ldr r11, [r2], #24\n",
        add_with_minimums!(),
    )),
}
