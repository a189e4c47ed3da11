//! `arenite pack`: prepares a GGUF file for a device.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arenite::Model;
use arenite::gguf::{Gguf, HASHES_KEY, Tensor, Value};
use arenite::model::is_ignored;
use arenite::tokenizer::{INDEX_HASH_KEY, INDEX_KEY, Tokenizer};

use crate::boards::speed::Core;
use crate::cli::NoModelArgs;
use crate::foreign;
use crate::output::{Bytes, note};
use arenite_files::{NewFile, write_files};
use arenite_gguf_writer::{Header, Meta};
use arenite_run::model_file::ModelFile;
use arenite_run::split;

/// Prepare a model for a device: store the tokenizer's index and hashes of the tensors, drop unused keys, align tensors for flash
#[derive(Debug, clap::Args)]
#[command(after_help = "Keeps the keys general.architecture, name, license, file_type and quantization_version, \
the architecture's keys (such as llama.*), tokenizer.ggml.*, and the templates of rerankers and decision models. Drops all \
other keys (such as chat templates and training metadata), tensors that are never read, and vocabulary scores that are \
all zero if the tokenizer does not use them. Layers that draft tokens are kept: `arenite quantize IN OUT COPY \
--prune-layers N` leaves them out for a device that does not draft.

Examples:
  arenite pack model.gguf device.gguf
  arenite pack model.gguf device.gguf --keep tokenizer.chat_template
  arenite pack model-00001-of-00003.gguf whole.gguf
  arenite pack model.gguf device.gguf --split-max-size 8M
  arenite pack model.gguf head.gguf --storage matrices.bin

A split model is joined, unless --split-max-size splits it again.")]
pub struct Args {
    /// File to pack
    #[arg(conflicts_with = "model")]
    input: PathBuf,

    /// File to write; may be the input file
    output: PathBuf,

    /// Alignment of each tensor in bytes, a power of two
    #[arg(long, value_name = "BYTES", default_value_t = 64,
        value_parser = |n: &str| n.parse::<u32>().map_err(|_| "give a power of two from 8 to 1048576"))]
    align: u32,

    /// Also keep keys that start with PREFIX; may be repeated
    #[arg(long, value_name = "PREFIX")]
    keep: Vec<String>,

    /// Write pieces of at most SIZE bytes, such as 500M or 2G (powers of 1000): OUT-00001-of-00003.gguf and so on
    #[arg(long, value_name = "SIZE", value_parser = size)]
    split_max_size: Option<u64>,

    /// Write the matrices to FILE, for a SPI flash or an SD card that the processor cannot address; the output is the head,
    /// which stays in memory (crate feature `storage`)
    #[arg(long, value_name = "FILE", conflicts_with = "split_max_size")]
    storage: Option<PathBuf>,

    /// Core that the file is for: warns of types that are slow there
    #[arg(long = "for", value_enum, value_name = "CORE")]
    core: Option<Core>,

    #[command(flatten)]
    none: NoModelArgs,
}

/// Parses a size with an optional suffix, as in llama.cpp's `llama-gguf-split`.
fn size(text: &str) -> Result<u64, &'static str> {
    let (digits, unit) = match text.as_bytes() {
        [.., b'K' | b'k'] => (&text[..text.len() - 1], 1000),
        [.., b'M' | b'm'] => (&text[..text.len() - 1], 1_000_000),
        [.., b'G' | b'g'] => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|size| *size > 0).ok_or("give a number of bytes, such as 8388608, 500K, 500M or 2G")
}

/// Keys that packing keeps, besides the keys of the model's architecture.
const KEPT: [&str; 8] = [
    "general.architecture",
    "general.name", // decides how some tokenizers handle spaces
    "general.license",
    "general.file_type",
    "general.quantization_version",
    "general.problem_type",              // what the outputs of a classifier mean
    "tokenizer.chat_template.rerank",    // the prompt of a reranker
    "tokenizer.chat_template.systemone", // the prompts of a decision model
];
const KEPT_PREFIXES: [&str; 2] = ["tokenizer.ggml.", "xielu."]; // Apertus' activation has keys without its prefix
const CHAT_TEMPLATE: &str = "tokenizer.chat_template";

pub fn run(args: &Args) -> Result<()> {
    let file = ModelFile::open(args.input.as_path())?;
    let gguf = file.gguf()?;
    // A file with only a vocabulary can be packed. Other files that contain no model, such as adapters, cannot.
    if let Some(why) = foreign::gguf(&args.input, &gguf).filter(|_| gguf.tensor_count() > 0) {
        bail!("{}: {why}", file.name());
    }
    file.parse()?; // tells of tensors that are not read
    let name = || file.name().to_owned();
    let architecture = gguf.architecture().with_context(name)?;
    if let Some(core) = args.core {
        let slow = core.slow_types(&gguf).into_iter().filter_map(|kind| core.complaint(kind));
        slow.for_each(|slow| {
            note(format_args!("warning: {slow}: requantize with `arenite quantize --for {}`", core.name()))
        });
    }

    let mut header = Header::new();
    let (kept, dropped): (Vec<_>, Vec<_>) =
        gguf.keys().partition(|(key, value)| is_kept(key, *value, architecture, &gguf, &args.keep));
    kept.iter().for_each(|&(key, value)| header.set(key, value));
    header.align(args.align)?;
    // The index is built from the vocabulary of the new file.
    let vocabulary = header.write(Cursor::new(Vec::new()))?.finish()?.into_inner();
    let index = index(&Gguf::parse(&vocabulary)?).with_context(name)?;
    if let Some((index, hash)) = &index {
        header.set(INDEX_KEY, Meta::array(index.iter().copied()));
        header.set(INDEX_HASH_KEY, *hash);
    }

    let (unread, tensors): (Vec<Tensor<'_>>, Vec<_>) = gguf.tensors().partition(|tensor| is_unread(tensor.name));
    let (tensors, inside) = match &args.storage {
        Some(path) => apart(tensors, &gguf, [&args.output, path]).with_context(name)?,
        None => (tensors, 0),
    };
    for tensor in &tensors {
        let dims: Vec<u64> = tensor.dims.into_iter().take(tensor.dim_count as usize).collect();
        header.tensor(tensor.name, &dims, tensor.kind)?;
    }
    let pieces = match args.split_max_size {
        Some(most) => header.pieces_of(most)?,
        None => vec![tensors.len()],
    };
    let mut outputs = split::outputs(&args.output, pieces.len());
    outputs.extend(args.storage.clone());
    let mut written = 0;
    let files = outputs.iter().map(|path| NewFile::replace(path)).collect::<Result<_>>()?;
    write_files(files, |files| {
        let mut data = match files {
            [head, storage] if args.storage.is_some() => header.write_head([head, storage], inside)?,
            files => header.write_split(files.iter_mut().zip(pieces).collect())?,
        };
        tensors.iter().try_for_each(|tensor| data.write_all(tensor.data))?;
        written = data.written();
        data.finish().map(|_| ())
    })?;

    match &index {
        Some((index, _)) => note(format_args!("added    the tokenizer's index, {}", Bytes(4 * index.len()))),
        None => note("added    no index: the file has no tokenizer"),
    }
    let drafts = draft_layers(&gguf);
    if let [_, ..] = drafts[..] {
        note(format_args!(
            "kept     layers that draft tokens; for a device that does not draft, `arenite quantize --prune-layers {} IN OUT \
             COPY` leaves them out",
            drafts.join(",")
        ));
    }
    let names = dropped.iter().map(|(key, _)| *key).chain(unread.iter().map(|tensor| tensor.name));
    let names: Vec<&str> = names.filter(|key| ![INDEX_KEY, INDEX_HASH_KEY, HASHES_KEY].contains(key)).collect();
    note(format_args!("dropped  {}", if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }));
    if names.contains(&CHAT_TEMPLATE) {
        note(format_args!("         for `arenite chat` and `serve`, keep the template with --keep {CHAT_TEMPLATE}"));
    }
    let (before, after) = (Bytes(file.len()), Bytes(written as usize));
    match &args.storage {
        Some(storage) => note(format_args!(
            "wrote    {}: {} for the memory; {}: {} for the storage, read through a window in the workspace",
            args.output.display(),
            Bytes(fs::metadata(&args.output)?.len() as usize),
            storage.display(),
            Bytes(fs::metadata(storage)?.len() as usize),
        )),
        None => note(format_args!("wrote    {}: {after}, before {before}", split::listed(&outputs))),
    }
    Ok(())
}

/// Moves the tensors that must be in memory before the matrices. Returns the number of these tensors.
fn apart<'a>(
    tensors: Vec<Tensor<'a>>,
    gguf: &Gguf<'a>,
    [head, storage]: [&Path; 2],
) -> Result<(Vec<Tensor<'a>>, usize)> {
    ensure!(head != storage, "the head and the storage need two files");
    let model = Model::new(gguf).context("only a model that runs can be divided (--storage)")?;
    let (matrices, mut all): (Vec<_>, Vec<_>) = tensors.into_iter().partition(|tensor| model.is_matrix(tensor.name));
    let inside = all.len();
    all.extend(matrices);
    Ok((all, inside))
}

/// Returns true for a tensor that no device reads. Tensors of draft layers are kept: a device that drafts reads them,
/// and without them a draft layer would be taken for an ordinary layer.
fn is_unread(name: &str) -> bool {
    is_ignored(name) && !name.contains(".nextn.")
}

/// Returns the numbers of the layers that draft tokens, if the model also has other layers.
fn draft_layers<'a>(gguf: &Gguf<'a>) -> Vec<&'a str> {
    let layer = |name: &'a str| name.strip_prefix("blk.")?.strip_suffix(".nextn.eh_proj.weight");
    let has_others = gguf.tensors().any(|tensor| tensor.name.starts_with("blk.0."));
    gguf.tensors().filter_map(|tensor| layer(tensor.name)).filter(|number| has_others && *number != "0").collect()
}

/// Returns true if a key is kept: a device may need the key, or the key starts with one of the prefixes in `also`.
fn is_kept(key: &str, value: Value<'_>, architecture: &str, gguf: &Gguf<'_>, also: &[String]) -> bool {
    let is_scores_of_zeros = key == "tokenizer.ggml.scores"
        && matches!(gguf.get("tokenizer.ggml.model"), Some(Value::Str(b"gpt2")))
        && matches!(value, Value::Array(scores) if (0..scores.len()).all(|i| scores.get_f32(i) == Some(0.0)));
    also.iter().any(|prefix| key.starts_with(prefix.as_str())) && ![INDEX_KEY, INDEX_HASH_KEY].contains(&key)
        || KEPT.contains(&key)
        || key.strip_prefix(architecture).is_some_and(|rest| rest.starts_with('.'))
        || KEPT_PREFIXES.iter().any(|prefix| key.starts_with(prefix)) && !is_scores_of_zeros
}

/// Builds the index of the file's tokenizer as 32-bit words, and computes its hash. `None` if the file has no
/// tokenizer.
fn index(vocabulary: &Gguf<'_>) -> Result<Option<(Vec<u32>, u64)>> {
    if !arenite_text::has_vocabulary(vocabulary) {
        return Ok(None);
    }
    let mut index = vec![0; Tokenizer::built_index_bytes(vocabulary)?];
    Tokenizer::build_index(vocabulary, &mut index)?;
    let hash = Tokenizer::index_hash(vocabulary, &index);
    Ok(Some((index.as_chunks().0.iter().copied().map(u32::from_le_bytes).collect(), hash)))
}
