//! Any grammar is refused, or masks agree with the check of each token, an allowed token is accepted, and a forbidden
//! one changes nothing.
#![no_main]

use arbitrary::Arbitrary;
use arenite::grammar::{Constraint, Grammar, Masks};
use arenite::{Error, Line};
use fuzz::change::TOKENIZER;
use fuzz::list::List;
use fuzz::unwritten::unwritten;
use libfuzzer_sys::fuzz_target;

/// A table of nodes, mostly correct: see `src/grammar/table.rs`.
#[derive(Arbitrary, Debug)]
struct Case {
    nodes: List<Node, 12>,
    root: u8,
    tokens: bool,
    /// Choices among the allowed tokens. Each step checks all tokens.
    text: List<u8, 4>,
    damage: Option<(u8, u32)>,
}

#[derive(Arbitrary, Debug)]
struct Node {
    is_final: bool,
    need: u8,
    ranges: List<(u8, Option<u8>), 6>,
    jumps: List<(u8, u16, u8), 3>,
}

impl Case {
    fn table(&self) -> Vec<u8> {
        let ranges = |node: &Node| {
            let mut ends: Vec<_> = node.ranges.to_vec();
            ends.sort_by_key(|(end, _)| *end);
            ends.dedup_by_key(|(end, _)| *end);
            ends
        };
        let mut places = vec![4u32];
        for node in self.nodes.iter() {
            places.push(places[places.len() - 1] + 1 + ranges(node).len() as u32 + 2 * node.jumps.len() as u32);
        }
        let place = |number: u8| places[usize::from(number) % self.nodes.len().max(1)];
        let end = places[places.len() - 1];
        let mut words = vec![u32::from_le_bytes(*b"arg\x01"), end, place(self.root), self.tokens.into()];
        for node in self.nodes.iter() {
            let ranges = ranges(node);
            let counts = (ranges.len() as u32) << 12 | node.jumps.len() as u32;
            words.push(1 << 31 | u32::from(node.is_final) << 30 | u32::from(node.need % 16) << 21 | counts);
            words.extend(ranges.iter().map(|(end, to)| u32::from(*end) << 23 | to.map_or(0, place)));
            for (kind, value, next) in node.jumps.iter() {
                let kind = if self.tokens { kind % 3 } else { 0 };
                let value = if kind == 0 { place(*value as u8) } else { u32::from(*value) % 300 };
                words.extend([u32::from(kind) << 29 | value, place(*next)]);
            }
        }
        if let Some((at, word)) = self.damage {
            let at = usize::from(at) % words.len();
            words[at] ^= word;
        }
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    fn run(&self) {
        let table = self.table();
        // Tables that `new` refuses must be harmless without its check.
        let Ok(grammar) = Grammar::new(&table).or_else(|_| Grammar::checked_before(&table)) else { return };
        let tokenizer = &*TOKENIZER;
        let mut memory = vec![Line::ZERO; Masks::bytes(tokenizer, 2).div_ceil(64)];
        let memory = Line::bytes_mut(&mut memory);
        memory.fill(0x3c);
        let mut masks = Masks::new(tokenizer, 2, unwritten(memory)).expect("as many bytes as it says");
        let mut constraint = Constraint::new(grammar);
        let all = 0..tokenizer.vocab_len() as u32;
        for byte in self.text.iter() {
            let yes: Vec<_> = all.clone().filter(|token| constraint.allows(tokenizer, *token)).collect();
            let mut mask = masks.at(&constraint, tokenizer, 0);
            // A mask tests the first tokens one by one. These calls use up these tests, on a token without text.
            (0..512).for_each(|_| _ = mask.allows(0));
            let by_mask = all.clone().filter(|token| mask.allows(*token));
            assert!(by_mask.eq(yes.iter().copied()), "a mask differs");
            if let Some(token) = all.clone().find(|token| !yes.contains(token)) {
                let here = format!("{:?}", constraint.state());
                assert_eq!(constraint.accept(tokenizer, token), Err(Error::TokenNotAllowed { token }));
                assert_eq!(format!("{:?}", constraint.state()), here, "a token that was refused shows");
            }
            let Some(token) = yes.get(usize::from(*byte) % yes.len().max(1)) else { break };
            constraint.accept(tokenizer, *token).expect("it is allowed");
            let _ = (constraint.is_complete(), constraint.is_over());
        }
    }
}

fuzz_target!(|case: Case| case.run());
