//! Profiling: where the time of a pass is spent.

/// A section of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Section {
    /// Embeddings of tokens and positions, and additional inputs of layers.
    Embedding,
    /// Norms of the hidden state, and residual additions.
    Norms,
    /// The first matrices of a layer: they compute queries, keys and values, or the inputs of a recurrent mixer.
    Qkv,
    /// Operations on heads before attention: norms, rotation, storing keys and values.
    Heads,
    /// Reading the cache by attention, or the update of recurrent states.
    Attention,
    /// The linear layer after attention.
    Output,
    /// A whole recurrent layer except its norm.
    State,
    /// The feed-forward or the experts.
    FeedForward,
    /// The head: logits.
    Head,
}

impl Section {
    /// All sections, in the order of a pass.
    pub const ALL: [Self; 9] = [
        Self::Embedding,
        Self::Norms,
        Self::Qkv,
        Self::Heads,
        Self::Attention,
        Self::Output,
        Self::State,
        Self::FeedForward,
        Self::Head,
    ];
}

/// Receives the sections of a pass as they finish, for example to measure times: see
/// [`Engine::with_profiler`](crate::Engine::with_profiler).
///
/// # Examples
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::{Duration, Instant};
///
/// use arenite::{Gguf, Line, Model, Options, Plan, Profiler, Section, Session};
///
/// struct Clock(Mutex<(Instant, HashMap<Section, Duration>)>);
///
/// impl Profiler for Clock {
///     fn done(&self, section: Section) {
///         let (last, spent) = &mut *self.0.lock().unwrap();
///         *spent.entry(section).or_default() += last.elapsed();
///         *last = Instant::now();
///     }
/// }
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// # let gguf = Gguf::parse(&file)?;
/// # let model = Model::new(&gguf)?;
/// # let plan = Plan::new(&gguf, Options::new().context(64))?;
/// # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
/// # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
/// # let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv));
/// let clock = Clock(Mutex::new((Instant::now(), HashMap::new())));
/// let mut session = Session::new(&model, plan, workspace, kv)?.with_profiler(&clock);
/// clock.0.lock().unwrap().0 = Instant::now(); // the pass starts
/// session.prefill(&[1, 300, 301])?;
/// for (section, spent) in &clock.0.lock().unwrap().1 {
///     println!("{section:?}: {spent:?}");
/// }
/// # assert!(clock.0.lock().unwrap().1.contains_key(&Section::FeedForward));
/// # Ok::<(), arenite::Error>(())
/// ```
pub trait Profiler: Sync {
    /// Called when `section` has finished. The section began at the previous call, or at the start of the pass.
    fn done(&self, section: Section);
}
