//! Tells a story in RTIC's idle task, preempted by an interrupt that blinks an LED. It runs under qemu as an mps2-an386 and
//! reports the longest delay of the LED.
#![no_std]
#![no_main]

use cortex_m_rt as _; // the startup code

/// Stands in for a chip's device crate, of which RTIC needs this constant. Replace it by the device crate of your chip.
mod device {
    pub const NVIC_PRIO_BITS: u8 = 3;
}

#[rtic::app(device = crate::device, peripherals = false)]
mod app {
    use arenite::sampler::argmax;
    use arenite::tokenizer::{Encode, Tokenizer};
    use arenite::{Error, Gguf, Model, Options, Plan, Session, Workspace};
    use cortex_m::peripheral::SYST;
    use cortex_m::peripheral::syst::SystClkSource;
    use cortex_m_semihosting::{debug, heprintln, hprint, hprintln};
    use heapless::String;

    /// The model in flash. Replace it by yours, and the features in Cargo.toml by those that `arenite plan` prints.
    static MODEL: &[u8] = arenite::include_model!("../../../../host-demo/models/hybrid.gguf");
    const PLAN: Plan = Plan::of(MODEL, Options::new().context(256).batch(1)).within(192 * 1024);
    static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
    static KV: Workspace<{ PLAN.kv }> = Workspace::new();
    static INDEX: Workspace<{ PLAN.tokenizer }> = Workspace::new();
    const PROMPT: &str = "One day";
    const TOKENS: usize = 64;

    const MEGAHERTZ: u32 = 25;
    /// Time between two changes of the LED, in microseconds and in cycles.
    const BLINK: u32 = 50_000;
    const CYCLES: u32 = BLINK * MEGAHERTZ;

    #[shared]
    struct Shared {
        blinks: Blinks,
    }

    #[local]
    struct Local {}

    /// Number of changes of the LED so far, and the maximum delay in cycles.
    #[derive(Clone, Copy, Default)]
    pub struct Blinks {
        changes: u32,
        latest: u32,
    }

    #[init]
    fn init(cx: init::Context) -> (Shared, Local) {
        let mut timer = cx.core.SYST;
        timer.set_clock_source(SystClkSource::Core);
        timer.set_reload(CYCLES - 1);
        timer.clear_current();
        timer.enable_interrupt();
        timer.enable_counter();
        (Shared { blinks: Blinks::default() }, Local {})
    }

    /// Runs whenever no interrupt is active: passes of the model do not have to be divided into steps or to yield.
    #[idle(shared = [blinks])]
    fn idle(mut cx: idle::Context) -> ! {
        let (start, before) = (cycles(), cx.shared.blinks.lock(|blinks| blinks.changes));
        let told = tell();
        let due = cycles().wrapping_sub(start) / CYCLES;
        let blinks = cx.shared.blinks.lock(|blinks| *blinks);
        if let Err(error) = &told {
            heprintln!("error: {}", error);
        }
        let (changes, latest) = (blinks.changes - before, blinks.latest.div_ceil(MEGAHERTZ));
        heprintln!("blinked {} times of {}, at most {} us late", changes, due, latest);
        let is_well = told.is_ok() && changes.abs_diff(due) <= 1 && latest < 100;
        debug::exit(if is_well { debug::EXIT_SUCCESS } else { debug::EXIT_FAILURE });
        loop {
            cortex_m::asm::wfi();
        }
    }

    /// Toggles the LED.
    #[task(binds = SysTick, shared = [blinks])]
    fn blink(mut cx: blink::Context) {
        // The timer counts down from its reload value.
        let late = CYCLES - 1 - SYST::get_current();
        // The board's first LED.
        let led = 0x4002_8000 as *mut u32;
        // SAFETY: the register of the LEDs, which no other code writes.
        unsafe { led.write_volatile(led.read_volatile() ^ 1) };
        cx.shared.blinks.lock(|blinks| {
            blinks.changes += 1;
            blinks.latest = blinks.latest.max(late);
        });
    }

    fn tell() -> Result<(), Error> {
        let gguf = Gguf::parse(MODEL)?;
        let model = Model::new(&gguf)?;
        let tokenizer = Tokenizer::new(&gguf, INDEX.take()?)?;
        let mut session = Session::new(&model, PLAN, WORKSPACE.take()?, KV.take()?)?;
        let mut scratch = [0; Tokenizer::scratch_bytes(PROMPT.len())];
        let prompt = tokenizer.encode_list::<{ PROMPT.len() + 1 }>(PROMPT.as_bytes(), Encode::PROMPT, &mut scratch)?;
        session.prefill(&prompt)?;
        hprint!("{}", PROMPT);
        let (mut decoder, mut text) = (tokenizer.decoder_after_prompt(), String::<64>::new());
        for made in 1..=TOKENS {
            let Some(token) = argmax(session.logits()).filter(|&token| !tokenizer.is_end(token)) else { break };
            decoder.write(token, &tokenizer, &mut text)?;
            hprint!("{}", text);
            text.clear();
            if made < TOKENS {
                session.decode(token)?;
            }
        }
        decoder.write_rest(&mut text)?;
        hprintln!("{}", text);
        Ok(())
    }

    /// The board's counter of cycles.
    fn cycles() -> u32 {
        // SAFETY: a register that is only read.
        unsafe { (0x4002_8018 as *const u32).read_volatile() }
    }
}

/// RTIC's code contains panics for cases that cannot happen; the rest of the program cannot panic.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    cortex_m_semihosting::debug::exit(cortex_m_semihosting::debug::EXIT_FAILURE);
    loop {
        cortex_m::asm::wfi();
    }
}
