//! `arenite listen`: speech to text.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use crate::cli::{RunArgs, one_of};
use crate::interrupt;
use crate::output::{self, Out, note};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::Memory;
use arenite_speech::{Format, Request, Segment, Sound, Transcriber, Writer, language_code};

/// Transcribe speech with a Whisper or Moonshine model
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite listen -m whisper-tiny.gguf meeting.mp3
  arenite listen -m whisper-small.gguf film.wav --format srt > film.srt
  arenite listen -m whisper-small.gguf interview.flac --language de --translate
  arenite listen -m whisper-small.gguf monday.mp3 tuesday.mp3 --format json > week.jsonl
  arenite listen -m moonshine-tiny.gguf --mic
  arecord -f S16_LE -r 16000 -c 1 | arenite listen -m moonshine-tiny.gguf --stream

Files are WAV, FLAC or MP3, of any rate and number of channels. Several files are transcribed one after the other; with \
--format json each has a line with its name. `arenite convert hf` converts the models.")]
pub struct Args {
    /// Sound files; `-` is raw samples from standard input, like --stream
    #[arg(value_name = "FILE", required_unless_present_any = ["stream", "mic"], conflicts_with_all = ["stream", "mic"])]
    files: Vec<PathBuf>,

    /// Read raw 16-bit mono samples at 16 kHz from standard input, and print each segment as soon as it is decoded
    #[arg(long)]
    stream: bool,

    /// Transcribe the microphone until Ctrl-C, and print each utterance as soon as it ends (implies --voice). Needs the
    /// feature `microphone`
    #[arg(long, conflicts_with = "stream")]
    mic: bool,

    /// Transcribe only voices: begin a window where a voice begins, and end it where the voice ends
    #[arg(long)]
    voice: bool,

    /// Output format
    #[arg(long, value_parser = one_of(&Format::ALL), default_value = "text")]
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

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    ensure!(
        args.files.len() < 2 || !matches!(args.format, Format::Srt | Format::Vtt),
        "subtitles of several sounds are several files: give one sound, or --format json"
    );
    let open = OpenModel::new(file, args.run.options()?)?;
    ensure!(
        open.model().spec().sound().is_some(),
        "{}: this is not a speech model; give one with -m (Whisper or Moonshine)",
        open.name()
    );
    let plan = open.plan(open.plan_options(open.context(0)))?;
    let mut memory = Memory::new(&plan)?;
    let session = open.session(&mut memory, plan)?;
    let mut transcriber = Transcriber::new(open.gguf(), open.model(), open.vocabulary()?, session)
        .with_context(|| open.name().to_string())?;
    let request = Request {
        language: args.language.as_deref().and_then(language_code),
        translate: args.translate,
        prompt: args.prompt.clone(),
        temperature: 0.0,
        voice: args.voice || args.mic,
    };
    interrupt::listen();
    let goes_on = || args.mic || !interrupt::asked(); // with --mic, Ctrl-C ends the recording instead
    let mut transcribe = |sound: Result<Sound>, name: Option<&Path>| -> Result<()> {
        let mut sound = sound?;
        let mut writer = Writer::new(args.format, name, Out::lock())?;
        let each = &mut |segment: &Segment| Ok(writer.segment(segment)?);
        let summary = transcriber.transcribe(&mut sound, &request, &goes_on, each)?;
        writer.finish(&summary)?;
        Ok(())
    };
    if let [] | [_] = args.files[..] {
        let sound = match args.files.first() {
            Some(path) => opened(path),
            None if args.mic => record(),
            None => opened(Path::new("-")),
        };
        return transcribe(sound, None).map(|()| ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    for path in args.files.iter().take_while(|_| goes_on()) {
        if let Err(error) = transcribe(opened(path), Some(path)) {
            note(format_args!("error: {}", output::words(&error)));
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Opens a sound file, or standard input for `-`.
fn opened(path: &Path) -> Result<Sound> {
    match path == Path::new("-") {
        true => Sound::stream(Box::new(io::stdin().lock())),
        false => Sound::open(path),
    }
}

#[cfg(feature = "microphone")]
fn record() -> Result<Sound> {
    arenite_speech::record(interrupt::asked)
}

#[cfg(not(feature = "microphone"))]
fn record() -> Result<Sound> {
    anyhow::bail!("this program was built without the feature `microphone`: build it with the feature, or use --stream")
}
