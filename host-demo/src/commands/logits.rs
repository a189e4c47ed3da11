//! `arenite logits`: what the model thinks of every next token, as a NumPy file.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use arenite::Model;

use crate::cli::{Ids, RunArgs};
use crate::model_file::ModelFile;
use crate::new_file::NewFile;
use crate::output::note;
use crate::runtime::{self, Memory};
use crate::{npy, workers};

/// Write the logits after given tokens to a NumPy file
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite logits --ids 1,403,407 --all -o logits.npy
  python3 -c 'import numpy; print(numpy.load(\"logits.npy\").argmax(1))'

The file holds 32-bit floats, [positions, vocabulary]. The ids are used exactly as given.")]
pub struct Args {
    /// Token ids, such as 1,2,3
    #[arg(long, value_name = "IDS")]
    ids: Ids,

    /// Token ids of the text that an encoder-decoder attends to; --ids are then the decoder's
    #[arg(long, value_name = "IDS")]
    encoder_ids: Option<Ids>,

    /// Every position, not only the last
    #[arg(long)]
    all: bool,

    /// The .npy file to write
    #[arg(short, long, value_name = "F.npy")]
    output: PathBuf,

    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<()> {
    let ids = &args.ids.0;
    ensure!(!ids.is_empty(), "--ids is empty: give at least one token, such as --ids 1,2,3");
    let gguf = file.parse()?;
    let model = Model::new(&gguf).with_context(|| file.name().to_string())?;
    let kernels = runtime::kernels(&args.run.session.isa)?;
    let workers = workers::start(args.run.threads.unwrap_or_else(workers::cores));
    let text = args.encoder_ids.as_ref().map_or(&[][..], |ids| &ids.0);
    let context = args.run.session.ctx_size.unwrap_or(ids.len().max(text.len()));
    let plan =
        runtime::plan(&gguf, &args.run.session, context, workers.count()).with_context(|| file.name().to_string())?;
    let mut memory = Memory::new(&plan)?;
    let mut session = memory.session(&model, plan, kernels, &*workers)?;

    if args.encoder_ids.is_some() {
        session.encode(text)?;
    }

    // The model runs before the file is touched: wrong ids leave an older file as it was.
    let vocab = model.spec().vocab;
    let shape = [if args.all { ids.len() } else { 1 }, vocab];
    let mut writer = Writer { path: &args.output, file: None, shape };
    if args.all {
        let mut written = Ok(());
        session.prefill_all(ids, |_, logits| {
            if written.is_ok() {
                written = writer.row(logits);
            }
        })?;
        written?;
    } else {
        session.prefill(ids)?;
        writer.row(session.logits())?;
    }
    writer.finish()?;
    note(format_args!("{}: float32 [{}, {}]", args.output.display(), shape[0], shape[1]));
    Ok(())
}

/// The file, created with the first row.
struct Writer<'a> {
    path: &'a Path,
    file: Option<NewFile>,
    shape: [usize; 2],
}

impl Writer<'_> {
    fn row(&mut self, logits: &[f32]) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut file = NewFile::create(self.path)?;
                npy::header(&mut file, &self.shape)?;
                none.insert(file)
            }
        };
        npy::values(file, logits).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn finish(self) -> Result<()> {
        self.file.map_or(Ok(()), NewFile::finish)
    }
}
