//! Float arithmetic by the unit's own instructions: VFMA rounds once, VLDM brings eight numbers.

use core::arch::asm;

use crate::kernel::Job;
use crate::kernel::scalar::Unit;

/// The floating-point unit of a Cortex-M4F and its successors.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Fpu;

/// `asm!` that changes all registers of the unit.
macro_rules! fpu {
    ($($code:expr,)* ; $($operands:tt)*) => {
        asm!(
            $($code,)*
            $($operands)*
            out("s0") _, out("s1") _, out("s2") _, out("s3") _, out("s4") _, out("s5") _, out("s6") _, out("s7") _,
            out("s8") _, out("s9") _, out("s10") _, out("s11") _, out("s12") _, out("s13") _, out("s14") _,
            out("s15") _, out("s16") _, out("s17") _, out("s18") _, out("s19") _, out("s20") _, out("s21") _,
            out("s22") _, out("s23") _, out("s24") _, out("s25") _, out("s26") _, out("s27") _, out("s28") _,
            out("s29") _, out("s30") _, out("s31") _,
            options(nostack),
        )
    };
}

/// Sixteen multiply-adds of what lies at two pointers, which move on.
macro_rules! sixteen {
    ($a:literal, $b:literal) => {
        concat!(
            "vldmia ", $a, "!, {{s16-s23}}\n",
            "vldmia ", $b, "!, {{s24-s31}}\n",
            "vfma.f32 s0, s16, s24\n",
            "vfma.f32 s1, s17, s25\n",
            "vfma.f32 s2, s18, s26\n",
            "vfma.f32 s3, s19, s27\n",
            "vfma.f32 s4, s20, s28\n",
            "vfma.f32 s5, s21, s29\n",
            "vfma.f32 s6, s22, s30\n",
            "vfma.f32 s7, s23, s31\n",
            "vldmia ", $a, "!, {{s16-s23}}\n",
            "vldmia ", $b, "!, {{s24-s31}}\n",
            "vfma.f32 s8, s16, s24\n",
            "vfma.f32 s9, s17, s25\n",
            "vfma.f32 s10, s18, s26\n",
            "vfma.f32 s11, s19, s27\n",
            "vfma.f32 s12, s20, s28\n",
            "vfma.f32 s13, s21, s29\n",
            "vfma.f32 s14, s22, s30\n",
            "vfma.f32 s15, s23, s31\n",
        )
    };
}

impl Unit for Fpu {
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        let mut d = c.to_bits();
        // SAFETY: registers only.
        unsafe {
            asm!(
                "vmov s0, {d}",
                "vmov s1, s2, {a}, {b}",
                "vfma.f32 s0, s1, s2",
                "vmov {d}, s0",
                a = in(reg) a.to_bits(),
                b = in(reg) b.to_bits(),
                d = inout(reg) d,
                out("s0") _, out("s1") _, out("s2") _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        f32::from_bits(d)
    }

    #[inline(always)]
    fn fma_lanes(mut a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        // SAFETY: three arrays of 16; the result replaces the first, of which each half was read before.
        unsafe {
            fpu!(
                "vldmia {c}, {{s0-s15}}",
                "vldmia {a}, {{s16-s23}}",
                "vldmia {b}!, {{s24-s31}}",
                "vfma.f32 s0, s16, s24",
                "vfma.f32 s1, s17, s25",
                "vfma.f32 s2, s18, s26",
                "vfma.f32 s3, s19, s27",
                "vfma.f32 s4, s20, s28",
                "vfma.f32 s5, s21, s29",
                "vfma.f32 s6, s22, s30",
                "vfma.f32 s7, s23, s31",
                "vstmia {a}!, {{s0-s7}}",
                "vldmia {a}, {{s16-s23}}",
                "vldmia {b}, {{s24-s31}}",
                "vfma.f32 s8, s16, s24",
                "vfma.f32 s9, s17, s25",
                "vfma.f32 s10, s18, s26",
                "vfma.f32 s11, s19, s27",
                "vfma.f32 s12, s20, s28",
                "vfma.f32 s13, s21, s29",
                "vfma.f32 s14, s22, s30",
                "vfma.f32 s15, s23, s31",
                "vstmia {a}, {{s8-s15}}",
                ;
                a = inout(reg) a.as_mut_ptr() => _,
                b = inout(reg) b.as_ptr() => _,
                c = in(reg) c.as_ptr(),
            );
        }
        a
    }

    #[inline(always)]
    fn le_f16(bytes: [u8; 2]) -> f32 {
        let mut x = u32::from(u16::from_le_bytes(bytes));
        // SAFETY: registers only.
        unsafe {
            asm!(
                "vmov s0, {x}",
                "vcvtb.f32.f16 s0, s0",
                "vmov {x}, s0",
                x = inout(reg) x,
                out("s0") _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        f32::from_bits(x)
    }

    #[inline(always)]
    fn to_f16(x: f32) -> [u8; 2] {
        let mut x = x.to_bits();
        // SAFETY: registers only.
        unsafe {
            asm!(
                "vmov s0, {x}",
                "vcvtb.f16.f32 s0, s0",
                "vmov {x}, s0",
                x = inout(reg) x,
                out("s0") _,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        (x as u16).to_le_bytes()
    }

    /// Lane after lane, so that all stays in registers.
    #[inline(never)]
    fn exp(x: &mut [f32; 16]) {
        // The constants of `float::exp` in its order.
        const ENDS: [f32; 7] =
            [88.37, -87.33, core::f32::consts::LOG2_E, 12_582_912.0, -0.693_359_4, 2.121_944_4e-4, 87.33];
        const POLYNOMIAL: [f32; 8] =
            [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5, 1.0, 1.0];
        // SAFETY: 16 numbers, read and written one after another.
        unsafe {
            fpu!(
                "vldmia {ends}, {{s16-s22}}",
                "2:",
                "vldr s0, [{x}]",
                // Few are beyond the ends; NaN passes through.
                "vabs.f32 s1, s0",
                "vcmp.f32 s1, s22",
                "vmrs APSR_nzcv, fpscr",
                "ble 3f",
                "vcmp.f32 s16, s0",
                "vmrs APSR_nzcv, fpscr",
                "it mi",
                "vmovmi.f32 s0, s16",
                "vcmp.f32 s17, s0",
                "vmrs APSR_nzcv, fpscr",
                "it gt",
                "vmovgt.f32 s0, s17",
                "3:",
                // n, also in the low bits of s2; and r.
                "vmul.f32 s1, s0, s18",
                "vadd.f32 s2, s1, s19",
                "vsub.f32 s1, s2, s19",
                "vfma.f32 s0, s1, s20",
                "vfma.f32 s0, s1, s21",
                "vmov {n}, s2",
                "vldmia {polynomial}, {{s3-s10}}",
                "vfma.f32 s4, s3, s0",
                "vfma.f32 s5, s4, s0",
                "vfma.f32 s6, s5, s0",
                "vfma.f32 s7, s6, s0",
                "vfma.f32 s8, s7, s0",
                "vfma.f32 s9, s8, s0",
                "vfma.f32 s10, s9, s0",
                "lsl {n}, {n}, #23",
                "add {n}, {n}, #0x3f800000",
                "vmov s1, {n}",
                "vmul.f32 s10, s10, s1",
                "vstmia {x}!, {{s10}}",
                "cmp {x}, {end}",
                "bne 2b",
                ;
                x = inout(reg) x.as_mut_ptr() => _,
                end = in(reg) x.as_ptr_range().end,
                n = out(reg) _,
                ends = in(reg) ENDS.as_ptr(),
                polynomial = in(reg) POLYNOMIAL.as_ptr(),
            );
        }
    }

    #[inline(always)]
    unsafe fn add_products(acc: &mut [f32; 16], rows: *const f32, stride: usize, x: *const f32, n: usize) {
        if n == 0 {
            return;
        }
        // SAFETY: the caller has n rows of 16 numbers, on boundaries of 4 bytes, and n factors.
        unsafe {
            fpu!(
                "vldmia {acc}, {{s0-s15}}",
                "2:",
                "vldmia {x}!, {{s24}}",
                "vldmia {rows}!, {{s16-s23}}",
                "vfma.f32 s0, s16, s24",
                "vfma.f32 s1, s17, s24",
                "vfma.f32 s2, s18, s24",
                "vfma.f32 s3, s19, s24",
                "vfma.f32 s4, s20, s24",
                "vfma.f32 s5, s21, s24",
                "vfma.f32 s6, s22, s24",
                "vfma.f32 s7, s23, s24",
                "vldmia {rows}, {{s16-s23}}",
                "add {rows}, {rows}, {step}",
                "subs {n}, {n}, #1",
                "vfma.f32 s8, s16, s24",
                "vfma.f32 s9, s17, s24",
                "vfma.f32 s10, s18, s24",
                "vfma.f32 s11, s19, s24",
                "vfma.f32 s12, s20, s24",
                "vfma.f32 s13, s21, s24",
                "vfma.f32 s14, s22, s24",
                "vfma.f32 s15, s23, s24",
                "bne 2b",
                "vstmia {acc}, {{s0-s15}}",
                ;
                acc = in(reg) acc.as_mut_ptr(),
                rows = inout(reg) rows => _,
                x = inout(reg) x => _,
                n = inout(reg) n => _,
                step = in(reg) stride.wrapping_mul(4).wrapping_sub(32),
            );
        }
    }
}

/// What [`matmul`] has beside the matrix: zeros, the end of a token's numbers and of a row's, padded.
#[repr(C)]
struct Tail {
    zeros: [f32; 16],
    x: [f32; 16],
    w: [f32; 16],
}

/// Rows of f32 times tokens: 16 sums of a row in registers, joined by the tree.
///
/// # Safety
///
/// `job` as [`Job`] says; its weights on a boundary of 4 bytes.
pub(super) unsafe fn matmul(job: &mut Job<'_>) {
    if job.rows == 0 {
        return;
    }
    let rest = job.cols % 16;
    for t in 0..job.x.tokens {
        let mut tail = Tail { zeros: [0.0; 16], x: [0.0; 16], w: [0.0; 16] };
        let x = job.x.x.get(t * job.cols..(t + 1) * job.cols).unwrap_or_default();
        for (to, from) in tail.x.iter_mut().zip(x.iter().skip(job.cols - rest)) {
            *to = *from;
        }
        // SAFETY: all rows and this token are the job's.
        unsafe {
            let out = job.out.add(t * job.stride);
            fpu!(
                "2:",
                "vldmia {tail}, {{s0-s15}}",
                "mov {at}, {x}",
                "movs {n}, {fours}",
                "beq 4f",
                "3:",
                ".rept 4",
                sixteen!("{at}", "{w}"),
                ".endr",
                "subs {n}, {n}, #1",
                "bne 3b",
                "4:",
                // What is left of whole sixteens, then the end of the row from its copy.
                "movs {n}, {ones}",
                "beq 6f",
                "5:",
                sixteen!("{at}", "{w}"),
                "subs {n}, {n}, #1",
                "bne 5b",
                "6:",
                "movs {n}, {rest}",
                "beq 9f",
                "add {at}, {tail}, #128",
                "7:",
                "subs {n}, {n}, #4",
                "blt 8f",
                "vldmia {w}!, {{s16-s19}}",
                "vstmia {at}!, {{s16-s19}}",
                "b 7b",
                "8:",
                "adds {n}, {n}, #4",
                "beq 12f",
                "11:",
                "vldmia {w}!, {{s16}}",
                "vstmia {at}!, {{s16}}",
                "subs {n}, {n}, #1",
                "bne 11b",
                "12:",
                "add {at}, {tail}, #64",
                "add {n}, {tail}, #128",
                sixteen!("{at}", "{n}"),
                "9:",
                "vadd.f32 s0, s0, s8",
                "vadd.f32 s1, s1, s9",
                "vadd.f32 s2, s2, s10",
                "vadd.f32 s3, s3, s11",
                "vadd.f32 s4, s4, s12",
                "vadd.f32 s5, s5, s13",
                "vadd.f32 s6, s6, s14",
                "vadd.f32 s7, s7, s15",
                "vadd.f32 s0, s0, s4",
                "vadd.f32 s1, s1, s5",
                "vadd.f32 s2, s2, s6",
                "vadd.f32 s3, s3, s7",
                "vadd.f32 s0, s0, s2",
                "vadd.f32 s1, s1, s3",
                "vadd.f32 s0, s0, s1",
                "vstmia {out}!, {{s0}}",
                "subs {rows}, {rows}, #1",
                "bne 2b",
                ;
                tail = in(reg) &raw mut tail,
                x = in(reg) x.as_ptr(),
                at = out(reg) _,
                w = inout(reg) job.w.as_ptr() => _,
                out = inout(reg) out => _,
                rows = inout(reg) job.rows => _,
                fours = in(reg) job.cols / 64,
                ones = in(reg) job.cols % 64 / 16,
                rest = in(reg) rest,
                n = out(reg) _,
            );
        }
    }
}
