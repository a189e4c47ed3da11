//! A session with its own memory, for tests.

use super::unwritten::unwritten;
use arenite::{Gguf, Kernels, Line, Model, Options, Plan, Session};

/// A model with the memory to run it.
pub struct Run<'a> {
    pub model: Model<'a>,
    pub plan: Plan,
    pub kernels: &'static Kernels,
    workspace: Vec<Line>,
    kv: Vec<Line>,
}

impl<'a> Run<'a> {
    /// Opens the model in `file`, with a context of 256 and batches of 16 unless `change` says otherwise.
    pub fn new(file: &'a [u8], change: impl FnOnce(&mut Options)) -> Self {
        Self::of(&Gguf::parse(file).unwrap(), change)
    }

    /// Opens a parsed model.
    pub fn of(gguf: &Gguf<'a>, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::new().context(256);
        change(&mut options);
        let plan = Plan::new(gguf, options).unwrap();
        let lines = |bytes: usize| vec![Line::ZERO; bytes.div_ceil(64)];
        Self {
            model: Model::new(gguf).unwrap(),
            plan,
            kernels: Kernels::detect(),
            workspace: lines(plan.workspace),
            kv: lines(plan.kv),
        }
    }

    /// Fills the memory of the next session.
    pub fn fill(&mut self, byte: u8) {
        Line::bytes_mut(&mut self.workspace).fill(byte);
        Line::bytes_mut(&mut self.kv).fill(byte);
    }

    pub fn session(&mut self) -> Session<'_, '_> {
        let (workspace, kv) = (unwritten(Line::bytes_mut(&mut self.workspace)), Line::bytes_mut(&mut self.kv));
        Session::new(&self.model, self.plan, workspace, kv).unwrap().with_kernels(self.kernels)
    }

    /// The logits of every token.
    pub fn all(&mut self, ids: &[u32]) -> Vec<Vec<f32>> {
        let mut all = vec![];
        self.session().prefill_all(ids, |_, logits| all.push(logits.to_vec())).unwrap();
        all
    }

    /// Decodes `n` tokens greedily after a prompt.
    pub fn greedy(&mut self, ids: &[u32], n: usize) -> Vec<u32> {
        let mut session = self.session();
        session.prefill(ids).unwrap();
        let mut out = vec![];
        for _ in 0..n {
            let token = argmax(session.logits());
            out.push(token);
            if out.len() < n {
                session.decode(token).unwrap();
            }
        }
        out
    }
}

/// The index of the largest value, the first of several.
pub fn argmax(logits: &[f32]) -> u32 {
    let best = |best: usize, i| if logits[i] > logits[best] { i } else { best };
    (0..logits.len()).fold(0, best) as u32
}
