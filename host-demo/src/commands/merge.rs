//! `arenite merge`: adds LoRA adapters to a model's weights.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arenite::gguf::{Tensor, Value};
use arenite::quant::{TensorType, decode_row};
use arenite::{Gguf, Model};

use crate::adapters::{must_be_adapter, scaled};
use crate::cli::NoModelArgs;
use crate::gguf_writer::Header;
use crate::model_file::ModelFile;
use crate::new_model::write_model;
use crate::output::note;
use crate::quantize::encode_values;

/// Add LoRA adapters to a model's weights
#[derive(Debug, clap::Args)]
#[command(override_usage = "arenite merge [OPTIONS] INPUT LORA[:SCALE]... OUT")]
#[command(after_help = "Example:
  arenite convert lora my-adapter adapter.gguf --base SmolLM2-135M
  arenite merge smollm2.gguf adapter.gguf merged.gguf
  arenite merge smollm2.gguf first.gguf:0.5 second.gguf merged.gguf

Every tensor keeps its type; merge into an F16 or F32 file and quantize afterwards, since quantizing twice costs accuracy.")]
pub struct Args {
    /// GGUF file with the model
    #[arg(conflicts_with = "model")]
    input: PathBuf,

    /// GGUF files with adapters, each with an optional scale [default: 1]; then the file to write
    #[arg(required = true, num_args = 2.., value_name = "LORA[:SCALE]... OUT")]
    files: Vec<String>,

    #[command(flatten)]
    none: NoModelArgs,
}

/// The product of an adapter's two matrices, which is added to a tensor after scaling by `factor`.
struct Product<'a> {
    a: Tensor<'a>,
    b: Tensor<'a>,
    factor: f32,
    /// True for a token embedding: `a` is `[rank, rows]`, and `b` is `[rank, columns]`.
    is_lookup: bool,
}

impl Product<'_> {
    /// Returns both matrices in the layout for a linear layer: `[rank][columns]` and `[rows][rank]`.
    fn matrices(&self) -> Result<(Vec<f32>, Vec<f32>)> {
        let (a, b) = (values(&self.a)?, values(&self.b)?);
        if !self.is_lookup {
            return Ok((a, b));
        }
        let rank = self.b.dims[0] as usize;
        Ok(((0..rank).flat_map(|k| b.iter().skip(k).step_by(rank).copied()).collect(), a))
    }
}

pub fn run(args: &Args) -> Result<()> {
    let (output, adapters) = args.files.split_last().context("give a file to write")?;
    let file = ModelFile::open(Some(args.input.as_path()))?;
    let gguf = file.parse()?;
    let adapters: Vec<(ModelFile, f32)> = adapters
        .iter()
        .map(|adapter| {
            let (path, scale) = scaled(adapter)?;
            Ok((ModelFile::open(Some(path))?, scale))
        })
        .collect::<Result<_>>()?;
    let mut products: Vec<(String, Product<'_>)> = Vec::new();
    let parsed: Vec<(Gguf<'_>, f32, &str)> =
        adapters.iter().map(|(file, scale)| Ok((file.parse()?, *scale, file.name()))).collect::<Result<_>>()?;
    for (adapter, scale, name) in &parsed {
        add(&gguf, adapter, *scale, &mut products).with_context(|| (*name).to_owned())?;
    }
    let mut header = Header::new();
    gguf.keys().for_each(|(key, value)| header.set(key, value));
    if let Some(Value::U32(alignment)) = gguf.get("general.alignment") {
        header.align(alignment)?;
    }
    for tensor in gguf.tensors() {
        let dims: Vec<u64> = tensor.dims.into_iter().take(tensor.dim_count as usize).collect();
        header.tensor(tensor.name, &dims, tensor.kind)?;
    }
    let output = Path::new(output);
    write_model(output, |out| {
        let mut data = header.write(out)?;
        for tensor in gguf.tensors() {
            let own: Vec<&Product<'_>> =
                products.iter().filter(|(name, _)| name == tensor.name).map(|(_, product)| product).collect();
            if own.is_empty() {
                data.write_all(tensor.data)?
            } else {
                merged(&tensor, &own, &mut data)?
            }
            file.release(tensor.data);
        }
        data.finish().map(|_| ())
    })?;
    note(format_args!("{}: {} matrices changed", output.display(), products.len()));
    Ok(())
}

/// Checks an adapter, and adds its products to `products`.
fn add<'a>(model: &Gguf<'_>, adapter: &Gguf<'a>, scale: f32, products: &mut Vec<(String, Product<'a>)>) -> Result<()> {
    must_be_adapter(adapter)?;
    let (wanted, given) = (model.architecture()?, adapter.architecture()?);
    ensure!(wanted == given, "the adapter is for the architecture {given} and the model is of {wanted}");
    let alpha = match adapter.get("adapter.lora.alpha") {
        Some(Value::F32(alpha)) => alpha,
        _ => bail!("the adapter has no adapter.lora.alpha"),
    };
    for a in adapter.tensors() {
        let Some(name) = a.name.strip_suffix(".lora_a") else {
            ensure!(a.name.ends_with(".lora_b"), "the tensor {} is neither lora_a nor lora_b", a.name);
            continue;
        };
        let b = adapter.tensor(&format!("{name}.lora_b")).with_context(|| format!("{name}.lora_b is missing"))?;
        let tensor = model.tensor(name).with_context(|| format!("the model has no tensor {name}"))?;
        let is_lookup = name == "token_embd.weight";
        ensure!(
            !is_lookup || model.tensor("output.weight").is_some() || !Model::new(model)?.spec().has_head(),
            "the adapter changes the token embedding, which is this model's output matrix, too: merging would change both, \
             so run the model with --lora"
        );
        let (rank, sizes) =
            if is_lookup { (a.dims[0], [b.dims[1], a.dims[1]]) } else { (a.dims[1], [a.dims[0], b.dims[1]]) };
        ensure!(
            sizes == tensor.dims[..2] && b.dims[0] == rank && tensor.dims[2] == 1 && rank > 0,
            "the sizes of the adapter's matrices for {name} do not match the model's tensor"
        );
        // An alpha of 0 means that only `scale` applies.
        let factor = if alpha == 0.0 { scale } else { scale * alpha / rank as f32 };
        products.push((name.to_owned(), Product { a, b, factor, is_lookup }));
    }
    Ok(())
}

/// Decodes all values of an adapter's matrix.
fn values(tensor: &Tensor<'_>) -> Result<Vec<f32>> {
    let columns = tensor.dims[0] as usize;
    let row_bytes = tensor.kind.row_bytes(columns).context("rows that are not whole blocks")?;
    let mut values = vec![0.0; columns * tensor.dims[1] as usize];
    for (bytes, row) in tensor.data.chunks_exact(row_bytes).zip(values.chunks_exact_mut(columns)) {
        ensure!(decode_row(tensor.kind, bytes, row), "this build does not read {:?}", tensor.kind);
    }
    Ok(values)
}

/// Adds products to a tensor and writes the sum, row by row.
fn merged(tensor: &Tensor<'_>, products: &[&Product<'_>], out: &mut impl Write) -> Result<()> {
    let columns = tensor.dims[0] as usize;
    let row_bytes = tensor.kind.row_bytes(columns).context("rows that are not whole blocks")?;
    let matrices: Vec<(Vec<f32>, Vec<f32>, f32)> = products
        .iter()
        .map(|product| product.matrices().map(|(a, b)| (a, b, product.factor)))
        .collect::<Result<_>>()?;
    let (mut row, mut bytes) = (vec![0.0; columns], vec![0; row_bytes]);
    for (i, stored) in tensor.data.chunks_exact(row_bytes).enumerate() {
        ensure!(decode_row(tensor.kind, stored, &mut row), "this build does not read {:?}", tensor.kind);
        for (a, b, factor) in &matrices {
            let rank = a.len() / columns;
            for (weights, b) in a.chunks_exact(columns).zip(&b[i * rank..][..rank]) {
                let b = b * factor;
                row.iter_mut().zip(weights).for_each(|(x, a)| *x = a.mul_add(b, *x));
            }
        }
        ensure!(
            tensor.kind == TensorType::F32 || row.iter().all(|x| x.is_finite()),
            "{} has a weight that is not finite after merging",
            tensor.name
        );
        ensure!(
            encode_values(tensor.kind, &row, &mut bytes),
            "{} is {:?}, which needs an importance matrix: merge into a model of another type",
            tensor.name,
            tensor.kind
        );
        out.write_all(&bytes)?;
    }
    Ok(())
}
