//! Converts parts of an adapter that are not products of two matrices to products: DoRA, IA3, saved modules, trained
//! tokens and biases.
//!
//! A product is the difference between the new and the old matrix times an identity matrix, so its rank is the smaller
//! side of the matrix. The weights of the adapter's base model are needed to compute the difference. The difference
//! between the new and the old bias becomes a further column of the second matrix.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::access::values;
use super::adapter_config::{INSTEAD, Settings};
use super::config::Config;
use super::leaf::{Coding, Leaf};
use super::quantized;
use super::tensors::{Checkpoint, Files};

/// A matrix in memory, in a checkpoint's form.
pub struct Made {
    name: String,
    shape: [usize; 2],
    bytes: Vec<u8>,
}

impl Made {
    /// Returns true for one of the two matrices of a LoRA. The matrices of an embedding have other names and do not
    /// count.
    fn is_half(&self) -> bool {
        [".lora_A.", ".lora_B."].iter().any(|half| self.name.contains(half))
    }

    fn values(&self) -> Vec<f32> {
        self.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

/// New matrices for an adapter that stores other things than pairs of matrices, and the names of the adapter's tensors
/// that they replace.
#[derive(Default)]
pub struct Whole {
    made: Vec<Made>,
    replaced: Vec<String>,
    /// Values that the adapter adds to the bias of each module.
    biases: BTreeMap<String, Vec<f32>>,
    /// True if the last column of each second matrix is a bias.
    pub has_bias: bool,
}

/// Ends of the names of the parts.
const MAGNITUDE: &str = ".lora_magnitude_vector";
const TOKENS: &str = ".token_adapter.trainable_tokens_delta";
const FACTORS: &str = ".ia3_l";

/// Gives saved modules the names that they have in the model. With `save_embedding_layers`, PEFT stores a saved
/// embedding or head under the model's name as well, and the untrained weights beside it.
pub fn name_saved(adapter: &mut Checkpoint<'_>) -> Result<()> {
    adapter.tensors.retain(|name, _| !name.contains(".original_module."));
    let saved: Vec<String> =
        adapter.tensors.keys().filter(|name| name.contains(".modules_to_save.")).cloned().collect();
    for name in saved {
        let Some(leaf) = adapter.tensors.remove(&name) else { continue };
        let plain = name.replace(".modules_to_save.default.", ".").replace(".modules_to_save.", ".");
        let other = adapter.tensors.insert(plain.clone(), leaf.clone());
        ensure!(other.is_none_or(|other| other.bytes == leaf.bytes), "the tensors {name} and {plain} differ");
    }
    Ok(())
}

impl Whole {
    /// Computes the matrices, if the adapter has parts that are not products. `base` is the folder of the adapter's
    /// base model.
    pub fn of(adapter: &Checkpoint<'_>, settings: &Settings, config: &Config, base: &Path) -> Result<Self> {
        let is_saved =
            |name: &&String| !name.contains(".lora_") && !name.contains(".base_layer.") && name.ends_with(".weight");
        let ending = |end: &str| {
            adapter.tensors.keys().filter_map(|name| Some(name.strip_suffix(end)?.to_owned())).collect::<Vec<_>>()
        };
        let (magnitudes, tokens) =
            ([ending(MAGNITUDE), ending(&format!("{MAGNITUDE}.default.weight"))].concat(), ending(TOKENS));
        let saved: Vec<String> = adapter.tensors.keys().filter(is_saved).cloned().collect();
        let biased: Vec<String> = adapter.tensors.keys().filter(|name| is_bias(name)).cloned().collect();
        let trained: Vec<String> =
            adapter.tensors.keys().filter(|name| settings.is_trained_bias(name)).cloned().collect();
        let is_set = |name: &str| match &settings.json[name] {
            Value::Null | Value::Bool(false) => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => true,
        };
        for (name, found) in [
            ("use_dora", &magnitudes),
            ("trainable_token_indices", &tokens),
            ("modules_to_save", &saved),
            ("lora_bias", &biased),
        ] {
            ensure!(
                !is_set(name) || !found.is_empty(),
                "{name} in adapter_config.json is set, but the adapter has no such tensors"
            );
        }
        let mut whole = Self::default();
        ensure!(biased.is_empty() || magnitudes.is_empty(), "lora_bias together with DoRA is not supported");
        for name in &biased {
            whole.bias_of_second(adapter, settings, name)?;
        }
        let factors = ending(FACTORS);
        if [&magnitudes, &tokens, &saved, &factors, &trained].iter().all(|parts| parts.is_empty()) {
            whole.put_biases(adapter, settings, None)?;
            return Ok(whole);
        }
        ensure!(
            settings.json["fan_in_fan_out"] != true,
            "fan_in_fan_out in adapter_config.json is true: not supported for what is more than a product"
        );
        let files = Files::open(base).context(
            "the adapter changes whole matrices, which needs the weights of its model: give the folder with --base",
        )?;
        let mut weights = Checkpoint::read(&files)?;
        quantized::prepare(config, Some(base), &mut weights)?;
        let model = Model { weights, config };
        for stem in magnitudes {
            whole.magnitude(adapter, settings, &model, &stem).with_context(|| format!("the adapter of {stem}"))?;
        }
        for name in saved {
            whole.saved(adapter, settings, &model, &name).with_context(|| format!("the saved module {name}"))?;
        }
        for stem in factors {
            whole.factors(adapter, settings, &model, &stem).with_context(|| format!("the factors of {stem}"))?;
        }
        for stem in tokens {
            whole.tokens(adapter, settings, &model, &stem).with_context(|| format!("the trained tokens of {stem}"))?;
        }
        for name in trained {
            whole.bias(adapter, &model, &name).with_context(|| format!("the trained bias {name}"))?;
        }
        whole.put_biases(adapter, settings, Some(&model))?;
        Ok(whole)
    }

    /// Replaces the parts in the adapter.
    pub fn put<'w>(&'w self, adapter: &mut Checkpoint<'w>) {
        adapter.tensors.retain(|name, _| !self.replaced.contains(name));
        for Made { name, shape, bytes } in &self.made {
            adapter.tensors.insert(name.clone(), Arc::new(Leaf::new(name, bytes, Coding::F32, shape)));
        }
    }

    /// A bias of a second matrix.
    fn bias_of_second(&mut self, adapter: &Checkpoint<'_>, settings: &Settings, name: &str) -> Result<()> {
        let (stem, _) = name.split_once(".lora_B.").unwrap_or_default();
        let second = name.replace(".bias", ".weight");
        let second = adapter.tensors.get(&second).with_context(|| format!("the tensor {second} is missing"))?;
        let factor = settings.scale(stem, matrix(second)?[1].max(1))?;
        let bias = values(&adapter.tensors[name]).into_iter().map(|x| x * factor).collect();
        self.replaced.push(name.to_owned());
        self.biases.insert(stem.to_owned(), bias);
        Ok(())
    }

    /// A bias that replaces the bias of the model.
    fn bias(&mut self, adapter: &Checkpoint<'_>, model: &Model<'_>, name: &str) -> Result<()> {
        let own = name.replace(".base_layer.", ".");
        let old = model.vector(&own).context("the model has no such bias")?;
        let new = values(&adapter.tensors[name]);
        ensure!(new.len() == old.len(), "it has {} values and the model's {}", new.len(), old.len());
        let stem = own.trim_end_matches(".bias").to_owned();
        self.replaced.push(name.to_owned());
        self.biases.insert(stem, new.iter().zip(&old).map(|(new, old)| new - old).collect());
        Ok(())
    }

    /// Adds changes of biases to the adapter: each becomes a further column of the second matrix of its module. A
    /// module whose bias does not change gets a column of zeros, and a module whose matrix does not change gets a new
    /// pair of matrices.
    fn put_biases(&mut self, adapter: &Checkpoint<'_>, settings: &Settings, model: Option<&Model<'_>>) -> Result<()> {
        self.biases.retain(|_, bias| bias.iter().any(|x| *x != 0.0));
        self.has_bias = !self.biases.is_empty();
        if !self.has_bias {
            return Ok(());
        }
        let mut pairs = BTreeMap::new();
        for (a_name, a) in adapter.tensors.iter().filter(|(name, _)| name.contains(".lora_A.")) {
            let (stem, _) = a_name.split_once(".lora_A.").unwrap_or_default();
            let b_name = a_name.replace(".lora_A.", ".lora_B.");
            if self.replaced.contains(a_name) {
                continue;
            }
            let b = adapter.tensors.get(&b_name).with_context(|| format!("the tensor {b_name} is missing"))?;
            pairs.insert(stem.to_owned(), [(matrix(a)?, values(a)), (matrix(b)?, values(b))]);
            self.replaced.extend([a_name.clone(), b_name]);
        }
        let (halves, others) = std::mem::take(&mut self.made).into_iter().partition(|made| made.is_half());
        self.made = others;
        let mut halves: Vec<Made> = halves;
        halves.sort_by(|one, other| one.name.cmp(&other.name));
        for [a, b] in halves.as_chunks::<2>().0 {
            let (stem, _) = a.name.split_once(".lora_A.").context("a pair without a first matrix")?;
            pairs.insert(stem.to_owned(), [a, b].map(|half| (half.shape, half.values())));
        }
        for (stem, bias) in &self.biases {
            let Some(model) = model.filter(|_| !pairs.contains_key(stem)) else { continue };
            let matrix = model.matrix(&format!("{stem}.weight"));
            let ([_, columns], _) = matrix.with_context(|| format!("the bias of {stem} is trained, {INSTEAD}"))?;
            pairs.insert(stem.clone(), [([0, columns], Vec::new()), ([bias.len(), 0], Vec::new())]);
        }
        for (stem, [([rank, columns], mut a), ([rows, width], b)]) in pairs {
            let bias = self.biases.remove(&stem).unwrap_or_else(|| vec![0.0; rows]);
            ensure!(rank == width, "lora_A and lora_B of {stem} have different ranks");
            ensure!(bias.len() == rows, "the bias of {stem} has {} values and its matrix {rows} rows", bias.len());
            let of_experts = [".experts", ".base_layer"].iter().any(|end| stem.ends_with(end));
            ensure!(!of_experts, "adapters of experts together with biases are not supported");
            let factor = if rank > 0 { settings.scale(&stem, rank)? } else { 1.0 };
            a.resize((rank + 1) * columns, 0.0);
            let row = |at: usize| b[at * rank..][..rank].iter().map(|x| x * factor);
            let b = bias.iter().enumerate().flat_map(|(at, bias)| row(at).chain([*bias])).collect();
            let ends = ["lora_A.weight", "lora_B.weight"];
            self.pair(settings, &stem, ends, ([rank + 1, columns], a), ([rows, rank + 1], b))?;
        }
        Ok(())
    }

    /// DoRA: the rows of the adapted matrix get new lengths.
    fn magnitude(
        &mut self,
        adapter: &Checkpoint<'_>,
        settings: &Settings,
        model: &Model<'_>,
        stem: &str,
    ) -> Result<()> {
        let names = |end: &str| [format!("{stem}.{end}.weight"), format!("{stem}.{end}.default.weight")];
        let half = |end: &str| {
            let found = names(end).into_iter().find(|name| adapter.has(name));
            found.with_context(|| format!("{end} is missing, or it is no linear layer: not supported"))
        };
        let (a_name, b_name) = (half("lora_A")?, half("lora_B")?);
        let magnitudes = [format!("{stem}{MAGNITUDE}"), format!("{stem}{MAGNITUDE}.default.weight")];
        let magnitude_name = magnitudes.into_iter().find(|name| adapter.has(name)).context("no magnitudes")?;
        let (a, b, magnitude) =
            (&adapter.tensors[&a_name], &adapter.tensors[&b_name], values(&adapter.tensors[&magnitude_name]));
        let ([rank, columns], [rows, width]) = (matrix(a)?, matrix(b)?);
        let (shape, old) = model.matrix(&format!("{stem}.weight"))?;
        ensure!(
            rank == width && shape == [rows, columns] && magnitude.len() == rows && rank > 0,
            "its shapes do not fit the model's: give the folder of the adapter's own model with --base"
        );
        let (a, b) = (values(a), values(b));
        let factor = settings.scale(stem, rank)?;
        let mut delta = vec![0.0; rows * columns];
        for (row, delta) in delta.chunks_exact_mut(columns).enumerate() {
            let old = &old[row * columns..][..columns];
            let mut new = old.to_vec();
            for (b, a) in b[row * rank..][..rank].iter().zip(a.chunks_exact(columns)) {
                new.iter_mut().zip(a).for_each(|(new, a)| *new += b * factor * a);
            }
            let length = new.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
            ensure!(length > 0.0, "row {row} of the adapted matrix has only zeros");
            let times = f64::from(magnitude[row]) / length;
            delta
                .iter_mut()
                .zip(new.iter().zip(old))
                .for_each(|(delta, (new, old))| *delta = (f64::from(*new) * times - f64::from(*old)) as f32);
        }
        self.replaced.extend([a_name, b_name, magnitude_name]);
        self.product(settings, stem, [rows, columns], delta)
    }

    /// Applies the factors of an IA3 adapter to the rows of a matrix or, in a feed-forward, to its columns.
    fn factors(&mut self, adapter: &Checkpoint<'_>, settings: &Settings, model: &Model<'_>, stem: &str) -> Result<()> {
        let name = format!("{stem}{FACTORS}");
        let (shape, old) = model.matrix(&format!("{stem}.weight"))?;
        let [rows, columns] = shape;
        let of_rows = match matrix(&adapter.tensors[&name])? {
            found if found == [rows, 1] => true,
            found if found == [1, columns] => false,
            found => bail!("they have shape {found:?} and the model's matrix {shape:?}"),
        };
        let factors = values(&adapter.tensors[&name]);
        let factor = |at: usize| factors[if of_rows { at / columns } else { at % columns }];
        let delta = old.iter().enumerate().map(|(at, old)| old * (factor(at) - 1.0)).collect();
        // Factors on rows also apply to the module's bias.
        if let Some(bias) = model.vector(&format!("{stem}.bias")).filter(|_| of_rows) {
            ensure!(bias.len() == rows, "the model's bias has {} values", bias.len());
            let more = bias.iter().zip(&factors).map(|(bias, factor)| bias * (factor - 1.0)).collect();
            self.biases.insert(stem.to_owned(), more);
        }
        self.replaced.push(name);
        self.product(settings, stem, shape, delta)
    }

    /// Handles a module that was trained as a whole (PEFT's `modules_to_save`) and replaces the model's module.
    fn saved(&mut self, adapter: &Checkpoint<'_>, settings: &Settings, model: &Model<'_>, name: &str) -> Result<()> {
        let new = &adapter.tensors[name];
        let shape = match new.shape[..] {
            [rows, columns] => [rows, columns],
            _ => bail!(
                "it is not a matrix, and GGUF's adapters have only matrices: merge the adapter with PEFT's merge_and_unload()"
            ),
        };
        let (own, old) = model.matrix(name)?;
        ensure!(
            own == shape,
            "it has shape {shape:?} and the model's {own:?}: a vocabulary of another size needs a merged model"
        );
        let delta = values(new).iter().zip(&old).map(|(new, old)| new - old).collect();
        self.replaced.push(name.to_owned());
        let stem = name.strip_suffix(".weight").unwrap_or(name);
        if is_embedding(stem) {
            self.lookup(settings, stem, None, shape, delta)
        } else {
            self.product(settings, stem, shape, delta)
        }
    }

    /// Converts the rows of the embedding that the adapter has trained. They replace rows of the model's embedding.
    fn tokens(&mut self, adapter: &Checkpoint<'_>, settings: &Settings, model: &Model<'_>, stem: &str) -> Result<()> {
        ensure!(is_embedding(stem), "it is not the embedding of tokens, which is not supported");
        let name = format!("{stem}{TOKENS}");
        let new = &adapter.tensors[&name];
        let ids = settings
            .trained_tokens(stem)
            .context("trainable_token_indices in adapter_config.json does not name them")?;
        let (shape, old) = model.matrix(&format!("{stem}.weight"))?;
        let [_, columns] = shape;
        ensure!(
            matrix(new)? == [ids.len(), columns] && ids.iter().all(|id| *id < shape[0]),
            "its rows do not fit the model's"
        );
        let rows = values(new);
        let old = ids.iter().flat_map(|id| &old[id * columns..][..columns]);
        let delta: Vec<f32> = rows.iter().zip(old).map(|(new, old)| new - old).collect();
        self.replaced.push(name);
        if model.is_tied() {
            // The head is the embedding: its rows change, too.
            let mut all = vec![0.0; shape[0] * ids.len()];
            ids.iter().enumerate().for_each(|(at, id)| all[id * ids.len() + at] = 1.0);
            self.pair(
                settings,
                "lm_head",
                ["lora_A.weight", "lora_B.weight"],
                ([ids.len(), columns], delta.clone()),
                ([shape[0], ids.len()], all),
            )?;
        }
        self.lookup(settings, stem, Some(&ids), shape, delta)
    }

    /// Adds the pair of matrices for the difference `delta` of a `[rows, columns]` matrix.
    fn product(&mut self, settings: &Settings, stem: &str, [rows, columns]: [usize; 2], delta: Vec<f32>) -> Result<()> {
        let ends = ["lora_A.weight", "lora_B.weight"];
        if rows < columns {
            self.pair(settings, stem, ends, ([rows, columns], delta), ([rows, rows], identity(rows)))
        } else {
            self.pair(settings, stem, ends, ([columns, columns], identity(columns)), ([rows, columns], delta))
        }
    }

    /// Adds the pair of matrices for the change of an embedding `[rows, columns]`: the product of the pair is this
    /// change. The adapter has the change for some rows or for all rows.
    fn lookup(
        &mut self,
        settings: &Settings,
        stem: &str,
        ids: Option<&[usize]>,
        [rows, columns]: [usize; 2],
        delta: Vec<f32>,
    ) -> Result<()> {
        let ends = ["lora_embedding_A", "lora_embedding_B"];
        let transposed = |values: &[f32], width: usize| -> Vec<f32> {
            (0..width).flat_map(|at| values.iter().skip(at).step_by(width).copied()).collect()
        };
        match ids {
            Some(ids) => {
                let mut chosen = vec![0.0; ids.len() * rows];
                ids.iter().enumerate().for_each(|(at, id)| chosen[at * rows + id] = 1.0);
                self.pair(
                    settings,
                    stem,
                    ends,
                    ([ids.len(), rows], chosen),
                    ([columns, ids.len()], transposed(&delta, columns)),
                )
            }
            None => self.pair(
                settings,
                stem,
                ends,
                ([columns, rows], transposed(&delta, columns)),
                ([columns, columns], identity(columns)),
            ),
        }
    }

    /// Adds a pair of matrices. The second matrix is divided by the factor that the adapter's settings apply to the
    /// product.
    fn pair(
        &mut self,
        settings: &Settings,
        stem: &str,
        ends: [&str; 2],
        (a_shape, a): ([usize; 2], Vec<f32>),
        (b_shape, mut b): ([usize; 2], Vec<f32>),
    ) -> Result<()> {
        let rank = b_shape[1];
        let factor = settings.scale(stem, rank)?;
        ensure!(factor != 0.0 && factor.is_finite(), "lora_alpha in adapter_config.json is 0");
        b.iter_mut().for_each(|x| *x /= factor);
        for (end, shape, values) in [(ends[0], a_shape, a), (ends[1], b_shape, b)] {
            let name = format!("{stem}.{end}");
            ensure!(!self.made.iter().any(|made| made.name == name), "it is changed in two ways: not supported");
            self.made.push(Made { name, shape, bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect() });
        }
        Ok(())
    }
}

/// The base model.
struct Model<'m> {
    weights: Checkpoint<'m>,
    config: &'m Config,
}

impl Model<'_> {
    /// Returns the sizes and the values of a matrix. If the head is missing, the embedding is returned.
    fn matrix(&self, name: &str) -> Result<([usize; 2], Vec<f32>)> {
        let short = |name: &str| name.trim_start_matches("model.").trim_start_matches("transformer.").to_owned();
        let named = |wanted: &str| self.weights.tensors.iter().find(|(name, _)| short(name) == short(wanted));
        let embedding = || self.weights.tensors.iter().find(|(name, _)| is_embedding(name.trim_end_matches(".weight")));
        let found = named(name).or_else(|| if name == "lm_head.weight" { embedding() } else { None });
        let (_, leaf) =
            found.context("the model has no such module: give the folder of the adapter's own model with --base")?;
        Ok((matrix(leaf)?, values(leaf)))
    }

    /// Returns the values of a vector.
    fn vector(&self, name: &str) -> Option<Vec<f32>> {
        let short = |name: &str| name.trim_start_matches("model.").trim_start_matches("transformer.").to_owned();
        let (_, leaf) = self.weights.tensors.iter().find(|(own, _)| short(own) == short(name))?;
        Some(values(leaf))
    }

    fn is_tied(&self) -> bool {
        !self.weights.has("lm_head.weight") || self.config.flag("tie_word_embeddings") == Some(true)
    }
}

/// Returns true for the names of biases of second matrices.
fn is_bias(name: &str) -> bool {
    name.contains(".lora_B.") && name.ends_with(".bias")
}

/// Returns true if `stem` is the name of a module that looks up rows by the ids of tokens, i.e. an embedding.
fn is_embedding(stem: &str) -> bool {
    ["embed_tokens", "wte", "word_embeddings", "embed_in"].contains(&stem.rsplit('.').next().unwrap_or(stem))
}

fn matrix(leaf: &Leaf<'_>) -> Result<[usize; 2]> {
    match leaf.shape[..] {
        [rows, columns] => Ok([rows, columns]),
        _ => bail!("the tensor {} is not a matrix", leaf.name),
    }
}

fn identity(size: usize) -> Vec<f32> {
    let mut values = vec![0.0; size * size];
    values.iter_mut().step_by(size + 1).for_each(|x| *x = 1.0);
    values
}
