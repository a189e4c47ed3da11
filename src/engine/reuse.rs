//! Reuse of keys and values at positions other than the positions for which they were computed.

use core::ops::Range;

use super::context::Rows;
use super::layout::{SOURCE, STATES};
use super::{Context, Engine};
use crate::model::{Positions, QkNorm};
use crate::{Error, Name};

impl Engine<'_, '_> {
    /// Returns true if [`reuse`](Self::reuse) works with this model and this plan.
    pub fn can_reuse(&self) -> bool {
        self.no_reuse().is_none()
    }

    /// Returns the reason why cached keys of this model cannot be moved to another position; `None` if they can.
    fn no_reuse(&self) -> Option<&'static str> {
        let (spec, plan) = (self.model.spec(), &self.plan);
        let is_rotary = matches!(spec.positions(), Positions::Rotary | Positions::Alibi { .. });
        #[cfg(feature = "drafts")]
        if self.forward.next.is_some() {
            return Some("layers that predict further tokens");
        }
        match () {
            () if self.forward.source.is_some() => Some("an encoder"),
            () if !spec.is_causal() || spec.scoring().is_some() => Some("attention to later tokens"),
            () if plan.store.tiles.get(STATES).is_some_and(|tiles| *tiles > 0) => Some("recurrent layers"),
            () if (0..SOURCE).any(|kind| plan.is_ring(spec, kind)) => Some("a sliding window"),
            () if spec.latent().is_some() => Some("latent attention"),
            () if !is_rotary => Some("positions in its embeddings"),
            () if spec.qk_norm_after_rope() && spec.qk_norm() != QkNorm::None => Some("norms after the rotation"),
            () => None,
        }
    }

    /// Appends `tokens` of `from` to `context` without computing them: their keys are rotated to the new positions, and
    /// their values stay the same. `context` has no valid logits until it reads a token.
    ///
    /// The result is an approximation. Keys and values also depend on earlier tokens, which may be different in
    /// `context`, and rotating rounds. The result does not depend on kernels or workers. In llama.cpp the same is
    /// called `--cache-reuse`.
    ///
    /// ```
    /// use arenite::{Engine, Gguf, Line, Model, Options, Plan, Work};
    ///
    /// # let file = include_bytes!("../../tests/fixtures/qwen3/model.gguf");
    /// let gguf = Gguf::parse(file)?;
    /// let model = Model::new(&gguf)?;
    /// let plan = Plan::new(&gguf, Options::new().context(64).contexts(2))?;
    /// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    /// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
    /// # let mut engine = Engine::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
    /// let mut old = engine.open()?;
    /// engine.run(&mut [Work::prefill(&mut old, &[1, 2, 3, 4, 5, 6])])?;
    /// let mut new = engine.open()?;
    /// engine.run(&mut [Work::prefill(&mut new, &[1, 9])])?; // 9 instead of 2 and 3
    /// engine.reuse(&mut new, &old, 3..6)?;
    /// engine.run(&mut [Work::decode(&mut new, 7)])?;
    /// assert_eq!(new.position(), 6);
    /// # Ok::<(), arenite::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// On error nothing changes. [`Error::Unsupported`] if [`can_reuse`](Self::can_reuse) is false, if one of the
    /// contexts has read pictures in a model with rotary positions of several axes, or if the adapters of the contexts
    /// differ; [`Error::CannotRewind`] if `from` has not read all of `tokens`; [`Error::ContextFull`];
    /// [`Error::OutOfPages`]; [`Error::ForeignContext`].
    pub fn reuse(&mut self, context: &mut Context, from: &Context, tokens: Range<usize>) -> Result<(), Error> {
        self.known(context)?;
        self.known(from)?;
        if let Some(name) = self.no_reuse().or_else(|| self.differs(context, from)) {
            return Err(Error::Unsupported { what: "reuse of keys with", name: Name::new(name.as_bytes()) });
        }
        let (first, count) = (context.position, tokens.len());
        if tokens.end > from.position {
            return Err(Error::CannotRewind { position: tokens.end, earliest: 0, latest: from.position });
        }
        let (needed, most) = (first.saturating_add(count), self.plan.options.context);
        if needed > most {
            return Err(Error::ContextFull { context: most, needed });
        }
        if count == 0 {
            return Ok(());
        }
        self.reserve(core::iter::once((context.slot, first, count)))?;
        self.forward.move_keys((from.slot, tokens.start), (context.slot, first), count);
        context.position += count;
        context.reached = context.reached.max(context.position);
        context.logits = Rows::default();
        Ok(())
    }

    /// Returns how two contexts differ, so that one cannot use the other's keys.
    #[allow(unused_variables)]
    fn differs(&self, context: &Context, from: &Context) -> Option<&'static str> {
        #[cfg(feature = "lora")]
        {
            let of = |context: &Context| self.forward.compute.lora.fingerprint(context.slot);
            if of(context) != of(from) {
                return Some("other adapters");
            }
        }
        #[cfg(feature = "vision")]
        if [context, from].iter().any(|context| self.forward.turns.less(context.slot) > 0) {
            return Some("pictures");
        }
        None
    }
}
