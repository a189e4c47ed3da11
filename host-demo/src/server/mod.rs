//! The HTTP server: an engine in its own thread, and requests in OpenAI's format.
//!
//! ```text
//! http        sockets, limits, shutdown     connections  open connections
//! routes      the paths of the server       app          state of all routes, open requests
//! request     fields of requests            fields       unsupported fields
//! service     requests to jobs              chats        prompts and grammars of chats
//! vectors     embeddings and rankings       answer       answers in OpenAI's format
//! stream      streamed answers              responses    the Responses API
//! anthropic   chats in Anthropic's format   ollama       Ollama's interface
//! llama       llama.cpp's routes            page         the page at `/`
//! audio       speech to text
//! engine      the thread, pass by pass      running      a conversation in progress
//! budget      tokens of a pass              cache        contexts of finished conversations
//! logprobs    log-probabilities             error        errors
//! gate        requests of foreign web pages
//! memory      bodies and answers            record       request ids, the log, histograms
//! grammars    compiled grammars
//! ```

mod answer;
mod anthropic;
mod app;
mod audio;
mod budget;
mod cache;
mod chats;
mod connections;
mod engine;
mod error;
mod fields;
mod gate;
mod grammars;
mod http;
mod llama;
mod logprobs;
mod lora;
mod memory;
mod ollama;
mod page;
mod record;
mod request;
mod responses;
mod routes;
mod running;
mod service;
mod stream;
mod vectors;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

pub use answer::{Choice, ResponseMeta};
pub use app::App;
pub use engine::{Asker, Command, Counters, Embedding, Job, Scheduler};
pub use error::ApiError;
pub use http::{Limits, serve};
pub use memory::{Inbox, Meter, RequestMemory, mailbox};
pub use record::{Log, LogFormat, Record};
pub use request::Body;
pub use responses::to_chat;
pub use service::{Endpoint, Prepared, Service};
pub use vectors::token_count;

use lora::LoraScales;
use service::Facts;

use anyhow::{Context, Result};
use arenite::model::Stack;
use arenite::tokenizer::Tokenizer;
use arenite::{Gguf, Model, Plan, TokenId};

use crate::adapters::Adapters;
use crate::chat::{Renderer, Style};
use crate::cli::RunArgs;
use crate::grammar::{Budget, MaskMemory};
use crate::model_file::ModelFile;
use crate::output::{Bytes, note};
use crate::ranking::Ranking;
use crate::session_file::SessionFile;
use crate::{runtime, workers};

/// A model for many conversations, loaded until the process ends.
pub struct Host {
    pub model: &'static Model<'static>,
    pub plan: Plan,
    pub service: Service,
    pub args: RunArgs,
}

impl Host {
    /// Plans for `parallel` answers at the same time, and prints the memory requirement before allocating it; with
    /// `serves`, requests of clients are part of it.
    pub fn new(file: ModelFile, args: &RunArgs, parallel: usize, serves: bool) -> Result<Self> {
        // The model lives as long as the process.
        let file: &'static ModelFile = Box::leak(Box::new(file));
        let named = || file.name().to_string();
        let gguf: &'static Gguf<'static> = Box::leak(Box::new(file.parse()?));
        let model: &'static Model<'static> = Box::leak(Box::new(Model::new(gguf).with_context(named)?));
        let index: &'static mut Vec<u8> = Box::leak(Box::default());
        let tokenizer: &'static Tokenizer<'static, 'static> =
            Box::leak(Box::new(crate::text::tokenizer(gguf, index).with_context(named)?));
        let context = runtime::context(&args.session, model, 0);
        let threads = args.threads.unwrap_or_else(workers::cores);
        // As many contexts again are cached for finished conversations; pages are planned for running ones.
        let options = runtime::options(&args.session, gguf, context, threads)?
            .contexts(2 * parallel + 1)
            .pages(parallel.saturating_mul(context.div_ceil(16)))
            .logits(parallel)
            // For models with states: where conversations branch off, and near the end of each prompt.
            .checkpoints(3)
            .batch(args.session.batch_size.max(parallel));
        let hears = model.spec().sound().is_some();
        let options = if hears { options.contexts(1).pages(0).logits(1) } else { options };
        let plan = Plan::new(gguf, options).with_context(named)?;
        let requests = if serves { RequestMemory::most(app::READERS) } else { 0 };
        let masks = MaskMemory::bytes(tokenizer);
        note(format_args!(
            "memory  workspace {}, KV cache {} ({parallel} conversations of {context} positions in {}), masks of grammars {}, model {} {}, requests {}, in all up to {}",
            Bytes(plan.workspace),
            Bytes(plan.kv),
            runtime::kv(args.session.kv, gguf).name(),
            Bytes(masks),
            Bytes(file.len()),
            file.held(),
            Bytes(requests),
            Bytes(plan.workspace + plan.kv + masks + file.len() + requests),
        ));
        let makes_text = matches!(model.spec().stack(), Stack::Alone);
        let name = file.name();
        let name =
            std::path::Path::new(name).file_stem().map_or(name.into(), |stem| stem.to_string_lossy().into_owned());
        // The key gives the way in which a decoder's states become an embedding.
        let pooling = gguf.architecture().and_then(|name| gguf.u32(name, "pooling_type"));
        let makes_vectors =
            !hears && !makes_text || pooling.is_ok_and(|pooling| pooling.is_some_and(|pooling| pooling > 0));
        let text =
            |key: &str| gguf.str("general", key).ok().flatten().map(|text| String::from_utf8_lossy(text).into_owned());
        let facts = Facts {
            family: text("architecture").unwrap_or_default(),
            size_label: text("size_label").unwrap_or_default(),
            quantization: quantization(gguf),
            bytes: file.len() as u64,
            fingerprint: gguf.fingerprint(),
        };
        if hears {
            note("this model hears: /v1/audio/transcriptions and /v1/audio/translations answer");
        } else if !makes_text {
            note("this model makes no text: /v1/embeddings and /v1/rerank answer");
        }
        let renderer = Renderer::new(gguf, tokenizer, "auto", None)?;
        let service = Service {
            tokenizer,
            style: Style::of(&renderer, tokenizer),
            renderer: renderer.into(),
            grammars: grammars::Grammars::new(if serves { Budget::of_request } else { Budget::of_command }),
            name,
            context,
            vocab: model.spec().vocab,
            embedding_len: model.spec().embedding_len(),
            ranking: Ranking::new(gguf, model).ok(),
            makes_text,
            makes_vectors,
            infill: infill(gguf, tokenizer),
            lora: LoraScales::new(&args.session)?,
            facts,
        };
        Ok(Self { model, plan, service, args: args.clone() })
    }
}

/// The tokens of a prefix, a suffix and the text between them.
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

/// Returns the type of most weights.
fn quantization(gguf: &Gguf<'_>) -> String {
    let mut sizes = std::collections::HashMap::new();
    for tensor in gguf.tensors().filter(|tensor| tensor.dim_count > 1) {
        *sizes.entry(format!("{:?}", tensor.kind)).or_insert(0u64) += tensor.dims.iter().product::<u64>();
    }
    sizes.into_iter().max_by_key(|(_, size)| *size).map(|(name, _)| name.to_uppercase()).unwrap_or_default()
}

/// Runs the engine in this thread until all senders of commands are dropped. Calls `ready` when its memory is there.
/// `kept` is a session file with the common beginning of prompts, read at the start and written at the end.
#[allow(clippy::too_many_arguments)]
pub fn run_engine(
    (model, plan): (&Model<'_>, Plan),
    args: &RunArgs,
    tokenizer: &Tokenizer<'_, '_>,
    parallel: usize,
    mut kept: Option<SessionFile>,
    counters: Arc<Counters>,
    commands: &Receiver<Command>,
    ready: impl FnOnce(),
) -> Result<()> {
    if model.spec().sound().is_some() {
        return audio::run((model, plan), args, tokenizer, commands, ready);
    }
    let kernels = runtime::kernels(&args.session.isa)?;
    let workers = workers::start(args.threads.unwrap_or_else(workers::cores));
    let mut memory = runtime::Memory::new(&plan)?;
    let adapters = Adapters::load(&args.session.lora, model)?;
    let engine = adapters.attach(memory.engine(model, plan, kernels, &*workers)?)?;
    let mut masks = MaskMemory::new(tokenizer);
    let mut scheduler = Scheduler::new(engine, tokenizer, masks.masks(tokenizer)?, parallel, counters);
    if let Some(file) = &mut kept {
        scheduler.restore(file, adapters.scales())?;
    }
    ready();
    scheduler.run(commands);
    kept.map_or(Ok(()), |file| scheduler.save(&file, adapters.scales()))
}

/// Returns a random number from the keys of a standard hash map, which the system's random generator provides.
pub fn by_chance() -> u64 {
    RandomState::new().build_hasher().finish()
}
