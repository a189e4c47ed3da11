//! `arenite quantize`: converts a model to smaller tensor types.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::Cursor;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use arenite::quant::TensorType;

use crate::boards::speed::Core;
use crate::cli::{NoModelArgs, at_least_one};
use crate::interrupt;
use crate::output::{self, Bytes, INTERRUPTED, note, progress};
use arenite_files::{self as new_file, NewFile};
use arenite_quantize::edits::{Edits, KeyOverride};
use arenite_quantize::importance::Importance;
use arenite_quantize::mix::{self, Mix, Override, TypeOptions};
use arenite_quantize::pruned::Pruned;
use arenite_quantize::{Change, changes, header};
use arenite_run::model_file::ModelFile;
use arenite_run::split;
use arenite_run::workers;

/// Quantize a model
#[derive(Debug, clap::Args)]
#[command(override_usage = "arenite quantize [OPTIONS] IN [OUT] TYPE [THREADS]")]
#[command(after_help = "Types, with approximate bits per weight:
  F32 32, F16 16, BF16 16, Q8_0 8.5, Q6_K 6.6, Q5_1 6.0, Q5_K_M 5.7, Q5_K_S 5.5, Q5_0 5.5,
  Q4_1 5.0, Q4_K_M 4.8, Q4_K_S 4.6, Q4_0 4.5, IQ4_NL 4.5, MXFP4_MOE 4.3 (experts), IQ4_XS 4.3,
  Q3_K_L 4.3, Q3_K_M 3.9, IQ3_M 3.7, Q3_K_S 3.5, IQ3_S 3.4, IQ3_XS 3.3, Q2_K 3.2, IQ3_XXS 3.1,
  Q2_K_S 3.0, IQ2_M 2.7, IQ2_S 2.5, IQ2_XS 2.3, IQ2_XXS 2.1, IQ1_M 1.8, IQ1_S 1.6,
  TQ2_0 2.1 and TQ1_0 1.7 (weights that are -1, 0 or 1)
Q3_K, Q4_K and Q5_K are short for Q3_K_M, Q4_K_M and Q5_K_M. IQ3_XXS, IQ2_*, IQ1_* and Q2_K_S need an importance \
matrix; the others get better with one. Every tensor gets the same type as in llama.cpp's llama-quantize; a tensor \
whose rows are not whole blocks of its type gets another type, with a warning. COPY copies all tensors as they are.

Examples:
  arenite quantize model-f16.gguf model-q4.gguf Q4_K_M
  arenite imatrix -m model-f16.gguf -f text.txt -o imatrix.gguf
  arenite quantize model-f16.gguf model-iq2.gguf IQ2_M --imatrix imatrix.gguf
  arenite quantize model-f16.gguf model-q4.gguf Q4_K_M --tensor-type ffn_down=q6_k
  arenite quantize model-f16.gguf model-board.gguf Q4_K_M --for cortex-m4f
  arenite quantize model-00001-of-00003.gguf model-q4.gguf Q4_K_M --keep-split
  arenite quantize --dry-run model-f16.gguf Q4_K_M
  arenite quantize --override-kv general.name=str:Mine model.gguf renamed.gguf COPY")]
pub struct Args {
    /// Model to read (F32, F16 or BF16 gives the best result), file to write [default: ggml-model-TYPE.gguf beside the
    /// model], target type such as Q4_K_M or its number, and number of threads
    #[arg(value_name = "IN [OUT] TYPE [THREADS]", required = true, num_args = 1..=4, conflicts_with = "model")]
    words: Vec<OsString>,

    /// Importance matrix of this model, made by `arenite imatrix` or llama.cpp
    #[arg(long, value_name = "F")]
    imatrix: Option<PathBuf>,

    /// Use the importance matrix only for tensors whose name contains NAME; may be repeated
    #[arg(long, value_name = "NAME", requires = "imatrix", conflicts_with = "exclude_weights")]
    include_weights: Vec<String>,

    /// Do not use the importance matrix for tensors whose name contains NAME; may be repeated
    #[arg(long, value_name = "NAME", requires = "imatrix")]
    exclude_weights: Vec<String>,

    /// Type for tensors whose name matches a regular expression, such as ffn_down=q6_k; may be repeated
    #[arg(long, value_name = "NAME=TYPE")]
    tensor_type: Vec<Override>,

    /// File with rules for --tensor-type, separated by spaces or newlines
    #[arg(long, value_name = "F")]
    tensor_type_file: Option<PathBuf>,

    /// Type of the output matrix
    #[arg(long, visible_alias = "output-tensor-type", value_name = "TYPE", value_parser = mix::kind)]
    output_type: Option<TensorType>,

    /// Type of the token embedding
    #[arg(long, visible_alias = "token-embedding-type", value_name = "TYPE", value_parser = mix::kind)]
    embedding_type: Option<TensorType>,

    /// Keep the type of the output matrix
    #[arg(long, conflicts_with = "output_type")]
    leave_output_tensor: bool,

    /// Give all matrices the same type, instead of the mixture that a type such as Q4_K_M means
    #[arg(long)]
    pure: bool,

    /// Core that the file is for: types that are slow there are replaced by fast ones
    #[arg(long = "for", value_enum, value_name = "CORE")]
    core: Option<Core>,

    /// Replace a metadata value, such as general.name=str:Mine; the types are int, float, bool and str; may be repeated
    #[arg(long, value_name = "KEY=TYPE:VALUE")]
    override_kv: Vec<KeyOverride>,

    /// Drop layers, such as 20,21,22; the remaining ones are renumbered
    #[arg(long, value_name = "LAYERS")]
    prune_layers: Option<Pruned>,

    /// Print types and size of the new file and write nothing
    #[arg(long)]
    dry_run: bool,

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

/// The target type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// All tensors keep their types.
    Copy,
    Mix(Mix),
}

/// The positional arguments, as for llama-quantize.
#[derive(Debug)]
struct Words {
    input: PathBuf,
    output: PathBuf,
    target: Target,
    threads: Option<usize>,
}

impl Words {
    fn of(words: &[OsString]) -> Result<Self, String> {
        let target = |word: &OsString| -> Result<Target, String> {
            match word.to_string_lossy() {
                word if word.eq_ignore_ascii_case("copy") => Ok(Target::Copy),
                word => word.parse().map(Target::Mix).map_err(|error| format!("`{word}`: {error}, COPY")),
            }
        };
        let [input, rest @ ..] = words else { return Err("give a model to read and a type".to_owned()) };
        let input = PathBuf::from(input);
        let (output, kind, rest) = match rest {
            [kind, rest @ ..] if target(kind).is_ok() => {
                let Ok(target) = target(kind) else { return Err(String::new()) };
                let name = match target {
                    Target::Copy => "COPY".to_owned(),
                    Target::Mix(mix) => format!("{mix:?}"),
                };
                (input.with_file_name(format!("ggml-model-{name}.gguf")), target, rest)
            }
            [output, kind, rest @ ..] => (PathBuf::from(output), target(kind)?, rest),
            [file] if file.to_string_lossy().ends_with(".gguf") => {
                return Err(format!("give a type after {}, such as Q4_K_M", file.to_string_lossy()));
            }
            [kind] => return Err(target(kind).err().unwrap_or_default()),
            [] => return Err("give a type after the model".to_owned()),
        };
        let threads = match rest {
            [] => None,
            [threads] => {
                let count = threads.to_str().and_then(|word| word.parse().ok()).filter(|count| *count > 0);
                Some(count.ok_or_else(|| format!("{} is not a number of threads", threads.to_string_lossy()))?)
            }
            [_, more, ..] => return Err(format!("unexpected argument {}", more.to_string_lossy())),
        };
        Ok(Self { input, output, target: kind, threads })
    }
}

impl Args {
    /// Collects the options that determine the types of the tensors.
    fn type_options(&self, target: Target) -> Result<TypeOptions> {
        let mut overrides = self.tensor_type.clone();
        if let Some(path) = &self.tensor_type_file {
            let name = || format!("cannot read {}", path.display());
            let text = std::fs::read_to_string(path).with_context(name)?;
            for rule in text.split_whitespace() {
                let rule: Result<Override, String> = rule.parse();
                overrides.push(rule.map_err(|error| anyhow!("{}: {error}", path.display()))?);
            }
        }
        Ok(TypeOptions {
            overrides,
            output: self.output_type,
            embedding: self.embedding_type,
            keep_output: self.leave_output_tensor,
            pure: self.pure,
            copy: target == Target::Copy,
            kernels: self.core.map(Core::fast_types),
            pruned: self.prune_layers.clone().unwrap_or_default(),
            is_dry: self.dry_run,
        })
    }

    /// Reads the importance matrix, and keeps the entries of the tensors that the options choose.
    fn importance(&self) -> Result<Option<Importance>> {
        let Some(path) = &self.imatrix else { return Ok(None) };
        let mut importance = Importance::read(path)?;
        let has = |names: &[String], name: &str| names.iter().any(|part| name.contains(part.as_str()));
        importance.columns.retain(|name, _| {
            !has(&self.exclude_weights, name) && (self.include_weights.is_empty() || has(&self.include_weights, name))
        });
        ensure!(
            !importance.columns.is_empty(),
            "no tensor of the importance matrix is left: check --include-weights and --exclude-weights"
        );
        Ok(Some(importance))
    }
}

/// Warns of tensors whose rows cannot be divided into blocks of the chosen type.
fn warn_of_rows(changes: &[Change<'_>]) {
    let mut groups = BTreeMap::<(TensorType, TensorType, u64), Vec<&str>>::new();
    for change in changes.iter().filter(|change| change.to != change.wanted) {
        groups.entry((change.wanted, change.to, change.tensor.dims[0])).or_default().push(&change.name);
    }
    for ((wanted, to, columns), names) in groups {
        let first = names.first().copied().unwrap_or_default();
        let (others, become_) = match names.len() {
            1 => (String::new(), "it becomes"),
            2 => (" and another tensor".to_owned(), "they become"),
            count => (format!(" and {} other tensors", count - 1), "they become"),
        };
        note(format_args!(
            "warning: the rows of {first}{others} have {columns} elements, which {wanted:?} cannot hold in blocks of {}: \
             {become_} {to:?}; a type that fits is {:?}",
            wanted.block().0,
            mix::alternative(wanted, columns),
        ));
    }
}

/// Warns of rules that match no tensor.
fn warn_of_rules(rules: &[Override], changes: &[Change<'_>]) {
    for rule in rules.iter().filter(|rule| !changes.iter().any(|change| rule.matches(&change.name))) {
        note(format_args!(
            "warning: --tensor-type {} matches no tensor: `arenite inspect` lists their names",
            rule.pattern()
        ));
    }
}

/// Warns of tensors that keep their type because their weights are too small for the chosen type.
fn warn_of_small(changes: &[Change<'_>]) {
    for change in changes {
        if let Some(kind) = change.too_coarse {
            let (name, kept) = (&change.name, change.to);
            note(format_args!("warning: the weights of {name} are too small for {kind:?}: it keeps {kept:?}"));
        }
    }
}

/// Warns of weights that are not in the importance matrix, unless the options leave them out.
fn warn_of_unweighed(args: &Args, changes: &[Change<'_>]) {
    let is_whole = args.imatrix.is_some() && args.exclude_weights.is_empty() && args.include_weights.is_empty();
    let lacking: Vec<_> = changes.iter().filter(|change| is_whole && change.lacks_importance()).collect();
    if let Some(first) = lacking.first() {
        let count = lacking.len();
        note(format_args!("warning: the importance matrix has no values for {count} tensors, such as {}", first.name));
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let Words { input, output, target, threads } = match Words::of(&args.words) {
        Ok(words) => words,
        Err(wrong) => return Ok(output::usage(&format!("{wrong}; see --help"))),
    };
    let mix = match target {
        Target::Copy => Mix::F32,
        Target::Mix(mix) => mix,
    };
    let file = ModelFile::open(input.as_path())?;
    let gguf = file.parse()?;
    // Like llama-quantize, refuse a mix that needs an importance matrix if there is none, even if short rows would
    // force other types.
    ensure!(
        args.imatrix.is_some() || args.dry_run || !mix.wants_importance(),
        "{mix:?} needs an importance matrix: make one with `arenite imatrix` and give it with --imatrix"
    );
    ensure!(
        args.core.is_none() || target != Target::Copy,
        "--for chooses types, and COPY keeps them: give a type such as Q8_0"
    );
    if let Target::Mix(mix) = target
        && let Some(slow) = args.core.and_then(|core| core.complaint(mix.kind()))
    {
        note(format_args!("warning: {slow}: tensors get other types"));
    }
    let importance = args.importance()?;
    let options = args.type_options(target)?;
    let mut changes = changes(&gguf, mix, &options, importance.as_ref(), args.allow_requantize || args.dry_run)
        .with_context(|| file.name().to_owned())?;
    warn_of_rules(&options.overrides, &changes);
    let pieces = if args.keep_split { kept_split(&file, &mut changes) } else { vec![changes.len()] };
    let outputs = split::outputs(&output, pieces.len());
    let importance = importance.as_ref().zip(args.imatrix.as_deref());
    let mut header = header(&gguf, mix, &changes, importance)?;
    let edits = Edits { keys: args.override_kv.clone(), pruned: options.pruned.clone(), copy: options.copy };
    edits.apply(&gguf, &mut header).with_context(|| file.name().to_owned())?;
    let total: usize = changes.iter().map(Change::bytes).sum();
    if args.dry_run {
        let size = header.write(Cursor::new(Vec::new()))?.written() as usize + total;
        warn_of_rows(&changes);
        print_types(&changes);
        note(format_args!("dry run  {}: {} in {}", output.display(), Bytes(size), bits(&changes)));
        if args.imatrix.is_none()
            && (mix.wants_importance() || changes.iter().any(|change| needs_importance(change, mix)))
        {
            note("dry run  this type needs an importance matrix: make one with `arenite imatrix`");
        }
        return Ok(ExitCode::SUCCESS);
    }

    // A copy with all layers has all that the input has, so it may take its place.
    let create = if options.copy && args.prune_layers.is_none() { NewFile::replace } else { NewFile::create };
    let files = outputs.iter().map(|path| create(path)).collect::<Result<_>>()?;
    interrupt::listen();
    let bar = progress::bar(total as u64, "{bar:32} {bytes}/{total_bytes} {eta} {msg}");
    let threads = threads.or(args.threads).unwrap_or_else(workers::cores);
    let mut written = 0;
    let done = new_file::write_files(files, |files| {
        let mut data = header.write_split(files.iter_mut().zip(pieces).collect())?;
        for change in &changes {
            bar.set_message(change.name.clone());
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

    warn_of_rows(&changes);
    warn_of_small(&changes);
    warn_of_unweighed(args, &changes);
    print_types(&changes);
    let (before, after) = (Bytes(file.len()), Bytes(written as usize));
    note(format_args!("wrote    {}: {after} in {}, before {before}", split::listed(&outputs), bits(&changes)));
    Ok(ExitCode::SUCCESS)
}

fn needs_importance(change: &Change<'_>, mix: Mix) -> bool {
    change.to != change.tensor.kind && mix::needs_importance(&change.name, change.to, mix)
}

/// Prints the number of tensors of each type.
fn print_types(changes: &[Change<'_>]) {
    let mut types = BTreeMap::<TensorType, usize>::new();
    changes.iter().for_each(|change| *types.entry(change.to).or_default() += 1);
    let types: Vec<String> = types.iter().map(|(kind, count)| format!("{count} {kind:?}")).collect();
    note(format_args!("tensors  {}", types.join(", ")));
}

/// Formats the mean number of bits per weight.
fn bits(changes: &[Change<'_>]) -> String {
    let weights: u64 = changes.iter().map(|change| change.tensor.dims.iter().product::<u64>()).sum();
    let bytes: usize = changes.iter().map(Change::bytes).sum();
    format!("{:.2} bits per weight", 8.0 * bytes as f64 / (weights as f64).max(1.0))
}

/// Sorts the tensors by the input file that contains them, if the input is a split model. Returns the number of tensors
/// in each file.
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
