//! Stands for `more.rs` and `memory.rs` in builds without the feature `samplers`: all of its steps are off, and it has
//! no state.

use core::marker::PhantomData;

use super::Link;
use super::candidates::{Candidates, Slot};
use super::scratch::Word;
use crate::TokenId;

/// Parameters of the steps of the feature `samplers`, which this build does not have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct More {}

impl More {
    /// All off.
    pub const OFF: Self = Self {};

    pub(super) const fn min_keep(&self) -> usize {
        0
    }

    pub(super) const fn is_mirostat(&self) -> bool {
        false
    }

    pub(super) const fn is_dynamic(&self) -> bool {
        false
    }

    pub(super) const fn cools(&self, _: f32) -> bool {
        false
    }

    pub(super) const fn filters(&self, _: Link) -> bool {
        false
    }

    pub(super) const fn history(&self) -> usize {
        0
    }

    pub(super) const fn words(&self) -> usize {
        0
    }
}

/// Remembers nothing.
pub(super) struct Memory<'s>(PhantomData<&'s ()>);

impl<'s> Memory<'s> {
    pub fn new(_: &More, _: &'s mut [Word]) -> Self {
        Self(PhantomData)
    }

    pub fn push(&mut self, _: TokenId) {}

    pub fn clear(&mut self, _: &More) {}

    pub fn apply_to_all(&mut self, _: &More, _: Link, _: &mut [f32], _: f32) {}

    pub fn apply<'c>(
        &mut self,
        _: &More,
        _: Link,
        kept: Candidates<'c>,
        _: f32,
        _: impl FnOnce() -> f64,
    ) -> Candidates<'c> {
        kept
    }

    pub fn cool<'c>(_: &More, temperature: f32, kept: Candidates<'c>) -> (Candidates<'c>, f32) {
        (kept, temperature)
    }

    pub fn mirostat<'c>(&self, _: &More, slots: &'c mut [Slot], logits: &[f32], _: f32) -> Candidates<'c> {
        Candidates::best(slots, logits, &mut |_| true)
    }

    pub fn draw(&mut self, _: &More, _: bool, kept: &Candidates<'_>, temperature: f32, random: f64) -> Option<TokenId> {
        kept.draw(temperature, random)
    }
}
