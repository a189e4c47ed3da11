//! `arenite chat`: a conversation with a model.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use arenite::tokenizer::Tokenizer;
use arenite::{Gguf, Model};
use clap::ValueEnum;
use minijinja::value::{Value, ValueKind};

use crate::chat::dialect::{Call, Tools};
use crate::chat::{
    Arguments, ChatEvent, Input, Lines, Reasoning, Renderer, Rules, Screen, Sources, Stats, Style, Talk, dropped,
};
use crate::cli::{
    AnswerArgs, ConstraintArgs, DraftArgs, Form, PictureArgs, ReuseArgs, RunArgs, TemplateArgs, pictures,
    warn_of_differences,
};
use crate::interrupt;
use crate::output::{self, Out, note};
use arenite_files::write_file;
use arenite_grammar as grammar;
use arenite_request::Thinking;
use arenite_run::drafts::{Drafting, Drafts};
use arenite_run::generation::{End, Settings, ThoughtLimit};
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
file that ARENITE_HISTORY names; if that is empty, lines are not kept. NO_COLOR turns colours off. From a pipe, each line is a turn; \
commands that name files are refused there, because the text of a pipe may come from others.")]
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
    answers: AnswerArgs,

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
/help            show this help
/reset           start over, keeping the system message
/regen           regenerate the last answer
/stats           show the speed of the last answer and the use of the context
/set NAME VALUE  set an option of the next answers, such as temperature 0
/save FILE       save the conversation as JSON (the format of --messages)
/image FILE      show a picture with the next message; a dropped path does the same
/load FILE       load a conversation and continue it
/system TEXT     set the system message; without TEXT, remove it
/think on|off    turn thoughts on or off
/model FILE      continue the conversation with another model; without FILE, show the name of this one
/quit            quit; the same as Ctrl-D
End a line with \\ to continue it, or enclose several lines in \"\"\". Ctrl-C stops an answer.";

/// The next step after a conversation with one model.
enum Next {
    End(ExitCode),
    /// Continue these messages with this model and these options.
    Model(ModelFile, Vec<Value>, Box<AnswerArgs>),
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let mut lines = None;
    let mut next = talk_with(file, args, None, &mut lines)?;
    loop {
        match next {
            Next::End(code) => return Ok(code),
            Next::Model(file, messages, answers) => {
                next = talk_with(file, args, Some((messages, *answers)), &mut lines)?;
            }
        }
    }
}

/// Loads a model and converses with it. `before` has the messages of a conversation with a previous model, and its
/// options.
fn talk_with(
    file: ModelFile,
    args: &Args,
    before: Option<(Vec<Value>, AnswerArgs)>,
    lines: &mut Option<Lines>,
) -> Result<Next> {
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
    let (before, answers) = before.map_or_else(|| (None, args.answers.clone()), |(all, set)| (Some(all), set));
    let tools = Arc::new(Tools::of(&declared));
    let mut rules = rules(args, (&style, &tools), tokenizer, plan.options.batch)?;
    let scratch = apply(&answers, &mut rules.settings, &open, &renderer, &style)?;
    let mut talk = Talk {
        session,
        drafts: Drafts::new(&open, drafting, 1, context, &mut draft_memory)?,
        scratch,
        rng: answers.sampling.generator(answers.sampling.seed()),
        tokenizer,
        open: &open,
        style,
        tools,
        declared,
        kwargs,
        renderer,
        rules,
        answers,
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

/// Writes the options of answers and the template's end of answers to the settings. Returns memory for the sampler.
fn apply(
    answers: &AnswerArgs,
    settings: &mut Settings,
    open: &OpenModel,
    renderer: &Renderer,
    style: &Style,
) -> Result<Vec<u8>> {
    let scratch = answers.apply(settings, open)?;
    if style.ends_answer(renderer.stop()) {
        settings.stops.push(renderer.stop().to_string());
        settings.stop_ids.extend(text::token(open.vocabulary()?, renderer.stop()));
    }
    Ok(scratch)
}

/// Returns the settings of all answers of the chat that `/set` does not change.
fn rules(args: &Args, (style, tools): (&Style, &Tools), tokenizer: &Tokenizer<'_, '_>, step: usize) -> Result<Rules> {
    let mut settings = Settings::default();
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
            Input::Text(line) => match typed(talk, &line, args, is_terminal.then_some(file)) {
                Ok(None) => {}
                Ok(Some(next)) => return Ok(next),
                Err(error) if is_terminal => _ = output::report(&error),
                Err(error) => return Err(error),
            },
        }
        interrupted = false;
    }
}

/// Handles a line: a command, or a message with the pictures that were dropped on the terminal. `on_terminal` is the
/// model's file if the line comes from a terminal. Only then may a line name files, because the lines of a pipe may come
/// from others.
fn typed(
    talk: &mut Talk<'_, '_, '_>,
    line: &str,
    args: &Args,
    on_terminal: Option<&ModelFile>,
) -> Result<Option<Next>> {
    let (paths, text) = if on_terminal.is_some() { dropped(line) } else { (Vec::new(), String::new()) };
    if !paths.is_empty() {
        paths.iter().try_for_each(|path| show(talk, path))?;
        if text.is_empty() { Ok(()) } else { talk.say(&text) }?;
        return Ok(None);
    }
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if !is_command(name) {
        return talk.say(line).map(|()| None);
    }
    let (name, rest) = (whole_name(name)?, rest.trim());
    let takes_file = HELP.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(" FILE")));
    match on_terminal {
        None if takes_file => bail!(
            "{name} works only on a terminal, because it names a file: use --messages, --session, --image or -m; if the \
             line is a message, begin it with a space"
        ),
        Some(present) if name == "/model" => {
            let next = model(rest, args, present)?;
            Ok(next.map(|file| Next::Model(file, std::mem::take(&mut talk.messages), Box::new(talk.answers.clone()))))
        }
        _ => command(talk, name, rest, args),
    }
}

/// Returns true for a slash and letters, or `/?`. Other words with a slash, such as paths, belong to messages.
fn is_command(word: &str) -> bool {
    let name = word.strip_prefix('/').unwrap_or_default();
    name == "?" || !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Returns the command of the help whose name begins with `name`, or `name` itself if there is another one.
fn whole_name(name: &str) -> Result<&str> {
    let names = HELP.lines().filter_map(|line| line.split(' ').next()).filter(|word| is_command(word));
    let fitting: Vec<_> = names.filter(|word| word.starts_with(name)).collect();
    match fitting[..] {
        [] => Ok(name),
        [whole] => Ok(whole),
        _ if fitting.contains(&name) => Ok(name),
        _ => bail!("{name} may be {}; see /help", fitting.join(" or ")),
    }
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
fn model(name: &str, args: &Args, present: &ModelFile) -> Result<Option<ModelFile>> {
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

/// Runs a slash command. Returns `None` if the conversation goes on.
fn command(talk: &mut Talk<'_, '_, '_>, name: &str, rest: &str, args: &Args) -> Result<Option<Next>> {
    let path = || -> Result<&Path> {
        if rest.is_empty() {
            bail!("{name} needs a file: {name} {}", if name == "/image" { "photo.png" } else { "talk.json" });
        }
        Ok(Path::new(rest))
    };
    match name {
        "/help" | "/?" => writeln!(Out::lock(), "{HELP}")?,
        "/quit" | "/exit" | "/bye" => return Ok(Some(Next::End(ExitCode::SUCCESS))),
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
        "/set" => set(talk, rest)?,
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
        _ => bail!("unknown command {name}; see /help; a message that begins with a slash needs a space before it"),
    }
    Ok(None)
}

/// Runs `/set`. As in ollama, the word `parameter` may come first.
fn set(talk: &mut Talk<'_, '_, '_>, words: &str) -> Result<()> {
    let words = words.strip_prefix("parameter ").unwrap_or(words).trim_start();
    let (name, value) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
    let mut answers = talk.answers.clone();
    answers.set(name, value.trim_start())?;
    talk.scratch = apply(&answers, &mut talk.rules.settings, talk.open, &talk.renderer, &talk.style)?;
    if ["seed", "rng"].contains(&name) {
        talk.rng = answers.sampling.generator(answers.sampling.seed());
    }
    talk.answers = answers;
    Ok(())
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
    write_file(path, |file| {
        serde_json::to_writer_pretty(&mut *file, messages)?;
        Ok(file.write_all(b"\n")?)
    })
}
