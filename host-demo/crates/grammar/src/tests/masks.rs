//! Masks agree with the check of each single token.

use arenite::Gguf;
use arenite::grammar::{Constraint, Grammar};
use arenite::tokenizer::Tokenizer;
use serde_json::json;

use super::random::random_schema;
use super::texts::Random;
use crate::{Budget, MaskMemory, from_gbnf, from_json_schema};

const MODEL: &[u8] = include_bytes!("../../../../models/stories.gguf");

#[test]
fn masks_are_what_each_token_is_told() {
    let gguf = Gguf::parse(MODEL).unwrap();
    let mut index = vec![0; Tokenizer::index_bytes(&gguf).unwrap()];
    let tokenizer = Tokenizer::new(&gguf, &mut index).unwrap();
    let mut memory = MaskMemory::new(&tokenizer);
    let mut masks = memory.masks(&tokenizer).unwrap();
    let vocab = tokenizer.vocab_len() as u32;
    let mut random = Random(5);
    let mut tables: Vec<_> = (0..24)
        .filter_map(|_| {
            let mut schema = random_schema(&mut random, 3);
            schema["$defs"] = json!({"again": random_schema(&mut random, 1)});
            from_json_schema(&schema, &Budget::of_command()).ok()
        })
        .collect();
    let gbnf = [
        "root ::= [a-z ]+ (\".\" root)?",
        "root ::= \"a\" root \"a\" | \"the\" root \"b\" | [ a-z]*",
        "root ::= item root | \"\"\nitem ::= [a-z] | \" \"",
        "root ::= \"[\" root \"]\" | \"x\" root | \"y\"",
        "root ::= <[5]> [a-z ]* (!<[7]>)",
    ];
    tables.extend(gbnf.map(|text| from_gbnf(text, &|_| None, &Budget::of_command()).unwrap()));
    tables.push(from_json_schema(&json!({"type": "object"}), &Budget::of_command()).unwrap());
    tables.push(
        from_json_schema(&json!({"type": "string", "minLength": 80, "maxLength": 300}), &Budget::of_command()).unwrap(),
    );
    let (mut places, mut allowed) = (0, 0);
    for (number, table) in (0..).zip(&tables) {
        let mut constraint = Constraint::new(Grammar::new(table).unwrap());
        for _ in 0..40 {
            let expected: Vec<u32> = (0..vocab).filter(|token| constraint.allows(&tokenizer, *token)).collect();
            let mut mask = masks.at(&constraint, &tokenizer, number);
            // Before the whole mask has been computed, each token is checked when it is asked for.
            (0..vocab).for_each(|token| _ = mask.allows(token));
            let found: Vec<u32> = (0..vocab).filter(|token| mask.allows(*token)).collect();
            assert_eq!(found, expected, "grammar {number}");
            places += 1;
            allowed += found.len();
            let next = found.get(random.below(found.len().max(1)));
            if next.is_none_or(|next| tokenizer.is_end(*next)) {
                break;
            }
            constraint.accept(&tokenizer, *next.unwrap()).unwrap();
        }
    }
    assert!(places > 300 && allowed > 10_000, "{places} places, {allowed} tokens");
}
