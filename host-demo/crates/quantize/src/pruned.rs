//! The layers that `--prune-layers` leaves out.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use arenite::Gguf;
use arenite::gguf::Value;

use arenite_gguf_writer::{Header, Meta};

/// The layers that a new file leaves out.
#[derive(Clone, Debug, Default)]
pub struct Pruned(BTreeSet<usize>);

impl std::str::FromStr for Pruned {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split(',').map(|number| number.trim().parse());
        numbers.collect::<Result<_, _>>().map(Self).map_err(|_| "give layer numbers, such as 20,21,22".to_owned())
    }
}

impl Pruned {
    /// Returns the number of a layer in the new file, or `None` if the layer is left out.
    fn number(&self, layer: usize) -> Option<usize> {
        (!self.0.contains(&layer)).then(|| layer - self.0.range(..layer).count())
    }

    /// Returns the name of a tensor in the new file, or `None` if the layer of the tensor is left out.
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

    /// Writes the number of layers that are left, and cuts the lists that have a value for each layer.
    pub fn keys(&self, gguf: &Gguf<'_>, header: &mut Header) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let architecture = gguf.architecture()?;
        let layers = gguf
            .u32(architecture, "block_count")?
            .with_context(|| format!("the file has no {architecture}.block_count"))? as usize;
        let last = self.0.last().copied().unwrap_or(0);
        ensure!(last < layers, "there is no layer {last}: the model has the layers 0 to {}", layers.saturating_sub(1));
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
                _ if key.ends_with(".nextn_predict_layers") => {
                    if let Some(next) = gguf.u32(architecture, "nextn_predict_layers")? {
                        let first = layers.saturating_sub(next as usize);
                        header.set(key, next - (self.0.range(first..).count() as u32).min(next));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
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
}
