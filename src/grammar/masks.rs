//! Masks: the allowed tokens of a whole vocabulary at once.
//!
//! The bytes of most tokens stay within a single rule of the grammar. For such a token, the node on top of the stack
//! alone determines whether the token is allowed; the frames below do not matter. One walk over the vocabulary, in the
//! order of the tokens' texts, finds all allowed tokens of this kind, and the result is cached. Only tokens that leave
//! the rule are tested individually.
//!
//! A rule for a text of limited length has a node for every character. Except near the limit, these nodes allow the
//! same tokens of up to [`NEAR`] bytes, so they share a mask. Longer tokens are then tested individually.

use bytemuck::{Pod, Zeroable};
use heapless::Vec;

use super::table::{Grammar, Head, Node};
use super::{Constraint, State, text};
use crate::memory::Arena;
use crate::sort::heapsort;
use crate::tokenizer::Tokenizer;
use crate::{Error, TokenId};

/// Maximum length in bytes of the tokens that are decided by walking from node to node. Longer tokens are tested
/// individually.
const LONGEST: usize = 255;
/// Number of tokens tested individually before a mask is computed, because a mask costs a walk over the whole
/// vocabulary.
const FEW: usize = 64;
/// If two nodes allow the same texts of up to this many bytes, they share a mask.
const NEAR: usize = 16;
/// Limit on compared node pairs, so that memory is bounded. Beyond the limit the nodes count as different, which only
/// costs a mask.
const PAIRS: usize = 256;
/// Limit on steps of a comparison. Beyond the limit the nodes count as different. A comparison of nodes of compiled
/// tables takes some thousand steps.
const STEPS: usize = 1 << 16;
/// Maximum length in bytes of a kept beginning. While texts are tested in order, the states after the first bytes of
/// the previous text are kept, so that a beginning that several texts share is tested once.
const BEGINNINGS: usize = 8;
const BITS: usize = u64::BITS as usize;

/// An entry of a list of tokens that is sorted by the tokens' texts. The first `common` bytes of the token's text are
/// the same as in the previous entry.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Entry {
    token: TokenId,
    start: u32,
    len: u32,
    common: u32,
}

impl Entry {
    fn text<'t>(&self, texts: &'t [u8]) -> &'t [u8] {
        let start = self.start as usize;
        texts.get(start..start + self.len as usize).unwrap_or(&[])
    }
}

/// A cached mask: the mask's node, and its properties.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Slot {
    grammar: u32,
    node: Node,
    /// Time of the last use; 0 for an empty slot.
    used: u32,
    /// The largest [`need`](Head::need) (growth of the stack) among the nodes that were reached when the mask of this
    /// node was computed.
    need: u32,
    /// True if tokens with texts of more than [`NEAR`] bytes must be tested one by one, because this node's mask does
    /// not cover them.
    asks_long: u32,
}

impl Slot {
    fn is(&self, grammar: u32, node: Node) -> bool {
        self.used > 0 && (self.grammar, self.node) == (grammar, node)
    }
}

/// The texts of a vocabulary in order, and cached masks of recently used nodes. Both are in the caller's memory.
///
/// # Examples
///
/// ```
/// use arenite::grammar::{Constraint, Grammar, Masks};
/// use arenite::memory::Line;
/// use arenite::tokenizer::Tokenizer;
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// # let header = [u32::from_le_bytes(*b"arg\x01"), 10, 4, 0];
/// # let nodes = [0x8000_2000, 96 << 23, 122 << 23 | 7, 0xc000_2000, 96 << 23, 122 << 23 | 7];
/// # let table: Vec<u8> = header.iter().chain(&nodes).flat_map(|word: &u32| word.to_le_bytes()).collect();
/// let gguf = arenite::Gguf::parse(&file)?;
/// let mut index = vec![0; Tokenizer::index_bytes(&gguf)?];
/// let tokenizer = Tokenizer::new(&gguf, &mut index)?;
/// let mut memory = vec![Line::ZERO; Masks::bytes(&tokenizer, 16).div_ceil(64)];
/// let mut masks = Masks::new(&tokenizer, 16, Line::bytes_mut(&mut memory))?;
///
/// let constraint = Constraint::new(Grammar::new(&table)?); // `[a-z]+`: see the module
/// let mut mask = masks.at(&constraint, &tokenizer, 0);
/// for token in 0..tokenizer.vocab_len() as u32 {
///     assert_eq!(mask.allows(token), constraint.allows(&tokenizer, token)); // same result, but faster
/// }
/// # Ok::<(), arenite::Error>(())
/// ```
pub struct Masks<'w> {
    entries: &'w mut [Entry],
    texts: &'w mut [u8],
    slots: &'w mut [Slot],
    /// Sets of tokens, one bit per token: `[slots + 1][2][words]`. The first set of a slot has the tokens that the
    /// grammar allows, the second has the tokens that must be tested one by one. The last slot belongs to the current
    /// state.
    bits: &'w mut [u64],
    /// Tokens that end an answer.
    ends: &'w mut [u64],
    clock: u32,
}

/// Allowed tokens in one state: returned by [`Masks::at`].
pub struct Mask<'m, 'w> {
    masks: &'m mut Masks<'w>,
    constraint: &'m Constraint<'m>,
    tokenizer: &'m Tokenizer<'m, 'm>,
    grammar: u32,
    /// Number of tokens tested individually, up to [`FEW`].
    tested: usize,
}

impl Mask<'_, '_> {
    /// True if a token may come next. The result is the same as from [`Constraint::allows`].
    #[inline]
    pub fn allows(&mut self, token: TokenId) -> bool {
        if self.tested < FEW {
            self.tested += 1;
            if self.tested == FEW {
                self.masks.find(self.constraint, self.grammar);
            }
            return self.constraint.allows(self.tokenizer, token);
        }
        let (yes, ask) = self.masks.found();
        has(yes, token) || (has(ask, token) && self.constraint.allows(self.tokenizer, token))
    }
}

impl<'w> Masks<'w> {
    /// Number of bytes of memory for this vocabulary and `places` cached masks.
    pub fn bytes(tokenizer: &Tokenizer<'_, '_>, places: usize) -> usize {
        let (count, len) = measure(tokenizer);
        let words = tokenizer.vocab_len().div_ceil(BITS);
        Arena::padded(count.saturating_mul(size_of::<Entry>()))
            .saturating_add(Arena::padded(len))
            .saturating_add(Arena::padded(places.max(1).saturating_mul(size_of::<Slot>())))
            .saturating_add(Arena::padded(places.max(1).saturating_add(1).saturating_mul(16).saturating_mul(words)))
            .saturating_add(Arena::padded(8 * words))
    }

    /// Sorts the vocabulary by text, and starts without cached masks. `memory` has [`bytes`](Self::bytes) bytes and
    /// starts on an [`ALIGN`](crate::memory::ALIGN) boundary.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] and [`Error::Misaligned`] for `memory`.
    pub fn new(tokenizer: &Tokenizer<'_, '_>, places: usize, memory: &'w mut [u8]) -> Result<Self, Error> {
        let needed = Self::bytes(tokenizer, places);
        let short = Error::BufferTooSmall { what: "bytes of masks", needed, given: memory.len() };
        let (count, len) = measure(tokenizer);
        let words = tokenizer.vocab_len().div_ceil(BITS);
        let mut arena = Arena::new(memory)?;
        let masks = Self {
            entries: arena.take(count).ok_or(short)?,
            texts: arena.take(len).ok_or(short)?,
            slots: arena.take(places.max(1)).ok_or(short)?,
            bits: arena.take(places.max(1).saturating_add(1).saturating_mul(2).saturating_mul(words)).ok_or(short)?,
            ends: arena.take(words).ok_or(short)?,
            clock: 0,
        };
        masks.slots.fill(Slot::zeroed());
        masks.ends.fill(0);
        let (mut entries, mut start) = (masks.entries.iter_mut(), 0);
        for token in (0..).take(tokenizer.vocab_len()) {
            if tokenizer.is_end(token) {
                set(masks.ends, token);
            }
            let (Some(piece), Some(places)) = (text(tokenizer, token), masks.texts.get_mut(start..)) else { continue };
            let Some(entry) = entries.next() else { continue };
            let len = places.iter_mut().zip(piece).map(|(place, byte)| *place = byte).count();
            *entry = Entry { token, start: start as u32, len: len as u32, common: 0 };
            start += len;
        }
        let texts = &*masks.texts;
        heapsort(masks.entries, |a, b| (a.text(texts), a.token) < (b.text(texts), b.token));
        let mut before: &[u8] = &[];
        for entry in masks.entries.iter_mut() {
            let text = entry.text(texts);
            entry.common = text.iter().zip(before).take_while(|(a, b)| a == b).count() as u32;
            before = text;
        }
        Ok(masks)
    }

    /// Returns the allowed tokens in the current state of `constraint`.
    ///
    /// `grammar` is a number that identifies the grammar of `constraint` among all grammars used with these masks.
    ///
    /// The first few tokens that are asked about, for example the most probable tokens, are tested individually. After
    /// that, a mask is computed for the node, which takes time proportional to the size of the vocabulary's texts.
    pub fn at<'m>(
        &'m mut self,
        constraint: &'m Constraint<'m>,
        tokenizer: &'m Tokenizer<'m, 'm>,
        grammar: u32,
    ) -> Mask<'m, 'w> {
        let is_known = |(node, _)| self.slots.iter().any(|slot| slot.is(grammar, node));
        let is_known = !constraint.grammar.has_tokens() && constraint.state.tops().all(is_known);
        if is_known {
            self.find(constraint, grammar);
        }
        Mask { masks: self, constraint, tokenizer, grammar, tested: if is_known { FEW } else { 0 } }
    }

    /// Returns two bit sets for the current state: the tokens that are allowed, and the tokens that must be tested
    /// individually.
    #[inline]
    fn found(&self) -> (&[u64], &[u64]) {
        let words = self.ends.len();
        let bits = self.bits.get(self.slots.len() * 2 * words..).unwrap_or(&[]);
        bits.split_at_checked(words).unwrap_or((&[], &[]))
    }

    /// Finds the tokens that the constraint's state allows: combines the masks of the nodes at which its stacks
    /// continue.
    fn find(&mut self, constraint: &Constraint<'_>, grammar: u32) {
        let words = self.ends.len();
        let last = self.slots.len() * 2 * words;
        let mut asks_all = constraint.grammar.has_tokens();
        if let Some(all) = self.bits.get_mut(last..) {
            all.fill(0);
        }
        for (node, room) in constraint.state.tops() {
            if asks_all {
                break;
            }
            let slot = self.slot(&constraint.grammar, grammar, node);
            // Near the depth limit every token is tested, because the result also depends on the frames below the node.
            asks_all = self.slots.get(slot).is_none_or(|slot| slot.need as usize > room);
            if let Some((kept, all)) = self.bits.split_at_mut_checked(last) {
                all.iter_mut().zip(kept.get(slot * 2 * words..).unwrap_or(&[])).for_each(|(all, kept)| *all |= kept);
            }
        }
        let Some((yes, ask)) = self.bits.get_mut(last..).and_then(|all| all.split_at_mut_checked(words)) else {
            return;
        };
        if asks_all {
            yes.fill(0);
            ask.fill(u64::MAX);
        }
        // If a rule may end at the next character, as after white space, most tokens leave the rule. These tokens are
        // tested in order of their texts, so that one refused beginning decides about many tokens.
        let count = |bits: &[u64]| bits.iter().map(|word| word.count_ones()).sum::<u32>();
        if !constraint.grammar.has_tokens() && count(ask) > count(yes) {
            ask_in_order(self.entries, self.texts, constraint, yes, ask);
        }
        if constraint.is_complete() {
            ask.iter_mut().zip(&*self.ends).for_each(|(ask, ends)| *ask |= ends);
        }
    }

    /// Returns the index of the cache's slot that has the mask of a node. If no slot has it, computes it and puts it
    /// into the least recently used slot.
    fn slot(&mut self, grammar: &Grammar<'_>, number: u32, node: Node) -> usize {
        self.clock = self.clock.checked_add(1).unwrap_or_else(|| {
            self.slots.iter_mut().for_each(|slot| slot.used = slot.used.min(1));
            2
        });
        let known = self.slots.iter().position(|slot| slot.is(number, node));
        let twin = || self.slots.iter().position(|slot| slot.is(number, slot.node) && alike(grammar, slot.node, node));
        let twin = known.or_else(twin);
        let oldest = self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.used).map_or(0, |(at, _)| at);
        let at = twin.unwrap_or(oldest);
        let words = self.ends.len();
        let bits = self.bits.get_mut(at * 2 * words..).and_then(|bits| bits.get_mut(..2 * words)).unwrap_or_default();
        if let (Some(slot), Some((yes, ask))) = (self.slots.get_mut(at), bits.split_at_mut_checked(words)) {
            if twin.is_none() {
                let need = walk(self.entries, self.texts, grammar, node, yes, ask);
                *slot = Slot { grammar: number, node, used: 0, need, asks_long: 0 };
            } else if slot.node != node && slot.asks_long == 0 {
                let long = self.entries.iter().filter(|entry| entry.len as usize > NEAR);
                long.for_each(|entry| {
                    unset(yes, entry.token);
                    set(ask, entry.token);
                });
                slot.asks_long = 1;
            }
            // The slot's mask also holds for `node`, which is equivalent to the slot's node. Stores `node` in its
            // place, because in a long text each character leads to a new equivalent node.
            slot.node = node;
            slot.used = self.clock;
        }
        at
    }
}

/// Number of tokens that have a text, and number of bytes of all texts together.
fn measure(tokenizer: &Tokenizer<'_, '_>) -> (usize, usize) {
    let texts = (0..).take(tokenizer.vocab_len()).filter_map(|token| text(tokenizer, token));
    texts.fold((0, 0), |(count, len), text| (count + 1, len + text.count()))
}

/// True if two nodes allow the same texts of up to [`NEAR`] bytes.
pub(super) fn alike(grammar: &Grammar<'_>, a: Node, b: Node) -> bool {
    let mut pairs: Vec<(Node, Node), PAIRS> = Vec::new();
    let _ = pairs.push((a, b));
    let mut left = STEPS;
    for _ in 0..=NEAR {
        let before = core::mem::take(&mut pairs);
        for (a, b) in &before {
            let Some(next) = grammar.side_by_side(*a, *b) else { return false };
            left = left.saturating_sub(grammar.head(*a).map_or(0, Head::ranges));
            for pair in next {
                // Looks for the pair from the end of the list, because most duplicates were added recently.
                let place = pairs.iter().rev().position(|there| *there == pair);
                left = left.saturating_sub(place.unwrap_or(pairs.len()));
                if place.is_none() && pairs.push(pair).is_err() {
                    return false;
                }
            }
            if left == 0 {
                return false;
            }
        }
    }
    true
}

/// Follows the text of every token from `node`. Sets the token's bit in `yes` if the text is allowed without leaving
/// the rule, and in `ask` if it may leave the rule. Returns the maximum `need` of the nodes that were reached.
fn walk(entries: &[Entry], texts: &[u8], grammar: &Grammar<'_>, node: Node, yes: &mut [u64], ask: &mut [u64]) -> u32 {
    yes.fill(0);
    ask.fill(0);
    let mut need = 0;
    // `path` has the nodes that the grammar reaches after each byte of the current text, up to the first byte that it
    // does not allow.
    let mut path = [node; LONGEST + 1];
    let mut known = 0;
    // Number of bytes after which the rule can first be left.
    let mut open = usize::MAX;
    let mut rest = entries;
    while let Some(entry) = rest.first() {
        let text = entry.text(texts);
        known = known.min(entry.common as usize);
        if open > known {
            open = usize::MAX;
        }
        let mut node = path.get(known).copied().unwrap_or(node);
        // True if a byte of the text is not allowed.
        let mut is_dead = false;
        let ahead = text.get(known..).unwrap_or(&[]).iter().zip(path.get_mut(known + 1..).unwrap_or(&mut []));
        for (byte, place) in ahead {
            let Some((next, head)) = grammar.step(node, *byte).and_then(|next| Some((next, grammar.head(next)?)))
            else {
                is_dead = true;
                break;
            };
            (node, *place) = (next, next);
            known += 1;
            need = need.max(head.need() as u32);
            if !head.is_plain() {
                open = open.min(known);
            }
        }
        let (alike, after) =
            rest.split_at_checked(if is_dead { alike_up_to(rest, texts, known + 1) } else { 1 }).unwrap_or((rest, &[]));
        rest = after;
        let stays = !is_dead && known == text.len() && grammar.head(node).is_some_and(|head| head.ranges() > 0);
        if stays {
            set(yes, entry.token);
        } else if !is_dead || open <= known {
            alike.iter().for_each(|entry| set(ask, entry.token));
        }
    }
    need
}

/// Tests whether the grammar allows the texts in `ask`, in sorted order, and moves the allowed ones from `ask` to
/// `yes`. If a prefix is refused, all texts that begin with this prefix are refused at once.
fn ask_in_order(entries: &[Entry], texts: &[u8], constraint: &Constraint<'_>, yes: &mut [u64], ask: &mut [u64]) {
    // States after the first bytes of the previous text.
    let mut states: Vec<State, BEGINNINGS> = Vec::new();
    let mut before: &[u8] = &[];
    let mut rest = entries;
    while let Some(entry) = rest.first() {
        let mut count = 1;
        if has(ask, entry.token) {
            let text = entry.text(texts);
            states.truncate(text.iter().zip(before).take_while(|(a, b)| a == b).count());
            before = text;
            let known = states.len();
            let mut state = states.last().unwrap_or(&constraint.state).clone();
            let refused = text.iter().skip(known).position(|byte| {
                let Some(next) = state.after_byte(&constraint.grammar, *byte) else { return true };
                state = next;
                let _ = states.push(state.clone());
                false
            });
            match refused {
                Some(place) => count = alike_up_to(rest, texts, known + place + 1),
                None => set(yes, entry.token),
            }
        }
        let (alike, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        alike.iter().for_each(|entry| unset(ask, entry.token));
        rest = after;
    }
}

/// Number of texts from the first one on that begin with the same `len` bytes as the first one. At least 1.
fn alike_up_to(entries: &[Entry], texts: &[u8], len: usize) -> usize {
    let Some(start) = entries.first().and_then(|entry| entry.text(texts).get(..len)) else { return 1 };
    let begins_alike = |entry: &Entry| entry.text(texts).starts_with(start);
    // Doubles the bound before the binary search. Usually only few texts begin alike, so that a small bound suffices;
    // but sometimes thousands share a first byte that the grammar refuses.
    let mut bound = 1;
    while entries.get(bound).is_some_and(begins_alike) {
        bound *= 2;
    }
    let (low, high) = (bound / 2, bound.min(entries.len()));
    low + entries.get(low..high).unwrap_or(&[]).partition_point(begins_alike)
}

fn has(bits: &[u64], token: TokenId) -> bool {
    bits.get(token as usize / BITS).is_some_and(|word| word >> (token as usize % BITS) & 1 != 0)
}

fn set(bits: &mut [u64], token: TokenId) {
    if let Some(word) = bits.get_mut(token as usize / BITS) {
        *word |= 1 << (token as usize % BITS);
    }
}

fn unset(bits: &mut [u64], token: TokenId) {
    if let Some(word) = bits.get_mut(token as usize / BITS) {
        *word &= !(1 << (token as usize % BITS));
    }
}

impl core::fmt::Debug for Masks<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Masks")
            .field("tokens", &self.entries.len())
            .field("places", &self.slots.len())
            .finish_non_exhaustive()
    }
}

impl core::fmt::Debug for Mask<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Mask").finish_non_exhaustive()
    }
}
