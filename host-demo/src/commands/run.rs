//! `arenite run`: a conversation, or a single answer if the question is on the command line or comes from a pipe.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use super::{chat, generate};
use crate::cli::pictures::is_picture;
use crate::cli::{ModelArgs, is_piped};
use crate::output::note;
use crate::{foreign, formats, output};

/// Chat with a model; with a prompt or in a pipe, print one answer
#[derive(Debug, clap::Args)]
#[command(override_usage = "arenite run [MODEL] [PROMPT] [OPTIONS OF chat OR generate]")]
#[command(after_help = "Example:
  arenite run model.gguf                          chat
  arenite run model.gguf \"Why is the sky blue?\"   print one answer
  arenite run model.gguf \"Sum up:\" < notes.txt    standard input comes before the prompt
  arenite run model.gguf photo.jpg \"What is it?\"   a picture for a model that sees
  arenite run model.gguf \"Hello\" --temp 0         options of `chat` or `generate` come last

A model without a chat template continues the text, as `generate` does; a model with one answers, as `chat` does.")]
pub struct Args {
    /// Model (unless -m gives it), prompt, and options of `chat` or `generate`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "MODEL PROMPT OPTIONS")]
    words: Vec<OsString>,
}

#[derive(Parser)]
struct Chat {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    args: chat::Args,
}

#[derive(Parser)]
struct Generate {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    args: generate::Args,
}

pub fn run(args: &Args, model: &ModelArgs) -> Result<ExitCode> {
    let mut words = args.words.iter().cloned().peekable();
    let mut word = || words.next_if(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let file = if model.model.is_empty() && model.hf_name().is_none() { word().map(PathBuf::from) } else { None };
    // Pictures among the first words, and the prompt.
    let (mut images, mut prompt) = (Vec::new(), None);
    while prompt.is_none()
        && let Some(next) = word()
    {
        match is_picture(Path::new(&next)) {
            true => images.extend(["--image".into(), next]),
            false => prompt = Some(next),
        }
    }
    let options: Vec<_> = [OsString::from("arenite run")].into_iter().chain(images).chain(words).collect();
    // The options may belong to either command. If an option is wrong for a command, the parser of this command reports
    // it.
    let (given, typed) = match (Chat::try_parse_from(&options), Generate::try_parse_from(&options)) {
        (Ok(chat), _) => (chat.model, chat.args.prompt),
        (_, Ok(generate)) => (generate.model, None),
        (Err(told), _) => return Ok(output::usage_error(&told, &options)),
    };
    let named = given.model.last().cloned().or(file).or(model.model.last().cloned());
    let explained = |error| foreign::explained(named.as_deref(), error);
    if given.raw {
        output::raw();
    }
    let mut both = ModelArgs {
        model: named.clone().into_iter().collect(),
        tokenizer: given.tokenizer.clone().or(model.tokenizer.clone()),
        ..given
    };
    both.fetch()?;
    let file = formats::open(&both).map_err(explained)?;
    let has_template = file.parse().is_ok_and(|gguf| gguf.get("tokenizer.chat_template").is_some());
    // `-p TEXT` is a prompt, too. `generate` reads it itself.
    let asked = asked(prompt.or(typed.filter(|_| has_template).map(OsString::from)))?;
    if has_template || asked.is_none() && io::stdin().is_terminal() {
        ensure!(
            asked.is_some() || io::stdin().is_terminal(),
            "no text was given: give a prompt after the model, or a pipe"
        );
        match Chat::try_parse_from(&options) {
            Ok(Chat { args, .. }) => chat::run(&args.asked_once(asked), file).map_err(explained),
            Err(told) => Ok(output::usage_error(&told, &options)),
        }
    } else {
        let prompt = asked.into_iter().flat_map(|prompt| ["-p".into(), OsString::from(prompt)]);
        match Generate::try_parse_from(options.iter().cloned().chain(prompt)) {
            Ok(Generate { args, .. }) => {
                let code = generate::run(&args, file).map_err(explained)?;
                if named.is_some() {
                    note(
                        "the file has no chat template, so the model continued the text: if it was trained for \
                         conversations, use `arenite chat --template NAME`",
                    );
                }
                Ok(code)
            }
            Err(told) => Ok(output::usage_error(&told, &options)),
        }
    }
}

/// Returns the question: the text on standard input if it is a pipe or a file, and the prompt after this text.
fn asked(prompt: Option<OsString>) -> Result<Option<String>> {
    let mut texts = Vec::new();
    if is_piped() {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
        texts.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
    }
    texts.extend(prompt.map(|prompt| prompt.to_string_lossy().into_owned()));
    texts.retain(|text| !text.is_empty());
    Ok((!texts.is_empty()).then(|| texts.join("\n\n")))
}
