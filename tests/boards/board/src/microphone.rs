//! A microphone: an interrupt stores samples in a ring, whatever the program does meanwhile. The emulator has no
//! microphone, so a recording is played, again and again.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};

use cortex_m_rt::exception;

/// Samples per second, and samples that each interrupt stores.
pub const RATE: usize = 16_000;
const SAMPLES: usize = RATE / 1000;
/// Bytes of the ring: a second.
const RING_LEN: usize = 1 << 14;
/// Registers of the timer SysTick: control, and the value from which it counts down.
const CONTROL: *mut u32 = 0xE000_E010 as *mut u32;
const RELOAD: *mut u32 = 0xE000_E014 as *mut u32;
const CYCLES_PER_MILLISECOND: u32 = 25_000;

static RING: [AtomicU8; RING_LEN] = [const { AtomicU8::new(0) }; RING_LEN];
/// Number of samples that the interrupt has stored, and that the program has read. The difference is in the ring.
static STORED: AtomicUsize = AtomicUsize::new(0);
static READ: AtomicUsize = AtomicUsize::new(0);
/// Number of samples for which the ring had no room.
static LOST: AtomicUsize = AtomicUsize::new(0);
/// Place of the recording, and where the next sample comes from.
static START: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);

/// The microphone, which can be started once.
pub struct Microphone(());

impl Microphone {
    /// Starts to store samples of a recording, one byte each. `None` if the microphone is on, or for an empty recording.
    pub fn start(recording: &'static [u8]) -> Option<Self> {
        if recording.is_empty() || IS_ON.load(Relaxed) {
            return None;
        }
        IS_ON.store(true, Relaxed);
        START.store(recording.as_ptr() as usize, Relaxed);
        LEN.store(recording.len(), Relaxed);
        // SAFETY: these are registers of the processor.
        unsafe {
            RELOAD.write_volatile(CYCLES_PER_MILLISECOND - 1);
            CONTROL.write_volatile(7); // on, with interrupts, counts cycles of the processor
        }
        Some(Self(()))
    }

    /// Fills `samples`. The processor sleeps until there are enough samples.
    pub fn read(&mut self, samples: &mut [u8]) {
        for sample in samples {
            let read = READ.load(Relaxed);
            while STORED.load(Relaxed) == read {
                // SAFETY: waits for an interrupt.
                unsafe { core::arch::asm!("wfi") };
            }
            *sample = RING[read % RING_LEN].load(Relaxed);
            READ.store(read.wrapping_add(1), Relaxed);
        }
    }

    /// Number of samples for which the ring had no room.
    pub fn lost(&self) -> usize {
        LOST.load(Relaxed)
    }
}

#[exception]
fn SysTick() {
    let (start, len) = (START.load(Relaxed) as *const u8, LEN.load(Relaxed));
    for _ in 0..SAMPLES {
        let next = NEXT.load(Relaxed);
        // SAFETY: `next` is below the length of the recording, which is static.
        let sample = unsafe { *start.add(next) };
        NEXT.store(if next + 1 < len { next + 1 } else { 0 }, Relaxed);
        let stored = STORED.load(Relaxed);
        if stored.wrapping_sub(READ.load(Relaxed)) == RING_LEN {
            LOST.store(LOST.load(Relaxed) + 1, Relaxed);
        } else {
            RING[stored % RING_LEN].store(sample, Relaxed);
            STORED.store(stored.wrapping_add(1), Relaxed);
        }
    }
}
