//! `arenite imatrix`: measures the importance of the columns of a model's matrices.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::{Result, ensure};
use arenite::Gguf;

use crate::cli::{RunArgs, at_least_one};
use crate::commands::corpus::{Corpus, DEFAULT_CHUNK};
use crate::interrupt;
use crate::output::{INTERRUPTED, note};
use arenite_quantize::importance::{self, Sums};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::Memory;

/// Compute an importance matrix for `arenite quantize --imatrix`
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite imatrix -m model-f16.gguf -f text.txt -o imatrix.gguf

The text should be typical for the model's use; some ten thousand tokens are enough. The text is run in chunks of the context \
size (-c, or 512). The file has llama.cpp's format: for each column of every matrix in a layer, the sum of the squared \
inputs.")]
pub struct Args {
    /// Text to run the model on
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,

    /// File to write
    #[arg(short, long, value_name = "F.gguf")]
    output: PathBuf,

    /// Run only the first N chunks
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    chunks: Option<usize>,

    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let open = OpenModel::new(file, args.run.options()?)?;
    let tokenizer = open.vocabulary()?;
    let chunk = open.options.context.unwrap_or(DEFAULT_CHUNK.min(open.model().spec().context));
    let corpus = Corpus::read(&args.file, tokenizer, chunk, args.chunks)?;

    let collector = Collector::new(open.gguf());
    let see = |weights: &[u8], x: &[f32]| collector.see(weights, x);
    let plan = open.plan(open.plan_options(chunk))?;
    let mut memory = Memory::new(&plan)?;
    let mut session = open.session(&mut memory, plan)?.with_inputs(&see);
    interrupt::listen();
    let bar = corpus.bar();
    for tokens in corpus.chunks() {
        if interrupt::asked() {
            bar.finish_and_clear();
            note(format_args!("stopped: {} was not written", args.output.display()));
            return Ok(ExitCode::from(INTERRUPTED));
        }
        session.rewind(0)?;
        session.prefill(&tokens)?;
        bar.inc(1);
    }
    bar.finish_and_clear();

    let sums = collector.sums.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    ensure!(!sums.is_empty(), "{} has no layers with matrices", open.name());
    let finite = |sums: &Sums| sums.squares.iter().all(|x| x.is_finite());
    if let Some((name, _)) = sums.iter().find(|(_, sums)| !finite(sums)) {
        anyhow::bail!("the input of {name} is not finite: {} cannot run this text", open.name());
    }
    importance::write(&args.output, &sums, &args.file.to_string_lossy(), corpus.count(), chunk)?;
    let (tensors, chunks) = (sums.len(), corpus.count());
    note(format_args!("wrote    {}: {tensors} tensors, {chunks} chunks of {chunk} tokens", args.output.display()));
    Ok(ExitCode::SUCCESS)
}

/// Receives the inputs of all matrices and sums their squares per column. A matrix is recognized by its address in
/// memory.
struct Collector<'a> {
    /// For each tensor: address, size, name, number of columns and number of matrices. Sorted by address.
    tensors: Vec<(usize, usize, &'a str, usize, usize)>,
    sums: Mutex<BTreeMap<String, Sums>>,
}

impl<'a> Collector<'a> {
    fn new(gguf: &Gguf<'a>) -> Self {
        let layers = gguf.tensors().filter(|tensor| tensor.name.starts_with("blk."));
        let mut tensors: Vec<_> = layers
            .map(|tensor| {
                let [columns, _, matrices, _] = tensor.dims.map(|n| n as usize);
                (tensor.data.as_ptr().addr(), tensor.data.len(), tensor.name, columns, matrices)
            })
            .collect();
        tensors.sort_unstable();
        Self { tensors, sums: Mutex::default() }
    }

    fn see(&self, weights: &[u8], x: &[f32]) {
        let at = weights.as_ptr().addr();
        let after = self.tensors.partition_point(|tensor| tensor.0 <= at);
        let Some(&(start, len, name, columns, matrices)) = after.checked_sub(1).and_then(|i| self.tensors.get(i))
        else {
            return;
        };
        if at >= start + len {
            return;
        }
        let matrix = (at - start) / (len / matrices).max(1);
        let Ok(mut all) = self.sums.lock() else { return };
        if !all.contains_key(name) {
            all.insert(name.to_owned(), Sums { squares: vec![0.0; columns * matrices], counts: vec![0; matrices] });
        }
        let Some(sums) = all.get_mut(name) else { return };
        let squares = sums.squares.chunks_exact_mut(columns).nth(matrix);
        if let (Some(squares), Some(count)) = (squares, sums.counts.get_mut(matrix)) {
            for x in x.chunks_exact(columns) {
                squares.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * x);
                *count += 1;
            }
        }
    }
}
