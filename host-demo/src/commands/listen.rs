//! `arenite listen`: speech to text.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use arenite::Model;

use crate::cli::RunArgs;
use crate::model_file::ModelFile;
use crate::output::Out;
use crate::runtime::{self, Memory};
use crate::speech::{Format, Request, Sound, Transcriber, Writer};
use crate::{interrupt, text};

/// Transcribe speech with a Whisper or Moonshine model
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite listen -m whisper-tiny.gguf meeting.mp3
  arenite listen -m whisper-small.gguf film.wav --format srt > film.srt
  arenite listen -m whisper-small.gguf interview.flac --language de --translate
  arecord -f S16_LE -r 16000 -c 1 | arenite listen -m moonshine-tiny.gguf --stream

Files are WAV, FLAC or MP3, of any rate and number of channels. `arenite convert hf` converts the models.")]
pub struct Args {
    /// Sound file
    #[arg(value_name = "FILE", required_unless_present = "stream", conflicts_with = "stream")]
    file: Option<PathBuf>,

    /// Read raw 16-bit mono samples at 16 kHz from standard input, and print each part as soon as it is decoded
    #[arg(long)]
    stream: bool,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Language of the speech, as a code like `en` [default: detected in the first 30 seconds]
    #[arg(long, value_name = "CODE")]
    language: Option<String>,

    /// Translate to English
    #[arg(long)]
    translate: bool,

    /// Text that the speech continues, or names and words that occur in it
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,

    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<ExitCode> {
    let named = || file.name().to_string();
    let gguf = file.parse()?;
    let model = Model::new(&gguf).with_context(named)?;
    ensure!(
        model.spec().sound().is_some(),
        "{}: this is not a speech model; give one with -m (Whisper or Moonshine)",
        file.name()
    );
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index).with_context(named)?;
    let kernels = runtime::kernels(&args.run.session.isa)?;
    let workers = args.run.workers();
    let context = runtime::context(&args.run.session, &model, 0);
    let plan = runtime::plan(&gguf, &args.run.session, context, workers.count()).with_context(named)?;
    let mut memory = Memory::new(&plan)?;
    let session = memory.session(&args.run.session, &model, plan, kernels, &*workers)?;
    let mut sound = match args.file.as_deref().filter(|path| *path != Path::new("-")) {
        Some(path) => Sound::open(path)?,
        None => Sound::stream(Box::new(io::stdin().lock())),
    };
    let mut transcriber = Transcriber::new(&gguf, &model, &tokenizer, session).with_context(named)?;
    let request = Request {
        language: args.language.clone(),
        translate: args.translate,
        prompt: args.prompt.clone(),
        temperature: 0.0,
    };
    interrupt::listen();
    let mut writer = Writer::new(args.format, Out::lock())?;
    let summary = transcriber.transcribe(&mut sound, &request, &mut |part| {
        ensure!(!interrupt::asked(), "stopped");
        Ok(writer.part(part)?)
    })?;
    writer.finish(&summary, args.translate)?;
    Ok(ExitCode::SUCCESS)
}
