//! `arenite decide`: answers questions about a text with probabilities.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use arenite_run::Loaded;
use serde_json::{Map, Value, json};

use crate::cli::{RunArgs, Text, TextArgs, read_input};
use crate::output::Out;
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;

/// Answer questions about a text, each with its probability
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  arenite decide -m model.gguf --state \"My parcel is late!\" --choice \"team: billing|shipping\"
  arenite decide -m model.gguf -f mail.txt --yes \"angry: Is the customer angry?\" --json
  arenite decide -m model.gguf -f mail.txt --scale \"haste: How urgent is it?: can wait|today|now\"
  arenite decide -m model.gguf --states tickets.txt --choice \"team: billing|shipping\"

Nothing is generated: the probabilities are those of the model for each option. A model that is trained for decisions \
(openjev, lev, nimble, kev, laya, clef) gets its own prompt; for any other model the options are texts that could be its answer.

The file of --questions is a JSON object with a question for each name, or a whole request to /v1/systemone: \
{\"state\": ..., \"questions\": {\"team\": {\"type\": \"choice\", \"instructions\": \"Which team?\", \
\"criteria\": {\"billing\": null, \"shipping\": \"parcels\"}}}}. The types are choice, score (a list of levels) and noul \
(yes or no). The questions of the options are added to those of the file.")]
pub struct Args {
    /// Text that the questions are about, or - for standard input [default: that of --questions, or standard input if
    /// piped]
    #[arg(short = 'p', long, visible_alias = "prompt", value_name = "TEXT", conflicts_with = "file")]
    state: Option<String>,

    /// Read the text from a file
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Read several texts from a file, one in each line. The answers to each are printed in one line, before the text. A
    /// model that is not trained for decisions gets the question before the text, so that all texts share it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["state", "file"])]
    states: Option<PathBuf>,

    /// Choose one of several options. May be repeated
    #[arg(long, value_name = "ID: [QUESTION:] A|B|...", value_parser = choice)]
    choice: Vec<Question>,

    /// Answer yes or no. May be repeated
    #[arg(long, value_name = "[ID:] QUESTION", value_parser = yes)]
    yes: Vec<Question>,

    /// Rate on a scale of 2 to 10 levels. May be repeated
    #[arg(long, value_name = "ID: QUESTION: LOW|...|HIGH", value_parser = scale)]
    scale: Vec<Question>,

    /// JSON file with questions
    #[arg(long, value_name = "F.json")]
    questions: Option<PathBuf>,

    /// Print all probabilities, as the answer of /v1/systemone
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    run: RunArgs,
}

/// A question's name, and its JSON.
#[derive(Clone, Debug, PartialEq)]
struct Question {
    id: String,
    json: Value,
}

/// Splits a question from the name before it. If a question has no name, the question itself is the name.
fn named(text: &str) -> (&str, &str) {
    let (id, rest) = text.split_once(": ").unwrap_or((text, text));
    (id.trim(), rest.trim())
}

/// Splits `ID: QUESTION: A|B` into name, question and options. If there is no question, the name is used as the
/// question.
fn listed(text: &str) -> Result<(&str, &str, Vec<&str>), String> {
    let (id, rest) = text.split_once(':').ok_or("give a name, a colon and options with | between them")?;
    let (asked, options) = rest.rsplit_once(": ").unwrap_or((id, rest));
    let options: Vec<&str> = options.split('|').map(str::trim).collect();
    if options.iter().any(|option| option.is_empty()) {
        return Err("an option is empty".into());
    }
    Ok((id.trim(), asked.trim(), options))
}

fn choice(text: &str) -> Result<Question, String> {
    let (id, asked, options) = listed(text)?;
    let criteria: Map<_, _> = options.iter().map(|option| (option.to_string(), Value::Null)).collect();
    if criteria.len() < options.len() {
        return Err("an option is there twice".into());
    }
    Ok(Question { id: id.into(), json: json!({ "type": "choice", "instructions": asked, "criteria": criteria }) })
}

fn yes(text: &str) -> Result<Question, String> {
    let (id, asked) = named(text);
    Ok(Question { id: id.into(), json: json!({ "type": "noul", "instructions": asked }) })
}

fn scale(text: &str) -> Result<Question, String> {
    let (id, asked, levels) = listed(text)?;
    Ok(Question { id: id.into(), json: json!({ "type": "score", "instructions": asked, "criteria": levels }) })
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let (given, mut questions) = args.questions.as_deref().map(read).transpose()?.unwrap_or_default();
    for Question { id, json } in [&args.choice, &args.yes, &args.scale].into_iter().flatten() {
        ensure!(
            questions.insert(id.clone(), json.clone()).is_none(),
            "there are two questions `{id}`: name one otherwise"
        );
    }
    ensure!(!questions.is_empty(), "no question was given: give one with --choice, --yes, --scale or --questions");
    if let Some(path) = &args.states {
        let texts = read_input(path)?;
        let texts = String::from_utf8_lossy(&texts);
        ensure!(given.is_none(), "--questions has a state, and --states was given: leave one of them out");
        let states: Vec<Value> = texts.lines().filter(|line| !line.trim().is_empty()).map(Value::from).collect();
        ensure!(!states.is_empty(), "{} has no texts", path.display());
        let model = Loaded::new(OpenModel::new(file, args.run.options()?)?)?;
        return each(&states, &model.decide_each(&states, &questions.into())?, args.json);
    }
    let state = match given.filter(|_| args.state.is_none() && args.file.is_none()) {
        Some(state) => state,
        None => text(args)?.into(),
    };
    let model = Loaded::new(OpenModel::new(file, args.run.options()?)?)?;
    let answer = model.decide(&state, &questions.into())?;
    let mut out = Out::lock();
    if args.json {
        out.json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (id, answer) in answer["answers"].as_object().into_iter().flatten() {
        out.now(format!("{id}: {}\n", shown(answer)).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the answers to the questions about each state.
fn each(states: &[Value], answers: &[Value], as_json: bool) -> Result<ExitCode> {
    let mut out = Out::lock();
    for (state, answers) in states.iter().zip(answers) {
        if as_json {
            out.json(&json!({ "state": state, "answers": answers }))?;
            continue;
        }
        let said: Vec<String> =
            answers.as_object().into_iter().flatten().map(|(id, answer)| format!("{id}: {}", shown(answer))).collect();
        out.now(format!("{}\t{}\n", said.join(", "), state.as_str().unwrap_or_default()).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(args: &Args) -> Result<String> {
    let (prompt, file) = (args.state.clone(), args.file.clone());
    let text = TextArgs { prompt, file, ids: None, escape: false, jsonl: false }.read()?;
    match text.context("no text was given: give one with --state, -f FILE or a pipe")? {
        Text::Bytes(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Text::Ids(_) => bail!("the state must be a text"),
    }
}

/// Reads a file of questions. Returns the questions, and the state if the file is a whole request.
fn read(path: &Path) -> Result<(Option<Value>, Map<String, Value>)> {
    let named = || path.display().to_string();
    let bytes = read_input(path)?;
    let body: Value = serde_json::from_slice(&bytes).with_context(named)?;
    let wrong = || anyhow!("{}: give a JSON object with a question for each name", path.display());
    let Value::Object(mut body) = body else { return Err(wrong()) };
    match body.get("questions") {
        // An object under `questions` holds the questions, unless it has a `type`: then it is itself a question, whose
        // name is `questions`.
        Some(Value::Object(questions)) if !questions.contains_key("type") => {
            let questions = questions.clone();
            Ok((body.remove("state").filter(|state| !state.is_null()), questions))
        }
        _ => Ok((None, body)),
    }
}

/// Describes an answer: the chosen option with its probability or, for a rating, the mean level.
fn shown(answer: &Value) -> String {
    let number = |value: &Value| value.as_f64().unwrap_or_default();
    if let Some(choice) = answer["choice"].as_str() {
        return format!("{choice} ({:.4})", number(&answer["probabilities"][choice]));
    }
    if let Some(p) = answer["noul"].as_f64() {
        return if p >= 0.5 { format!("yes ({p:.4})") } else { format!("no ({:.4})", 1.0 - p) };
    }
    let score = number(&answer["score"]);
    let level = &answer["legend"][score.round().to_string()];
    format!("{score:.2} ({})", level.as_str().map_or_else(|| level.to_string(), str::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_the_command_line() {
        let short = choice("route: billing|shipping").unwrap();
        assert_eq!(short.id, "route");
        assert_eq!(
            short.json,
            json!({ "type": "choice", "instructions": "route", "criteria": { "billing": null, "shipping": null } })
        );
        assert_eq!(choice("t: Which team: a or b?: a|b").unwrap().json["instructions"], "Which team: a or b?");
        assert_eq!(yes("Is it late?").unwrap().id, "Is it late?");
        let level = scale("haste: How urgent?: can wait|now").unwrap();
        assert_eq!((level.id.as_str(), &level.json["criteria"]), ("haste", &json!(["can wait", "now"])));
        assert!(choice("a|b").is_err() && choice("x: a||b").is_err() && choice("x: a|a").is_err());
    }
}
