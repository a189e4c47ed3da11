//! `arenite index`: passages of a folder's files with their vectors, for `arenite search`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use arenite_run::Loaded;
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_search::{Index, OtherEncoding, Prefixes};

use crate::cli::RunArgs;
use crate::interrupt;
use crate::output::{INTERRUPTED, note, progress};

/// Index the texts of a folder for `arenite search`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite index notes -m bge-small.gguf -o notes.index
  arenite index docs -m e5-small.gguf -o docs.index \\
    --query-prefix \"query: \" --passage-prefix \"passage: \"

Reads UTF-8 text, Markdown, source code and HTML, and leaves out hidden files and those that .gitignore names. If the \
index exists, only files that are new or changed are computed. After Ctrl-C the index has the files that were done; the \
same command continues.")]
pub struct Args {
    /// Folder with files
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Index file to write or update
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Text that the model wants before a question [default: as in the index]
    #[arg(long, value_name = "TEXT")]
    query_prefix: Option<String>,

    /// Text that the model wants before a passage [default: as in the index]
    #[arg(long, value_name = "TEXT")]
    passage_prefix: Option<String>,

    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args, path: Option<&Path>, file: ModelFile) -> Result<ExitCode> {
    ensure!(args.folder.is_dir(), "{} is not a folder", args.folder.display());
    let old = if args.output.exists() { Index::open(&args.output)? } else { Index::default() };
    let model = Loaded::new(OpenModel::new(file, args.run.options()?)?)?;
    let prefixes = Prefixes {
        query: args.query_prefix.clone().unwrap_or_else(|| old.prefixes.query.clone()),
        passage: args.passage_prefix.clone().unwrap_or_else(|| old.prefixes.passage.clone()),
    };
    let bar = progress::bar(0, "{bar:32} {pos}/{len} files {eta} {msg}");
    interrupt::listen();
    let (mut left_out, mut encoded, mut was_stopped) = (0, Vec::new(), false);
    let mut index = old.updated(&model, &args.folder, prefixes, &mut |step| {
        bar.set_length(step.files as u64);
        bar.set_position(step.done as u64);
        bar.set_message(step.file.display().to_string());
        if let Some(why) = step.left_out {
            left_out += 1;
            if why.is::<OtherEncoding>() {
                encoded.push(format!("{}: {why}", step.file.display()));
            }
            log::debug!("{} is left out: {why}", step.file.display());
        }
        was_stopped |= interrupt::asked();
        !was_stopped
    })?;
    bar.finish_and_clear();
    encoded.iter().for_each(|why| note(format_args!("warning: {why}")));
    index.model = match path {
        Some(path) => std::fs::canonicalize(path)?,
        None => PathBuf::new(),
    };
    index.save(&args.output)?;
    let skipped = if left_out == 0 { String::new() } else { format!("; {left_out} without text are left out") };
    note(format_args!("{}: {} passages of {} files{skipped}", args.output.display(), index.passages(), index.files()));
    if was_stopped {
        note("stopped: the same command continues");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}
