//! Looking at hidden states on their way.

use core::ops::ControlFlow;

/// Where in the pass a hidden state is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before a layer: the embedding before the first, what the layer before it made before others.
    Before,
    /// After a layer's attention and its residual.
    Attention,
    /// After a layer's feed-forward and its residual.
    FeedForward,
    /// After a layer: what the next one gets. Most models do nothing between the feed-forward and this.
    After,
    /// After the last norm, before the head makes logits of it; the number of layers stands for the
    /// layer.
    Logits,
}

/// Sees the hidden states of each batch and may stop the pass.
///
/// `()` observes nothing and costs nothing.
///
/// # Examples
///
/// ```
/// use core::ops::ControlFlow;
///
/// use arenite::{Gguf, Line, Model, Observer, Options, Plan, Session, Stage};
///
/// /// How large the numbers of a state become from layer to layer.
/// #[derive(Default)]
/// struct Largest(Vec<f32>);
///
/// impl Observer for Largest {
///     fn wants(&self, stage: Stage) -> bool {
///         stage == Stage::After
///     }
///     fn observe(&mut self, _: Stage, _layer: usize, _position: usize, states: &[f32]) -> ControlFlow<()> {
///         self.0.push(states.iter().fold(0.0, |most, x| x.abs().max(most)));
///         ControlFlow::Continue(())
///     }
/// }
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let model = Model::new(&gguf)?;
/// # let plan = Plan::new(&gguf, Options::new().context(64))?;
/// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
/// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
/// let mut session = Session::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
///
/// let mut largest = Largest::default();
/// let _ = session.prefill_observed(&[1, 300, 301], &mut largest)?;
/// assert_eq!(largest.0.len(), model.spec().layers); // one batch, seen after each layer
/// # Ok::<(), arenite::Error>(())
/// ```
pub trait Observer {
    /// Whether to be called at `stage`. By default at all.
    #[inline(always)]
    fn wants(&self, stage: Stage) -> bool {
        let _ = stage;
        true
    }

    /// `states` is `[tokens][dim]`, the first token at `position`. To break stops the pass: the
    /// session stays where it was before this batch.
    fn observe(&mut self, stage: Stage, layer: usize, position: usize, states: &[f32]) -> ControlFlow<()>;
}

/// Sees the input of every linear layer: called with the bytes of the matrix, as they lie in the model (of an expert,
/// its part of the tensor), and with what it multiplies, `[tokens][columns]`.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use arenite::{Gguf, Line, Model, Options, Plan, Session};
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// let gguf = Gguf::parse(&file)?;
/// let model = Model::new(&gguf)?;
/// # let plan = Plan::new(&gguf, Options::new().context(64))?;
/// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
/// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
/// let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv));
/// let query = gguf.tensor("blk.0.attn_q.weight").unwrap();
///
/// let seen = AtomicUsize::new(0);
/// let see = |matrix: &[u8], x: &[f32]| {
///     if matrix.as_ptr() == query.data.as_ptr() {
///         seen.fetch_add(x.len(), Ordering::Relaxed);
///     }
/// };
/// Session::new(&model, plan, workspace, kv)?.with_inputs(&see).prefill(&[1, 300, 301])?;
/// assert_eq!(seen.into_inner(), 3 * model.spec().dim); // of each token, as wide as the state
/// # Ok::<(), arenite::Error>(())
/// ```
pub type Inputs<'a> = dyn Fn(&[u8], &[f32]) + Sync + 'a;

impl Observer for () {
    #[inline(always)]
    fn wants(&self, _: Stage) -> bool {
        false
    }

    #[inline(always)]
    fn observe(&mut self, _: Stage, _: usize, _: usize, _: &[f32]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
