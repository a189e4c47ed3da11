//! `arenite quantize`: converts a model to smaller tensor types.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use arenite::quant::TensorType;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{NoModelArgs, at_least_one};
use crate::model_file::ModelFile;
use crate::new_file;
use crate::output::{self, Bytes, INTERRUPTED, note};
use crate::quantize::importance::Importance;
use crate::quantize::mix::{self, Mix, Override, TypeOptions};
use crate::quantize::{Change, changes, header};
use crate::{interrupt, split, workers};

/// Quantize a model
#[derive(Debug, clap::Args)]
#[command(after_help = "Types, with approximate bits per weight:
  F32 32, F16 16, BF16 16, Q8_0 8.5, Q6_K 6.6, Q5_1 6.0, Q5_K_M 5.7, Q5_K_S 5.5, Q5_0 5.5,
  Q4_1 5.0, Q4_K_M 4.8, Q4_K_S 4.6, Q4_0 4.5, IQ4_NL 4.5, MXFP4_MOE 4.3 (experts), IQ4_XS 4.3,
  Q3_K_L 4.3, Q3_K_M 3.9, IQ3_M 3.7, Q3_K_S 3.5, IQ3_S 3.4, IQ3_XS 3.3, Q2_K 3.2, IQ3_XXS 3.1,
  Q2_K_S 3.0, IQ2_M 2.7, IQ2_S 2.5, IQ2_XS 2.3, IQ2_XXS 2.1, IQ1_M 1.8, IQ1_S 1.6,
  TQ2_0 2.1 and TQ1_0 1.7 (weights that are -1, 0 or 1)
Q3_K, Q4_K and Q5_K are short for Q3_K_M, Q4_K_M and Q5_K_M. IQ3_XXS, IQ2_*, IQ1_* and Q2_K_S need an importance \
matrix; the others get better with one. Every tensor gets the same type as in llama.cpp's llama-quantize.

Examples:
  arenite quantize model-f16.gguf model-q4.gguf Q4_K_M
  arenite imatrix -m model-f16.gguf -f text.txt -o imatrix.gguf
  arenite quantize model-f16.gguf model-iq2.gguf IQ2_M --imatrix imatrix.gguf
  arenite quantize model-f16.gguf model-q4.gguf Q4_K_M --tensor-type ffn_down=q6_k
  arenite quantize model-00001-of-00003.gguf model-q4.gguf Q4_K_M --keep-split")]
pub struct Args {
    /// Model to read; F32, F16 or BF16 gives the best result
    #[arg(conflicts_with = "model")]
    input: PathBuf,

    /// File to write; may be the same file
    output: PathBuf,

    /// Target type, such as Q8_0 or Q4_K_M
    #[arg(value_name = "TYPE")]
    mix: Mix,

    /// Importance matrix of this model, made by `arenite imatrix` or llama.cpp
    #[arg(long, value_name = "F")]
    imatrix: Option<PathBuf>,

    /// Type for tensors whose name matches a regular expression, such as ffn_down=q6_k; may be repeated
    #[arg(long, value_name = "NAME=TYPE")]
    tensor_type: Vec<Override>,

    /// Type of the output matrix
    #[arg(long, value_name = "TYPE", value_parser = mix::kind)]
    output_type: Option<TensorType>,

    /// Type of the token embedding
    #[arg(long, value_name = "TYPE", value_parser = mix::kind)]
    embedding_type: Option<TensorType>,

    /// Write as many pieces as the input has, with the same tensors in each: OUT-00001-of-00003.gguf and so on
    #[arg(long)]
    keep_split: bool,

    /// Allow requantizing tensors that are already quantized
    #[arg(long)]
    allow_requantize: bool,

    #[command(flatten)]
    none: NoModelArgs,

    /// Number of threads [default: number of cores]
    #[arg(short, long, value_parser = at_least_one)]
    threads: Option<usize>,
}

/// Error that reports Ctrl-C.
#[derive(Debug)]
struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped")
    }
}

impl std::error::Error for Stopped {}

pub fn run(args: &Args) -> Result<ExitCode> {
    let file = ModelFile::open(Some(args.input.as_path()))?;
    let gguf = file.parse()?;
    // Like llama-quantize: these mixes are useless without a matrix, even if short rows would force other types.
    ensure!(
        args.imatrix.is_some() || !args.mix.wants_importance(),
        "{:?} needs an importance matrix: make one with `arenite imatrix` and give it with --imatrix",
        args.mix
    );
    let importance = args.imatrix.as_deref().map(Importance::read).transpose()?;
    let options =
        TypeOptions { overrides: args.tensor_type.clone(), output: args.output_type, embedding: args.embedding_type };
    let mut changes = changes(&gguf, args.mix, &options, importance.as_ref(), args.allow_requantize)
        .with_context(|| file.name().to_owned())?;
    let pieces = if args.keep_split { kept_split(&file, &mut changes) } else { vec![changes.len()] };
    let outputs = split::outputs(&args.output, pieces.len());
    let importance = importance.as_ref().zip(args.imatrix.as_deref());
    let header = header(&gguf, args.mix, &changes, importance)?;
    let size = |change: &Change<'_>| {
        change.tensor.data.len() / change.tensor.kind.block().1 * change.tensor.kind.block().0 / change.to.block().0
            * change.to.block().1
    };
    let total: usize = changes.iter().map(size).sum();

    interrupt::listen();
    let bar = if output::watched() {
        let style = ProgressStyle::with_template("{bar:32} {bytes}/{total_bytes} {eta} {msg}");
        ProgressBar::new(total as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    } else {
        ProgressBar::hidden()
    };
    let threads = args.threads.unwrap_or_else(workers::cores);
    let mut written = 0;
    let done = new_file::write_files(&outputs, |files| {
        let mut data = header.write_split(files.iter_mut().zip(pieces).collect())?;
        for change in &changes {
            bar.set_message(change.tensor.name.to_owned());
            change.write(threads, &mut data, |bytes| {
                bar.inc(bytes as u64);
                if interrupt::asked() { Err(Stopped.into()) } else { Ok(()) }
            })?;
            file.release(change.tensor.data);
        }
        written = data.written();
        data.finish().map(|_| ())
    });
    bar.finish_and_clear();
    match done {
        Err(error) if error.is::<Stopped>() => {
            note(format_args!("stopped: {} was not written", outputs[0].display()));
            return Ok(ExitCode::from(INTERRUPTED));
        }
        done => done?,
    }

    let mut types = BTreeMap::<TensorType, usize>::new();
    changes.iter().for_each(|change| *types.entry(change.to).or_default() += 1);
    let types: Vec<String> = types.iter().map(|(kind, count)| format!("{count} {kind:?}")).collect();
    note(format_args!("tensors  {}", types.join(", ")));
    let (before, after) = (Bytes(file.len()), Bytes(written as usize));
    note(format_args!("wrote    {}: {after}, before {before}", split::listed(&outputs)));
    Ok(ExitCode::SUCCESS)
}

/// Sorts the tensors by the piece that has them, and counts those of each piece.
fn kept_split(file: &ModelFile, changes: &mut [Change<'_>]) -> Vec<usize> {
    let ends: Vec<u64> = file
        .pieces()
        .iter()
        .scan(0, |end, piece| {
            *end += piece.len() as u64;
            Some(*end)
        })
        .collect();
    let piece = |change: &Change<'_>| ends.partition_point(|end| *end <= change.tensor.offset);
    changes.sort_by_key(piece);
    (0..ends.len()).map(|number| changes.iter().filter(|change| piece(change) == number).count()).collect()
}
