//! Macros of assembly for the floating-point unit, shared by the files of this folder.

/// The start values of sums.
pub(super) static ZEROS: [f32; 16] = [0.0; 16];

/// The assembler directive that makes the assembler accept instructions that are only detected at run time.
#[cfg(arm_linux)]
macro_rules! unit {
    () => {
        ".fpu neon-vfpv4"
    };
}
/// No directive, because the target has the instructions.
#[cfg(not(arm_linux))]
macro_rules! unit {
    () => {
        ""
    };
}
pub(super) use unit;

/// Aligns code that takes addresses of its own labels. The assembler computes these addresses relative to a word
/// boundary, but a function may begin in the middle of a word.
macro_rules! on_words {
    () => {
        ".p2align 2"
    };
}
pub(super) use on_words;

/// `asm!` that clobbers all registers of the floating-point unit.
macro_rules! fpu {
    ($($code:expr,)* ; $($operands:tt)*) => {
        core::arch::asm!(
            $crate::kernel::arm::assembly::unit!(),
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
pub(super) use fpu;

/// Assembly that, for each pair of registers, adds the second register to the first.
macro_rules! sums {
    ($($x:literal $y:literal),*) => { concat!($("vadd.f32 ", $x, ", ", $x, ", ", $y, "\n",)*) };
}
pub(super) use sums;

/// Adds up sixteen lanes as a tree. The total goes to the first register. The arguments are the registers of the eight
/// lower lanes, then the registers of the eight upper lanes; s0 to s15 by default.
macro_rules! tree {
    () => {
        tree!("s0" "s1" "s2" "s3" "s4" "s5" "s6" "s7", "s8" "s9" "s10" "s11" "s12" "s13" "s14" "s15")
    };
    (
        $a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal $h:literal,
        $i:literal $j:literal $k:literal $l:literal $m:literal $n:literal $o:literal $p:literal
    ) => {
        concat!(
            sums!($a $i, $b $j, $c $k, $d $l, $e $m, $f $n, $g $o, $h $p),
            sums!($a $e, $b $f, $c $g, $d $h),
            sums!($a $c, $b $d),
            sums!($a $b),
        )
    };
}
pub(super) use tree;
