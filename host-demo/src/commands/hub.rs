//! `arenite pull`, `arenite list` and `arenite rm`: the models in the cache.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cli::NoModelArgs;
use crate::output::progress::DownloadBar;
use crate::output::{self, Bytes, Out, note};
use arenite_hub::{self as hub, Access, Cache, Name};

/// Fetch models from the Hugging Face hub or from an address
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite pull ggml-org/Qwen3-0.6B-GGUF:Q8_0
  arenite pull https://example.org/model.gguf
  arenite generate -hf ggml-org/Qwen3-0.6B-GGUF:Q8_0 -p \"The sea\"

QUANT is a quantization in the file's name [default: Q4_K_M, otherwise Q8_0 or the first file]. An interrupted download \
is resumed, and its hash is checked. Split models are fetched whole. The cache is that of the Python package \
huggingface_hub: LLAMA_CACHE, HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub. HF_ENDPOINT is another hub's address, \
HF_TOKEN an access token for gated and private repositories. SSL_CERT_FILE is a file with certificates of authorities to \
trust in place of Mozilla's. Prints the path of each model.")]
pub struct PullArgs {
    /// Models to fetch
    #[arg(required = true, value_name = "USER/REPO[:QUANT]|URL")]
    names: Vec<String>,

    #[command(flatten)]
    none: NoModelArgs,
}

/// List the models in the cache
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite list

The first column is a name for -hf and for `arenite rm`.")]
pub struct ListArgs {
    /// Print a JSON list
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    none: NoModelArgs,
}

/// Remove models from the cache
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite rm ggml-org/Qwen3-0.6B-GGUF:Q8_0
  arenite rm ggml-org/Qwen3-0.6B-GGUF                all files, also those of other programs")]
pub struct RmArgs {
    /// Models, as `arenite list` shows them
    #[arg(required = true, value_name = "USER/REPO[:QUANT]")]
    names: Vec<String>,

    #[command(flatten)]
    none: NoModelArgs,
}

/// Calls `each` for every name, even after an error. Reports all errors.
fn for_all(names: &[String], mut each: impl FnMut(&str) -> Result<()>) -> Result<ExitCode> {
    let mut failed = Vec::new();
    for name in names {
        if let Err(error) = each(name) {
            failed.push(error);
        }
    }
    let last = failed.pop();
    failed.iter().for_each(|error| _ = output::report(error));
    last.map_or(Ok(ExitCode::SUCCESS), Err)
}

pub fn pull(args: &PullArgs, token: Option<&str>) -> Result<ExitCode> {
    let access = Access { token, progress: &DownloadBar::default() };
    for_all(&args.names, |name| {
        let path = match hub::is_address(Path::new(name)) {
            true => hub::pull_from(name, access)?,
            false => hub::pull(&Name::parse(name)?, access)?,
        };
        if let Some(drafter) = hub::drafter_beside(&path) {
            note(format_args!("{}: its layers draft for the model", drafter.display()));
        }
        Ok(writeln!(Out::lock(), "{}", path.display())?)
    })
}

pub fn list(args: &ListArgs) -> Result<()> {
    let entries = Cache::open()?.entries();
    let mut out = Out::lock();
    let name = |entry: &hub::Entry| match hub::quant_of(&entry.file) {
        Some(quant) => format!("{}:{quant}", entry.repository),
        None => entry.repository.clone(),
    };
    if args.json {
        let row = |entry: &hub::Entry| json!({ "name": name(entry), "file": entry.file, "path": entry.path, "bytes": entry.bytes });
        return Ok(out.json(&entries.iter().map(row).collect::<Vec<_>>())?);
    }
    if entries.is_empty() {
        note("there are no models in the cache: `arenite pull USER/REPO` fetches one");
    }
    let width = entries.iter().map(|entry| name(entry).len()).max().unwrap_or(0);
    for entry in &entries {
        writeln!(out, "{:width$}  {:>10}  {}", name(entry), Bytes(entry.bytes as usize).to_string(), entry.file)?;
    }
    Ok(())
}

pub fn rm(args: &RmArgs) -> Result<ExitCode> {
    for_all(&args.names, |text| {
        let name = Name::parse(text)?;
        let cache = Cache::open()?;
        let missing = || format!("{text} is not in the cache: `arenite list` shows the models that are");
        let repository = cache.repository(&name.repository);
        let freed = match &name.quant {
            Some(quant) => {
                let entries = cache.entries().into_iter().filter(|entry| entry.repository == name.repository);
                let files: Vec<String> = entries.map(|entry| entry.file).collect();
                let files = hub::with_quant(&files.iter().collect::<Vec<_>>(), quant);
                ensure!(!files.is_empty(), missing());
                repository.remove(&files)
            }
            None => {
                ensure!(repository.exists(), missing());
                repository.remove_all()
            }
        };
        let freed = freed.context("cannot remove the model")?;
        note(format_args!("removed {text}, which frees {}", Bytes(freed as usize)));
        Ok(())
    })
}
