//! An opened model: the file, the values that are read from the file, and the threads that run the model.

use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, ensure};
use arenite::model::Spec;
use arenite::tokenizer::Tokenizer;
use arenite::workers::Workers;
use arenite::{Adapter, Engine, Gguf, Model, Options, Plan, Session};
use self_cell::{MutBorrow, self_cell};

use crate::adapters::AdapterFiles;
use crate::decide;
use crate::draft_file::{DraftFile, Layers, is_padded};
use crate::eyes::{Eyes, Machine};
use crate::model_file::ModelFile;
use crate::runtime::{self, DraftChoice, Memory, RunOptions, must_continue};
use arenite_pictures::Limits;
use arenite_text as text;

use crate::workers;

/// The error for pictures without a projector.
const NO_EYES: &str = "this model reads no pictures: leave them out, or give the projector of a model that sees with \
                       --mmproj FILE";

/// A model that is ready to run, with the options and threads to run it with.
pub struct OpenModel {
    cell: Cell,
    pub options: RunOptions,
    workers: Box<dyn Workers + Send>,
    /// The smaller model that proposes tokens.
    small: Option<Box<OpenModel>>,
    /// The encoder of pictures, or the reason why it is not used. The file is opened on first use.
    eyes: OnceLock<Result<Eyes, String>>,
}

/// The memory that [`Parsed`] borrows from.
struct Files {
    model: ModelFile,
    lora: AdapterFiles,
    /// A second file, whose layers predict further tokens for the model, if there is such a file.
    layers: Option<Layers>,
    /// The tokenizer's index.
    index: MutBorrow<Vec<u8>>,
}

/// The values that are read from the files of a model.
struct Parsed<'f> {
    gguf: Gguf<'f>,
    model: Model<'f>,
    tokenizer: Result<Tokenizer<'f, 'f>>,
    adapters: Vec<Adapter<'f>>,
    /// Index and scale of each adapter.
    scales: Vec<(usize, f32)>,
}

self_cell!(
    struct Cell {
        owner: Files,
        #[covariant]
        dependent: Parsed,
    }
);

impl<'f> Parsed<'f> {
    fn read(files: &'f Files) -> Result<Self> {
        let named = || files.model.name().to_owned();
        let mut gguf = files.model.parse()?;
        decide::check_type(&gguf).with_context(named)?;
        if let Some(layers) = &files.layers {
            Model::new(&gguf).with_context(named)?; // an error from here on is that of the layers
            gguf = gguf.with_drafter(layers.gguf());
        }
        let model = Model::new(&gguf)
            .with_context(|| files.layers.as_ref().map_or_else(named, |layers| layers.name().into()))?;
        let tokenizer = text::tokenizer(&gguf, files.index.borrow_mut());
        let adapters = files.lora.adapters(&model)?;
        Ok(Self { gguf, model, tokenizer, adapters, scales: files.lora.scales() })
    }
}

impl OpenModel {
    /// Reads the model in `file` and the adapters in `options`, and starts the threads. Errors name the file.
    pub fn new(file: ModelFile, mut options: RunOptions) -> Result<Self> {
        let lora = AdapterFiles::open(&options.lora)?;
        let (layers, small) = match &options.draft {
            DraftChoice::File(path) => match DraftFile::open(path)? {
                DraftFile::Layers(layers) => (Some(layers), None),
                DraftFile::Model(file) => (None, Some(file)),
            },
            // If the file beside the model does not fit, no error is reported, because the file may belong to another
            // model in the same folder.
            DraftChoice::Beside(path) => match DraftFile::open(path) {
                Ok(DraftFile::Layers(layers)) if layers.fit(&file) => (Some(layers), None),
                _ => (None, None),
            },
            _ => (None, None),
        };
        let files = Files { model: file, lora, layers, index: MutBorrow::new(Vec::new()) };
        let cell = Cell::try_new(files, |files| Parsed::read(files))?;
        let small = small.map(|file| Self::small_for(file, &options, &cell.borrow_dependent().gguf)).transpose()?;
        let own = cell.borrow_dependent().model.spec().context;
        options.context = options.context.map(|context| if context == 0 { own } else { context });
        let workers = workers::start(options.threads);
        let open = Self { cell, options, workers, small, eyes: OnceLock::new() };
        // If the user named the projector, open it now, because it must be right. A projector that was found beside the
        // model is opened on first use.
        if open.file().projector().is_some_and(|(_, is_given)| is_given) {
            open.need_eyes()?;
        }
        Ok(open)
    }

    /// The file that lets the model see, if it has one.
    pub fn eyes(&self) -> Option<&Eyes> {
        self.opened_eyes().as_ref().ok()
    }

    /// Returns the encoder of pictures.
    ///
    /// # Errors
    ///
    /// The model has no encoder of pictures, or the encoder does not fit the model.
    pub fn need_eyes(&self) -> Result<&Eyes> {
        self.opened_eyes().as_ref().map_err(|why| anyhow!("{why}"))
    }

    fn opened_eyes(&self) -> &Result<Eyes, String> {
        self.eyes.get_or_init(|| {
            let (path, _) = self.file().projector().ok_or(NO_EYES)?;
            let open = || Eyes::open(path, self.model(), self.vocabulary()?);
            open().map_err(|error| format!("{error:#}"))
        })
    }

    /// Returns the threads and kernels that encode pictures within `limits`.
    pub fn machine(&self, limits: Limits) -> Machine<'_> {
        Machine { limits, workers: self.workers(), kernels: self.options.kernels }
    }

    /// Opens the smaller model that proposes tokens for the model `gguf`.
    fn small_for(file: ModelFile, options: &RunOptions, gguf: &Gguf<'_>) -> Result<Box<Self>> {
        // The smaller model has no adapters, because they belong to the large model. It needs one thread only, because
        // it runs on the threads of the large model.
        let options = RunOptions { lora: Vec::new(), threads: 1, draft: DraftChoice::Off, ..options.clone() };
        let small = Self::new(file, options)?;
        let [own, other] = [gguf, small.gguf()].map(|gguf| Spec::read(gguf).map(|spec| spec.vocab));
        let (own, other) = (own?, other?);
        ensure!(
            own == other || is_padded(small.gguf(), gguf),
            "the draft model has {other} tokens and the model {own}: they need the same vocabulary"
        );
        must_continue(small.model()).with_context(|| small.name().to_owned())?;
        Ok(Box::new(small))
    }

    /// Returns the smaller model that proposes tokens, if the user gave one.
    pub fn small(&self) -> Option<&Self> {
        self.small.as_deref()
    }

    pub fn file(&self) -> &ModelFile {
        &self.cell.borrow_owner().model
    }

    /// The path as the user gave it, or `built-in`.
    pub fn name(&self) -> &str {
        self.file().name()
    }

    pub fn gguf(&self) -> &Gguf<'_> {
        &self.cell.borrow_dependent().gguf
    }

    pub fn model(&self) -> &Model<'_> {
        &self.cell.borrow_dependent().model
    }

    /// The tokenizer, or the reason why the file has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer<'_, '_>, &anyhow::Error> {
        self.cell.borrow_dependent().tokenizer.as_ref()
    }

    /// The tokenizer. The error names the file.
    pub fn vocabulary(&self) -> Result<&Tokenizer<'_, '_>> {
        self.tokenizer().map_err(|error| anyhow!("{}: {error:#}", self.name()))
    }

    pub fn workers(&self) -> &dyn Workers {
        &*self.workers
    }

    /// Index of each adapter, and its scale.
    pub fn scales(&self) -> &[(usize, f32)] {
        &self.cell.borrow_dependent().scales
    }

    /// The context size to plan for: see [`runtime::context`].
    pub fn context(&self, needed: usize) -> usize {
        runtime::context(&self.options, self.model(), needed)
    }

    /// The options of a plan for `context` positions.
    pub fn plan_options(&self, context: usize) -> Options {
        let RunOptions { batch, kv, .. } = self.options;
        let kv = runtime::kv(kv, self.gguf());
        let options = Options::new().context(context).batch(batch).kv(kv).workers(self.workers.count());
        let options = self.eyes().map_or(options, |eyes| eyes.planned(options));
        // Reusing tokens takes two contexts, because the earlier conversation must be kept while the prompt copies
        // tokens from it.
        let options = if self.options.reuse > 0 { options.contexts(2) } else { options };
        self.cell.borrow_owner().lora.planned(options)
    }

    /// Plans the memory. The error names the file.
    pub fn plan(&self, options: Options) -> Result<Plan> {
        let plan = Plan::new(self.gguf(), options).with_context(|| self.name().to_owned())?;
        self.file().plans(plan.workspace + plan.kv);
        Ok(plan)
    }

    /// Creates a session that uses the adapters.
    pub fn session<'a>(&'a self, memory: &'a mut Memory, plan: Plan) -> Result<Session<'a, 'a>> {
        let session = memory.session(self.model(), plan)?;
        let mut session = session.with_kernels(self.options.kernels).with_workers(self.workers());
        let Parsed { adapters, scales, .. } = self.cell.borrow_dependent();
        if !adapters.is_empty() {
            session = session.with_adapters(adapters)?;
            session.adapt(scales)?;
        }
        self.warn_of_reuse(session.parts().0);
        Ok(session)
    }

    /// Creates an engine whose contexts can use the adapters.
    pub fn engine<'a>(&'a self, memory: &'a mut Memory, plan: Plan) -> Result<Engine<'a, 'a>> {
        let engine = memory.engine(self.model(), plan)?;
        let engine = engine.with_kernels(self.options.kernels).with_workers(self.workers());
        let Parsed { adapters, .. } = self.cell.borrow_dependent();
        self.warn_of_reuse(&engine);
        Ok(if adapters.is_empty() { engine } else { engine.with_adapters(adapters)? })
    }

    fn warn_of_reuse(&self, engine: &Engine<'_, '_>) {
        if self.options.reuse > 0 && !engine.can_reuse() {
            log::warn!("--cache-reuse has no effect: what this model remembers of a token cannot change its position");
        }
    }
}
