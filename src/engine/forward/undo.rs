//! Passes whose last tokens can be undone, in models with recurrent states.
//!
//! A tentative pass advances a copy of each state and saves the rows of its projections. The next pass first takes the
//! rows of the accepted tokens into the state, which costs no matrix products and no further pass over the memory of the
//! states.

use crate::engine::layout::{Ahead, STATES, Segment};
use crate::kernel::copy_row;
use crate::model::Spec;

use super::Forward;

/// What is needed to remove the last tokens of contexts: how far the predicting layers have read, and the rows that are
/// not yet part of the recurrent states.
pub(crate) struct Undo<'w> {
    /// What the predicting layers have read of each context, and what its recurrent states lack; empty if no drafts are
    /// planned.
    ahead: &'w mut [Ahead],
    /// The rows that recurrent layers have computed for proposed tokens, until these tokens are accepted or removed:
    /// `[contexts][layers with a state][rows]`.
    pending: &'w mut [f32],
    /// Scratch memory for advancing a copy of one layer's state over pending rows. It holds the copy and, after it, the
    /// outputs that are computed meanwhile, which nothing reads.
    pub scratch: &'w mut [f32],
    contexts: usize,
}

impl<'w> Undo<'w> {
    pub fn new(ahead: &'w mut [Ahead], pending: &'w mut [f32], scratch: &'w mut [f32], contexts: usize) -> Self {
        ahead.fill(Ahead::default());
        Self { ahead, pending, scratch, contexts }
    }

    /// Progress of a context's drafts.
    pub fn ahead(&self, context: usize) -> Ahead {
        self.ahead.get(context).copied().unwrap_or_default()
    }

    pub fn set_ahead(&mut self, context: usize, ahead: Ahead) {
        if let Some(place) = self.ahead.get_mut(context) {
            *place = ahead;
        }
    }

    /// Rows of a context and a layer, each `stride` long.
    pub fn rows(&mut self, spec: &Spec<'_>, index: usize, context: usize) -> &mut [f32] {
        let layers = spec.layers_with_state(spec.layers);
        let all = self.pending.len().checked_div(layers * self.contexts).unwrap_or(0);
        let start = (context * layers + spec.layers_with_state(index)) * all;
        self.pending.get_mut(start..start + all).unwrap_or_default()
    }

    /// Copies the pending rows of one context to another.
    pub fn share(&mut self, from: usize, to: usize) {
        let len = self.pending.len().checked_div(self.contexts).unwrap_or(0);
        copy_row(self.pending, len, from, to);
    }
}

impl Forward<'_, '_> {
    /// Updates the recurrent states of a context with those rows that the states do not contain yet. The last of these
    /// rows is before `position`.
    pub fn settle(&mut self, context: usize, position: usize) {
        if let Some(pool) = self.pools.get_mut(STATES) {
            pool.claim(context, 0, 0);
        }
        self.provide(context, STATES);
        let ahead = Ahead { tentative: 0, ..self.undo.ahead(context) };
        self.undo.set_ahead(context, ahead);
        let segment = Segment::new([context, position, 0, 0]);
        let Some(mixer) = self.spec.recurrent() else { return };
        for layer in (0..self.spec.layers).map(|index| self.spec.layer(index)).filter(|layer| layer.has_state()) {
            self.settle_layer(&layer, &mixer, &segment);
        }
        self.undo.set_ahead(context, Ahead { pending: 0, ..ahead });
    }
}
