//! `arenite embed`: a text as one vector.

use std::path::PathBuf;

use anyhow::{Context, Result};
use arenite::Model;
use arenite::tokenizer::Encode;

use crate::cli::{Ids, RunArgs};
use crate::model_file::ModelFile;
use crate::new_file::write_file;
use crate::output::{Out, note};
use crate::runtime::{self, Memory};
use crate::{npy, text, workers};

/// Turn a text into one vector, with an encoder model
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite embed -m bge-small.gguf -p \"The sea is calm\"
  arenite embed -m bge-small.gguf -p \"The sea is calm\" -o sea.npy

The states of all tokens become one vector as the model says, of unit length. Without -o it is printed as
a JSON list.")]
pub struct Args {
    /// The text
    #[arg(short, long, value_name = "TEXT", required_unless_present = "ids")]
    prompt: Option<String>,

    /// Token ids instead of a text, used exactly as given
    #[arg(long, value_name = "IDS", conflicts_with = "prompt")]
    ids: Option<Ids>,

    /// Leave the vector as long as it is
    #[arg(long)]
    no_normalize: bool,

    /// The .npy file to write
    #[arg(short, long, value_name = "F.npy")]
    output: Option<PathBuf>,

    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<()> {
    let gguf = file.parse()?;
    let model = Model::new(&gguf).with_context(|| file.name().to_string())?;
    let ids = match (&args.ids, &args.prompt) {
        (Some(ids), _) => ids.0.clone(),
        (None, prompt) => {
            let mut index = Vec::new();
            let tokenizer = text::tokenizer(&gguf, &mut index).with_context(|| file.name().to_string())?;
            let how = Encode { add_special: true, parse_special: false };
            text::encode(&tokenizer, prompt.as_deref().unwrap_or_default().as_bytes(), how)?
        }
    };
    let kernels = runtime::kernels(&args.run.session.isa)?;
    let workers = workers::start(args.run.threads.unwrap_or_else(workers::cores));
    let context = args.run.session.ctx_size.unwrap_or(ids.len().max(1));
    let plan =
        runtime::plan(&gguf, &args.run.session, context, workers.count()).with_context(|| file.name().to_string())?;
    let mut memory = Memory::new(&plan)?;
    let mut session = memory.session(&model, plan, kernels, &*workers)?;
    session.encode(&ids).with_context(|| file.name().to_string())?;
    let mut vector = vec![0.0; model.spec().dim];
    session.pooled(&mut vector)?;
    if !args.no_normalize {
        let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        if length > 0.0 {
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
        }
    }
    match &args.output {
        Some(path) => {
            write_file(path, |out| npy::array(out, &[vector.len()], &vector))?;
            note(format_args!("{}: float32 [{}]", path.display(), vector.len()));
        }
        None => Out::lock().json(&vector)?,
    }
    Ok(())
}
