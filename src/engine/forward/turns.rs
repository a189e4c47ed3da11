//! Two stacks of layers that run in turns ([HRM](https://arxiv.org/abs/2506.21734)). Each stack has a hidden state. One
//! state begins as the token's embedding, the other as a learned vector. The input of a stack is the sum of both
//! states, and the output replaces the stack's own state. This file also stores the embeddings for models that add them
//! after every layer.
//!
//! The residual stream holds the hidden state of the stack that ran last; `inputs` holds the state of the other stack
//! (see `Spec::beside`).

use super::{Forward, copy};
#[cfg(feature = "llama-like")]
use super::{Role, rows_mut};
#[cfg(feature = "llama-like")]
use crate::quant::le_f32;

impl Forward<'_, '_> {
    /// In a model whose two stacks of layers run in turns, adds the hidden states of both stacks before the first layer
    /// of a turn. In all other models, does nothing.
    pub(super) fn take_turn(&mut self, index: usize) {
        let at = self.beside_at();
        let Self { spec, hidden, inputs, rows, .. } = self;
        let Some(loops) = spec.loops().filter(|_| spec.takes_turns()) else { return };
        let Some(run) = index.checked_div(loops.run()).filter(|run| run * loops.run() == index) else { return };
        let len = *rows * spec.dim;
        let (Some(hidden), Some(other)) = (hidden.get_mut(..len), inputs.get_mut(at..at + len)) else { return };
        #[cfg(feature = "llama-like")]
        if run == 0 {
            let first = self.weights.vector(Role::HrmInit, 0);
            rows_mut(other, spec.dim).for_each(|row| {
                row.iter_mut().enumerate().for_each(|(i, x)| *x = le_f32(first, i));
            });
        }
        let was_high = run == 0 || loops.is_high(run - 1);
        for (x, other) in hidden.iter_mut().zip(other) {
            let sum = *x + *other;
            if loops.is_high(run) != was_high {
                *other = *x;
            }
            *x = sum;
        }
    }

    /// Saves the token embeddings of the pass, if the model adds them to the hidden states again at the end of every
    /// layer.
    pub(super) fn keep_embedding(&mut self) {
        let at = self.beside_at();
        let Self { spec, hidden, inputs, rows, .. } = self;
        let len = *rows * spec.dim;
        if spec.embedding_skip()
            && let (Some(hidden), Some(kept)) = (hidden.get(..len), inputs.get_mut(at..at + len))
        {
            copy(kept, hidden);
        }
    }
}
