//! Any parameters, biases and logits: a token of the vocabulary comes out, the same whatever the scratch memory held, and
//! one that is allowed. Any grammar: refused, or masks agree with what is asked token by token, and answers that went on
//! can be brought to an end.
#![no_main]

use arbitrary::Arbitrary;
use arenite::grammar::{Constraint, Grammar, Masks};
use arenite::sampler::{Link, Params, Pcg32, Sampler};
use arenite::speculation::lookup;
use arenite::tokenizer::Tokenizer;
use arenite::{Error, Gguf, Line};
use fuzz::change::Real;
use fuzz::list::List;
use fuzz::tiny::tiny_llama;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Case {
    Sample(Sample),
    Grammar(Nodes),
    Lookup(List<u8, 60>, u8),
}

#[derive(Arbitrary, Debug)]
struct Sample {
    reals: [Real; 7],
    top_k: u32,
    few: bool,
    repeat_last_n: u8,
    order: [u8; 5],
    bias: List<(u8, Real), 6>,
    logits: List<Real, 80>,
    history: List<u8, 20>,
    allowed: u64,
    seed: u64,
}

impl Sample {
    fn params(&self) -> Params {
        let [temperature, top_p, min_p, typical_p, repeat, frequency, presence] = self.reals.map(Real::get);
        let link = |number: u8| match number % 6 {
            0 => Some(Link::TopK),
            1 => Some(Link::Typical),
            2 => Some(Link::TopP),
            3 => Some(Link::MinP),
            4 => Some(Link::Temperature),
            _ => None,
        };
        Params {
            temperature,
            top_k: if self.few { self.top_k % 64 } else { self.top_k },
            top_p,
            min_p,
            typical_p,
            order: self.order.map(link),
            repeat_penalty: repeat,
            frequency_penalty: frequency,
            presence_penalty: presence,
            repeat_last_n: self.repeat_last_n.into(),
        }
    }

    fn run(&self) {
        let (params, logits) = (self.params(), self.logits.iter().map(|logit| logit.get()).collect::<Vec<_>>());
        let bias: Vec<_> = self.bias.iter().map(|(token, bias)| (u32::from(*token), bias.get())).collect();
        let allows = |token: u32| self.allowed >> (token % 64) & 1 == 1;
        let draw = |fill: u8| -> Result<_, Error> {
            let mut scratch = vec![fill; Sampler::scratch_bytes(&params, logits.len())];
            let mut sampler = Sampler::new(params, &bias, logits.len(), &mut scratch)?;
            self.history.iter().for_each(|token| sampler.accept((*token).into()));
            let mut rng = Pcg32::new(self.seed);
            let mut all = vec![];
            for _ in 0..3 {
                all.push(sampler.sample(&mut logits.clone(), &mut rng)?);
                if let Ok(token) = sampler.sample_where(&mut logits.clone(), &mut rng, allows) {
                    assert!(allows(token), "a token that is not allowed");
                    all.push(token);
                }
            }
            Ok(all)
        };
        let want = draw(0);
        if let Ok(tokens) = &want {
            assert!(tokens.iter().all(|token| (*token as usize) < logits.len()));
        }
        assert_eq!(draw(0xff), want);
    }
}

/// A table of nodes, mostly right: see `src/grammar/table.rs`.
#[derive(Arbitrary, Debug)]
struct Nodes {
    nodes: List<Node, 12>,
    root: u8,
    tokens: bool,
    text: List<u8, 12>,
    damage: Option<(u8, u32)>,
}

#[derive(Arbitrary, Debug)]
struct Node {
    is_final: bool,
    need: u8,
    ranges: List<(u8, Option<u8>), 6>,
    jumps: List<(u8, u16, u8), 3>,
}

impl Nodes {
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
        // What `new` refuses is harmless without it.
        let Ok(grammar) = Grammar::new(&table).or_else(|_| Grammar::checked_before(&table)) else { return };
        let file = tiny_llama().build();
        let gguf = Gguf::parse(&file).expect("a correct file");
        let mut index = vec![0; Tokenizer::index_bytes(&gguf).expect("a correct vocabulary")];
        let tokenizer = Tokenizer::new(&gguf, &mut index).expect("a correct vocabulary");
        let mut memory = vec![Line::ZERO; Masks::bytes(&tokenizer, 2).div_ceil(64)];
        Line::bytes_mut(&mut memory).fill(0x3c);
        let mut masks = Masks::new(&tokenizer, 2, Line::bytes_mut(&mut memory)).expect("as many bytes as it says");
        let mut constraint = Constraint::new(grammar);
        for byte in self.text.iter() {
            let yes: Vec<_> =
                (0..tokenizer.vocab_len() as u32).filter(|token| constraint.allows(&tokenizer, *token)).collect();
            let mut mask = masks.at(&constraint, &tokenizer, 0);
            // As often as a mask is made of it.
            for _ in 0..2 {
                let by_mask = (0..tokenizer.vocab_len() as u32).filter(|token| mask.allows(*token));
                assert!(by_mask.eq(yes.iter().copied()), "a mask differs");
            }
            let Some(token) = yes.get(usize::from(*byte) % yes.len().max(1)) else { break };
            constraint.accept(&tokenizer, *token).expect("it is allowed");
            let _ = (constraint.is_complete(), constraint.is_over());
            let refused = (0..tokenizer.vocab_len() as u32).find(|token| !constraint.allows(&tokenizer, *token));
            if let Some(token) = refused {
                let here = format!("{:?}", constraint.state());
                assert_eq!(constraint.accept(&tokenizer, token), Err(Error::TokenNotAllowed { token }));
                assert_eq!(format!("{:?}", constraint.state()), here, "a token that was refused shows");
            }
        }
    }
}

fuzz_target!(|case: Case| match case {
    Case::Sample(sample) => sample.run(),
    Case::Grammar(nodes) => nodes.run(),
    Case::Lookup(text, most) => {
        let text: Vec<_> = text.iter().map(|token| u32::from(*token % 8)).collect();
        assert!(lookup(&text, most.into()).len() <= usize::from(most));
    }
});
