//! Changes of metadata while a quantized file is written: `--override-kv` and `COPY`.

use anyhow::Result;
use arenite::Gguf;
use arenite::quant::TensorType;

use super::FILE_TYPE;
use super::mix::Mix;
use super::pruned::Pruned;
use arenite_gguf_writer::{Header, Meta};

/// `KEY=TYPE:VALUE`: replaces a metadata value. The names of types are the same as in llama.cpp.
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
    fn keys_have_types() {
        for text in ["a.b=int:7", "a.b=float:0.5", "a.b=bool:true", "a.b=str:x:y=z"] {
            assert!(text.parse::<KeyOverride>().is_ok(), "{text}");
        }
        for text in ["a.b", "a.b=7", "a.b=int:-1", "a.b=bool:1", "a.b=list:1", "=int:1"] {
            assert!(text.parse::<KeyOverride>().is_err(), "{text}");
        }
    }
}
