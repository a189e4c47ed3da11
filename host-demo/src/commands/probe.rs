//! `arenite probe`: saves hidden states as a NumPy file.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use arenite::tokenizer::Encode;
use arenite::{Observer, Session, Stage, TokenId, Work};
use clap::ValueEnum;
use serde::Serialize;

use crate::cli::{PictureArgs, RunArgs, TextArgs, each_line};
use crate::output::npy;
use crate::output::plot::Plot;
use arenite_run::eyes::{Piece, Sights};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::{self, Memory};

/// Save the hidden states of a text as a NumPy file
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite probe -m model.gguf -p \"The sea was\" --layers 0,3,5 --position mean -o states.npy
  python3 -c 'import numpy; print(numpy.load(\"states.npy\").shape)'
  arenite probe -m model.gguf --jsonl -f texts.jsonl -o states.npy > rows.jsonl

The file holds 32-bit floats of shape [layers, positions, dim], in the order of --layers; layers are \
counted from 0. In terms of Hugging Face's `output_hidden_states`, `before` is hidden_states[layer] and \
`logits` is hidden_states[-1]. The stage `logits` comes after all layers and counts as one layer. \
With --jsonl the shape is [texts, layers, dim], and each line of output has the row and the ids of a text.")]
pub struct Args {
    #[command(flatten)]
    text: TextArgs,

    #[command(flatten)]
    pictures: PictureArgs,

    /// Layers to record, such as 0,3,5 [default: all]
    #[arg(long, value_name = "LAYERS", value_delimiter = ',',
        value_parser = |n: &str| n.parse::<usize>().map_err(|_| "give layer numbers, such as 0,3,5"))]
    layers: Option<Vec<usize>>,

    /// Stage of a layer to record
    #[arg(long, value_enum, default_value_t = At::After)]
    stage: At,

    /// Position to record: the last token, all tokens, or the mean over all tokens
    #[arg(long, value_enum, default_value_t = Position::Last)]
    position: Position,

    /// The .npy file to write
    #[arg(short, long, value_name = "F.npy", required_unless_present = "plot")]
    output: Option<PathBuf>,

    /// Plot the norm of the states of each layer
    #[arg(long, value_name = "F.svg", conflicts_with = "jsonl")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum At {
    /// Input of a layer
    Before,
    /// After a layer's attention and its residual
    Attention,
    /// After a layer's feed-forward and its residual
    FeedForward,
    /// Output of a layer
    After,
    /// After the final norm, before the head
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

/// A line of output with `--jsonl`.
#[derive(Serialize)]
struct Answer {
    row: usize,
    ids: Vec<TokenId>,
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let open = OpenModel::new(file, args.run.options()?)?;
    let named = || open.name().to_string();
    let (model, tokenizer) = (open.model(), open.tokenizer());
    let single = args.pictures.only(&args.text, &open, Encode::PROMPT).with_context(named)?;
    ensure!(
        single.is_some() || args.position != Position::All,
        "texts differ in length: use --position last or mean with --jsonl"
    );
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
        bail!("there is no layer {layer}: {} has layers 0 to {}", open.name(), spec.layers - 1);
    }

    let context = match &single {
        Some(Sights { ids, .. }) => open.options.context.unwrap_or(ids.len().max(1)),
        None => open.context(0),
    };
    let plan = open.plan(open.plan_options(context))?;
    let mut memory = Memory::new(&plan)?;
    let mut session = open.session(&mut memory, plan)?;
    let look = |sights: &Sights, session: &mut Session<'_, '_>| -> Result<Probe> {
        let Piece { ids, spans } = sights.shown.piece(&sights.ids, 0..sights.ids.len());
        ensure!(!ids.is_empty(), "the text is empty");
        runtime::fits(ids.len(), session.context(), model, "")?;
        let mut probe = Probe::new(args, layers.clone(), ids.len(), spec.dim);
        session.rewind(0)?;
        let (engine, context) = session.parts();
        let mut works = [Work::prefill(context, &ids).pictures(&spans)];
        let mut pass = engine.begin(&mut works)?;
        while let ControlFlow::Continue(true) = pass.step_observed(&mut probe) {}
        Ok(probe)
    };

    if let Some(sights) = single {
        let probe = look(&sights, &mut session)?;
        let states = probe.finish();
        if let Some(path) = &args.output {
            npy::save(path, &[layers.len(), probe.rows(), spec.dim], &states)?;
        }
        if let Some(path) = &args.plot {
            plot(path, open.name(), &layers, &states, spec.dim)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut states = Vec::new();
    let mut row = 0;
    let code = each_line(args.text.file.as_deref(), |text| {
        let ids = text.tokens(tokenizer, Encode::PROMPT)?;
        let sights = Sights::from(ids);
        states.extend(look(&sights, &mut session)?.finish());
        row += 1;
        Ok(Answer { row: row - 1, ids: sights.ids })
    })?;
    if let Some(path) = &args.output {
        npy::save(path, &[row, layers.len(), spec.dim], &states)?;
    }
    Ok(code)
}

/// Draws a plot. For each layer, it shows the norm of the states, averaged over the positions.
fn plot(path: &Path, model: &str, layers: &[usize], states: &[f32], dim: usize) -> Result<()> {
    let rows = states.len() / dim / layers.len().max(1);
    let length = |state: &[f32]| state.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let mean = |states: &[f32]| states.chunks_exact(dim).map(length).sum::<f64>() / rows.max(1) as f64;
    let points = layers.iter().zip(states.chunks_exact((rows * dim).max(1)));
    let curve = points.map(|(layer, states)| (*layer as f64, mean(states))).collect();
    Plot { title: model, x: "layer", y: "norm of the states", curves: &[("norm".to_string(), curve)] }.save(path)
}

/// Collects the requested states.
struct Probe {
    stage: Stage,
    layers: Vec<usize>,
    position: Position,
    tokens: usize,
    dim: usize,
    /// The states that were read so far, `[layers][positions][dim]`. If the mean over positions is requested, their
    /// sum.
    states: Vec<f64>,
}

impl Probe {
    fn new(args: &Args, layers: Vec<usize>, tokens: usize, dim: usize) -> Self {
        let (stage, position) = (args.stage.stage(), args.position);
        let mut probe = Self { stage, layers, position, tokens, dim, states: Vec::new() };
        probe.states = vec![0.0; probe.layers.len() * probe.rows() * dim];
        probe
    }

    /// Number of positions in the result.
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
