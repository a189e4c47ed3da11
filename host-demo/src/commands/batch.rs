//! `arenite batch`: answers OpenAI batch files, many lines per pass.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender, SyncSender, channel, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use crate::cli::{DraftArgs, ReuseArgs, RunArgs, at_least_one, numbered_lines};
use crate::output::announce::announce;
use crate::output::{note, progress};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use arenite_run::runtime::RunOptions;
use arenite_run::scheduler::{Asker, Command, Counters, Decision, Embedding, Event, Job};
use arenite_run::service::{Choice, Decisions, Endpoint, Host, Kept, Service, by_chance, run_engine, token_count};
use arenite_run::session_file::SessionFile;
use arenite_serve::{self as faces, ApiError, Ready, ResponseMeta, read_json};
use arenite_text::json_line;

/// Answer the requests of an OpenAI batch file, many at once
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  arenite batch -m model.gguf -i requests.jsonl -o answers.jsonl --parallel 8

Each line is {\"custom_id\": ..., \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": {...}}. The url may \
also be /v1/completions, /v1/responses, /v1/embeddings, or /v1/systemone for decisions of any model. Answers are \
appended as they are completed; a run that was stopped continues where it left off. A body without a seed gets one \
derived from its custom_id. The exit code is 0 only if every line has an answer.")]
pub struct Args {
    /// Requests; - for standard input
    #[arg(short, long, value_name = "IN.jsonl")]
    input: PathBuf,

    /// Answers; - for standard output
    #[arg(short, long, value_name = "OUT.jsonl")]
    output: PathBuf,

    /// Number of answers that are generated at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one)]
    parallel: usize,

    /// Derive ids and times from the line alone, so that every run writes the same bytes
    #[arg(long)]
    reproducible: bool,

    /// Session file with the common beginning of the prompts: read if it exists, written at the end
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,

    #[command(flatten)]
    draft: DraftArgs,

    #[command(flatten)]
    reuse: ReuseArgs,

    #[command(flatten)]
    run: RunArgs,
}

pub fn run(args: &Args, file: ModelFile) -> Result<ExitCode> {
    let input: Box<dyn BufRead + Send> = match is_pipe(&args.input) {
        true => Box::new(BufReader::new(std::io::stdin())),
        false => {
            let file = File::open(&args.input).with_context(|| format!("cannot read {}", args.input.display()))?;
            arenite_files::keep(&args.input);
            Box::new(BufReader::new(file))
        }
    };
    let (output, done): (Box<dyn Write + Send>, Vec<Answered>) = match is_pipe(&args.output) {
        true => (Box::new(std::io::stdout()), Vec::new()),
        false => {
            let (file, done) = resume(&args.output).with_context(|| args.output.display().to_string())?;
            (Box::new(file), done)
        }
    };
    let kept = args.session.as_deref().map(SessionFile::open).transpose()?;
    let options = args.reuse.apply(args.draft.apply(args.run.options()?, &file, kept.is_some()));
    let options = RunOptions { parallel: args.parallel, ..SessionFile::sized(kept.as_ref(), options) };
    let host = Host::new(OpenModel::new(file, options)?, false)?;
    announce(&host, None);
    let Host { open, plan, drafting, mut service } = host;
    service.decides_any = true;
    let (commands, asked) = channel();
    let window = 4 * args.parallel;
    let batch = Batch { service, commands, window, reproducible: args.reproducible };
    let lines = std::thread::spawn(move || batch.answer_all(input, output, done));
    let kept = kept.map_or(Kept::Nothing, Kept::Prefix);
    run_engine(&open, (plan, drafting), kept, Arc::new(Counters::default()), &asked, || ())?;
    let failed = lines.join().map_err(|_| anyhow!("the reader thread panicked"))??;
    if failed > 0 {
        note(format_args!("{failed} lines have no answer: their errors are in the output"));
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn is_pipe(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A line of the output from an earlier run.
struct Answered {
    number: usize,
    custom_id: Value,
    is_good: bool,
}

/// The start of each line of the output.
const START: &str = r#"{"id":"batch_req_"#;

/// Reads the complete lines that an earlier run wrote, cuts off an incomplete last line, and opens the file for
/// appending. A device or a pipe is only written.
fn resume(path: &Path) -> Result<(File, Vec<Answered>)> {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Ok((OpenOptions::new().write(true).open(path)?, Vec::new()));
    }
    ensure!(!arenite_files::is_kept(path), "this is the input: give another output file");
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut done = Vec::new();
    let wrong = |number| format!("line {number} is not a batch answer: give another output file, or remove this one");
    for (number, line) in numbered_lines(&text[..whole]) {
        let line = line?;
        ensure!(line.starts_with(START.as_bytes()), wrong(number));
        let line: Value = serde_json::from_slice(&line).with_context(|| wrong(number))?;
        done.push(Answered { number, custom_id: line["custom_id"].clone(), is_good: is_good(&line) });
    }
    let last = &text[whole..];
    ensure!(
        last.iter().zip(START.as_bytes()).all(|(a, b)| a == b),
        wrong(text[..whole].split(|byte| *byte == b'\n').count())
    );
    file.set_len(whole as u64)?;
    file.seek(std::io::SeekFrom::End(0))?;
    Ok((file, done))
}

fn is_good(line: &Value) -> bool {
    line.pointer("/response/status_code") == Some(&json!(200))
}

/// The state that all lines of a batch share. It must outlive the last line and be dropped then, because the engine runs until
/// `commands` is dropped.
struct Batch {
    service: Service,
    commands: Sender<Command>,
    /// Maximum number of lines that are read before the next line of the output can be written.
    window: usize,
    reproducible: bool,
}

/// A line whose answer is being generated.
struct Pending {
    /// Hash of the line's bytes.
    hash: u64,
    custom_id: Value,
    what: std::result::Result<What, ApiError>,
}

/// Receives an embedding.
type Receiver = mpsc::Receiver<std::result::Result<Vec<f32>, String>>;

/// Receives the scores of options.
type Scores = mpsc::Receiver<std::result::Result<Vec<Vec<f64>>, String>>;

enum What {
    Text(Ready, Vec<mpsc::Receiver<Event>>),
    /// The body of a request of the Responses API.
    Response(Value, Ready, Vec<mpsc::Receiver<Event>>),
    Vectors(faces::VectorFormat, Vec<Receiver>, usize),
    Decisions(Decisions, Scores),
    /// The error message for a line that is not JSON.
    Nonsense(String),
}

impl Batch {
    /// Answers all lines that have no answer yet. Returns how many lines have an error instead of an answer.
    ///
    /// A separate thread reads the input, so that each line is answered at once even if the input is a slow pipe.
    fn answer_all(self, input: impl BufRead + Send, mut output: impl Write, done: Vec<Answered>) -> Result<usize> {
        let bar = progress::bar(0, "{pos} lines, {per_sec}, {elapsed}");
        bar.inc(done.len() as u64);
        let mut failed = done.iter().filter(|done| !done.is_good).count();
        let (begun, pending) = sync_channel(self.window);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| self.read_all(input, done, begun));
            for first in pending {
                failed += usize::from(!self.finish(first, &mut output)?);
                bar.inc(1);
            }
            reader.join().map_err(|_| anyhow!("the reader thread panicked"))?
        })?;
        bar.finish_and_clear();
        Ok(failed)
    }

    /// Starts to answer all lines that have no answer yet, as far ahead as the window allows. Returns an error if the
    /// `custom_id` of an earlier run's answer differs from that of its line.
    fn read_all(&self, input: impl BufRead, done: Vec<Answered>, begun: SyncSender<Pending>) -> Result<()> {
        let mut done = done.into_iter();
        let mut ids = HashMap::new();
        for (number, line) in numbered_lines(input) {
            let line = line?;
            warn_of_twins(&mut ids, number, &line);
            if let Some(done) = done.next() {
                let custom_id =
                    serde_json::from_slice::<Value>(&line).map_or(Value::Null, |line| line["custom_id"].clone());
                if custom_id != done.custom_id {
                    bail!(
                        "line {} of the output answers {}, but line {number} of the input is {custom_id}: give another output file",
                        done.number,
                        done.custom_id
                    );
                }
            } else if begun.send(self.begin(number, &line)?).is_err() {
                break; // the writer has stopped and reports why
            }
        }
        Ok(())
    }

    fn begin(&self, number: usize, line: &[u8]) -> Result<Pending> {
        let hash = hash(line.trim_ascii());
        let request: Value = match serde_json::from_slice(line) {
            Ok(request) => request,
            Err(error) => {
                let what = Ok(What::Nonsense(format!("line {number} is not JSON: {error}")));
                return Ok(Pending { hash, custom_id: Value::Null, what });
            }
        };
        let custom_id = request["custom_id"].clone();
        let what = self.request(&request, &custom_id)?;
        Ok(Pending { hash, custom_id, what })
    }

    fn request(&self, request: &Value, custom_id: &Value) -> Result<std::result::Result<What, ApiError>> {
        if let Some(method) = request.get("method").filter(|method| *method != "POST") {
            return Ok(Err(ApiError::about("method", format!("unknown method {method}: use \"POST\""))));
        }
        let url = request["url"].as_str().unwrap_or_default();
        if url == "/v1/systemone" {
            return self.decide(&request["body"]);
        }
        let is_response = url.trim_end_matches('/') == "/v1/responses";
        let Some(endpoint) = Endpoint::of(url).or(is_response.then_some(Endpoint::Chat)) else {
            return Ok(Err(ApiError::about("url", format!("unknown url `{url}`"))));
        };
        if endpoint == Endpoint::Embeddings {
            let (inputs, lora) = (
                faces::embedding_inputs(&self.service, &request["body"], false),
                faces::scales(&self.service.lora, &request["body"]),
            );
            let (inputs, format, lora) = match inputs.and_then(|(inputs, format)| Ok((inputs, format, lora?))) {
                Ok(all) => all,
                Err(error) => return Ok(Err(error)),
            };
            let lora = lora.unwrap_or_else(|| self.service.lora.usual(None));
            let tokens = token_count(&inputs);
            let mut vectors = Vec::new();
            for texts in inputs {
                let (answer, vector) = channel();
                let (client, lora) = (0, lora.clone());
                self.send(Command::Embed(Embedding { texts, client, lora, answer: Box::new(answer) }))?;
                vectors.push(vector);
            }
            return Ok(Ok(What::Vectors(format, vectors, tokens)));
        }
        let seed = hash(custom_id.to_string().as_bytes());
        let asked = match is_response {
            true => faces::read_response(&request["body"]),
            false => read_json(endpoint, &request["body"]),
        };
        let prepared = asked.and_then(|asked| faces::prepare(&self.service, asked, seed)).map_err(ApiError::from);
        let mut prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(warning) = prepared.warning.take() {
            note(format_args!("warning: {custom_id}: {warning}"));
        }
        let mut answers = Vec::new();
        for (prompt, settings, seed) in std::mem::take(&mut prepared.jobs) {
            let (events, answer) = channel();
            let job = Job { prompt, settings, seed, client: Box::new(events), asker: Asker::default(), scope: None };
            self.send(Command::Generate(Box::new(job)))?;
            answers.push(answer);
        }
        Ok(Ok(match is_response {
            true => What::Response(request["body"].clone(), prepared, answers),
            false => What::Text(prepared, answers),
        }))
    }

    fn decide(&self, body: &Value) -> Result<std::result::Result<What, ApiError>> {
        let asked = faces::decisions(&self.service, body).map_err(ApiError::from);
        let asked = asked.and_then(|decisions| Ok((decisions, faces::scales(&self.service.lora, body)?)));
        let (mut decisions, lora) = match asked {
            Ok(both) => both,
            Err(error) => return Ok(Err(error)),
        };
        let (answer, scores) = channel();
        let readings = decisions.take_readings();
        let lora = lora.unwrap_or_else(|| self.service.lora.usual(None));
        self.send(Command::Decide(Decision { readings, scope: None, lora, answer: Box::new(answer) }))?;
        Ok(Ok(What::Decisions(decisions, scores)))
    }

    fn send(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| anyhow!("the engine has stopped"))
    }

    /// Waits for an answer and writes it. Returns `false` if the answer is an error.
    fn finish(&self, pending: Pending, output: &mut impl Write) -> Result<bool> {
        let Pending { hash, custom_id, what } = pending;
        let id = if self.reproducible { hash } else { by_chance() };
        let created = match self.reproducible {
            true => 0,
            false => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        };
        let prefix = match &what {
            Ok(What::Response(..)) => "resp_",
            Ok(What::Text(prepared, _)) if prepared.endpoint == Endpoint::Chat => "chatcmpl-",
            _ => "cmpl-",
        };
        let meta = ResponseMeta { id: format!("{prefix}{id:016x}"), created, reports_cached: false };
        let mut line =
            json!({ "id": format!("batch_req_{id:016x}"), "custom_id": custom_id, "response": null, "error": null });
        let body = match what {
            Ok(What::Nonsense(why)) => {
                line["error"] = json!({ "code": "invalid_line", "message": why });
                None
            }
            Ok(What::Text(prepared, answers)) => {
                Some(all(answers).map(|mut choices| faces::answer(&self.service, &prepared, &mut choices, &meta)))
            }
            Ok(What::Response(body, prepared, answers)) => Some(all(answers).and_then(|mut choices| {
                let choice = choices.first_mut().ok_or_else(|| ApiError::invalid("there is no answer"))?;
                Ok(faces::whole_response(&self.service, &body, &prepared, choice, &meta))
            })),
            Ok(What::Decisions(decisions, scores)) => {
                let scores = scores.recv().map_err(|_| ApiError::invalid("the engine has stopped"));
                let scores = scores.and_then(|scores| scores.map_err(ApiError::invalid));
                Some(scores.and_then(|scores| Ok(self.service.decided(&decisions, scores)?)))
            }
            Ok(What::Vectors(format, vectors, tokens)) => {
                let gone = |_| ApiError::invalid("the engine has stopped");
                let received = |vector: Receiver| -> std::result::Result<Vec<f32>, ApiError> {
                    vector.recv().map_err(gone)?.map_err(ApiError::invalid)
                };
                let vectors: std::result::Result<Vec<_>, _> = vectors.into_iter().map(received).collect();
                Some(vectors.map(|vectors| faces::embeddings(&self.service, format, &vectors, tokens)))
            }
            Err(error) => Some(Err(error)),
        };
        if let Some(body) = body {
            let (status, body) = match body {
                Ok(body) => (200, body),
                Err(error) => (error.status.as_u16(), error.body()),
            };
            line["response"] = json!({ "status_code": status, "request_id": format!("req_{id:016x}"), "body": body });
        }
        output.write_all((json_line(&line)? + "\n").as_bytes())?;
        output.flush()?;
        Ok(is_good(&line))
    }
}

/// Warns of lines with the same `custom_id`, because programs find the answers by this id.
fn warn_of_twins(ids: &mut HashMap<u64, usize>, number: usize, line: &[u8]) {
    #[derive(serde::Deserialize)]
    struct Line {
        custom_id: Value,
    }
    let Ok(Line { custom_id }) = serde_json::from_slice(line) else { return };
    let text = custom_id.to_string();
    match ids.entry(hash(text.as_bytes())) {
        Entry::Occupied(first) => {
            note(format_args!("warning: line {number} has the custom_id of line {}: {text}", first.get()));
        }
        Entry::Vacant(place) => _ = place.insert(number),
    }
}

fn all(answers: Vec<mpsc::Receiver<Event>>) -> std::result::Result<Vec<Choice>, ApiError> {
    answers.into_iter().map(whole).collect()
}

/// Collects the events of a complete answer.
fn whole(events: mpsc::Receiver<Event>) -> std::result::Result<Choice, ApiError> {
    let mut choice = Choice::default();
    while let Ok(event) = events.recv() {
        if choice.take(event)? {
            return Ok(choice);
        }
    }
    Err(ApiError::invalid("the engine stopped before the end of the answer"))
}

/// FNV-1a hash.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
