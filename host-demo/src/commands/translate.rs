//! `arenite translate`: runs texts through an encoder-decoder model.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use arenite::beam::{Beams, Search};
use arenite::model::Stack;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Line, Session, TokenId};
use clap::ValueEnum;
use serde::Serialize;

use crate::cli::{RunArgs, TextArgs, at_least_one, beams, each_line, finite};
use crate::output::Out;
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::{self, Memory};
use arenite_text as text;

/// Translate text with an encoder-decoder model (default: the built-in English to Hindi model)
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite translate -p \"I love my mother.\"
  arenite translate -m en-hi.gguf -p \"I love my mother.\" --beams 8 --n-best 4 --format json
  arenite translate --jsonl -f sentences.jsonl > translations.jsonl

Give one sentence at a time: most translation models were trained on single sentences.")]
pub struct Args {
    #[command(flatten)]
    text: TextArgs,

    /// Number of beams; 1 means greedy search
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = beams)]
    beams: usize,

    /// Maximum number of tokens of a translation
    #[arg(short, long, value_name = "N", default_value_t = 128, allow_negative_numbers = true,
        value_parser = at_least_one)]
    n_tokens: usize,

    /// Number of translations to print, the best first
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    n_best: usize,

    /// Divide the log-probability of a translation by its length to the power of P; 0 disables
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true, value_parser = finite)]
    length_penalty: f32,

    /// Continue after an end token, up to the maximum length
    #[arg(long)]
    ignore_eos: bool,

    /// Output format: `text`, `ids` (a JSON list) or `json` (texts, ids and scores)
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "jsonl")]
    format: Format,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Ids,
    Json,
}

#[derive(Serialize)]
struct Translation {
    text: String,
    ids: Vec<TokenId>,
    score: f32,
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    ensure!(args.n_best <= args.beams, "--n-best {} is more than --beams {}: raise --beams", args.n_best, args.beams);
    let open = OpenModel::new(file, args.run.options()?)?;
    let named = || open.name().to_string();
    let (gguf, model, tokenizer) = (open.gguf(), open.model(), open.tokenizer());
    let Stack::Target { start, .. } = model.spec().stack() else {
        bail!("{}: this is not an encoder-decoder model; give one with -m", open.name());
    };
    let how = Encode { add_special: true, parse_special: false };
    let single = args.text.only(tokenizer, how).with_context(named)?;
    // Marian and other models of the architecture `seq2seq` must never generate the padding token. T5 has no banned
    // token, because its padding token is the start token.
    let banned = match gguf.architecture()? {
        "seq2seq" => gguf.u32("tokenizer.ggml", "padding_token_id")?,
        _ => None,
    };
    let search = Search {
        beams: args.beams,
        length: args.n_tokens,
        length_penalty: args.length_penalty,
        start,
        end: tokenizer.ok().and_then(|tokenizer| tokenizer.eos()).filter(|_| !args.ignore_eos),
        banned,
    };
    let context = match &single {
        Some(ids) => open.options.context.unwrap_or_else(|| ids.len().max(args.n_tokens)),
        None => open.context(args.n_tokens),
    };
    // Only the contexts of the beams need pages, because the session's own context stays empty.
    let pages = args.beams.saturating_mul(context.div_ceil(16));
    let plan = open.plan(open.plan_options(context).beams(args.beams).pages(pages))?;
    let mut memory = Memory::new(&plan)?;
    let mut session = open.session(&mut memory, plan)?;
    let mut scratch = vec![Line::ZERO; Beams::bytes(&plan).div_ceil(size_of::<Line>())];
    let speaker = Speaker {
        tokenizer: tokenizer.ok(),
        forgets_spaces: gguf.str("tokenizer.ggml", "pre")? == Some(b"whitespace"),
    };
    let mut translate = |ids: &[TokenId], session: &mut Session<'_, '_>| -> Result<Vec<Translation>> {
        runtime::fits(ids.len(), session.context(), model, "")?;
        session.encode(ids)?;
        let (engine, context) = session.parts();
        let mut found = Beams::search(engine, context, &search, Line::bytes_mut(&mut scratch))?;
        let mut translations = Vec::new();
        for rank in 0..found.count().min(args.n_best) {
            let Some(hypothesis) = found.hypothesis(rank) else { break };
            let text = speaker.text(hypothesis.tokens)?;
            translations.push(Translation { text, ids: hypothesis.tokens.to_vec(), score: hypothesis.score });
        }
        Ok(translations)
    };

    let Some(ids) = single else {
        return each_line(args.text.file.as_deref(), |text| {
            let ids = text.tokens(tokenizer, how)?;
            let mut translations = translate(&ids, &mut session)?.into_iter();
            let best = translations.next().context("no translation was found: raise -n")?;
            Ok(Best { best, others: translations.collect() })
        });
    };
    let translations = translate(&ids, &mut session)?;
    let mut out = Out::lock();
    match args.format {
        Format::Text => translations.iter().try_for_each(|translation| writeln!(out, "{}", translation.text))?,
        Format::Ids => translations.iter().try_for_each(|translation| out.json(&translation.ids))?,
        Format::Json => out.json(&translations)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A line of output with `--jsonl`.
#[derive(Serialize)]
struct Best {
    #[serde(flatten)]
    best: Translation,
    /// The other translations, with `--n-best`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<Translation>,
}

/// Converts tokens to text.
struct Speaker<'t> {
    tokenizer: Option<&'t Tokenizer<'t, 't>>,
    /// True if decoding puts a space before each word and each punctuation mark.
    forgets_spaces: bool,
}

impl Speaker<'_> {
    fn text(&self, ids: &[TokenId]) -> Result<String> {
        let Some(tokenizer) = self.tokenizer else { return Ok(String::new()) };
        let known: Vec<_> = ids.iter().copied().filter(|id| (*id as usize) < tokenizer.vocab_len()).collect();
        let text = text::decode(tokenizer, &known)?;
        let text = String::from_utf8_lossy(&text);
        Ok(if self.forgets_spaces { joined(text.trim()) } else { text.trim().to_string() })
    }
}

/// Removes spaces before closing punctuation and around hyphens.
fn joined(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (here, after) = rest.split_at(c.len_utf8());
        match (c, after.chars().next()) {
            (' ', Some('।' | '.' | ',' | '!' | '?' | ';' | ':' | '-')) => {}
            (' ', _) if out.ends_with('-') => {}
            _ => out.push_str(here),
        }
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn punctuation_follows_its_word() {
        assert_eq!(joined("हाँ , आस - पास में कोई है ?"), "हाँ, आस-पास में कोई है?");
        assert_eq!(joined("मैं घर पर हूँ ।"), "मैं घर पर हूँ।");
        assert_eq!(joined(""), "");
    }
}
