//! Runs [`Format::unpack`](crate::quant::Format::unpack) on four codes at a time, which are in one register.

use core::arch::asm;

use super::pairs::FLAGS;
use crate::quant::Bytes;

/// The word `0..8` of a chunk.
#[derive(Clone, Copy)]
pub(super) struct Word(pub usize);

/// The byte in all bytes of a word.
const fn each(byte: u8) -> u32 {
    0x0101_0101 * byte as u32
}

/// Returns `x` in a register, as a value that the compiler knows nothing about.
#[inline(always)]
pub(super) fn in_register(mut x: u32) -> u32 {
    // SAFETY: no instructions.
    unsafe { asm!("/* {0} */", inout(reg) x, options(pure, nomem, nostack, preserves_flags)) };
    x
}

/// Some bits of a word: those of `mask`, after the word was shifted to the left by `left` bits (to the right if `left`
/// is negative).
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub x: u32,
    pub mask: u32,
    pub left: i32,
}

#[inline(always)]
const fn shifted(x: u32, left: i32) -> u32 {
    if left < 0 { x >> (left.unsigned_abs() % 32) } else { x << (left as u32 % 32) }
}

impl Field {
    #[inline(always)]
    fn whole(x: u32) -> Self {
        Self { x, mask: u32::MAX, left: 0 }
    }
    /// One instruction, with the mask in a register.
    #[inline(always)]
    pub fn value(self) -> u32 {
        match (self.mask, self.left) {
            (u32::MAX, left) => shifted(self.x, left),
            (mask, 0) => self.x & mask,
            (mask, left) => shifted(self.x, left) & in_register(shifted(mask, left)),
        }
    }
    /// Returns the field's bits as an operand that may still have to be shifted. This takes one instruction and no
    /// register for the mask, because the instruction that uses the operand also shifts it.
    #[inline(always)]
    fn operand(self) -> u32 {
        match (self.mask, self.left) {
            (u32::MAX, left) => shifted(self.x, left),
            (mask, 0) => self.x & mask,
            (mask, left) => shifted(in_register(self.x & mask), left),
        }
    }
}

/// An instruction with two operands.
macro_rules! of_two {
    ($instruction:literal, $a:expr, $b:expr) => {{
        let out: u32;
        // SAFETY: uses registers only.
        unsafe {
            asm!(
                concat!($instruction, " {out}, {a}, {b}"),
                out = lateout(reg) out,
                a = in(reg) $a,
                b = in(reg) $b,
                options(pure, nomem, nostack),
            );
        }
        out
    }};
}

pub(super) use of_two;

impl Bytes for Word {
    type V = Field;
    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> Field {
        // SAFETY: the word is one of the eight.
        Field::whole(unsafe { bytes.as_ptr().cast::<u32>().add(self.0 % 8).read_unaligned() })
    }
    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> Field {
        // SAFETY: the word is one of the four.
        let x = unsafe { bytes.as_ptr().cast::<u32>().add(self.0 % 4).read_unaligned() };
        self.shift(Field::whole(x), if self.0 < 4 { 0 } else { -4 }, 15)
    }
    #[inline(always)]
    fn words(self, words: [u64; 4]) -> Field {
        Field::whole((words[self.0 / 2 % 4] >> (32 * (self.0 % 2))) as u32)
    }
    #[inline(always)]
    fn splat(self, byte: u8) -> Field {
        Field::whole(each(byte))
    }
    #[inline(always)]
    fn or(self, a: Field, b: Field) -> Field {
        Field::whole(a.operand() | b.operand())
    }
    #[inline(always)]
    fn and(self, a: Field, b: Field) -> Field {
        Field::whole(a.value() & b.value())
    }
    #[inline(always)]
    fn xor(self, a: Field, b: Field) -> Field {
        Field::whole(a.value() ^ b.value())
    }
    #[inline(always)]
    fn add(self, a: Field, b: Field) -> Field {
        Field::whole(of_two!("uadd8", a.value(), b.value()))
    }
    #[inline(always)]
    fn sub(self, a: Field, b: Field) -> Field {
        Field::whole(of_two!("usub8", a.value(), b.value()))
    }
    #[inline(always)]
    fn shift(self, x: Field, left: i32, mask: u8) -> Field {
        // The mask leaves no bit that comes from another byte.
        Field { x: x.value(), mask: shifted(each(mask), -left), left }
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], x: Field) -> Field {
        Field::whole(u32::from_le_bytes(x.value().to_le_bytes().map(|x| table[usize::from(x % 16)])))
    }
    #[inline(always)]
    fn spread(self, bits: u32) -> Field {
        // SAFETY: no instructions.
        let flags: &[u32; 16] = unsafe {
            let mut at = FLAGS.as_ptr();
            asm!("/* {0} */", inout(reg) at, options(pure, readonly, nostack, preserves_flags));
            &*at.cast()
        };
        Field::whole((flags[(bits >> (4 * self.0 % 32) & 15) as usize] >> 4) * 255)
    }
    #[inline(always)]
    fn at_least(self, x: Field, least: u8) -> Field {
        let out: u32;
        // SAFETY: uses registers only.
        unsafe {
            asm!(
                "usub8 {out}, {x}, {least}",
                "sel {out}, {ones}, {zero}",
                out = out(reg) out,
                x = in(reg) x.value(),
                least = in(reg) each(least),
                ones = in(reg) u32::MAX,
                zero = in(reg) 0,
                options(pure, nomem, nostack),
            );
        }
        Field::whole(out)
    }
}
