//! Entry points of the core, each behind a feature. The linker keeps the functions, and their callers are unknown, so
//! they must handle any arguments.
//!
//! The panic handler calls a function that does not exist. Linking fails unless the optimizer
//! proves that it is never called.
#![no_std]
#![no_main]
#![allow(dead_code, unused_imports)]

use core::fmt::Write;

use arenite::beam::{Beams, Search};
use arenite::chat::{Format, Message};
use arenite::gguf::Value;
use arenite::grammar::{Constraint, Grammar, Masks, State};
use arenite::sampler::{Breakers, Params, Pcg32, Sampler};
use arenite::sound::{LogMel, Rules, Voice};
use arenite::speculation::lookup;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::vision::{self, Encoder, Picture, Vision};
use arenite::{Adapter, Context, Engine, Error, Gguf, Model, Options, Plan, Session, Span, TokenId, Work};

macro_rules! entry {
    ($feature:literal, ($($name:ident: $type:ty),*) -> $result:ty $body:block) => {
        #[cfg(feature = $feature)]
        const _: () = {
            #[unsafe(export_name = concat!("entry_", $feature))]
            fn entry($($name: $type),*) -> $result $body
        };
    };
}

entry!("parse", (file: &'static [u8]) -> Result<Gguf<'static>, Error> {
    Gguf::parse(file)
});

entry!("plan", (gguf: &Gguf<'_>, options: Options) -> Result<Plan, Error> {
    Plan::new(gguf, options)
});

entry!("model", (gguf: &Gguf<'static>) -> Result<Model<'static>, Error> {
    Model::new(gguf)
});

type Memory = &'static mut [u8];

entry!("session", (model: &'static Model<'_>, plan: Plan, workspace: Memory, kv: Memory) -> Result<Session<'static, 'static>, Error> {
    Session::new(model, plan, workspace, kv)
});

// Each of the following entries creates its session: for a session that is passed in, the linker could not see the
// kernels.

entry!("prefill", (model: &Model<'_>, plan: Plan, workspace: Memory, kv: Memory, tokens: &[TokenId]) -> Result<f32, Error> {
    let mut session = Session::new(model, plan, workspace, kv)?;
    session.prefill(tokens)?;
    Ok(session.logits().iter().sum())
});

entry!("prefill_all", (model: &Model<'_>, plan: Plan, workspace: Memory, kv: Memory, tokens: &[TokenId]) -> Result<f32, Error> {
    let mut session = Session::new(model, plan, workspace, kv)?;
    let mut sum = 0.0;
    session.prefill_all(tokens, |_, logits| sum += logits.iter().sum::<f32>())?;
    Ok(sum)
});

entry!("encoder", (model: &Model<'_>, plan: Plan, workspace: Memory, kv: Memory, tokens: &[TokenId], out: &mut [f32]) -> Result<f32, Error> {
    let mut session = Session::new(model, plan, workspace, kv)?;
    session.encode(tokens)?;
    session.pooled(out)?;
    Ok(session.states().iter().sum())
});

entry!("log_mel", (bins: usize, window: usize, memory: Memory, sound: &[i16], floats: &[f32], features: &mut [f32]) -> Result<usize, Error> {
    let mut voice = Voice::new();
    let sound = sound.get(sound.iter().position(|sample| voice.push(*sample)).unwrap_or(0)..).unwrap_or_default();
    let mut mel = LogMel::new(bins, window, memory)?;
    let frames = mel.push(sound, features)? + mel.push(floats, features)?;
    mel.finish(features)?;
    Ok(frames)
});

entry!("listen", (model: &Model<'_>, plan: Plan, workspace: Memory, kv: Memory, sound: &[f32]) -> Result<f32, Error> {
    let mut session = Session::new(model, plan, workspace, kv)?;
    session.listen(sound)?;
    Ok(session.states().iter().sum())
});

entry!("rules", (gguf: &Gguf<'_>, logits: &mut [f32], tokens: &[TokenId], token: TokenId) -> Result<Option<f32>, Error> {
    let rules = Rules::new(gguf)?;
    rules.apply(logits, tokens, token > 0);
    Ok(rules.seconds(token))
});

entry!("see", (gguf: &Gguf<'_>, memory: Memory, rgb: &[u8], sides: [usize; 3], options: vision::Options, out: &mut [f32]) -> Result<f32, Error> {
    let [width, height, stride] = sides;
    let vision = Vision::new(gguf)?;
    let plan = vision::Plan::new(gguf, width, height, options)?;
    let mut encoder = Encoder::new(&vision, plan, memory)?;
    encoder.see(&Picture::with_stride(rgb, width, height, stride)?, out)?;
    encoder.load_rows(|y, row| row.fill(y as u8))?;
    encoder.decide(1.0, out)?;
    let bytes: usize = encoder.pixels(stride).map_or(0, |(.., rows)| rows.map(<[u8]>::len).sum());
    Ok(encoder.states().iter().sum::<f32>() + bytes as f32 + encoder.place(width).map_or(0, |(column, _)| column) as f32)
});

entry!("pictures", (model: &Model<'_>, plan: Plan, workspace: Memory, kv: Memory, tokens: &[TokenId], spans: &[Span<'_>], at: usize) -> Result<f32, Error> {
    let mut engine = Engine::new(model, plan, workspace, kv)?;
    let mut a = engine.open()?;
    engine.run(&mut [Work::prefill(&mut a, tokens).pictures(spans)])?;
    let mut b = engine.fork_at(&a, at)?;
    engine.read_all(Work::prefill(&mut b, tokens).pictures(spans), |_, _| ())?;
    Ok(engine.logits(&a).iter().sum())
});

entry!("contexts", (model: &Model<'_>, plan: Plan, workspace: Memory, kv: Memory, tokens: &[TokenId], at: usize) -> Result<f32, Error> {
    let mut engine = Engine::new(model, plan, workspace, kv)?;
    let mut a = engine.open()?;
    engine.run(&mut [Work::prefill(&mut a, tokens).no_logits()])?;
    let mut b = engine.fork(&a)?;
    let mut c = engine.fork_at(&a, at)?;
    engine.run(&mut [Work::prefill(&mut a, tokens).all_logits(), Work::decode(&mut b, 1), Work::prefill(&mut c, tokens)])?;
    engine.rewind(&mut b, at)?;
    engine.close(c);
    engine.prefill_all(&mut b, tokens, |_, _| ())?;
    let sum = engine.logits(&b).iter().sum::<f32>() + engine.logits_at(&a, at).iter().sum::<f32>();
    Ok(sum + (engine.free_pages() + engine.earliest(&a)) as f32)
});

entry!("reuse", (engine: &mut Engine<'_, '_>, context: &mut Context, from: &Context, first: usize, end: usize) -> Result<(), Error> {
    engine.reuse(context, from, first..end)
});

entry!("pass", (engine: &mut Engine<'_, '_>, works: &mut [Work<'_>]) -> Result<(), Error> {
    let mut pass = engine.begin(works)?;
    while pass.step() {}
    pass.finish();
    Ok(())
});

entry!("beams", (engine: &mut Engine<'_, '_>, context: &Context, search: &Search, memory: Memory) -> Result<usize, Error> {
    let mut beams = Beams::search(engine, context, search, memory)?;
    Ok(beams.hypothesis(0).map_or(0, |best| best.tokens.len()) + beams.count())
});

entry!("decode", (model: &Model<'_>, plan: Plan, workspace: Memory, kv: Memory, token: TokenId) -> Result<f32, Error> {
    let mut session = Session::new(model, plan, workspace, kv)?;
    session.decode(token)?;
    Ok(session.logits().iter().sum())
});

entry!("rewind", (session: &mut Session<'_, '_>, position: usize) -> Result<(), Error> {
    session.rewind(position)
});

entry!("save", (session: &mut Session<'_, '_>, out: &mut [u8]) -> Result<usize, Error> {
    session.save(out)
});

entry!("restore", (session: &mut Session<'_, '_>, snapshot: &[u8]) -> Result<(), Error> {
    session.restore(snapshot)
});

entry!("adapters", (gguf: &Gguf<'static>, model: &'static Model<'static>, plan: Plan, workspace: Memory, kv: Memory, tokens: &[TokenId], adapters: &'static [Adapter<'static>], chosen: &[(usize, f32)]) -> Result<f32, Error> {
    let rank = Adapter::new(gguf, model)?.rank();
    let mut engine = Engine::new(model, plan, workspace, kv)?.with_adapters(adapters)?;
    let mut a = engine.open()?;
    engine.adapt(&mut a, chosen)?;
    engine.run(&mut [Work::prefill(&mut a, tokens)])?;
    let mut b = engine.fork(&a)?;
    engine.run(&mut [Work::prefill(&mut b, tokens)])?;
    Ok(engine.logits(&b).iter().sum::<f32>() + rank as f32)
});

entry!("run", (model: &'static Model<'_>, plan: Plan, workspace: Memory, kv: Memory, tokens: &[TokenId], token: TokenId) -> Result<f32, Error> {
    let mut engine = Engine::new(model, plan, workspace, kv)?;
    let mut a = engine.open()?;
    engine.run(&mut [Work::prefill(&mut a, tokens)])?;
    let mut b = engine.fork(&a)?;
    engine.run(&mut [Work::prefill(&mut a, tokens).all_logits(), Work::decode(&mut b, token)])?;
    engine.rewind(&mut b, token as usize)?;
    let sum = engine.logits_at(&a, token as usize).iter().sum::<f32>() + engine.logits_mut(&b).iter().sum::<f32>();
    engine.close(b);
    Ok(sum)
});

entry!("sample", (params: Params, bias: &[(TokenId, f32)], scratch: &mut [u8], logits: &mut [f32], seed: u64) -> Result<TokenId, Error> {
    let mut sampler = Sampler::new(params, bias, logits.len(), scratch)?;
    sampler.sample(logits, &mut Pcg32::new(seed))?;
    sampler.sample(logits, &mut Pcg32::new(seed))
});

entry!("candidates", (params: Params, breakers: Breakers<'_>, scratch: &mut [u8], logits: &mut [f32]) -> Result<f64, Error> {
    let mut sampler = Sampler::new(params, &[], logits.len(), scratch)?.with_breakers(breakers);
    sampler.set_state(sampler.state());
    let mut sum = 0.0;
    sampler.candidates(logits, &mut Pcg32::new(1), |_, _, prob| sum += prob)?;
    Ok(sum)
});

entry!("grammar", (table: &[u8], bytes: &[u8]) -> Result<bool, Error> {
    let grammar = Grammar::new(table)?;
    let mut state = State::new(&grammar);
    Ok(state.allows(&grammar, bytes.iter().copied()) && state.accept(&grammar, bytes.iter().copied()) && state.is_over())
});

entry!("constraint", (table: &[u8], tokenizer: &Tokenizer<'_, '_>, token: TokenId) -> Result<bool, Error> {
    let mut constraint = Constraint::new(Grammar::new(table)?);
    constraint.accept(tokenizer, token)?;
    Ok(constraint.allows(tokenizer, token) && constraint.is_over())
});

entry!("masks", (table: &[u8], tokenizer: &Tokenizer<'_, '_>, memory: Memory, token: TokenId) -> Result<bool, Error> {
    let constraint = Constraint::new(Grammar::new(table)?);
    let mut masks = Masks::new(tokenizer, 2, memory)?;
    Ok(masks.at(&constraint, tokenizer, 0).allows(token))
});

entry!("allowed", (params: Params, scratch: &mut [u8], logits: &mut [f32], seed: u64, odd: &[u8]) -> Result<TokenId, Error> {
    let mut sampler = Sampler::new(params, &[], logits.len(), scratch)?;
    sampler.sample_where(logits, &mut Pcg32::new(seed), |token| odd.get(token as usize).is_some_and(|byte| *byte != 0))
});

entry!("lookup", (text: &[TokenId], most: usize) -> usize {
    lookup(text, most).len()
});

entry!("index", (gguf: &Gguf<'static>, memory: Memory) -> Result<Tokenizer<'static, 'static>, Error> {
    Tokenizer::new(gguf, memory)
});

entry!("build", (gguf: &Gguf<'static>, memory: Memory) -> Result<Tokenizer<'static, 'static>, Error> {
    Tokenizer::build_index(gguf, memory)
});

entry!("borrow", (gguf: &Gguf<'static>, index: &'static [u8]) -> Result<Tokenizer<'static, 'static>, Error> {
    Tokenizer::with_index(gguf, index)
});

entry!("encode", (tokenizer: &Tokenizer<'_, '_>, text: &[u8], options: Encode, scratch: &mut [u8], ids: &mut [TokenId]) -> Result<usize, Error> {
    tokenizer.encode(text, options, scratch, ids)
});

entry!("mapped", (tokenizer: &Tokenizer<'_, '_>, text: &[u8]) -> usize {
    tokenizer.mapped(text).count()
});

entry!("replacement", (tokenizer: &Tokenizer<'_, '_>, text: &[u8]) -> usize {
    tokenizer.replacement(text).unwrap_or_default().len()
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

entry!("vocabulary", (tokenizer: &Tokenizer<'_, '_>, id: TokenId) -> bool {
    let known = tokenizer.piece(id).is_ok() && !tokenizer.spelling(id).is_empty() && tokenizer.score(id) > 0.0;
    known && tokenizer.is_end(id) && tokenizer.eot() != tokenizer.eom()
});

entry!("inspect", (gguf: &Gguf<'_>, name: &str) -> u64 {
    let elements = |value: Value<'_>| match value {
        Value::Array(array) => array.strings().count() + (0..array.len()).filter(|i| array.get_f32(*i).is_some()).count(),
        _ => 1,
    };
    let keys: usize = gguf.keys().map(|(_, value)| elements(value)).sum();
    let tensors: u64 = gguf.tensors().map(|tensor| tensor.data.len() as u64).sum();
    gguf.fingerprint() ^ keys as u64 ^ tensors ^ gguf.tensor(name).map_or(0, |tensor| tensor.offset)
});

entry!("split", (pieces: &'static [&'static [u8]]) -> Result<Gguf<'static>, Error> {
    Gguf::parse_split(pieces)
});

entry!("verify", (gguf: &Gguf<'static>) -> Result<u32, Error> {
    let (Some(mut verify), mut steps) = (gguf.verify()?, 0) else { return Ok(0) };
    while verify.step(4096)? {
        steps += 1;
    }
    Ok(steps)
});

entry!("chat", (template: &str, talk: &[Message<'_>], out: &mut dyn Write) -> core::fmt::Result {
    let mut out = out;
    Format::detect(template).unwrap_or(Format::PLAIN).write(talk, &mut out)
});

entry!("message", (error: &Error, out: &mut dyn Write) -> core::fmt::Result {
    write!(out, "{error}")?;
    write!(out, "{}", error.kind() as u8)
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
