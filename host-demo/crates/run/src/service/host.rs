//! A model for serving: its memory is planned for many conversations, and a thread runs them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use anyhow::{Context, Result, ensure};
use arenite::model::Stack;
use arenite::sampler::Params;
use arenite::tokenizer::Tokenizer;
use arenite::{Gguf, Plan, TokenId};
use arenite_chat::{Renderer, Style};
use arenite_grammar::{Budget, MaskMemory};
use arenite_pictures::Limits;
use arenite_request::Sampling;

use super::{Facts, LoraScales, Service, grammars};
use crate::decide::DecisionModel;
use crate::drafts::{Drafting, Drafts};
use crate::open_model::OpenModel;
use crate::ranking::Ranking;
use crate::runtime::Memory;
use crate::scheduler::{Command, Counters, DiskCache, Scheduler};
use crate::session_file::SessionFile;

/// A model that is planned for many conversations.
pub struct Host {
    pub open: Arc<OpenModel>,
    pub plan: Plan,
    pub drafting: Drafting,
    pub service: Service,
}

impl Host {
    /// Plans the memory. If `serves` is true, requests come from clients, so grammars have a smaller budget.
    pub fn new(open: OpenModel, serves: bool) -> Result<Self> {
        let open = Arc::new(open);
        let (gguf, model, tokenizer, file) = (open.gguf(), open.model(), open.vocabulary()?, open.file());
        let parallel = open.options.parallel;
        ensure!(parallel > 0, "at least one answer must be generated at the same time: give 1 or more for `parallel`");
        let context = open.context(0);
        // There are two contexts for each answer that can run: one for the answer, and one for a cached conversation.
        // Pages for keys and values are planned only for the answers that run.
        let options = open
            .plan_options(context)
            .contexts(2 * parallel + 1)
            .pages(parallel.saturating_mul(context.div_ceil(16)))
            .logits(parallel)
            // For each conversation, a recurrent model saves up to three states: where conversations branch off, near
            // the end of the prompt, and at its end.
            .checkpoints(3)
            .batch(open.options.batch.max(parallel));
        let hears = model.spec().sound().is_some();
        let drafting = if hears { Drafting::OFF } else { Drafting::of(&open, true) };
        let options = match hears {
            true => options.contexts(1).pages(0).logits(1),
            false => drafting.planned(options, parallel),
        };
        let plan = open.plan(options)?;
        let decisions = DecisionModel::new(gguf, tokenizer).with_context(|| open.name().to_string())?;
        let (only_decides, ranks) = match &decisions {
            Some(decisions) => (!decisions.makes_text(), false),
            None => (false, true),
        };
        let makes_text = matches!(model.spec().stack(), Stack::Alone) && !only_decides;
        // A decoder with a pooling type above 0 can compute embeddings.
        let pooling = gguf.architecture().and_then(|name| gguf.u32(name, "pooling_type"));
        let makes_vectors = !hears && !makes_text && !only_decides
            || pooling.is_ok_and(|pooling| pooling.is_some_and(|pooling| pooling > 0));
        let renderer = Renderer::new(gguf, tokenizer, "auto", None)?;
        let service = Service {
            open: open.clone(),
            style: Style::of(&renderer, tokenizer),
            renderer,
            params: Params { temperature: 1.0, more: Sampling::MORE, ..Params::DEFAULT },
            breakers: Sampling::default().dry_breakers(),
            shifts: false,
            temperature: None,
            grammars: grammars::Grammars::new(if serves { Budget::of_request } else { Budget::of_command }),
            name: model_name(file.name()),
            aliases: Vec::new(),
            context,
            vocab: model.spec().vocab,
            token_bytes: token_bytes(gguf, tokenizer),
            embedding_len: model.spec().embedding_len(),
            ranking: Ranking::new(gguf, model, tokenizer).ok().filter(|_| ranks),
            decisions,
            decides_any: false,
            makes_text,
            makes_vectors,
            infill: infill(gguf, tokenizer),
            limits: if serves { Limits::OF_REQUEST } else { Limits::DEFAULT },
            fetch: None,
            lora: LoraScales::new(&open.options.lora)?,
            facts: Facts::new(file, gguf),
        };
        Ok(Self { open, plan, drafting, service })
    }

    /// Returns the number of bytes of all memory that the process will use. `requests` is the memory of requests, and
    /// `program` is the memory of the program, its threads and connections.
    pub fn bytes(&self, requests: usize, program: usize) -> usize {
        let Self { open, plan, service, .. } = self;
        let model = plan.workspace + plan.kv + MaskMemory::bytes(service.tokenizer()) + open.file().len();
        model + self.eyes_bytes() + requests + program
    }
}

impl Host {
    /// Returns the number of bytes of memory for pictures, including the projector's file.
    pub fn eyes_bytes(&self) -> usize {
        let (workers, limits) = (self.open.workers().count(), &self.service.limits);
        self.open.eyes().map_or(0, |eyes| eyes.bytes() + eyes.most_bytes(workers, limits))
    }
}

/// Returns the maximum number of bytes of text that one token stands for. `None` for a vocabulary that drops text.
fn token_bytes(gguf: &Gguf<'_>, tokenizer: &Tokenizer<'_, '_>) -> Option<usize> {
    /// Factor by which a normal form or lower case can shorten a text.
    const SHRINKS: usize = 3;
    let keeps_text = matches!(gguf.str("tokenizer.ggml", "model"), Ok(Some(b"gpt2" | b"llama")))
        && matches!(tokenizer.normalizer(), b"" | b"NFC");
    let longest = (0..tokenizer.vocab_len() as TokenId).map(|id| tokenizer.spelling(id).len()).max();
    // Counts the longest token as at least four bytes, because an unknown character of up to four bytes may become one
    // token.
    longest.filter(|_| keeps_text).map(|longest| SHRINKS * longest.max(4))
}

/// Returns the name of a model in requests: the name of its file without the extension.
fn model_name(file: &str) -> String {
    std::path::Path::new(file).file_stem().map_or(file.into(), |stem| stem.to_string_lossy().into_owned())
}

/// Returns the three special tokens for filling in the middle of a text: the token before the prefix, the token before
/// the suffix, and the token before the text between them.
fn infill(gguf: &Gguf<'_>, tokenizer: &Tokenizer<'_, '_>) -> Option<[TokenId; 3]> {
    const NAMES: [(&str, [&str; 6]); 3] = [
        (
            "fim_pre_token_id",
            [
                "<|fim_prefix|>",
                "<fim_prefix>",
                "<fim-prefix>",
                "<\u{ff5c}fim\u{2581}begin\u{ff5c}>",
                "\u{2581}<PRE>",
                "<|code_prefix|>",
            ],
        ),
        (
            "fim_suf_token_id",
            [
                "<|fim_suffix|>",
                "<fim_suffix>",
                "<fim-suffix>",
                "<\u{ff5c}fim\u{2581}hole\u{ff5c}>",
                "\u{2581}<SUF>",
                "<|code_suffix|>",
            ],
        ),
        (
            "fim_mid_token_id",
            [
                "<|fim_middle|>",
                "<fim_middle>",
                "<fim-middle>",
                "<\u{ff5c}fim\u{2581}end\u{ff5c}>",
                "\u{2581}<MID>",
                "<|code_middle|>",
            ],
        ),
    ];
    let by_name = |names: &[&str]| {
        let is_named = |id: &TokenId| names.iter().any(|name| tokenizer.spelling(*id) == name.as_bytes());
        (0..tokenizer.vocab_len() as TokenId).find(is_named)
    };
    let id = |(key, names): &(&str, [&str; 6])| {
        let by_key = gguf.u32("tokenizer.ggml", key).ok().flatten();
        by_key.filter(|id| (*id as usize) < tokenizer.vocab_len()).or_else(|| by_name(names))
    };
    Some([id(&NAMES[0])?, id(&NAMES[1])?, id(&NAMES[2])?])
}

/// What of the conversations remains on disk.
pub enum Kept {
    Nothing,
    /// The common beginning of all prompts.
    Prefix(SessionFile),
    /// All that the cache on disk has room for.
    All(Option<DiskCache>),
}

/// Runs the engine in this thread until all senders of commands are dropped. Calls `ready` when the engine's memory is
/// allocated. `kept` is a cache on disk, or a session file with the common beginning of prompts. A session file is read
/// at the start and written at the end.
pub fn run_engine(
    open: &OpenModel,
    (plan, drafting): (Plan, Drafting),
    mut kept: Kept,
    counters: Arc<Counters>,
    commands: &Receiver<Command>,
    ready: impl FnOnce(),
) -> Result<()> {
    let tokenizer = open.vocabulary()?;
    let mut memory = Memory::new(&plan)?;
    let engine = open.engine(&mut memory, plan)?;
    let mut masks = MaskMemory::new(tokenizer);
    let (parallel, mut draft_memory) = (open.options.parallel, None);
    let drafts = Drafts::new(open, drafting, parallel, plan.options.context, &mut draft_memory)?;
    let mut scheduler = Scheduler::new(engine, tokenizer, masks.masks(tokenizer)?, parallel, counters, drafts);
    match &mut kept {
        Kept::Nothing => {}
        Kept::Prefix(file) => scheduler.restore(file, open.scales())?,
        Kept::All(disk) => disk.take().into_iter().for_each(|disk| scheduler.use_disk(disk)),
    }
    ready();
    scheduler.run(commands);
    scheduler.close_disk();
    match kept {
        Kept::Prefix(file) => scheduler.save(&file, open.scales()),
        Kept::Nothing | Kept::All(_) => Ok(()),
    }
}

/// Returns a random number from the keys of a standard hash map, which the system's random generator provides.
pub fn by_chance() -> u64 {
    RandomState::new().build_hasher().finish()
}
