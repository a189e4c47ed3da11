//! `arenite generate`: continues a text, or many texts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use arenite::sampler::Sampler;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Plan, Session, TokenId};
use clap::ValueEnum;
use serde::Serialize;

use crate::cli::{
    ConstraintArgs, DraftArgs, Form, Limit, PictureArgs, ReuseArgs, RunArgs, SamplingArgs, Text, TextArgs, Watcher,
    each_line,
};
use crate::output::wrap::Wrap;
use crate::output::{self, Bytes, Out, note, terminal_width};
use crate::{foreign, interrupt};
use arenite_grammar::MaskMemory;
use arenite_run::drafts::{Drafting, Drafts};
use arenite_run::eyes::{Shown, Sights, is_row};
use arenite_run::generation::{self, End, Generation, Settings, Shift, Workbench, within};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::reuse;
use arenite_run::runtime::{self, Memory};
use arenite_run::session_file::{Head, SessionFile};
use arenite_text as text;

/// Generate text
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite generate -m model.gguf -p \"The sea was\" -n 100 --temp 0.7 --seed 7
  arenite generate -m model.gguf -f prompt.txt
  arenite generate -m model.gguf --ids 1,403,407 --temp 0 --format ids
  arenite generate -m model.gguf --image photo.jpg -p \"This picture shows\"
  arenite generate -m model.gguf --jsonl < prompts.jsonl > answers.jsonl
  arenite generate -m stories15M.bin --tokenizer tokenizer.bin --rng llama2c --seed 7

Without a prompt, the text begins with \"Once upon a time\". Generation ends at an end token, at a stop string, after -n tokens, when \
the context is full, or with Ctrl-C, which finishes the line, prints the statistics and exits with \
code 130. Most flags of llama-cli are accepted; a flag without an effect prints a message.")]
pub struct Args {
    #[command(flatten)]
    text: TextArgs,

    #[command(flatten)]
    pictures: PictureArgs,

    /// Maximum number of tokens to generate; -1 means until an end token or a full context [default: -1]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    n_tokens: Option<Limit>,

    /// Print only the generated text
    #[arg(long)]
    no_display_prompt: bool,

    /// Print the tokens of the prompt on standard error
    #[arg(long)]
    verbose_prompt: bool,

    /// Output format: the text as it is generated, a JSON list of the new ids, or a JSON object
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "jsonl")]
    format: Format,

    /// Stop string (not printed); may be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Additional end token; may be repeated
    #[arg(long, value_name = "ID")]
    stop_id: Vec<TokenId>,

    /// Continue when the context is full: drop half of the tokens, and read the rest again
    #[arg(long, conflicts_with_all = ["lookup", "draft", "session"])]
    context_shift: bool,

    /// Number of tokens at the start that stay with --context-shift; -1 for the prompt
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true, requires = "context_shift")]
    keep: i64,

    /// Continue after an end token
    #[arg(long)]
    ignore_eos: bool,

    /// Session file: read if it exists, written at the end. Tokens at the start of the prompt that are also in the
    /// session are not computed again
    #[arg(long, value_name = "FILE", conflicts_with = "jsonl")]
    session: Option<PathBuf>,

    #[command(flatten)]
    draft: DraftArgs,

    #[command(flatten)]
    reuse: ReuseArgs,

    #[command(flatten)]
    form: ConstraintArgs,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Ids,
    Json,
}

/// The prompt if none is given.
const STORY: &str = "Once upon a time";

/// Statistics of a finished run.
#[derive(Serialize)]
struct Stats {
    prompt_tokens: usize,
    kept_tokens: usize,
    /// Number of prompt tokens that the session had at other positions and that were reused.
    reused_tokens: usize,
    prefill_tok_s: f64,
    tokens: usize,
    decode_tok_s: f64,
    workspace_bytes: usize,
    kv_bytes: usize,
    model_bytes: usize,
    model_held: &'static str,
    context: usize,
    batch: usize,
    kv: &'static str,
    isa: &'static str,
    threads: usize,
    seed: u64,
    end: &'static str,
    draft_n: usize,
    draft_n_accepted: usize,
}

/// Output line of --jsonl.
#[derive(Serialize)]
struct Answer {
    text: String,
    ids: Vec<TokenId>,
    prompt_tokens: usize,
    end: &'static str,
}

impl Args {
    /// Adds the options for sampling and for the end of the answer to `settings`. Reports invalid options before
    /// anything is generated.
    fn settings(
        &self,
        (open, tokenizer): (&OpenModel, Option<&Tokenizer<'_, '_>>),
        context: usize,
        settings: Settings,
    ) -> Result<Settings> {
        let (vocab, bias) = (open.model().spec().vocab, &self.sampling.logit_bias);
        let params = within(&self.sampling.params()?, context);
        Sampler::new(params, bias, vocab, &mut vec![0; Sampler::scratch_bytes(&params, vocab)])?;
        text::in_vocabulary(&self.stop_id, vocab)?;
        Ok(Settings {
            params,
            bias: bias.clone(),
            breakers: self.sampling.breakers(&params, tokenizer)?,
            stops: self.stop.clone(),
            stop_ids: self.stop_id.clone(),
            ignore_end: self.ignore_eos,
            ..settings
        })
    }
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    interrupt::listen();
    let mut kept_file = args.session.as_deref().map(SessionFile::open).transpose()?;
    let options = args.reuse.apply(args.draft.apply(args.run.options()?, &file, kept_file.is_some()));
    let open = OpenModel::new(file, SessionFile::sized(kept_file.as_ref(), options))?;
    let model = open.model();
    let tokenizer = match open.vocabulary() {
        // Ignore the error, because no vocabulary is needed if both input and output are token ids.
        Err(_) if args.text.ids.is_some() && args.format == Format::Ids => None,
        tokenizer => Some(tokenizer?),
    };
    let single = only_prompt(args, &open, tokenizer)?;
    let form = args.form.read()?;
    let is_json = form.as_ref().is_some_and(Form::is_schema);
    let table = form.map(|form| form.table(tokenizer, |_| None)).transpose()?;

    let limit = args.n_tokens.and_then(|Limit(limit)| limit);
    let wanted = single.as_ref().map_or(0, |prompt| prompt.ids.len()).saturating_add(limit.unwrap_or(0));
    // A session file keeps the context size with which it was made. The size is rounded up to a power of two, so that
    // longer prompts fit later.
    let context = open.context(kept_file.as_ref().and(wanted.checked_next_power_of_two()).unwrap_or(wanted));
    let drafting = Drafting::of(&open, false);
    let plan = open.plan(drafting.planned(open.plan_options(context), 1))?;
    let mut memory = Memory::new(&plan)?;
    let mut session = open.session(&mut memory, plan)?;
    let more = if kept_file.is_some() { ", and start a new file for the session" } else { "" };
    if let Some(prompt) = &single {
        runtime::fits(prompt.ids.len(), session.context(), model, more).with_context(|| open.name().to_string())?;
    }
    let mut known = SessionFile::restore_session(kept_file.as_mut(), &mut session)?.tokens;
    let mut draft_memory = None;
    let mut drafts = Drafts::new(&open, drafting, 1, context, &mut draft_memory)?;

    let seed = args.sampling.seed();
    let settings = args.settings(
        (&open, tokenizer),
        session.context(),
        Settings { limit, table, is_json, ..Settings::default() },
    )?;
    let mut scratch = Vec::new();
    let mut mask_memory = tokenizer.filter(|_| settings.table.is_some()).map(MaskMemory::new);
    let mut masks = match (&mut mask_memory, tokenizer) {
        (Some(memory), Some(tokenizer)) => Some(memory.masks(tokenizer)?),
        _ => None,
    };
    let mut continued = |prompt: &Prompt, session: &mut Session<'_, '_>, show: Show<'_>| {
        let least = open.options.reuse;
        let (kept, donor) = reuse::rewind_to(session, &known, (&prompt.ids, &prompt.places), least)?;
        let rng = args.sampling.generator(seed);
        let keep = usize::try_from(args.keep).unwrap_or(prompt.ids.len());
        let keep = keep + usize::from(tokenizer.is_some_and(|tokenizer| tokenizer.add_bos()));
        let shift = args.context_shift.then_some(Shift { keep, discard: 0 });
        let settings = Arc::new(Settings { shift, shown: prompt.places.clone(), ..Settings::clone(&settings) });
        let mut generation = Generation::new(settings, &prompt.ids, rng, 0, tokenizer)?;
        let context = session.context();
        let mut bench = Workbench { tokenizer, masks: masks.as_mut(), scratch: &mut scratch, context };
        let mut watch = Watcher::new(&mut *show);
        let ran = generation::run(
            session,
            &mut generation,
            &mut bench,
            &mut drafts,
            (plan.options.batch, donor),
            &mut watch,
        )?;
        show(&generation.rest())?;
        let outcome = Outcome { ids: generation.answer().to_vec(), is_whole: generation.is_whole(), kept, ran };
        if let Some(file) = &kept_file {
            let (engine, context) = session.parts();
            known = [&prompt.ids[..], &outcome.ids].concat();
            file.write(engine, context, Head { tokens: known.clone(), ..Head::default() })?;
        }
        Ok(outcome)
    };

    let Some(prompt) = single else {
        return each_line(args.text.file.as_deref(), |text| {
            let prompt = Prompt::new(&text, &PictureArgs::default(), &open, tokenizer)?;
            runtime::fits(prompt.ids.len(), session.context(), model, more)?;
            answer(&prompt, |show| continued(&prompt, &mut session, show))
        });
    };
    let setting = Setting { open: &open, plan: &plan, seed };
    print(args, &prompt, &setting, |show| continued(&prompt, &mut session, show))
}

/// A finished generation.
struct Outcome {
    /// The new tokens, without the end token.
    ids: Vec<TokenId>,
    /// True if the answer has no grammar, or if its text matches the whole grammar.
    is_whole: bool,
    /// Number of prompt tokens that the session already had.
    kept: usize,
    ran: generation::Outcome,
}

/// Callback that receives the text as it is generated.
type Show<'s> = &'s mut dyn FnMut(&str) -> Result<()>;

/// Generates the answer to one line of `--jsonl`.
fn answer(prompt: &Prompt, continued: impl FnOnce(Show<'_>) -> Result<Outcome>) -> Result<Answer> {
    let mut text = String::new();
    let outcome = continued(&mut |part| {
        text.push_str(part);
        Ok(())
    })?;
    warn_cut(&outcome, "an answer", "");
    Ok(Answer { text, end: outcome.ran.end.name(), ids: outcome.ids, prompt_tokens: prompt.ids.len() })
}

/// Prints the text as it is generated, then the statistics.
fn print(
    args: &Args,
    prompt: &Prompt,
    setting: &Setting<'_>,
    continued: impl FnOnce(Show<'_>) -> Result<Outcome>,
) -> Result<ExitCode> {
    let mut printer = Printer::new(args, prompt.shown.clone());
    let outcome = continued(&mut |text| printer.text(text))?;
    let stats = setting.stats(prompt, &outcome);
    printer.finish(&prompt.plain_ids(), &outcome, &stats)?;
    print_stats(&stats);
    warn_cut(&outcome, "the answer", ": raise -n or -c");
    let has_template = setting.open.gguf().get("tokenizer.chat_template").is_some();
    if has_template && outcome.ran.end == End::Token && printer.text.trim().is_empty() {
        note(format_args!(
            "the model ended at once: it is trained for conversations, so ask it with `arenite chat -m {}`",
            foreign::quoted(Path::new(setting.open.name()))
        ));
    }
    Ok(match outcome.ran.end {
        End::Interrupted => ExitCode::from(output::INTERRUPTED),
        _ if args.form.is_json() && !outcome.is_whole => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// Returns the prompt. Returns `None` for `--jsonl`, which reads many prompts.
fn only_prompt(args: &Args, open: &OpenModel, tokenizer: Option<&Tokenizer<'_, '_>>) -> Result<Option<Prompt>> {
    args.pictures.must_be_one(&args.text)?;
    let has_pictures = !args.pictures.image.is_empty();
    ensure!(!(has_pictures && args.context_shift), "--context-shift would cut pictures: leave it or --image out");
    if args.text.jsonl {
        return Ok(None);
    }
    let text = args.text.read()?.unwrap_or_else(|| Text::Bytes(if has_pictures { Vec::new() } else { STORY.into() }));
    let prompt = Prompt::new(&text, &args.pictures, open, tokenizer)?;
    if let (Some(tokenizer), true) = (tokenizer, args.verbose_prompt) {
        prompt.explain(tokenizer)?;
    }
    Ok(Some(prompt))
}

fn warn_cut(outcome: &Outcome, what: &str, advice: &str) {
    if !outcome.is_whole {
        let end = outcome.ran.end.name();
        note(format_args!("warning: {what} was cut off ({end}) and does not match the grammar{advice}"));
    }
}

/// Configuration of a run, for the statistics.
struct Setting<'a> {
    open: &'a OpenModel,
    plan: &'a Plan,
    seed: u64,
}

impl Setting<'_> {
    fn stats(&self, prompt: &Prompt, outcome: &Outcome) -> Stats {
        Stats {
            prompt_tokens: prompt.ids.len(),
            kept_tokens: outcome.kept,
            reused_tokens: outcome.ran.reused,
            prefill_tok_s: rate(prompt.ids.len() - outcome.kept - outcome.ran.reused, outcome.ran.prefill),
            tokens: outcome.ids.len(),
            decode_tok_s: rate(outcome.ran.decodes, outcome.ran.decode),
            workspace_bytes: self.plan.workspace,
            kv_bytes: self.plan.kv,
            model_bytes: self.open.file().len(),
            model_held: self.open.file().held(),
            context: self.plan.options.context,
            batch: self.plan.options.batch,
            kv: self.plan.options.kv.name(),
            isa: self.open.options.kernels.name,
            threads: self.open.workers().count(),
            seed: self.seed,
            end: outcome.ran.end.name(),
            draft_n: outcome.ran.drafts.drafted,
            draft_n_accepted: outcome.ran.drafts.accepted,
        }
    }
}

/// A tokenized prompt.
struct Prompt {
    ids: Vec<TokenId>,
    /// Where pictures stand.
    places: Shown,
    /// The text to display.
    shown: String,
}

impl Prompt {
    fn new(
        text: &Text,
        pictures: &PictureArgs,
        open: &OpenModel,
        tokenizer: Option<&Tokenizer<'_, '_>>,
    ) -> Result<Self> {
        let no_vocabulary =
            "the model has no vocabulary: give tokens with --ids, or add a vocabulary with `arenite convert tokenizer`";
        ensure!(tokenizer.is_some() || matches!(text, Text::Ids(_)), no_vocabulary);
        let Sights { ids, shown: places } = pictures.tokens(text, open, Encode::PROMPT)?;
        ensure!(!ids.is_empty(), "the prompt is empty: give a text with -p, or tokens with --ids");
        let Some(tokenizer) = tokenizer else { return Ok(Self { ids, places, shown: String::new() }) };
        let mut decoder = tokenizer.decoder();
        let mut shown = String::new();
        for &id in ids.iter().filter(|id| !is_row(**id)) {
            text::push(&mut decoder, id, tokenizer, &mut shown)?;
        }
        if let Text::Bytes(text) = text {
            shown = String::from_utf8_lossy(text).into_owned();
        }
        Ok(Self { ids, places, shown })
    }

    /// Returns the tokens as the model's vocabulary has them: each row of a picture is replaced by the picture's token.
    fn plain_ids(&self) -> Vec<TokenId> {
        self.places.piece(&self.ids, 0..self.ids.len()).ids.into_owned()
    }

    /// Prints a line for each token to standard error.
    fn explain(&self, tokenizer: &Tokenizer<'_, '_>) -> Result<()> {
        for id in self.plain_ids() {
            let piece = text::piece(tokenizer, id)?;
            note(format_args!("{id:>8}  {piece:?}"));
        }
        Ok(())
    }
}

/// Writes the output in the selected format.
struct Printer {
    format: Format,
    out: Out,
    /// The prompt, printed before the continuation.
    prompt: String,
    display_prompt: bool,
    text: String,
    started: bool,
    /// Breaks lines between words if the output is a terminal.
    wrap: Wrap,
    width: Option<usize>,
}

impl Printer {
    fn new(args: &Args, prompt: String) -> Self {
        Self {
            format: args.format,
            out: Out::lock(),
            prompt,
            // The prompt is not printed before JSON, because programs that parse the output expect only the value.
            display_prompt: !args.no_display_prompt && !args.form.is_json(),
            text: String::new(),
            started: false,
            wrap: Wrap::default(),
            width: terminal_width(),
        }
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.text += text;
        if self.format == Format::Text {
            self.start()?;
            self.print(text)?;
        }
        Ok(())
    }

    fn print(&mut self, text: &str) -> Result<()> {
        let Some(width) = self.width else { return Ok(self.out.now(text.as_bytes())?) };
        let mut lines = String::new();
        self.wrap.push(text, width, &mut lines);
        Ok(self.out.now(lines.as_bytes())?)
    }

    /// Prints the prompt once.
    fn start(&mut self) -> Result<()> {
        if !self.started && self.display_prompt {
            self.print(&self.prompt.clone())?;
        }
        self.started = true;
        Ok(())
    }

    fn finish(&mut self, prompt_ids: &[TokenId], outcome: &Outcome, stats: &Stats) -> Result<()> {
        #[derive(Serialize)]
        struct Report<'a> {
            prompt: &'a str,
            text: &'a str,
            prompt_ids: &'a [TokenId],
            ids: &'a [TokenId],
            draft_n: usize,
            draft_n_accepted: usize,
            stats: &'a Stats,
        }
        match self.format {
            Format::Text => {
                self.start()?;
                self.print("\n")?;
            }
            Format::Ids => self.out.json(&outcome.ids)?,
            Format::Json => self.out.json_pretty(&Report {
                prompt: &self.prompt,
                text: &self.text,
                prompt_ids,
                ids: &outcome.ids,
                draft_n: stats.draft_n,
                draft_n_accepted: stats.draft_n_accepted,
                stats,
            })?,
        }
        Ok(())
    }
}

fn print_stats(stats: &Stats) {
    let count = |n: usize| format!("{n} token{}", if n == 1 { "" } else { "s" });
    // After a single token, no speed is printed, because the first token is chosen in the last pass of the prompt.
    let speed = |rate: f64| if rate > 0.0 { format!(", {rate:.1} tok/s") } else { String::new() };
    let kept = if stats.kept_tokens > 0 { format!(" ({} from the session)", stats.kept_tokens) } else { String::new() };
    let kept = match stats.reused_tokens {
        0 => kept,
        reused => format!("{kept} ({reused} at other positions)"),
    };
    note(format_args!("prompt  {}{kept}{}", count(stats.prompt_tokens), speed(stats.prefill_tok_s)));
    note(format_args!("decode  {}{}, ended by {}", count(stats.tokens), speed(stats.decode_tok_s), stats.end));
    if stats.draft_n > 0 {
        note(format_args!("drafts  {} of {} proposed tokens accepted", stats.draft_n_accepted, stats.draft_n));
    }
    note(format_args!(
        "memory  workspace {}, KV cache {} ({} positions in {}), model {} {}",
        Bytes(stats.workspace_bytes),
        Bytes(stats.kv_bytes),
        stats.context,
        stats.kv,
        Bytes(stats.model_bytes),
        stats.model_held,
    ));
    note(format_args!("run     --seed {} --isa {} --threads {}", stats.seed, stats.isa, stats.threads));
}

/// Tokens per second; 0 if there were no tokens.
fn rate(tokens: usize, time: Duration) -> f64 {
    if tokens == 0 { 0.0 } else { tokens as f64 / time.as_secs_f64().max(1e-9) }
}
