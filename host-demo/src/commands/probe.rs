//! `arenite probe`: the hidden states of a text on their way through the model, as a NumPy file.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use arenite::tokenizer::Encode;
use arenite::{Model, Observer, Stage, TokenId};
use clap::ValueEnum;

use crate::cli::{Ids, RunArgs};
use crate::model_file::ModelFile;
use crate::new_file::write_file;
use crate::output::note;
use crate::runtime::{self, Memory};
use crate::{npy, text, workers};

/// Write the hidden states of a text to a NumPy file
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite probe -m model.gguf -p \"The sea was\" --layers 0,3,5 --position mean -o states.npy
  python3 -c 'import numpy; print(numpy.load(\"states.npy\").shape)'

The file holds 32-bit floats, [layers, positions, dim], the layers in the order of --layers and
counted from 0. With Hugging Face's `output_hidden_states`, `before` is hidden_states[layer] and
`logits` is hidden_states[-1]. The stage `logits` is after all layers: it has one entry in their place.")]
pub struct Args {
    /// The text; special tokens are added as the model's metadata says
    #[arg(short, long, value_name = "TEXT", required_unless_present = "ids", conflicts_with = "ids")]
    prompt: Option<String>,

    /// Token ids instead of a text, exactly as given, such as 1,2,3
    #[arg(long, value_name = "IDS")]
    ids: Option<Ids>,

    /// Layers to look at, such as 0,3,5 [default: all]
    #[arg(long, value_name = "LAYERS", value_delimiter = ',')]
    layers: Option<Vec<usize>>,

    /// Where in a layer to look
    #[arg(long, value_enum, default_value_t = At::After)]
    stage: At,

    /// Whose states: the last token's, every token's, or the mean over all tokens
    #[arg(long, value_enum, default_value_t = Position::Last)]
    position: Position,

    /// The .npy file to write
    #[arg(short, long, value_name = "F.npy")]
    output: PathBuf,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum At {
    /// Before a layer: the embedding, or what the layer before made
    Before,
    /// After a layer's attention and its residual
    Attention,
    /// After a layer's feed-forward and its residual
    FeedForward,
    /// After a layer
    After,
    /// After the last norm, before the head
    Logits,
}

impl At {
    fn stage(self) -> Stage {
        match self {
            Self::Before => Stage::Before,
            Self::Attention => Stage::Attention,
            Self::FeedForward => Stage::FeedForward,
            Self::After => Stage::After,
            Self::Logits => Stage::Logits,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Position {
    Last,
    All,
    Mean,
}

pub fn run(args: &Args, file: &ModelFile) -> Result<()> {
    let named = || file.name().to_string();
    let gguf = file.parse()?;
    let model = Model::new(&gguf).with_context(named)?;
    let mut index = Vec::new();
    let ids: Vec<TokenId> = match (&args.ids, &args.prompt) {
        (Some(ids), _) => ids.0.clone(),
        (None, Some(prompt)) => {
            let tokenizer = text::tokenizer(&gguf, &mut index).with_context(named)?;
            text::encode(&tokenizer, prompt.as_bytes(), Encode::PROMPT)?
        }
        (None, None) => bail!("give a text with -p, or tokens with --ids"),
    };
    ensure!(!ids.is_empty(), "there is nothing to look at: the text has no tokens");
    let spec = model.spec();
    let layers = match (&args.layers, args.stage) {
        (Some(_), At::Logits) => bail!("--stage logits is after all layers: leave --layers out"),
        (None, At::Logits) => vec![spec.layers],
        (None, _) => (0..spec.layers).collect(),
        (Some(layers), _) => layers.clone(),
    };
    if args.stage != At::Logits
        && let Some(layer) = layers.iter().find(|layer| **layer >= spec.layers)
    {
        bail!("there is no layer {layer}: {} has layers 0 to {}", file.name(), spec.layers - 1);
    }

    let kernels = runtime::kernels(&args.run.session.isa)?;
    let workers = workers::start(args.run.threads.unwrap_or_else(workers::cores));
    let context = args.run.session.ctx_size.unwrap_or(ids.len());
    let plan = runtime::plan(&gguf, &args.run.session, context, workers.count()).with_context(named)?;
    let mut memory = Memory::new(&plan)?;
    let mut session = memory.session(&model, plan, kernels, &*workers)?;
    let mut probe = Probe::new(args, layers, ids.len(), spec.dim);
    let _ = session.prefill_observed(&ids, &mut probe)?;
    let shape = [probe.layers.len(), probe.rows(), spec.dim];
    write_file(&args.output, |out| npy::array(out, &shape, &probe.finish()))?;
    note(format_args!("{}: float32 {shape:?}", args.output.display()));
    Ok(())
}

/// Gathers the states that were asked for.
struct Probe {
    stage: Stage,
    layers: Vec<usize>,
    position: Position,
    tokens: usize,
    dim: usize,
    /// `[layers][positions][dim]`; of a mean, the sum so far.
    states: Vec<f64>,
}

impl Probe {
    fn new(args: &Args, layers: Vec<usize>, tokens: usize, dim: usize) -> Self {
        let (stage, position) = (args.stage.stage(), args.position);
        let mut probe = Self { stage, layers, position, tokens, dim, states: Vec::new() };
        probe.states = vec![0.0; probe.layers.len() * probe.rows() * dim];
        probe
    }

    /// Positions in the result.
    fn rows(&self) -> usize {
        if self.position == Position::All { self.tokens } else { 1 }
    }

    fn finish(&self) -> Vec<f32> {
        let divisor = if self.position == Position::Mean { self.tokens as f64 } else { 1.0 };
        self.states.iter().map(|state| (state / divisor) as f32).collect()
    }
}

impl Observer for Probe {
    fn wants(&self, stage: Stage) -> bool {
        stage == self.stage
    }

    fn observe(&mut self, _: Stage, layer: usize, position: usize, states: &[f32]) -> ControlFlow<()> {
        let (rows, dim) = (self.rows(), self.dim);
        let all = self.layers.iter().zip(self.states.chunks_exact_mut(rows * dim));
        for (_, kept) in all.filter(|(wanted, _)| **wanted == layer) {
            for (token, state) in (position..).zip(states.chunks_exact(dim)) {
                let row = if self.position == Position::All { token } else { 0 };
                for (kept, &x) in kept[row * dim..][..dim].iter_mut().zip(state) {
                    let x = f64::from(x);
                    *kept = if self.position == Position::Mean { *kept + x } else { x };
                }
            }
        }
        ControlFlow::Continue(())
    }
}
