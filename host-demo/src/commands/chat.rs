//! `arenite chat`: a conversation with a model.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use arenite::tokenizer::Tokenizer;
use minijinja::Value;

use crate::chat::{self, Failure, Inputs};
use crate::model_file::ModelFile;
use crate::output::Out;
use crate::text;

/// Talk with a model
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite chat -m model.gguf --system \"You answer briefly.\"
  arenite chat -m model.gguf --messages talk.json --print-prompt")]
pub struct Args {
    /// A conversation to begin with: a JSON list of {\"role\", \"content\"}
    #[arg(long, value_name = "F.json")]
    messages: Option<PathBuf>,

    /// Functions that the model may call: a JSON list of their schemas
    #[arg(long, value_name = "F.json")]
    tools: Option<PathBuf>,

    /// A Jinja template instead of the model's own
    #[arg(long, value_name = "F.jinja")]
    chat_template: Option<PathBuf>,

    /// Print the prompt that the conversation makes, and nothing else
    #[arg(long, requires = "messages")]
    print_prompt: bool,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<ExitCode> {
    let named = || file.name().to_string();
    let gguf = file.parse()?;
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index).with_context(named)?;
    let template = match &args.chat_template {
        Some(path) => read(path)?,
        None => bail!("todo"),
    };
    let messages = args.messages.as_deref().map(json).transpose()?.unwrap_or_default();
    let tools = args.tools.as_deref().map(json).transpose()?.unwrap_or_else(|| Value::from(()));
    let inputs = Inputs {
        messages: &messages,
        tools: &tools,
        bos: &spelled(&tokenizer, tokenizer.bos()),
        eos: &spelled(&tokenizer, tokenizer.eos()),
    };
    let prompt = chat::render(&template, &inputs).map_err(|failure| match failure {
        Failure::Broken(error) => error.context("the chat template"),
        Failure::Refused(why) => anyhow!("the chat template refuses: {why}"),
    })?;
    Out::lock().now(prompt.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn spelled(tokenizer: &Tokenizer<'_, '_>, id: Option<u32>) -> String {
    id.map(|id| String::from_utf8_lossy(tokenizer.spelling(id)).into_owned()).unwrap_or_default()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn json(path: &Path) -> Result<Value> {
    serde_json::from_str(&read(path)?).with_context(|| format!("{} is not JSON", path.display()))
}
