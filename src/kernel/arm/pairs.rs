//! Quants and weights as pairs of i16, the operands of SMLAD.

use core::arch::asm;

/// Extends four bytes to i16. The first word of the result has bytes 0 and 2, the second word has bytes 1 and 3.
#[inline(always)]
pub(super) fn spread(four: u32) -> [u32; 2] {
    let (even, odd);
    // SAFETY: uses registers only.
    unsafe {
        asm!(
            "sxtb16 {even}, {four}",
            "sxtb16 {odd}, {four}, ror #8",
            even = out(reg) even,
            odd = out(reg) odd,
            four = in(reg) four,
            options(pure, nomem, nostack),
        );
    }
    [even, odd]
}

/// The quants that a word of nibbles is multiplied with: four (`low`) for the low halves of the word's bytes, four
/// (`high`) for the high halves. Nibbles are multiplied at their bit position in the word, except that the high halves
/// of odd bytes are shifted to the position of the low halves. The quants are scaled to compensate for the position, so
/// that every product is 256 times the true product.
#[inline(always)]
pub(super) fn of_nibbles(low: u32, high: u32) -> [u32; 4] {
    let ([even, odd], [high_even, high_odd]) = (spread(low), spread(high));
    [(even & 0x00ff_00ff) << 8, odd, (high_even & 0x0fff_0fff) << 4, high_odd]
}

/// The quants that two words of codes are multiplied with. As pairs of i16, a word of codes is `256 * odd + even`. It
/// is multiplied with the odd quants, and its even codes with `256 * even - odd`. Every product is 256 times the true
/// product.
#[inline(always)]
pub(super) fn of_codes(low: u32, high: u32) -> [u32; 4] {
    let ([a, b], [c, d]) = (of_code(low), of_code(high));
    [a, b, c, d]
}

/// The pairs of activations for one word of codes, as described at [`of_codes`].
#[inline(always)]
pub(super) fn of_code(quants: u32) -> [u32; 2] {
    let [even, odd] = spread(quants);
    let out;
    // SAFETY: uses registers only.
    unsafe {
        asm!(
            "ssub16 {out}, {even}, {odd}",
            out = lateout(reg) out,
            even = in(reg) (even & 0x00ff_00ff) << 8,
            odd = in(reg) odd,
            options(pure, nomem, nostack),
        );
    }
    [out, odd]
}

/// Arranges the quants that a word of indices is multiplied with. For each byte of the word, there is a quant of `low`,
/// then a quant of `high`.
#[inline(always)]
pub(super) fn of_indices(low: u32, high: u32) -> [u32; 4] {
    let ([even, odd], [high_even, high_odd]) = (spread(low), spread(high));
    let [first, third] = [even & 0xffff | high_even << 16, even >> 16 | high_even & 0xffff_0000];
    [first, odd & 0xffff | high_odd << 16, third, odd >> 16 | high_odd & 0xffff_0000]
}

/// Makes a table with a pair of weights for every value of a byte. The two halves of the byte are indices into `codes`:
/// the low half gives the first weight of the pair, and the high half the second.
pub(super) const fn table(codes: &[u8; 16], bias: u8) -> [u32; 256] {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let [low, high] = [codes[byte % 16] as i32 - bias as i32, codes[byte / 16] as i32 - bias as i32];
        table[byte] = low as u32 & 0xffff | (high as u32) << 16;
        byte += 1;
    }
    table
}

/// A table that spreads four bits to the bytes of a word. Byte `i` of the word is 16 if bit `i` of the index is set,
/// and 0 otherwise.
pub(super) static FLAGS: [u32; 16] = {
    let (mut flags, mut i) = ([0; 16], 0);
    while i < 16 {
        flags[i] = ((i as u32 * (1 | 1 << 7 | 1 << 14 | 1 << 21)) & 0x0101_0101) << 4;
        i += 1;
    }
    flags
};

/// For every byte, two words: the entry of [`FLAGS`] for the byte's low half, and the entry for its high half.
pub(super) static BYTE_FLAGS: [[u32; 2]; 256] = {
    let (mut flags, mut byte) = ([[0; 2]; 256], 0);
    while byte < 256 {
        flags[byte] = [FLAGS[byte % 16], FLAGS[byte / 16]];
        byte += 1;
    }
    flags
};
