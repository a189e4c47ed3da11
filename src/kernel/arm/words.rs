//! Products of the block formats without minimums by SMLAD, which adds two products of 16 bits in one instruction.
//!
//! [`Format::unpack`] runs over [`Word`], whose vector is one word: four codes of a chunk. Four codes become two pairs
//! of i16 without separating all bytes: as i16, half of a word is `256 * odd + even`. It is multiplied with the odd
//! quant, and the even code is multiplied with `256 * even quant - odd quant`. Together these products are 256 times
//! the true products.

use core::arch::asm;
use core::array;
use core::mem::MaybeUninit;

use super::pairs::spread;
use super::word::{Field, Word, in_register, of_two};
use crate::kernel::Job;
use crate::kernel::job::Row;
use crate::kernel::scalar::{Here, Unit};
use crate::quant::{Format, TensorType, bytes_at};

/// Activations that are prepared at once, for all rows.
const SPAN: usize = 256;
/// Words of codes in half of a chunk.
const HALF: usize = 4;

/// `sum` plus the products of two pairs of i16.
#[inline(always)]
fn smlad(a: u32, b: u32, mut sum: i32) -> i32 {
    // SAFETY: uses registers only.
    unsafe {
        asm!(
            "smlad {sum}, {a}, {b}, {sum}",
            sum = inlateout(reg) sum,
            a = in(reg) a,
            b = in(reg) b,
            options(nomem, nostack), // not `pure`: the compiler would compute several sums at once, and spill registers
        );
    }
    sum
}

/// Reads two words, and moves the pointer on.
///
/// # Safety
///
/// `at` points to two words, aligned to four bytes.
#[inline(always)]
unsafe fn two(at: &mut *const u32) -> [u32; 2] {
    let (a, b);
    // SAFETY: reads these words.
    unsafe {
        asm!(
            "ldrd {a}, {b}, [{at}], #8",
            at = inout(reg) *at,
            a = out(reg) a,
            b = out(reg) b,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    [a, b]
}

/// Returns `acc + factor * scale * sum / 2^fraction` for each of two rows, rounded like the reference. `fraction` is 0
/// or 8. The factors are f16, or the bits of f32.
#[inline(always)]
fn add_two_scaled(f16: bool, factors: [u32; 2], scale: f32, sums: [i32; 2], fraction: u32, acc: [f32; 2]) -> [f32; 2] {
    let [mut a, mut b] = acc.map(f32::to_bits);
    // SAFETY: uses registers only.
    unsafe {
        macro_rules! scaled {
            ($($convert:literal)*) => {
                asm!(
                    "vmov s0, s1, {factor_a}, {factor_b}",
                    "vmov s2, s3, {sum_a}, {sum_b}",
                    "vmov s4, s5, {a}, {b}",
                    "vmov s6, {scale}",
                    $($convert,)*
                    "vmul.f32 s0, s0, s6",
                    "vmul.f32 s1, s1, s6",
                    "vfma.f32 s4, s0, s2",
                    "vfma.f32 s5, s1, s3",
                    "vmov {a}, {b}, s4, s5",
                    factor_a = in(reg) factors[0],
                    factor_b = in(reg) factors[1],
                    sum_a = in(reg) sums[0],
                    sum_b = in(reg) sums[1],
                    scale = in(reg) scale.to_bits(),
                    a = inout(reg) a,
                    b = inout(reg) b,
                    out("s0") _, out("s1") _, out("s2") _, out("s3") _, out("s4") _, out("s5") _, out("s6") _,
                    options(pure, nomem, nostack, preserves_flags),
                )
            };
        }
        match (f16, fraction) {
            (false, 0) => scaled!("vcvt.f32.s32 s2, s2" "vcvt.f32.s32 s3, s3"),
            (false, _) => scaled!("vcvt.f32.s32 s2, s2, #8" "vcvt.f32.s32 s3, s3, #8"),
            (true, 0) => scaled!(
                "vcvtb.f32.f16 s0, s0" "vcvtb.f32.f16 s1, s1" "vcvt.f32.s32 s2, s2" "vcvt.f32.s32 s3, s3"
            ),
            (true, _) => scaled!(
                "vcvtb.f32.f16 s0, s0" "vcvtb.f32.f16 s1, s1" "vcvt.f32.s32 s2, s2, #8" "vcvt.f32.s32 s3, s3, #8"
            ),
        }
    }
    [a, b].map(f32::from_bits)
}

/// The order in which the codes of a chunk are multiplied.
#[derive(Clone, Copy)]
enum Order {
    /// Words of four codes, as [`Format::unpack`] returns them.
    Words,
    /// Codes of this many bits, packed without gaps in the order of the weights. They begin at byte 2 of the block.
    Fields(usize),
    /// Each byte stores several codes as a fraction in base 3, as in TQ1_0: see [`sums_of_fractions`].
    Fractions,
}

/// The runs of bytes of a block of [`Order::Fractions`]: for each run, the number of its words, and the number of
/// digits in each of its bytes. The first weights of a run are the first digits of all its bytes, the next weights are
/// the second digits, and so on.
const FRACTIONS: [(usize, usize); 3] = [(8, 5), (4, 5), (1, 4)];
/// Words of a block, and most digits of a byte.
const FRACTION_WORDS: usize = 13;
const DIGITS: usize = 5;

/// How the codes of a format are multiplied.
trait Layout: Format {
    const ORDER: Order = match Self::KIND {
        TensorType::Q1_0 => Order::Fields(1),
        TensorType::Q2_0 => Order::Fields(2),
        TensorType::TQ1_0 => Order::Fractions,
        _ => Order::Words,
    };
    /// Number of groups of 16 weights that are unpacked together, because their codes are in the same bytes. These
    /// groups are halves of several chunks. In blocks of fewer than 256 weights, they are the two halves of a chunk.
    const TOGETHER: usize = match Self::KIND {
        TensorType::Q2_0 => 1, // each half has its own word
        _ if Self::ELEMENTS < SPAN => 2,
        _ => 4,
    };
    /// True if a block of 256 weights has only one scale, so that all products of a block can be added to one sum.
    const ONE_SCALE: bool = matches!(Self::KIND, TensorType::TQ1_0 | TensorType::TQ2_0);
    /// Number of rows that are multiplied together. (The registers cannot hold the sums of more rows.)
    const ROWS: usize = match Self::KIND {
        _ if Self::ONE_SCALE || Self::TOGETHER <= 2 => 2,
        _ => 1,
    };
    /// Number of words that a chunk has in a unit. They contain the codes of a group of 32 or of 16 weights.
    const WORDS: usize = if Self::ELEMENTS == SPAN && Self::GROUP == 32 && !Self::ONE_SCALE { 8 } else { 4 };
    /// Sums of a unit.
    const SUMS: usize = match Self::ELEMENTS {
        SPAN if Self::ONE_SCALE => 1,
        SPAN => Self::TOGETHER,
        _ if Self::FLOAT_GROUPS => 2,
        _ => 1,
    };
    /// Sums are multiplied by 2 to the power of this.
    const FRACTION: u32 = if matches!(Self::ORDER, Order::Words) && Self::MAX < 128 { 8 } else { 0 };
}
impl<F: Format> Layout for F {}

/// Returns pair `i` of a half of a chunk, as two weights or two codes in one word, for any order but [`Order::Words`].
#[inline(always)]
fn pair<F: Layout>(block: &F::Block, chunk: usize, half: usize, i: usize) -> u32 {
    let bytes = block.as_ref();
    match F::ORDER {
        Order::Fields(1) => {
            let bit = 8 * half + i; // its code is 0 or 2
            Field { x: word_at(bytes, 2 + 4 * chunk), mask: 0x1_0001 << bit, left: 1 - bit as i32 }.value()
        }
        Order::Fields(_) => {
            Field { x: word_at(bytes, 2 + 8 * chunk + 4 * half), mask: 0x3_0003 << (2 * i), left: -2 * i as i32 }
                .value()
        }
        Order::Words | Order::Fractions => 0,
    }
}

#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes_at(bytes, at))
}

/// The activations of a span, prepared once in the order in which the kernels read them for each row.
struct Spread {
    /// The words of each unit, which is the groups that are unpacked together: first the start values of the unit's
    /// sums, then the pairs of activations for each word of each group.
    words: [MaybeUninit<u32>; SPAN / 2 + SPAN / 16],
    scales: [f32; SPAN / 32],
}

impl Spread {
    #[inline(always)]
    fn new<F: Layout>(x: Row<'_>, at: usize) -> Self {
        let q = x.q.get(at..).unwrap_or(&[]);
        let x_sums = x.sums.get(at / 16..).unwrap_or(&[]);
        let mut words = [MaybeUninit::uninit(); SPAN / 2 + SPAN / 16];
        let order = match F::ORDER {
            Order::Words | Order::Fractions => (0, i32::from(F::BIAS) << F::FRACTION, F::FRACTION),
            Order::Fields(bits) => (16 / bits, i32::from(F::BIAS), 0),
        };
        let apart = if F::ELEMENTS < SPAN { 1 } else { 2 };
        if matches!(F::ORDER, Order::Fractions) {
            spread_fractions(q, x_sums, &mut words);
        } else {
            spread_all(q, x_sums, (F::TOGETHER, apart, F::WORDS), (F::SUMS, order), &mut words);
        }
        let (mut scales, first) = ([0.0; SPAN / 32], if F::ELEMENTS == SPAN { at / SPAN } else { at / 32 });
        scales.iter_mut().zip(x.d.get(first..).unwrap_or(&[])).for_each(|(to, d)| *to = *d);
        Self { words, scales }
    }
}

/// Writes [`Spread::words`] for units of `together` groups of 16, `apart` groups from each other, with `starts` sums:
/// 1, or one for each group. The quants of a pair are `distance` apart; with a distance of 0, the pairs are for words
/// of codes. (The function is not generic, so that an image has one copy.)
#[inline(never)]
fn spread_all(
    q: &[i8],
    sums: &[i16],
    (together, apart, in_chunk): (usize, usize, usize),
    (starts, (distance, bias, fraction)): (usize, (usize, i32, u32)),
    words: &mut [MaybeUninit<u32>],
) {
    let mut to = words.iter_mut();
    let mut push = |word: u32| {
        if let Some(to) = to.next() {
            to.write(word);
        }
    };
    let groups = q.len().min(SPAN) / 16;
    // If there is no fraction, the words of codes are separated into even and odd codes, so that the first pair is the
    // even quants. Otherwise the first pair is the even quants times `2^fraction`, minus the odd quants.
    let (even_bits, odd_bits) = if fraction == 0 { (u32::MAX, 0) } else { (0x00ff_00ff, u32::MAX) };
    for first in (0..groups).step_by((together * apart).max(1)) {
        for first in (first..first + apart).step_by((in_chunk / HALF).max(1)) {
            let unit = (0..together).map(|k| first + k * apart);
            let start = |group| {
                let sums = sums.iter().skip(group).take(in_chunk / HALF);
                -bias * sums.map(|sum| i32::from(*sum)).sum::<i32>()
            };
            if starts == 1 {
                push(unit.clone().map(start).sum::<i32>() as u32);
            } else {
                unit.clone().for_each(|group| push(start(group) as u32));
            }
            for word in 0..in_chunk {
                for group in unit.clone() {
                    let (group, word) = (group + word / HALF, word % HALF);
                    if distance == 0 {
                        let four = q.as_chunks().0.get(HALF * group + word).copied().unwrap_or_default();
                        let [even, odd] = spread(u32::from_le_bytes(four.map(|q: i8| q as u8)));
                        push(of_two!("ssub16", (even & even_bits) << fraction, odd & odd_bits));
                        push(odd);
                    } else {
                        let group = if distance < 16 { 16 * group } else { 32 * (group / 2) + 8 * (group % 2) };
                        let at = |i: usize| u32::from(q.get(i).copied().unwrap_or(0) as u16);
                        let first = group + 2 * word;
                        push(at(first) | at(first + distance) << 16);
                        push(at(first + 1) | at(first + 1 + distance) << 16);
                    }
                }
            }
        }
    }
}

/// Writes [`Spread::words`] in the order in which [`sums_of_fractions`] reads them. First comes the start value of a
/// row's sum. Then come, for each word of four bytes and for each of its [`DIGITS`] digits, the pair for bytes 0 and 2
/// and the pair for bytes 1 and 3.
#[inline(never)]
fn spread_fractions(q: &[i8], sums: &[i16], words: &mut [MaybeUninit<u32>]) {
    let mut to = words.iter_mut();
    let mut push = |word: u32| {
        if let Some(to) = to.next() {
            to.write(word);
        }
    };
    // The weights are the digits minus 1.
    push(-sums.iter().take(SPAN / 16).map(|sum| i32::from(*sum)).sum::<i32>() as u32);
    let mut run = 0;
    for (count, digits) in FRACTIONS {
        let apart = 4 * count;
        for (word, digit) in (0..count).flat_map(|word| (0..DIGITS).map(move |digit| (word, digit))) {
            let factor = |byte: usize| {
                let at = |digit: usize| {
                    let x = q.get(run + digit * apart + 4 * word + byte).filter(|_| digit < digits);
                    i32::from(x.copied().unwrap_or(0))
                };
                (at(digit) - 3 * at(digit + 1)) as u32
            };
            push(factor(0) & 0xffff | factor(2) << 16);
            push(factor(1) & 0xffff | factor(3) << 16);
        }
        run += apart * digits;
    }
}

/// Bits 8 to 15 of each half of a word.
#[inline(always)]
fn high_bytes(x: u32) -> u32 {
    let out: u32;
    // SAFETY: uses registers only.
    unsafe {
        asm!("uxtb16 {}, {}, ror #8", lateout(reg) out, in(reg) x, options(pure, nomem, nostack, preserves_flags))
    };
    out
}

/// For each row, the sum of all products of one block, in a format with [`Order::Fractions`].
///
/// Let `s_k` be the whole part of `byte * 3^k / 256`. Then digit `k` of the byte, counted from 0, is `s_(k+1) - 3 s_k`,
/// and the sum of `digit_k * x_k` is the sum of `s_k * (x_(k-1) - 3 x_k)` from `k = 1` on, without the second part for
/// the last digit. `byte * 3^5` is less than 2^16, so `s_k` is the high byte of a half of a word. A digit that a byte
/// does not have is multiplied by 0.
///
/// # Safety
///
/// `words` points to the words of a span.
#[inline(always)]
unsafe fn sums_of_fractions<F: Layout, const R: usize>(blocks: [&F::Block; R], mut words: *const u32) -> [i32; R] {
    // SAFETY: the caller promises these words.
    let mut sums = [unsafe { words.read() } as i32; R];
    words = words.wrapping_add(1);
    for word in 0..FRACTION_WORDS {
        let mut thirds = blocks.map(|block| {
            let four = word_at(block.as_ref(), 4 * word);
            [four & 0x00ff_00ff, high_bytes(four)]
        });
        macro_rules! digits {
            ($($digit:literal)*) => { $({
                const { assert!($digit < DIGITS) };
                // SAFETY: as above.
                let [a, b] = unsafe { two(&mut words) };
                for ([even, odd], sum) in thirds.iter_mut().zip(&mut sums) {
                    // The values are passed through registers. Otherwise the compiler would replace the repeated
                    // multiplications by 3 by multiplications by 27, 81 and 243.
                    (*even, *odd) = (in_register(*even * 3), in_register(*odd * 3));
                    *sum = smlad(high_bytes(*even), a, *sum);
                    *sum = smlad(high_bytes(*odd), b, *sum);
                }
            })* };
        }
        digits!(0 1 2 3 4);
    }
    sums
}

/// Computes the integer sums of one unit for each of `R` rows. In a block of 256, sum `k` is over chunk `first + k`, of
/// all `K` chunks or only of their half `half`. In smaller blocks, the two sums are over the two halves of a chunk.
/// Moves `words` past the activations of this unit.
///
/// # Safety
///
/// `words` points to the words of this unit.
#[inline(always)]
unsafe fn unit<F: Layout, const K: usize, const S: usize, const R: usize>(
    blocks: [&F::Block; R],
    first: usize,
    half: usize,
    words: &mut *const u32,
) -> [[i32; S]; R] {
    let mut sums = [[0; S]; R];
    // SAFETY: the caller promises these words.
    unsafe {
        for k in 0..S {
            let start = words.add(k).read() as i32;
            sums.iter_mut().for_each(|sums| sums[k] = start);
        }
        *words = words.add(S);
        macro_rules! words {
            ($($word:literal)*) => { $(
                for k in 0..K {
                    let (chunk, half) = if F::ELEMENTS < SPAN { (first, half + k) } else { (first + k, half + $word / HALF) };
                    let [a, b] = two(words);
                    for (sums, block) in sums.iter_mut().zip(blocks) {
                        let sum = &mut sums[k % S];
                        let (first, second) = if matches!(F::ORDER, Order::Words) {
                            let codes = F::unpack(Word(HALF * half + $word % HALF), block, chunk).value();
                            let odd = if F::FRACTION == 0 { codes >> 8 & 0x00ff_00ff } else { codes };
                            (codes & 0x00ff_00ff, odd)
                        } else {
                            let at = |i| pair::<F>(block, chunk, half, i);
                            (at($word % HALF * 2), at($word % HALF * 2 + 1))
                        };
                        *sum = smlad(first, a, *sum);
                        *sum = smlad(second, b, *sum);
                    }
                }
            )* };
        }
        words!(0 1 2 3);
        if F::WORDS == 8 {
            words!(4 5 6 7);
        }
    }
    sums
}

/// The integer dot product of a block of 256 weights with a token, for each of `R` rows. Each group's sum of products
/// is multiplied by the group's scale.
///
/// # Safety
///
/// `words` points to the words of a span.
#[inline(always)]
unsafe fn sums_of_block<F: Layout, const K: usize, const S: usize, const R: usize>(
    blocks: [&F::Block; R],
    mut words: *const u32,
) -> [i32; R] {
    let scales = blocks.map(F::scales);
    let mut totals = [0; R];
    macro_rules! parts {
        ($($first:literal)*) => { $(
            if $first % K == 0 {
                parts!($first: 0 1);
            }
        )* };
        ($first:literal: $($half:literal)*) => { $(if $half == 0 || F::WORDS == HALF {
            // SAFETY: the caller promises the words of eight chunks.
            let sums = unsafe { unit::<F, K, S, R>(blocks, $first, $half, &mut words) };
            for ((total, sums), scales) in totals.iter_mut().zip(sums).zip(scales) {
                for (k, sum) in sums.into_iter().enumerate() {
                    let group = if F::GROUP == 16 { 2 * ($first + k) + $half } else { $first + k };
                    let scale = if F::ONE_SCALE { 1 } else { i32::from(scales[group % 16]) };
                    *total += (sum >> F::FRACTION) * scale;
                }
            }
        })* };
    }
    parts!(0 1 2 3 4 5 6 7);
    totals
}

/// Adds the sums of `R` rows to `acc` as floats: `sum / 2^fraction`, times the scale of the activations and the factor
/// of the row's block.
#[inline(always)]
fn add_scaled<F: Layout, const R: usize>(
    blocks: [&F::Block; R],
    place: usize,
    sums: [i32; R],
    (scale, fraction): (f32, u32),
    acc: &mut [f32; R],
) {
    let d = [0, 1].map(|r| match F::D {
        Some((at, _)) => u32::from(u16::from_le_bytes(*bytes_at(blocks[r % R].as_ref(), at))),
        None => F::d(blocks[r % R], 32 * place, Here::le_f16).to_bits(),
    });
    let (sums, old) = ([sums[0], sums[1 % R]], [acc[0], acc[1 % R]]);
    let both = add_two_scaled(F::D.is_some(), d, scale, sums, fraction, old);
    acc.iter_mut().zip(both).for_each(|(acc, sum)| *acc = sum);
}

/// Adds the products of the rows' blocks in a span to `acc`.
///
/// # Safety
///
/// Each row has the blocks of a span of `n` chunks, whose words are in `x`.
#[inline(always)]
unsafe fn add_rows<F: Layout, const R: usize>(
    mut rows: [*const F::Block; R],
    x: &Spread,
    n: usize,
    acc: &mut [f32; R],
) {
    let mut words = x.words.as_ptr().cast::<u32>();
    // SAFETY: the caller promises these blocks and words.
    unsafe {
        if F::ELEMENTS == SPAN {
            let blocks = rows.map(|block| &*block);
            let sums = match (F::TOGETHER, F::SUMS) {
                _ if matches!(F::ORDER, Order::Fractions) => sums_of_fractions::<F, R>(blocks, words),
                (1, _) => sums_of_block::<F, 1, 1, R>(blocks, words),
                (2, _) => sums_of_block::<F, 2, 2, R>(blocks, words),
                (_, 1) => sums_of_block::<F, 4, 1, R>(blocks, words),
                _ => sums_of_block::<F, 4, 4, R>(blocks, words),
            };
            if F::ONE_SCALE {
                return add_scaled::<F, R>(blocks, 0, sums, (x.scales[0], 0), acc);
            }
            for ((block, sum), acc) in blocks.into_iter().zip(sums).zip(acc) {
                *acc = Here::fma(F::d(block, 0, Here::le_f16) * x.scales[0], sum as f32, *acc);
            }
            return;
        }
        for chunk in 0..n {
            let place = chunk % (F::ELEMENTS / 32);
            let blocks = rows.map(|block| &*block);
            let scale = *x.scales.get_unchecked(chunk);
            if F::FLOAT_GROUPS {
                let sums = unit::<F, 2, 2, R>(blocks, place, 0, &mut words);
                for ((block, sums), acc) in blocks.into_iter().zip(sums).zip(acc.iter_mut()) {
                    for (i, sum) in sums.into_iter().enumerate() {
                        let d = F::d(block, 32 * place + 16 * i, Here::le_f16);
                        *acc = Here::fma(d * scale, (sum >> F::FRACTION) as f32, *acc);
                    }
                }
            } else {
                let sums = if F::TOGETHER == 1 {
                    let first = unit::<F, 1, 1, R>(blocks, place, 0, &mut words);
                    let second = unit::<F, 1, 1, R>(blocks, place, 1, &mut words);
                    array::from_fn(|r| first[r][0] + second[r][0])
                } else {
                    unit::<F, 2, 1, R>(blocks, place, 0, &mut words).map(|[sum]| sum)
                };
                add_scaled::<F, R>(blocks, place, sums, (scale, F::FRACTION), acc);
            }
            if place + 1 == F::ELEMENTS / 32 {
                rows = rows.map(|block| block.add(1));
            }
        }
    }
}

/// Multiplies all rows with all tokens, span by span. After each span, the output holds the sums so far.
///
/// # Safety
///
/// `job` satisfies the promises of [`Job`].
#[inline(never)]
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>) {
    // Formats with minimums have other kernels.
    const { assert!(F::M.is_none() || super::dsp::has::<F>() || super::groups::has::<F>()) };
    let row_bytes = job.w.len() / job.rows.max(1);
    for t in 0..job.x.tokens {
        let x = job.x.row(t);
        for at in (0..job.cols).step_by(SPAN) {
            let spread = Spread::new::<F>(x, at);
            let n = (job.cols - at).min(SPAN) / 32;
            // SAFETY: the job has these rows, each with as many blocks as the token, and an output for each row.
            unsafe {
                let w = job.w.as_ptr().add(at / F::ELEMENTS * size_of::<F::Block>());
                let out = job.out.add(t * job.stride);
                for r in (0..job.rows).step_by(F::ROWS) {
                    if F::ROWS == 2 {
                        // An odd last row is used as both of the two rows.
                        let both = [r, (r + 1).min(job.rows - 1)];
                        let mut acc = if at == 0 { [0.0; 2] } else { both.map(|r| *out.add(r)) };
                        add_rows::<F, 2>(both.map(|r| w.add(r * row_bytes).cast()), &spread, n, &mut acc);
                        both.into_iter().zip(acc).for_each(|(r, acc)| *out.add(r) = acc);
                    } else {
                        let mut acc = if at == 0 { [0.0] } else { [*out.add(r)] };
                        add_rows::<F, 1>([w.add(r * row_bytes).cast()], &spread, n, &mut acc);
                        *out.add(r) = acc[0];
                    }
                }
            }
        }
    }
}
