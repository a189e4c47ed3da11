//! Intel AMX: the permission to use tiles, the configuration of tiles, and the product of two tiles.
//!
//! A tile register has up to 16 rows of 64 bytes. Intel's *Software Developer's Manual* describes tiles in volume 1
//! ("Programming with Intel AMX"), and the instructions in volume 2.

use core::arch::asm;
use core::arch::x86_64::*;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use super::cpuid;
use super::pack::LINE;

/// Tokens that are multiplied at once.
pub(super) const TOKENS: usize = 16;

/// True once [`request`] has succeeded.
static PERMITTED: AtomicBool = AtomicBool::new(false);

/// True if the process has the permission to use tiles.
pub(super) fn is_permitted() -> bool {
    PERMITTED.load(Ordering::Relaxed)
}

/// Asks the operating system for the permission to use tiles. Returns true if the processor has AMX with int8 products,
/// and the process now has the permission.
pub(super) fn request() -> bool {
    // CPUID reports AMX-TILE and AMX-INT8. XCR0 reports that the system saves the configuration and the data of tiles.
    let has_tiles = cpuid(7, 0).edx >> 24 & 3 == 3 && cpuid(1, 0).ecx >> 27 & 1 != 0 && {
        // SAFETY: CPUID's bit 27 (OSXSAVE) says that the instruction that reads XCR0 is enabled.
        let saved = unsafe { xcr0() };
        saved >> 17 & 3 == 3
    };
    let is_permitted = has_tiles && ask();
    PERMITTED.store(is_permitted, Ordering::Relaxed);
    is_permitted
}

#[target_feature(enable = "xsave")]
fn xcr0() -> u64 {
    // SAFETY: register 0 exists wherever the instruction does.
    unsafe { _xgetbv(0) }
}

/// Makes the system call `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`. Returns true if the call succeeds.
#[cfg(target_os = "linux")]
fn ask() -> bool {
    const ARCH_PRCTL: isize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: the call accesses no memory of the process. The instruction overwrites RCX and R11.
    unsafe {
        asm!("syscall", inlateout("rax") result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result == 0
}

/// Returns false: tiles are used under Linux only.
#[cfg(not(target_os = "linux"))]
fn ask() -> bool {
    false
}

/// The operand of `ldtilecfg`.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Configuration {
    /// Configures two tiles of sums (tmm0, tmm1), two tiles of activations (tmm2, tmm3) and two tiles of codes (tmm4,
    /// tmm5), for groups of `span` weights.
    const fn of(span: usize) -> Self {
        let mut this = Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut set = 0;
        while set < 2 {
            (this.rows[set], this.row_bytes[set]) = (TOKENS as u8, LINE as u16);
            (this.rows[2 + set], this.row_bytes[2 + set]) = (TOKENS as u8, span as u16);
            (this.rows[4 + set], this.row_bytes[4 + set]) = (span as u8 / 4, LINE as u16);
            set += 1;
        }
        this
    }
}

/// Runs `f` with tiles for groups of `SPAN` weights. Releases the tiles at the end, so that the system need not save
/// the tiles' 8 KB when it switches threads.
///
/// # Safety
///
/// The processor has AMX, and the process has the permission to use AMX. `f` does not panic.
#[inline(always)]
pub(super) unsafe fn with_tiles<const SPAN: usize>(f: impl FnOnce()) {
    let configuration = const { &Configuration::of(SPAN) };
    // SAFETY: the configuration is valid, and no code but `Scratch::multiply` uses tiles. Compiled code neither uses
    // nor changes them.
    unsafe { asm!("ldtilecfg [{}]", in(reg) configuration, options(readonly, nostack, preserves_flags)) };
    f();
    // SAFETY: all code that uses tiles declares them as overwritten.
    unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
}

/// Two tiles of sums in memory: the tile unit writes one while the vector units read the other.
#[repr(C, align(64))]
pub(super) struct Scratch([MaybeUninit<[[i32; 16]; TOKENS]>; 2]);

impl Scratch {
    pub fn new() -> Self {
        Self([MaybeUninit::uninit(); 2])
    }

    /// Returns the address of the sums of group `g`: for each token a line with the sums of 16 rows. Only the sums of
    /// the two groups that were multiplied last exist.
    #[inline(always)]
    fn sums(&self, g: usize) -> *const __m512i {
        self.0.as_ptr().wrapping_add(g % 2).cast()
    }

    /// Returns the sums of group `g` for token `t`: one sum for each row.
    ///
    /// # Safety
    ///
    /// The processor has AVX-512, and group `g` is one of the last two multiplied groups.
    #[inline(always)]
    pub unsafe fn token(&self, g: usize, t: usize) -> __m512i {
        // SAFETY: the caller promises that `multiply` has written this group's sums.
        unsafe { _mm512_load_si512(self.sums(g).add(t)) }
    }

    /// Multiplies group `g` of 16 rows with 16 tokens. The rows' lines of codes are at `w`, and the tokens' activations
    /// are at `q`, `cols` bytes apart.
    ///
    /// # Safety
    ///
    /// The call is inside of [`with_tiles`]. There are as many codes and activations as a group of these tiles has.
    #[inline(always)]
    pub unsafe fn multiply(&mut self, g: usize, w: *const u8, q: *const i8, cols: usize) {
        let to = self.0.as_mut_ptr().wrapping_add(g % 2);
        macro_rules! multiply {
            ($sums:tt $q:tt $w:tt) => {
                // SAFETY: the tiles were configured. Their contents are read from the codes and the activations that
                // the caller promises. The sums are written to one of the two tiles in memory.
                unsafe {
                    asm!(
                        concat!("tilezero ", $sums),
                        concat!("tileloadd ", $w, ", [{w} + {line} * 1]"),
                        concat!("tileloadd ", $q, ", [{q} + {cols} * 1]"),
                        concat!("tdpbsud ", $sums, ", ", $q, ", ", $w),
                        concat!("tilestored [{to} + {line} * 1], ", $sums),
                        w = in(reg) w, q = in(reg) q, cols = in(reg) cols, line = in(reg) LINE, to = in(reg) to,
                        out($sums) _, out($q) _, out($w) _, options(nostack, preserves_flags)
                    );
                }
            };
        }
        if g.is_multiple_of(2) {
            multiply!("tmm0" "tmm2" "tmm4");
        } else {
            multiply!("tmm1" "tmm3" "tmm5");
        }
    }
}
