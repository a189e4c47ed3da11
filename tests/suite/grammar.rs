//! Masks over hand-made tables must agree with the check of each single token. Damaged tables must be refused.

use crate::common::gguf::{Builder, Meta};
use arenite::grammar::{Constraint, Grammar, Masks};
use arenite::tokenizer::Tokenizer;
use arenite::{Error, Gguf, Line, TokenId};

/// The tokens after the 256 bytes. The first one is an end token, and has a text like any other.
const TEXTS: [&str; 9] =
    [".", "a", "aa", "ab", "aac", "b", "cb", "aaaaaaaaaaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaaaaaaaaab"];
const END: TokenId = 256;
const A: TokenId = 257;
const B: TokenId = 261;

fn vocabulary() -> Vec<u8> {
    let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
    let tokens: Vec<_> = bytes.chain(TEXTS.map(String::from)).collect();
    let types = (0..tokens.len()).map(|id| if id < 256 { 6i32 } else { 1 });
    let mut file = Builder::new();
    file.set("general.architecture", "none")
        .set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.token_type", Meta::array(types))
        .set("tokenizer.ggml.scores", Meta::array(vec![0.0f32; tokens.len()]))
        .set("tokenizer.ggml.tokens", Meta::strings(tokens))
        .set("tokenizer.ggml.bos_token_id", 0u32)
        .set("tokenizer.ggml.eos_token_id", END)
        .set("tokenizer.ggml.unknown_token_id", 0u32);
    file.build()
}

/// A node: whether a rule may end there, the stack depth it needs, its byte ranges (each up to a last byte) with
/// their targets, and its jumps (kind, called rule or token, target). Nodes are referred to by number.
#[derive(Clone, Default)]
struct Node {
    is_final: bool,
    need: u32,
    ranges: Vec<(u8, Option<usize>)>,
    jumps: Vec<(u32, usize, usize)>,
}

/// The words of a table that starts at the first node, and the position of each node in it.
fn words(nodes: &[Node], has_tokens: bool) -> (Vec<u32>, Vec<u32>) {
    let mut places = vec![4u32];
    for node in nodes {
        places.push(places[places.len() - 1] + 1 + node.ranges.len() as u32 + 2 * node.jumps.len() as u32);
    }
    let mut words = vec![u32::from_le_bytes(*b"arg\x01"), places[nodes.len()], 4, has_tokens.into()];
    for node in nodes {
        let counts = (node.ranges.len() << 12 | node.jumps.len()) as u32;
        words.push(1 << 31 | u32::from(node.is_final) << 30 | node.need << 21 | counts);
        words.extend(node.ranges.iter().map(|(byte, to)| u32::from(*byte) << 23 | to.map_or(0, |to| places[to])));
        for (kind, value, next) in &node.jumps {
            let value = if *kind == 0 { places[*value] } else { *value as u32 };
            words.extend([kind << 29 | value, places[*next]]);
        }
    }
    (words, places)
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Accepts one byte.
fn by(byte: u8, to: usize) -> Vec<(u8, Option<usize>)> {
    vec![(byte - 1, None), (byte, Some(to))]
}

/// `root ::= "a"+ | nested`, `nested ::= "a" nested "b" | "c"`: a text may end after each "a", however deep the other
/// parse is nested.
fn nested() -> Vec<Node> {
    let (root, run, nested) = (0, 1, 3);
    assert_eq!((root, run), (0, 1));
    vec![
        Node { jumps: vec![(0, run, 6), (0, nested, 6)], ..Node::default() },
        Node { ranges: by(b'a', 2), ..Node::default() },
        Node { is_final: true, ranges: by(b'a', 2), ..Node::default() },
        Node { ranges: vec![(b'a' - 1, None), (b'a', Some(4)), (b'b', None), (b'c', Some(6))], ..Node::default() },
        Node { need: 1, jumps: vec![(0, nested, 5)], ..Node::default() },
        Node { ranges: by(b'b', 6), ..Node::default() },
        Node { is_final: true, ..Node::default() },
    ]
}

/// Accepts any `len` bytes.
fn counted(len: usize) -> Vec<Node> {
    let node = |at| Node { ranges: vec![(255, Some(at + 1))], ..Node::default() };
    (0..len).map(node).chain([Node { is_final: true, ..Node::default() }]).collect()
}

/// Checks that masks and constraint agree at each step along `tokens`.
fn compare(
    nodes: &[Node],
    has_tokens: bool,
    places: usize,
    tokens: impl Iterator<Item = TokenId>,
) -> Vec<Vec<TokenId>> {
    let file = vocabulary();
    let gguf = Gguf::parse(&file).unwrap();
    let mut index = vec![0; Tokenizer::index_bytes(&gguf).unwrap()];
    let tokenizer = Tokenizer::new(&gguf, &mut index).unwrap();
    assert!(tokenizer.is_end(END));
    let mut memory = vec![Line::ZERO; Masks::bytes(&tokenizer, places).div_ceil(64)];
    let mut masks = Masks::new(&tokenizer, places, Line::bytes_mut(&mut memory)).unwrap();
    let table = bytes(&words(nodes, has_tokens).0);
    let mut constraint = Constraint::new(Grammar::new(&table).unwrap());
    let all = 0..tokenizer.vocab_len() as TokenId;
    let mut seen = vec![];
    for token in tokens.map(Some).chain([None]) {
        let want: Vec<_> = all.clone().filter(|token| constraint.allows(&tokenizer, *token)).collect();
        let mut mask = masks.at(&constraint, &tokenizer, 0);
        // A mask tests its first tokens one by one. After this loop it looks up every token.
        all.clone().for_each(|token| _ = mask.allows(token));
        let found: Vec<_> = all.clone().filter(|token| mask.allows(*token)).collect();
        assert_eq!(found, want, "after {} tokens", seen.len());
        seen.push(found);
        let Some(token) = token else { break };
        constraint.accept(&tokenizer, token).unwrap();
        // A state can be saved and restored.
        constraint = Constraint::at(Grammar::checked_before(&table).unwrap(), constraint.into_state());
    }
    seen
}

#[test]
fn an_end_token_with_a_text_may_come_near_the_end_of_the_stack() {
    let seen = compare(&nested(), false, 4, (0..70).map(|_| A));
    let may = |at: usize, token: TokenId| seen[at].contains(&token);
    assert!(!may(0, END) && (1..=70).all(|at| may(at, END)));
    // The rule may call itself 64 levels deep. Beyond that, the constraint drops this parse of the text.
    let c = TokenId::from(b'c');
    assert!((0..=64).all(|at| may(at, c)) && (65..=70).all(|at| !may(at, c)));
    assert!((0..=70).all(|at| may(at, A)));
}

#[test]
fn places_that_are_alike_share_a_mask() {
    // States that differ only for a long token must not share a mask.
    for places in [1, 3] {
        let seen = compare(&counted(60), false, places, (0..60).map(|_| A));
        let long = TEXTS.iter().position(|text| text.len() == 24).map(|at| END + at as TokenId).unwrap();
        assert!((0..=60).all(|at| seen[at].contains(&long) == (at <= 36)));
        assert!(seen[59].contains(&B) && seen[60] == [END]);
    }
}

#[test]
fn what_is_kept_of_one_place_makes_room_for_another() {
    // "b" and "a" alternately, with one mask at a time.
    let nodes = [
        Node { ranges: by(b'a', 1), ..Node::default() },
        Node { is_final: true, ranges: by(b'b', 0), ..Node::default() },
    ];
    for places in [0, 1, 2] {
        let seen = compare(&nodes, false, places, [A, B].into_iter().cycle().take(9));
        assert!(seen[0].contains(&A) && !seen[0].contains(&END) && !seen[0].contains(&B));
        assert!(seen[9].contains(&B) && seen[9].contains(&END) && !seen[9].contains(&A));
    }
}

#[test]
fn tokens_by_number_have_no_masks() {
    // Token 258 or any token but 259; then the end.
    let nodes =
        [Node { jumps: vec![(1, 258, 1), (2, 259, 1)], ..Node::default() }, Node { is_final: true, ..Node::default() }];
    let seen = compare(&nodes, true, 2, [258].into_iter());
    assert!(seen[0].contains(&258) && seen[0].contains(&A) && !seen[0].contains(&259));
    assert_eq!(seen[1], [END]);
}

#[test]
fn an_answer_is_over_when_nothing_may_follow() {
    let file = vocabulary();
    let gguf = Gguf::parse(&file).unwrap();
    let mut index = vec![0; Tokenizer::index_bytes(&gguf).unwrap()];
    let tokenizer = Tokenizer::new(&gguf, &mut index).unwrap();
    let table = bytes(&words(&counted(2), false).0);
    let mut constraint = Constraint::new(Grammar::new(&table).unwrap());
    let start = constraint.state().clone();
    let refused = constraint.accept(&tokenizer, A + 3); // "aac" is too long
    assert_eq!(refused, Err(Error::TokenNotAllowed { token: A + 3 }));
    assert!(*constraint.state() == start && !constraint.is_complete() && !constraint.is_over());
    constraint.accept(&tokenizer, A + 1).unwrap();
    assert!(constraint.is_complete() && constraint.is_over() && *constraint.state() != start);
    constraint.accept(&tokenizer, END).unwrap();
    assert!(format!("{constraint:?}").contains("Grammar"));
}

#[test]
fn memory_for_masks_is_as_much_as_was_said() {
    let file = vocabulary();
    let gguf = Gguf::parse(&file).unwrap();
    let mut index = vec![0; Tokenizer::index_bytes(&gguf).unwrap()];
    let tokenizer = Tokenizer::new(&gguf, &mut index).unwrap();
    let needed = Masks::bytes(&tokenizer, 3);
    let mut memory = vec![Line::ZERO; needed.div_ceil(64) + 1];
    let memory = Line::bytes_mut(&mut memory);
    assert!(Masks::new(&tokenizer, 3, &mut memory[..needed]).is_ok());
    let error = Masks::new(&tokenizer, 3, &mut memory[..needed - 64]).unwrap_err();
    assert_eq!(error, Error::BufferTooSmall { what: "bytes of masks", needed, given: needed - 64 });
    let error = Masks::new(&tokenizer, 3, &mut memory[1..=needed]).unwrap_err();
    assert!(matches!(error, Error::Misaligned { .. }), "{error}");
}

#[test]
fn damaged_tables_are_refused_with_the_place() {
    // The last node is unreachable.
    let (good, places) = words(&[nested(), counted(0)].concat(), false);
    assert!(Grammar::new(&bytes(&good)).is_ok());
    let head = |node: usize| places[node] as usize;
    let cases: [(usize, u32, usize, &str); 11] = [
        (0, good[0] ^ 1, 0, "version"),
        (1, good[1] + 1, 1, "cut short"),
        (2, 3, 2, "first node"),
        (2, places[0] + 1, 2, "first node"),
        (head(7), 0, head(7), "an invalid node"),
        (head(7), good[head(7)] | 1 << 12, head(7), "ends inside a node"),
        // A byte beyond eight bits, a byte out of order, and a target that is not a node.
        (head(1) + 1, 0x100 << 23, head(1) + 1, "byte range"),
        (head(1) + 2, good[head(1) + 1], head(1) + 2, "byte range"),
        (head(1) + 2, good[head(1) + 2] + 1, head(1) + 2, "byte range"),
        // A call to something that is not a node, and a token in a grammar without tokens.
        (head(0) + 1, good[head(0) + 1] + 1, head(0) + 1, "jump"),
        (head(0) + 1, good[head(0) + 1] | 1 << 29, head(0) + 1, "jump"),
    ];
    for (at, word, place, part) in cases {
        let mut words = good.clone();
        words[at] = word;
        match Grammar::new(&bytes(&words)) {
            Err(Error::DamagedGrammar { at, why }) => assert!(at == place && why.contains(part), "{at}: {why}"),
            other => panic!("word {at} as {word:#x}: {other:?}"),
        }
    }
    for len in 0..4 {
        assert!(Grammar::new(&bytes(&good[..len])).is_err());
    }
    let mut words = good.clone();
    words[head(0) + 1] |= 3 << 29;
    assert!(Grammar::new(&bytes(&words)).is_err(), "a jump of no kind");
}
