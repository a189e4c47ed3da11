//! The 32-weight formats in NEON registers. Decode is stated here over the instruction that
//! multiplies ([`Dot`]); how a panel lies and is multiplied, each instruction set says itself.

use core::arch::aarch64::*;
use core::arch::asm;
use core::marker::PhantomData;

use super::neon::{high_halves, low_halves};
use crate::kernel::quantized::Blocks;
use crate::kernel::{Row, scalar};

/// The instruction that multiplies bytes.
pub(super) trait Dot {
    /// Adds to four sums, which together grow by the dot product of 32 weights and 32 quants.
    ///
    /// # Safety
    ///
    /// Needs the instruction.
    unsafe fn dot(sums: int32x4_t, w: [int8x16_t; 2], x: [int8x16_t; 2]) -> int32x4_t;

    /// Four sums that together are the dot product of 16 weights and 16 quants.
    ///
    /// # Safety
    ///
    /// Needs the instruction.
    unsafe fn dot16(w: int8x16_t, x: int8x16_t) -> int32x4_t;
}

/// A format of 32 weights in a block: an f16 scale and quants.
pub(super) trait Format {
    /// Bytes of a block.
    const BYTES: usize;
    /// Added to every quant as [`load`](Self::load) gives it.
    const BIAS: i8;

    /// Reads the block at `p` and moves `p` to the next: its scale goes to one lane of `scales`, its
    /// quants are returned, `BIAS` too large.
    ///
    /// # Safety
    ///
    /// `p` points to a block.
    unsafe fn load<const LANE: usize>(p: &mut *const u8, scales: &mut uint16x8_t) -> [int8x16_t; 2];

    /// The dot product of one row.
    fn dot_one(row: &[u8], x: Row<'_>) -> f32;
}

/// A block is 34 bytes: the scale, then signed bytes.
pub(super) struct Q8_0;

impl Format for Q8_0 {
    const BYTES: usize = 34;
    const BIAS: i8 = 0;

    #[inline(always)]
    unsafe fn load<const LANE: usize>(p: &mut *const u8, scales: &mut uint16x8_t) -> [int8x16_t; 2] {
        let (low, high);
        // SAFETY: reads the 34 bytes of the block, nothing else.
        unsafe {
            asm!(
                "ld1 {{{scales:v}.h}}[{lane}], [{p}], #2",
                "ldp {low:q}, {high:q}, [{p}], #32",
                p = inout(reg) *p,
                scales = inout(vreg) *scales,
                low = out(vreg) low,
                high = out(vreg) high,
                lane = const LANE,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        [low, high]
    }

    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        scalar::dot_q8_0(row, x)
    }
}

/// A block is 18 bytes: the scale, then nibbles, the low ones of all bytes before the high ones.
pub(super) struct Q4_0;

impl Format for Q4_0 {
    const BYTES: usize = 18;
    const BIAS: i8 = 8;

    #[inline(always)]
    unsafe fn load<const LANE: usize>(p: &mut *const u8, scales: &mut uint16x8_t) -> [int8x16_t; 2] {
        let bytes: uint8x16_t;
        // SAFETY: reads the 18 bytes of the block, nothing else.
        unsafe {
            asm!(
                "ld1 {{{scales:v}.h}}[{lane}], [{p}], #2",
                "ldr {bytes:q}, [{p}], #16",
                p = inout(reg) *p,
                scales = inout(vreg) *scales,
                bytes = out(vreg) bytes,
                lane = const LANE,
                options(pure, readonly, nostack, preserves_flags)
            );
            let (low, high) = (vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes));
            [vreinterpretq_s8_u8(low), vreinterpretq_s8_u8(high)]
        }
    }

    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        scalar::dot_q4_0(row, x)
    }
}

/// Rows of one format under one instruction.
pub(super) struct Rows<F, D>(PhantomData<(F, D)>);

impl<F: Format, D: Dot> Blocks for Rows<F, D> {
    const ROWS: usize = 8;

    /// The sums of integers run on from block to block, modulo 2^32; a block's own is the difference. So
    /// nothing has to be cleared.
    #[inline(always)]
    unsafe fn dot(w: *const u8, row_bytes: usize, x: Row<'_>, out: *mut f32) {
        // SAFETY: each step takes one block of each of eight rows and 32 quants of `x`, which has as many
        // blocks as a row; `out` has room for eight. Prefetching may reach beyond the file: it never faults.
        unsafe {
            let mut rows: [*const u8; 8] = core::array::from_fn(|r| w.add(r * row_bytes));
            let mut ahead = w.wrapping_add(16 * row_bytes);
            let mut q = x.q.as_ptr();
            let mut scales = vdupq_n_u16(0);
            let mut sums = [vdupq_n_s32(0); 8];
            let mut before = [vdupq_n_s32(0); 2];
            let mut acc = [vdupq_n_f32(0.0); 2];
            for (dx, offset) in x.d.iter().zip(x.offsets) {
                let quants = [vld1q_s8(q), vld1q_s8(q.add(16))];
                q = q.add(32);
                prefetch::<0>(ahead);
                if F::BYTES > 18 {
                    prefetch::<128>(ahead);
                }
                ahead = ahead.wrapping_add(8 * F::BYTES);
                macro_rules! dot {
                    ($($row:literal)*) => {
                        $(sums[$row] = D::dot(sums[$row], F::load::<$row>(&mut rows[$row], &mut scales), quants);)*
                    };
                }
                dot!(0 1 2 3 4 5 6 7);
                let [a, b, c, d, e, f, g, h] = sums;
                let now = [join([a, b, c, d]), join([e, f, g, h])];
                // The offset is -128 times the sum of the quants.
                let bias = vdupq_n_s32(offset / 128 * i32::from(F::BIAS));
                let scales = [low_halves(scales), high_halves(scales)];
                for half in 0..2 {
                    let sum = vaddq_s32(vsubq_s32(now[half], before[half]), bias);
                    acc[half] = vfmaq_f32(acc[half], vmulq_n_f32(scales[half], *dx), vcvtq_f32_s32(sum));
                }
                before = now;
            }
            vst1q_f32(out, acc[0]);
            vst1q_f32(out.add(4), acc[1]);
        }
    }

    fn dot_one(row: &[u8], x: Row<'_>) -> f32 {
        F::dot_one(row, x)
    }
}

/// Asks for two lines from `p + AT`, which need not exist. Eight short streams are more than some prefetchers
/// follow; what comes after the rows at work is one piece, of which a step asks for as much as it reads, for the
/// rows after the next (as x86, where it was measured).
#[inline(always)]
fn prefetch<const AT: usize>(p: *const u8) {
    // SAFETY: hints, which never fault.
    unsafe {
        asm!(
            "prfm pldl2keep, [{p}, #{at}]",
            "prfm pldl2keep, [{p}, #{at} + 64]",
            p = in(reg) p,
            at = const AT,
            options(readonly, nostack, preserves_flags)
        );
    }
}

/// The sum of each of four vectors.
#[inline(always)]
pub(super) unsafe fn join(x: [int32x4_t; 4]) -> int32x4_t {
    // SAFETY: NEON.
    unsafe { vpaddq_s32(vpaddq_s32(x[0], x[1]), vpaddq_s32(x[2], x[3])) }
}

/// Bytes of a block of eight rows of a panel: 32 quants of each row, in the order that the instruction
/// likes, then their scales as f32. A panel is all blocks of its first eight rows, then of the others.
pub(super) const PANEL_BLOCK: usize = 8 * 36;
/// Where the scales begin.
pub(super) const PANEL_SCALES: usize = 8 * 32;

/// Packs up to 16 rows; `put` writes 32 quants of each of four rows to the 128 bytes that are theirs.
///
/// # Safety
///
/// As for [`Panel::pack`](crate::kernel::quantized::Panel::pack).
#[inline(always)]
pub(super) unsafe fn pack<F: Format>(
    w: *const u8,
    row_bytes: usize,
    rows: usize,
    cols: usize,
    panel: *mut u8,
    put: impl Fn(*mut u8, [[int8x16_t; 2]; 4]),
) {
    let blocks = cols / 32;
    for first in (0..rows).step_by(4) {
        // SAFETY: for rows that are missing the last one is read again; both halves of the panel have the room.
        unsafe {
            let mut rows: [*const u8; 4] = core::array::from_fn(|r| w.add((first + r).min(rows - 1) * row_bytes));
            let mut scales = vdupq_n_u16(0);
            let half = panel.add(first / 8 * blocks * PANEL_BLOCK);
            for block in 0..blocks {
                let to = half.add(block * PANEL_BLOCK);
                macro_rules! load {
                    ($row:literal) => {
                        F::load::<$row>(&mut rows[$row], &mut scales).map(|w| vsubq_s8(w, vdupq_n_s8(F::BIAS)))
                    };
                }
                put(to.add(first % 8 * 32), [load!(0), load!(1), load!(2), load!(3)]);
                vst1q_f32(to.add(PANEL_SCALES + first % 8 * 4).cast(), low_halves(scales));
            }
        }
    }
}

/// The float at `p` in both lanes; `p` moves to the next.
#[inline(always)]
pub(super) unsafe fn next(p: &mut *const f32) -> float32x2_t {
    let out;
    // SAFETY: reads the float that the caller's pointer is at, nothing else.
    unsafe {
        asm!(
            "ld1r {{{out:v}.2s}}, [{p}], #4",
            out = out(vreg) out,
            p = inout(reg) *p,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    out
}
