//! `arenite inspect`: prints the contents of a GGUF file.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use arenite::gguf::{Array, Gguf, Tensor, Value};
use arenite::quant::decode_row;
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::cli::ModelArgs;
use crate::formats;
use crate::output::npy;
use crate::output::{Bytes, Out, note};
use arenite_files::NewFile;
use arenite_run::check_tensors;
use arenite_run::model_file::ModelFile;

/// Show metadata, tensors, types and sizes of a GGUF file
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite inspect model.gguf
  arenite inspect --json model.gguf
  arenite inspect model.gguf --verify
  arenite inspect model.gguf --tensor blk.0.attn_q.weight -o q.npy

The text output shows shapes as rows x columns; JSON has the file's order, columns first.")]
pub struct Args {
    /// GGUF file; the same as -m
    #[arg(conflicts_with = "model")]
    file: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long, conflicts_with = "tensor")]
    json: bool,

    /// Compare the tensor data with the hashes in the file; exit code 1 if the data is damaged or the file has no
    /// hashes
    #[arg(long, conflicts_with_all = ["json", "tensor"])]
    verify: bool,

    /// List the architectures that this program runs
    #[arg(long, conflicts_with_all = ["json", "tensor", "file", "model"])]
    architectures: bool,

    /// Write this tensor's values to -o as 32-bit floats
    #[arg(long, value_name = "NAME", requires = "output")]
    tensor: Option<String>,

    /// The .npy file to write
    #[arg(short, long, value_name = "F.npy", requires = "tensor")]
    output: Option<PathBuf>,
}

/// Maximum length of an array that is printed as a whole. Of longer arrays, the length and the first [`FIRST`] elements
/// are printed.
const WHOLE_ARRAY: usize = 16;
const FIRST: usize = 6;
/// Strings longer than this are cut in the text output.
const LONGEST_STRING: usize = 96;

/// Totals of the tensors of one type.
#[derive(Default, Serialize)]
struct Total {
    tensors: usize,
    parameters: u64,
    bytes: usize,
}

pub fn run(args: &Args, model: &ModelArgs) -> Result<()> {
    if args.architectures {
        let mut names = arenite::model::ARCHITECTURES.to_vec();
        names.sort_unstable();
        writeln!(Out::lock(), "{}", names.join("\n"))?;
        return Ok(());
    }
    let file = match &args.file {
        Some(path) => ModelFile::open(formats::source(model, path))?,
        None => formats::open(model)?,
    };
    let gguf = file.parse()?;
    if let (Some(name), Some(path)) = (&args.tensor, &args.output) {
        return save(&gguf, name, path).with_context(|| file.name().to_string());
    }
    if args.verify {
        ensure!(
            check_tensors::verify(&gguf).with_context(|| file.name().to_string())?,
            "{} has no hashes to compare with: `arenite pack` writes them, and so do `quantize` and `convert`",
            file.name()
        );
        let bytes = Bytes(gguf.tensors().map(|tensor| tensor.data.len()).sum());
        writeln!(Out::lock(), "{}: all {} tensors, {bytes}, match their hashes", file.name(), gguf.tensor_count())?;
        return Ok(());
    }
    let mut totals = BTreeMap::<String, Total>::new();
    for tensor in gguf.tensors() {
        let total = totals.entry(format!("{:?}", tensor.kind)).or_default();
        total.tensors += 1;
        total.parameters = total.parameters.saturating_add(tensor.dims.iter().product());
        total.bytes += tensor.data.len();
    }
    let mut out = Out::lock();
    if args.json { print_json(&mut out, &file, &gguf, &totals) } else { print_text(&mut out, &file, &gguf, &totals) }
}

fn print_text(out: &mut Out, file: &ModelFile, gguf: &Gguf<'_>, totals: &BTreeMap<String, Total>) -> Result<()> {
    let parameters: u64 = totals.values().map(|total| total.parameters).sum();
    let pieces = match file.pieces().len() {
        1 => String::new(),
        pieces => format!(" in {pieces} pieces"),
    };
    writeln!(
        out,
        "{}: GGUF version {}, {}{pieces}, tensors aligned to {} bytes, {} parameters",
        file.name(),
        gguf.version(),
        Bytes(file.len()),
        gguf.alignment(),
        thousands(parameters),
    )?;

    writeln!(out, "\nmetadata ({} keys)", gguf.key_count())?;
    let width = gguf.keys().map(|(key, _)| key.len()).max().unwrap_or(0).min(44);
    for (key, value) in gguf.keys() {
        writeln!(out, "  {:width$}  {}", key.escape_debug().to_string(), text(&value))?;
    }
    if let Some(note) = arenite_text::normalizer::note(gguf) {
        writeln!(out, "\n{note}")?;
    }

    writeln!(out, "\ntensors ({})", gguf.tensor_count())?;
    let width = gguf.tensors().map(|tensor| tensor.name.len()).max().unwrap_or(0);
    for tensor in gguf.tensors() {
        writeln!(
            out,
            "  {:width$}  {:8}  {:>20}  {:>10}",
            tensor.name.escape_debug().to_string(),
            format!("{:?}", tensor.kind),
            shape(&tensor).iter().rev().map(u64::to_string).collect::<Vec<_>>().join(" x "),
            Bytes(tensor.data.len()),
        )?;
    }

    writeln!(out, "\ntotals")?;
    for (kind, total) in totals {
        writeln!(
            out,
            "  {kind:8}  {:>5} tensors  {:>16} parameters  {:>10}",
            total.tensors,
            thousands(total.parameters),
            Bytes(total.bytes),
        )?;
    }
    Ok(())
}

fn print_json(out: &mut Out, file: &ModelFile, gguf: &Gguf<'_>, totals: &BTreeMap<String, Total>) -> Result<()> {
    /// The JSON output. Fields are printed in this order.
    #[derive(Serialize)]
    struct Report<'a> {
        file: &'a str,
        bytes: usize,
        version: u32,
        alignment: u64,
        metadata: serde_json::Map<String, Json>,
        tensors: Vec<Entry<'a>>,
        totals: &'a BTreeMap<String, Total>,
    }
    #[derive(Serialize)]
    struct Entry<'a> {
        name: &'a str,
        #[serde(rename = "type")]
        kind: String,
        /// Dimensions in the file's order: the contiguous dimension is first.
        shape: Vec<u64>,
        offset: u64,
        bytes: usize,
    }
    out.json_pretty(&Report {
        file: file.name(),
        bytes: file.len(),
        version: gguf.version(),
        alignment: gguf.alignment(),
        metadata: gguf.keys().map(|(key, value)| (key.to_string(), to_json(&value))).collect(),
        tensors: gguf
            .tensors()
            .map(|tensor| Entry {
                name: tensor.name,
                kind: format!("{:?}", tensor.kind),
                shape: shape(&tensor),
                offset: tensor.offset,
                bytes: tensor.data.len(),
            })
            .collect(),
        totals,
    })?;
    Ok(())
}

/// Writes a tensor's values to an `.npy` file, row by row.
fn save(gguf: &Gguf<'_>, name: &str, path: &Path) -> Result<()> {
    let tensor = gguf.tensors().find(|tensor| tensor.name == name);
    let tensor = tensor.with_context(|| format!("there is no tensor {name:?}; `arenite inspect` lists the tensors"))?;
    let dims: Vec<usize> = shape(&tensor).into_iter().map(usize::try_from).collect::<Result<_, _>>()?;
    let (row, rest) = dims.split_first().context("the tensor has no dimensions")?;
    let rows: usize = rest.iter().product();
    let bytes = tensor.data.len().checked_div(rows).unwrap_or(0);
    let mut file = NewFile::create(path)?;
    npy::header(&mut file, &dims.iter().rev().copied().collect::<Vec<_>>())?;
    let mut numbers = vec![0.0; *row];
    for row in tensor.data.chunks_exact(bytes.max(1)) {
        let is_known = decode_row(tensor.kind, row, &mut numbers);
        ensure!(is_known, "{:?} cannot be decoded by this build", tensor.kind);
        npy::values(&mut file, &numbers).with_context(|| format!("cannot write {}", path.display()))?;
    }
    file.finish()?;
    note(format_args!(
        "{}: float32 {:?}, {:?} in the file",
        path.display(),
        dims.iter().rev().collect::<Vec<_>>(),
        tensor.kind
    ));
    Ok(())
}

/// Returns the tensor's dimensions in the file's order: the contiguous dimension is first.
fn shape(tensor: &Tensor<'_>) -> Vec<u64> {
    tensor.dims.iter().copied().take(tensor.dim_count as usize).collect()
}

fn text(value: &Value<'_>) -> String {
    match value {
        Value::Array(array) => {
            let shown = if array.len() > WHOLE_ARRAY { FIRST } else { array.len() };
            let mut items: Vec<String> = elements(array).take(shown).map(|element| text(&element)).collect();
            if shown < array.len() {
                items.push(format!("... {} in all", array.len()));
            }
            format!("[{}]", items.join(", "))
        }
        Value::Str(bytes) => {
            let string = String::from_utf8_lossy(bytes);
            let cut: String = string.chars().take(LONGEST_STRING).collect();
            let more =
                if cut.len() < string.len() { format!("... {} bytes in all", bytes.len()) } else { String::new() };
            format!("{cut:?}{more}")
        }
        number => to_json(number).to_string(),
    }
}

/// Converts a value to JSON. A float that JSON cannot represent becomes a string.
fn to_json(value: &Value<'_>) -> Json {
    let float = |v: f64, shown: String| if v.is_finite() { json!(v) } else { json!(shown) };
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        // The value is printed as an f32 and parsed as an f64. Converted directly, 1e-5 would be printed as
        // 0.000009999999747378752.
        Value::F32(v) => float(v.to_string().parse().unwrap_or(f64::from(*v)), v.to_string()),
        Value::F64(v) => float(*v, v.to_string()),
        Value::Bool(v) => json!(v),
        Value::Str(v) => json!(String::from_utf8_lossy(v)),
        Value::Array(array) if array.len() > WHOLE_ARRAY => json!({
            "length": array.len(),
            "first": elements(array).take(FIRST).map(|element| to_json(&element)).collect::<Vec<_>>(),
        }),
        Value::Array(array) => elements(array).map(|element| to_json(&element)).collect(),
    }
}

fn elements<'a>(array: &Array<'a>) -> impl Iterator<Item = Value<'a>> + use<'a> {
    let array = *array;
    let numbers = (0..array.len()).map_while(move |i| array.get(i));
    array.strings().map(Value::Str).chain(numbers)
}

/// Formats `1234567` as `1,234,567`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_well() {
        assert_eq!(text(&Value::F32(1e-5)), "0.00001");
        assert_eq!(to_json(&Value::F32(f32::INFINITY)), json!("inf"));
        assert_eq!(text(&Value::Str(b"a\n\xff")), "\"a\\n\u{fffd}\"");
        assert_eq!([0, 999, 1000, 1234567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
