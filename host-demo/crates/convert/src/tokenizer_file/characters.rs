//! Reads nanoGPT's character vocabulary, `meta.pkl`: a pickled dictionary whose entry `itos` maps ids to characters.

use anyhow::{Context, Result, ensure};

use super::ranks::text;
use super::{NORMAL, Vocabulary};
use crate::checkpoint::torch::pickle::{Item, Machine, Object};
use arenite_gguf_writer::Meta;

/// Returns true for a pickle of version 2 or later.
pub fn is(file: &[u8]) -> bool {
    matches!(file, [0x80, 2..=5, ..])
}

/// Reads the characters. There are no merges, so each character of a text becomes one token.
pub fn read(file: &[u8]) -> Result<Vocabulary> {
    let top = Machine::default().run(&mut &*file).context("it is not a vocabulary pickled by nanoGPT")?;
    let characters = entry(&top, "itos").context("it has no dictionary itos: give the meta.pkl of nanoGPT")?;
    let mut vocabulary = Vocabulary::default();
    for (id, character) in characters {
        let id = id.int().context("an id in itos is not a number")?;
        let character = character.text().context("a value in itos is not text")?;
        ensure!(character.chars().count() == 1, "the token {character:?} is not one character: not supported");
        vocabulary.set(id as u64, character.to_owned(), 0.0, NORMAL)?;
    }
    ensure!(vocabulary.ids().len() == characters.len(), "itos has an id or a character twice");
    if vocabulary.tokens.values().all(|token| token.text.is_ascii()) {
        // Characters of one byte become tokens of byte-level BPE. As in llama.cpp, characters without a token are
        // skipped.
        vocabulary.tokens.values_mut().for_each(|token| token.text = text(token.text.as_bytes()));
        vocabulary.key("model", "gpt2");
        vocabulary.key("pre", "gpt-2");
        vocabulary.key("merges", Meta::strings::<&str>([]));
    } else {
        // In GGUF, a space is spelled as U+2581, so a vocabulary cannot have this character as a token. Characters
        // without a token become the unknown token.
        ensure!(
            !vocabulary.tokens.values().any(|token| token.text == "▁"),
            "it has the character U+2581, which vocabularies in GGUF use for a space: not supported"
        );
        vocabulary
            .tokens
            .values_mut()
            .filter(|token| token.text == " ")
            .for_each(|token| "▁".clone_into(&mut token.text));
        vocabulary.key("model", "llama");
        vocabulary.key("pre", "default");
        vocabulary.key("add_space_prefix", false);
    }
    vocabulary.key("add_bos_token", false);
    vocabulary.key("add_eos_token", false);
    Ok(vocabulary)
}

/// Returns the dictionary stored under `name`.
fn entry<'i>(dict: &'i Item, name: &str) -> Option<&'i [(Item, Item)]> {
    let Object::Dict(entries) = &*dict.object else { return None };
    let (_, value) = entries.iter().find(|(key, _)| key.text() == Some(name))?;
    match &*value.object {
        Object::Dict(entries) => Some(entries),
        _ => None,
    }
}
