//! The extension module `arenite._native`. The package `arenite` converts its values to Python's types.

use std::ffi::OsString;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arenite::KvType;
use arenite_run::{AnswerEnd, Loaded, Message, Request, RunOptions, Value};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;

create_exception!(arenite, Error, PyException, "The model cannot do what was asked.");

fn failed(error: arenite_run::Error) -> PyErr {
    Error::new_err(format!("{error:#}"))
}

/// Time between two looks for Ctrl-C.
const OFTEN: Duration = Duration::from_millis(100);

/// Number of texts in a step of [`in_steps`]. The engine runs the texts of a step together.
const STEP: usize = 256;

/// Computes a value for each text. Ctrl-C ends the computation after a step.
fn in_steps<T: Send + 'static>(
    py: Python<'_>,
    texts: Vec<String>,
    compute: impl Fn(&[&str]) -> arenite_run::Result<Vec<T>> + Send + 'static,
) -> PyResult<Vec<T>> {
    interruptible(py, move |is_gone| {
        let mut values = Vec::new();
        for texts in texts.chunks(STEP) {
            if is_gone.load(Ordering::Relaxed) {
                break;
            }
            values.extend(compute(&texts.iter().map(String::as_str).collect::<Vec<_>>())?);
        }
        Ok(values)
    })
}

/// Runs `work` on another thread, so that Ctrl-C ends the wait for it. `work` then finds its argument to be true, and
/// ends soon.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> arenite_run::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = channel();
    let is_gone = Arc::new(AtomicBool::new(false));
    let seen = is_gone.clone();
    std::thread::spawn(move || _ = sender.send(work(&seen)));
    loop {
        let receiver = &mut receiver;
        match py.detach(move || receiver.recv_timeout(OFTEN)) {
            Ok(done) => return done.map_err(failed),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals().inspect_err(|_| is_gone.store(true, Ordering::Relaxed))?;
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Error::new_err("the computation has failed")),
        }
    }
}

/// A prompt: a text, or a list of messages, each a pair of role and content.
#[derive(FromPyObject)]
enum Prompt {
    Text(String),
    Messages(Vec<(String, String)>),
}

impl Prompt {
    fn request(self) -> PyResult<Request> {
        match self {
            Self::Text(text) => Ok(Request::from(text)),
            Self::Messages(messages) => {
                let message = |(role, content): (String, String)| match role.as_str() {
                    "system" | "developer" => Ok(Message::system(content)),
                    "user" => Ok(Message::user(content)),
                    "assistant" => Ok(Message::assistant(content)),
                    _ => Err(PyValueError::new_err(format!("`{role}` is no role: give system, user or assistant"))),
                };
                let messages: Vec<Message> = messages.into_iter().map(message).collect::<PyResult<_>>()?;
                Ok(Request::from(&messages[..]))
            }
        }
    }
}

/// One text or several.
#[derive(FromPyObject)]
enum Texts {
    One(String),
    Several(Vec<String>),
}

/// The settings of an answer. A setting that is `None` has the default of the program.
#[derive(Default)]
struct Settings {
    max_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    seed: Option<u32>,
    stop: Option<Texts>,
    grammar: Option<String>,
    json_schema: Option<Value>,
    images: Vec<Vec<u8>>,
}

impl Settings {
    fn of(given: Option<&Bound<'_, pyo3::types::PyDict>>) -> PyResult<Self> {
        let mut all = Self::default();
        for (name, value) in given.into_iter().flatten() {
            let name: String = name.extract()?;
            if value.is_none() {
                continue;
            }
            let wrong = |error: PyErr| PyTypeError::new_err(format!("`{name}`: {error}"));
            match name.as_str() {
                // As in llama.cpp, -1 stands for all tokens (`top_k`), for no limit (`max_tokens`), or for a random
                // seed.
                "top_k" if value.eq(-1)? => all.top_k = Some(0),
                "max_tokens" | "seed" if value.eq(-1)? => {}
                "max_tokens" => all.max_tokens = value.extract().map_err(wrong)?,
                "temperature" => all.temperature = value.extract().map_err(wrong)?,
                "top_p" => all.top_p = value.extract().map_err(wrong)?,
                "top_k" => all.top_k = value.extract().map_err(wrong)?,
                "min_p" => all.min_p = value.extract().map_err(wrong)?,
                "repeat_penalty" => all.repeat_penalty = value.extract().map_err(wrong)?,
                "frequency_penalty" => all.frequency_penalty = value.extract().map_err(wrong)?,
                "presence_penalty" => all.presence_penalty = value.extract().map_err(wrong)?,
                "seed" => all.seed = value.extract().map_err(wrong)?,
                "stop" => all.stop = value.extract().map_err(wrong)?,
                "grammar" => all.grammar = value.extract().map_err(wrong)?,
                "schema" => {
                    let text: String = value.extract().map_err(wrong)?;
                    let schema = text.parse().map_err(|_| PyValueError::new_err("the schema is not JSON"))?;
                    all.json_schema = Some(schema);
                }
                "images" => all.images = value.extract().map_err(wrong)?,
                _ => return Err(PyTypeError::new_err(format!("`{name}` is no setting; see help(arenite.Model)"))),
            }
        }
        Ok(all)
    }

    fn apply(self, mut request: Request) -> Request {
        macro_rules! set {
            ($($name:ident),*) => { $(if let Some(value) = self.$name { request = request.$name(value); })* };
        }
        set!(max_tokens, temperature, top_p, top_k, min_p, repeat_penalty, frequency_penalty, presence_penalty);
        set!(seed, grammar, json_schema);
        request = self.images.into_iter().fold(request, Request::picture);
        match self.stop {
            None => request,
            Some(Texts::One(text)) => request.stop(text),
            Some(Texts::Several(texts)) => texts.into_iter().fold(request, Request::stop),
        }
    }
}

/// A model in memory.
#[pyclass(frozen)]
struct Model {
    loaded: Arc<Loaded>,
}

impl Model {
    fn request(prompt: Prompt, settings: Option<&Bound<'_, pyo3::types::PyDict>>) -> PyResult<Request> {
        Ok(Settings::of(settings)?.apply(prompt.request()?))
    }
}

#[pymethods]
impl Model {
    #[new]
    #[pyo3(signature = (path, *, context=None, threads=None, kv=None, lora=Vec::new(), parallel=1))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        context: Option<usize>,
        threads: Option<usize>,
        kv: Option<&str>,
        lora: Vec<String>,
        parallel: usize,
    ) -> PyResult<Self> {
        let mut options = RunOptions { context, lora, parallel, ..RunOptions::default() };
        options.threads = threads.unwrap_or(options.threads);
        if let Some(name) = kv {
            let found = KvType::ALL.into_iter().find(|kv| kv.name() == name);
            let names = || KvType::ALL.map(KvType::name).join(" ");
            options.kv = Some(found.ok_or_else(|| PyValueError::new_err(format!("kv is one of {}", names())))?);
        }
        let loaded = py.detach(|| Loaded::open(path.as_path(), options)).map_err(failed)?;
        Ok(Self { loaded: Arc::new(loaded) })
    }

    #[pyo3(signature = (prompt, **settings))]
    fn generate(
        &self,
        py: Python<'_>,
        prompt: String,
        settings: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> PyResult<Answer> {
        let request = Self::request(Prompt::Text(prompt), settings)?;
        let loaded = self.loaded.clone();
        Ok(Answer::new(py.detach(|| loaded.generate_owned(request)).map_err(failed)?))
    }

    #[pyo3(signature = (messages, **settings))]
    fn chat(
        &self,
        py: Python<'_>,
        messages: Prompt,
        settings: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> PyResult<Answer> {
        let request = Self::request(messages, settings)?;
        let loaded = self.loaded.clone();
        Ok(Answer::new(py.detach(|| loaded.chat_owned(request)).map_err(failed)?))
    }

    #[pyo3(signature = (prompt, schema, **settings))]
    fn json(
        &self,
        py: Python<'_>,
        prompt: Prompt,
        schema: &str,
        settings: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> PyResult<String> {
        let request = Self::request(prompt, settings)?;
        let loaded = self.loaded.clone();
        let mut answer = Answer::new(py.detach(|| loaded.json_owned(request, schema)).map_err(failed)?);
        let text = answer.text(py)?;
        answer.answer().must_be_whole().map_err(failed)?;
        Ok(text)
    }

    fn embed<'py>(&self, py: Python<'py>, texts: Vec<String>, truncate: bool) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let loaded = self.loaded.clone();
        let vectors = in_steps(py, texts, move |texts| match truncate {
            true => loaded.embed_beginnings(texts),
            false => loaded.embed_many(texts),
        })?;
        let shape = [vectors.len(), vectors.first().map_or(0, Vec::len)];
        PyArray1::from_vec(py, vectors.concat()).reshape(shape)
    }

    fn rerank(&self, py: Python<'_>, query: String, documents: Vec<String>) -> PyResult<Vec<f64>> {
        let loaded = self.loaded.clone();
        in_steps(py, documents, move |documents| loaded.rerank(&query, documents))
    }

    fn classify(&self, py: Python<'_>, text: &str) -> PyResult<Vec<(String, f64)>> {
        let loaded = self.loaded.clone();
        let classes = py.detach(|| loaded.classify(text)).map_err(failed)?;
        Ok(classes.into_iter().map(|class| (class.label, class.score)).collect())
    }

    fn decide(&self, py: Python<'_>, state: &str, questions: &str) -> PyResult<String> {
        let value = |text: &str| text.parse::<Value>().map_err(|error| PyValueError::new_err(error.to_string()));
        let (state, questions) = (value(state)?, value(questions)?);
        let loaded = self.loaded.clone();
        Ok(interruptible(py, move |_| loaded.decide(&state, &questions))?.to_string())
    }

    fn tokenize(&self, text: &str) -> PyResult<Vec<u32>> {
        self.loaded.tokenize(text).map_err(failed)
    }

    fn detokenize(&self, tokens: Vec<u32>) -> PyResult<String> {
        self.loaded.detokenize(&tokens).map_err(failed)
    }

    #[getter]
    fn context(&self) -> usize {
        self.loaded.context()
    }
}

/// The text of an answer, in whole characters, while it is generated.
#[pyclass(module = "arenite")]
struct Answer {
    /// Python may share an object between threads; only one thread at a time can use this object.
    answer: Mutex<arenite_run::Answer<'static>>,
}

impl Answer {
    const fn new(answer: arenite_run::Answer<'static>) -> Self {
        Self { answer: Mutex::new(answer) }
    }

    fn answer(&mut self) -> &mut arenite_run::Answer<'static> {
        self.answer.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Answer {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<String>> {
        // Other threads run meanwhile, and Ctrl-C ends the wait.
        let answer = self.answer();
        while !py.detach(|| answer.wait(OFTEN)) {
            py.check_signals()?;
        }
        py.check_signals()?;
        answer.next().transpose().map_err(failed)
    }

    /// Waits for the rest of the text.
    fn text(&mut self, py: Python<'_>) -> PyResult<String> {
        let mut whole = String::new();
        while let Some(text) = self.__next__(py)? {
            whole += &text;
        }
        Ok(whole)
    }

    /// Returns the part of the model's thought that has been generated so far.
    #[getter]
    fn thought(&mut self) -> String {
        self.answer().thought().to_owned()
    }

    /// Why the answer ended: "stop" or "length"; None before its end.
    #[getter]
    fn end(&mut self) -> Option<&'static str> {
        self.answer().end().map(|end| match end {
            AnswerEnd::Stop => "stop",
            AnswerEnd::Length => "length",
        })
    }

    /// Number of tokens of the prompt and number of tokens of the answer, once the answer has ended.
    #[getter]
    fn usage(&mut self) -> (usize, usize) {
        self.answer().tokens()
    }
}

/// Runs the program `arenite` with `arguments`, and returns its exit code. `program` and `leading` start it again. It
/// needs a process of its own: it handles signals, and it may end the process.
#[pyfunction]
fn run(py: Python<'_>, program: PathBuf, leading: Vec<OsString>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| {
        let exit = host_demo::main(host_demo::Invocation { program, leading, arguments });
        // A program in Rust does so at its end, and ignores errors, too.
        let _ = stdout().flush();
        // An `ExitCode` does not tell its number.
        (0..=u8::MAX).find(|&code| ExitCode::from(code) == exit).unwrap_or(1)
    })
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Model>()?;
    module.add_class::<Answer>()?;
    module.add_function(wrap_pyfunction!(run, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<Error>())
}
