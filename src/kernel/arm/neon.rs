//! NEON under Linux. Linux reports whether the processor has NEON and fused multiply-adds (VFPv4).
//!
//! NEON is used for integers only, because it flushes denormal floats to zero; floats are computed by the
//! floating-point unit, as on a Cortex-M. Rust has no stable type for eight bytes in a register, but an f64 is held in
//! the same registers, and moves do not change it. (The code uses only d0 to d15: whether the compiler uses the other
//! registers depends on its options, and cannot be queried.)

use core::arch::asm;
use core::mem::MaybeUninit;

use super::OF_UNIT;
use super::assembly::unit;
use super::float::Fpu;
use crate::kernel::Kernels;
use crate::kernel::fours::Vectors;
use crate::quant::Bytes;

const NEON: Kernels = Kernels { name: "neon", ..OF_UNIT };

/// The table, if the machine supports it.
pub(in crate::kernel) fn available() -> impl Iterator<Item = &'static Kernels> {
    // From Linux' `asm/hwcap.h`.
    const HWCAP_NEON: libc::c_ulong = 1 << 12;
    const HWCAP_VFPV4: libc::c_ulong = 1 << 16;
    const BOTH: libc::c_ulong = HWCAP_NEON | HWCAP_VFPV4;
    // SAFETY: `getauxval` has no preconditions.
    let there = unsafe { libc::getauxval(libc::AT_HWCAP) & BOTH == BOTH };
    there.then_some(&NEON).into_iter()
}

/// Loads 16 or 32 quants to q0 and q1.
macro_rules! quants {
    (16) => {
        "vld1.8 {{d0-d1}}, [{q}]"
    };
    (32) => {
        "vld1.8 {{d0-d3}}, [{q}]"
    };
}

/// Multiplies the quants with the codes of a row and adds the products to two sums. The products are first added in
/// pairs, because a 16-bit lane has room for two of them. Clobbers q2 to q4.
macro_rules! row {
    (16, $codes:literal, $less:literal, $sums:literal) => {
        concat!(
            "vld1.8 {{d4-d5}}, [",
            $codes,
            "]\n",
            $less,
            "vmull.s8 q4, d4, d0\n",
            "vmlal.s8 q4, d5, d1\n",
            "vpaddl.s16 q4, q4\n",
            "vpadd.i32 ",
            $sums,
            ", d8, d9",
        )
    };
    (32, $codes:literal, $less:literal, $sums:literal) => {
        concat!(
            "vld1.8 {{d4-d7}}, [",
            $codes,
            "]\n",
            $less,
            "vmull.s8 q4, d4, d0\n",
            "vmlal.s8 q4, d5, d1\n",
            "vmull.s8 q2, d6, d2\n",
            "vmlal.s8 q2, d7, d3\n",
            "vpaddl.s16 q4, q4\n",
            "vpadal.s16 q4, q2\n",
            "vpadd.i32 ",
            $sums,
            ", d8, d9",
        )
    };
}

/// Computes [`Vectors::dots`] for blocks of 16 or 32 codes. `$less` is the instruction that subtracts the bias from the
/// codes.
macro_rules! dots {
    ($n:tt, $less:literal, $codes:ident, $bias:ident, $q:ident, $out:ident) => {
        asm!(
            unit!(),
            quants!($n),
            "vdup.8 q5, {bias}",
            row!($n, "{a}", $less, "d12"),
            row!($n, "{b}", $less, "d13"),
            row!($n, "{c}", $less, "d14"),
            row!($n, "{d}", $less, "d15"),
            "vpadd.i32 d12, d12, d13",
            "vpadd.i32 d13, d14, d15",
            "vst1.32 {{d12-d13}}, [{out}]",
            q = in(reg) $q,
            bias = in(reg) u32::from($bias),
            a = in(reg) $codes[0],
            b = in(reg) $codes[1],
            c = in(reg) $codes[2],
            d = in(reg) $codes[3],
            out = in(reg) $out.as_mut_ptr(),
            out("d0") _, out("d1") _, out("d2") _, out("d3") _, out("d4") _, out("d5") _, out("d6") _, out("d7") _,
            out("d8") _, out("d9") _, out("d10") _, out("d12") _, out("d11") _, out("d13") _, out("d14") _, out("d15") _,
            options(nostack, preserves_flags),
        )
    };
}

// SAFETY: each block states what it reads and writes. Sums of 16 or 32 products of bytes are exact in 32 bits, and sums
// of two products are exact in 16 bits, because quants are at least -127.
unsafe impl Vectors for Fpu {
    type Bytes = Neon;
    const BYTES: Neon = Neon;

    #[inline(always)]
    fn store([a, b, c, d]: [f64; 4], to: &mut [u8; 32]) {
        // SAFETY: writes the 32 bytes of `to`.
        unsafe {
            asm!(
                unit!(),
                "vst1.8 {{d0-d3}}, [{to}]",
                to = in(reg) to.as_mut_ptr(),
                in("d0") a, in("d1") b, in("d2") c, in("d3") d,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn dots<const N: usize>(codes: [*const u8; 4], bias: u8, q: *const i8) -> [i32; 4] {
        let mut out = MaybeUninit::<[i32; 4]>::uninit();
        // SAFETY: reads N codes of each row and N quants, and writes the whole result.
        unsafe {
            // The match is resolved at compile time.
            match (N, bias) {
                (16, 0) => dots!(16, "", codes, bias, q, out),
                (16, _) => dots!(16, "vsub.i8 q2, q2, q5\n", codes, bias, q, out),
                (_, 0) => dots!(32, "", codes, bias, q, out),
                _ => dots!(32, "vsub.i8 q2, q2, q5\nvsub.i8 q3, q3, q5\n", codes, bias, q, out),
            }
            out.assume_init()
        }
    }
}

/// Operations on 32 bytes. Each of four registers has eight of the bytes.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Neon;

/// Runs one instruction on registers.
macro_rules! one {
    ($code:literal, $($operands:tt)*) => {{
        let out: f64;
        // SAFETY: uses registers only.
        unsafe {
            asm!(
                unit!(),
                $code,
                $($operands)*,
                out = lateout(dreg_low16) out,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        out
    }};
}

/// Runs one instruction on each eight bytes of two values.
macro_rules! each {
    ($code:literal, $a:ident, $b:ident) => {{
        let f = |a: f64, b: f64| one!($code, a = in(dreg_low16) a, b = in(dreg_low16) b);
        [f($a[0], $b[0]), f($a[1], $b[1]), f($a[2], $b[2]), f($a[3], $b[3])]
    }};
}

impl Bytes for Neon {
    type V = [f64; 4];
    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> [f64; 4] {
        let (a, b, c, d);
        // SAFETY: reads the 32 bytes of `bytes`.
        unsafe {
            asm!(
                unit!(),
                "vld1.8 {{d0-d3}}, [{bytes}]",
                bytes = in(reg) bytes.as_ptr(),
                out("d0") a, out("d1") b, out("d2") c, out("d3") d,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        [a, b, c, d]
    }
    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> [f64; 4] {
        let (a, b, c, d);
        // SAFETY: reads the 16 bytes of `bytes`.
        unsafe {
            asm!(
                unit!(),
                "vld1.8 {{d0-d1}}, [{bytes}]",
                "vmov.i8 q2, #15",
                "vshr.u8 q1, q0, #4",
                "vand q0, q0, q2",
                bytes = in(reg) bytes.as_ptr(),
                out("d0") a, out("d1") b, out("d2") c, out("d3") d, out("d4") _, out("d5") _,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        [a, b, c, d]
    }
    #[inline(always)]
    fn words(self, words: [u64; 4]) -> [f64; 4] {
        words.map(f64::from_bits)
    }
    #[inline(always)]
    fn splat(self, byte: u8) -> [f64; 4] {
        [one!("vdup.8 {out}, {byte}", byte = in(reg) u32::from(byte)); 4]
    }
    #[inline(always)]
    fn or(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each!("vorr {out}, {a}, {b}", a, b)
    }
    #[inline(always)]
    fn and(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each!("vand {out}, {a}, {b}", a, b)
    }
    #[inline(always)]
    fn xor(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each!("veor {out}, {a}, {b}", a, b)
    }
    #[inline(always)]
    fn add(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each!("vadd.i8 {out}, {a}, {b}", a, b)
    }
    #[inline(always)]
    fn sub(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each!("vsub.i8 {out}, {a}, {b}", a, b)
    }
    #[inline(always)]
    fn shift(self, x: [f64; 4], left: i32, mask: u8) -> [f64; 4] {
        let by = self.splat(left as u8); // a negative count shifts to the right
        self.and(each!("vshl.u8 {out}, {a}, {b}", x, by), self.splat(mask))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], [mut a, mut b, mut c, mut d]: [f64; 4]) -> [f64; 4] {
        // SAFETY: reads the 16 bytes of `table`.
        unsafe {
            asm!(
                unit!(),
                "vld1.8 {{d0-d1}}, [{table}]",
                "vtbl.8 {a}, {{d0-d1}}, {a}",
                "vtbl.8 {b}, {{d0-d1}}, {b}",
                "vtbl.8 {c}, {{d0-d1}}, {c}",
                "vtbl.8 {d}, {{d0-d1}}, {d}",
                table = in(reg) table.as_ptr(),
                a = inout(dreg_low16) a,
                b = inout(dreg_low16) b,
                c = inout(dreg_low16) c,
                d = inout(dreg_low16) d,
                out("d0") _, out("d1") _,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        [a, b, c, d]
    }
    #[inline(always)]
    fn spread(self, bits: u32) -> [f64; 4] {
        let bytes = bits.to_le_bytes().map(|byte| one!("vdup.8 {out}, {byte}", byte = in(reg) u32::from(byte)));
        let bit = [f64::from_bits(0x8040_2010_0804_0201); 4];
        each!("vtst.8 {out}, {a}, {b}", bytes, bit)
    }
    #[inline(always)]
    fn at_least(self, x: [f64; 4], least: u8) -> [f64; 4] {
        let least = self.splat(least);
        each!("vcge.u8 {out}, {a}, {b}", x, least)
    }
}
