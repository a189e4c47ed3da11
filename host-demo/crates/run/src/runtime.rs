//! Options for running a model, and the memory of sessions.

use anyhow::{Result, anyhow, bail};
use arenite::model::Spec;
use arenite::{Engine, Error, Gguf, Kernels, KvType, Model, Plan, Session};
use memmap2::MmapMut;

use arenite_files::Bytes;

use crate::workers;

/// Default maximum size of a context. The size is limited because many models allow a hundred thousand positions, which
/// would need too much memory.
const DEFAULT_CONTEXT: usize = 4096;

/// Options for running a model.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Maximum number of tokens of a conversation; 0 means the maximum of the model. The default is the maximum of the
    /// model, but at most 4096.
    pub context: Option<usize>,
    /// Maximum number of tokens per pass. Longer prompts are split, with the same result.
    pub batch: usize,
    /// Data type of the KV cache. The default is f16, and f32 for encoders and llama2.c models.
    pub kv: Option<KvType>,
    /// LoRA adapters: `FILE`, or `FILE:SCALE`.
    pub lora: Vec<String>,
    /// The kernels of an instruction set such as AVX2. The default is the best set of this machine.
    pub kernels: &'static Kernels,
    /// Number of threads that compute; by default one per core.
    pub threads: usize,
    /// Number of answers that are generated at the same time; further answers wait.
    pub parallel: usize,
    /// Minimum length of a run of equal tokens that is reused from an earlier conversation although its positions
    /// differ; 0 reuses none.
    pub reuse: usize,
    /// The source of drafts, and the maximum number of tokens of a draft (by default a number that suits the source).
    pub draft: DraftChoice,
    pub draft_max: Option<usize>,
}

/// The user's choice of a source of drafts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DraftChoice {
    /// No drafts.
    Off,
    /// Draft layers of the model itself, if it has some. Otherwise the same as `Lookup`.
    #[default]
    Auto,
    /// The text itself is searched for an earlier occurrence of its last tokens. The tokens that followed there are
    /// proposed.
    Lookup,
    /// A file: layers that were made for the model, or a smaller model with the same vocabulary.
    File(std::path::PathBuf),
    /// A file found beside the model. Its layers are used only if they fit the model and if the model has no such
    /// layers itself.
    Beside(std::path::PathBuf),
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            context: None,
            batch: 512,
            kv: None,
            lora: Vec::new(),
            kernels: Kernels::detect(),
            threads: workers::cores(),
            parallel: 1,
            reuse: 0,
            draft: DraftChoice::default(),
            draft_max: None,
        }
    }
}

/// Returns the kernels named `isa`; `auto` selects the best kernels for this machine.
pub fn kernels(isa: &str) -> Result<&'static Kernels> {
    if isa == "auto" {
        return Ok(Kernels::detect());
    }
    // Make AMX available by name. `auto` does not select AMX, because its speed has not been measured.
    Kernels::request_amx();
    Kernels::by_name(isa).ok_or_else(|| {
        let names: Vec<_> = Kernels::available().map(|kernels| kernels.name).collect();
        anyhow!("--isa {isa} is not available on this machine; give auto or one of: {}", names.join(", "))
    })
}

/// Returns the context size to plan for. This is the user's choice. Otherwise it is the default, or `needed` if that is
/// larger, up to the model's own size. Warns if the user's choice exceeds the model's own size.
pub fn context(options: &RunOptions, model: &Model<'_>, needed: usize) -> usize {
    let spec = model.spec();
    let usual = DEFAULT_CONTEXT.min(spec.short_context());
    let context = options.context.unwrap_or_else(|| needed.max(usual).min(spec.context));
    warn_of_length(context, model);
    match options.context {
        Some(asked) if is_learned(model) && asked > spec.context => {
            log::warn!("the context is limited to the model's {} positions", spec.context);
        }
        _ => {}
    }
    context
}

/// Warns if a context is longer than the model's own. A model with learned positions gets no warning, because its
/// context cannot be longer than the model's own.
pub fn warn_of_length(positions: usize, model: &Model<'_>) {
    let own = model.spec().context;
    if positions > own && !is_learned(model) {
        log::warn!("warning: {positions} positions are more than the model's {own}: output after them may be nonsense");
    }
}

/// Returns the number of positions that a text may take: the user's context size, or the model's own size. For learned
/// positions, the number is at most the model's own size.
pub fn positions(options: &RunOptions, model: &Model<'_>) -> usize {
    let own = model.spec().context;
    let asked = options.context.unwrap_or(own);
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
    model.spec().positions().are_learned()
}

/// Refuses models that cannot continue a text: encoders and encoder-decoders.
pub fn must_continue(model: &Model<'_>) -> Result<(), Error> {
    match model.spec() {
        spec if !spec.has_head() => Err(Error::NoPart { part: "decoder" }),
        spec if spec.has_cross_attention() => Err(Error::NoSource),
        _ => Ok(()),
    }
}

/// Returns the data type of the KV cache: the user's choice, otherwise f16. For llama2.c models the default is f32, as
/// in llama2.c's own programs. For encoders the default is also f32, because their cache holds only one text: f16 would
/// save little memory and cost accuracy.
pub fn kv(choice: Option<KvType>, gguf: &Gguf<'_>) -> KvType {
    let is_encoder = || Spec::read(gguf).is_ok_and(|spec| !spec.has_head());
    choice.unwrap_or(if gguf.get(LLAMA2C_VERSION).is_some() || is_encoder() { KvType::F32 } else { KvType::F16 })
}

/// A metadata key that only models converted from llama2.c's checkpoints have.
const LLAMA2C_VERSION: &str = "llama2c.version";

/// The memory of one session or engine.
pub struct Memory {
    workspace: MmapMut,
    kv: MmapMut,
}

impl Memory {
    /// Allocates the memory for `plan`. Maps pages instead of allocating a vector, because the system provides mapped
    /// pages only on first write: an unused part of a large context costs nothing. (A zeroed vector with this alignment
    /// would write all pages at once.)
    pub fn new(plan: &Plan) -> Result<Self> {
        Ok(Self { workspace: pages("workspace", plan.workspace)?, kv: pages("KV cache", plan.kv)? })
    }

    /// Creates a session in this memory.
    pub fn session<'m, 'w>(&'w mut self, model: &'m Model<'_>, plan: Plan) -> Result<Session<'m, 'w>> {
        Ok(Session::new(model, plan, &mut self.workspace, &mut self.kv)?)
    }

    /// Creates an engine in this memory.
    pub fn engine<'m, 'w>(&'w mut self, model: &'m Model<'_>, plan: Plan) -> Result<Engine<'m, 'w>> {
        Ok(Engine::new(model, plan, &mut self.workspace, &mut self.kv)?)
    }
}

/// Maps zeroed, page-aligned memory.
pub(crate) fn pages(what: &str, bytes: usize) -> Result<MmapMut> {
    match MmapMut::map_anon(bytes) {
        Ok(pages) => Ok(pages),
        Err(_) => bail!(
            "not enough memory for the {what} of {}; give a smaller context (-c), a smaller batch (-b) or --kv q8_0",
            Bytes(bytes)
        ),
    }
}

/// Returns an error if a value is NaN. This is caused by a damaged weight, or by values beyond the range of an f16
/// cache.
pub fn numbers(values: &[f32]) -> Result<(), Error> {
    if values.iter().any(|value| value.is_nan()) { Err(Error::NotNumbers) } else { Ok(()) }
}
