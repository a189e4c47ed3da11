//! Qwen 3's rerankers: decoders whose score compares the logits of "yes" and "no".
//!
//! Rerankers have the same class as language models. As in llama.cpp's converter, a reranker is recognized by the name
//! of its directory, by the name in its config, or by a heading of its model card.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::config::Config;
use super::keys::Keys;
use super::output::Output;
use crate::tokenizer_file::files;
use arenite_gguf_writer::Meta;

/// The prompt that the publisher of these rerankers gives, as a template with places for a query and a document.
const TEMPLATE: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct \
provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, \
retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n\
<think>\n\n</think>\n\n";

/// Returns true if the model in `directory` is a reranker.
pub fn is(config: &Config, directory: &Path) -> bool {
    let classes = ["Qwen3ForCausalLM", "Qwen3VLForConditionalGeneration"];
    if !config.classes().iter().any(|class| classes.contains(class)) {
        return false;
    }
    let own = directory.canonicalize().ok();
    let own = own.as_deref().unwrap_or(directory).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let card = fs::read_to_string(directory.join("README.md")).unwrap_or_default().to_lowercase();
    let named = [own, config.text("_name_or_path").unwrap_or_default()].map(str::to_lowercase);
    ["qwen3-reranker", "qwen3-vl-reranker"]
        .iter()
        .any(|name| named.iter().any(|own| own.contains(name)) || card.contains(&format!("# {name}")))
}

/// Replaces the head by two of its rows, for the tokens "yes" and "no". The ids of these tokens are read from the file
/// or folder `tokenizer`.
pub fn head(config: &Config, tokenizer: &Path, outputs: &mut Vec<Output<'_>>) -> Result<()> {
    let json = files::tokenizer(tokenizer)?.unwrap_or_default();
    let id = |token: &str| {
        let id = json["model"]["vocab"][token].as_u64();
        id.map(|id| id as usize)
            .with_context(|| format!("{} has no token {token:?}, which a reranker needs", tokenizer.display()))
    };
    let rows = [id("yes")?, id("no")?];
    let place = |name: &str| outputs.iter().position(|output| output.name == name);
    let own = place("output.weight");
    let tied = place("token_embd.weight").filter(|_| config.flag("tie_word_embeddings") != Some(false));
    let at = own.or(tied).context("the checkpoint has no head")?;
    let head = outputs[at].rows("cls.output.weight", &rows)?;
    if let Some(own) = own {
        outputs.remove(own);
    }
    outputs.push(head);
    Ok(())
}

/// Writes the labels and the prompt.
pub fn keys(keys: &mut Keys<'_>) {
    keys.set("pooling_type", 4u32);
    keys.set("classifier.output_labels", Meta::strings(["yes", "no"]));
    keys.header.set("tokenizer.chat_templates", Meta::strings(["rerank"]));
    keys.header.set("tokenizer.chat_template.rerank", TEMPLATE);
}
