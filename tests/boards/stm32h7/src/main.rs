//! Tells stories on USART1 (PA9, 115200 baud). The model is in mapped QSPI flash, workspace and stack are in tightly
//! coupled RAM, KV cache and index in the larger RAM.
#![no_std]
#![no_main]

use core::fmt::Write;

use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Error, Gguf, Model, Options, Plan, Session, Workspace};
use cortex_m::peripheral::DWT;
use cortex_m_rt::entry;
use hal::gpio::Speed;
use hal::pac;
use hal::prelude::*;
use stm32h7xx_hal as hal;

/// The model, read in place at 0x9000_0000. Replace it by yours, and the features in Cargo.toml by those that `arenite
/// plan` prints.
static MODEL: &[u8] = arenite::include_model!("../../../../host-demo/models/stories.gguf", section = unsafe(".qspi"));
const PLAN: Plan = Plan::of(MODEL, Options::new().context(256).batch(1)).within(512 * 1024);
static WORKSPACE: Workspace<{ PLAN.workspace }> = Workspace::new();
#[unsafe(link_section = ".axisram")]
static KV: Workspace<{ PLAN.kv }> = Workspace::new();
#[unsafe(link_section = ".axisram")]
static INDEX: Workspace<{ PLAN.tokenizer }> = Workspace::new();
const VOCABULARY: usize = 2048;
const PROMPT: &str = "One day, a little fox";

#[entry]
fn main() -> ! {
    clear_axisram();
    let (Some(mut core), Some(chip)) = (cortex_m::Peripherals::take(), pac::Peripherals::take()) else { halt() };
    let power = chip.PWR.constrain().freeze();
    let ccdr = chip.RCC.constrain().sys_ck(400.MHz()).freeze(power, &chip.SYSCFG);
    let (a, b) = (chip.GPIOA.split(ccdr.peripheral.GPIOA), chip.GPIOB.split(ccdr.peripheral.GPIOB));
    let (d, e) = (chip.GPIOD.split(ccdr.peripheral.GPIOD), chip.GPIOE.split(ccdr.peripheral.GPIOE));

    let _select = b.pb6.into_alternate::<10>().speed(Speed::VeryHigh);
    let pins = (
        b.pb2.into_alternate().speed(Speed::VeryHigh),
        d.pd11.into_alternate().speed(Speed::VeryHigh),
        d.pd12.into_alternate().speed(Speed::VeryHigh),
        e.pe2.into_alternate().speed(Speed::VeryHigh),
        d.pd13.into_alternate().speed(Speed::VeryHigh),
    );
    let qspi = chip.QUADSPI.bank1(pins, 66.MHz(), &ccdr.clocks, ccdr.peripheral.QSPI);
    map(qspi.inner());
    // The caches are enabled after `map`, so that the processor does not prefetch from flash that is not mapped yet.
    core.SCB.enable_icache();
    core.SCB.enable_dcache(&mut core.CPUID);

    let pins = (a.pa9.into_alternate(), a.pa10.into_alternate());
    let Ok(serial) = chip.USART1.serial(pins, 115_200.bps(), ccdr.peripheral.USART1, &ccdr.clocks) else { halt() };
    let (mut out, _) = serial.split();
    core.DCB.enable_trace();
    core.DWT.enable_cycle_counter();
    let _ = match tell(&mut out) {
        Ok((tokens, cycles)) => write!(out, "\r\n\r\n{} cycles a token\r\n", cycles / tokens.max(1)),
        Err(error) => write!(out, "\r\nerror: {error}\r\n"),
    };
    halt()
}

/// Maps the flash with its command 0x6B, "fast read quad output", which every quad flash has: command and 24-bit
/// address on one line, eight dummy cycles, data on four lines. (The flash's QE bit must be set; a W25Q64JV..IQ has
/// it set by the factory.)
fn map(qspi: &pac::quadspi::RegisterBlock) {
    const MAPPED: u8 = 3;
    const ON_ONE_LINE: u8 = 1;
    const ON_FOUR_LINES: u8 = 3;
    const BITS_24: u8 = 2;
    qspi.ccr.write(|w| unsafe {
        w.fmode().bits(MAPPED).imode().bits(ON_ONE_LINE).instruction().bits(0x6B);
        w.admode().bits(ON_ONE_LINE).adsize().bits(BITS_24).dcyc().bits(8).dmode().bits(ON_FOUR_LINES)
    });
}

/// Zeroes the RAM that the run-time does not clear, before anything in it is used.
fn clear_axisram() {
    unsafe extern "C" {
        static mut _axisram_start: u32;
        static mut _axisram_end: u32;
    }
    // SAFETY: the words between these two addresses of the linker belong to statics that are not in use yet.
    unsafe {
        let mut at = &raw mut _axisram_start;
        while at < &raw mut _axisram_end {
            at.write_volatile(0);
            at = at.add(1);
        }
    }
}

/// Tells a story. Returns the number of tokens after the prompt and the cycles they took.
fn tell(out: &mut impl Write) -> Result<(u64, u64), Error> {
    let gguf = Gguf::parse(MODEL)?;
    let model = Model::new(&gguf)?;
    let tokenizer = Tokenizer::new(&gguf, INDEX.take()?)?;
    let mut session = Session::new(&model, PLAN, WORKSPACE.take()?, KV.take()?)?;

    let (mut scratch, mut ids) = ([0; 1024], [0; 32]);
    let count = tokenizer.encode(PROMPT.as_bytes(), Encode::PROMPT, &mut scratch, &mut ids)?;
    session.prefill(ids.get(..count).unwrap_or(&[]))?;

    let mut scratch = [0; Sampler::scratch_bytes(&Params::DEFAULT, VOCABULARY)];
    let mut sampler = Sampler::new(Params::DEFAULT, &[], model.spec().vocab, &mut scratch)?;
    let (mut random, mut decoder) = (Pcg32::new(DWT::cycle_count().into()), tokenizer.decoder_after_prompt());
    let _ = out.write_str(PROMPT);
    let (mut tokens, mut cycles) = (0, 0);
    while session.position() < session.context() {
        let token = sampler.sample(session.logits_mut(), &mut random)?;
        if tokenizer.is_end(token) {
            break;
        }
        decoder.write(token, &tokenizer, out)?;
        let start = DWT::cycle_count();
        session.decode(token)?;
        cycles += u64::from(DWT::cycle_count().wrapping_sub(start));
        tokens += 1;
    }
    Ok((tokens, cycles))
}

fn halt() -> ! {
    loop {
        cortex_m::asm::wfi();
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    halt()
}
