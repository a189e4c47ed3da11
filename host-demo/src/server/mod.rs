//! Many conversations at once: an engine in a thread, and requests in OpenAI's form that it serves.
//!
//! ```text
//! http       sockets, limits, the end    seats       connections that are open
//! routes     the paths of the server     app         requests that are open
//! request    what may be asked           service     requests to jobs, events to answers
//! stream     answers as they come        responses   another form of chats
//! tools      calls in answers            logprobs    how likely tokens were
//! engine     the thread, pass by pass    shares      who reads how much in the next pass
//! cache      contexts worth keeping      error       what went wrong
//! ```

mod app;
mod cache;
mod engine;
mod error;
mod http;
mod logprobs;
mod request;
mod responses;
mod routes;
mod seats;
mod service;
mod shares;
mod stream;
mod tools;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

pub use app::App;
pub use engine::{Command, Counters, Embedding, Event, Job, Scheduler};
pub use error::ApiError;
pub use http::{Limits, serve};
pub use request::Body;
pub use responses::to_chat;
pub use service::{Choice, Endpoint, Frame, Prepared, Service};

use anyhow::{Context, Result};
use arenite::model::Stack;
use arenite::tokenizer::Tokenizer;
use arenite::{Gguf, Model, Plan};

use crate::chat::Renderer;
use crate::cli::RunArgs;
use crate::grammar::MaskMemory;
use crate::model_file::ModelFile;
use crate::output::{Bytes, note};
use crate::ranking::Ranking;
use crate::{runtime, workers};

/// A model for many conversations, and all that is needed to run it. It stays until the process ends.
pub struct Host {
    pub model: &'static Model<'static>,
    pub plan: Plan,
    pub service: Service,
    pub args: RunArgs,
}

impl Host {
    /// Plans for `parallel` answers at once, and prints the memory before it is taken.
    pub fn new(file: ModelFile, args: &RunArgs, parallel: usize) -> Result<Self> {
        // What lives as long as the process needs no owner.
        let file: &'static ModelFile = Box::leak(Box::new(file));
        let named = || file.name().to_string();
        let gguf: &'static Gguf<'static> = Box::leak(Box::new(file.parse()?));
        let model: &'static Model<'static> = Box::leak(Box::new(Model::new(gguf).with_context(named)?));
        let index: &'static mut Vec<u8> = Box::leak(Box::default());
        let tokenizer: &'static Tokenizer<'static, 'static> =
            Box::leak(Box::new(crate::text::tokenizer(gguf, index).with_context(named)?));
        let context = runtime::context(&args.session, model, 0);
        let threads = args.threads.unwrap_or_else(workers::cores);
        // As many contexts again for what is finished and may be gone on with; pages for those at work.
        let options = runtime::options(&args.session, gguf, context, threads)
            .contexts(2 * parallel + 1)
            .pages(parallel.saturating_mul(context.div_ceil(16)))
            .logits(parallel)
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
        let template = gguf.str("tokenizer", "chat_template").ok().flatten().unwrap_or_default();
        let tags_calls = String::from_utf8_lossy(template).contains("<tool_call>");
        let name = file.name();
        let name =
            std::path::Path::new(name).file_stem().map_or(name.into(), |stem| stem.to_string_lossy().into_owned());
        // A decoder for embeddings says how its states become a vector.
        let pooling = gguf.architecture().and_then(|name| gguf.u32(name, "pooling_type"));
        let makes_vectors = !makes_text || pooling.is_ok_and(|pooling| pooling.is_some_and(|pooling| pooling > 0));
        if !makes_text {
            note("this model makes no text: /v1/embeddings and /v1/rerank answer");
        }
        let service = Service {
            tokenizer,
            renderer: Renderer::new(gguf, tokenizer, "auto", None)?.into(),
            name,
            context,
            vocab: model.spec().vocab,
            ranking: Ranking::new(gguf, model).ok(),
            makes_text,
            makes_vectors,
            tags_calls,
        };
        Ok(Self { model, plan, service, args: args.clone() })
    }
}

/// Runs the engine in this thread until nobody asks any more.
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

/// A number by chance: the keys of the standard library's hash maps come from the system's random numbers.
pub fn by_chance() -> u64 {
    RandomState::new().build_hasher().finish()
}
