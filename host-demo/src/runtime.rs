//! From a model to a running session: options, memory, kernels.

use anyhow::{Result, anyhow, bail};
use arenite::workers::Workers;
use arenite::{Engine, Error, Gguf, Kernels, KvType, Model, Options, Plan, Session};
use memmap2::MmapMut;

use crate::cli::{Kv, SessionArgs};
use crate::output::{Bytes, note};

/// Positions of the context where neither the user nor the prompt asks for more: models that can
/// take a hundred thousand are common, the memory for it is not.
const USUAL_CONTEXT: usize = 4096;

/// The kernels called `isa`; `auto` for the best that this machine has.
pub fn kernels(isa: &str) -> Result<&'static Kernels> {
    if isa == "auto" {
        return Ok(Kernels::detect());
    }
    Kernels::by_name(isa).ok_or_else(|| {
        let names: Vec<_> = Kernels::available().map(|kernels| kernels.name).collect();
        anyhow!("--isa {isa} does not run on this machine; give auto or one of: {}", names.join(", "))
    })
}

/// The context to plan for: what the user says; else the usual one, or more if `needed` is more,
/// but never more than the model's own. More than that is warned of.
pub fn context(args: &SessionArgs, model: &Model<'_>, needed: usize) -> usize {
    let spec = model.spec();
    let usual = USUAL_CONTEXT.min(spec.short_context());
    let context = args.ctx_size.unwrap_or_else(|| needed.max(usual).min(spec.context));
    warn_of_length(context, model);
    context
}

/// A model can be run further than it was made for.
pub fn warn_of_length(positions: usize, model: &Model<'_>) {
    let own = model.spec().context;
    if positions > own {
        note(format_args!(
            "warning: {positions} positions are more than the {own} that the model was made for: what comes after them may be nonsense"
        ));
    }
}

/// Refuses a model that cannot continue a text: an encoder, or an encoder-decoder.
pub fn must_continue(model: &Model<'_>) -> Result<(), Error> {
    match model.spec() {
        spec if !spec.has_head() => Err(Error::NoPart { part: "decoder" }),
        spec if spec.has_cross_attention() => Err(Error::NoSource),
        _ => Ok(()),
    }
}

/// The plan for a context of that many positions.
pub fn plan(gguf: &Gguf<'_>, args: &SessionArgs, context: usize, workers: usize) -> Result<Plan> {
    Ok(Plan::new(gguf, options(args, context, workers))?)
}

/// As [`plan`], for `beams` hypotheses at once.
pub fn plan_beams(gguf: &Gguf<'_>, args: &SessionArgs, context: usize, workers: usize, beams: usize) -> Result<Plan> {
    // The text's own context stays empty.
    let pages = beams.saturating_mul(context.div_ceil(16));
    Ok(Plan::new(gguf, options(args, context, workers).beams(beams).pages(pages))?)
}

/// What the user asks for, in a context of that many positions.
pub fn options(args: &SessionArgs, context: usize, workers: usize) -> Options {
    Options::new().context(context).batch(args.batch_size).kv(kv_type(args.kv)).workers(workers)
}

pub fn kv_type(kv: Kv) -> KvType {
    match kv {
        Kv::F32 => KvType::F32,
        Kv::F16 => KvType::F16,
        Kv::Q8_0 => KvType::Q8_0,
    }
}

/// The memory of one session.
pub struct Memory {
    workspace: MmapMut,
    kv: MmapMut,
}

impl Memory {
    /// What `plan` asks for. The system gives pages when they are first written, so a large
    /// context costs nothing until it is used. (An aligned vector of zeros would be written at once.)
    pub fn new(plan: &Plan) -> Result<Self> {
        Ok(Self { workspace: pages("workspace", plan.workspace)?, kv: pages("KV cache", plan.kv)? })
    }

    /// A session in this memory.
    pub fn session<'m, 'w>(
        &'w mut self,
        model: &'m Model<'_>,
        plan: Plan,
        kernels: &'static Kernels,
        workers: &'m dyn Workers,
    ) -> Result<Session<'m, 'w>> {
        Ok(Session::new(model, plan, &mut self.workspace, &mut self.kv)?.with_kernels(kernels).with_workers(workers))
    }

    /// An engine in this memory.
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

/// Zeroed memory of that many bytes, on pages of its own.
fn pages(what: &str, bytes: usize) -> Result<MmapMut> {
    match MmapMut::map_anon(bytes) {
        Ok(pages) => Ok(pages),
        Err(_) => bail!(
            "there is no memory for the {what} of {}; give a smaller context (-c), a smaller batch (-b) or --kv q8_0",
            Bytes(bytes)
        ),
    }
}
