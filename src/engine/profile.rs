//! Where the time of a pass goes.

/// A section of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Section {
    /// Embeddings of tokens and positions, and inputs that layers have of their own.
    Embedding,
    /// Norms of the hidden state, and adding to it.
    Norms,
    /// Queries, keys and values, or what else a mixer makes of its input.
    Qkv,
    /// What is done to heads before they meet: norms, rotation, keys and values into the cache.
    Heads,
    /// Queries over keys and values, or states of fixed size.
    Attention,
    /// The matrix after attention.
    Output,
    /// The whole of a layer with a state of fixed size, but for its norm.
    State,
    /// The feed-forward part, or the experts.
    FeedForward,
    /// The logits.
    Head,
}

impl Section {
    /// All of them, in the order of a pass.
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

/// Is told what a pass has just done, and may look at a clock: see [`Engine::with_profiler`](crate::Engine::with_profiler).
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
/// clock.0.lock().unwrap().0 = Instant::now(); // the pass begins
/// session.prefill(&[1, 300, 301])?;
/// for (section, spent) in &clock.0.lock().unwrap().1 {
///     println!("{section:?}: {spent:?}");
/// }
/// # assert!(clock.0.lock().unwrap().1.contains_key(&Section::FeedForward));
/// # Ok::<(), arenite::Error>(())
/// ```
pub trait Profiler: Sync {
    /// What was done since the last call, or since the pass began, was this.
    fn done(&self, section: Section);
}
