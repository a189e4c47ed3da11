//! The pictures that contexts have read, in models with rotary positions of several axes. A picture takes fewer rotary
//! positions than tokens.

use bytemuck::{Pod, Zeroable};

use crate::kernel::copy_row;

/// A picture that a context has read, in a model with rotary positions of several axes.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Turn {
    /// Position after the picture; 0 for an unused entry.
    pub end: u32,
    /// How much less the rotary position is than the position, for tokens after the picture. (A picture takes more
    /// positions than rotary positions.)
    pub less: u32,
}

/// The pictures that each context has read.
#[derive(Default)]
pub(crate) struct Turns<'w> {
    /// `[contexts][pictures]`: each context's pictures in order, with unused entries at the end.
    table: &'w mut [Turn],
    /// Entries per context.
    each: usize,
}

impl<'w> Turns<'w> {
    pub fn new(table: &'w mut [Turn], contexts: usize) -> Self {
        table.fill(Turn::default());
        Self { each: table.len().checked_div(contexts).unwrap_or(0), table }
    }

    pub fn of(&self, slot: usize) -> &[Turn] {
        self.table.get(slot * self.each..(slot + 1) * self.each).unwrap_or(&[])
    }

    pub fn of_mut(&mut self, slot: usize) -> &mut [Turn] {
        self.table.get_mut(slot * self.each..(slot + 1) * self.each).unwrap_or_default()
    }

    /// The difference between a context's next position and the rotary position of the token there. The rotary position
    /// is smaller, because a picture takes fewer rotary positions than tokens.
    pub fn less(&self, slot: usize) -> usize {
        self.of(slot).iter().map(|turn| turn.less as usize).max().unwrap_or(0)
    }

    /// Number of further pictures for which there is room.
    pub fn room(&self, slot: usize) -> usize {
        self.of(slot).iter().filter(|turn| turn.end == 0).count()
    }

    pub fn push(&mut self, slot: usize, turn: Turn) {
        if let Some(place) = self.of_mut(slot).iter_mut().find(|turn| turn.end == 0) {
            *place = turn;
        }
    }

    /// Forgets the pictures that end after `position`.
    pub fn rewind(&mut self, slot: usize, position: usize) {
        for turn in self.of_mut(slot).iter_mut().filter(|turn| turn.end as usize > position) {
            *turn = Turn::default();
        }
    }

    /// Gives one context the pictures of another.
    pub fn share(&mut self, from: usize, to: usize) {
        copy_row(self.table, self.each, from, to);
    }
}
