//! Blocks of 256 weights: a kernel adds up the products of a block, each times the scale of its group. The
//! floating-point unit computes the float part.

use core::arch::asm;

use super::super::assembly::fpu;
use super::super::dsp::clear;
use super::OF_IQ4_NL;
use crate::kernel::Job;
use crate::quant::{Format, TensorType};

/// Adds up the products of codes and quants. Each group of 32 or 16 products is multiplied by its scale.
type Kernel = unsafe fn(*const i8, *const u8, *const u64) -> i32;

const fn kernel(kind: TensorType) -> Option<Kernel> {
    match kind {
        TensorType::Q2_K => Some(q2_k),
        TensorType::Q3_K => Some(q3_k),
        TensorType::Q4_K => Some(q4_k),
        TensorType::Q5_K => Some(q5_k),
        TensorType::Q6_K => Some(q6_k),
        TensorType::IQ4_XS => Some(iq4_xs),
        TensorType::TQ1_0 => Some(tq1_0),
        TensorType::TQ2_0 => Some(tq2_0),
        _ => None,
    }
}

/// The powers of 3 by which [`tq1_0`] multiplies the last four bytes of a block.
const POWERS: [u64; 2] = [0x0303_0303_0101_0101, 0x1b1b_1b1b_0909_0909];

/// Multiplies all rows with all tokens. Between two blocks, the output holds the unfinished sums. Returns false without
/// a result if there is no kernel for the format.
///
/// # Safety
///
/// `job` satisfies the promises of [`Job`].
#[inline(always)]
pub(super) unsafe fn matmul<F: Format>(job: &mut Job<'_>) -> bool {
    let (Some(kernel), Some((place, _))) = (const { (kernel(F::KIND), F::D) }) else { return false };
    let one_scale = const { matches!(F::KIND, TensorType::TQ1_0 | TensorType::TQ2_0) };
    // The table of IQ4_XS has signed weights.
    let bias = const { if matches!(F::KIND, TensorType::IQ4_XS) { 0 } else { F::BIAS as i32 } };
    let row_bytes = job.w.len() / job.rows.max(1);
    for t in 0..job.x.tokens {
        let x = job.x.row(t);
        let blocks = x.q.as_chunks::<256>().0.iter().zip(x.d).zip(x.sums.as_chunks::<16>().0);
        for (number, ((q, d), sums)) in blocks.enumerate() {
            let all = sums.iter().map(|sum| i32::from(*sum)).sum::<i32>();
            let sums = if F::GROUP == 32 { in_pairs(sums) } else { *sums };
            // SAFETY: the job has these rows, each with as many blocks as the token, and an output for each row.
            unsafe {
                let out = job.out.add(t * job.stride);
                if number == 0 {
                    clear(out, job.rows);
                }
                for r in 0..job.rows {
                    let block = &*job.w.as_ptr().add(r * row_bytes).cast::<F::Block>().add(number);
                    let w = block.as_ref().as_ptr();
                    let all_scales = if one_scale { POWERS } else { F::scale_words(block) };
                    let first = all_scales[0];
                    let scales = if F::GROUP == 32 && !one_scale { &first } else { all_scales.as_ptr() };
                    let (mut sum, mut minimum) = (kernel(q.as_ptr(), w, scales), 0);
                    if one_scale {
                        sum -= all;
                    } else if F::M.is_some() {
                        let [first, second] = F::minimum_words(block);
                        minimum = if F::GROUP == 32 { half(&[first], &sums) } else { whole(&[first, second], &sums) };
                    } else if bias > 0 {
                        sum -= bias * whole(&all_scales, &sums);
                    }
                    let add = if F::M.is_some() { add_both } else { add_sum };
                    add(w.add(place), d, (sum, minimum), out.add(r));
                }
            }
        }
    }
    true
}

/// Adds up the sums of two groups of 16 to the sum of a group of 32.
#[inline(never)]
fn in_pairs(sums: &[i16; 16]) -> [i16; 16] {
    let mut out = [0; 16];
    sums.as_chunks().0.iter().zip(&mut out).for_each(|([a, b], sum)| *sum = a + b);
    out
}

/// Defines a function that adds up the products of signed bytes, one for each group, with the sums of the groups.
macro_rules! weighted {
    ($name:ident, $words:literal, $($code:literal)*) => {
        #[inline(always)]
        fn $name(factors: &[u64; $words], sums: &[i16; 16]) -> i32 {
            let sum;
            // SAFETY: reads these bytes and sums.
            unsafe {
                asm!(
                    ".cpu cortex-m55",
                    $($code,)*
                    factors = in(reg) factors,
                    sums = in(reg) sums,
                    out("r4") sum,
                    out("s0") _, out("s1") _, out("s2") _, out("s3") _,
                    out("s4") _, out("s5") _, out("s6") _, out("s7") _,
                    options(pure, readonly, nostack, preserves_flags),
                );
            }
            sum
        }
    };
}
weighted!(half, 1, "vldrb.s16 q0, [{factors}]" "vldrh.u16 q1, [{sums}]" "vmladav.s16 r4, q0, q1");
weighted!(
    whole, 2,
    "vldrb.s16 q0, [{factors}]" "vldrh.u16 q1, [{sums}]" "vmladav.s16 r4, q0, q1"
    "vldrb.s16 q0, [{factors}, #8]" "vldrh.u16 q1, [{sums}, #16]" "vmladava.s16 r4, q0, q1"
);

/// Defines a function that adds the sum of a block, times the f16 at `w` and the token's scale, to an output. If the
/// format has minimums, `$load` loads the f16 at `w + 2` as well, `$convert` multiplies that f16 by the scale, to s5,
/// and `$minimum` subtracts its product with the sum of the minimums in s2.
macro_rules! add {
    ($name:ident, $load:literal, $($convert:literal)*; $($minimum:literal)*) => {
        /// # Safety
        ///
        /// The factors may be read, and the output may be read and written.
        #[inline(always)]
        unsafe fn $name(w: *const u8, d: &f32, (sum, minimum): (i32, i32), out: *mut f32) {
            // SAFETY: reads the factors, and changes the output.
            unsafe {
                asm!(
                    $load,
                    "vldr s4, [{d}]",
                    "vldr s3, [{out}]",
                    "vmov s0, {x}",
                    "vmov s1, s2, {sum}, {minimum}",
                    $($convert,)*
                    "vcvtb.f32.f16 s0, s0",
                    "vcvt.f32.s32 s1, s1",
                    "vmul.f32 s0, s0, s4",
                    "vfma.f32 s3, s0, s1",
                    $($minimum,)*
                    "vstr s3, [{out}]",
                    x = out(reg) _,
                    w = in(reg) w,
                    d = in(reg) d,
                    sum = in(reg) sum,
                    minimum = in(reg) minimum,
                    out = in(reg) out,
                    out("s0") _, out("s1") _, out("s2") _, out("s3") _, out("s4") _, out("s5") _,
                    options(nostack, preserves_flags),
                );
            }
        }
    };
}
add!(add_sum, "ldrh {x}, [{w}]",;);
add!(
    add_both, "ldr {x}, [{w}]",
    "vcvtt.f32.f16 s5, s0" "vcvt.f32.s32 s2, s2" "vmul.f32 s5, s5, s4";
    "vfms.f32 s3, s5, s2"
);

/// Defines a kernel. The code finds the address of the quants in r0, of the block in r1, of the scales in r3, and of
/// `$table`, if there is one, in r12. It adds to r4, which is 0 at the start and is the result.
macro_rules! kernel {
    ($name:ident, $($code:expr,)*) => {
        kernel!($name(out("r12") _,), $($code,)*);
    };
    ($name:ident of $table:ident, $($code:expr,)*) => {
        kernel!($name(in("r12") $table.as_ptr(),), $($code,)*);
    };
    ($name:ident($($r12:tt)*), $($code:expr,)*) => {
        /// # Safety
        ///
        /// `q` points to 256 quants, `block` to a block, and `scales` to the scales of its groups.
        #[inline(never)]
        unsafe fn $name(q: *const i8, block: *const u8, scales: *const u64) -> i32 {
            let sum;
            // SAFETY: reads the quants, the block and the scales.
            unsafe {
                fpu!(
                    ".cpu cortex-m55",
                    $($code,)*
                    ;
                    inout("r0") q => _,
                    inout("r1") block => _,
                    inout("r3") scales => _,
                    inout("r4") 0 => sum,
                    out("r2") _,
                    out("r8") _,
                    out("r9") _,
                    out("r10") _,
                    $($r12)*
                    out("lr") _,
                );
            }
            sum
        }
    };
}

/// Assembly that multiplies the sixteen codes in `$codes` by the quants at `$x`, and adds the sum, times the scale at
/// `$scale`, to r4.
macro_rules! group {
    ($codes:literal, $x:literal, $scale:literal) => {
        concat!(
            "vldrb.u8 q0, ",
            $x,
            "\n",
            "vmladav.s8 r8, ",
            $codes,
            ", q0\n",
            "ldrsb r9, ",
            $scale,
            "\n",
            "mla r4, r8, r9, r4\n",
        )
    };
}

/// [`group`] for blocks whose groups have no scales.
macro_rules! no_scale {
    ($codes:literal, $x:literal, $scale:literal) => {
        concat!("vldrb.u8 q0, ", $x, "\n", "vmladava.s8 r4, ", $codes, ", q0\n")
    };
}

/// Assembly that runs `$half` for both halves of a block. `$half` moves r0 and r3 past the first 32 of 128 quants and
/// past their two scales; this code moves them to the next half.
macro_rules! halves {
    ($half:expr) => {
        concat!("mov lr, #2\ndls lr, lr\n2:\n", $half, "add r0, r0, #96\n", "add r3, r3, #6\n", "le lr, 2b\n")
    };
}

/// Assembly that multiplies 64 codes of two bits, which are in 16 bytes. `$group` multiplies sixteen codes.
macro_rules! quarters {
    ($group:ident) => {
        concat!(
            "vldrb.u8 q3, [r1], #16\n",
            "vshr.u8 q6, q3, #2\nvand q6, q6, q7\n",
            $group!("q6", "[r0, #32]", "[r3, #2]"),
            "vshr.u8 q6, q3, #4\nvand q6, q6, q7\n",
            $group!("q6", "[r0, #64]", "[r3, #4]"),
            "vshr.u8 q6, q3, #6\n",
            $group!("q6", "[r0, #96]", "[r3, #6]"),
            "vand q6, q3, q7\n",
            $group!("q6", "[r0], #16", "[r3], #1"),
        )
    };
}
kernel! {
    q2_k,
    "add r1, r1, #16",
    "vmov.i8 q7, #3",
    halves!(concat!(quarters!(group), quarters!(group))),
}
kernel! {
    tq2_0,
    "vmov.i8 q7, #3",
    halves!(concat!(quarters!(no_scale), quarters!(no_scale))),
}

/// Assembly that multiplies 64 codes of Q3_K. Their low bits are in 16 bytes, their high bits are bits 0 to 3 of the
/// register `$high`, which is shifted by four bits.
macro_rules! q3_k {
    ($high:literal) => {
        concat!(
            "vldrb.u8 q3, [r1], #16\n",
            "vmov q2, q3\n",
            concat!("vsli.8 q2, ", $high, ", #2\n"),
            "vand q2, q2, q7\n",
            q3_k!(@ $high),
            group!("q6", "[r0, #32]", "[r3, #2]"),
            q3_k!(@ $high),
            group!("q6", "[r0, #64]", "[r3, #4]"),
            q3_k!(@ $high),
            group!("q6", "[r0, #96]", "[r3, #6]"),
            concat!("vshr.u8 ", $high, ", ", $high, ", #1\n"),
            group!("q2", "[r0], #16", "[r3], #1"),
        )
    };
    (@ $high:literal) => {
        concat!(
            "vshr.u8 q3, q3, #2\n",
            "vshr.u8 ", $high, ", ", $high, ", #1\n",
            "vmov q6, q3\n",
            "vsli.8 q6, ", $high, ", #2\n",
            "vand q6, q6, q7\n",
        )
    };
}
kernel! {
    q3_k,
    "vldrb.u8 q4, [r1], #16",
    "vldrb.u8 q5, [r1], #16",
    "vmov.i8 q7, #7",
    halves!(concat!(q3_k!("q4"), q3_k!("q5"))),
}

/// Assembly that multiplies 64 codes of Q6_K, whose low bits are in two times 16 bytes.
macro_rules! q6_k {
    () => {
        concat!(
            "vldrb.u8 q4, [r1, #32]\n",
            "vldrb.u8 q3, [r1], #16\n",
            "vldrb.u8 q5, [r2], #16\n",
            "vmov q6, q5\nvsri.8 q6, q3, #4\nvand q6, q6, q7\n",
            group!("q6", "[r0, #64]", "[r3, #4]"),
            "vsli.8 q3, q5, #4\nvand q3, q3, q7\n",
            "vshr.u8 q5, q5, #2\n",
            "vmov q6, q5\nvsri.8 q6, q4, #4\nvand q6, q6, q7\n",
            group!("q6", "[r0, #96]", "[r3, #6]"),
            "vsli.8 q4, q5, #4\nvand q4, q4, q7\n",
            group!("q4", "[r0, #32]", "[r3, #2]"),
            group!("q3", "[r0], #16", "[r3], #1"),
        )
    };
}
kernel! {
    q6_k,
    "add r2, r1, #128",
    "vmov.i8 q7, #63",
    halves!(concat!(q6_k!(), q6_k!(), "add r1, r1, #32\n")),
}

/// Assembly that multiplies a block of Q4_K or Q5_K, 64 codes at a time: the low halves of 32 bytes are the codes of
/// one group, the high halves those of the next. `$high` sets q6 to the codes of the high halves of q3, then `$low`
/// sets q3 to the codes of its low halves. Both are given the register with the fifth bits.
macro_rules! two_chunks {
    ($high:ident, $low:ident) => {
        concat!(
            "mov lr, #4\ndls lr, lr\n2:\n",
            two_chunks!(@ $high, $low, "q4" ""),
            two_chunks!(@ $high, $low, "q5" "a"),
            "ldrsb r9, [r3], #1\n",
            "mla r4, r10, r9, r4\n",
            "ldrsb r9, [r3], #1\n",
            "mla r4, r8, r9, r4\n",
            "add r0, r0, #32\n",
            "le lr, 2b\n",
        )
    };
    (@ $high:ident, $low:ident, $bits:literal $a:literal) => {
        concat!(
            "vldrb.u8 q3, [r1], #16\n",
            $high!($bits),
            "vldrb.u8 q0, [r0, #32]\n",
            "vmladav", $a, ".s8 r8, q6, q0\n",
            $low!($bits),
            "vldrb.u8 q0, [r0], #16\n",
            "vmladav", $a, ".s8 r10, q3, q0\n",
        )
    };
}
macro_rules! high_of_q4_k {
    ($bits:literal) => {
        "vshr.u8 q6, q3, #4\n"
    };
}
macro_rules! low_of_q4_k {
    ($bits:literal) => {
        "vand q3, q3, q7\n"
    };
}
kernel! {
    q4_k,
    "add r1, r1, #16",
    "vmov.i8 q7, #15",
    two_chunks!(high_of_q4_k, low_of_q4_k),
}
macro_rules! high_of_q5_k {
    ($bits:literal) => {
        concat!("vshl.i8 q6, ", $bits, ", #3\nvsri.8 q6, q3, #4\nvand q6, q6, q7\n")
    };
}
macro_rules! low_of_q5_k {
    ($bits:literal) => {
        concat!("vsli.8 q3, ", $bits, ", #4\nvand q3, q3, q7\n", "vshr.u8 ", $bits, ", ", $bits, ", #2\n")
    };
}
kernel! {
    q5_k,
    "add r1, r1, #48",
    "vldrb.u8 q4, [r1, #-32]",
    "vldrb.u8 q5, [r1, #-16]",
    "vmov.i8 q7, #31",
    two_chunks!(high_of_q5_k, low_of_q5_k),
}

kernel! {
    iq4_xs of OF_IQ4_NL,
    "add r1, r1, #8",
    "vmov.i8 q7, #15",
    "mov lr, #8",
    "dls lr, lr",
    "2:",
    "vldrb.u8 q3, [r1], #16",
    "vand q6, q3, q7",
    "vldrb.u8 q1, [r12, q6]",
    "vldrb.u8 q0, [r0], #16",
    "vmladav.s8 r8, q1, q0",
    "vshr.u8 q3, q3, #4",
    "vldrb.u8 q1, [r12, q3]",
    "vldrb.u8 q0, [r0], #16",
    "vmladava.s8 r8, q1, q0",
    "ldrsb r9, [r3], #1",
    "mla r4, r8, r9, r4",
    "le lr, 2b",
}

/// Assembly that multiplies the digits of 16 fractions: see `Tq1_0::unpack`. The quants of the second digits are
/// `$apart` bytes after those of the first digits, and so on. With `first`, only the first digits of q3 are multiplied.
macro_rules! digits {
    (first $apart:literal) => {
        concat!("vmulh.u8 q6, q3, q7\n", "vldrb.u8 q0, [r0], #", $apart, "\n", "vmladava.s8 r4, q6, q0\n")
    };
    ($apart:literal) => {
        concat!(
            "vldrb.u8 q3, [r1], #16\n",
            digits!(first $apart),
            digits!(@ $apart),
            digits!(@ $apart),
            digits!(@ $apart),
            digits!(@ $apart),
        )
    };
    (@ $apart:literal) => {
        concat!("vmul.i8 q3, q3, q7\n", digits!(first $apart))
    };
}
kernel! {
    tq1_0,
    "vmov.i8 q7, #3",
    digits!("32"),
    "sub r0, r0, #144",
    digits!("32"),
    "sub r0, r0, #16",
    digits!("16"),
    "ldr r9, [r1]",
    "vdup.32 q3, r9",
    "vldrb.u8 q1, [r3]",
    "vmul.i8 q3, q3, q1",
    digits!(first "16"),
}
