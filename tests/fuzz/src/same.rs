//! Sessions in memory with arbitrary contents.

use arbitrary::Arbitrary;
use arenite::{Engine, Error, Gguf, Kernels, KvType, Line, Model, Options, Plan, Session};

use crate::list::{List, Token};
use crate::unwritten::unwritten;

/// Options and tokens for running a model.
#[derive(Arbitrary, Debug)]
pub struct Run {
    context: u8,
    batch: u8,
    kv: u8,
    /// Chooses the kernels to compare with, and the byte that fills their memory at first.
    other: u8,
    pub prompt: List<Token, 24>,
    /// Another prompt, run first.
    pub before: List<Token, 20>,
    /// Tokens that are decoded one by one.
    pub decoded: List<Token, 5>,
}

/// Maximum size of the workspace, and of the cache, in bytes.
const MOST: usize = 32 << 20;

impl Run {
    /// Returns the kernels to compare with, and the byte that fills their memory at first. The kernels may be the default
    /// ones. The scalar kernels, the last of the list, are slow: one choice of 16 selects them.
    pub fn other(&self) -> (&'static Kernels, u8) {
        let all: Vec<_> = Kernels::available().collect();
        let (last, at) = (all.len() - 1, usize::from(self.other / 2) % 16);
        let kernels = all[if at == 15 { last } else { at % last.max(1) }];
        (kernels, if self.other.is_multiple_of(2) { 0x3c } else { 0xff })
    }

    /// Returns the plan, unless its workspace or cache is larger than [`MOST`].
    pub fn plan(&self, gguf: &Gguf<'_>) -> Option<Plan> {
        self.plan_with(gguf, |options| options)
    }

    /// Like [`plan`](Self::plan), with further options.
    pub fn plan_with(&self, gguf: &Gguf<'_>, more: impl FnOnce(Options) -> Options) -> Option<Plan> {
        let kv = KvType::ALL[usize::from(self.kv) % KvType::ALL.len()];
        let (context, batch) = (1 + usize::from(self.context) % 64, 1 + usize::from(self.batch) % 16);
        let options = Options::new().context(context).batch(batch).kv(kv);
        let plan = Plan::new(gguf, more(options)).ok()?;
        (plan.workspace <= MOST && plan.kv <= MOST).then_some(plan)
    }
}

/// Memory for a session, filled with the byte `fill`.
pub struct Memory {
    workspace: Vec<Line>,
    kv: Vec<Line>,
}

impl Memory {
    pub fn new(plan: &Plan, fill: u8) -> Self {
        let lines = |bytes: usize| {
            let mut lines = vec![Line::ZERO; bytes.div_ceil(64)];
            Line::bytes_mut(&mut lines).fill(fill);
            lines
        };
        Self { workspace: lines(plan.workspace), kv: lines(plan.kv) }
    }

    pub fn session<'s>(&'s mut self, model: &'s Model<'_>, plan: Plan) -> Session<'s, 's> {
        let (workspace, kv) = (unwritten(Line::bytes_mut(&mut self.workspace)), Line::bytes_mut(&mut self.kv));
        Session::new(model, plan, workspace, kv).expect("exactly the planned bytes are enough")
    }

    pub fn engine<'s>(&'s mut self, model: &'s Model<'_>, plan: Plan) -> Engine<'s, 's> {
        let (workspace, kv) = (unwritten(Line::bytes_mut(&mut self.workspace)), Line::bytes_mut(&mut self.kv));
        Engine::new(model, plan, workspace, kv).expect("exactly the planned bytes are enough")
    }
}

/// All results of a session for the prompt and the tokens after it.
pub fn answer(session: &mut Session<'_, '_>, vocab: usize, run: &Run) -> Vec<Result<Vec<u32>, Error>> {
    let ids = |tokens: &[Token]| tokens.iter().map(|token| token.id(vocab)).collect::<Vec<_>>();
    let (prompt, mut all) = (ids(&run.prompt), vec![]);
    let encoded = session.encode(&prompt);
    all.push(encoded.map(|()| bits(session.states())));
    let prefilled = session.prefill(&prompt);
    all.push(prefilled.map(|()| bits(session.logits())));
    for token in ids(&run.decoded) {
        let decoded = session.decode(token);
        all.push(decoded.map(|()| bits(session.logits())));
    }
    all
}

/// The bits of numbers, with one pattern for all NaN.
pub fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| if number.is_nan() { f32::NAN.to_bits() } else { number.to_bits() }).collect()
}

/// Panics if the output depends on anything but the model and the prompt.
pub fn check(model: &Model<'_>, plan: Plan, run: &Run) {
    let vocab = model.spec().vocab;
    let want = answer(&mut Memory::new(&plan, 0).session(model, plan), vocab, run);
    let (kernels, fill) = run.other();
    let mut memory = Memory::new(&plan, fill);
    let mut session = memory.session(model, plan).with_kernels(kernels);
    assert!(answer(&mut session, vocab, run) == want, "other logits by {} in memory of {fill:#x}", kernels.name);
    // Run again after another prompt.
    let mut session = memory.session(model, plan);
    let before: Vec<_> = run.before.iter().map(|token| token.id(vocab)).collect();
    let _ = session.encode(&before);
    let _ = session.prefill(&before);
    // If the encoder refuses a text, the session keeps the previous text.
    let replaced = matches!(want.first(), Some(Ok(_) | Err(Error::NoPart { .. })));
    if replaced && session.rewind(0).is_ok() {
        let got = answer(&mut session, vocab, run);
        let differs = got.iter().zip(&want).position(|(got, want)| got != want);
        if let Some(at) = differs {
            let say = |answer: &Result<Vec<u32>, Error>| answer.as_ref().map(|_| "numbers").map_err(Error::to_string);
            panic!("what ran before shows in answer {at}: {:?} instead of {:?}", say(&got[at]), say(&want[at]));
        }
    }
    // Run again after saving and restoring a session. (Sessions of models with an encoder cannot be saved.)
    let [Err(_), Ok(prompt), decoded @ ..] = &want[..] else { return };
    let mut session = memory.session(model, plan);
    let ids: Vec<_> = run.prompt.iter().map(|token| token.id(vocab)).collect();
    session.prefill(&ids).expect("it worked before");
    let mut snapshot = vec![0; session.snapshot_bytes()];
    session.save(unwritten(&mut snapshot)).expect("a decoder can be saved");
    let mut memory = Memory::new(&plan, 0xff);
    let mut session = memory.session(model, plan);
    session.restore(&snapshot).expect("it was saved from the same model");
    assert!(bits(session.logits()) == *prompt, "other logits after restoring");
    for (token, want) in run.decoded.iter().zip(decoded) {
        let got = session.decode(token.id(vocab));
        assert!(got.map(|()| bits(session.logits())) == *want, "another session after restoring");
    }
}
