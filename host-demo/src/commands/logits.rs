//! `arenite logits`: prints the most likely next tokens, or saves logits as a NumPy file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Session, TokenId, Work};
use serde::Serialize;

use crate::cli::{Ids, PictureArgs, RunArgs, TextArgs, at_least_one, each_line};
use crate::output::npy;
use crate::output::{Out, note};
use arenite_files::NewFile;
use arenite_run::eyes::{Piece, Sights, prefill};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::{self, Memory};
use arenite_text as text;

/// Show or save the logits after a text
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite logits -m model.gguf -p \"The sea was\" --top 10
  arenite logits -m model.gguf --ids 1,403,407 --all -o logits.npy
  python3 -c 'import numpy; print(numpy.load(\"logits.npy\").argmax(1))'

The file holds 32-bit floats of shape [positions, vocabulary]. Ids are used exactly as given. With --jsonl each \
line of output has the most likely tokens after one text.")]
pub struct Args {
    #[command(flatten)]
    text: TextArgs,

    #[command(flatten)]
    pictures: PictureArgs,

    /// Token ids for the encoder of an encoder-decoder; --ids are then the decoder's
    #[arg(long, value_name = "IDS")]
    encoder_ids: Option<Ids>,

    /// Save the logits of every position instead of the last one
    #[arg(long, conflicts_with_all = ["top", "jsonl"])]
    all: bool,

    /// Print the N most likely next tokens
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    top: Option<usize>,

    /// The .npy file to write
    #[arg(short, long, value_name = "F.npy", required_unless_present_any = ["top", "jsonl"], conflicts_with = "jsonl")]
    output: Option<PathBuf>,

    #[command(flatten)]
    run: RunArgs,
}

/// Default number of tokens per line with --jsonl.
const DEFAULT_TOP: usize = 10;

/// A candidate for the next token.
#[derive(Serialize)]
struct Next {
    id: TokenId,
    text: String,
    logit: f32,
    logprob: f64,
}

#[derive(Serialize)]
struct Answer {
    tokens: usize,
    top: Vec<Next>,
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let open = OpenModel::new(file, args.run.options()?)?;
    let named = || open.name().to_string();
    let (model, tokenizer) = (open.model(), open.tokenizer());
    let single = args.pictures.only(&args.text, &open, Encode::PROMPT).with_context(named)?;
    let is_empty = single.as_ref().is_some_and(|sights| sights.ids.is_empty());
    ensure!(!is_empty, "no tokens were given: give at least one, such as --ids 1,2,3");
    let source = args.encoder_ids.as_ref().map_or(&[][..], |ids| &ids.0);
    let context = match &single {
        Some(Sights { ids, .. }) => open.options.context.unwrap_or(ids.len().max(source.len())),
        None => open.context(source.len()),
    };
    let plan = open.plan(open.plan_options(context))?;
    let mut memory = Memory::new(&plan)?;
    let mut session = open.session(&mut memory, plan)?;
    if let Some(Sights { ids, .. }) = &single {
        runtime::fits(ids.len(), session.context(), model, "").with_context(named)?;
    }
    if args.encoder_ids.is_some() {
        session.encode(source)?;
    }
    let top = args.top.unwrap_or(DEFAULT_TOP);

    let Some(sights) = single else {
        return each_line(args.text.file.as_deref(), |text| {
            let ids = text.tokens(tokenizer, Encode::PROMPT)?;
            ensure!(!ids.is_empty(), "the text is empty");
            runtime::fits(ids.len(), session.context(), model, "")?;
            session.rewind(0)?;
            session.prefill(&ids)?;
            Ok(Answer { tokens: ids.len(), top: best(session.logits(), top, tokenizer.ok())? })
        });
    };
    if args.all {
        if let Some(path) = &args.output {
            save_all(&mut session, &sights, model.spec().vocab, path)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    prefill(&mut session, &sights)?;
    if args.top.is_some() {
        print(&best(session.logits(), top, tokenizer.ok())?)?;
    }
    if let Some(path) = &args.output {
        npy::save(path, &[1, model.spec().vocab], session.logits())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the logits of every position. The logits of a position are written as soon as they are computed.
fn save_all(session: &mut Session<'_, '_>, sights: &Sights, vocab: usize, path: &Path) -> Result<()> {
    let shape = [sights.ids.len(), vocab];
    let mut file = NewFile::create(path)?;
    let mut written = npy::header(&mut file, &shape);
    let Piece { ids, spans } = sights.shown.piece(&sights.ids, 0..sights.ids.len());
    let (engine, context) = session.parts();
    engine.read_all(Work::prefill(context, &ids).pictures(&spans), |_, logits| {
        if written.is_ok() {
            written = npy::values(&mut file, logits);
        }
    })?;
    written.with_context(|| format!("cannot write {}", path.display()))?;
    file.finish()?;
    note(format_args!("{}: float32 {shape:?}", path.display()));
    Ok(())
}

/// Returns the `count` tokens with the highest logits, in descending order. Tokens with equal logits are ordered by id.
fn best(logits: &[f32], count: usize, tokenizer: Option<&Tokenizer<'_, '_>>) -> Result<Vec<Next>> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let count = count.min(order.len());
    let higher = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    if count < order.len() {
        order.select_nth_unstable_by(count, higher);
    }
    order.truncate(count);
    order.sort_by(higher);
    let total = text::log_of_sum(logits);
    let next = |id: usize| {
        let text = tokenizer.map_or(Ok(String::new()), |tokenizer| text::piece(tokenizer, id as TokenId))?;
        let logit = logits[id];
        Ok(Next { id: id as TokenId, text, logit, logprob: f64::from(logit) - total })
    };
    order.into_iter().map(next).collect()
}

fn print(top: &[Next]) -> Result<()> {
    let mut out = Out::lock();
    writeln!(out, "{:>8}  {:>11}  {:>10}  text", "id", "probability", "logit")?;
    for Next { id, text, logit, logprob } in top {
        writeln!(out, "{id:>8}  {:>9.3} %  {logit:>10.4}  {text:?}", 100.0 * logprob.exp())?;
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_first() {
        let top = best(&[0.0, 3.0, 1.0, 3.0], 3, None).unwrap();
        assert_eq!(top.iter().map(|next| next.id).collect::<Vec<_>>(), [1, 3, 2]);
        let total: f64 = best(&[0.0, 3.0, 1.0, 3.0], 9, None).unwrap().iter().map(|next| next.logprob.exp()).sum();
        assert!((total - 1.0).abs() < 1e-6);
    }
}
