//! Access to hidden states during a pass.

use core::ops::ControlFlow;

/// Point in the pass at which hidden states are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before a layer: the embedding before the first layer, else the previous layer's result.
    Before,
    /// After a layer's attention and residual addition.
    Attention,
    /// After a layer's feed-forward and residual addition.
    FeedForward,
    /// After a layer: the input of the next layer. In most models this is the same as `FeedForward`.
    After,
    /// The states after the final norm, before the head computes logits. The layer number given to the observer is then
    /// the number of layers.
    Logits,
}

/// Observes the hidden states of each batch and can stop the pass.
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
/// /// Largest absolute value of the hidden state, by layer.
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
/// assert_eq!(largest.0.len(), model.spec().layers); // one batch, observed after each layer
/// # Ok::<(), arenite::Error>(())
/// ```
pub trait Observer {
    /// True if `observe` should be called at `stage`. The default is always true.
    #[inline(always)]
    fn wants(&self, stage: Stage) -> bool {
        let _ = stage;
        true
    }

    /// Receives `states`, `[tokens][dim]`; the first token is at `position`. `Break` stops the pass, and the contexts
    /// return to their state before this batch.
    fn observe(&mut self, stage: Stage, layer: usize, position: usize, states: &[f32]) -> ControlFlow<()>;
}

/// Callback for the input of every linear layer. Its arguments are the matrix's bytes in the model (for an expert, its
/// part of the tensor; an empty slice if the matrix is in a storage) and the input, `[tokens][columns]`.
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
/// assert_eq!(seen.into_inner(), 3 * model.spec().dim); // per token, as wide as the hidden state
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
