//! Converts expressions to nondeterministic automata over bytes, tokens and calls of rules, and makes these automata
//! deterministic.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use anyhow::Result;
use regex_syntax::utf8::Utf8Sequences;

use super::budget::Budget;
use super::expr::{Chars, Expr};

/// Label of a transition on something other than a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Letter {
    Call(usize),
    Token(u32),
    NotToken(u32),
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Targets of epsilon transitions, which consume nothing.
    epsilon: Vec<u32>,
    ranges: Vec<(u8, u8, u32)>,
    letters: Vec<(Letter, u32)>,
}

/// A nondeterministic automaton.
pub struct Nfa<'r> {
    states: Vec<State>,
    /// A function that returns the expression of a rule that is inlined, and `None` for a rule that is called.
    inlined: &'r dyn Fn(usize) -> Option<&'r Expr>,
    budget: &'r Budget,
}

impl<'r> Nfa<'r> {
    /// Compiles an expression to a deterministic automaton.
    pub fn compile(expr: &'r Expr, inlined: &'r dyn Fn(usize) -> Option<&'r Expr>, budget: &'r Budget) -> Result<Dfa> {
        let mut nfa = Nfa { states: vec![State::default()], inlined, budget };
        let last = nfa.build(expr, 0)?;
        // The end is a state of its own, without transitions. The text may end wherever a set of states contains it.
        let end = nfa.state()?;
        nfa.epsilon(last, end)?;
        nfa.determinize(end)
    }

    fn state(&mut self) -> Result<u32> {
        self.budget.states(1)?;
        self.states.push(State::default());
        Ok(self.states.len() as u32 - 1)
    }

    fn epsilon(&mut self, from: u32, to: u32) -> Result<()> {
        self.budget.states(1)?;
        self.states[from as usize].epsilon.push(to);
        Ok(())
    }

    fn range(&mut self, from: u32, (first, last): (u8, u8), to: u32) -> Result<()> {
        self.budget.states(1)?;
        self.states[from as usize].ranges.push((first, last, to));
        Ok(())
    }

    fn letter(&mut self, from: u32, letter: Letter) -> Result<u32> {
        let to = self.state()?;
        self.states[from as usize].letters.push((letter, to));
        Ok(to)
    }

    /// Adds the states of an expression to the automaton, from the state `from` on. Returns the state at which the
    /// expression ends.
    fn build(&mut self, expr: &'r Expr, from: u32) -> Result<u32> {
        // Charges the budget for the expression itself, because even an expression that adds no states takes time.
        self.budget.steps(1)?;
        Ok(match expr {
            Expr::Bytes(bytes) => {
                let mut at = from;
                for byte in bytes {
                    let next = self.state()?;
                    self.range(at, (*byte, *byte), next)?;
                    at = next;
                }
                at
            }
            Expr::Chars(chars) => self.chars(chars, from)?,
            Expr::Token(token) => self.letter(from, Letter::Token(*token))?,
            Expr::NotToken(token) => self.letter(from, Letter::NotToken(*token))?,
            Expr::Seq(parts) => parts.iter().try_fold(from, |at, part| self.build(part, at))?,
            Expr::Alt(parts) => {
                let end = self.state()?;
                for part in parts {
                    let last = self.build(part, from)?;
                    self.epsilon(last, end)?;
                }
                end
            }
            Expr::Repeat(inner, min, max) => {
                let mut at = from;
                for _ in 0..*min {
                    at = self.build(inner, at)?;
                }
                let end = self.state()?;
                self.epsilon(at, end)?;
                match max {
                    None => {
                        let last = self.build(inner, end)?;
                        self.epsilon(last, end)?;
                    }
                    Some(max) => {
                        for _ in *min..*max {
                            at = self.build(inner, at)?;
                            self.epsilon(at, end)?;
                        }
                    }
                }
                end
            }
            Expr::Rule(rule) => match (self.inlined)(*rule) {
                Some(expr) => self.build(expr, from)?,
                None => self.letter(from, Letter::Call(*rule))?,
            },
            Expr::Both(a, b) => self.product(a, b, from, |a, b| a && b)?,
            Expr::Minus(a, b) => self.product(a, b, from, |a, b| a && !b)?,
            Expr::Multiple(of) => self.multiple(*of, from)?,
            Expr::Members { members, rest, separator } => self.members(members, rest.as_deref(), separator, from)?,
            Expr::At(_, inner) => self.build(inner, from)?,
        })
    }

    /// Appends states that match one character in UTF-8. Byte sequences that end in the same bytes share states.
    fn chars(&mut self, chars: &Chars, from: u32) -> Result<u32> {
        let end = self.state()?;
        let mut ends: HashMap<(u8, u8, u32), u32> = HashMap::new();
        for (first, last) in chars.ranges() {
            // Leave out surrogates, because they are not characters.
            let halves = [(*first, (*last).min(0xd7ff)), ((*first).max(0xe000), *last)];
            for (first, last) in halves.into_iter().filter_map(|(a, b)| Some((char::from_u32(a)?, char::from_u32(b)?)))
            {
                if first > last {
                    continue;
                }
                for sequence in Utf8Sequences::new(first, last) {
                    let Some((lead, rest)) = sequence.as_slice().split_first() else { continue };
                    let mut to = end;
                    for range in rest.iter().rev() {
                        let key = (range.start, range.end, to);
                        to = match ends.get(&key) {
                            Some(state) => *state,
                            None => {
                                let state = self.state()?;
                                self.range(state, (range.start, range.end), to)?;
                                ends.insert(key, state);
                                state
                            }
                        };
                    }
                    self.range(from, (lead.start, lead.end), to)?;
                }
            }
        }
        Ok(end)
    }

    /// Appends the product of the automata of `a` and `b`, which read the same bytes. The text may end at a pair of
    /// nodes if `ends` returns true for the `is_final` of the two nodes.
    fn product(&mut self, a: &'r Expr, b: &'r Expr, from: u32, ends: impl Fn(bool, bool) -> bool) -> Result<u32> {
        let (a, b) = (Self::compile(a, self.inlined, self.budget)?, Self::compile(b, self.inlined, self.budget)?);
        let end = self.state()?;
        // A place is a pair of nodes: one of `a` and one of `b`. The second one is `None` once `b` no longer matches.
        let mut places = HashMap::from([((0, Some(0)), from)]);
        let mut left = vec![(0u32, Some(0u32))];
        while let Some((in_a, in_b)) = left.pop() {
            let here = places[&(in_a, in_b)];
            let (node, other) = (&a.nodes[in_a as usize], in_b.map(|b_node| &b.nodes[b_node as usize]));
            // The operands contain no tokens and no calls.
            debug_assert!(node.letters.is_empty() && other.is_none_or(|other| other.letters.is_empty()));
            if ends(node.is_final, other.is_some_and(|other| other.is_final)) {
                self.epsilon(here, end)?;
            }
            for (first, last, to) in &node.ranges {
                for (first, last, other_to) in cut(other, *first, *last) {
                    let pair = (*to, other_to);
                    let place = match places.get(&pair) {
                        Some(place) => *place,
                        None => {
                            let place = self.state()?;
                            places.insert(pair, place);
                            left.push(pair);
                            place
                        }
                    };
                    self.range(here, (first, last), place)?;
                }
            }
        }
        Ok(end)
    }

    /// Adds states for a multiple of the number `of`: digits, with a sign before them if it is negative. Each state
    /// stands for a remainder of the division.
    fn multiple(&mut self, of: u32, from: u32) -> Result<u32> {
        let end = self.state()?;
        let unsigned = self.state()?;
        self.epsilon(from, unsigned)?;
        self.range(from, (b'-', b'-'), unsigned)?;
        let remainders = (0..of).map(|_| self.state()).collect::<Result<Vec<_>>>()?;
        for digit in 0..10u8 {
            let to = |value: u64| remainders[(value % u64::from(of)) as usize];
            self.range(unsigned, (b'0' + digit, b'0' + digit), to(digit.into()))?;
            for (remainder, state) in (0u64..).zip(&remainders) {
                self.range(*state, (b'0' + digit, b'0' + digit), to(10 * remainder + u64::from(digit)))?;
            }
        }
        self.epsilon(remainders[0], end)?;
        Ok(end)
    }

    /// Appends the members of an object. There are two tracks of states: for texts with an earlier member, which need a
    /// separator before the next member, and for texts without one.
    fn members(
        &mut self,
        members: &'r [(Expr, bool)],
        rest: Option<&'r Expr>,
        separator: &'r Expr,
        from: u32,
    ) -> Result<u32> {
        let (mut none_yet, mut some) = (Some(from), None::<u32>);
        for (member, is_required) in members {
            let start = self.enter(none_yet, some, separator)?;
            let end = self.build(member, start)?;
            let after = self.state()?;
            self.epsilon(end, after)?;
            if *is_required {
                none_yet = None;
            } else if let Some(some) = some {
                self.epsilon(some, after)?;
            }
            some = Some(after);
        }
        if let Some(rest) = rest {
            let start = self.enter(none_yet, some, separator)?;
            let end = self.build(rest, start)?;
            let after = self.state()?;
            self.epsilon(end, after)?;
            let again = self.build(separator, after)?;
            self.epsilon(again, start)?;
            if let Some(some) = some {
                self.epsilon(some, after)?;
            }
            some = Some(after);
        }
        let end = self.state()?;
        for track in [none_yet, some].into_iter().flatten() {
            self.epsilon(track, end)?;
        }
        Ok(end)
    }

    /// Returns the state where the next member of an object starts. It is reached from `none_yet`, where no member was
    /// written, without a separator, and from `some`, where a member was written, after a separator.
    fn enter(&mut self, none_yet: Option<u32>, some: Option<u32>, separator: &'r Expr) -> Result<u32> {
        let start = self.state()?;
        if let Some(none_yet) = none_yet {
            self.epsilon(none_yet, start)?;
        }
        if let Some(some) = some {
            let separated = self.build(separator, some)?;
            self.epsilon(separated, start)?;
        }
        Ok(start)
    }

    /// Returns all states that can be reached from `states` without consuming anything (the epsilon closure), in
    /// ascending order. States that have only transitions of this kind are left out.
    fn closure(&self, states: impl IntoIterator<Item = u32>, seen: &mut Vec<bool>) -> Result<Vec<u32>> {
        seen.resize(self.states.len(), false);
        let mut left: Vec<u32> = states.into_iter().collect();
        let (mut found, mut steps) = (Vec::new(), 0);
        while let Some(state) = left.pop() {
            if !std::mem::replace(&mut seen[state as usize], true) {
                found.push(state);
                let epsilon = &self.states[state as usize].epsilon;
                steps += 1 + epsilon.len();
                left.extend(epsilon);
            }
        }
        self.budget.steps(steps)?;
        found.iter().for_each(|state| seen[*state as usize] = false);
        found.retain(|state| {
            let state = &self.states[*state as usize];
            !state.ranges.is_empty() || !state.letters.is_empty() || state.epsilon.is_empty()
        });
        found.sort_unstable();
        Ok(found)
    }

    /// Subset construction: each set of states reached by the same text becomes one node.
    fn determinize(&self, end: u32) -> Result<Dfa> {
        let mut seen = Vec::new();
        let first: Rc<[u32]> = self.closure([0], &mut seen)?.into();
        let mut numbers = HashMap::from([(first.clone(), 0u32)]);
        let (mut sets, mut nodes) = (vec![first], Vec::new());
        while let Some(set) = sets.get(nodes.len()).cloned() {
            let mut number = |states: Vec<u32>, sets: &mut Vec<Rc<[u32]>>| -> Result<u32> {
                self.budget.states(1)?;
                let set: Rc<[u32]> = self.closure(states, &mut seen)?.into();
                let next = numbers.len() as u32;
                Ok(*numbers.entry(set).or_insert_with_key(|set| {
                    sets.push(set.clone());
                    next
                }))
            };
            let mut node = Node { is_final: set.binary_search(&end).is_ok(), ..Node::default() };
            let ranges = set.iter().flat_map(|state| &self.states[*state as usize].ranges);
            for (first, last, states) in split(ranges.copied(), self.budget)? {
                node.add_range(first, last, number(states, &mut sets)?);
            }
            let mut letters: Vec<_> =
                set.iter().flat_map(|state| self.states[*state as usize].letters.iter().copied()).collect();
            letters.sort_unstable();
            for same in letters.chunk_by(|a, b| a.0 == b.0) {
                let states = same.iter().map(|(_, state)| *state).collect();
                node.letters.push((same[0].0, number(states, &mut sets)?));
            }
            nodes.push(node);
        }
        Ok(Dfa { nodes })
    }
}

/// Splits overlapping ranges so that each byte is in at most one range. This range has all targets of the byte.
fn split(ranges: impl Iterator<Item = (u8, u8, u32)> + Clone, budget: &Budget) -> Result<Vec<(u8, u8, Vec<u32>)>> {
    let mut starts: Vec<u16> =
        ranges.clone().flat_map(|(first, last, _)| [u16::from(first), u16::from(last) + 1]).collect();
    starts.sort_unstable();
    starts.dedup();
    let mut parts: Vec<(u8, u8, Vec<u32>)> =
        starts.windows(2).map(|pair| (pair[0] as u8, (pair[1] - 1) as u8, Vec::new())).collect();
    for (first, last, to) in ranges {
        let from = parts.partition_point(|part| part.0 < first);
        for part in parts[from..].iter_mut().take_while(|part| part.1 <= last) {
            budget.steps(1)?;
            part.2.push(to);
        }
    }
    parts.retain(|part| !part.2.is_empty());
    Ok(parts)
}

/// Splits the range of bytes from `first` to `last` into parts, so that all bytes of a part have the same target in
/// `node`. Returns each part with its target.
fn cut(node: Option<&Node>, first: u8, last: u8) -> Vec<(u8, u8, Option<u32>)> {
    let mut parts = Vec::new();
    let mut next = u16::from(first);
    for (start, end, to) in node.map_or(&[][..], |node| &node.ranges) {
        let (start, end) = (u16::from((*start).max(first)), u16::from((*end).min(last)));
        if start > end {
            continue;
        }
        if start > next {
            parts.push((next as u8, (start - 1) as u8, None));
        }
        parts.push((start as u8, end as u8, Some(*to)));
        next = end + 1;
    }
    if next <= u16::from(last) {
        parts.push((next as u8, last, None));
    }
    parts
}

/// A node of a deterministic automaton.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    pub is_final: bool,
    /// Sorted byte ranges with their targets.
    pub ranges: Vec<(u8, u8, u32)>,
    pub letters: Vec<(Letter, u32)>,
}

impl Node {
    fn add_range(&mut self, first: u8, last: u8, to: u32) {
        match self.ranges.last_mut() {
            Some((_, end, same)) if *same == to && u16::from(*end) + 1 == u16::from(first) => *end = last,
            _ => self.ranges.push((first, last, to)),
        }
    }

    /// The targets of all transitions.
    pub fn targets_mut(&mut self) -> impl Iterator<Item = &mut u32> {
        self.ranges.iter_mut().map(|(_, _, to)| to).chain(self.letters.iter_mut().map(|(_, to)| to))
    }

    pub fn targets(&self) -> impl Iterator<Item = u32> {
        self.ranges.iter().map(|(_, _, to)| *to).chain(self.letters.iter().map(|(_, to)| *to))
    }

    /// Joins adjacent ranges with the same target.
    fn join_ranges(&mut self) {
        for (first, last, to) in std::mem::take(&mut self.ranges) {
            self.add_range(first, last, to);
        }
    }
}

/// A deterministic automaton. It starts at node 0.
#[derive(Clone, Debug)]
pub struct Dfa {
    pub nodes: Vec<Node>,
}

/// Merges equal nodes until no two nodes are equal. Afterwards, `starts` has the numbers of nodes that remain.
pub fn merge_alike(nodes: &mut [Node], starts: &mut [u32]) {
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
    for (number, node) in (0u32..).zip(&*nodes) {
        node.targets().for_each(|to| before[to as usize].push(number));
    }
    // `same[n]` is the node that replaces node `n`; for a node that is kept, this is `n` itself.
    let mut same: Vec<u32> = (0..nodes.len() as u32).collect();
    // The last node with each hash. A hash has only one entry here, so that of several different nodes with the same
    // hash only the last one can be merged with others.
    let mut alike = HashMap::with_capacity_and_hasher(nodes.len(), BuildHasherDefault::<Hashed>::default());
    // Start with the highest numbers, because final nodes mostly have high numbers, so that most chains are merged in
    // one round.
    let mut left: Vec<u32> = (0..nodes.len() as u32).rev().collect();
    let mut is_left = vec![true; nodes.len()];
    while !left.is_empty() {
        let mut later: Vec<u32> = Vec::new();
        for at in left {
            is_left[at as usize] = false;
            if same[at as usize] != at {
                continue;
            }
            let mut node = std::mem::take(&mut nodes[at as usize]);
            node.targets_mut().for_each(|to| *to = remaining(&mut same, *to));
            node.join_ranges();
            let place = *alike.entry(node.hashed()).or_insert(at);
            if place == at || nodes[place as usize] != node {
                // Compares the nodes and not only their hashes, because the node `place` may have changed since its
                // hash was stored.
                alike.insert(node.hashed(), at);
                nodes[at as usize] = node;
                continue;
            }
            same[at as usize] = place;
            let callers = std::mem::take(&mut before[at as usize]);
            later.extend(callers.iter().filter(|from| !std::mem::replace(&mut is_left[**from as usize], true)));
            before[place as usize].extend(callers);
        }
        later.sort_unstable_by(|a, b| b.cmp(a));
        left = later;
    }
    starts.iter_mut().for_each(|start| *start = remaining(&mut same, *start));
}

/// Returns the node that replaces this one.
fn remaining(same: &mut [u32], mut node: u32) -> u32 {
    while same[node as usize] != node {
        // Shortens the way for the next call.
        same[node as usize] = same[same[node as usize] as usize];
        node = same[node as usize];
    }
    node
}

impl Node {
    /// Returns a hash of the node. A simple function is used, because the hashes of all nodes are computed in every
    /// round.
    fn hashed(&self) -> u64 {
        let mix = |hash: u64, value: u64| (hash.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
        let start = u64::from(self.is_final) | (self.ranges.len() as u64) << 1 | (self.letters.len() as u64) << 32;
        let ranges = self
            .ranges
            .iter()
            .flat_map(|(first, last, to)| [u64::from(*first) << 40 | u64::from(*last) << 32 | u64::from(*to)]);
        let letters = self.letters.iter().flat_map(|(letter, to)| {
            let (kind, number) = match letter {
                Letter::Call(rule) => (1u64, *rule as u64),
                Letter::Token(token) => (2, u64::from(*token)),
                Letter::NotToken(token) => (3, u64::from(*token)),
            };
            [kind << 56 | number, u64::from(*to)]
        });
        ranges.chain(letters).fold(mix(0, start), mix)
    }
}

/// A hasher for keys that are hashes already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
