//! `arenite merge`: adds LoRA adapters to a model's weights, and the adapters' biases to the model's biases.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arenite::gguf::{Tensor, Value};
use arenite::quant::{TensorType, decode_row};
use arenite::{Adapter, Gguf, Model};

use crate::cli::NoModelArgs;
use crate::output::note;
use arenite_convert::write_model;
use arenite_files::NewFile;
use arenite_gguf_writer::Header;
use arenite_quantize::encode_values;
use arenite_run::adapters::{self, values};
use arenite_run::model_file::ModelFile;

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

/// An adapter's two matrices for a tensor. Their product, times `factor`, is added to the tensor.
struct Product {
    /// `[slabs][rank][columns]`
    a: Vec<f32>,
    /// `[slabs][rows][rank]`
    b: Vec<f32>,
    rank: usize,
    factor: f32,
}

/// Names of the token embedding and of the head. In many models, the embedding is also the head.
const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";

pub fn run(args: &Args) -> Result<()> {
    let (output, adapters) = args.files.split_last().context("give a file to write")?;
    let file = ModelFile::open(args.input.as_path())?;
    if arenite_files::is_kept(output.as_ref()) {
        NewFile::create(output.as_ref())?; // refused, before the work
    }
    let gguf = file.parse()?;
    let model = Model::new(&gguf)?;
    let mut products: Vec<(String, Product)> = Vec::new();
    for text in adapters {
        let (adapter, scale) = adapters::open(text)?;
        add(&model, &adapter.gguf()?, scale, &mut products).with_context(|| adapter.name().to_owned())?;
    }
    // In a model whose head is the token embedding, the adapter may change only one of the two. The head is then
    // written as a tensor of its own.
    let is_tied = model.spec().has_head() && gguf.tensor(HEAD).is_none();
    let embedding = gguf.tensor(EMBEDDING).filter(|_| is_tied);
    let head = embedding.filter(|_| products.iter().any(|(name, _)| [EMBEDDING, HEAD].contains(&name.as_str())));
    let head = head.map(|embedding| Tensor { name: HEAD, ..embedding });
    ensure!(
        head.is_none() || gguf.architecture()? != "t5",
        "the adapter changes the token embedding or the head, which are one tensor in this model: run it with --lora"
    );
    let zeros = new_biases(&gguf, &products);
    let biases = || {
        zeros.iter().map(|(name, data)| {
            let dims = [data.len() as u64 / 4, 1, 1, 1];
            Tensor { name, kind: TensorType::F32, dims, dim_count: 1, offset: 0, data }
        })
    };
    let tensors = || gguf.tensors().chain(head).chain(biases());
    let mut header = Header::new();
    gguf.keys().for_each(|(key, value)| header.set(key, value));
    if let Some(Value::U32(alignment)) = gguf.get("general.alignment") {
        header.align(alignment)?;
    }
    for tensor in tensors() {
        let dims: Vec<u64> = tensor.dims.into_iter().take(tensor.dim_count as usize).collect();
        header.tensor(tensor.name, &dims, tensor.kind)?;
    }
    let output = Path::new(output);
    write_model(output, |out| {
        let mut data = header.write(out)?;
        for tensor in tensors() {
            let own: Vec<&Product> =
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

/// Returns the biases that an adapter changes but the model does not have. Their values are zeros.
fn new_biases(gguf: &Gguf<'_>, products: &[(String, Product)]) -> BTreeMap<String, Vec<u8>> {
    let lacking = products.iter().filter(|(name, _)| name.ends_with(".bias") && gguf.tensor(name).is_none());
    lacking.map(|(name, bias)| (name.clone(), vec![0; 4 * bias.a.len()])).collect()
}

/// Checks an adapter, and adds its products to `products`.
fn add(model: &Model<'_>, gguf: &Gguf<'_>, scale: f32, products: &mut Vec<(String, Product)>) -> Result<()> {
    Adapter::new(gguf, model)?;
    let has_bias = matches!(gguf.get("adapter.lora.bias"), Some(Value::Bool(true)));
    let alpha = match gguf.get("adapter.lora.alpha") {
        Some(Value::F32(alpha)) => alpha,
        _ => bail!("the adapter has no adapter.lora.alpha"),
    };
    for a in gguf.tensors() {
        let Some(name) = a.name.strip_suffix(".lora_a") else { continue };
        // A router is not checked, because the scale beside it multiplies the router's input instead of its weights.
        let stem = name.strip_suffix("weight").filter(|stem| !stem.ends_with("ffn_gate_inp."));
        let scaling = stem.map(|stem| format!("{stem}scale"));
        ensure!(
            scaling.is_none_or(|scaling| model.gguf().tensor(&scaling).is_none()),
            "{name} has a factor beside its weights: merge into a model of another type"
        );
        let b = gguf.tensor(&format!("{name}.lora_b")).with_context(|| format!("{name}.lora_b is missing"))?;
        let rank = b.dims[0] as usize;
        let (mut a, mut b) = (values(&a)?, values(&b)?);
        if name == EMBEDDING {
            // The pair of an embedding is different: rows are looked up in `a`, and `b` has the shape
            // `[columns][rank]`.
            let columns = (0..rank).flat_map(|k| b.iter().skip(k).step_by(rank).copied()).collect();
            (a, b) = (columns, a);
        }
        // An alpha of 0 means that only `scale` applies.
        let factor = if alpha == 0.0 { scale } else { scale * alpha / rank as f32 };
        if let (true, Some(stem)) = (has_bias && name != EMBEDDING, name.strip_suffix(".weight")) {
            // In an adapter with biases, the last column of `b` is the change of the bias. The last row of `a` has only
            // zeros, so that this column does not change the matrix. If the column has only zeros, too, the bias does
            // not change.
            ensure!(
                b.len() * a.len() > 0 && model.gguf().tensor(name).is_none_or(|own| own.dims[2] == 1),
                "{name} has experts with biases: run it with --lora"
            );
            let bias: Vec<f32> = b.iter().skip(rank - 1).step_by(rank).copied().collect();
            if bias.iter().any(|x| *x != 0.0) {
                products.push((format!("{stem}.bias"), Product { a: bias, b: vec![1.0], rank: 1, factor }));
            }
        }
        products.push((name.to_owned(), Product { a, b, rank, factor }));
    }
    Ok(())
}

/// Adds the products of adapters' matrices to a tensor, and writes the sum row by row.
fn merged(tensor: &Tensor<'_>, products: &[&Product], out: &mut impl Write) -> Result<()> {
    let (columns, rows) = (tensor.dims[0] as usize, tensor.dims[1] as usize);
    let row_bytes = tensor.kind.row_bytes(columns).context("rows that are not whole blocks")?;
    let (mut row, mut bytes) = (vec![0.0; columns], vec![0; row_bytes]);
    for (i, stored) in tensor.data.chunks_exact(row_bytes).enumerate() {
        ensure!(decode_row(tensor.kind, stored, &mut row), "this build does not read {:?}", tensor.kind);
        for Product { a, b, rank, factor } in products {
            let slab = i / rows * rank * columns;
            for (weights, b) in a[slab..].chunks_exact(columns).zip(&b[i * rank..][..*rank]) {
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
