//! Converts automata to a grammar table, a list of 32-bit words. Removes dead states and merges equal states, because a
//! device may store the table in its flash.

use std::collections::HashMap;

use anyhow::{Result, bail};

use super::automaton::{Letter, Node, merge_alike};
use super::budget::Budget;
use super::callee;

/// These constants equal those in `src/grammar/table.rs`.
const MAGIC: u32 = u32::from_le_bytes(*b"arg\x01");
const HEADER: usize = 4;
const HAS_TOKENS: u32 = 1;
const IS_HEAD: u32 = 1 << 31;
const IS_FINAL: u32 = 1 << 30;
const MAX_WORDS: usize = 1 << 23;
/// Maximum depth of calls, `DEPTH` in `src/grammar/state.rs`.
const DEPTH: u32 = 64;

const NEVER: u32 = u32::MAX;

/// Converts the nodes of all rules to the words of a table. `starts` has the first node of each rule, `root` is the
/// rule of whole texts.
pub fn table(mut nodes: Vec<Node>, starts: HashMap<usize, u32>, root: usize, budget: &Budget) -> Result<Vec<u8>> {
    let needs = needs(&nodes, &starts, budget)?;
    if needs[starts[&root] as usize] > DEPTH {
        bail!("no text can satisfy this: it contradicts itself or recurses without end");
    }
    // A transition is removed if no end can be reached from the node that it leads to.
    for node in &mut nodes {
        node.ranges.retain(|(_, _, to)| needs[*to as usize] <= DEPTH);
        node.letters.retain(|(letter, to)| {
            let callee_ends = callee(*letter).is_none_or(|rule| needs[starts[&rule] as usize] <= DEPTH);
            callee_ends && needs[*to as usize] <= DEPTH
        });
    }
    let (rules, mut places): (Vec<usize>, Vec<u32>) = starts.into_iter().unzip();
    merge_alike(&mut nodes, &mut places);
    let starts: HashMap<usize, u32> = rules.into_iter().zip(places).collect();
    let start_of = |rule: usize| starts[&rule];
    let order = reached(&nodes, start_of(root), &start_of);

    let mut at = HEADER;
    let mut places = HashMap::new();
    let mut is_large = false;
    for node in &order {
        places.insert(*node, at as u32);
        let node = &nodes[*node as usize];
        is_large |= node.letters.len() >= 1 << 12;
        at += 1 + words_of_ranges(node) + 2 * node.letters.len();
    }
    if is_large || at >= MAX_WORDS {
        bail!("this is too large: its table would have {} MB", at / 250_000);
    }
    let has_tokens = nodes.iter().flat_map(|node| &node.letters).any(|(letter, _)| callee(*letter).is_none());
    let mut words = vec![MAGIC, at as u32, places[&start_of(root)], u32::from(has_tokens) * HAS_TOKENS];
    // The needs of all nodes are computed once more, because transitions were removed and equal nodes were merged.
    let needs = self::needs(&nodes, &starts, budget)?;
    for number in &order {
        let node = &nodes[*number as usize];
        let is_final = if node.is_final { IS_FINAL } else { 0 };
        let ranges = words_of_ranges(node) as u32;
        words.push(IS_HEAD | is_final | needs[*number as usize] << 21 | ranges << 12 | node.letters.len() as u32);
        let mut next = 0u16;
        for (first, last, to) in &node.ranges {
            if u16::from(*first) > next {
                words.push(u32::from(*first - 1) << 23);
            }
            words.push(u32::from(*last) << 23 | places[to]);
            next = u16::from(*last) + 1;
        }
        for (letter, to) in &node.letters {
            let what = match letter {
                Letter::Call(rule) => places[&start_of(*rule)],
                Letter::Token(token) => 1 << 29 | token,
                Letter::NotToken(token) => 2 << 29 | token,
            };
            words.extend([what, places[to]]);
        }
    }
    Ok(words.into_iter().flat_map(u32::to_le_bytes).collect())
}

/// Number of words that the table needs for the byte ranges of a node. A range stores only its end, so the gaps between
/// ranges are stored as ranges, too.
fn words_of_ranges(node: &Node) -> usize {
    let mut next = 0u16;
    let mut words = 0;
    for (first, last, _) in &node.ranges {
        words += 1 + usize::from(u16::from(*first) > next);
        next = u16::from(*last) + 1;
    }
    words
}

/// Computes, for each node, the least stack depth that is needed to reach the end of the node's rule, or [`NEVER`] if
/// no end can be reached within [`DEPTH`]. The nodes are processed in the order of this depth (D. E. Knuth, "A
/// generalization of Dijkstra's algorithm", 1977), so each transition is examined only once for each node that it
/// depends on.
fn needs(nodes: &[Node], starts: &HashMap<usize, u32>, budget: &Budget) -> Result<Vec<u32>> {
    // `before[n]` lists the nodes that have a transition to node `n` or call its rule. With each of them is the index
    // of the transition in its `letters`, or `None` if the transition is a range of bytes.
    let mut before: Vec<Vec<(u32, Option<usize>)>> = vec![Vec::new(); nodes.len()];
    for (number, node) in (0u32..).zip(nodes) {
        budget.steps(1 + node.ranges.len() + node.letters.len())?;
        node.ranges.iter().for_each(|(_, _, to)| before[*to as usize].push((number, None)));
        for (at, (letter, to)) in node.letters.iter().enumerate() {
            let start = callee(*letter).map(|rule| starts[&rule]);
            [*to].into_iter().chain(start).for_each(|next| before[next as usize].push((number, Some(at))));
        }
    }
    let mut needs = vec![NEVER; nodes.len()];
    let through = |(letter, to): &(Letter, u32), needs: &[u32]| {
        let next = &nodes[*to as usize];
        let returns = next.is_final && next.ranges.is_empty() && next.letters.is_empty();
        match callee(*letter).map(|rule| needs[starts[&rule] as usize]) {
            None => needs[*to as usize],
            Some(need) if returns => need,
            Some(need) => need.saturating_add(1).max(needs[*to as usize]),
        }
    };
    let mut levels = vec![Vec::new(); DEPTH as usize + 1];
    levels[0].extend((0..nodes.len() as u32).filter(|node| nodes[*node as usize].is_final));
    for level in 0..=DEPTH {
        while let Some(number) = levels[level as usize].pop() {
            if needs[number as usize] != NEVER {
                continue;
            }
            needs[number as usize] = level;
            for (from, letter) in &before[number as usize] {
                let need = letter.map_or(level, |at| through(&nodes[*from as usize].letters[at], &needs));
                if let Some(later) = levels.get_mut(need as usize).filter(|_| needs[*from as usize] == NEVER) {
                    later.push(*from);
                }
            }
        }
    }
    Ok(needs)
}

/// The nodes that can be reached from the node `first`.
fn reached(nodes: &[Node], first: u32, start_of: &dyn Fn(usize) -> u32) -> Vec<u32> {
    let mut seen = vec![false; nodes.len()];
    let mut order = vec![first];
    seen[first as usize] = true;
    let mut at = 0;
    while let Some(number) = order.get(at) {
        at += 1;
        let node = &nodes[*number as usize];
        let starts = node.letters.iter().filter_map(|(letter, _)| callee(*letter)).map(start_of);
        for next in node.targets().chain(starts) {
            if !std::mem::replace(&mut seen[next as usize], true) {
                order.push(next);
            }
        }
    }
    order
}
