//! What may follow, for a whole vocabulary at once.
//!
//! Most tokens go along the bytes of a single rule, whatever the stack below it holds: whether they may come depends
//! on the node on top alone. One walk along the vocabulary, in the order of its texts, finds them all; it is kept for
//! the next time. Only tokens that leave the rule on their way are asked about one by one.
//!
//! In a text of limited length every character has a node of its own. For tokens of [`NEAR`] bytes these are alike up to
//! near the limit: they share a mask, and longer tokens are asked about.

use bytemuck::{Pod, Zeroable};
use heapless::Vec;

use super::table::{Grammar, Head, Node};
use super::{Constraint, State, text};
use crate::memory::Arena;
use crate::sort::heapsort;
use crate::tokenizer::Tokenizer;
use crate::{Error, TokenId};

/// Bytes of a text that a walk looks at: of a token that is longer, the rest is asked about.
const LONGEST: usize = 255;
/// Tokens that are asked about one by one before a mask is made.
const FEW: usize = 64;
/// Bytes up to which two nodes are compared.
const NEAR: usize = 16;
/// Pairs of nodes that bytes lead to from two that are compared: with more, they are taken for different.
const PAIRS: usize = 256;
/// Steps of such a comparison; with more, too. Those of a compiler's tables take some thousands.
const STEPS: usize = 1 << 16;
/// Bytes of a text up to which the places are kept, while texts are asked about in order.
const BEGINNINGS: usize = 8;
const BITS: usize = u64::BITS as usize;

/// A token and its text, which begins with `common` bytes of the text before it in the order.
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

/// Of which node a mask is kept.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Slot {
    grammar: u32,
    node: Node,
    /// When it was used last; 0 for a slot that is empty.
    used: u32,
    /// How many frames the ways through the nodes of the walk take at most.
    need: u32,
    /// Whether texts of more than [`NEAR`] bytes are asked about.
    asks_long: u32,
}

impl Slot {
    fn is(&self, grammar: u32, node: Node) -> bool {
        self.used > 0 && (self.grammar, self.node) == (grammar, node)
    }
}

/// The texts of a vocabulary in order, and masks of the places that were asked for last, in caller memory.
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
///     assert_eq!(mask.allows(token), constraint.allows(&tokenizer, token)); // the same, and fast
/// }
/// # Ok::<(), arenite::Error>(())
/// ```
pub struct Masks<'w> {
    entries: &'w mut [Entry],
    texts: &'w mut [u8],
    slots: &'w mut [Slot],
    /// `[slots + 1][2][words]`: the tokens that may come, and those to ask about; the last for the place asked for.
    bits: &'w mut [u64],
    /// The tokens that end an answer.
    ends: &'w mut [u64],
    clock: u32,
}

/// The tokens that may come at one place: [`Masks::at`].
pub struct Mask<'m, 'w> {
    masks: &'m mut Masks<'w>,
    constraint: &'m Constraint<'m>,
    tokenizer: &'m Tokenizer<'m, 'm>,
    grammar: u32,
    /// Tokens that were asked about one by one, up to [`FEW`].
    asked: usize,
}

impl Mask<'_, '_> {
    /// The same as [`Constraint::allows`].
    #[inline]
    pub fn allows(&mut self, token: TokenId) -> bool {
        if self.asked < FEW {
            self.asked += 1;
            if self.asked == FEW {
                self.masks.find(self.constraint, self.grammar);
            }
            return self.constraint.allows(self.tokenizer, token);
        }
        let (yes, ask) = self.masks.found();
        has(yes, token) || (has(ask, token) && self.constraint.allows(self.tokenizer, token))
    }
}

impl<'w> Masks<'w> {
    /// Bytes of memory for this vocabulary and the masks of `places` places.
    pub fn bytes(tokenizer: &Tokenizer<'_, '_>, places: usize) -> usize {
        let (count, len) = measure(tokenizer);
        let words = tokenizer.vocab_len().div_ceil(BITS);
        Arena::padded(count.saturating_mul(size_of::<Entry>()))
            .saturating_add(Arena::padded(len))
            .saturating_add(Arena::padded(places.max(1).saturating_mul(size_of::<Slot>())))
            .saturating_add(Arena::padded(places.max(1).saturating_add(1).saturating_mul(16).saturating_mul(words)))
            .saturating_add(Arena::padded(8 * words))
    }

    /// Puts the vocabulary in order. `memory` holds [`bytes`](Self::bytes) and starts on an
    /// [`ALIGN`](crate::memory::ALIGN) boundary.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] and [`Error::Misaligned`] for `memory`.
    pub fn new(tokenizer: &Tokenizer<'_, '_>, places: usize, memory: &'w mut [u8]) -> Result<Self, Error> {
        let needed = Self::bytes(tokenizer, places);
        let short = Error::BufferTooSmall { what: "memory for masks", needed, given: memory.len() };
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

    /// The tokens that may come where `constraint` stands.
    ///
    /// `grammar` is a number that tells its grammar from all others for which these masks are used.
    ///
    /// Where only a few tokens are asked about, as for the most likely one, they are looked at one by one. Else the
    /// time of a place that is not known yet is in proportion to the texts of the vocabulary.
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
        Mask { masks: self, constraint, tokenizer, grammar, asked: if is_known { FEW } else { 0 } }
    }

    /// The tokens that may come, and those to ask about, at the place that was looked for last.
    #[inline]
    fn found(&self) -> (&[u64], &[u64]) {
        let words = self.ends.len();
        let bits = self.bits.get(self.slots.len() * 2 * words..).unwrap_or(&[]);
        bits.split_at_checked(words).unwrap_or((&[], &[]))
    }

    /// Joins the masks of all nodes that the constraint may go on from.
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
            // Near the end of the stack, it matters what is below.
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
        // Where one rule ends at the next character, as after white space, most tokens leave it.
        let count = |bits: &[u64]| bits.iter().map(|word| word.count_ones()).sum::<u32>();
        if !constraint.grammar.has_tokens() && count(ask) > count(yes) {
            ask_in_order(self.entries, self.texts, constraint, yes, ask);
        }
        if constraint.is_complete() {
            ask.iter_mut().zip(&*self.ends).for_each(|(ask, ends)| *ask |= ends);
        }
    }

    /// The slot with the mask of a node, which takes the place of the one that was not used for longest.
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
            // The twin goes along: in a long text each character has another.
            slot.node = node;
            slot.used = self.clock;
        }
        at
    }
}

/// Tokens that stand for text, and the bytes of all texts.
fn measure(tokenizer: &Tokenizer<'_, '_>) -> (usize, usize) {
    let texts = (0..).take(tokenizer.vocab_len()).filter_map(|token| text(tokenizer, token));
    texts.fold((0, 0), |(count, len), text| (count + 1, len + text.count()))
}

/// Whether texts of up to [`NEAR`] bytes lead alike from two nodes.
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
                // One that is there was added a moment ago, mostly.
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

/// Goes along all texts from a node: which are bytes of its rule to their end, and which leave the rule on their way.
/// The most frames that a node on the way needs.
fn walk(entries: &[Entry], texts: &[u8], grammar: &Grammar<'_>, node: Node, yes: &mut [u64], ask: &mut [u64]) -> u32 {
    yes.fill(0);
    ask.fill(0);
    let mut need = 0;
    // The nodes after each byte of the text, as far as there are any.
    let mut path = [node; LONGEST + 1];
    let mut known = 0;
    // After how many bytes there was another way on for the first time.
    let mut open = usize::MAX;
    let mut rest = entries;
    while let Some(entry) = rest.first() {
        let text = entry.text(texts);
        known = known.min(entry.common as usize);
        if open > known {
            open = usize::MAX;
        }
        let mut node = path.get(known).copied().unwrap_or(node);
        // Whether the text goes no further than what is known of it.
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

/// Asks about all texts that are to be asked about: what is known of a beginning holds for all that begin so.
fn ask_in_order(entries: &[Entry], texts: &[u8], constraint: &Constraint<'_>, yes: &mut [u64], ask: &mut [u64]) {
    // The places after the first bytes of the text that was asked about last.
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

/// How many texts, at least one, begin with the first `len` bytes of the first one: they follow each other.
fn alike_up_to(entries: &[Entry], texts: &[u8], len: usize) -> usize {
    let Some(start) = entries.first().and_then(|entry| entry.text(texts).get(..len)) else { return 1 };
    let begins_alike = |entry: &Entry| entry.text(texts).starts_with(start);
    // Mostly they are few; the first byte of an answer refuses thousands.
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
