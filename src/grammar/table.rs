//! Compiled grammars: a table of words in flash, and its reader.
//!
//! A grammar is a set of automata over bytes: one for the first rule, and one for each rule that is called. The grammar
//! compiler inlines rules where it can. Automata are deterministic over bytes, so most bytes cost one search in a short
//! list. Only calls and the stack can be ambiguous.
//!
//! ```text
//! header   4 words: magic, number of words, first node, flags
//! node     a head: IS_HEAD | IS_FINAL | need << 21 | ranges << 12 | jumps
//!          `ranges` words: last byte << 23 | node. A range starts after the previous one; node 0 means no transition.
//!          `jumps` times 2 words: kind << 29 | callee or token, then the node that follows
//! ```
//!
//! A node is identified by the index of its head. `need` is the minimum growth of the stack from the node to the end of
//! the rule. Words are little-endian and may have any alignment.

use crate::Error;

/// Bytes of a word.
pub(super) type Word = [u8; 4];

/// Identifies a node: the index of its head.
pub(super) type Node = u32;

/// First word of a table: "arg" and the version of the layout.
const MAGIC: u32 = u32::from_le_bytes(*b"arg\x01");
const HEADER: usize = 4;

/// Flag: the grammar has token jumps.
const HAS_TOKENS: u32 = 1;

const IS_HEAD: u32 = 1 << 31;
const IS_FINAL: u32 = 1 << 30;
const JUMPS: u32 = (1 << 12) - 1;
const TARGET: u32 = (1 << 23) - 1;

/// A compiled grammar: a table of words, which this struct borrows.
///
/// The program in `host-demo/crates/grammar` compiles grammars on a computer; a device has the finished table in flash
/// or RAM.
#[derive(Clone, Copy)]
pub struct Grammar<'g> {
    words: &'g [Word],
    root: Node,
    has_tokens: bool,
}

/// First word of a node.
#[derive(Clone, Copy)]
pub(super) struct Head(u32);

impl Head {
    /// True if a rule may end here.
    #[inline]
    pub fn is_final(self) -> bool {
        self.0 & IS_FINAL != 0
    }

    /// True if the node only has byte transitions.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.0 & (IS_FINAL | JUMPS) == 0
    }

    /// True if the text cannot go on within this rule: the node has no transitions and no calls, so the rule can only
    /// return.
    pub fn only_returns(self) -> bool {
        self.is_final() && self.ranges() == 0 && self.jumps() == 0
    }

    /// Minimum number of frames that the rest of the rule, from this node to its end, adds to the stack.
    #[inline]
    pub fn need(self) -> usize {
        (self.0 >> 21 & 0xff) as usize
    }

    #[inline]
    pub fn ranges(self) -> usize {
        (self.0 >> 12 & 0x1ff) as usize
    }

    fn jumps(self) -> usize {
        (self.0 & JUMPS) as usize
    }

    /// Number of words of the node, including the head.
    fn words(self) -> usize {
        1 + self.ranges() + 2 * self.jumps()
    }
}

/// A transition other than on a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Jump {
    /// Calls the rule whose first node is `start`, then continues at `next`.
    Call { start: Node, next: Node },
    /// Transition on this token.
    Token { token: u32, next: Node },
    /// Transition on any other token.
    NotToken { token: u32, next: Node },
}

impl<'g> Grammar<'g> {
    /// Borrows a table and checks it, in time proportional to the size of the table.
    ///
    /// # Errors
    ///
    /// [`Error::DamagedGrammar`] with the index of the invalid word.
    pub fn new(table: &'g [u8]) -> Result<Self, Error> {
        let damaged = |at: usize, why| Err(Error::DamagedGrammar { at, why });
        let grammar = Self::checked_before(table)?;
        let words = grammar.words;
        let word = |at: usize| grammar.word(at);
        let is_node = |node: u32| node as usize >= HEADER && word(node as usize) & IS_HEAD != 0;
        if !is_node(grammar.root) {
            return damaged(2, "has an invalid first node");
        }
        let mut at = HEADER;
        while at < words.len() {
            let Some(head) = grammar.head(at as Node) else { return damaged(at, "has an invalid node") };
            let ranges = at + 1..at + 1 + head.ranges();
            if words.len() - at < head.words() {
                return damaged(at, "ends inside a node");
            }
            let mut last = None;
            for range in ranges.clone() {
                let (byte, node) = (word(range) >> 23, word(range) & TARGET);
                if byte > 0xff || last >= Some(byte) || (node != 0 && !is_node(node)) {
                    return damaged(range, "has an invalid byte range");
                }
                last = Some(byte);
            }
            for jump in (ranges.end..at + head.words()).step_by(2) {
                let is_right = match grammar.jump(jump) {
                    Some(Jump::Call { start, next }) => is_node(start) && is_node(next),
                    Some(Jump::Token { next, .. } | Jump::NotToken { next, .. }) => is_node(next) && grammar.has_tokens,
                    None => false,
                };
                if !is_right {
                    return damaged(jump, "has an invalid jump");
                }
            }
            at += head.words();
        }
        Ok(grammar)
    }

    /// Like [`new`](Self::new), but only checks the header: for a table that `new` has accepted before.
    ///
    /// If the table is damaged nevertheless, results are wrong, but there are no panics or endless loops.
    ///
    /// # Errors
    ///
    /// Same as [`new`](Self::new).
    pub fn checked_before(table: &'g [u8]) -> Result<Self, Error> {
        let words = table.as_chunks::<4>().0;
        let word = |at: usize| words.get(at).copied().map_or(0, u32::from_le_bytes);
        if words.len() < HEADER || word(0) != MAGIC {
            return Err(Error::DamagedGrammar { at: 0, why: "has an unknown magic number or version" });
        }
        if word(1) as usize != words.len() {
            return Err(Error::DamagedGrammar { at: 1, why: "is cut short, or longer than its header says" });
        }
        Ok(Self { words, root: word(2), has_tokens: word(3) & HAS_TOKENS != 0 })
    }

    /// Start node of an answer.
    pub(super) fn root(&self) -> Node {
        self.root
    }

    /// True if the grammar has jumps that require a specific token. They distinguish tokens with equal bytes.
    pub(super) fn has_tokens(&self) -> bool {
        self.has_tokens
    }

    #[inline]
    fn word(&self, at: usize) -> u32 {
        self.words.get(at).copied().map_or(0, u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn head(&self, node: Node) -> Option<Head> {
        #[cfg(test)]
        super::tests::step();
        let word = self.word(node as usize);
        (word & IS_HEAD != 0).then_some(Head(word))
    }

    /// The node after a byte.
    #[inline]
    pub(super) fn step(&self, node: Node, byte: u8) -> Option<Node> {
        let start = node as usize + 1;
        let ranges = self.words.get(start..start + self.head(node)?.ranges())?;
        let place = ranges.partition_point(|word| u32::from_le_bytes(*word) >> 23 < u32::from(byte));
        let target = u32::from_le_bytes(*ranges.get(place)?) & TARGET;
        (target != 0).then_some(target)
    }

    /// Compares the nodes `a` and `b`. Returns the pairs of different nodes that they lead to, one pair for each byte
    /// range. `None` if `a` and `b` have different byte ranges, or if one of them is not [plain](Head::is_plain).
    pub(super) fn side_by_side(&self, a: Node, b: Node) -> Option<impl Iterator<Item = (Node, Node)>> {
        let head = self.head(a).filter(|head| head.is_plain() && self.word(b as usize) == head.0)?;
        let ranges = |node: Node| self.words.get(node as usize + 1..)?.get(..head.ranges());
        let pairs = ranges(a)?.iter().zip(ranges(b)?).map(|(a, b)| (u32::from_le_bytes(*a), u32::from_le_bytes(*b)));
        let is_alike = |(a, b): (u32, u32)| a >> 23 == b >> 23 && (a & TARGET == 0) == (b & TARGET == 0);
        pairs.clone().all(is_alike).then(|| pairs.map(|(a, b)| (a & TARGET, b & TARGET)).filter(|(a, b)| a != b))
    }

    /// Transitions of a node other than on bytes.
    pub(super) fn jumps(&self, node: Node, head: Head) -> impl Iterator<Item = Jump> {
        let start = node as usize + 1 + head.ranges();
        (start..start + 2 * head.jumps()).step_by(2).filter_map(|at| self.jump(at))
    }

    fn jump(&self, at: usize) -> Option<Jump> {
        let (what, next) = (self.word(at), self.word(at + 1));
        let value = what & ((1 << 29) - 1);
        match what >> 29 {
            0 => Some(Jump::Call { start: value, next }),
            1 => Some(Jump::Token { token: value, next }),
            2 => Some(Jump::NotToken { token: value, next }),
            _ => None,
        }
    }
}

impl core::fmt::Debug for Grammar<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Grammar").field("words", &self.words.len()).field("root", &self.root).finish_non_exhaustive()
    }
}
