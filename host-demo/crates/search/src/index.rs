//! An index: the passages of a folder's files and their vectors.
//!
//! The index is stored as a GGUF file (`general.architecture` = `index`), which `arenite inspect` shows. When the index
//! is updated, the vectors of unchanged files are kept.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arenite::Gguf;
use arenite::gguf::{Array, Value, Xxh64};
use arenite::quant::TensorType;
use arenite_files::{NewFile, map};
use arenite_gguf_writer::{Header, Meta};
use arenite_run::Loaded;

use crate::passages::{self, Passage};
use crate::read;

const ARCHITECTURE: &str = "index";
const VECTORS: &str = "vectors";
/// Maximum number of tokens of a passage. The limit also applies to models with a longer context, because a vector
/// describes a short text better.
const MOST_TOKENS: usize = 200;

/// Texts that an embedding model expects before each question and before each passage. For example, E5 expects `query:
/// ` and `passage: `.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// Before a question.
    pub query: String,
    /// Before a passage.
    pub passage: String,
}

/// Passages and their vectors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Index {
    /// [`Gguf::fingerprint`] of the model that made the vectors.
    fingerprint: u64,
    /// Path of the model that made the vectors, for programs that search later. [`updated`](Self::updated) leaves it
    /// empty.
    pub model: PathBuf,
    /// The texts before questions and passages.
    pub prefixes: Prefixes,
    dim: usize,
    files: Vec<File>,
    /// `[passages][dim]`: a vector of length 1 for each passage.
    vectors: Vec<f32>,
}

#[derive(Clone, Debug, PartialEq)]
struct File {
    /// Relative to the folder, with `/`.
    path: String,
    /// Hash of its text.
    hash: u64,
    /// The number of each passage's first line, and its text.
    passages: Vec<(usize, String)>,
}

/// The progress of [`Index::updated`], before each file.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Number of files that are done.
    pub done: usize,
    /// Number of all files.
    pub files: usize,
    /// The next file, relative to the folder.
    pub file: &'a Path,
    /// Why the file is left out.
    pub left_out: Option<&'a arenite_run::Error>,
}

impl Index {
    /// Returns the index of the current files of a folder. Vectors of unchanged files are taken from `self` if the
    /// model and the prefixes are the same. `tell` is called before each file. If it returns false for a new or changed
    /// file, this file is left to the next update.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or the model computes no embeddings. A file that cannot be read is left out.
    pub fn updated(
        self,
        model: &Loaded,
        folder: &Path,
        prefixes: Prefixes,
        tell: &mut dyn FnMut(Step<'_>) -> bool,
    ) -> Result<Self> {
        let fingerprint = model.gguf().fingerprint();
        let is_same = self.fingerprint == fingerprint && self.prefixes == prefixes;
        let mut new = Self { fingerprint, prefixes, dim: self.dim, ..Self::default() };
        let mut old = if is_same { self.by_path() } else { HashMap::new() };
        let files = read::files(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
        for (done, file) in files.iter().enumerate() {
            let text = read::text(&folder.join(file));
            let goes_on = tell(Step { done, files: files.len(), file, left_out: text.as_ref().err() });
            let Ok(text) = text else { continue };
            let path = file.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/");
            let hash = hash(text.as_bytes());
            match old.remove(&*path).filter(|(file, _)| file.hash == hash) {
                Some((file, vectors)) => new.push(file, &vectors),
                None if goes_on => new.add(model, path, hash, &text)?,
                None => {}
            }
        }
        Ok(new)
    }

    /// The files with their vectors.
    fn by_path(self) -> HashMap<String, (File, Vec<f32>)> {
        let mut vectors = self.vectors.chunks(self.dim.max(1));
        let rows = |file: File| {
            let own = vectors.by_ref().take(file.passages.len()).flatten().copied().collect();
            (file.path.clone(), (file, own))
        };
        self.files.into_iter().map(rows).collect()
    }

    fn push(&mut self, file: File, vectors: &[f32]) {
        self.files.push(file);
        self.vectors.extend(vectors);
    }

    /// Computes the vectors of a file's passages.
    fn add(&mut self, model: &Loaded, path: String, hash: u64, text: &str) -> Result<()> {
        let prefix = &self.prefixes.passage;
        // The special tokens at the ends of a text are counted once, not once for each part of the text.
        let count = |text: &str| anyhow::Ok(model.tokenize(text)?.len());
        let (ends, frame) = (count("")?, count(prefix)?);
        let most = MOST_TOKENS.min(model.context().saturating_sub(frame)).max(1);
        let passages = passages::cut(text, most, &mut |text| Ok(count(text)?.saturating_sub(ends)))?;
        let texts: Vec<String> = passages.iter().map(|(_, text)| format!("{prefix}{text}")).collect();
        let vectors = model.embed_many(&texts.iter().map(|text| &**text).collect::<Vec<_>>());
        let vectors = vectors.with_context(|| path.clone())?;
        self.dim = vectors.first().map_or(self.dim, Vec::len);
        self.push(File { path, hash, passages }, &vectors.concat());
        Ok(())
    }

    /// Refuses another model than the one that made the index.
    pub(crate) fn must_be_of(&self, model: &Loaded) -> Result<()> {
        ensure!(
            self.fingerprint == model.gguf().fingerprint(),
            "the index was made with another model ({}): search with that one, or make the index anew",
            self.model.display()
        );
        Ok(())
    }

    /// Number of files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Number of passages.
    pub fn passages(&self) -> usize {
        self.files.iter().map(|file| file.passages.len()).sum()
    }

    pub(crate) fn vectors(&self) -> impl Iterator<Item = &[f32]> {
        self.vectors.chunks(self.dim.max(1))
    }

    /// Passage `at`, counted over all files.
    pub(crate) fn passage(&self, mut at: usize) -> Passage {
        for file in &self.files {
            if let Some((line, text)) = file.passages.get(at) {
                return Passage { file: file.path.clone(), line: *line, text: text.clone() };
            }
            at -= file.passages.len();
        }
        unreachable!("there is a vector per passage")
    }

    /// Reads an index.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or it is not an index.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = map(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&bytes).with_context(|| format!("{}: this is no index of `arenite index`", path.display()))
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        let gguf = Gguf::parse(bytes)?;
        ensure!(gguf.architecture()? == ARCHITECTURE, "it has another architecture");
        let array = |name| gguf.array(ARCHITECTURE, name)?.with_context(|| format!("{name} is missing"));
        let text = |name| -> Result<String> {
            Ok(String::from_utf8_lossy(gguf.str(ARCHITECTURE, name)?.unwrap_or_default()).into_owned())
        };
        let strings =
            |array: Array<'_>| array.strings().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
        let (paths, texts): (Vec<String>, Vec<String>) = (strings(array("paths")?), strings(array("texts")?));
        let (hashes, counts, lines) = (array("hashes")?, array("passages")?, array("lines")?);
        let tensor = gguf.tensor(VECTORS).context("the vectors are missing")?;
        let dim = tensor.dims[0] as usize;
        ensure!(tensor.kind == TensorType::F32 && tensor.data.len() == 4 * dim * texts.len(), "the vectors do not fit");
        let mut passages = (0..).map_while(|at| usize::try_from(lines.get_i32(at)?).ok()).zip(texts);
        let mut files = Vec::new();
        for (at, path) in paths.into_iter().enumerate() {
            let (Some(Value::U64(hash)), Some(count)) = (hashes.get(at), counts.get_i32(at)) else {
                bail!("the lists have different lengths")
            };
            files.push(File { path, hash, passages: passages.by_ref().take(usize::try_from(count)?).collect() });
        }
        let Some(Value::U64(fingerprint)) = gguf.get2(ARCHITECTURE, "fingerprint") else { bail!("no fingerprint") };
        let vectors = tensor.data.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect();
        let index = Self {
            fingerprint,
            model: text("model")?.into(),
            prefixes: Prefixes { query: text("prefix.query")?, passage: text("prefix.passage")? },
            dim,
            files,
            vectors,
        };
        ensure!(index.passages() * dim == index.vectors.len(), "the lists have different lengths");
        Ok(index)
    }

    /// Writes the index. An older file is replaced when the new file is complete.
    ///
    /// # Errors
    ///
    /// There are no passages, or the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        ensure!(!self.vectors.is_empty(), "there is no text to index in this folder");
        let mut header = Header::new();
        let mut set = |name: &str, value: Meta| header.set(&format!("{ARCHITECTURE}.{name}"), value);
        let passages = || self.files.iter().flat_map(|file| &file.passages);
        set("fingerprint", self.fingerprint.into());
        set("model", self.model.to_string_lossy().as_ref().into());
        set("prefix.query", self.prefixes.query.as_str().into());
        set("prefix.passage", self.prefixes.passage.as_str().into());
        set("paths", Meta::strings(self.files.iter().map(|file| &file.path)));
        set("hashes", Meta::array(self.files.iter().map(|file| file.hash)));
        set("passages", Meta::array(self.files.iter().map(|file| file.passages.len() as u32)));
        set("lines", Meta::array(passages().map(|(line, _)| *line as u32)));
        set("texts", Meta::strings(passages().map(|(_, text)| text)));
        header.set("general.architecture", ARCHITECTURE);
        header.tensor(VECTORS, &[self.dim as u64, (self.vectors.len() / self.dim) as u64], TensorType::F32)?;
        let mut tensors = header.write(NewFile::replace(path)?)?;
        self.vectors.chunks(1 << 16).try_for_each(|part| tensors.write_all(bytemuck::cast_slice(part)))?;
        tensors.finish()?.finish()
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hash = Xxh64::new();
    hash.update(bytes);
    hash.finish()
}
