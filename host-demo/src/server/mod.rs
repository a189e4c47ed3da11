//! The HTTP server: an engine in a thread of its own, and requests in OpenAI's form.
//!
//! ```text
//! http        sockets, limits, shutdown     connections  open connections
//! routes      the paths of the server       app          state of all routes, open requests
//! request     fields of requests            fields       fields that are not supported
//! service     requests to jobs              chats        prompts and grammars of chats
//! vectors     embeddings and rankings       answer       answers in OpenAI's form
//! stream      answers as they come          responses    another form of chats
//! engine      the thread, pass by pass      running      a conversation that is being answered
//! budget      tokens of a pass              cache        contexts of finished conversations
//! logprobs    log-probabilities             error        errors
//! ```

mod answer;
mod app;
mod budget;
mod cache;
mod chats;
mod connections;
mod engine;
mod error;
mod fields;
mod http;
mod logprobs;
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
pub use engine::{Command, Counters, Embedding, Event, Job, Scheduler};
pub use error::ApiError;
pub use http::{Limits, serve};
pub use request::Body;
pub use responses::to_chat;
pub use service::{Endpoint, Prepared, Service};

use anyhow::{Context, Result};
use arenite::model::Stack;
use arenite::tokenizer::Tokenizer;
use arenite::{Gguf, Model, Plan};

use crate::chat::{Renderer, Style};
use crate::cli::RunArgs;
use crate::grammar::MaskMemory;
use crate::model_file::ModelFile;
use crate::output::{Bytes, note};
use crate::ranking::Ranking;
use crate::{runtime, workers};

/// A model for many conversations, loaded until the process ends.
pub struct Host {
    pub model: &'static Model<'static>,
    pub plan: Plan,
    pub service: Service,
    pub args: RunArgs,
}

impl Host {
    /// Plans for `parallel` answers at once, and prints the memory before it is allocated.
    pub fn new(file: ModelFile, args: &RunArgs, parallel: usize) -> Result<Self> {
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
        // As many contexts again are kept for finished conversations; pages are planned for running ones.
        let options = runtime::options(&args.session, gguf, context, threads)
            .contexts(2 * parallel + 1)
            .pages(parallel.saturating_mul(context.div_ceil(16)))
            .logits(parallel)
            // Of models with states: where conversations branch off, and around the end of each prompt.
            .checkpoints(3)
            .batch(args.session.batch_size.max(parallel));
        let plan = Plan::new(gguf, options).with_context(named)?;
        note(format_args!(
            "memory  workspace {}, KV cache {} ({parallel} conversations of {context} positions in {}), masks of grammars {}, model {} read in place",
            Bytes(plan.workspace),
            Bytes(plan.kv),
            runtime::kv(&args.session, gguf).name(),
            Bytes(MaskMemory::bytes(tokenizer)),
            Bytes(file.len()),
        ));
        let makes_text = matches!(model.spec().stack(), Stack::Alone);
        let name = file.name();
        let name =
            std::path::Path::new(name).file_stem().map_or(name.into(), |stem| stem.to_string_lossy().into_owned());
        // The key says how the states of a decoder become an embedding.
        let pooling = gguf.architecture().and_then(|name| gguf.u32(name, "pooling_type"));
        let makes_vectors = !makes_text || pooling.is_ok_and(|pooling| pooling.is_some_and(|pooling| pooling > 0));
        if !makes_text {
            note("this model makes no text: /v1/embeddings and /v1/rerank answer");
        }
        let renderer = Renderer::new(gguf, tokenizer, "auto", None)?;
        let service = Service {
            tokenizer,
            style: Style::of(&renderer, tokenizer),
            renderer: renderer.into(),
            name,
            context,
            vocab: model.spec().vocab,
            embedding_len: model.spec().embedding_len(),
            ranking: Ranking::new(gguf, model).ok(),
            makes_text,
            makes_vectors,
        };
        Ok(Self { model, plan, service, args: args.clone() })
    }
}

/// Runs the engine in this thread until all senders of commands are gone.
pub fn run_engine(
    model: &Model<'_>,
    plan: Plan,
    args: &RunArgs,
    tokenizer: &Tokenizer<'_, '_>,
    parallel: usize,
    counters: Arc<Counters>,
    commands: &Receiver<Command>,
) -> Result<()> {
    let kernels = runtime::kernels(&args.session.isa)?;
    let workers = workers::start(args.threads.unwrap_or_else(workers::cores));
    let mut memory = runtime::Memory::new(&plan)?;
    let engine = memory.engine(model, plan, kernels, &*workers)?;
    let mut masks = MaskMemory::new(tokenizer);
    Scheduler::new(engine, tokenizer, masks.masks(tokenizer)?, parallel, counters).run(commands);
    Ok(())
}

/// A random number: the keys of the standard library's hash maps come from the system's random numbers.
pub fn by_chance() -> u64 {
    RandomState::new().build_hasher().finish()
}
