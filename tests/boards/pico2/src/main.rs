//! Tells stories on the UART (GP0, 115200 baud), on both cores.
#![no_std]
#![no_main]

use core::fmt::Write;

use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::tokenizer::{Encode, Tokenizer};
#[cfg(target_arch = "arm")]
use arenite::workers::Pair;
use arenite::workers::Workers;
use arenite::{Error, Gguf, Model, Options, Plan, Session, Work, Workspace};
use hal::Clock;
use hal::fugit::{ExtU32, RateExtU32};
use hal::gpio::{FunctionUart, Pins};
#[cfg(target_arch = "arm")]
use hal::multicore::{Multicore, Stack};
use hal::uart::{DataBits, StopBits, UartConfig, UartPeripheral};
use hal::{Sio, Timer, Watchdog, pac};
use rp235x_hal as hal;
#[cfg(target_arch = "arm")]
use static_cell::StaticCell;

/// The boot ROM looks for this block in the first 4 KiB.
#[cfg(target_arch = "arm")]
#[unsafe(link_section = ".start_block")]
#[used]
pub static IMAGE: hal::block::ImageDef = hal::block::ImageDef::secure_exe();
// The same block for RISC-V, where an image starts with its first instruction. The block follows the startup code.
#[cfg(target_arch = "riscv32")]
core::arch::global_asm!(
    ".pushsection .init.rust, \"ax\"",
    ".balign 4",
    ".word 0xffffded3, 0x11010142, 0x000001ff, 0, 0xab123579",
    ".popsection"
);

/// The model in flash, which is read in place. Replace it by yours, and the features in Cargo.toml by those that
/// `arenite plan` prints. A model that needs more RAM than `within` allows does not compile.
static MODEL: &[u8] = arenite::include_model!("../../../../host-demo/models/stories.gguf");
const PLAN: Plan = Plan::of(MODEL, Options::new().context(256).batch(1).workers(2)).within(448 * 1024);
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
static KV: Workspace<{ PLAN.kv }> = Workspace::new();
static INDEX: Workspace<{ PLAN.tokenizer }> = Workspace::new();
const VOCABULARY: usize = 2048;
const PROMPT: &str = "One day, a little fox";

/// The second core's stack: 4096 words, or 16 KiB.
#[cfg(target_arch = "arm")]
static STACK: Stack<4096> = Stack::new();
#[cfg(target_arch = "arm")]
static PAIR: StaticCell<Pair> = StaticCell::new();

#[hal::entry]
fn main() -> ! {
    let Some(mut pac) = pac::Peripherals::take() else { halt() };
    let mut watchdog = Watchdog::new(pac.WATCHDOG);
    let (xosc, pll, usb) = (pac.XOSC, pac.PLL_SYS, pac.PLL_USB);
    let clocks =
        hal::clocks::init_clocks_and_plls(12_000_000, xosc, pac.CLOCKS, pll, usb, &mut pac.RESETS, &mut watchdog);
    let Ok(clocks) = clocks else { halt() };
    let sio = Sio::new(pac.SIO);
    let pins = Pins::new(pac.IO_BANK0, pac.PADS_BANK0, sio.gpio_bank0, &mut pac.RESETS);
    let pins = (pins.gpio0.into_function::<FunctionUart>(), pins.gpio1.into_function::<FunctionUart>());
    let serial = UartConfig::new(115_200.Hz(), DataBits::Eight, None, StopBits::One);
    let uart = UartPeripheral::new(pac.UART0, pins, &mut pac.RESETS).enable(serial, clocks.peripheral_clock.freq());
    let Ok(uart) = uart else { halt() };
    let timer = Timer::new_timer0(pac.TIMER0, &mut pac.RESETS, &clocks);

    // The second core helps with divided work. (This HAL starts it on Arm only.)
    #[cfg(target_arch = "arm")]
    let workers = {
        let (workers, mut helper) = PAIR.init(Pair::new()).split();
        let mut fifo = sio.fifo;
        let mut cores = Multicore::new(&mut pac.PSM, &mut pac.PPB, &mut fifo);
        let Some(stack) = STACK.take() else { halt() };
        let Ok(()) = cores.cores()[1].spawn(stack, move || helper.serve()) else { halt() };
        workers
    };
    #[cfg(target_arch = "riscv32")]
    let workers = arenite::workers::Serial;

    let print = |text: &str| uart.write_full_blocking(text.as_bytes());
    watchdog.start(2_000_000.micros());
    let told = tell(&workers, print, || watchdog.feed(), || timer.get_counter().ticks());
    watchdog.disable();
    let mut out = Out(print);
    let _ = match told {
        Ok((tokens, micros)) => write!(out, "\r\n\r\n{} tokens a second\r\n", tokens * 1_000_000 / micros.max(1)),
        Err(error) => write!(out, "\r\nerror: {error}\r\n"),
    };
    halt()
}

/// Tells a story. Returns the number of tokens after the prompt and the time they took.
fn tell(
    workers: &dyn Workers,
    mut print: impl FnMut(&str),
    mut feed: impl FnMut(),
    clock: impl Fn() -> u64,
) -> Result<(u64, u64), Error> {
    let gguf = Gguf::parse(MODEL)?;
    let model = Model::new(&gguf)?;
    let tokenizer = Tokenizer::new(&gguf, INDEX.take()?)?;
    let mut session = Session::new(&model, PLAN, WORKSPACE.take()?, KV.take()?)?.with_workers(workers);

    let (mut scratch, mut ids) = ([0; 1024], [0; 32]);
    let count = tokenizer.encode(PROMPT.as_bytes(), Encode::PROMPT, &mut scratch, &mut ids)?;
    // Each pass runs in steps of one layer, so that there is time for other work between the steps.
    let (engine, context) = session.parts();
    let works = &mut [Work::prefill(context, ids.get(..count).unwrap_or(&[]))];
    let mut pass = engine.begin(works)?;
    while pass.step() {
        feed();
    }
    drop(pass);

    let mut scratch = [0; Sampler::scratch_bytes(&Params::DEFAULT, VOCABULARY)];
    let mut sampler = Sampler::new(Params::DEFAULT, &[], model.spec().vocab, &mut scratch)?;
    let (mut random, mut decoder) = (Pcg32::new(clock()), tokenizer.decoder_after_prompt());
    print(PROMPT);
    let (start, mut tokens) = (clock(), 0);
    while session.position() < session.context() {
        let token = sampler.sample(session.logits_mut(), &mut random)?;
        if tokenizer.is_end(token) {
            break;
        }
        decoder.push(token, &tokenizer, &mut print)?;
        session.decode(token)?;
        tokens += 1;
        feed();
    }
    Ok((tokens, clock().wrapping_sub(start)))
}

struct Out<F>(F);

impl<F: Fn(&str)> Write for Out<F> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0(text);
        Ok(())
    }
}

fn halt() -> ! {
    loop {
        hal::arch::wfi();
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    halt()
}
