//! `arenite serve`: an OpenAI-compatible HTTP server.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use arenite_files::is_projector;
use arenite_serve::HeaderValue;

use crate::cli::{DraftArgs, ModelArgs, ReuseArgs, RunArgs, StepArgs, TemplateArgs, at_least_one, memory_size, one_of};
use crate::output::announce::announce;
use crate::output::{Bytes, Out, note};
use crate::{Invocation, foreign, formats};
use arenite_run::model_file::{ModelFile, Source};
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::RunOptions;
use arenite_run::scheduler::{Counters, DiskCache, HISTORIES};
use arenite_run::service::{Fetch, Host, Kept, run_engine};
use arenite_run::split;
use arenite_serve::{
    App, CacheScope, ClientKey, Common, Limits, Log, LogFormat, ModelEntry, Models, ProgramMemory, Proxy, READERS,
    RequestMemory, SOUNDS, router, router_of_models, serve, transcribe,
};

/// Start an OpenAI-compatible HTTP server
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite serve -m model.gguf --port 8080 --parallel 8 -c 4096
  arenite serve -m small.gguf -m large.gguf --memory 6G

The first line of standard output is `listening on http://HOST:PORT`. A chat page is at /. OpenAI's and Anthropic's \
interfaces are under /v1, Ollama's under /api; /completion, /props, /slots, /apply-template, /infill, /tokenize, /detokenize, \
/health and /metrics are llama.cpp's. Answers do not depend on other requests running at the same time. On SIGTERM the server \
exits within two seconds: answers that are not finished by then end with an error.

With several models, or a folder of them, the field `model` of a request chooses one; /v1/models lists them. Each is \
loaded in a process of its own when a request needs it.

The sampling options apply to requests without these fields.")]
pub struct Args {
    /// Address to listen on; 0.0.0.0 accepts connections from other machines
    #[arg(long, value_name = "H", default_value = "127.0.0.1", value_parser = host_name)]
    host: String,

    /// Port; 0 selects a free one
    #[arg(long, value_name = "P", default_value_t = 8080, allow_negative_numbers = true,
        value_parser = |port: &str| port.parse::<u16>().map_err(|_| "give a number from 0 to 65535"))]
    port: u16,

    /// Number of answers that are generated at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one)]
    parallel: usize,

    /// Name of the model in requests and answers [default: the file's name]. Several names, also separated by commas,
    /// stand for one model, and the first is shown; with several models, each has one name
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,

    #[command(flatten)]
    template: TemplateArgs,

    /// Maximum memory of the server and its loaded models, such as 6G. To load another model, the server unloads the one
    /// that has been idle the longest [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = memory_size)]
    memory: Option<usize>,

    /// Serve one of several models: requests come from the process at the other end of standard input
    #[arg(long, hide = true)]
    within: bool,

    /// Number of further requests that may wait; requests beyond that get status 429
    #[arg(long, value_name = "N", default_value_t = 256)]
    queue: usize,

    /// API key that clients must send; several keys are separated by commas
    #[arg(long, value_name = "K", env = "ARENITE_API_KEY", hide_env_values = true, value_delimiter = ',',
        value_parser = api_key)]
    api_key: Vec<String>,

    /// Clients that share the cache of conversations: those with the same address (client), or all (server). With
    /// `server`, the speed and the counts of cached tokens tell a client about the prompts of others [default: server
    /// with --api-key, otherwise client]
    #[arg(long, value_parser = one_of(&CacheScope::ALL), value_name = "client|server", hide_possible_values = true)]
    cache_scope: Option<CacheScope>,

    /// Let answers continue when the context is full: half of the tokens are dropped, and the rest is read again. Requests
    /// choose what stays (n_keep, n_discard). Without this option, an answer ends there
    #[arg(long)]
    context_shift: bool,

    /// Folder for conversations that clients save with /slots: each client has its own, unless all share the cache
    #[arg(long, value_name = "DIR")]
    slot_save_path: Option<PathBuf>,

    /// Folder for conversations that leave memory: prompts that continue them are not read again, after a restart either
    #[arg(long, value_name = "DIR")]
    cache_disk: Option<PathBuf>,

    /// Maximum size of the conversations in --cache-disk, and of those that a client saves in --slot-save-path
    #[arg(long, value_name = "BYTES", value_parser = memory_size, default_value = "8G")]
    cache_disk_size: usize,

    /// Unload a model after this number of seconds without a request; the next request loads it again. Ollama's
    /// `keep_alive` in a request replaces this time
    #[arg(long, value_name = "S")]
    idle_timeout: Option<u64>,

    /// Write a line about each request to standard error, without its text
    #[arg(long, value_parser = one_of(&LogFormat::ALL), value_name = "FORMAT")]
    log_format: Option<LogFormat>,

    /// Allow requests from web pages of this origin, such as https://example.org; * for all, chrome-extension://* for all with
    /// this scheme. May be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    cors_origin: Vec<HeaderValue>,

    /// Fetch pictures whose addresses requests give (`image_url`), from the public internet only. Without this option, clients
    /// send the data of pictures
    #[arg(long)]
    allow_image_url: bool,

    /// Models that answer /v1/systemone: those trained for decisions (trained), or also any other that generates text, by the
    /// probabilities of their answers (any)
    #[arg(long, value_parser = one_of(&DECIDES), value_name = "trained|any", default_value = "trained",
        action = clap::ArgAction::Set, hide_possible_values = true, hide_default_value = true)]
    decide: bool,

    #[command(flatten)]
    draft: DraftArgs,

    #[command(flatten)]
    reuse: ReuseArgs,

    #[command(flatten)]
    steps: StepArgs,

    #[command(flatten)]
    run: RunArgs,
}

/// Reads an origin, or a pattern of origins, in the form in which browsers send origins.
fn origin(text: &str) -> std::result::Result<HeaderValue, String> {
    let text = text.strip_suffix('/').unwrap_or(text).to_ascii_lowercase();
    let host = text.split_once("://").filter(|(scheme, _)| !scheme.is_empty()).map(|(_, host)| host);
    let is_name =
        |host: &str| !host.is_empty() && host.bytes().all(|b| b.is_ascii_graphic() && !b"*/?#@,".contains(&b));
    let is_origin = ["*", "null"].contains(&&text[..]) || host.is_some_and(|host| host == "*" || is_name(host));
    HeaderValue::from_str(&text).ok().filter(|_| is_origin).ok_or_else(|| {
        "an origin is a scheme and a host, without a path: https://example.org, http://localhost:3000, \
         chrome-extension://* for all hosts, or * for all origins"
            .into()
    })
}

/// Values of `--decide`: whether all models decide.
const DECIDES: [(&str, bool); 2] = [("trained", false), ("any", true)];

impl Args {
    /// True if there may be several models.
    pub fn takes_several(&self) -> bool {
        !self.within
    }

    /// The clients that share the cache. All clients with a key count as one client, unless the option says otherwise.
    fn scope(&self) -> CacheScope {
        let usual = if !self.api_key.is_empty() { CacheScope::Server } else { CacheScope::Client };
        self.cache_scope.unwrap_or(usual)
    }

    /// Returns the key for identifiers of clients. If there are files that belong to clients, the key is stored beside
    /// them.
    fn identities(&self) -> Result<ClientKey> {
        let Some(folder) = self.slot_save_path.as_ref().or(self.cache_disk.as_ref()) else {
            return Ok(ClientKey::random());
        };
        ensure!(folder.is_dir(), "{}: a folder for conversations must exist", folder.display());
        ClientKey::kept_in(folder)
    }

    fn limits(&self) -> Limits {
        // If this process serves one of several models, it has no origins, because the proxy process checks origins.
        let origins = if self.within { Vec::new() } else { self.cors_origin.clone() };
        Limits {
            host: self.host.clone(),
            port: self.port,
            origins,
            listening: |address| Ok(Out::lock().now(format!("listening on http://{address}\n").as_bytes())?),
            stopping: || {
                note("shutting down: open requests have two seconds; a second signal ends the server at once");
            },
        }
    }
}

/// Parses an API key. An empty key is refused, because it would lock out all clients or accept all of them.
fn api_key(key: &str) -> Result<String, &'static str> {
    match key.trim() {
        "" => Err("the key is empty: give one, or leave out --api-key and ARENITE_API_KEY"),
        key => Ok(key.into()),
    }
}

/// Parses an address. An IPv6 address may have brackets, as in URLs: `[::1]`. Paths of Unix sockets are refused.
fn host_name(host: &str) -> Result<String, &'static str> {
    match host.contains('/') || host.ends_with(".sock") {
        true => Err("unix sockets are not supported: give an address, such as 127.0.0.1"),
        false => Ok(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).into()),
    }
}

/// Time for the engine to end after the last request.
const LAST_PASS: Duration = Duration::from_millis(200);

pub fn run(args: &Args, model: &ModelArgs, invocation: Invocation) -> Result<()> {
    let program = ProgramMemory::at_start();
    let files = files(&model.model)?;
    match &files[..] {
        [] | [_] if args.idle_timeout.is_none() || args.within => {
            one(args, formats::open(&ModelArgs { model: files, ..model.clone() })?, &program)
        }
        _ => several(args, model, &files, &program, invocation),
    }
}

/// Opens and plans a model.
fn host(args: &Args, file: ModelFile) -> Result<Host> {
    let options =
        RunOptions { parallel: args.parallel, ..args.reuse.apply(args.draft.apply(args.run.options()?, &file, false)) };
    let mut host = Host::new(OpenModel::new(file, options)?, true)?;
    host.service.params = args.steps.params(host.service.params)?;
    host.service.breakers = args.steps.breakers();
    host.service.shifts = args.context_shift;
    host.service.temperature = args.steps.temp;
    host.service.decides_any = args.decide;
    host.service.fetch = if args.allow_image_url { Some(fetch()?) } else { None };
    if let (Some((path, false)), Err(error)) = (host.open.file().projector(), host.open.need_eyes()) {
        note(format_args!("warning: {} is not used, so there are no pictures: {error:#}", path.display()));
    }
    let (name, template) = args.template.read()?;
    if name != "auto" || template.is_some() {
        host.service.use_template(name, template)?;
    }
    Ok(host)
}

/// Fetches the pictures of requests.
#[cfg(feature = "hub")]
fn fetch() -> Result<Fetch> {
    Ok(|address| arenite_hub::fetch_public(address, MOST_PICTURE))
}

#[cfg(not(feature = "hub"))]
fn fetch() -> Result<Fetch> {
    bail!("this build fetches nothing: leave out --allow-image-url, or build with the feature `hub`");
}

/// Maximum size in bytes of a picture that is fetched.
#[cfg(feature = "hub")]
const MOST_PICTURE: u64 = 20 << 20;

/// Reads the secret that the proxy process writes to standard input. When the proxy process ends, this process exits.
fn secret_of_proxy() -> Result<String> {
    let mut secret = String::new();
    std::io::stdin().read_line(&mut secret)?;
    ensure!(!secret.trim().is_empty(), "--within is for the processes of a server with several models");
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    Ok(secret.trim().into())
}

/// Serves one model.
fn one(args: &Args, file: ModelFile, program: &ProgramMemory) -> Result<()> {
    let proxy = args.within.then(secret_of_proxy).transpose()?;
    let host = host(args, file)?;
    let sounds = if host.open.model().spec().sound().is_some() { SOUNDS } else { 0 };
    // Number of snapshots of conversations that are in memory at the same time: two wait for the disk, one is being
    // made, and one is for a slot.
    let has_files = args.slot_save_path.is_some() || args.cache_disk.is_some();
    let snapshots = if has_files { 4 * host.plan.kv.div_ceil(args.parallel) } else { 0 };
    let requests = RequestMemory::most(READERS) + HISTORIES + sounds + snapshots;
    let program = program.of_model(host.open.options.threads);
    let bytes = host.bytes(requests, program);
    if let Some(memory) = args.memory.filter(|memory| !args.within && bytes > *memory) {
        let (bytes, memory) = (Bytes(bytes), Bytes(memory));
        bail!("the model takes {bytes}, and --memory is {memory}: give more, or a smaller -c or --parallel");
    }
    host.open.file().plans(bytes - host.open.file().len());
    announce(&host, Some((requests, program)));
    let (commands, asked) = channel();
    let (transcriptions, sounds_asked) = channel();
    let counters = Arc::new(Counters::default());
    let disk = match &args.cache_disk {
        // Each model has a separate folder, because a model cannot read the conversations of another model.
        Some(folder) => {
            let own = folder.join(format!("{:016x}", host.service.facts.fingerprint));
            Kept::All(Some(DiskCache::open(&own, args.cache_disk_size as u64)?))
        }
        None => Kept::Nothing,
    };
    let Host { open, plan, drafting, mut service } = host;
    match (args.within, args.alias.last()) {
        (true, Some(alias)) => service.name.clone_from(alias),
        (true, None) => {}
        (false, _) => {
            let names = args.alias.iter().flat_map(|names| names.split(',')).map(str::trim);
            let mut names = names.filter(|name| !name.is_empty()).map(str::to_owned);
            service.name = names.next().unwrap_or(service.name);
            service.aliases = names.collect();
        }
    }
    let app = Arc::new(App {
        most_open: args.parallel + args.queue,
        parallel: args.parallel,
        keys: args.api_key.clone(),
        scope: args.scope(),
        proxy,
        hears: open.model().spec().sound().is_some(),
        workspace: plan.workspace,
        kv: plan.kv,
        log: args.log_format.map(|format| Log::new(format, std::io::stderr())),
        identities: args.identities()?,
        slots: args.slot_save_path.clone(),
        most_saved: args.cache_disk_size as u64,
        ..App::new(service, commands, transcriptions, counters.clone())
    });
    let limits = args.limits();
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    // From here on, Ctrl-C does not end the process at once: the server first answers all open requests.
    crate::interrupt::listen();
    let served = counters.clone();
    let (running, has_ended) = channel::<()>();
    let sockets = std::thread::spawn(move || {
        let origins = limits.origins.clone();
        let done = serve(|gate| router(app, origins, gate), &served, &limits, is_ready);
        // Exit at once, because nobody waits for the pass that may still be running.
        if done.is_ok() && has_ended.recv_timeout(LAST_PASS) == Err(RecvTimeoutError::Timeout) {
            std::process::exit(0);
        }
        done
    });
    let ready = || _ = ready.send(());
    match open.model().spec().sound() {
        Some(_) => transcribe(&open, plan, &counters, &sounds_asked, ready)?,
        None => run_engine(&open, (plan, drafting), disk, counters, &asked, ready)?,
    }
    drop(running);
    sockets.join().map_err(|_| anyhow!("the server thread panicked"))?
}

/// Replaces each folder by the models in the folder, sorted by name.
fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in given {
        let inside =
            if path.is_dir() { models_in(path).with_context(|| path.display().to_string())? } else { Vec::new() };
        // A folder without models stays in the list, so that opening it reports the error.
        files.extend(if inside.is_empty() { vec![path.clone()] } else { inside });
    }
    Ok(files)
}

fn models_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = std::fs::read_dir(folder)?.map(|file| Ok(file?.path()));
    let mut files = files.collect::<std::io::Result<Vec<_>>>()?;
    let is_projector = |path: &Path| path.to_str().is_some_and(is_projector);
    files.retain(|path| path.extension().is_some_and(|kind| kind == "gguf"));
    files.retain(|path| !split::is_later_piece(path) && !is_projector(path));
    files.sort();
    Ok(files)
}

/// Serves several models.
fn several(
    args: &Args,
    model: &ModelArgs,
    files: &[PathBuf],
    program: &ProgramMemory,
    invocation: Invocation,
) -> Result<()> {
    ensure!(
        model.mmproj.is_none() || files.len() < 2,
        "--mmproj belongs to one model: leave it out, and put each model into a folder with its mmproj*.gguf"
    );
    let mut models = Vec::new();
    for path in files {
        // The file is mapped, because copying it only to plan its memory would take too long.
        let (tokenizer, projector) = (model.tokenizer.as_deref(), model.projector());
        let source = Source { tokenizer, projector, ..Source::from(path.as_path()) };
        let planned = ModelFile::open(source).and_then(|file| Ok(ModelEntry::new(path, &host(args, file)?, program)));
        match planned.map_err(|error| foreign::explained(Some(path), error)) {
            Ok(planned) => models.push(planned),
            Err(error) if model.model.contains(path) => return Err(error),
            Err(error) => note(format_args!("{error:#}: this file of the folder is left out")),
        }
    }
    let none = "there is no model: give files or a folder with -m (--idle-timeout needs a file)";
    ensure!(!models.is_empty(), "{none}");
    let (names, count) = (args.alias.len(), models.len());
    ensure!(names <= count, "there are {names} names (--alias) for {count} models: give at most one for each");
    for (model, name) in models.iter_mut().zip(&args.alias) {
        model.name.clone_from(name);
    }
    let own = RequestMemory::BODIES + program.of_proxy();
    // The processes of the models find the key.
    args.identities()?;
    let idle = args.idle_timeout.map(Duration::from_secs);
    let mut arguments = invocation.leading;
    arguments.extend(invocation.arguments);
    let models = Models::new(models, args.memory, own, idle, (invocation.program, arguments))?;
    let listed: Vec<_> =
        models.list().iter().map(|(model, _)| format!("{} {}", model.name, Bytes(model.bytes))).collect();
    note(format_args!(
        "memory  models up to {} at a time ({}), bodies of requests, program and connections {}, in all up to {}",
        Bytes(models.budget()),
        listed.join(", "),
        Bytes(own),
        Bytes(models.budget() + own),
    ));
    let counters = Arc::new(Counters::default());
    let proxy = Proxy::new(models, counters.clone());
    let limits = args.limits();
    let (origins, log) = (limits.origins.clone(), args.log_format.map(|format| Log::new(format, std::io::stderr())));
    let routes = |gate| router_of_models(proxy, Common { keys: args.api_key.clone(), log, origins, gate });
    let (ready, is_ready) = tokio::sync::oneshot::channel();
    let _ = ready.send(());
    crate::interrupt::listen();
    serve(routes, &counters, &limits, is_ready)
}
