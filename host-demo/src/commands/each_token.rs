//! Results for each token of a text: the vectors of ColBERT models, and the entities that token classifiers find.

use anyhow::{Context, Result};
use arenite::model::Spec;
use arenite::tokenizer::Encode;
use arenite::{Session, TokenId};
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::Memory;
use arenite_run::{Class, Labels};
use serde::Serialize;

/// Returns true if the file says that texts are not pooled.
pub fn is_unpooled(open: &OpenModel) -> bool {
    let gguf = open.gguf();
    gguf.architecture().and_then(|name| gguf.u32(name, "pooling_type")).is_ok_and(|kind| kind == Some(0))
}

/// Computes the state of each token. If the model has linear layers after its pooling, they are applied to each state.
pub fn vectors(spec: &Spec<'_>, session: &mut Session<'_, '_>, ids: &[TokenId]) -> Result<Vec<Vec<f32>>> {
    let (dim, needed) = (spec.dim, spec.embedding_buffer());
    let (engine, context) = session.parts();
    engine.encode(context, ids)?;
    let states = engine.states().to_vec();
    let mut buffer = vec![0.0; needed];
    let head = |state: &[f32]| {
        buffer[..dim].copy_from_slice(state);
        Ok(engine.headed(&mut buffer)?.to_vec())
    };
    states.chunks(dim).map(head).collect()
}

/// Words of one kind that follow each other.
#[derive(Debug, PartialEq, Serialize)]
pub struct Entity {
    pub entity_group: String,
    /// Mean probability of the tokens' labels.
    pub score: f64,
    pub word: String,
}

/// A token with its most probable label.
struct Tagged {
    id: TokenId,
    label: Class,
}

/// Finds the entities of a text: neighbouring tokens whose labels have the same name after `B-` or `I-`, as in
/// transformers' aggregation `simple`.
pub fn entities(open: &OpenModel, text: &[u8]) -> Result<Vec<Entity>> {
    let tokenizer = open.vocabulary()?;
    let labels = Labels::new(open.gguf(), open.model())?;
    let encode = |add_special| arenite_text::encode(tokenizer, text, Encode { add_special, parse_special: false });
    let (ids, inner) = (encode(true)?, encode(false)?);
    let start = ids.windows(inner.len().max(1)).position(|part| part == inner).unwrap_or(0);
    let plan = open.plan(open.plan_options(open.context(ids.len())))?;
    let mut memory = Memory::new(&plan)?;
    let mut session = open.session(&mut memory, plan)?;
    let mut tagged = Vec::new();
    let outputs = vectors(open.model().spec(), &mut session, &ids)?;
    // The special tokens around the text are left out, because they have no labels.
    for (id, outputs) in inner.iter().zip(outputs.iter().skip(start)) {
        let label = labels.clone().classes(outputs).into_iter().next().context("the model has no labels")?;
        tagged.push(Tagged { id: *id, label });
    }
    let word = |ids: &[TokenId]| {
        let (mut decoder, mut word) = (tokenizer.decoder(), String::new());
        ids.iter().try_for_each(|id| arenite_text::push(&mut decoder, *id, tokenizer, &mut word))?;
        Ok(word.trim().to_owned())
    };
    grouped(tagged, word)
}

/// Splits a label. Returns true if the label begins an entity, and the entity's name.
fn parts(label: &str) -> (bool, &str) {
    match label.split_once('-') {
        Some(("B", name)) => (true, name),
        Some(("I", name)) => (false, name),
        _ => (false, label),
    }
}

fn grouped(tagged: Vec<Tagged>, word: impl Fn(&[TokenId]) -> Result<String>) -> Result<Vec<Entity>> {
    let mut groups: Vec<(String, Vec<Tagged>)> = Vec::new();
    for token in tagged {
        let (begins, name) = parts(&token.label.label);
        match groups.last_mut() {
            Some((last, group)) if !begins && last == name => group.push(token),
            _ => groups.push((name.to_owned(), vec![token])),
        }
    }
    groups.retain(|(name, _)| name != "O");
    let entity = |(_, group): (String, Vec<Tagged>)| {
        // A label's prefix is not shown: `B-`, `I-`, or any other, such as `S-` in `S-PER`.
        let label = group.first().map_or("", |token| &token.label.label);
        let entity_group = label.split_once('-').map_or(label, |(_, name)| name).to_owned();
        let ids: Vec<TokenId> = group.iter().map(|token| token.id).collect();
        let score = group.iter().map(|token| token.label.score).sum::<f64>() / group.len() as f64;
        Ok(Entity { entity_group, score, word: word(&ids)? })
    };
    groups.into_iter().map(entity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected groups come from transformers 5.24 with `aggregation_strategy="simple"`.
    #[test]
    fn marks_of_labels_are_not_shown() {
        let labels = ["B-PER", "I-PER", "O", "S-PER", "S-PER", "E-PER", "I-GEO-POL", "LOC", "B-LOC"];
        let tagged = |(id, label): (u32, &&str)| {
            let label = Class { label: (*label).to_owned(), score: 0.5 };
            Tagged { id, label }
        };
        let word = |ids: &[TokenId]| Ok(ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
        let found = grouped((0..).zip(&labels).map(tagged).collect(), word).unwrap();
        let found: Vec<_> = found.iter().map(|entity| (entity.entity_group.as_str(), entity.word.as_str())).collect();
        let want = [("PER", "0 1"), ("PER", "3 4"), ("PER", "5"), ("GEO-POL", "6"), ("LOC", "7"), ("LOC", "8")];
        assert_eq!(found, want);
    }
}
