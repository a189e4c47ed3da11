//! Changes of metadata and layers on the way to a quantized file: `--override-kv`, `--prune-layers` and `COPY`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use arenite::Gguf;
use arenite::gguf::Value;
use arenite::quant::TensorType;

use super::FILE_TYPE;
use super::mix::Mix;
use crate::gguf_writer::{Header, Meta};

/// `KEY=TYPE:VALUE`: replaces a metadata value. The types are llama.cpp's.
#[derive(Clone, Debug)]
pub struct KeyOverride {
    key: String,
    value: Meta,
}

impl std::str::FromStr for KeyOverride {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "give KEY=TYPE:VALUE with the type int, float, bool or str, such as general.name=str:Mine";
        let (key, value) = text.split_once('=').ok_or(FORM)?;
        let (kind, value) = value.split_once(':').ok_or(FORM)?;
        if key.is_empty() {
            return Err(FORM.to_owned());
        }
        let wrong = |error: &dyn std::fmt::Display| format!("{value} is not a value of type {kind}: {error}");
        let value = match kind {
            "int" => value.parse::<u32>().map(Meta::from).map_err(|error| wrong(&error))?,
            "float" => value.parse::<f32>().map(Meta::from).map_err(|error| wrong(&error))?,
            "bool" => value.parse::<bool>().map(Meta::from).map_err(|error| wrong(&error))?,
            "str" => Meta::from(value),
            _ => return Err(FORM.to_owned()),
        };
        Ok(Self { key: key.to_owned(), value })
    }
}

/// The layers that a new file leaves out.
#[derive(Clone, Debug, Default)]
pub struct Pruned(pub BTreeSet<usize>);

impl std::str::FromStr for Pruned {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split(',').map(|number| number.trim().parse());
        numbers.collect::<Result<_, _>>().map(Self).map_err(|_| "give layer numbers, such as 20,21,22".to_owned())
    }
}

impl Pruned {
    /// The number of a layer in the new file, or `None` if it is left out.
    fn number(&self, layer: usize) -> Option<usize> {
        (!self.0.contains(&layer)).then(|| layer - self.0.range(..layer).count())
    }

    /// The name of a tensor in the new file, or `None` if its layer is left out.
    pub fn name(&self, name: &str) -> Option<String> {
        let layer = || {
            let (before, rest) = name.split_once("blk.")?;
            let (number, after) = rest.split_once('.')?;
            let is_name = before.is_empty() || before.ends_with('.');
            Some((before, number.parse().ok().filter(|_| is_name)?, after))
        };
        match layer() {
            Some((before, number, after)) => Some(format!("{before}blk.{}.{after}", self.number(number)?)),
            None => Some(name.to_owned()),
        }
    }

    /// Sets the number of layers, and the lists with a value for each layer.
    fn keys(&self, gguf: &Gguf<'_>, header: &mut Header) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let architecture = gguf.architecture()?;
        let layers = gguf
            .u32(architecture, "block_count")?
            .with_context(|| format!("the file has no {architecture}.block_count"))? as usize;
        let last = self.0.last().copied().unwrap_or(0);
        ensure!(last < layers, "there is no layer {last}: the model has the layers 0 to {}", layers - 1);
        ensure!(self.0.len() < layers, "--prune-layers leaves no layer");
        let prefix = format!("{architecture}.");
        header.set(&format!("{prefix}block_count"), (layers - self.0.len()) as u32);
        for (key, value) in gguf.keys().filter(|(key, _)| key.starts_with(&prefix)) {
            let kept = || (0..layers).filter(|layer| !self.0.contains(layer));
            match value {
                Value::Array(all) if all.len() == layers => {
                    let size = all.bytes().len() / layers.max(1);
                    ensure!(
                        all.element() != arenite::gguf::ValueType::Str && size * layers == all.bytes().len(),
                        "the list {key} has a text for each layer: --prune-layers cannot shorten it"
                    );
                    let bytes: Vec<u8> =
                        kept().flat_map(|layer| &all.bytes()[layer * size..][..size]).copied().collect();
                    header.set(key, Meta::raw_array(all.element(), kept().count(), &bytes));
                }
                _ if key.ends_with(".leading_dense_block_count") => {
                    if let Some(dense) = gguf.u32(architecture, "leading_dense_block_count")? {
                        header.set(key, dense - self.0.range(..dense as usize).count() as u32);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Changes of the metadata.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    pub keys: Vec<KeyOverride>,
    pub pruned: Pruned,
    /// True if `general.file_type` is kept, because all tensors keep their types.
    pub copy: bool,
}

impl Edits {
    /// Applies the changes to a new file's header.
    pub fn apply(&self, gguf: &Gguf<'_>, header: &mut Header) -> Result<()> {
        if self.copy {
            let known = gguf.u32("", FILE_TYPE)?;
            header.set(FILE_TYPE, known.unwrap_or_else(|| Mix::of(most_weights(gguf)).number()));
        }
        self.pruned.keys(gguf, header)?;
        for KeyOverride { key, value } in &self.keys {
            header.set(key, value.clone());
        }
        Ok(())
    }
}

/// The type of most weights.
fn most_weights(gguf: &Gguf<'_>) -> TensorType {
    let mut sizes = std::collections::BTreeMap::<TensorType, u64>::new();
    for tensor in gguf.tensors() {
        *sizes.entry(tensor.kind).or_default() += tensor.dims.iter().product::<u64>();
    }
    sizes.into_iter().max_by_key(|(_, size)| *size).map_or(TensorType::F32, |(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_move_up() {
        let pruned: Pruned = "1,3".parse().unwrap();
        for (name, want) in [
            ("blk.0.attn_q.weight", Some("blk.0.attn_q.weight")),
            ("blk.1.attn_q.weight", None),
            ("blk.2.attn_q.weight", Some("blk.1.attn_q.weight")),
            ("blk.10.ffn_up.weight", Some("blk.8.ffn_up.weight")),
            ("enc.blk.4.ffn_up.weight", Some("enc.blk.2.ffn_up.weight")),
            ("output.weight", Some("output.weight")),
        ] {
            assert_eq!(pruned.name(name).as_deref(), want, "{name}");
        }
        assert!("1,x".parse::<Pruned>().is_err());
    }

    #[test]
    fn keys_have_types() {
        for text in ["a.b=int:7", "a.b=float:0.5", "a.b=bool:true", "a.b=str:x:y=z"] {
            assert!(text.parse::<KeyOverride>().is_ok(), "{text}");
        }
        for text in ["a.b", "a.b=7", "a.b=int:-1", "a.b=bool:1", "a.b=list:1", "=int:1"] {
            assert!(text.parse::<KeyOverride>().is_err(), "{text}");
        }
    }
}
