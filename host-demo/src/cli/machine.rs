//! Options for the model, its memory and the machine.

use std::path::{Path, PathBuf};

use anyhow::Result;
use arenite::KvType;
use clap::{Args, ValueEnum};

use super::choice::one_of;
use super::number::{at_least_one, context_size, threads};
use arenite_run::model_file::{Load, Projector};
use arenite_run::runtime::{self, RunOptions};
use arenite_run::workers;

/// Options that name the model.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Model file or its address: GGUF, or a llama2.c checkpoint with --tokenizer [default: the built-in model]. `serve`
    /// takes several, or a folder of them
    #[arg(short, long, global = true, value_name = "FILE")]
    pub model: Vec<PathBuf>,

    /// Model on the Hugging Face hub, fetched if the cache does not have it; see `arenite pull`
    #[cfg(feature = "hub")]
    #[arg(long, global = true, value_name = "USER/REPO[:QUANT]")]
    pub hf: Option<String>,

    /// File of the repository that -hf names
    #[cfg(feature = "hub")]
    #[arg(long, global = true, value_name = "FILE", requires = "hf")]
    pub hf_file: Option<String>,

    /// Access token for the hub [default: HF_TOKEN]
    #[cfg(feature = "hub")]
    #[arg(long, global = true, value_name = "TOKEN", hide = true)]
    pub hf_token: Option<String>,

    /// File that lets the model see pictures [default: the mmproj*.gguf beside the model or in its repository]
    #[arg(long, global = true, value_name = "FILE")]
    pub mmproj: Option<PathBuf>,

    /// Do not use the mmproj*.gguf beside the model
    #[arg(long, global = true, conflicts_with = "mmproj")]
    pub no_mmproj: bool,

    /// Vocabulary file, to add or replace the model's vocabulary; for a llama2.c checkpoint its tokenizer.bin
    #[arg(long, global = true, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,

    /// Before the model runs, look for NaN and infinity in all weights, and compare them with the hashes in the file,
    /// if any
    #[arg(long, global = true)]
    pub check_tensors: bool,

    /// How to hold the model in memory: map the file, or copy it to large pages, which makes decoding faster. `auto` maps
    /// the file and copies a large model in the background where memory allows
    #[arg(long, global = true, value_parser = one_of(&Load::ALL), value_name = "HOW", default_value = "auto")]
    pub load: Load,

    /// Print text of models and files to a terminal without escaping control characters
    #[arg(long, global = true)]
    pub raw: bool,
}

impl ModelArgs {
    /// The file that lets the model see.
    pub fn projector(&self) -> Projector<'_> {
        match &self.mmproj {
            Some(path) => Projector::File(path),
            None if self.no_mmproj => Projector::None,
            None => Projector::Beside,
        }
    }

    /// Returns the model file, or `None` for the built-in model. If `-m` is repeated, the last value counts, as with
    /// other options.
    pub fn file(&self) -> Option<&Path> {
        self.model.last().map(PathBuf::as_path)
    }
}

#[cfg(feature = "hub")]
impl ModelArgs {
    /// The model on the hub that `-hf` names.
    pub fn hf_name(&self) -> Option<&str> {
        self.hf.as_deref()
    }

    /// Downloads the models that are given as a name on the hub or as an address, and replaces each by the path of its
    /// file.
    pub fn fetch(&mut self) -> Result<()> {
        use crate::output::progress::DownloadBar;
        use arenite_hub as hub;

        let access = hub::Access { token: self.hf_token.as_deref(), progress: &DownloadBar::default() };
        if let Some(name) = &self.hf {
            anyhow::ensure!(self.model.is_empty(), "-m and -hf both name a model: give one of them");
            let name = hub::Name { file: self.hf_file.clone(), ..hub::Name::parse(name)? };
            self.model.push(hub::model(&name, access)?);
        }
        for model in self.model.iter_mut().chain(&mut self.mmproj).filter(|model| hub::is_address(model)) {
            *model = hub::model_at(&model.to_string_lossy(), access)?;
        }
        Ok(())
    }
}

#[cfg(not(feature = "hub"))]
impl ModelArgs {
    /// There is none: this build fetches no models.
    pub fn hf_name(&self) -> Option<&str> {
        None
    }

    /// Does nothing: this build fetches no models.
    pub fn fetch(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Options that hide `-m` and `--tokenizer` in the help of commands that do not use them.
#[derive(Clone, Debug, Args)]
pub struct NoModelArgs {
    #[arg(short, long, hide = true)]
    model: Option<PathBuf>,

    #[arg(long, hide = true)]
    tokenizer: Option<PathBuf>,
}

/// Options for a session's memory and kernels.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Memory and machine")]
pub struct SessionArgs {
    /// Size of the context in tokens; 0 for the model's own [default: the model's own, at most 4096]
    #[arg(short, long, value_name = "CTX", allow_negative_numbers = true,
        value_parser = |size: &str| if size == "0" { Ok(0) } else { context_size(size) })]
    pub ctx_size: Option<usize>,

    /// Maximum number of tokens per pass; longer prompts are split, with the same result
    #[arg(short, long, value_name = "BATCH", default_value_t = 512, allow_negative_numbers = true, value_parser = at_least_one)]
    pub batch_size: usize,

    /// Data type of the key-value cache [default: f16; f32 for encoders and llama2.c models]
    #[arg(long, value_enum)]
    pub kv: Option<Kv>,

    /// LoRA adapter in GGUF format, with an optional scale; may be repeated
    #[arg(long, value_name = "FILE[:SCALE]", value_delimiter = ',')]
    pub lora: Vec<String>,

    /// Instruction set of the kernels; `auto` selects the best available, but never `amx`, whose speed has not been measured
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub isa: String,
}

/// Options of every command that runs a model.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Memory and machine")]
pub struct RunArgs {
    #[command(flatten)]
    pub session: SessionArgs,

    /// Number of threads [default: number of cores]
    #[arg(short, long, allow_negative_numbers = true, value_parser = threads)]
    pub threads: Option<usize>,
}

impl SessionArgs {
    /// The options for running a model on `threads` threads.
    pub fn options(&self, threads: usize) -> Result<RunOptions> {
        Ok(RunOptions {
            context: self.ctx_size,
            batch: self.batch_size,
            kv: self.kv.map(Kv::into),
            lora: self.lora.clone(),
            kernels: runtime::kernels(&self.isa)?,
            threads,
            ..RunOptions::default()
        })
    }
}

impl RunArgs {
    /// The options for running a model.
    pub fn options(&self) -> Result<RunOptions> {
        self.session.options(self.threads.unwrap_or_else(workers::cores))
    }
}

/// Data type of the key-value cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Kv {
    #[value(alias = "f32,f32")]
    F32,
    #[value(alias = "f16,f16")]
    F16,
    #[value(name = "q8_0", alias = "q8_0,q8_0")]
    Q8_0,
    #[value(name = "q4_0", alias = "q4_0,q4_0")]
    Q4_0,
    /// Keys in q8_0, values in q4_0.
    #[value(name = "q8_0,q4_0")]
    Q8_0Q4_0,
}

impl From<Kv> for KvType {
    fn from(kv: Kv) -> Self {
        match kv {
            Kv::F32 => KvType::F32,
            Kv::F16 => KvType::F16,
            Kv::Q8_0 => KvType::Q8_0,
            Kv::Q4_0 => KvType::Q4_0,
            Kv::Q8_0Q4_0 => KvType::Q8_0Q4_0,
        }
    }
}
