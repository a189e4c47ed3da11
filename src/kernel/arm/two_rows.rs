//! Data and assembly shared by the kernels that multiply blocks of two rows with SMLAD (two products of 16 bits at
//! once).

/// A block of a token's quants as pairs of i16, prepared once for all rows. Four bytes become two pairs: bytes 0 and 2,
/// and bytes 1 and 3.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Spread {
    /// In formats whose bytes have one code in each half: the start value of the integer sums, which is `-256 * bias *
    /// sum(quants)` or, if the format has minimums, the sum of the quants as the bits of an f32. In formats of which
    /// two blocks are read together, in words: the bits of the second block's scale, in the first block of the two.
    /// Otherwise 0.
    pub(super) start: i32,
    pub(super) scale: f32,
    pub(super) pairs: [[u32; 4]; 4],
}

/// Defines a kernel that adds the dot products of one or more blocks of rows to the outputs. `$start` is the code that
/// runs before each pair of rows. `$block` multiplies one or two blocks of the token at r0 with the blocks of two rows
/// at r1 and r2, and adds the results to the sums in s0 and s1. `$block` may use s2 to s11. All other code leaves r12
/// as `$start` has set it, or as the address of `$table`.
macro_rules! kernel {
    ($name:ident, $start:expr, $($block:expr,)*) => {
        kernel!($name(out("r12") _,), $start, $($block,)*);
    };
    ($name:ident of $table:ident, $start:expr, $($block:expr,)*) => {
        kernel!($name(in("r12") $table.as_ptr(),), $start, $($block,)*);
    };
    ($name:ident($($r12:tt)*), $start:expr, $($block:expr,)*) => {
        /// # Safety
        ///
        /// The token's blocks from `x` to `end`, at least one, are written. `a` and `b` point to the same number of
        /// blocks of the first two rows. The blocks of the next two rows begin `step` bytes after the end of the blocks
        /// of the first two, and so on. There are as many rows as floats between `out` and `out_end`, an even number.
        #[inline(never)]
        pub(super) unsafe fn $name(
            x: *const Spread,
            a: *const u8,
            b: *const u8,
            end: *const Spread,
            step: usize,
            out: *mut f32,
            out_end: *const f32,
        ) {
            // SAFETY: reads the blocks and writes the outputs that the caller promises. r6 and r7, which cannot be
            // operands, are saved on the stack and restored.
            unsafe {
                asm!(
                    "push {{r6, r7}}",
                    "push {{r4, r5, r8}}",
                    "mov r7, r3",
                    "2:",
                    "vldmia r7, {{s0-s1}}",
                    $start,
                    "3:",
                    $($block,)*
                    "cmp r0, lr",
                    "bne 3b",
                    "vstmia r7!, {{s0-s1}}",
                    "ldmia sp, {{r0, r3, r4}}",
                    "add r1, r1, r3",
                    "add r2, r2, r3",
                    "cmp r7, r4",
                    "bne 2b",
                    "pop {{r4, r5, r8}}",
                    "pop {{r6, r7}}",
                    inout("r0") x => _,
                    inout("r1") a => _,
                    inout("r2") b => _,
                    inout("r3") out => _,
                    in("r4") x,
                    in("r5") step,
                    in("r8") out_end,
                    in("lr") end,
                    out("r9") _,
                    out("r10") _,
                    out("r11") _,
                    $($r12)*
                    out("s0") _, out("s1") _, out("s2") _, out("s3") _, out("s4") _, out("s5") _, out("s6") _, out("s7") _, out("s8") _,
                    out("s9") _, out("s10") _, out("s11") _,
                );
            }
        }
    };
}
pub(super) use kernel;

/// Loads eight quants.
macro_rules! quants {
    () => {
        "ldmia r0!, {{r5, r8, r9, r10}}\n"
    };
}
pub(super) use quants;

/// Adds a block of each of two rows to the sums in s0 and s1, by one multiply-add each. The scales of the rows are in
/// the bottom or top halves of `$a` and `$b`, the token's scale is in `$x`. The integer sums are in r3 and r4, with
/// `$fraction` bits after the binary point (no bits if `$fraction` is empty).
macro_rules! add {
    ($half:literal, $a:literal, $b:literal, $x:literal, $fraction:literal) => {
        concat!(
            "vmov s10, s11, r3, r4\n",
            "vcvt",
            $half,
            ".f32.f16 ",
            $a,
            ", ",
            $a,
            "\n",
            "vcvt",
            $half,
            ".f32.f16 ",
            $b,
            ", ",
            $b,
            "\n",
            "vcvt.f32.s32 s10, s10",
            $fraction,
            "\n",
            "vcvt.f32.s32 s11, s11",
            $fraction,
            "\n",
            "vmul.f32 ",
            $a,
            ", ",
            $a,
            ", ",
            $x,
            "\n",
            "vmul.f32 ",
            $b,
            ", ",
            $b,
            ", ",
            $x,
            "\n",
            "vfma.f32 s0, ",
            $a,
            ", s10\n",
            "vfma.f32 s1, ",
            $b,
            ", s11\n",
        )
    };
}
pub(super) use add;

/// Adds the products of a block to the sums of two rows, which are in s0 and s1. The halves of r6 and r11 are the
/// blocks' scales and minimums. r3 and r4 have the integer sums, with eight bits after the binary point. s5 has the
/// scale of the token, and s4 the sum of its quants.
macro_rules! add_with_minimums {
    () => {
        "vmov s6, s7, r6, r11
        vmov s10, s11, r3, r4
        vcvtt.f32.f16 s8, s6
        vcvtt.f32.f16 s9, s7
        vcvtb.f32.f16 s6, s6
        vcvtb.f32.f16 s7, s7
        vcvt.f32.s32 s10, s10, #8
        vcvt.f32.s32 s11, s11, #8
        vmul.f32 s6, s6, s5
        vmul.f32 s7, s7, s5
        vmul.f32 s8, s8, s5
        vmul.f32 s9, s9, s5
        vfma.f32 s0, s6, s10
        vfma.f32 s1, s7, s11
        vfma.f32 s0, s8, s4
        vfma.f32 s1, s9, s4
        "
    };
}
pub(super) use add_with_minimums;
