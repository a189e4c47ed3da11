//! State of an answer in a grammar: several stacks that share their frames.

use heapless::Vec;

use super::table::{Grammar, Jump, Node};
use crate::TokenId;

/// Maximum depth of nested rules. Paths that need a greater depth are refused before they begin.
const DEPTH: usize = 64;
/// Maximum number of frames of all stacks together. It is twice the maximum depth, so that a single stack always fits.
const FRAMES: usize = 2 * DEPTH;
/// Maximum number of stacks. If a grammar is so ambiguous that it needs more stacks, some stacks are dropped, and
/// output that only the dropped stacks allow is refused.
const ITEMS: usize = 32;
/// Maximum number of rule calls that are followed after each byte, so that the time is bounded for any table. In
/// compiled tables, fewer calls already lead to [`ITEMS`] stacks.
const CALLS: usize = 8 * ITEMS;

/// The frame below all others.
const BOTTOM: u16 = u16::MAX;

/// A frame of the stack is a return address: the node at which a rule continues after a rule that it has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    node: Node,
    /// Index of the frame below, which is always lower than this frame's index.
    below: u16,
    /// Number of frames from here to the bottom.
    depth: u16,
}

/// A stack: its top node, and the frames below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    node: Node,
    frame: u16,
}

/// The state of an answer in a grammar: determines how the answer may continue.
///
/// A state is a value of about a kilobyte without pointers: a copy is a fork, and restoring an old copy is a rewind.
#[derive(Clone, Debug)]
pub struct State {
    frames: Vec<Frame, FRAMES>,
    items: Vec<Item, ITEMS>,
    complete: bool,
}

impl State {
    /// State before the first byte.
    pub fn new(grammar: &Grammar<'_>) -> Self {
        let mut state = Self { frames: Vec::new(), items: Vec::new(), complete: false };
        state.add(grammar, Item { node: grammar.root(), frame: BOTTOM });
        state.close(grammar);
        state.compact();
        state
    }

    /// True if the text is complete: the answer may end here.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// True if nothing may follow.
    pub fn is_over(&self) -> bool {
        self.items.is_empty()
    }

    /// True if these bytes may follow.
    ///
    /// If there is only one stack, the state is not copied for most tokens. These tokens only lead to nodes that have
    /// nothing but byte transitions, and so the frames do not change.
    #[inline]
    pub fn allows(&self, grammar: &Grammar<'_>, mut bytes: impl Iterator<Item = u8>) -> bool {
        let mut after = Self::dead();
        match self.items.as_slice() {
            [item] => {
                let mut node = item.node;
                let room = DEPTH.saturating_sub(self.depth(item.frame));
                loop {
                    let Some(byte) = bytes.next() else {
                        // Only a damaged table has nodes without transitions.
                        return grammar.head(node).is_some_and(|head| head.ranges() > 0 || !head.is_plain());
                    };
                    let next = grammar.step(node, byte).and_then(|next| Some((next, grammar.head(next)?)));
                    let Some((next, head)) = next.filter(|(_, head)| head.need() <= room) else { return false };
                    node = next;
                    if !head.is_plain() {
                        break;
                    }
                }
                let _ = after.frames.extend_from_slice(&self.frames);
                after.add(grammar, Item { node, frame: item.frame });
                after.close(grammar);
            }
            _ => {
                let Some(byte) = bytes.next() else { return true };
                if !self.may_follow(grammar, byte) {
                    return false;
                }
                after.copy(self);
                after.push_far(grammar, byte);
            }
        }
        for byte in bytes {
            if !after.is_alive() {
                break;
            }
            after.push_far(grammar, byte);
        }
        after.is_alive()
    }

    /// Moves the state on by these bytes of an answer. If the grammar does not allow them next, returns `false` and
    /// leaves the state unchanged.
    pub fn accept(&mut self, grammar: &Grammar<'_>, bytes: impl Iterator<Item = u8> + Clone) -> bool {
        let mut next = Self::dead();
        next.copy(self);
        bytes.for_each(|byte| next.push_far(grammar, byte));
        self.replace(&next)
    }

    /// True if this token may follow: by its bytes, if the token stands for text, or by its id.
    pub(super) fn allows_token(
        &self,
        grammar: &Grammar<'_>,
        token: TokenId,
        bytes: Option<impl Iterator<Item = u8>>,
    ) -> bool {
        let by_number =
            || self.token_jumps(grammar, token).next().is_some() && self.after_token(grammar, token).is_alive();
        (grammar.has_tokens() && by_number()) || bytes.is_some_and(|bytes| self.allows(grammar, bytes))
    }

    /// Advances by a token: by its bytes (if it stands for text), by its id, or by both. If the token may not follow,
    /// returns false and leaves the state unchanged.
    pub(super) fn accept_token(
        &mut self,
        grammar: &Grammar<'_>,
        token: TokenId,
        bytes: Option<impl Iterator<Item = u8>>,
    ) -> bool {
        let mut next = Self::dead();
        if let Some(bytes) = bytes {
            next.copy(self);
            bytes.for_each(|byte| next.push_far(grammar, byte));
        }
        if grammar.has_tokens() {
            next.compact();
            next.join(&self.after_token(grammar, token));
        }
        self.replace(&next)
    }

    /// Returns the state after a token if only transitions on token ids are followed, not transitions on bytes.
    #[inline(never)] // keeps the states off the callers' stacks: few grammars name tokens
    fn after_token(&self, grammar: &Grammar<'_>, token: TokenId) -> Self {
        let mut after = Self { frames: self.frames.clone(), ..Self::dead() };
        for item in self.token_jumps(grammar, token) {
            after.add(grammar, item);
        }
        after.close(grammar);
        after
    }

    /// Returns the stacks after a token, if the grammar names the token by its id. Transitions on the bytes of the
    /// token's text are not followed.
    fn token_jumps(&self, grammar: &Grammar<'_>, by: TokenId) -> impl Iterator<Item = Item> {
        let jumps = move |item: &Item| {
            let (node, frame) = (item.node, item.frame);
            let jumps = grammar.head(node).map(|head| grammar.jumps(node, head)).into_iter().flatten();
            jumps.filter_map(move |jump| match jump {
                Jump::Token { token, next } if token == by => Some(Item { node: next, frame }),
                Jump::NotToken { token, next } if token != by => Some(Item { node: next, frame }),
                _ => None,
            })
        };
        self.items.iter().flat_map(jumps)
    }

    /// Returns the top node of each stack, and the number of frames that can still be pushed.
    pub(super) fn tops(&self) -> impl Iterator<Item = (Node, usize)> {
        self.items.iter().map(|item| (item.node, DEPTH.saturating_sub(self.depth(item.frame))))
    }

    fn is_alive(&self) -> bool {
        self.complete || !self.items.is_empty()
    }

    /// Makes `next` the state and drops the frames that it does not use. If `next` has no stacks, nothing changes and
    /// the result is false.
    fn replace(&mut self, next: &Self) -> bool {
        let is_alive = next.is_alive();
        if is_alive {
            self.clear();
            self.join(next);
        }
        is_alive
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.items.clear();
        self.complete = false;
    }

    /// Copies the other state's contents into this state. They are copied one by one, because a temporary copy of the
    /// whole state would take stack memory.
    fn copy(&mut self, other: &Self) {
        self.clear();
        let _ = self.frames.extend_from_slice(&other.frames);
        let _ = self.items.extend_from_slice(&other.items);
        self.complete = other.complete;
    }

    fn may_follow(&self, grammar: &Grammar<'_>, byte: u8) -> bool {
        self.items.iter().any(|item| grammar.step(item.node, byte).is_some())
    }

    /// State after one more byte, if the byte is allowed.
    pub(super) fn after_byte(&self, grammar: &Grammar<'_>, byte: u8) -> Option<Self> {
        // Most bytes are refused without a copy.
        if !self.may_follow(grammar, byte) {
            return None;
        }
        let mut after = self.clone();
        after.push_far(grammar, byte);
        after.is_alive().then_some(after)
    }

    fn dead() -> Self {
        Self { frames: Vec::new(), items: Vec::new(), complete: false }
    }

    /// Advances by one byte; compacts the frames if room is scarce, which changes the indices of frames.
    fn push_far(&mut self, grammar: &Grammar<'_>, byte: u8) {
        if self.frames.len() > FRAMES - ITEMS {
            self.compact();
        }
        self.push(grammar, byte);
    }

    /// Advances by one byte.
    fn push(&mut self, grammar: &Grammar<'_>, byte: u8) {
        let before = core::mem::take(&mut self.items);
        self.complete = false;
        for item in &before {
            if let Some(node) = grammar.step(item.node, byte) {
                self.add(grammar, Item { node, frame: item.frame });
            }
        }
        self.close(grammar);
    }

    /// Adds a stack to the state, unless the state has this stack already, or the rules on the stack need more than
    /// [`DEPTH`] frames to end.
    fn add(&mut self, grammar: &Grammar<'_>, item: Item) {
        let fits = grammar.head(item.node).is_some_and(|head| self.depth(item.frame) + head.need() <= DEPTH);
        if fits && !self.items.contains(&item) {
            let _ = self.items.push(item);
        }
    }

    /// Resolves rule calls and returns: replaces each stack by the stacks that the calls and returns of its top node
    /// lead to. Then keeps only the stacks whose top node has a transition on a byte or a token.
    fn close(&mut self, grammar: &Grammar<'_>) {
        let (mut at, mut calls) = (0, CALLS);
        while let Some(&item) = self.items.get(at) {
            at += 1;
            let Some(head) = grammar.head(item.node).filter(|head| !head.is_plain()) else { continue };
            if head.is_final() {
                match self.frames.get(usize::from(item.frame)) {
                    Some(&Frame { node, below, .. }) => self.add(grammar, Item { node, frame: below }),
                    None => self.complete = true,
                }
            }
            for jump in grammar.jumps(item.node, head) {
                if calls == 0 || self.items.is_full() {
                    break;
                }
                let Jump::Call { start, next } = jump else { continue };
                calls -= 1;
                // A call at the end of a rule is a tail call: the called rule replaces its caller, so that right
                // recursion needs no frames.
                let returns = grammar.head(next).is_some_and(|head| head.only_returns());
                let frame = if returns { Some(item.frame) } else { self.frame(grammar, next, item.frame) };
                if let Some(frame) = frame {
                    self.add(grammar, Item { node: start, frame });
                }
            }
        }
        let has_way_on = |item: &Item| {
            grammar.head(item.node).is_some_and(|head| {
                let by_token = |jump| !matches!(jump, Jump::Call { .. });
                head.ranges() > 0 || grammar.has_tokens() && grammar.jumps(item.node, head).any(by_token)
            })
        };
        self.items.retain(has_way_on);
    }

    fn depth(&self, frame: u16) -> usize {
        self.frames.get(usize::from(frame)).map_or(0, |frame| usize::from(frame.depth))
    }

    /// Puts a new frame on the stack whose top frame is `below`, and returns the new frame's index. `None` if there is
    /// no room.
    fn frame(&mut self, grammar: &Grammar<'_>, node: Node, below: u16) -> Option<u16> {
        let depth = self.depth(below);
        let need = grammar.head(node)?.need();
        if depth + need > DEPTH || depth >= DEPTH {
            return None;
        }
        self.place(Frame { node, below, depth: depth as u16 + 1 })
    }

    /// Returns the index of an equal frame, or adds the frame and returns the new index. Returns `None` if the frame is
    /// new and there is no room.
    fn place(&mut self, frame: Frame) -> Option<u16> {
        if let Some(place) = self.frames.iter().rposition(|there| *there == frame) {
            return Some(place as u16);
        }
        self.frames.push(frame).ok()?;
        Some(self.frames.len() as u16 - 1)
    }

    /// Drops the frames that no stack uses.
    #[inline(never)] // keeps its copy off the callers' stacks
    fn compact(&mut self) {
        let before = core::mem::replace(self, Self::dead());
        self.join(&before);
    }

    /// Adds the stacks of state `other` to this state, and the frames that these stacks use. What exceeds the limits on
    /// stacks and frames is left out.
    fn join(&mut self, other: &Self) {
        let mut is_used = [false; FRAMES];
        let mut mark = |frame: u16| {
            if let Some(used) = is_used.get_mut(usize::from(frame)) {
                *used = true;
            }
        };
        other.items.iter().for_each(|item| mark(item.frame));
        for at in (0..other.frames.len()).rev() {
            if let (Some(true), Some(frame)) = (is_used.get(at), other.frames.get(at))
                && let Some(used) = is_used.get_mut(usize::from(frame.below))
            {
                *used = true;
            }
        }
        // Copies the frames in order of their index. The frame below always has a lower index, so its new index is then
        // already known.
        let mut places = [None; FRAMES];
        let place_of = |places: &[Option<u16>; FRAMES], frame: u16| {
            if frame == BOTTOM { Some(BOTTOM) } else { places.get(usize::from(frame)).copied().flatten() }
        };
        for ((frame, used), at) in other.frames.iter().zip(is_used).zip(0..) {
            let below = place_of(&places, frame.below).filter(|_| used);
            if let (Some(below), Some(place)) = (below, places.get_mut::<usize>(at)) {
                *place = self.place(Frame { below, ..*frame });
            }
        }
        for item in &other.items {
            let item = place_of(&places, item.frame).map(|frame| Item { frame, ..*item });
            if let Some(item) = item.filter(|item| !self.items.contains(item)) {
                let _ = self.items.push(item);
            }
        }
        self.complete |= other.complete;
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        (&self.frames, &self.items, self.complete) == (&other.frames, &other.items, other.complete)
    }
}

impl Eq for State {}
