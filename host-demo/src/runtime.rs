//! Opens sessions: options, memory and kernels.

use anyhow::{Result, anyhow, bail};
use arenite::model::{Positions, Spec};
use arenite::workers::Workers;
use arenite::{Engine, Error, Gguf, Kernels, KvType, Model, Options, Plan, Session, TokenId};
use memmap2::MmapMut;

use crate::adapters::{Adapters, Sizes};
use crate::cli::{Kv, SessionArgs};
use crate::llama2c;
use crate::output::{Bytes, note};

/// Default maximum size of a context. Many models allow a hundred thousand positions, which would need too much
/// memory.
const DEFAULT_CONTEXT: usize = 4096;

/// The kernels named `isa`; `auto` selects the best for this machine.
pub fn kernels(isa: &str) -> Result<&'static Kernels> {
    if isa == "auto" {
        return Ok(Kernels::detect());
    }
    Kernels::by_name(isa).ok_or_else(|| {
        let names: Vec<_> = Kernels::available().map(|kernels| kernels.name).collect();
        anyhow!("--isa {isa} is not available on this machine; give auto or one of: {}", names.join(", "))
    })
}

/// The context size to plan for: the user's choice, otherwise the default or `needed` if that is larger, up to the
/// model's own size. Warns if the user's choice exceeds the model's size.
pub fn context(args: &SessionArgs, model: &Model<'_>, needed: usize) -> usize {
    let spec = model.spec();
    let usual = DEFAULT_CONTEXT.min(spec.short_context());
    let context = args.ctx_size.unwrap_or_else(|| needed.max(usual).min(spec.context));
    warn_of_length(context, model);
    match args.ctx_size {
        Some(asked) if is_learned(model) && asked > spec.context => {
            note(format_args!("the model has only {} positions: the context is not larger", spec.context));
        }
        _ => {}
    }
    context
}

/// Warns if a context is longer than the model's own. (With learned positions, it cannot be longer.)
pub fn warn_of_length(positions: usize, model: &Model<'_>) {
    let own = model.spec().context;
    if positions > own && !is_learned(model) {
        note(format_args!(
            "warning: {positions} positions are more than the model's {own}: output after them may be nonsense"
        ));
    }
}

/// Number of positions that a text may take: the user's context size or the model's own. With learned positions,
/// it is at most the model's.
pub fn positions(args: &SessionArgs, model: &Model<'_>) -> usize {
    let own = model.spec().context;
    let asked = args.ctx_size.unwrap_or(own);
    if is_learned(model) { asked.min(own) } else { asked }
}

/// Checks that a text of `tokens` tokens fits in a context. `cut` is further advice, such as an option that cuts texts.
pub fn fits(tokens: usize, context: usize, model: &Model<'_>, cut: &str) -> Result<()> {
    let own = model.spec().context;
    if tokens <= context {
        return Ok(());
    }
    if is_learned(model) && tokens > own {
        bail!("the text has {tokens} tokens, but the model has only {own} positions: shorten the text{cut}");
    }
    bail!("the text has {tokens} tokens, but the context has only {context} positions: give -c {tokens} or more{cut}")
}

fn is_learned(model: &Model<'_>) -> bool {
    matches!(model.spec().positions(), Positions::Learned)
}

/// Refuses models that cannot continue a text: encoders and encoder-decoders.
pub fn must_continue(model: &Model<'_>) -> Result<(), Error> {
    match model.spec() {
        spec if !spec.has_head() => Err(Error::NoPart { part: "decoder" }),
        spec if spec.has_cross_attention() => Err(Error::NoSource),
        _ => Ok(()),
    }
}

/// Plans a context of that many positions.
pub fn plan(gguf: &Gguf<'_>, args: &SessionArgs, context: usize, workers: usize) -> Result<Plan> {
    Ok(Plan::new(gguf, options(args, gguf, context, workers)?)?)
}

/// Like [`plan`], for `beams` hypotheses at once.
pub fn plan_beams(gguf: &Gguf<'_>, args: &SessionArgs, context: usize, workers: usize, beams: usize) -> Result<Plan> {
    // The session's own context stays empty.
    let pages = beams.saturating_mul(context.div_ceil(16));
    Ok(Plan::new(gguf, options(args, gguf, context, workers)?.beams(beams).pages(pages))?)
}

/// The plan's options for the user's choices and this context size.
pub fn options(args: &SessionArgs, gguf: &Gguf<'_>, context: usize, workers: usize) -> Result<Options> {
    let options =
        Options::new().context(context).batch(args.batch_size).kv(kv_type(kv(args.kv, gguf))).workers(workers);
    Ok(Sizes::of(&args.lora)?.planned(options))
}

/// Data type of the KV cache: the user's choice, otherwise f16. The default is f32 for llama2.c models, whose programs
/// have no other, and for encoders, which keep one text at a time: f16 would only cost accuracy.
pub fn kv(choice: Option<Kv>, gguf: &Gguf<'_>) -> Kv {
    let is_encoder = || Spec::read(gguf).is_ok_and(|spec| !spec.has_head());
    choice.unwrap_or(if gguf.get(llama2c::VERSION).is_some() || is_encoder() { Kv::F32 } else { Kv::F16 })
}

pub fn kv_type(kv: Kv) -> KvType {
    match kv {
        Kv::F32 => KvType::F32,
        Kv::F16 => KvType::F16,
        Kv::Q8_0 => KvType::Q8_0,
        Kv::Q4_0 => KvType::Q4_0,
        Kv::Q8_0Q4_0 => KvType::Q8_0Q4_0,
    }
}

/// The memory of one session.
pub struct Memory {
    workspace: MmapMut,
    kv: MmapMut,
}

impl Memory {
    /// Allocates the memory for `plan`. The system provides pages on first write, so an unused part of a large
    /// context costs nothing. (A vector of zeros with this alignment would be written at once.)
    pub fn new(plan: &Plan) -> Result<Self> {
        Ok(Self { workspace: pages("workspace", plan.workspace)?, kv: pages("KV cache", plan.kv)? })
    }

    /// Creates a session in this memory, with the adapters of the command line.
    pub fn session<'m, 'w>(
        &'w mut self,
        args: &SessionArgs,
        model: &'m Model<'_>,
        plan: Plan,
        kernels: &'static Kernels,
        workers: &'m dyn Workers,
    ) -> Result<Session<'m, 'w>> {
        let session = Session::new(model, plan, &mut self.workspace, &mut self.kv)?;
        Ok(Adapters::load(&args.lora, model)?.apply(session)?.with_kernels(kernels).with_workers(workers))
    }

    /// Creates an engine in this memory.
    pub fn engine<'m, 'w>(
        &'w mut self,
        model: &'m Model<'_>,
        plan: Plan,
        kernels: &'static Kernels,
        workers: &'m dyn Workers,
    ) -> Result<Engine<'m, 'w>> {
        Ok(Engine::new(model, plan, &mut self.workspace, &mut self.kv)?.with_kernels(kernels).with_workers(workers))
    }
}

/// Maps zeroed memory on pages of its own.
fn pages(what: &str, bytes: usize) -> Result<MmapMut> {
    match MmapMut::map_anon(bytes) {
        Ok(pages) => Ok(pages),
        Err(_) => bail!(
            "not enough memory for the {what} of {}; give a smaller context (-c), a smaller batch (-b) or --kv q8_0",
            Bytes(bytes)
        ),
    }
}

/// Rewinds a session to the common prefix of its tokens and a prompt, without the prompt's last token, whose logits are
/// needed. Returns the position.
pub fn rewind_to(session: &mut Session<'_, '_>, known: &[TokenId], prompt: &[TokenId]) -> Result<usize> {
    let same = prompt.iter().zip(known).take_while(|(a, b)| a == b).count();
    let kept = same.min(session.position()).min(prompt.len().saturating_sub(1));
    if session.rewind(kept).is_ok() {
        return Ok(kept);
    }
    // A sliding window no longer has the earlier positions.
    session.rewind(0)?;
    Ok(0)
}

/// Checks that results are numbers: in a file with a damaged weight, or beyond the range of an f16 cache, they are NaN.
pub fn numbers(values: &[f32]) -> Result<(), Error> {
    if values.iter().any(|value| value.is_nan()) { Err(Error::NotNumbers) } else { Ok(()) }
}
