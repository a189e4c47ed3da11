//! Tests with tables that no compiler produces. All allowed input must be accepted, and the work, counted in visited
//! nodes, must stay below a bound.

extern crate std;

use std::cell::Cell;
use std::vec::Vec;
use std::{format, vec};

use super::Grammar;
use super::masks::alike;
use super::state::State;

std::thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a visited node.
pub(super) fn step() {
    STEPS.set(STEPS.get() + 1);
}

/// A node of a grammar's table, as the tests describe it: whether a rule may end at the node, how many frames the node
/// needs, and its byte ranges and jumps.
#[derive(Default)]
struct Node {
    is_final: bool,
    need: u32,
    /// Last byte of a range, and the target's number.
    ranges: Vec<(u32, Option<usize>)>,
    /// Jumps: the kind, the called rule or the required token, and the number of the node that follows.
    jumps: Vec<(u32, usize, usize)>,
}

/// A table that starts at the first node.
fn table(nodes: &[Node]) -> Vec<u8> {
    let mut places = vec![4];
    for node in nodes {
        places.push(places[places.len() - 1] + 1 + node.ranges.len() + 2 * node.jumps.len());
    }
    let mut words = vec![u32::from_le_bytes(*b"arg\x01"), places[nodes.len()] as u32, 4, 1];
    for node in nodes {
        let counts = (node.ranges.len() << 12 | node.jumps.len()) as u32;
        words.push(1 << 31 | u32::from(node.is_final) << 30 | node.need << 21 | counts);
        words.extend(node.ranges.iter().map(|(byte, to)| byte << 23 | to.map_or(0, |to| places[to]) as u32));
        for (kind, value, next) in &node.jumps {
            let value = if *kind == 0 { places[*value] } else { *value };
            words.extend([kind << 29 | value as u32, places[*next] as u32]);
        }
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn end() -> Node {
    Node { is_final: true, ..Node::default() }
}

/// A node with a transition on any byte up to `last`.
fn byte(last: u32, to: usize) -> Node {
    Node { ranges: vec![(last, Some(to))], ..Node::default() }
}

#[test]
fn nodes_without_transitions_are_refused() {
    let table = table(&[byte(255, 1), byte(255, 2), Node::default()]);
    let grammar = Grammar::new(&table).unwrap();
    let mut state = State::new(&grammar);
    for text in ["a", "ab", "abc"] {
        let allowed = state.allows(&grammar, text.bytes());
        assert_eq!(allowed, text == "a");
        assert_eq!(state.clone().accept(&grammar, text.bytes()), allowed);
    }
    assert!(state.accept(&grammar, b"a".iter().copied()));
}

#[test]
fn a_token_is_allowed_by_its_number_only_where_it_is_taken() {
    // The transition on token 7 leads into a rule that needs more frames than the stack can have. The transition on
    // token 8 leads into a rule that needs no frame.
    let jumps = vec![(1, 7, 1), (1, 8, 2)];
    let table = table(&[Node { jumps, ..byte(0, 2) }, Node { need: 255, ..byte(9, 2) }, byte(9, 3), end()]);
    let grammar = Grammar::new(&table).unwrap();
    let state = State::new(&grammar);
    for (token, want) in [(6, false), (7, false), (8, true)] {
        assert_eq!(state.allows_token(&grammar, token, None::<std::iter::Empty<u8>>), want);
        assert_eq!(state.clone().accept_token(&grammar, token, None::<std::iter::Empty<u8>>), want);
        // If the token also has a text, byte 0, this byte leads to the same rule as token 8 does.
        assert!(state.allows_token(&grammar, token, Some([0].into_iter())));
        let mut state = state.clone();
        assert!(state.accept_token(&grammar, token, Some([0].into_iter())));
        assert!(state.accept_token(&grammar, token, Some([5].into_iter())) && state.is_complete());
    }
}

#[test]
fn stacks_by_bytes_and_by_id_advance_together() {
    // Token 7 has the text `A`, which is byte 65. The byte leads to one node and the token's id to another node. Both
    // nodes call node 3; after the call, one continues at node 4 and the other at node 5.
    let first = Node { ranges: vec![(65, Some(1))], jumps: vec![(1, 7, 2)], ..Node::default() };
    let after = |last| Node { jumps: vec![(0, 3, if last == 1 { 4 } else { 5 })], need: 1, ..Node::default() };
    let table = table(&[first, after(1), after(2), byte(66, 6), byte(10, 6), byte(20, 6), end()]);
    let grammar = Grammar::new(&table).unwrap();
    let mut state = State::new(&grammar);
    assert!(state.accept_token(&grammar, 7, Some([65].into_iter())));
    assert!(state.accept(&grammar, [66].into_iter()));
    // Node 4 allows bytes up to 10, node 5 bytes up to 20.
    for (byte, want) in [(5, true), (15, true), (25, false)] {
        assert_eq!(state.allows(&grammar, [byte].into_iter()), want, "{byte}");
    }
    assert_eq!(format!("{state:?}").matches("Item").count(), 2);
}

#[test]
fn endless_calls_are_dropped() {
    // Many nodes call each other, and each call occurs twice.
    let count = 60;
    let calls = (0..count).chain(0..count).map(|to| (0, to % 2, to)).cycle().take(4000);
    let calls: Vec<_> = calls.collect();
    let nodes = (0..count).map(|_| Node { jumps: calls.clone(), ..byte(255, 0) });
    let table = table(&nodes.collect::<Vec<_>>());
    let grammar = Grammar::new(&table).unwrap();
    let state = State::new(&grammar);
    STEPS.set(0);
    assert!(state.allows(&grammar, b"abcd".iter().copied()));
    assert!(STEPS.get() < 4 * 5000, "{} nodes for four bytes", STEPS.get());
}

#[test]
fn comparisons_of_nodes_are_bounded() {
    // The comparison of node 0 with node 16 reaches 256 pairs: each has one of the first sixteen nodes and one of the
    // other sixteen. From every pair, the 256 bytes lead to all of these pairs again.
    let wide = |of: usize, to: fn(usize) -> usize| Node {
        ranges: (0..256).map(|byte| (byte, Some(of + to(byte as usize)))).collect(),
        ..Node::default()
    };
    let nodes = (0..32).map(|at| if at < 16 { wide(0, |byte| byte % 16) } else { wide(16, |byte| byte / 16) });
    let table = table(&nodes.collect::<Vec<_>>());
    let grammar = Grammar::new(&table).unwrap();
    STEPS.set(0);
    assert!(!alike(&grammar, 4, 4 + 16 * 257));
    assert!(STEPS.get() < 500, "{} nodes", STEPS.get());
    assert!(alike(&grammar, 4, 4));
}
