//! Converts LoRA adapters of PEFT and mlx_lm to GGUF, with llama.cpp's names: `X.lora_a`, `X.lora_b`, `adapter.lora.alpha`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::adapter_config::{INSTEAD, Settings};
use super::config::Config;
use super::families::{self, Family};
use super::leaf::{Coding, Leaf};
use super::names::{self, COMMON, Place, Row};
use super::output::Output;
use super::tensors::{Checkpoint, Files};
use super::view::{Step, View};
use super::whole::{self, Whole};
use arenite_files::write_file;
use arenite_gguf_writer::Header;

/// A summary of the conversion, for messages.
pub struct Report {
    pub architecture: &'static str,
    /// Number of adapted matrices.
    pub count: usize,
    pub notes: Vec<String>,
}

/// Converts the adapter in `directory` for the model in `base`. If the adapter replaces whole matrices, the model's
/// weights are needed.
pub fn convert(directory: &Path, base: Option<&Path>, output: &Path) -> Result<Report> {
    let settings = Settings::read(directory)?;
    let base = base_config(directory, base, &settings.json)?;
    let config = Config::read(&base)?;
    let files = weights(directory)?;
    let mut checkpoint = Checkpoint::read(&files)?;
    whole::name_saved(&mut checkpoint)?;
    let whole = Whole::of(&checkpoint, &settings, &config, base.parent().unwrap_or(Path::new(".")))?;
    whole.put(&mut checkpoint);
    let family = Family::of(&config, &checkpoint)?;
    let mut tables = families::tables(family, &config);
    tables.push(COMMON);
    let mut pairs = Pairs {
        checkpoint: &checkpoint,
        settings: &settings,
        tables,
        config: &config,
        found: BTreeMap::new(),
        unused: 0,
    };
    let mut skipped = 0;
    for name in checkpoint.tensors.keys() {
        if names::of_another_modality(name) {
            skipped += 1;
            continue;
        }
        if let Some((stem, end)) = FIRST.iter().find_map(|end| Some((name.strip_suffix(end)?, *end))) {
            pairs.add(stem, end).with_context(|| format!("the adapter of {stem}"))?;
            continue;
        }
        let first = [("lora_B", "lora_A"), ("lora_embedding_B", "lora_embedding_A"), (".lora_b", MLX)];
        let first = first.iter().fold(name.clone(), |name, (second, first)| name.replace(second, first));
        // The adapter may contain weights of the model itself, because PEFT stores copies of the untrained weights of
        // adapted embeddings and heads. All other tensors are errors.
        let is_frozen = [".base_layer.weight", ".base_layer.bias"].iter().any(|end| name.ends_with(end));
        ensure!(
            is_frozen || FIRST.iter().any(|end| first.ends_with(end)),
            "the tensor {name} is not part of a LoRA, {INSTEAD}"
        );
        ensure!(is_frozen || checkpoint.tensors.contains_key(&first), "the tensor {first} is missing");
    }
    let unused = pairs.unused;
    let outputs = pairs.outputs()?;
    ensure!(!outputs.is_empty(), "the adapter has no tensors for the text model");
    let architecture = family.architecture(&config);
    let mut header = Header::new();
    header.set("general.architecture", architecture);
    header.set("general.type", "adapter");
    if let Some(name) =
        directory.canonicalize().ok().as_deref().and_then(Path::file_name).and_then(|name| name.to_str())
    {
        header.set("general.name", name);
    }
    header.set("adapter.type", "lora");
    header.set("adapter.lora.alpha", settings.stored_alpha()? as f32);
    if whole.has_bias {
        header.set("adapter.lora.bias", true);
    }
    header.set("general.file_type", 0u32);
    header.set("general.quantization_version", 2u32);
    for output in &outputs {
        header.tensor(&output.name, &output.dims(), output.kind)?;
    }
    write_file(output, |out| {
        let mut data = header.write(out)?;
        outputs.iter().try_for_each(|output| output.write(1, &mut data, |_| Ok(())))?;
        data.finish().map(|_| ())
    })?;
    let mut notes = Vec::new();
    if skipped > 0 {
        notes.push(format!("left out {skipped} tensors for pictures or sounds"));
    }
    if unused > 0 {
        notes.push(format!("left out the adapters of {unused} modules that the converted model does not use"));
    }
    Ok(Report { architecture, count: outputs.len() / 2, notes })
}

/// Ends of the names of a LoRA's first matrices. The second matrix has B instead of A in its name.
const FIRST: &[&str] =
    &[".lora_A.weight", ".lora_A.default.weight", ".lora_embedding_A", ".lora_embedding_A.default", MLX];

/// End of the names that mlx_lm gives to the first matrix of each pair. These matrices are stored transposed.
const MLX: &str = ".lora_a";

/// Returns the path of the config of the adapter's base model.
fn base_config(directory: &Path, base: Option<&Path>, settings: &Value) -> Result<PathBuf> {
    let named = settings["base_model_name_or_path"].as_str().or(settings["model"].as_str()).map(PathBuf::from);
    let beside = named.as_ref().map(|named| directory.join(named));
    let places = [base.map(Path::to_owned), Some(directory.to_owned()), named.clone(), beside];
    let found = places.into_iter().flatten().map(|place| place.join("config.json")).find(|path| path.is_file());
    let name = named.as_deref().unwrap_or(Path::new("its model"));
    found.with_context(|| format!("there is no config.json of {}: give the model's folder with --base", name.display()))
}

fn weights(directory: &Path) -> Result<Files> {
    for name in ["adapter_model.safetensors", "adapter_model.bin", "adapters.safetensors"] {
        let path = directory.join(name);
        if path.is_file() {
            return Files::open(&path);
        }
    }
    bail!("{} has no adapter_model.safetensors, adapter_model.bin or adapters.safetensors", directory.display())
}

/// The pairs of matrices of an adapter, renamed and reordered in the same way as the model's tensors.
struct Pairs<'a, 'f> {
    checkpoint: &'a Checkpoint<'f>,
    settings: &'a Settings,
    tables: Vec<&'static [Row]>,
    config: &'a Config,
    /// The pair, or the pairs of a stack, for each new name.
    found: BTreeMap<String, Vec<Part<'f>>>,
    /// Number of modules that the adapter changes, but that the converted model does not use.
    unused: usize,
}

/// A pair for a whole matrix, or for one matrix of a stack.
struct Part<'f> {
    /// Index in the stack.
    index: Option<usize>,
    a: View<'f>,
    /// Views whose rows are concatenated to B.
    b: Vec<View<'f>>,
}

/// The two factors of a module's tensor.
struct Module<'f> {
    /// The tensor's name.
    name: String,
    /// The tensor's shape.
    shape: Vec<usize>,
    /// The two matrices whose product the adapter adds: first the one that has the tensor's columns, then the one that
    /// has its rows; see [`View::factors`].
    factors: [View<'f>; 2],
    /// Index of the factor that is multiplied with the inputs.
    inputs: usize,
}

impl Module<'_> {
    /// Exchanges the last two dimensions.
    fn transpose(&self) -> Result<Self> {
        let columns = self.shape.len() - 1;
        let mut shape = self.shape.clone();
        shape.swap(columns - 1, columns);
        let [a, b] = self.factors.each_ref().map(|half| half.clone().swap(columns - 1, columns));
        Ok(Self { name: self.name.clone(), shape, factors: [a?, b?], inputs: self.inputs })
    }
}

impl<'f> Pairs<'_, 'f> {
    /// Returns a tensor. Refuses values that are not finite.
    fn view(&self, name: &str) -> Result<View<'f>> {
        let view = self.checkpoint.view(name).with_context(|| format!("the tensor {name} is missing"))?;
        let mut values = vec![0.0; view.len()];
        view.read(0, &mut values);
        ensure!(values.iter().all(|x| x.is_finite()), "the tensor {name} has a value that is not finite");
        Ok(view)
    }

    /// Adds a pair of matrices. The name of the first matrix is `stem` followed by `end`. The second matrix has the
    /// same name with B in place of A.
    fn add(&mut self, stem: &str, end: &str) -> Result<()> {
        let a = self.view(&format!("{stem}{end}"))?;
        let b = self.view(&format!("{stem}{}", end.replace('A', "B").replace("_a", "_b")))?;
        ensure!(a.shape().len() == 2 && b.shape().len() == 2, "lora_A and lora_B are not matrices");
        let (a, b) = if end == MLX { (a.transpose()?, b.transpose()?) } else { (a, b) };
        let sizes = [a.size(0)?, a.size(1)?, b.size(0)?, b.size(1)?];
        ensure!(sizes[0] == sizes[3], "lora_A and lora_B have different ranks: save the adapter again");
        ensure!(!sizes.contains(&0), "lora_A and lora_B have no values");
        ensure!(
            end != MLX || !stem.ends_with("embed_tokens") || self.config.flag("tie_word_embeddings") == Some(false),
            "mlx_lm also applies the adapter of the embedding to the head if the two are one tensor: not supported"
        );
        let module = if stem.ends_with(".experts") || stem.ends_with(".base_layer") {
            self.experts(stem, a, b, sizes)?
        } else {
            let b = b.then(Step::Times(self.settings.factor(stem, sizes[0])?));
            let (name, shape) = (format!("{stem}.weight"), vec![sizes[2], sizes[1]]);
            if end.contains("embedding") || end == MLX && stem.ends_with("embed_tokens") {
                // The embedding is the transposed product.
                let factors = [b.repeat(0, sizes[1]), a.transpose()?.repeat(1, sizes[2])];
                Module { name, shape: vec![sizes[1], sizes[2]], factors, inputs: 0 }
            } else {
                let factors = [a.transpose()?.repeat(0, sizes[2]), b.repeat(1, sizes[1])];
                Module { name, shape, factors, inputs: 0 }
            }
        };
        self.insert(&module)
    }

    /// Returns the factors for all experts. PEFT stores the matrices of all experts side by side.
    fn experts(&self, stem: &str, a: View<'f>, b: View<'f>, sizes: [usize; 4]) -> Result<Module<'f>> {
        let module = stem.trim_end_matches(".base_layer");
        // PEFT adapts the parameters of a module in the order of the parameters in the module. The adapter of the first
        // parameter is the innermost one.
        let inner = stem[module.len()..].matches(".base_layer").count();
        let levels = (0..).take_while(|n| {
            let wrapped = format!("{module}{}", ".base_layer".repeat(*n));
            FIRST.iter().any(|end| self.checkpoint.tensors.contains_key(&format!("{wrapped}{end}")))
        });
        let index = levels
            .count()
            .checked_sub(inner + 1)
            .context("the model has no such module: give the folder of the adapter's own model with --base")?;
        let name = ["gate_up_proj", "down_proj"]
            .iter()
            .map(|name| format!("{module}.{name}"))
            .filter(|name| self.settings.is_parameter(name))
            .nth(index)
            .context("the model has no such module: give the folder of the adapter's own model with --base")?;
        let count = self.config.experts()?;
        let [low, columns, rows, _] = sizes;
        ensure!(count > 0 && low.is_multiple_of(count), "lora_A has {low} rows, which {count} experts cannot share");
        let rank = low / count;
        let b = b.then(Step::Times(self.settings.factor(&name, rank)?));
        let a = a.reshape(&[count, rank, columns])?.transpose()?;
        let b = b.reshape(&[rows, rank, count])?.swap(0, 2)?.transpose()?;
        let factors = [a.repeat(1, rows), b.repeat(2, columns)];
        // For most classes, PEFT takes the second dimension of a parameter as the outputs, even if it is the dimension
        // of the inputs. (Classes with `is_transposed` are an exception.) The width of the model therefore decides
        // which of the two factors is multiplied with the inputs.
        let width = self.config.width()?;
        let inputs = usize::from(if name.ends_with("down_proj") { rows != width } else { columns != width });
        Ok(Module { name, shape: vec![count, rows, columns], factors, inputs })
    }

    /// Renames a pair, and reorders its rows and columns.
    fn insert(&mut self, module: &Module<'f>) -> Result<()> {
        let name = module.name.strip_prefix("base_model.model.").unwrap_or(&module.name);
        let place = Place::of(name).behind(self.config)?;
        let found = names::find(&self.tables, &place.layer, &place.rest)
            .context("the model has no such module: give the folder of the adapter's own model with --base")?;
        let to: Vec<&str> = found.row.1.split(' ').filter(|name| !name.is_empty()).collect();
        if to.is_empty() {
            ensure!(!name.contains("embed_tokens"), "an adapter of one use of a shared embedding is not supported");
            self.unused += 1;
            return Ok(());
        }
        let change = |module: &Module<'f>| {
            let whole = View::new(Arc::new(Leaf::new(&module.name, &[], Coding::F32, &module.shape)));
            let views = (found.row.2)(self.config, whole.clone())?;
            ensure!(
                to.len() <= 1 || to.len() == views.len(),
                "its rows do not match the model's: give the folder of the adapter's own model with --base"
            );
            // A head that equals the embedding is not stored in the checkpoint and has no views, but an adapter can
            // change it nevertheless.
            let views = if views.iter().all(|view| view.len() == 0) { vec![whole] } else { views };
            let named = views.into_iter().zip(to.iter().copied().cycle()).filter(|(view, _)| view.len() > 0);
            named.map(|(view, to)| Ok((view.factors(&module.factors)?, to))).collect::<Result<Vec<_>>>()
        };
        // The checkpoint may store this tensor transposed. In the new file, the columns of a matrix always belong to
        // the inputs.
        let is_wrong = |changed: &Result<Vec<_>>| match changed {
            Ok(changed) => changed.iter().all(|((_, of_columns), _)| *of_columns != module.inputs),
            Err(_) => true,
        };
        let mut changed = change(module);
        if is_wrong(&changed) {
            let transposed = change(&module.transpose()?);
            changed = if is_wrong(&transposed) { changed } else { transposed };
        }
        let mut parts: BTreeMap<String, Part<'f>> = BTreeMap::new();
        for (([a, b], _), to) in changed? {
            let (layer, to) = to.strip_prefix('/').map_or((place.layer.as_str(), to), |to| ("", to));
            let to = to.strip_suffix(".weight").unwrap_or(to);
            let is_scaled = |row: &Row| to.ends_with("_exps") && row.1 == format!("{to}.scale");
            ensure!(
                !self.tables.iter().copied().flatten().any(is_scaled),
                "the model scales the outputs of this module, but would not scale those of an adapter: not supported"
            );
            ensure!(
                !to.ends_with("position_embd") && to != "token_types",
                "adapters of the embeddings of positions and of types are not supported, {INSTEAD}"
            );
            let name = format!("{layer}{to}.weight");
            parts.entry(name).or_insert_with(|| Part { index: found.part, a, b: Vec::new() }).b.push(b);
        }
        for (name, part) in parts {
            self.found.entry(name).or_default().push(part);
        }
        Ok(())
    }

    /// Assembles the tensors of the new file.
    fn outputs(self) -> Result<Vec<Output<'f>>> {
        let mut outputs = Vec::new();
        for (name, mut parts) in self.found {
            parts.sort_by_key(|part| part.index);
            let [first, ..] = &parts[..] else { continue };
            let is_stack = first.index.is_some();
            ensure!(is_stack || parts.len() == 1, "{name} has several adapters");
            let shapes = |part: &Part<'f>| {
                let (a, mut b) = (part.a.dims().to_vec(), part.b[0].dims().to_vec());
                let rows = b.len() - 2;
                b[rows] = part.b.iter().map(|b| b.dims()[rows]).sum();
                ensure!(rows == 0 || part.b.len() == 1, "a matrix of {name} has several parts: not supported");
                Ok([a, b])
            };
            let [mut a, mut b] = shapes(first)?;
            if is_stack {
                for (i, part) in parts.iter().enumerate() {
                    ensure!(part.index == Some(i), "{name} has no adapter for part {i}, or several");
                    ensure!(shapes(part)? == [a.clone(), b.clone()], "the adapters of {name} have different shapes");
                }
                a.insert(0, parts.len());
                b.insert(0, parts.len());
            }
            let (mut of_a, of_b): (Vec<_>, Vec<_>) = parts.into_iter().map(|part| (part.a, part.b)).unzip();
            let mut of_b = of_b.into_iter().flatten().collect::<Vec<_>>();
            if name == "token_embd.weight" {
                // Rows are looked up in the first factor.
                let (columns, rows) = (of_a.pop().context("no factor")?.transpose()?, of_b.pop().context("no factor")?);
                (a, b) = (b, columns.dims().to_vec());
                (of_a, of_b) = (vec![rows], vec![columns]);
            }
            outputs.push(Output::of_views(format!("{name}.lora_a"), a, of_a));
            outputs.push(Output::of_views(format!("{name}.lora_b"), b, of_b));
        }
        Ok(outputs)
    }
}
