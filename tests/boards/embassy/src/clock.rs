//! A time driver for embassy that uses only SysTick. Chips with an embassy HAL have their own driver instead.

use core::cell::{Cell, RefCell};
use core::task::Waker;

use cortex_m::peripheral::syst::SystClkSource;
use cortex_m::peripheral::{SCB, SYST};
use cortex_m_rt::exception;
use critical_section::{CriticalSection, Mutex};
use embassy_time_driver::Driver;
use embassy_time_queue_utils::Queue;

/// Cycles per microsecond, which is embassy's tick here.
const CYCLES: u32 = 25;
/// Microseconds between two interrupts, the maximum delay of an alarm.
const PERIOD: u32 = 500;

struct Clock {
    /// Number of interrupts so far.
    periods: Mutex<Cell<u64>>,
    queue: Mutex<RefCell<Queue>>,
}

embassy_time_driver::time_driver_impl!(static CLOCK: Clock = Clock {
    periods: Mutex::new(Cell::new(0)),
    queue: Mutex::new(RefCell::new(Queue::new())),
});

impl Clock {
    fn now_within(&self, cs: CriticalSection<'_>) -> u64 {
        let mut cycles = SYST::get_current();
        let mut periods = self.periods.borrow(cs).get();
        // The counter may have restarted since interrupts were disabled.
        if SCB::is_pendst_pending() {
            cycles = SYST::get_current();
            periods += 1;
        }
        periods * u64::from(PERIOD) + u64::from((PERIOD * CYCLES - 1 - cycles) / CYCLES)
    }

    fn wake(&self, cs: CriticalSection<'_>) {
        let now = self.now_within(cs);
        if let Ok(mut queue) = self.queue.borrow(cs).try_borrow_mut() {
            queue.next_expiration(now);
        }
    }
}

impl Driver for Clock {
    fn now(&self) -> u64 {
        critical_section::with(|cs| self.now_within(cs))
    }

    fn schedule_wake(&self, at: u64, waker: &Waker) {
        critical_section::with(|cs| {
            let is_next = self.queue.borrow(cs).try_borrow_mut().is_ok_and(|mut queue| queue.schedule_wake(at, waker));
            if is_next {
                self.wake(cs); // the alarm may be due already
            }
        });
    }
}

#[exception]
fn SysTick() {
    critical_section::with(|cs| {
        let periods = CLOCK.periods.borrow(cs);
        periods.set(periods.get() + 1);
        CLOCK.wake(cs);
    });
}

/// Starts the clock.
pub fn start(mut systick: SYST) {
    systick.set_clock_source(SystClkSource::Core);
    systick.set_reload(PERIOD * CYCLES - 1);
    systick.clear_current();
    systick.enable_interrupt();
    systick.enable_counter();
}
