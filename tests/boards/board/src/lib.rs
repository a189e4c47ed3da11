//! The part of a program that depends on the board: emulated boards, and the host as their replacement.
#![cfg_attr(target_os = "none", no_std)]

#[cfg_attr(all(target_os = "none", target_arch = "arm"), path = "mps2.rs")]
#[cfg_attr(all(target_os = "none", target_arch = "riscv32"), path = "virt.rs")]
#[cfg_attr(not(target_os = "none"), path = "host.rs")]
mod machine;
#[cfg(all(feature = "microphone", target_os = "none", target_arch = "arm"))]
mod microphone;
#[cfg(target_os = "none")]
mod stack;

#[cfg(not(target_os = "none"))]
pub use machine::Stack;
pub use machine::{Board, exit, restart};
#[cfg(all(feature = "microphone", target_os = "none", target_arch = "arm"))]
pub use microphone::{Microphone, RATE};
#[cfg(target_os = "none")]
pub use stack::{Stack, statics};

/// Instructions are counted between calls of this function: see `benches/instructions.c`.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn mark() {
    // SAFETY: an empty instruction sequence that the compiler cannot see through.
    unsafe { core::arch::asm!("") };
}

/// Does nothing. A program calls it where it could do other work; the longest run of instructions between two calls is
/// measured like those between [`mark`]s.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn poll() {
    // SAFETY: as above. The comment keeps the compiler from merging the two functions.
    unsafe { core::arch::asm!("// poll") };
}

/// Starts the program with a function that returns true if all is well. The program is `no_std` and `no_main` on a board.
#[macro_export]
macro_rules! main {
    ($run:path) => {
        #[cfg(target_os = "none")]
        #[unsafe(export_name = "main")]
        extern "C" fn start() -> ! {
            $crate::exit($run())
        }

        #[cfg(not(target_os = "none"))]
        fn main() {
            $crate::exit($run())
        }
    };
}

/// Lets the linker prove that the program cannot panic: the panic handler calls a function that does not exist.
#[macro_export]
macro_rules! no_panic {
    () => {
        #[cfg(target_os = "none")]
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            unsafe extern "C" {
                fn panic_is_possible() -> !;
            }
            // SAFETY: never reached, or the program would not have been linked.
            unsafe { panic_is_possible() }
        }
    };
}
