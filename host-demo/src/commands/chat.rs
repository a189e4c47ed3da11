//! `arenite chat`: a conversation with a model.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use arenite::sampler::Sampler;
use arenite::tokenizer::Tokenizer;
use arenite::{Gguf, Model, TokenId};
use clap::ValueEnum;
use minijinja::value::{Value, ValueKind};

use crate::chat::dialect::{Call, Tools};
use crate::chat::{
    Arguments, ChatEvent, Input, Lines, Reasoning, Renderer, Rules, Screen, Sources, Stats, Style, Talk, dropped,
};
use crate::cli::{
    ConstraintArgs, DraftArgs, Form, Limit, PictureArgs, ReuseArgs, RunArgs, SamplingArgs, TemplateArgs, pictures,
    warn_of_differences,
};
use crate::interrupt;
use crate::output::{self, Out, note};
use arenite_files as new_file;
use arenite_grammar as grammar;
use arenite_request::Thinking;
use arenite_run::drafts::{Drafting, Drafts};
use arenite_run::generation::{End, Settings, ThoughtLimit, within};
use arenite_run::model_file::{Load, ModelFile, Source};
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::{self, Memory};
use arenite_run::session_file::{Head, SessionFile};
use arenite_text as text;

/// Chat with a model
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite chat -m model.gguf --system \"You answer briefly.\"
  echo \"Why is the sea salt?\" | arenite chat -m model.gguf
  arenite chat -m model.gguf --index notes.index -p \"Where did we park the car?\"
  arenite chat -m model.gguf --messages talk.json --tools tools.json --print-prompt
  arenite chat -m model.gguf --tools tools.json --tool-cmd \"python3 run_call.py\"

On a terminal, lines can be edited, \\ at the end of a line continues it, pasted text may have several lines, Ctrl-C \
stops an answer, Tab completes commands, and /help lists them. Lines are kept in ~/.local/state/arenite/history, or in the \
file that ARENITE_HISTORY names; if that is empty, lines are not kept. NO_COLOR turns colours off. From a pipe, each line is a turn.")]
pub struct Args {
    /// System message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    #[command(flatten)]
    template: TemplateArgs,

    /// Initial messages: a JSON list of {"role": ..., "content": ...}
    #[arg(long, value_name = "F.json")]
    messages: Option<PathBuf>,

    /// Functions that the model may call: a JSON list of their schemas
    #[arg(long, value_name = "F.json")]
    tools: Option<PathBuf>,

    /// Program that runs function calls: reads {"name": ..., "arguments": {...}} from stdin and prints the result
    #[arg(long, value_name = "CMD", requires = "tools")]
    tool_cmd: Option<String>,

    /// Turn thinking on or off, if the template has a switch
    #[arg(long, value_name = "on|off")]
    think: Option<Switch>,

    /// Maximum number of tokens of a thought; -1 means no limit
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    reasoning_budget: Option<i64>,

    /// Variables of the chat template, a JSON object
    #[arg(long, value_name = "JSON")]
    chat_template_kwargs: Option<String>,

    /// Print the conversation's prompt, byte for byte, and exit
    #[arg(long, requires = "messages")]
    print_prompt: bool,

    /// First message of the user
    #[arg(short = 'p', long = "prompt", value_name = "TEXT")]
    pub(super) prompt: Option<String>,

    #[command(flatten)]
    pictures: PictureArgs,

    /// Index of `arenite index`: the passages nearest to each message accompany it, and answers name their files
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json_schema", "grammar", "json"])]
    index: Option<PathBuf>,

    /// True if the program ends after the answer to the first message.
    #[arg(skip)]
    once: bool,

    /// Display of thoughts: shown, dim (grey on a terminal; in a pipe on standard error) or hidden
    #[arg(long, value_enum, default_value_t = Reasoning::Dim)]
    reasoning: Reasoning,

    /// Drop the oldest turns when the context is full
    #[arg(long)]
    shift: bool,

    /// Maximum number of tokens per answer [default: until an end token or a full context]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    n_tokens: Option<Limit>,

    /// Stop string of answers (not printed); may be repeated
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Additional end token of answers; may be repeated
    #[arg(long, value_name = "ID")]
    stop_id: Vec<TokenId>,

    /// Session file with the conversation and its context: read if it exists, written at the end
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,

    #[command(flatten)]
    draft: DraftArgs,

    #[command(flatten)]
    reuse: ReuseArgs,

    #[command(flatten)]
    constraint: ConstraintArgs,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    run: RunArgs,
}

impl Args {
    /// Asks `prompt`, if it is given, and ends after the answer.
    pub fn asked_once(self, prompt: Option<String>) -> Self {
        Self { once: prompt.is_some(), prompt: prompt.or(self.prompt), ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

const HELP: &str = "\
/help          show this help
/reset         start over, keeping the system message
/regen         regenerate the last answer
/stats         show the speed of the last answer and the use of the context
/save FILE     save the conversation as JSON (the format of --messages)
/image FILE    show a picture with the next message; a dropped path does the same
/load FILE     load a conversation and continue it
/system TEXT   set the system message; without TEXT, remove it
/think on|off  turn thoughts on or off
/model FILE    continue the conversation with another model; without FILE, show the name of this one
/quit          quit; the same as Ctrl-D
End a line with \\ to continue it, or enclose several lines in \"\"\". Ctrl-C stops an answer.";

/// The next step after a conversation with one model.
enum Next {
    End(ExitCode),
    /// Continue these messages with this model.
    Model(ModelFile, Vec<Value>),
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let mut lines = None;
    let mut next = talk_with(file, args, None, &mut lines)?;
    loop {
        match next {
            Next::End(code) => return Ok(code),
            Next::Model(file, messages) => next = talk_with(file, args, Some(messages), &mut lines)?,
        }
    }
}

/// Loads a model and converses with it. `before` has the messages of a conversation with a previous model.
fn talk_with(file: ModelFile, args: &Args, before: Option<Vec<Value>>, lines: &mut Option<Lines>) -> Result<Next> {
    if args.print_prompt {
        return print_prompt(args, &file);
    }
    let mut kept = args.session.as_deref().map(SessionFile::open).transpose()?;
    let options = args.reuse.apply(args.draft.apply(args.run.options()?, &file, kept.is_some()));
    let open = OpenModel::new(file, SessionFile::sized(kept.as_ref(), options))?;
    let (gguf, model, tokenizer) = (open.gguf(), open.model(), open.vocabulary()?);
    let Template { renderer, style, declared, kwargs, messages } = Template::new(args, gguf, tokenizer)?;
    runtime::must_continue(model).with_context(|| open.name().to_string())?;
    let context = open.context(0);
    let drafting = Drafting::of(&open, false);
    let plan = open.plan(drafting.planned(open.plan_options(context), 1))?;
    let mut draft_memory = None;
    let mut memory = Memory::new(&plan)?;
    let mut session = open.session(&mut memory, plan)?;
    let Head { tokens, messages: earlier, text: known_text, .. } =
        SessionFile::restore_session(kept.as_mut(), &mut session)?;
    let messages = match args.messages {
        Some(_) => messages,
        None => earlier.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?,
    };
    let params = within(&args.sampling.params()?, context);
    let vocab = model.spec().vocab;
    let mut scratch = vec![0; Sampler::scratch_bytes(&params, vocab)];
    Sampler::new(params, &args.sampling.logit_bias, vocab, &mut scratch)?; // reports wrong options at the start
    text::in_vocabulary(&args.stop_id, vocab)?;
    let tools = Arc::new(Tools::of(&declared));
    let rules = rules(args, &renderer, (&style, &tools), tokenizer, plan.options.batch)?;
    let mut talk = Talk {
        session,
        drafts: Drafts::new(&open, drafting, 1, context, &mut draft_memory)?,
        scratch,
        rng: args.sampling.generator(args.sampling.seed()),
        tokenizer,
        open: &open,
        style,
        tools,
        declared,
        kwargs,
        renderer,
        rules,
        messages,
        known: tokens,
        known_text: known_text.filter(|_| args.messages.is_none()),
        last: None,
        calls: Vec::new(),
        pictures: Vec::new(),
        sources: args.index.as_deref().map(|path| Sources::open(path, args.run.options()?)).transpose()?,
    };
    if let Some(messages) = before {
        talk.load(messages)?;
    } else {
        args.system.iter().for_each(|system| talk.set_system(system));
        talk.pictures = args.pictures.read()?;
        args.prompt.iter().try_for_each(|prompt| talk.say(prompt))?;
    }
    if !talk.renderer.has_own_format() {
        note(format_args!(
            "warning: the file has no chat template, so this is probably a base model, which continues texts: use \
             `arenite generate`, or name the format that it was trained with, such as --template chatml; {} is used now",
            talk.renderer.name()
        ));
    }
    let lines = match lines {
        Some(lines) => lines,
        None => lines.insert(Lines::open(HELP)?),
    };
    if lines.is_terminal() && !args.once {
        let name = talk.renderer.name();
        note(format_args!("{}, {name}, {context} positions; /help for help", open.name()));
    }
    let next = converse(&mut talk, lines, args, open.file())?;
    if let Some(file) = kept {
        let messages = talk.messages.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        let (tokens, text) = (std::mem::take(&mut talk.known), talk.known_text.take());
        let (engine, context) = talk.session.parts();
        file.write(engine, context, Head { tokens, messages, text, ..Head::default() })?;
    }
    Ok(next)
}

/// Returns the settings of all answers of the chat, as the options and the model's template determine them.
fn rules(
    args: &Args,
    renderer: &Renderer,
    (style, tools): (&Style, &Tools),
    tokenizer: &Tokenizer<'_, '_>,
    step: usize,
) -> Result<Rules> {
    let params = args.sampling.params()?;
    let mut settings = Settings {
        params,
        bias: args.sampling.logit_bias.clone(),
        breakers: args.sampling.breakers(&params, Some(tokenizer))?,
        limit: args.n_tokens.and_then(|Limit(limit)| limit),
        stops: args.stop.clone(),
        stop_ids: args.stop_id.clone(),
        ..Settings::default()
    };
    if style.ends_answer(renderer.stop()) {
        settings.stops.push(renderer.stop().to_string());
        settings.stop_ids.extend(text::token(tokenizer, renderer.stop()));
    }
    let form = args.constraint.read()?;
    let callable: Vec<_> = tools.0.iter().collect();
    let table =
        form.as_ref().map(|form| form.table(Some(tokenizer), |schema| style.schema_or_calls(schema, &callable, true)));
    settings.table = table.transpose()?;
    settings.is_json = form.as_ref().is_some_and(Form::is_schema) && !style.is_in_messages() && callable.is_empty();
    let strict = match (&settings.table, style.strict_calls(tools, true)) {
        (None, Some((until, calls))) => {
            let table = grammar::from_pieces(&calls, &grammar::Budget::of_command()).context("--tools")?;
            warn_of_differences(&table, "--tools");
            Some((until, table.into()))
        }
        _ => None,
    };
    Ok(Rules {
        settings,
        is_schema: form.is_some_and(|form| form.is_schema()),
        strict,
        thoughts: ThoughtLimit::of(&thinking(args.think, args)),
        shift: args.shift,
        step,
    })
}

/// Prints the prompt for the conversation in `--messages`. The model file may lack the weights.
fn print_prompt(args: &Args, file: &ModelFile) -> Result<Next> {
    let gguf = file.parse()?;
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index).with_context(|| file.name().to_string())?;
    let Template { renderer, style, declared, kwargs, messages } = Template::new(args, &gguf, &tokenizer)?;
    let messages = messages.into_iter().map(|message| with_arguments(message, &style)).collect::<Result<Vec<_>>>()?;
    let tools = if declared.is_empty() { Value::from(()) } else { serde_json::from_value(declared.into())? };
    let arguments = Arguments { tools, kwargs: serde_json::from_value(kwargs.into())? };
    Out::lock().now(renderer.exact(&messages, &arguments)?.as_bytes())?;
    Ok(Next::End(ExitCode::SUCCESS))
}

/// Converts the arguments of a message's calls to JSON values, because the file may have them as texts, as in OpenAI's
/// interface. As in the server, a template that needs texts gets texts.
fn with_arguments(message: Value, style: &Style) -> Result<Value> {
    if style.probe.wants_text || message.get_attr("tool_calls").is_ok_and(|calls| calls.is_undefined()) {
        return Ok(message);
    }
    let mut message = serde_json::to_value(message)?;
    for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
        let Some(arguments) = call.pointer_mut("/function/arguments") else { continue };
        let text = arguments.as_str().map(|text| if text.trim().is_empty() { "{}" } else { text });
        if let Some(Ok(value)) = text.map(serde_json::from_str) {
            *arguments = value;
        }
    }
    Ok(serde_json::from_value(message)?)
}

/// The template for a conversation, with all that it renders: the functions and variables that the user gives, and the
/// messages of `--messages`.
struct Template {
    renderer: Renderer,
    style: Style,
    declared: Vec<serde_json::Value>,
    kwargs: serde_json::Map<String, serde_json::Value>,
    messages: Vec<Value>,
}

impl Template {
    fn new(args: &Args, gguf: &Gguf<'_>, tokenizer: &Tokenizer<'_, '_>) -> Result<Self> {
        let (name, template) = args.template.read()?;
        let mut renderer = Renderer::new(gguf, tokenizer, name, template)?;
        if name == "auto" {
            renderer.tell_stories(gguf);
        } else {
            renderer.is_chosen = true;
        }
        let declared = args.tools.as_deref().map(list).transpose()?.unwrap_or_default();
        let declared = declared.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let style = Style::of(&renderer, tokenizer);
        let kwargs = kwargs(&thinking(args.think, args), args, &style)?;
        let messages = args.messages.as_deref().map(list).transpose()?.unwrap_or_default();
        Ok(Self { renderer, style, declared, kwargs, messages })
    }
}

/// Returns the thoughts that the options ask for. `switch` replaces the value of `--think`.
fn thinking(switch: Option<Switch>, args: &Args) -> Thinking {
    let mut thinking = Thinking { budget: args.reasoning_budget, ..Thinking::default() };
    if let Some(switch) = switch {
        thinking.turn("--think", switch == Switch::On);
    }
    thinking
}

/// Returns the template variables for thoughts, and the variables that the options set.
fn kwargs(thinking: &Thinking, args: &Args, style: &Style) -> Result<serde_json::Map<String, serde_json::Value>> {
    ensure!(!thinking.is_on() || style.thinks(), "the model does not think; leave out --think");
    let mut kwargs = style.thinking(thinking).map_err(anyhow::Error::msg)?;
    if let Some(text) = &args.chat_template_kwargs {
        let more: serde_json::Map<_, _> =
            serde_json::from_str(text).context("--chat-template-kwargs must be a JSON object")?;
        kwargs.extend(more);
    }
    Ok(kwargs)
}

/// Reads messages and commands, and answers the messages, until the conversation ends or the user chooses another
/// model.
fn converse(talk: &mut Talk<'_, '_, '_>, lines: &mut Lines, args: &Args, file: &ModelFile) -> Result<Next> {
    let is_terminal = lines.is_terminal();
    let mut interrupted = false;
    loop {
        if talk.waits() {
            interrupt::listen();
            let end = answer_with_tools(talk, args);
            interrupt::answered();
            match end {
                Ok(End::Interrupted) if !is_terminal || args.once => {
                    return Ok(Next::End(ExitCode::from(output::INTERRUPTED)));
                }
                Ok(_) => {}
                // If a turn of a chat on a terminal fails, the error is printed and the conversation goes on.
                Err(error) if is_terminal && !args.once => {
                    let _ = talk.unsay();
                    let _ = output::report(&error);
                }
                Err(error) => return Err(error),
            }
            if args.once {
                return Ok(Next::End(ExitCode::SUCCESS));
            }
        }
        match lines.next()? {
            Input::End => return Ok(Next::End(ExitCode::SUCCESS)),
            Input::Interrupted if interrupted => return Ok(Next::End(ExitCode::SUCCESS)),
            Input::Interrupted => {
                note("press Ctrl-C again to quit, or use Ctrl-D or /quit");
                interrupted = true;
                continue;
            }
            Input::Text(line) if line.trim().is_empty() => {}
            Input::Text(line) if is_terminal && line.starts_with("/model") => match model(line.trim(), args, file) {
                Ok(None) => {}
                Ok(Some(model)) => return Ok(Next::Model(model, std::mem::take(&mut talk.messages))),
                Err(error) => _ = output::report(&error),
            },
            Input::Text(line) if is_terminal => match typed(talk, &line, args) {
                Ok(true) => {}
                Ok(false) => return Ok(Next::End(ExitCode::SUCCESS)),
                Err(error) => _ = output::report(&error),
            },
            Input::Text(line) => talk.say(&line)?,
        }
        interrupted = false;
    }
}

/// Handles a line from a terminal: a command, or a message with the pictures that were dropped on the terminal. Returns
/// `false` if the conversation should end.
fn typed(talk: &mut Talk<'_, '_, '_>, line: &str, args: &Args) -> Result<bool> {
    let (paths, text) = dropped(line);
    if paths.is_empty() {
        return match line.starts_with('/') {
            true => command(talk, line.trim(), args),
            false => talk.say(line).map(|()| true),
        };
    }
    paths.iter().try_for_each(|path| show(talk, path))?;
    if !text.is_empty() {
        talk.say(&text)?;
    }
    Ok(true)
}

/// Adds a picture to the next message.
fn show(talk: &mut Talk<'_, '_, '_>, path: &Path) -> Result<()> {
    talk.pictures.push(pictures::read(path)?);
    note(format_args!("{} is shown with the next message", path.display()));
    Ok(())
}

/// Maximum number of consecutive answers that call functions.
const MOST_ROUNDS: usize = 16;

/// Generates an answer. While the answer calls functions and `--tool-cmd` is given, runs the calls and generates the
/// next answer.
fn answer_with_tools(talk: &mut Talk<'_, '_, '_>, args: &Args) -> Result<End> {
    for _ in 0..MOST_ROUNDS {
        let end = answer(talk, args.reasoning)?;
        let calls = std::mem::take(&mut talk.calls);
        let (false, Some(program)) = (calls.is_empty(), &args.tool_cmd) else { return Ok(end) };
        for (index, call) in calls.iter().enumerate() {
            let result = run_tool(program, call)?;
            talk.add_result(call, index, result.trim_end());
        }
    }
    bail!("the model has called functions {MOST_ROUNDS} times in a row: /reset starts over")
}

/// Runs the program of `--tool-cmd` and returns its output.
fn run_tool(program: &str, call: &Call) -> Result<String> {
    let failed = || format!("--tool-cmd {program} failed for {}", call.name);
    let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
    let mut child = Command::new(shell)
        .args([flag, program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(failed)?;
    let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    let asked = serde_json::json!({ "name": call.name, "arguments": arguments });
    if let Some(mut stdin) = child.stdin.take() {
        // Ignore errors, because the program may end without reading its standard input.
        let _ = writeln!(stdin, "{asked}");
    }
    let output = child.wait_with_output().with_context(failed)?;
    ensure!(output.status.success(), "{}: {}", failed(), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Generates an answer and shows it as it is generated.
fn answer(talk: &mut Talk<'_, '_, '_>, reasoning: Reasoning) -> Result<End> {
    let mut screen = None;
    let (style, tools, is_schema) = (talk.style.clone(), talk.tools.clone(), talk.rules.is_schema);
    let stats = talk.answer(|event| match (event, &mut screen) {
        (ChatEvent::Prompt(prompt), screen) => {
            *screen = Some(Screen::new(reasoning, style.answer_reader(&tools, prompt, is_schema, true)));
            Ok(())
        }
        (ChatEvent::Answer(text), Some(screen)) => screen.push(text),
        (ChatEvent::Answer(_), None) => Ok(()),
    });
    // Finish the line even if the answer failed.
    let is_unfinished = stats.as_ref().is_ok_and(|stats| stats.end.is_unfinished());
    screen.map_or(Ok(()), |screen| screen.finish(is_unfinished))?;
    let end = stats?.end;
    talk.cite()?;
    match end {
        End::Interrupted => note("(stopped)"),
        End::Length => {
            let what = "the answer was cut off: raise -n";
            ensure!(!talk.rules.is_schema, "{what}; the value is not whole");
            note(what);
        }
        End::Context => note(format_args!(
            "the context of {} positions is full: use /reset to start over, --shift to drop the oldest turns, or a larger -c",
            talk.session.context()
        )),
        _ => {}
    }
    Ok(end)
}

/// Opens the model that `/model FILE` names. If there is no file name, prints the name of the current model and returns
/// `None`.
fn model(line: &str, args: &Args, present: &ModelFile) -> Result<Option<ModelFile>> {
    let name = line.trim_start_matches("/model").trim();
    if name.is_empty() {
        note(present.name());
        return Ok(None);
    }
    ensure!(args.session.is_none(), "the file of --session belongs to one model: start `arenite chat` again");
    let file = ModelFile::open(Source { load: Load::Auto, ..Source::from(Path::new(name)) })?;
    // Check the new model first, so that the current model stays loaded after an error.
    let gguf = file.parse()?;
    runtime::must_continue(&Model::new(&gguf).with_context(|| name.to_string())?)?;
    Ok(Some(file))
}

/// Runs a slash command. Returns `false` if the conversation should end.
fn command(talk: &mut Talk<'_, '_, '_>, line: &str, args: &Args) -> Result<bool> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let path = || -> Result<&Path> {
        if rest.is_empty() {
            bail!("{name} needs a file: {name} {}", if name == "/image" { "photo.png" } else { "talk.json" });
        }
        Ok(Path::new(rest))
    };
    match name {
        "/help" | "/?" => writeln!(Out::lock(), "{HELP}")?,
        "/quit" | "/exit" | "/bye" => return Ok(false),
        "/reset" | "/clear" => talk.reset()?,
        "/regen" => {
            if !talk.take_back_answer() {
                bail!("there is no answer to regenerate yet");
            }
        }
        "/system" => talk.set_system(rest),
        "/think" => {
            let switch = match rest {
                "on" => Switch::On,
                "off" => Switch::Off,
                _ => bail!("/think needs on or off"),
            };
            let thinking = thinking(Some(switch), args);
            talk.kwargs = kwargs(&thinking, args, &talk.style)?;
            talk.rules.thoughts = ThoughtLimit::of(&thinking);
            talk.known_text = None;
        }
        "/stats" => print_stats(talk)?,
        "/image" => show(talk, path()?)?,
        "/save" => {
            save(path()?, &talk.messages)?;
            note(format_args!("{} messages in {rest}", talk.messages.len()));
        }
        "/load" => {
            let messages = list(path()?)?;
            note(format_args!("{} messages from {rest}", messages.len()));
            talk.load(messages)?;
        }
        _ => bail!("unknown command {name}; see /help"),
    }
    Ok(true)
}

fn print_stats(talk: &Talk<'_, '_, '_>) -> Result<()> {
    let mut out = Out::lock();
    if let Some(Stats { kept, reused, prefilled, prefill, decoded, decode, end, drafts }) = talk.last {
        writeln!(out, "kept       {kept} tokens of the prompt were in the context")?;
        if reused > 0 {
            writeln!(out, "reused     {reused} tokens were at other positions")?;
        }
        writeln!(out, "prefilled  {prefilled} tokens{}", rate(prefilled, prefill))?;
        writeln!(out, "decoded    {decoded} tokens{}, ended by {}", rate(decoded, decode), end.name())?;
        if drafts.drafted > 0 {
            writeln!(out, "drafts     {} of {} proposed tokens accepted", drafts.accepted, drafts.drafted)?;
        }
    }
    writeln!(out, "context    {} of {} positions", talk.session.position(), talk.session.context())?;
    writeln!(out, "turns      {}", talk.turns())?;
    Ok(())
}

/// Formats the speed for the statistics; empty if no tokens were processed.
fn rate(tokens: usize, time: Duration) -> String {
    if tokens == 0 || time.is_zero() {
        String::new()
    } else {
        format!(", {:.1} tok/s", tokens as f64 / time.as_secs_f64())
    }
}

/// Reads a JSON list of objects.
fn list(path: &Path) -> Result<Vec<Value>> {
    let wanted = || {
        let path = path.display();
        format!("{path} is not a JSON list of objects, such as [{{\"role\": \"user\", \"content\": \"Hello\"}}]")
    };
    let text = text::read_utf8(path)?;
    let list: Vec<Value> = serde_json::from_str(&text).with_context(wanted)?;
    ensure!(list.iter().all(|item| item.kind() == ValueKind::Map), wanted());
    Ok(list)
}

fn save(path: &Path, messages: &[Value]) -> Result<()> {
    new_file::write_file(path, |file| {
        serde_json::to_writer_pretty(&mut *file, messages)?;
        Ok(file.write_all(b"\n")?)
    })
}
