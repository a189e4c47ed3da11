//! Assembles the tensors of the new file from stored tensors, and writes them in their new types.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use arenite::quant::TensorType;

use super::config::{Config, SCORING_ENCODER};
use super::families::{Family, Made};
use super::grid;
use super::leaf::{Coding, FourBits};
use super::names::{self, COMMON, Place, Row};
use super::tensors::Checkpoint;
use super::view::View;
use arenite_gguf_writer::Meta;
use arenite_quantize::encode_values;
use arenite_quantize::underflow::underflows;

/// Number of elements that a thread encodes at a time, or number of bytes that are copied at a time.
const PIECE: usize = 1 << 20;

/// The end of the note about tensors of another modality.
pub const OTHERS: &str = "tensors for pictures or sounds";

/// A tensor of the new file.
pub struct Output<'f> {
    pub name: String,
    /// The outermost dimension first.
    pub shape: Vec<usize>,
    pub kind: TensorType,
    /// The smallest type of GGUF that holds the weights without loss, if another program has quantized them to
    /// integers.
    pub grid: Option<TensorType>,
    values: Values<'f>,
}

enum Values<'f> {
    /// Views whose values are concatenated.
    Views(Vec<View<'f>>),
    Made(Vec<f32>),
}

/// The parts of a new tensor.
struct Parts<'f> {
    /// The views of which the tensor consists, each with a sort key. In a stack, the key is the view's index. Otherwise
    /// it is the index of the row in the tables, then the index of the view.
    parts: Vec<((usize, usize), View<'f>)>,
    stacked: bool,
}

/// The tensors and numbers of a converted checkpoint.
pub struct Assembled<'f> {
    pub outputs: Vec<Output<'f>>,
    /// Keys and values of the metadata that come from tensors: numbers for the whole model, and lists with one number
    /// per layer.
    pub scalars: Vec<(&'static str, Meta)>,
    /// Messages about dropped tensors.
    pub notes: Vec<String>,
}

/// Assembles the new tensors from a checkpoint.
pub fn assemble<'f>(
    checkpoint: &Checkpoint<'f>,
    family: &Family,
    tables: &[&[Row]],
    config: &Config,
) -> Result<Assembled<'f>> {
    let layers = config.layers().unwrap_or(usize::MAX);
    let mut tables = tables.to_vec();
    tables.push(COMMON);
    let mut found: HashMap<String, Parts<'f>> = HashMap::new();
    let mut scalars: HashMap<&'static str, Vec<(Option<usize>, f32)>> = HashMap::new();
    let predicting: HashSet<String> = checkpoint.tensors.keys().filter_map(|name| predicting_layer(name)).collect();
    let (mut skipped, mut later, mut beyond) = (0, 0, 0);
    for (name, leaf) in &checkpoint.tensors {
        if names::of_another_modality(name) {
            skipped += 1;
            continue;
        }
        // TransformerEngine stores such a tensor, often an empty one, with each of its layers.
        if name.ends_with("._extra_state") {
            continue;
        }
        let mut place = Place::of(name).behind(config)?;
        if is_embedding_too(checkpoint, config, &place.rest) {
            let known = |name: &&&str| names::find(&tables, "", name).is_some_and(|row| row.row.1 == "token_embd");
            place.rest = EMBEDDINGS.iter().find(known).map_or(place.rest, |name| (*name).to_owned());
        }
        let predicts = place.number.is_some_and(|number| number >= layers)
            || name.starts_with("mtp.")
            || name.starts_with("model.mtp");
        let is_shared = |shared: View<'_>| shared.leaf().bytes == leaf.bytes;
        ensure!(
            !["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"].contains(&name.as_str())
                || checkpoint.view("shared.weight").is_none_or(is_shared),
            "the tensor {name} differs from shared.weight, which is not supported"
        );
        // Layers beyond the config's number of layers are left out, as in transformers.
        let is_beyond = place.number.is_some_and(|number| number >= layers) && !name.starts_with("mtp.");
        if is_beyond && !place.layer.starts_with("dec.") && !predicting.contains(&place.layer) {
            beyond += 1;
            continue;
        }
        let is_kept = family.predicts && place.number.is_some();
        if predicts && !is_kept && !place.layer.starts_with("dec.") {
            later += 1;
            continue;
        }
        let view = View::new(leaf.clone());
        if let Some((_, key)) = family.scalars.iter().find(|(stored, _)| *stored == place.rest) {
            let mut value = [0.0];
            view.read(0, &mut value);
            scalars.entry(key).or_default().push((place.number, value[0]));
            continue;
        }
        if (family.own_head)(config) {
            let is_embedding = names::find(&tables, &place.layer, &place.rest)
                .is_some_and(|found| found.row.1.starts_with("token_embd"));
            let is_only = is_embedding
                && EMBEDDINGS.contains(&place.rest.as_str())
                && !checkpoint.tensors.iter().any(|(name, _)| HEADS.contains(&Place::of(name).rest.as_str()));
            if is_only {
                let head = Place { layer: String::new(), number: None, rest: "lm_head.weight".to_owned() };
                add(&mut found, &tables, config, &head, view.clone())?;
            }
        } else if is_tied_head(checkpoint, config, &place.rest, &view) {
            continue;
        }
        add(&mut found, &tables, config, &place, view).with_context(|| {
            format!("the tensor {name} cannot be converted for the architecture {}", family.architecture(config))
        })?;
    }
    let mut notes = Vec::new();
    if skipped > 0 {
        notes.push(format!("left out {skipped} {OTHERS}"));
    }
    if beyond > 0 {
        notes.push(format!(
            "left out {beyond} tensors of the layers from {layers} on, because num_hidden_layers in config.json is {layers}"
        ));
    }
    if later > 0 {
        notes.push(format!("left out {later} tensors of layers that predict several tokens at once"));
    }
    let mut outputs: Vec<Output<'f>> =
        found.into_iter().map(|(name, parts)| Output::of_parts(name, parts)).collect::<Result<_>>()?;
    let mut made = (family.made)(config)?;
    if made.is_empty() {
        made = super::families::rope_factors(config)?;
    }
    outputs.extend(made.into_iter().map(Output::made));
    outputs.sort_by(|a, b| arenite_quantize::mix::order(&a.name).cmp(&arenite_quantize::mix::order(&b.name)));
    let scalars = family.scalars.iter().filter_map(|(_, key)| {
        let mut values = scalars.remove(key)?;
        values.sort_by_key(|(layer, _)| *layer);
        Some(match values[..] {
            [(None, value)] => (*key, value.into()),
            _ => (*key, Meta::array(values.into_iter().map(|(_, value)| value))),
        })
    });
    let scalars = scalars.collect();
    Ok(Assembled { outputs, scalars, notes })
}

/// Returns the layer of the tensor `name`, if its name is one that only layers for predicting further tokens have.
fn predicting_layer(name: &str) -> Option<String> {
    let place = Place::of(name);
    place.rest.starts_with("eh_proj.").then_some(place.layer)
}

/// Returns the number of layers that predict further tokens.
pub fn predicting(outputs: &[Output<'_>]) -> usize {
    outputs.iter().filter(|output| output.name.ends_with(".nextn.eh_proj.weight")).count()
}

/// Refuses a checkpoint whose head is missing, or in which only some layers have a bias. Readers of GGUF would use the
/// embedding in place of the head, and no bias. A model with pooling (`pools`) needs no head.
pub fn complete(outputs: &[Output<'_>], config: &Config, pools: bool) -> Result<()> {
    let names: HashSet<&str> = outputs.iter().map(|output| output.name.as_str()).collect();
    let needs_head = !pools && config.classes().iter().any(|class| class.ends_with("ForCausalLM"));
    ensure!(
        !needs_head || config.stated("tie_word_embeddings") != Some(&false.into()) || names.contains("output.weight"),
        "the checkpoint has no head, and tie_word_embeddings in config.json is false: change it to true if the embedding \
         is the head, too"
    );
    // In a laya model, biases are expected only in the scoring layers, which are its last layers.
    let is_scoring = config.classes().contains(&SCORING_ENCODER);
    let first = if is_scoring { config.size(&["num_layers_per_stack"])? } else { 0 };
    let of_layer = |name: &str| Some(name.strip_prefix("blk.")?.split_once('.')?.1.strip_suffix(".bias")?.to_owned());
    for tensor in names.iter().filter_map(|name| of_layer(name)).collect::<HashSet<_>>() {
        for layer in first..config.layers().unwrap_or(0) {
            let name = format!("blk.{layer}.{tensor}");
            ensure!(
                !names.contains(&*format!("{name}.weight")) || names.contains(&*format!("{name}.bias")),
                "the checkpoint has biases for {tensor}, but none for layer {layer}: fetch it again"
            );
        }
    }
    Ok(())
}

/// Names of heads and of embeddings in checkpoints.
const HEADS: &[&str] =
    &["lm_head.weight", "output.weight", "output_layer.weight", "embed_out.weight", "proj_out.weight"];
const EMBEDDINGS: &[&str] = &[
    "embed_tokens.weight",
    "wte.weight",
    "embed_in.weight",
    "shared.weight",
    "embeddings.weight",
    "tok_embeddings.weight",
    "word_embeddings.weight",
    "embedding.word_embeddings.weight",
    "token_embeddings.weight",
    "decoder.embed_tokens.weight",
];

/// Returns true if the tensor is a head that equals the embedding, and the config says that the two are tied.
fn is_tied_head(checkpoint: &Checkpoint<'_>, config: &Config, rest: &str, view: &View<'_>) -> bool {
    if !HEADS.contains(&rest) {
        return false;
    }
    let same = checkpoint.tensors.iter().any(|(name, leaf)| {
        let rest = Place::of(name).rest;
        EMBEDDINGS.contains(&rest.as_str()) && leaf.shape == view.leaf().shape && leaf.bytes == view.leaf().bytes
    });
    same && config.flag("tie_word_embeddings") != Some(false)
}

/// Returns true if the tensor is a head that is tied to the embedding, and the checkpoint has no embedding beside it.
fn is_embedding_too(checkpoint: &Checkpoint<'_>, config: &Config, rest: &str) -> bool {
    let has_embedding = || checkpoint.tensors.keys().any(|name| EMBEDDINGS.contains(&Place::of(name).rest.as_str()));
    HEADS.contains(&rest) && config.flag("tie_word_embeddings") == Some(true) && !has_embedding()
}

/// Adds a tensor of the checkpoint to the parts of the new tensors that are made of it.
fn add<'f>(
    found: &mut HashMap<String, Parts<'f>>,
    tables: &[&[Row]],
    config: &Config,
    place: &Place,
    view: View<'f>,
) -> Result<()> {
    // Factors of 4-bit weights are named after the weights.
    for (stored, new) in [(".weight_scale_2", ".scale"), (".input_scale", ".input_scale")] {
        let Some(stem) = place.rest.strip_suffix(stored) else { continue };
        let row = names::find(tables, &place.layer, &format!("{stem}.weight"))
            .context("it scales a tensor whose name the converter does not know")?;
        for to in row.row.1.split(' ') {
            let to = to.strip_suffix(".weight").unwrap_or(to);
            push(found, format!("{}{to}{new}", place.layer), row.part, (0, 0), view.clone().squeeze());
        }
        return Ok(());
    }
    let row = names::find(tables, &place.layer, &place.rest)
        .context("the converter does not know its name, and leaving it out would change the results")?;
    let leaf = view.leaf();
    let is_whole = matches!(leaf.coding, Coding::I64 | Coding::I32 | Coding::I16 | Coding::U8 | Coding::I8)
        && leaf.scale.is_none();
    ensure!(
        !is_whole || leaf.shape.len() < 2 || row.row.1.is_empty(),
        "its weights are integers, and config.json does not name a quantization: copy the config.json of this checkpoint"
    );
    let views = (row.row.2)(config, view)?;
    if row.row.1.is_empty() {
        return Ok(());
    }
    let to: Vec<&str> = row.row.1.split(' ').collect();
    ensure!(
        views.len() == to.len() || to.len() == 1,
        "it makes {} tensors instead of {}: config.json does not match it",
        views.len(),
        to.len()
    );
    // If a row of the table has only one name for several views, they are parts of the same tensor. The name is then
    // repeated for each view.
    let to = to.into_iter().cycle();
    for (i, (view, to)) in views.into_iter().zip(to).enumerate().filter(|(_, (view, _))| view.len() > 0) {
        let (layer, to) = to.strip_prefix('/').map_or((place.layer.as_str(), to), |to| ("", to));
        push(found, format!("{layer}{to}{}", row.suffix), row.part, (row.index, i), view);
    }
    Ok(())
}

fn push<'f>(
    found: &mut HashMap<String, Parts<'f>>,
    name: String,
    part: Option<usize>,
    order: (usize, usize),
    view: View<'f>,
) {
    let parts = found.entry(name).or_insert_with(|| Parts { parts: Vec::new(), stacked: part.is_some() });
    parts.parts.push((part.map_or(order, |part| (part, order.1)), view));
}

impl<'f> Output<'f> {
    fn made(made: Made) -> Self {
        let shape = vec![made.values.len()];
        Self {
            name: made.name.into_owned(),
            shape,
            kind: TensorType::F32,
            grid: None,
            values: Values::Made(made.values),
        }
    }

    /// Makes a tensor from values in memory.
    pub fn of_values(name: String, shape: &[usize], values: Vec<f32>) -> Self {
        Self { name, shape: shape.to_vec(), kind: TensorType::F32, grid: None, values: Values::Made(values) }
    }

    /// Makes a tensor from the rows of `views`: all rows of the first view come first.
    pub fn of_views(name: String, shape: Vec<usize>, views: Vec<View<'f>>) -> Self {
        Self { name, shape, kind: TensorType::F32, grid: None, values: Values::Views(views) }
    }

    /// Makes a tensor from rows of this matrix.
    pub fn rows(&self, name: &str, rows: &[usize]) -> Result<Self> {
        let Values::Views(views) = &self.values else { bail!("{} is not a stored matrix", self.name) };
        let [view] = &views[..] else { bail!("{} has several parts", self.name) };
        let views = rows.iter().map(|row| view.clone().slice(0, *row, 1)).collect::<Result<Vec<_>>>()?;
        let mut shape = self.shape.clone();
        shape[0] = rows.len();
        Ok(Self::of_views(name.to_owned(), shape, views))
    }

    fn of_parts(name: String, mut parts: Parts<'f>) -> Result<Self> {
        parts.parts.sort_by_key(|(order, _)| *order);
        let (_, first) = parts.parts.first().context("a tensor without parts")?;
        let mut shape = first.dims().to_vec();
        let inner = shape.get(1..).unwrap_or_default().to_vec();
        let count = parts.parts.len();
        if parts.stacked {
            for (i, ((part, _), view)) in parts.parts.iter().enumerate() {
                ensure!(*part == i, "expert {i} of {name} is missing in this checkpoint: fetch it again");
                ensure!(view.dims() == shape, "the experts of {name} have different shapes: not supported");
            }
            // If each expert has a single factor, the factors of all experts become a vector, because the single
            // factors are stored without dimensions.
            if shape == [1] && first.leaf().shape.iter().product::<usize>() == 1 && name.ends_with("scale") {
                shape.clear();
            }
            shape.insert(0, count);
        } else if count > 1 {
            let same = parts.parts.iter().all(|(_, view)| view.dims().get(1..).unwrap_or_default() == inner);
            ensure!(same, "the matrices that form {name} have different widths: not supported");
            shape[0] = parts.parts.iter().filter_map(|(_, view)| view.dims().first()).sum();
        }
        if shape.is_empty() {
            shape.push(1);
        }
        let views = parts.parts.into_iter().map(|(_, view)| view).collect();
        Ok(Self { name, shape, kind: TensorType::F32, grid: None, values: Values::Views(views) })
    }

    /// Sizes in GGUF's order: the contiguous dimension first.
    pub fn dims(&self) -> Vec<u64> {
        self.shape.iter().rev().map(|size| *size as u64).collect()
    }

    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns the type that holds the stored values without loss: BF16 for 8-bit floats and for ternary weights, F32
    /// for values in memory and for parts of different types.
    pub fn stored(&self) -> TensorType {
        let Values::Views(views) = &self.values else { return TensorType::F32 };
        let of = |view: &View<'_>| match &view.leaf().coding {
            _ if view.leaf().of_columns.is_some() => TensorType::F32,
            Coding::F16 => TensorType::F16,
            Coding::BF16 | Coding::F8E4M3 | Coding::F8E5M2 | Coding::Ternary { .. } => TensorType::BF16,
            Coding::Four(FourBits::Nv) => TensorType::NVFP4,
            Coding::Four(FourBits::Mx) => TensorType::MXFP4,
            Coding::Blocks(kind) => *kind,
            _ => TensorType::F32,
        };
        let first = views.first().map_or(TensorType::F32, of);
        if views.iter().all(|view| of(view) == first) { first } else { TensorType::F32 }
    }

    /// Returns true if another program has quantized the weights to integers.
    pub fn is_integer(&self) -> bool {
        let Values::Views(views) = &self.values else { return false };
        views.iter().any(|view| matches!(view.leaf().coding, Coding::Packed | Coding::I8))
    }

    /// Finds the type of GGUF that holds integers without loss.
    pub fn find_grid(&mut self) {
        let Values::Views(views) = &self.values else { return };
        let larger = |a: TensorType, b: TensorType| match (grid::holds(a, b), grid::holds(b, a)) {
            (true, _) => Some(a),
            (_, true) => Some(b),
            _ => None,
        };
        let mut kinds = views.iter().map(View::grid);
        let first = kinds.next().flatten();
        self.grid = first.and_then(|first| kinds.try_fold(first, |kind, other| larger(kind, other?)));
    }

    /// Returns true if the tensor's integers, which another program has quantized, can be copied into blocks without
    /// loss.
    fn keeps_grid(&self) -> bool {
        self.grid.is_some_and(|grid| grid::holds(self.kind, grid))
    }

    /// Returns true if the tensor is always F32, as in llama.cpp's converter.
    pub fn stays_f32(&self) -> bool {
        const KEPT: &[&str] = &[
            "ffn_gate_inp.weight",
            "ffn_gate_inp_shexp.weight",
            "position_embd.weight",
            "token_types.weight",
            "ssm_conv1d.weight",
            "shortconv.conv.weight",
            "time_mix_first.weight",
            "time_mix_w1.weight",
            "time_mix_w2.weight",
            "time_mix_decay_w1.weight",
            "time_mix_decay_w2.weight",
            "time_mix_lerp_fused.weight",
            "altup_correct_coef.weight",
            "altup_predict_coef.weight",
        ];
        let base = match self.name.split_once("blk.") {
            Some((_, rest)) => rest.split_once('.').map_or(rest, |(_, base)| base),
            None => self.name.trim_start_matches("enc.").trim_start_matches("dec."),
        };
        self.shape.len() <= 1 || base.ends_with("_norm.weight") || KEPT.contains(&base) || !base.ends_with(".weight")
    }

    /// Replaces the chosen type by F32 or BF16 if the weights are too small for the chosen type. Returns a message in
    /// this case.
    pub fn keep_small(&mut self) -> Option<String> {
        let columns = self.shape.last().copied().filter(|columns| *columns > 0)?;
        let kept = if self.stored() == TensorType::BF16 { TensorType::BF16 } else { TensorType::F32 };
        let is_copied = self.kind == self.stored() || self.keeps_grid();
        let is_small = !is_copied
            && underflows(self.kind, [self.len() / columns, columns], |row, to| {
                self.read(row * columns, to);
                None
            });
        let kind = self.kind;
        is_small.then(|| {
            self.kind = kept;
            format!("the weights of {} are too small for {kind:?}: it becomes {kept:?}", self.name)
        })
    }

    /// Writes the tensor. Calls `go_on` after each write with the number of bytes.
    pub fn write(
        &self,
        threads: usize,
        out: &mut impl Write,
        mut go_on: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let columns = self.shape.last().copied().unwrap_or(1);
        let rows = self.len() / columns.max(1);
        let row_bytes = self.kind.row_bytes(columns).context("rows that are not whole blocks")?;
        if let Some(parts) = self.copied() {
            // A separate thread checks the values: it reads ahead, so that the copy does not wait for pages.
            let are_finite = thread::scope(|scope| -> Result<bool> {
                let check = scope.spawn(|| parts.iter().all(|part| are_finite(self.kind, part)));
                for bytes in parts.iter().flat_map(|part| part.chunks(PIECE)) {
                    out.write_all(bytes)?;
                    go_on(bytes.len())?;
                }
                check.join().map_err(|_| anyhow!("a thread stopped"))
            })?;
            let mut row = vec![0; row_bytes];
            let mut first_wrong = || (0..rows).try_for_each(|i| self.encode(i, columns, row_bytes, &mut row));
            return if are_finite { Ok(()) } else { first_wrong() };
        }
        let piece = (PIECE / columns.max(1)).max(1);
        let mut bytes = Vec::new();
        for first in (0..rows).step_by(piece * threads) {
            let many = (rows - first).min(piece * threads);
            bytes.resize(many * row_bytes, 0);
            let share = many.div_ceil(threads);
            thread::scope(|scope| {
                let parts: Vec<_> = (first..)
                    .step_by(share)
                    .zip(bytes.chunks_mut(share * row_bytes))
                    .map(|(first, out)| scope.spawn(move || self.encode(first, columns, row_bytes, out)))
                    .collect();
                parts.into_iter().try_for_each(|part| part.join().map_err(|_| anyhow!("a thread stopped"))?)
            })?;
            out.write_all(&bytes)?;
            go_on(bytes.len())?;
        }
        Ok(())
    }

    /// Encodes whole rows.
    fn encode(&self, first: usize, columns: usize, row_bytes: usize, out: &mut [u8]) -> Result<()> {
        let four = matches!(self.stored(), TensorType::NVFP4 | TensorType::MXFP4);
        if four && self.kind == self.stored() {
            return self.pack(first, columns, row_bytes, out);
        }
        if let (true, Values::Views(views)) = (self.keeps_grid(), &self.values) {
            let rows = (first..).zip(out.chunks_exact_mut(row_bytes));
            let (values, bytes) = self.kind.block();
            rows.for_each(|(i, out)| {
                each_view(views, i * columns, columns, |view, start, at, len| {
                    view.write_grid(self.kind, start, &mut out[at / values * bytes..(at + len) / values * bytes]);
                });
            });
            return Ok(());
        }
        let mut row = vec![0.0; columns];
        for (i, out) in (first..).zip(out.chunks_exact_mut(row_bytes)) {
            if let Some(bytes) = self.floats(i * columns, columns).filter(|bytes| are_finite(self.kind, bytes)) {
                out.copy_from_slice(bytes);
                continue;
            }
            self.read(i * columns, &mut row);
            if self.kind != TensorType::F32 {
                let most = if self.kind == TensorType::BF16 { f32::MAX } else { half::f16::MAX.to_f32() };
                if let Some(wrong) = row.iter().find(|x| !x.is_finite() || x.abs() > most) {
                    bail!(
                        "{} has the weight {wrong} in row {i}, which {:?} cannot hold: give --type f32",
                        self.name,
                        self.kind
                    );
                }
            }
            ensure!(encode_values(self.kind, &row, out), "writing the type {:?} is not supported", self.kind);
        }
        Ok(())
    }

    /// The stored bytes of the whole tensor, one slice for each view; `None` unless all bytes are copied without a
    /// change.
    fn copied(&self) -> Option<Vec<&'f [u8]>> {
        let Values::Views(views) = &self.values else { return None };
        let copied = |view: &View<'f>| view.floats(self.kind, 0, view.len()).or_else(|| view.blocks(self.kind));
        views.iter().map(copied).collect()
    }

    /// The bytes of the stored tensors that it is made of.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let views = if let Values::Views(views) = &self.values { &views[..] } else { &[] };
        views.iter().map(|view| view.leaf().bytes)
    }

    /// The stored bytes of a row that is written as it is.
    fn floats(&self, start: usize, columns: usize) -> Option<&'f [u8]> {
        let Values::Views(views) = &self.values else { return None };
        let mut bytes = None;
        each_view(views, start, columns, |view, start, _, len| {
            bytes = (len == columns).then(|| view.floats(self.kind, start, len)).flatten();
        });
        bytes
    }

    fn read(&self, start: usize, out: &mut [f32]) {
        match &self.values {
            Values::Made(values) => out.copy_from_slice(&values[start..start + out.len()]),
            Values::Views(views) => {
                each_view(views, start, out.len(), |view, start, at, len| view.read(start, &mut out[at..at + len]));
            }
        }
    }

    /// Packs rows of 4-bit weights into GGUF's blocks.
    fn pack(&self, first: usize, columns: usize, row_bytes: usize, out: &mut [u8]) -> Result<()> {
        let Values::Views(views) = &self.values else { return Ok(()) };
        let (mut codes, mut scales) = (vec![0; columns], vec![0; columns]);
        for (i, out) in (first..).zip(out.chunks_exact_mut(row_bytes)) {
            each_view(views, i * columns, columns, |view, start, at, len| {
                view.read_codes(start, &mut codes[at..at + len], &mut scales[at..at + len]);
            });
            let (size, group, bytes) = if self.kind == TensorType::NVFP4 { (64, 16, 36) } else { (32, 32, 17) };
            let heads = size / group;
            for ((codes, scales), out) in
                codes.chunks_exact(size).zip(scales.chunks_exact(size)).zip(out.chunks_exact_mut(bytes))
            {
                let (head, body) = out.split_at_mut(heads);
                for (head, scales) in head.iter_mut().zip(scales.chunks_exact(group)) {
                    ensure!(scales.iter().all(|scale| *scale == scales[0]), "{} has groups across heads", self.name);
                    // Factors of NVFP4 have no sign.
                    *head = if heads > 1 { scales[0] & 0x7f } else { scales[0] };
                }
                for (codes, body) in codes.chunks_exact(group).zip(body.chunks_exact_mut(group / 2)) {
                    let (low, high) = codes.split_at(group / 2);
                    body.iter_mut().zip(low.iter().zip(high)).for_each(|(byte, (low, high))| *byte = low | high << 4);
                }
            }
        }
        Ok(())
    }
}

/// Returns true if all floats are finite. Only F16 and BF16 are checked, because a matrix of type F32 may contain
/// infinite values.
fn are_finite(kind: TensorType, bytes: &[u8]) -> bool {
    let exponent = match kind {
        TensorType::F16 => 0x7c00,
        TensorType::BF16 => 0x7f80,
        _ => return true,
    };
    // The fold reads all values even after it has found one. A search that ends at the first one would not be
    // vectorized by the compiler.
    let halves = bytes.as_chunks::<2>().0.iter().map(|half| u16::from_le_bytes(*half));
    !halves.fold(false, |found, half| found | (half & exponent == exponent))
}

/// Calls `f` for each view that overlaps the `len` values from `start` on, with the position in the view, the position
/// in the result, and the length.
fn each_view<'f>(views: &[View<'f>], start: usize, len: usize, mut f: impl FnMut(&View<'f>, usize, usize, usize)) {
    let (mut begin, mut at) = (0, 0);
    for view in views {
        let end = begin + view.len();
        if at < len && start + at < end {
            let count = (end - start - at).min(len - at);
            f(view, start + at - begin, at, count);
            at += count;
        }
        begin = end;
    }
}
