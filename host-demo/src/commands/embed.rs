//! `arenite embed`: computes embedding vectors of texts.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use arenite::tokenizer::Encode;
use arenite::{Session, TokenId};
use serde::Serialize;

use super::each_token;
use crate::cli::{PictureArgs, RunArgs, TextArgs, each_line};
use crate::output::{Out, note, npy};
use arenite_run::eyes::{Piece, Sights};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::{self, Memory};
use arenite_text::Frame;

/// Compute the embedding vector of a text
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite embed -m bge-small.gguf -p \"The sea is calm\"
  arenite embed -m bge-small.gguf -p \"The sea is calm\" -o sea.npy
  arenite embed -m bge-small.gguf --jsonl -f sentences.jsonl -o sentences.npy

The model's pooling turns the states of all tokens into one vector, which is scaled to length 1. The outputs of a \
classifier are not scaled; `arenite classify` gives their labels. Without -o the vector \
is printed as a JSON list. With --jsonl the file has one row per text, and the output has one line per row. With --tokens a text has a vector for each of its tokens, in \
rows that follow each other (`row` is the first).")]
pub struct Args {
    #[command(flatten)]
    text: TextArgs,

    #[command(flatten)]
    pictures: PictureArgs,

    /// Compute a vector for each token, as ColBERT's models need
    #[arg(long)]
    tokens: bool,

    /// Do not scale the vector to length 1
    #[arg(long)]
    no_normalize: bool,

    /// Truncate texts to the model's number of positions, or to -c
    #[arg(long)]
    truncate: bool,

    /// The .npy file to write
    #[arg(short, long, value_name = "F.npy")]
    output: Option<PathBuf>,

    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let open = OpenModel::new(file, args.run.options()?)?;
    let named = || open.name().to_string();
    ensure!(
        args.no_normalize || args.tokens || !open.model().spec().ranks(),
        "{}: this model scores texts and computes no embeddings: use `arenite rerank` or `arenite classify`; --no-normalize \
         prints its scores",
        named()
    );
    if each_token::is_unpooled(&open) && !args.tokens {
        note("the model has a vector for each token: the mean of them is computed. --tokens computes all");
    }
    let (model, tokenizer) = (open.model(), open.tokenizer());
    let how = Encode { add_special: true, parse_special: false };
    let limit = runtime::positions(&open.options, model);
    let frame = match (tokenizer, args.truncate) {
        (Ok(tokenizer), true) => Frame::of(tokenizer)?,
        _ => Frame::default(),
    };
    let cut = |ids: Vec<TokenId>| if args.truncate { frame.cut(ids, limit) } else { Ok(ids) };
    let cut_text = |sights: Sights| match sights.shown.is_empty() {
        true => cut(sights.ids).map(Sights::from),
        false => Ok(sights), // a text with pictures that is too long is an error
    };
    let single = args.pictures.only(&args.text, &open, how).with_context(named)?.map(cut_text);
    let single = single.transpose()?;
    let context = match &single {
        Some(Sights { ids, .. }) => {
            let context = open.options.context.unwrap_or(ids.len().max(1));
            runtime::warn_of_length(context, model);
            context
        }
        // With --truncate no text is longer than the limit.
        None if args.truncate => limit,
        None => open.context(0),
    };
    let plan = open.plan(open.plan_options(context))?;
    let mut memory = Memory::new(&plan)?;
    let mut session = open.session(&mut memory, plan)?;
    let dim = model.spec().embedding_len();
    let embed = |sights: &Sights, session: &mut Session<'_, '_>| vectors(args, &open, sights, session);

    if let Some(sights) = single {
        let vectors = embed(&sights, &mut session)?;
        match (&args.output, &vectors[..]) {
            (Some(path), _) if args.tokens => npy::save(path, &[vectors.len(), dim], &vectors.concat())?,
            (Some(path), _) => npy::save(path, &[dim], &vectors.concat())?,
            (None, [vector]) if !args.tokens => Out::lock().json(vector)?,
            (None, _) => Out::lock().json(&vectors)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = Vec::new();
    let code = each_line(args.text.file.as_deref(), |text| {
        let sights = Sights::from(cut(text.tokens(tokenizer, how)?)?);
        let mut vectors = embed(&sights, &mut session)?;
        let tokens = sights.ids.len();
        Ok(if args.output.is_some() {
            let row = rows.len() / dim;
            rows.extend(vectors.concat());
            Answer { tokens, row: Some(row), embedding: None }
        } else {
            let embedding =
                if args.tokens { Some(Embedding::Tokens(vectors)) } else { vectors.pop().map(Embedding::Text) };
            Answer { tokens, row: None, embedding }
        })
    })?;
    if let Some(path) = &args.output {
        npy::save(path, &[rows.len() / dim, dim], &rows)?;
    }
    Ok(code)
}

/// The vectors of a text: one, or one for each token.
fn vectors(args: &Args, open: &OpenModel, sights: &Sights, session: &mut Session<'_, '_>) -> Result<Vec<Vec<f32>>> {
    let (spec, named) = (open.model().spec(), || open.name().to_string());
    let Piece { ids, spans } = sights.shown.piece(&sights.ids, 0..sights.ids.len());
    runtime::fits(ids.len(), session.context(), open.model(), ", or cut it with --truncate")?;
    let mut vectors = if args.tokens {
        each_token::vectors(spec, session, &ids).with_context(named)?
    } else {
        let mut vector = vec![0.0; spec.embedding_buffer()];
        let made = if spans.is_empty() {
            session.embed(&ids, &mut vector).map(|_| ())
        } else {
            let (engine, context) = session.parts();
            engine.embed_pictures(context, &ids, &spans, &mut vector).map(|_| ())
        };
        made.with_context(named)?;
        vector.truncate(spec.embedding_len());
        vec![vector]
    };
    for vector in &mut vectors {
        runtime::numbers(vector).with_context(named)?;
        // The outputs of a classifier are not normalized, because their size matters.
        if !args.no_normalize && (args.tokens || !spec.ranks()) {
            normalize(vector);
        }
    }
    Ok(vectors)
}

/// A line of output with `--jsonl`.
#[derive(Serialize)]
struct Answer {
    tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    embedding: Option<Embedding>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Embedding {
    Text(Vec<f32>),
    Tokens(Vec<Vec<f32>>),
}

/// Scales the vector to length 1; leaves a zero vector unchanged.
fn normalize(vector: &mut [f32]) {
    let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
}
