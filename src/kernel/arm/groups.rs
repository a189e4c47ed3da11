//! Blocks of 256 weights whose groups have scales (Q2_K, Q3_K, Q5_K, Q6_K, IQ4_XS), by SMLAD.
//!
//! A loop runs over the words of four chunks, whose sums are in registers. A word of codes is put together from low and
//! high bits, and multiplied as in `words.rs`. Blocks of IQ4_XS are multiplied like blocks of IQ4_NL in `dsp.rs`.

use core::arch::asm;

use super::dsp::{OF_IQ4_NL, clear, indices};
use super::pairs::{of_code, of_indices};
use crate::kernel::Job;
use crate::quant::{Format, TensorType};

/// The order in which the codes of a block are multiplied.
enum Order {
    /// The groups have 16 weights. The four numbers select the words of each of four chunks, in the order in which they
    /// are multiplied. The first groups of all chunks come first, then the second groups.
    Groups([usize; 4]),
    /// A group is the 32 weights of a chunk. The words of four chunks are multiplied in turn: one word of each chunk,
    /// then the next word of each.
    Chunks,
    /// Bytes of two indices each.
    Indices,
}

const fn order(kind: TensorType) -> Option<Order> {
    match kind {
        TensorType::Q2_K | TensorType::Q3_K | TensorType::Q6_K => Some(Order::Groups([0, 2, 1, 3])),
        TensorType::Q5_K => Some(Order::Chunks),
        TensorType::IQ4_XS => Some(Order::Indices),
        _ => None,
    }
}

/// True if this module has a kernel for the format.
pub(super) const fn has<F: Format>() -> bool {
    order(F::KIND).is_some()
}

/// A block of a token's activations, rearranged once in the order in which all rows are multiplied with them.
struct Token {
    /// The activations for each unit, which is a group of each of four chunks: the start values of the four sums, then
    /// pairs of quants in the order in which the codes are multiplied. All products have the factor 256. After the last
    /// unit come the sums of all groups as pairs of i16: groups 0 and 2, 1 and 3, and so on. For [`Order::Indices`],
    /// there are only the pairs of quants for each byte of indices.
    words: [u32; 4 * (4 + 32) + 8],
}

impl Token {
    /// Not generic, so that an image has one copy.
    #[inline(never)]
    fn write(&mut self, q: &[i8; 256], sums: &[i16; 16], order: &Order, bias: u8) {
        let words: &[u32; 64] = &bytemuck::cast(*q);
        let mut to = self.words.iter_mut();
        let (wide, chunks) = match order {
            Order::Groups(chunks) => (false, *chunks),
            Order::Chunks => (true, [0, 1, 2, 3]),
            Order::Indices => {
                for ([a, b, c, d, e, f, g, h], to) in words.as_chunks().0.iter().zip(self.words.as_chunks_mut::<16>().0)
                {
                    let quants = [(a, e), (b, f), (c, g), (d, h)].map(|(low, high)| of_indices(*low, *high));
                    *to = bytemuck::must_cast(quants);
                }
                return;
            }
        };
        for unit in 0..4 {
            let (half, group) = if wide { (unit / 2, unit % 2) } else { (unit % 2, unit / 2) };
            if !wide || group == 0 {
                for (sums, to) in sums.as_chunks::<2>().0.iter().skip(4 * half).take(4).zip(&mut to) {
                    *to = (-256 * i32::from(bias) * i32::from(sums[group])) as u32;
                }
            }
            for word in 32 * half + 4 * group..32 * half + 4 * group + 4 {
                for chunk in chunks {
                    push(&mut to, of_code(words[(word + 8 * chunk) % 64]));
                }
            }
        }
        let pairs = |[a, b, c, d]: [i16; 4]| {
            let [a, b, c, d] = [a, b, c, d].map(|sum| u32::from(sum as u16));
            [a | c << 16, b | d << 16]
        };
        if wide {
            let groups: &[[[i16; 2]; 4]; 2] = bytemuck::must_cast_ref(sums);
            groups.iter().for_each(|four| push(&mut to, pairs(four.map(|[a, b]| a + b))));
        } else {
            sums.as_chunks().0.iter().for_each(|four| push(&mut to, pairs(*four)));
        }
    }
}

fn push<'a>(to: &mut impl Iterator<Item = &'a mut u32>, pair: [u32; 2]) {
    pair.into_iter().zip(to).for_each(|(word, to)| *to = word);
}

/// Multiplies all rows with all tokens, block by block. After each block, the output holds the sums so far.
///
/// # Safety
///
/// There is a kernel for `F` (see [`has`]), and `job` satisfies the promises of [`Job`].
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>) {
    let (Some(order), true) = (const { &order(F::KIND) }, job.rows > 0) else { return };
    let rows = match F::KIND {
        TensorType::IQ4_XS => rows_of_iq4_xs,
        TensorType::Q2_K => rows_of_q2_k,
        TensorType::Q3_K => rows_of_q3_k,
        TensorType::Q5_K => rows_of_q5_k,
        _ => rows_of_q6_k,
    };
    let row_bytes = job.w.len() / job.rows;
    let mut token = Token { words: [0; _] };
    for t in 0..job.x.tokens {
        let x = job.x.row(t);
        let blocks = x.q.as_chunks::<256>().0.iter().zip(x.d).zip(x.sums.as_chunks::<16>().0);
        for (number, ((q, &scale), sums)) in blocks.enumerate() {
            token.write(q, sums, order, F::BIAS);
            // SAFETY: the job has these rows, each with as many blocks as the token, and an output for each row.
            unsafe {
                let out = job.out.add(t * job.stride);
                if number == 0 {
                    clear(out, job.rows);
                }
                let w = job.w.as_ptr().add(number * size_of::<F::Block>());
                rows(&token, w, row_bytes, out, out.add(job.rows), scale);
            }
        }
    }
}

/// Assembly that joins the low and high bits of four codes of a chunk, in r12. `$low` selects the low bits: r2 and a
/// mask, or a register with the mask and a shift of r2. `$high` is the mask of the high bits in r7, which are then
/// shifted by `$shift`. r8 is overwritten.
macro_rules! codes {
    ($low:literal, $high:literal $shift:literal) => {
        concat!("and r12, ", $low, "\n", "and r8, r7, #", $high, "\n", "orr r12, r12, r8, ", $shift, "\n")
    };
}

/// Multiplies four codes with two pairs of quants.
macro_rules! products {
    ($sum:literal, $even:literal $odd:literal) => {
        concat!(
            "smlad ",
            $sum,
            ", r12, ",
            $odd,
            ", ",
            $sum,
            "\n",
            "uxtb16 r12, r12\n",
            "smlad ",
            $sum,
            ", r12, ",
            $even,
            ", ",
            $sum,
            "\n",
        )
    };
}

/// Loads four pairs of quants.
macro_rules! quants {
    () => {
        "ldmia r0!, {{r8, r9, r10, r11}}\n"
    };
}

/// Assembly that joins the low and high bits of codes, for four codes of each of two chunks, and multiplies the codes
/// by the activations.
macro_rules! two {
    ($a:literal, $high_a:literal $shift_a:literal, $sum_a:literal; $b:literal, $high_b:literal $shift_b:literal, $sum_b:literal) => {
        concat!(
            codes!($a, $high_a $shift_a),
            quants!(),
            products!($sum_a, "r8" "r9"),
            codes!($b, $high_b $shift_b),
            products!($sum_b, "r10" "r11"),
        )
    };
}

/// Runs code for the words at offsets 0, 4, 8 and 12.
macro_rules! words {
    ($word:ident $($argument:literal)*) => {
        concat!($word!("0" $($argument)*), $word!("4" $($argument)*), $word!("8" $($argument)*), $word!("12" $($argument)*))
    };
}

/// Assembly that loads the total to r7, the pointer to the scales to r10, and two words of scales to r8 and r9. Two of
/// the four bytes in a word become the high bytes of i16.
macro_rules! scales {
    ($first:literal, $second:literal) => {
        concat!(
            "vmov r7, r10, s0, s1\n",
            "ldr r8, [r10, #",
            $first,
            "]\n",
            "ldr r9, [r10, #",
            $second,
            "]\n",
            "and r8, r8, #0xff00ff00\n",
            "and r9, r9, #0xff00ff00\n",
        )
    };
}

/// Multiplies the sums of two groups by their scales, which are in a register, and adds them to the total. (The sum and
/// the scale each have the factor 256. SMLAW drops the low 16 bits of a product, which removes both factors.)
macro_rules! scaled {
    ($bottom:literal $top:literal, $scales:literal) => {
        concat!("smlawb r7, ", $bottom, ", ", $scales, ", r7\n", "smlawt r7, ", $top, ", ", $scales, ", r7\n")
    };
}

/// Defines a function that processes rows one by one. `$scales` unpacks the scales, for which there is room at sp + 20,
/// and sets r7 to the byte before them. `$products` leaves the row's total in s0 and moves r1 by `$moved`. `$finish`
/// adds the total to the output in s2. s6 has the factor of the activations, and lr has `$lr`.
macro_rules! rows {
    ($name:ident, $lr:expr, $moved:literal, $scales:expr, $products:expr, $finish:expr) => {
        /// # Safety
        ///
        /// There is a block for each float between `out` and `out_end`. The first block is at `w`, and the blocks are
        /// `step` bytes apart.
        #[inline(never)]
        unsafe fn $name(token: &Token, w: *const u8, step: usize, out: *mut f32, out_end: *const f32, scale: f32) {
            // SAFETY: reads the blocks and the token, and writes the outputs. r6 and r7, which cannot be operands, are saved on
            // the stack and restored.
            unsafe {
                asm!(
                    "push {{r6, r7}}",
                    "sub sp, #24",
                    "push {{r0, r2, r3, r4}}",
                    "vmov s6, r5",
                    "2:",
                    $scales,
                    "mov r8, #0",
                    "vmov s0, s1, r8, r7",
                    $products,
                    "ldmia sp, {{r0, r5, r6, r9}}",
                    "vldr s2, [r6]",
                    $finish,
                    "vstmia r6!, {{s2}}",
                    "add r1, r1, r5",
                    "str r6, [sp, #8]",
                    "cmp r6, r9",
                    "bne 2b",
                    "add sp, #40",
                    "pop {{r6, r7}}",
                    inout("r0") token => _,
                    inout("r1") w => _,
                    inout("r2") step - $moved => _,
                    inout("r3") out => _,
                    inout("r4") out_end => _,
                    inout("r5") scale.to_bits() => _,
                    out("r8") _, out("r9") _, out("r10") _, out("r11") _, out("r12") _, in("lr") $lr,
                    out("s0") _, out("s1") _, out("s2") _, out("s3") _, out("s4") _, out("s5") _, out("s6") _,
                );
            }
        }
    };
}

/// `s2 += f16 * s6 * total`; the f16 is at `$at` from r1.
macro_rules! add {
    ($at:literal) => {
        concat!(
            "ldrh r8, [r1, #",
            $at,
            "]\n",
            "vmov s1, r8\n",
            "vcvt.f32.s32 s0, s0\n",
            "vcvtb.f32.f16 s1, s1\n",
            "vmul.f32 s1, s1, s6\n",
            "vfma.f32 s2, s1, s0\n",
        )
    };
}

/// Assembly that adds a block's product to s2: `s2 += low * s6 * s0 - high * s6 * s1`. `low` and `high` are the f16 in
/// the lower and upper half of r8. s0 has the integer sum of the codes, s1 that of the minimums.
macro_rules! add_with_minimum {
    () => {
        "vmov s3, r8
        vcvt.f32.s32 s0, s0
        vcvt.f32.s32 s1, s1
        vcvtt.f32.f16 s4, s3
        vcvtb.f32.f16 s3, s3
        vmul.f32 s4, s4, s6
        vmul.f32 s3, s3, s6
        vfma.f32 s2, s3, s0
        vfms.f32 s2, s4, s1
        "
    };
}

/// Runs a block's units for the first groups of 16 weights of its chunks, then for the second groups. `$first` and
/// `$second` multiply the two halves of a block.
macro_rules! both_groups {
    ($first:expr, $second:expr) => {
        concat!(
            "cmp r0, r0\n", // the flag "equal" is set for the first groups
            "3:\n",
            "ldmia r0!, {{r3, r4, r5, r6}}\n",
            $first,
            "vmov s0, r7\n",
            "ldmia r0!, {{r3, r4, r5, r6}}\n",
            $second,
            "add r10, r10, #1\n",
            "vmov s0, s1, r7, r10\n",
            "add r1, r1, #16\n",
            "bne 4f\n",
            "cmp r0, #0\n",
            "b 3b\n",
            "4:\n",
        )
    };
}

/// A word of each of four chunks of Q6_K.
macro_rules! q6_k {
    ($word:literal $low:literal $high:literal) => {
        concat!(
            "ldr r7, [r1, #", $high, " + ", $word, "]\n",
            "ldr r2, [r1, #", $low, " + ", $word, "]\n",
            two!("r2, #0x0f0f0f0f", "0x03030303" "lsl #4", "r3"; "lr, r2, lsr #4", "0x30303030" "lsl #0", "r5"),
            "ldr r2, [r1, #32 + ", $low, " + ", $word, "]\n",
            two!("r2, #0x0f0f0f0f", "0x0c0c0c0c" "lsl #2", "r4"; "lr, r2, lsr #4", "0xc0c0c0c0" "lsr #2", "r6"),
        )
    };
}
rows!(
    rows_of_q6_k,
    0x0f0f_0f0f_u32,
    32,
    "add r7, r1, #191",
    both_groups!(
        concat!(words!(q6_k "0" "128"), scales!("0", "4"), scaled!("r3" "r4", "r8"), scaled!("r5" "r6", "r9")),
        concat!(words!(q6_k "64" "160"), scales!("8", "12"), scaled!("r3" "r4", "r8"), scaled!("r5" "r6", "r9"))
    ),
    add!("208 - 32")
);

/// A word of each of four chunks of Q3_K.
macro_rules! q3_k {
    ($word:literal $low:literal $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal $h:literal) => {
        concat!(
            "ldr r7, [r1, #", $word, "]\n",
            "ldr r2, [r1, #", $low, " + ", $word, "]\n",
            two!("r2, #0x03030303", $a $b, "r3"; "lr, r2, lsr #4", $e $f, "r5"),
            two!("lr, r2, lsr #2", $c $d, "r4"; "lr, r2, lsr #6", $g $h, "r6"),
        )
    };
}
rows!(
    rows_of_q3_k,
    0x0303_0303_u32,
    32,
    concat!(
        // Six bits of each scale: see `Q3K::scale_words`.
        "ldr r8, [r1, #96]\n",
        "ldr r9, [r1, #100]\n",
        "ldr r10, [r1, #104]\n",
        "mov r11, #0x20202020\n",
        "and r2, r8, #0x0f0f0f0f\n",
        "and r7, r10, #0x03030303\n",
        "orr r2, r2, r7, lsl #4\n",
        "and r3, r9, #0x0f0f0f0f\n",
        "and r7, r10, #0x0c0c0c0c\n",
        "orr r3, r3, r7, lsl #2\n",
        "and r4, r8, #0xf0f0f0f0\n",
        "and r7, r10, #0x30303030\n",
        "orr r4, r7, r4, lsr #4\n",
        "and r5, r9, #0xf0f0f0f0\n",
        "and r7, r10, #0xc0c0c0c0\n",
        "lsr r5, r5, #4\n",
        "orr r5, r5, r7, lsr #2\n",
        "ssub8 r2, r2, r11\n",
        "ssub8 r3, r3, r11\n",
        "ssub8 r4, r4, r11\n",
        "ssub8 r5, r5, r11\n",
        "add r7, sp, #20\n",
        "stmia r7, {{r2, r3, r4, r5}}\n",
        "sub r7, r7, #1\n",
    ),
    both_groups!(
        concat!(
            words!(q3_k "32" "0x01010101" "lsl #2" "0x02020202" "lsl #1" "0x04040404" "lsl #0" "0x08080808" "lsr #1"),
            scales!("0", "4"),
            scaled!("r3" "r4", "r8"),
            scaled!("r5" "r6", "r9"),
        ),
        concat!(
            words!(q3_k "64" "0x10101010" "lsr #2" "0x20202020" "lsr #3" "0x40404040" "lsr #4" "0x80808080" "lsr #5"),
            scales!("8", "12"),
            scaled!("r3" "r4", "r8"),
            scaled!("r5" "r6", "r9"),
        )
    ),
    add!("108 - 32")
);

/// A word of each of four chunks of Q5_K.
macro_rules! q5_k {
    (
        $word:literal $low:literal $high:literal
        $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal $h:literal
    ) => {
        concat!(
            "ldr r7, [r1, #", $high, " + ", $word, "]\n",
            "ldr r2, [r1, #", $low, " + ", $word, "]\n",
            two!("r2, #0x0f0f0f0f", $a $b, "r3"; "lr, r2, lsr #4", $c $d, "r4"),
            "ldr r2, [r1, #32 + ", $low, " + ", $word, "]\n",
            two!("r2, #0x0f0f0f0f", $e $f, "r5"; "lr, r2, lsr #4", $g $h, "r6"),
        )
    };
}
/// Four chunks of Q5_K.
macro_rules! half_of_q5_k {
    ($first:literal, $second:literal, $($word:literal)*) => {
        concat!(
            "ldmia r0!, {{r3, r4, r5, r6}}\n",
            "cmp r0, r0\n", // the flag "equal" is set for the first 16 weights
            "3:\n",
            words!(q5_k $($word)*),
            "add r1, r1, #16\n",
            "bne 4f\n",
            "cmp r0, #0\n",
            "b 3b\n",
            "4:\n",
            scales!($first, $second),
            scaled!("r3" "r5", "r8"),
            scaled!("r4" "r6", "r9"),
        )
    };
}
rows!(
    rows_of_q5_k,
    0x0f0f_0f0f_u32,
    64,
    concat!(
        // See `q4_k::scales`.
        "ldr r2, [r1, #4]\n",
        "ldr r3, [r1, #12]\n",
        "and r4, r2, #0x3f3f3f3f\n",
        "and r2, r2, #0xc0c0c0c0\n",
        "and r3, r3, lr\n",
        "orr r5, r3, r2, lsr #2\n",
        "strd r4, r5, [sp, #20]\n",
        "add r7, sp, #19\n",
    ),
    concat!(
        half_of_q5_k!("0", "1", "48" "16" "0x01010101" "lsl #4" "0x02020202" "lsl #3" "0x04040404" "lsl #2" "0x08080808" "lsl #1"),
        "vmov s0, r7\n",
        half_of_q5_k!("4", "5", "80" "-16" "0x10101010" "lsl #0" "0x20202020" "lsr #1" "0x40404040" "lsr #2" "0x80808080" "lsr #3"),
        // The minimums: see `q4_k::minimums`.
        "ldr r2, [r1, #8 - 64]\n",
        "ldr r3, [r1, #12 - 64]\n",
        "ldmia r0, {{r8, r9, r10, r11}}\n",
        "and r12, r2, #0x3f3f3f3f\n",
        "uxtb16 r4, r12\n",
        "uxtb16 r12, r12, ror #8\n",
        "smuad r5, r4, r8\n",
        "smlad r5, r12, r9, r5\n",
        "and r2, r2, #0xc0c0c0c0\n",
        "and r3, lr, r3, lsr #4\n",
        "orr r12, r3, r2, lsr #2\n",
        "uxtb16 r4, r12\n",
        "uxtb16 r12, r12, ror #8\n",
        "smlad r5, r4, r10, r5\n",
        "smlad r5, r12, r11, r5\n",
        "vmov s0, s1, r7, r5\n",
    ),
    concat!("ldr r8, [r1, #-64]\n", add_with_minimum!())
);

/// A word of each of four chunks of Q2_K.
macro_rules! q2_k {
    ($word:literal $low:literal) => {
        concat!(
            "ldr r2, [r1, #", $low, " + ", $word, "]\n",
            quants!(),
            "and r12, r2, #0x03030303\n",
            products!("r3", "r8" "r9"),
            "and r12, lr, r2, lsr #4\n",
            products!("r5", "r10" "r11"),
            quants!(),
            "and r12, lr, r2, lsr #2\n",
            products!("r4", "r8" "r9"),
            "and r12, lr, r2, lsr #6\n",
            products!("r6", "r10" "r11"),
        )
    };
}
/// Adds four minimums times the sums of their groups to r7.
macro_rules! minimums_of_q2_k {
    ($at:literal) => {
        concat!(
            "ldr r2, [r1, #",
            $at,
            " - 32]\n",
            "ldmia r0!, {{r8, r9}}\n",
            "and r2, r6, r2, lsr #4\n",
            "uxtb16 r3, r2\n",
            "uxtb16 r2, r2, ror #8\n",
            "smlad r7, r3, r8, r7\n",
            "smlad r7, r2, r9, r7\n",
        )
    };
}
rows!(
    rows_of_q2_k,
    0x0303_0303_u32,
    32,
    concat!(
        "ldr r2, [r1]\n",
        "ldr r3, [r1, #4]\n",
        "ldr r4, [r1, #8]\n",
        "ldr r5, [r1, #12]\n",
        "and r2, r2, #0x0f0f0f0f\n",
        "and r3, r3, #0x0f0f0f0f\n",
        "and r4, r4, #0x0f0f0f0f\n",
        "and r5, r5, #0x0f0f0f0f\n",
        "add r7, sp, #20\n",
        "stmia r7, {{r2, r3, r4, r5}}\n",
        "sub r7, r7, #1\n",
    ),
    concat!(
        both_groups!(
            concat!(words!(q2_k "16"), scales!("0", "4"), scaled!("r3" "r4", "r8"), scaled!("r5" "r6", "r9")),
            concat!(words!(q2_k "48"), scales!("8", "12"), scaled!("r3" "r4", "r8"), scaled!("r5" "r6", "r9"))
        ),
        "mov r6, #0x0f0f0f0f\n",
        "mov r7, #0\n",
        minimums_of_q2_k!("0"),
        minimums_of_q2_k!("4"),
        minimums_of_q2_k!("8"),
        minimums_of_q2_k!("12"),
        "vmov s1, r7\n",
    ),
    concat!("ldr r8, [r1, #80 - 32]\n", add_with_minimum!())
);

rows!(
    rows_of_iq4_xs,
    OF_IQ4_NL.as_ptr(),
    128,
    "",
    concat!(
        "ldrh r5, [r1, #2]\n",
        "ldr r4, [r1, #4]\n",
        "mov r2, #0\n",
        "mov r6, #8\n",
        "3:\n", // a chunk; its scale is in the low bits of r4 and r5
        quants!(),
        indices!(first "r1", "r3", "lr" "r12" "r8" "r9" "r10" "r11", "8"),
        quants!(),
        indices!("r1", "r3", "lr" "r12" "r8" "r9" "r10" "r11", "12"),
        quants!(),
        indices!("r1", "r3", "lr" "r12" "r8" "r9" "r10" "r11", "16"),
        quants!(),
        indices!("r1", "r3", "lr" "r12" "r8" "r9" "r10" "r11", "20"),
        "and r12, r4, #15\n",
        "and r7, r5, #3\n",
        "orr r12, r12, r7, lsl #4\n",
        "sub r12, r12, #32\n",
        "mla r2, r3, r12, r2\n",
        "lsr r4, r4, #4\n",
        "lsr r5, r5, #2\n",
        "add r1, r1, #16\n",
        "subs r6, r6, #1\n",
        "bne 3b\n",
        "vmov s0, r2\n",
    ),
    add!("0 - 128")
);
