//! The supported families: names of their classes, settings and tensors.
//!
//! An entry contains only the differences from the tables of [`names`](super::names) and from [`Keys::common`].
//! Architectures have the same names as in the core's list of families.

mod deepseek;
mod encoders;
mod gemma;
pub mod gpt;
mod granite;
mod kimi;
pub mod llama;
mod llama_like;
mod mixtures;
mod qwen;
mod recurrent;
mod rwkv;
pub mod speech;
mod t5;
mod windowed;

use std::borrow::Cow;

use anyhow::{Result, bail};

use super::config::Config;
use super::keys::Keys;
use super::names::Row;
use super::tensors::Checkpoint;
pub use crate::tokenizer_file::VocabularyRules as Vocabulary;
pub use llama::rope_factors;

/// A tensor that is computed from the config.
pub struct Made {
    pub name: Cow<'static, str>,
    pub values: Vec<f32>,
}

/// A family of models.
pub struct Family {
    /// Classes of transformers in `architectures`.
    pub classes: &'static [&'static str],
    /// The value of `general.architecture`.
    pub architecture: &'static str,
    /// Another architecture for some configs.
    pub variant: fn(&Config) -> Option<&'static str>,
    /// Tables of the family's own tensor names. They are searched before the common names.
    pub names: &'static [&'static [Row]],
    /// Writes the architecture's metadata.
    pub keys: fn(&mut Keys<'_>) -> Result<()>,
    /// Tensors computed from the config.
    pub made: fn(&Config) -> Result<Vec<Made>>,
    /// Tensors that become metadata in GGUF.
    pub scalars: &'static [Scalar],
    /// True if layers that predict further tokens are kept. These layers are dropped for other architectures, because
    /// readers of those architectures do not expect them.
    pub predicts: bool,
    /// Returns true if the head is stored even if its values equal those of the embedding, because the head and the
    /// embedding have different factors.
    pub own_head: fn(&Config) -> bool,
    pub vocabulary: Vocabulary,
}

/// The name of a tensor that is stored as metadata, and the key of its values: one number per layer, or one number for
/// the whole model.
pub type Scalar = (&'static str, &'static str);

impl Family {
    /// The default entry.
    pub const PLAIN: Self = Self {
        classes: &[],
        architecture: "",
        variant: |_| None,
        names: &[],
        keys: |keys| keys.common(),
        made: |_| Ok(Vec::new()),
        scalars: &[],
        predicts: false,
        own_head: |_| false,
        vocabulary: Vocabulary::PLAIN,
    };

    /// Returns the family of a class. A model without a head, or with a classifier instead of a head, belongs to the
    /// same family as the model with a head.
    fn of_class(class: &str) -> Option<&'static Self> {
        let named = |class: &str| ALL.iter().copied().flatten().find(|family| family.classes.contains(&class));
        let stem = || class.strip_suffix("ForSequenceClassification").or(class.strip_suffix("Model"));
        named(class).or_else(|| named(&format!("{}ForCausalLM", stem()?)))
    }

    /// Returns the family of a model.
    pub fn of(config: &Config, checkpoint: &Checkpoint<'_>) -> Result<&'static Self> {
        let classes = config.classes();
        if let Some(family) = classes.iter().find_map(|class| Self::of_class(class)) {
            return Ok(family);
        }
        if classes.iter().any(|class| AROUND_TEXT.contains(class))
            && let Some(family) = config.text_type().and_then(Self::of_type)
            && ["llama", "qwen2", "qwen3"].contains(&family.architecture)
        {
            return Ok(family);
        }
        if classes.is_empty()
            && let Some(family) = config.text("model_type").and_then(Self::of_type)
        {
            return Ok(family);
        }
        if checkpoint.has("transformer.h.0.attn.c_attn.weight") {
            return Self::of_type("gpt2").ok_or_else(|| anyhow::anyhow!("GPT-2 is not in the list of families"));
        }
        match classes.first() {
            Some(class) => bail!(
                "models of the class {class} are not supported: `arenite inspect --architectures` lists the \
                 supported architectures"
            ),
            None => bail!(
                "config.json has neither a class in architectures nor a known model_type: add the \
                 model's class in transformers"
            ),
        }
    }

    /// Returns the family that has a causal or base class whose name begins like `model_type`. For example, `qwen3_moe`
    /// matches `Qwen3MoeForCausalLM`.
    fn of_type(model_type: &str) -> Option<&'static Self> {
        let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
        let wanted = plain(model_type.strip_suffix("_text").unwrap_or(model_type));
        let ends = ["forcausallm", "lmheadmodel", "model", "forconditionalgeneration"];
        ALL.iter().copied().flatten().find(|family| {
            family.classes.iter().any(|class| ends.iter().any(|end| plain(class) == format!("{wanted}{end}")))
        })
    }

    /// Returns `general.architecture` of a model.
    pub fn architecture(&self, config: &Config) -> &'static str {
        (self.variant)(config).unwrap_or(self.architecture)
    }
}

/// Returns the tables of a model's tensor names.
pub fn tables(family: &Family, config: &Config) -> Vec<&'static [Row]> {
    // Granite models without experts have only the shared feed-forward.
    let alone =
        family.classes.contains(&"GraniteMoeHybridForCausalLM") && config.experts().is_ok_and(|experts| experts == 0);
    if alone { granite::WITHOUT_EXPERTS.to_vec() } else { family.names.to_vec() }
}

/// Classes of models with pictures around an unchanged Llama, Mistral or Qwen, whose type is in the nested config.
/// Other text models are not accepted, because these classes leave out soft caps and factors on logits.
const AROUND_TEXT: &[&str] = &[
    "Idefics3ForConditionalGeneration",
    "InternVLForConditionalGeneration",
    "LlavaForConditionalGeneration",
    "LlavaNextForConditionalGeneration",
    "LlavaOnevisionForConditionalGeneration",
    "SmolVLMForConditionalGeneration",
];

const ALL: &[&[Family]] = &[
    llama::ALL,
    llama_like::ALL,
    qwen::ALL,
    gemma::ALL,
    mixtures::ALL,
    windowed::ALL,
    deepseek::ALL,
    kimi::ALL,
    granite::ALL,
    gpt::ALL,
    recurrent::ALL,
    rwkv::ALL,
    encoders::ALL,
    t5::ALL,
    speech::ALL,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_class_is_in_one_entry_and_every_architecture_has_one() {
        let mut classes = BTreeSet::new();
        for class in ALL.iter().copied().flatten().flat_map(|family| family.classes) {
            assert!(classes.insert(class), "{class}");
        }
        let known: BTreeSet<&str> = ALL.iter().copied().flatten().map(|family| family.architecture).collect();
        for architecture in arenite::model::ARCHITECTURES {
            // Architectures that no entry of the table converts: `convert seq2seq` writes seq2seq, other entries write
            // nomic-bert-moe and nemotron_h_moe for certain values in config.json, and assistants are not converted.
            let others = ["seq2seq", "nomic-bert-moe", "nemotron_h_moe", "gemma4-assistant"];
            let is_other = others.contains(architecture);
            assert!(is_other || known.contains(architecture), "{architecture} has no entry");
        }
        assert!(Family::of_type("qwen3_moe").is_some_and(|family| family.architecture == "qwen3moe"));
        assert!(Family::of_type("unheard_of").is_none());
    }
}
