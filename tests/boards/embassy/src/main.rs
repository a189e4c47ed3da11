//! Two tasks of one executor: a blinking LED, and a model that tells a story and yields after every layer. It runs
//! under qemu as an mps2-an386 and reports how late the LED was.
#![no_std]
#![no_main]

mod clock;

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use arenite::sampler::argmax;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Error, Gguf, Model, Options, Plan, Session, Work, Workspace};
use cortex_m_semihosting::{debug, heprintln, hprint, hprintln};
use embassy_executor::Spawner;
use embassy_futures::yield_now;
use embassy_time::{Duration, Instant, Ticker, Timer};
use heapless::String;

/// The model in flash. Replace it by yours, and the features in Cargo.toml by those that `arenite plan` prints.
static MODEL: &[u8] = arenite::include_model!("../../../../host-demo/models/hybrid.gguf");
/// The plan, with batches of one token: a step then takes little time.
const PLAN: Plan = Plan::of(MODEL, Options::new().context(256).batch(1)).within(192 * 1024);
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();
static INDEX: Workspace<{ PLAN.tokenizer }> = Workspace::new();
const PROMPT: &str = "One day";
const TOKENS: usize = 64;

/// Time between two changes of the LED.
const BLINK: Duration = Duration::from_millis(50);
/// Number of changes so far, and the maximum delay of a change in microseconds.
static CHANGES: AtomicU32 = AtomicU32::new(0);
static LATEST: AtomicU32 = AtomicU32::new(0);

#[embassy_executor::main]
async fn main(spawner: Spawner) {
    let Some(core) = cortex_m::Peripherals::take() else { return };
    clock::start(core.SYST);
    let is_well = match tell(spawner).await {
        Ok(start) => {
            // Let tasks run that became due in the last step.
            Timer::after_millis(1).await;
            let (changes, latest) = (CHANGES.load(Relaxed), LATEST.load(Relaxed));
            let due = start.elapsed().as_ticks() / BLINK.as_ticks();
            heprintln!("blinked {} times of {}, at most {} us late", changes, due, latest);
            u64::from(changes) == due && u64::from(latest) < BLINK.as_micros()
        }
        Err(error) => {
            heprintln!("error: {}", error);
            false
        }
    };
    debug::exit(if is_well { debug::EXIT_SUCCESS } else { debug::EXIT_FAILURE });
}

/// Toggles the LED. A [`Ticker`] gives the time of every change, so that no change is skipped unnoticed.
#[embassy_executor::task]
async fn blink(start: Instant) {
    // The board's first LED.
    let led = 0x4002_8000 as *mut u32;
    let mut ticker = Ticker::every(BLINK);
    ticker.reset_at(start);
    let mut due = start;
    loop {
        ticker.next().await;
        due += BLINK;
        // SAFETY: the register of the LEDs, which no other code writes.
        unsafe { led.write_volatile(led.read_volatile() ^ 1) };
        LATEST.fetch_max(due.elapsed().as_micros() as u32, Relaxed);
        CHANGES.fetch_add(1, Relaxed);
    }
}

/// Returns the time when the LED started to blink: after the setup, because building the tokenizer's index takes a
/// while. (After `arenite pack` the index is in flash.)
async fn tell(spawner: Spawner) -> Result<Instant, Error> {
    let gguf = Gguf::parse(MODEL)?;
    let model = Model::new(&gguf)?;
    let tokenizer = Tokenizer::new(&gguf, INDEX.take()?)?;
    let mut session = Session::new(&model, PLAN, WORKSPACE.take()?, KV.take()?)?;

    let mut scratch = [0; Tokenizer::scratch_bytes(PROMPT.len())];
    let prompt = tokenizer.encode_list::<{ PROMPT.len() + 1 }>(PROMPT.as_bytes(), Encode::PROMPT, &mut scratch)?;
    let start = Instant::now();
    if let Ok(blink) = blink(start) {
        spawner.spawn(blink);
    }
    run(&mut session, &prompt).await?;
    hprint!("{}", PROMPT);
    let (mut decoder, mut text) = (tokenizer.decoder_after_prompt(), String::<64>::new());
    for made in 1..=TOKENS {
        let Some(token) = argmax(session.logits()).filter(|&token| !tokenizer.is_end(token)) else { break };
        decoder.write(token, &tokenizer, &mut text)?;
        hprint!("{}", text);
        text.clear();
        if made < TOKENS {
            run(&mut session, &[token]).await?;
        }
    }
    decoder.write_rest(&mut text)?;
    hprintln!("{}", text);
    Ok(start)
}

/// Runs some tokens. Other tasks run between two layers.
async fn run(session: &mut Session<'_, '_>, tokens: &[arenite::TokenId]) -> Result<(), Error> {
    let (engine, context) = session.parts();
    let works = &mut [Work::prefill(context, tokens)];
    let mut pass = engine.begin(works)?;
    while pass.step() {
        yield_now().await;
    }
    Ok(())
}

/// This program's code does not panic, but embassy's contains panics for cases that cannot happen.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    debug::exit(debug::EXIT_FAILURE);
    loop {
        cortex_m::asm::wfi();
    }
}
