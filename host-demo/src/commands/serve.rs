//! `arenite serve`: an OpenAI-compatible HTTP server.

use std::hash::RandomState;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use anyhow::{Result, anyhow};
use axum::http::HeaderValue;
use tokio::sync::Semaphore;

use crate::cli::{RunArgs, at_least_one};
use crate::model_file::ModelFile;
use crate::open_model::OpenModel;
use crate::runtime::RunOptions;
use crate::server::{App, Counters, Host, Limits, Log, LogFormat, READERS, RequestMemory, run_engine, serve};

/// Start an OpenAI-compatible HTTP server
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite serve -m model.gguf --port 8080 --parallel 8 -c 4096

The first line of standard output is `listening on http://HOST:PORT`. A chat page is at /. OpenAI's and Anthropic's \
interfaces are under /v1, Ollama's under /api; /props, /apply-template, /infill, /tokenize, /detokenize, /health and \
/metrics are llama.cpp's. Answers do not depend on other requests running at the same time. On SIGTERM the server \
finishes all running answers and exits.")]
pub struct Args {
    /// Address to listen on; 0.0.0.0 accepts connections from other machines
    #[arg(long, value_name = "H", default_value = "127.0.0.1")]
    host: String,

    /// Port; 0 selects a free one
    #[arg(long, value_name = "P", default_value_t = 8080)]
    port: u16,

    /// Number of answers that are generated at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one)]
    parallel: usize,

    /// Name of the model in requests and answers [default: the file's name]
    #[arg(long, value_name = "NAME")]
    alias: Option<String>,

    /// Number of further requests that may wait; requests beyond that get status 429
    #[arg(long, value_name = "N", default_value_t = 256)]
    queue: usize,

    /// API key that clients must send
    #[arg(long, value_name = "K", env = "ARENITE_API_KEY", hide_env_values = true)]
    api_key: Option<String>,

    /// Write a line about each request to standard error, without its text
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,

    /// Allow requests from web pages of this origin, such as https://example.org; * for all. May be repeated
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<HeaderValue>,

    #[command(flatten)]
    run: RunArgs,
}

/// Number of requests for vectors that are answered at the same time.
const VECTOR_REQUESTS: usize = 4;

pub fn run(args: &Args, file: ModelFile) -> Result<()> {
    let options = RunOptions { parallel: args.parallel, ..args.run.options()? };
    let host = Host::new(OpenModel::new(file, options)?, true)?;
    host.announce(RequestMemory::most(READERS));
    let (commands, asked) = channel();
    let counters = Arc::new(Counters::default());
    let Host { open, plan, mut service } = host;
    if let Some(alias) = &args.alias {
        service.name.clone_from(alias);
    }
    let app = Arc::new(App {
        service,
        commands,
        counters: counters.clone(),
        most_open: args.parallel + args.queue,
        parallel: args.parallel,
        key: args.api_key.clone(),
        hears: open.model().spec().sound().is_some(),
        workspace: plan.workspace,
        kv: plan.kv,
        started: Instant::now(),
        memory: RequestMemory::default(),
        log: args.log_format.map(Log::new),
        vector_requests: Semaphore::new(VECTOR_REQUESTS),
        hasher: RandomState::new(),
    });
    let limits = Limits { host: args.host.clone(), port: args.port, origins: args.cors_origin.clone() };
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    // The sockets' own handler ends the server at the first Ctrl-C, when all is answered.
    crate::interrupt::listen();
    let sockets = std::thread::spawn(move || serve(app, &limits, is_ready));
    run_engine(&open, plan, None, counters, &asked, || _ = ready.send(()))?;
    sockets.join().map_err(|_| anyhow!("the server thread panicked"))?
}
