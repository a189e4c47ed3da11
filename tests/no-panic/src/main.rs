//! Entry points of the core, each the whole of a program: the feature says which. What a program does
//! not know of its arguments the compiler does not know either, so it must be ready for anything.
//!
//! The panic handler calls a function that does not exist. Where the optimizer has not proved that it is
//! never called, the linker fails.
#![no_std]
#![no_main]
#![allow(dead_code, unused_imports)]

use core::fmt::Write;

use arenite::chat::{Format, Message};
use arenite::sampler::{Params, Pcg32, Sampler};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Error, Gguf, Model, Options, Plan, Session, TokenId};

macro_rules! entry {
    ($feature:literal, ($($name:ident: $type:ty),*) -> $result:ty $body:block) => {
        #[cfg(feature = $feature)]
        #[unsafe(no_mangle)]
        fn entry($($name: $type),*) -> $result $body
    };
}

entry!("parse", (file: &'static [u8]) -> Result<Gguf<'static>, Error> {
    Gguf::parse(file)
});

entry!("plan", (gguf: &Gguf<'_>, options: Options) -> Result<Plan, Error> {
    Plan::try_of(gguf, options)
});

entry!("model", (gguf: &Gguf<'static>) -> Result<Model<'static>, Error> {
    Model::new(gguf)
});

type Memory = &'static mut [u8];

entry!("session", (model: &'static Model<'_>, plan: Plan, workspace: Memory, kv: Memory) -> Result<Session<'static, 'static>, Error> {
    Session::new(model, plan, workspace, kv)
});

// A session that came from elsewhere would have kernels from elsewhere: these make their own.

entry!("prefill", (model: &Model<'_>, plan: Plan, workspace: Memory, kv: Memory, tokens: &[TokenId]) -> Result<f32, Error> {
    let mut session = Session::new(model, plan, workspace, kv)?;
    session.prefill(tokens)?;
    Ok(session.logits().iter().sum())
});

entry!("decode", (model: &Model<'_>, plan: Plan, workspace: Memory, kv: Memory, token: TokenId) -> Result<f32, Error> {
    let mut session = Session::new(model, plan, workspace, kv)?;
    session.decode(token)?;
    Ok(session.logits().iter().sum())
});

entry!("rewind", (session: &mut Session<'_, '_>, position: usize) -> Result<(), Error> {
    session.rewind(position)
});

entry!("save", (session: &Session<'_, '_>, out: &mut [u8]) -> Result<usize, Error> {
    session.save(out)
});

entry!("restore", (session: &mut Session<'_, '_>, snapshot: &[u8]) -> Result<(), Error> {
    session.restore(snapshot)
});

entry!("sample", (params: Params, bias: &[(TokenId, f32)], scratch: &mut [u8], logits: &mut [f32], seed: u64) -> Result<TokenId, Error> {
    let mut sampler = Sampler::new(params, bias, logits.len(), scratch)?;
    let token = sampler.sample(logits, &mut Pcg32::new(seed))?;
    sampler.sample(logits, &mut Pcg32::new(seed))
});

entry!("index", (gguf: &Gguf<'static>, memory: Memory) -> Result<Tokenizer<'static, 'static>, Error> {
    Tokenizer::new(gguf, memory)
});

entry!("borrow", (gguf: &Gguf<'static>, index: &'static [u8]) -> Result<Tokenizer<'static, 'static>, Error> {
    Tokenizer::with_index(gguf, index)
});

entry!("encode", (tokenizer: &Tokenizer<'_, '_>, text: &[u8], options: Encode, scratch: &mut [u8], ids: &mut [TokenId]) -> Result<usize, Error> {
    tokenizer.encode(text, options, scratch, ids)
});

entry!("detokenize", (tokenizer: &Tokenizer<'_, '_>, ids: &[TokenId], text: &mut [u8]) -> Result<usize, Error> {
    tokenizer.detokenize(ids, true, text)
});

entry!("decoder", (tokenizer: &Tokenizer<'_, '_>, ids: &[TokenId]) -> Result<usize, Error> {
    let mut decoder = tokenizer.decoder();
    let mut characters = 0;
    for &id in ids {
        decoder.push(id, tokenizer, |text| characters += text.chars().count())?;
    }
    decoder.finish(|text| characters += text.chars().count());
    Ok(characters)
});

entry!("chat", (template: &str, talk: &[Message<'_>], out: &mut dyn Write) -> core::fmt::Result {
    let mut out = out;
    Format::detect(template).unwrap_or(Format::PLAIN).write(talk, &mut out)
});

entry!("message", (error: &Error, out: &mut dyn Write) -> core::fmt::Result {
    write!(out, "{error}")
});

entry!("panics", (bytes: &[u8], at: usize) -> u8 {
    bytes[at]
});

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    unsafe extern "C" {
        fn panic_is_possible() -> !;
    }
    // SAFETY: never reached, or the program would not have been linked.
    unsafe { panic_is_possible() }
}
