//! Opens models. A model is a mapped file, a file that is converted in memory, or part of the program itself.

use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use arenite::gguf::Gguf;
use arenite::model::is_other_modality;
use memmap2::Mmap;

#[cfg(target_os = "linux")]
use crate::available_memory::available_memory;
#[cfg(target_os = "linux")]
use crate::large_pages::LargePages;
use crate::{check_tensors, split};
use arenite_files::{faults, map, projector_beside};

/// A model's bytes and its name in messages.
pub struct ModelFile {
    name: String,
    /// The bytes of each element of `held`. These slices borrow from `held`, so no method may return them with a
    /// lifetime longer than the lifetime of `self`.
    pieces: Vec<&'static [u8]>,
    /// The files; several for a split model.
    held: Vec<Bytes>,
    /// The path of the encoder of pictures. The flag is true if the user named this file, and false if the program
    /// found it beside the model.
    projector: Option<(PathBuf, bool)>,
    /// True if [`parse`](Self::parse) compares the tensors with their hashes and looks for NaN and infinity in all
    /// weights.
    check: bool,
    /// Bytes that the process will take beside the model.
    planned: Arc<AtomicUsize>,
}

enum Bytes {
    Static(&'static [u8]),
    Mapped(Mmap),
    #[cfg(target_os = "linux")]
    Large(LargePages),
    Made(Vec<u8>),
}

/// A model to open: its file, and optionally a tokenizer file, whose vocabulary replaces that of the model or supplies
/// a missing one.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The model's file.
    pub model: &'a Path,
    /// A file that replaces or supplies the vocabulary.
    pub tokenizer: Option<&'a Path>,
    /// True to compare the tensors with the hashes in the file, if it has any, and to look for NaN and infinity in all
    /// weights.
    pub check: bool,
    /// How to hold the file in memory.
    pub load: Load,
    /// The file that lets the model see.
    pub projector: Projector<'a>,
}

/// The file that lets a model see pictures: its `mmproj`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Projector<'a> {
    /// The file beside the model, if there is one.
    #[default]
    Beside,
    /// This file.
    File(&'a Path),
    /// None: the model reads only text.
    None,
}

impl<'a> From<&'a Path> for Source<'a> {
    fn from(model: &'a Path) -> Self {
        Self { model, tokenizer: None, check: false, load: Load::default(), projector: Projector::Beside }
    }
}

impl<'a> From<&'a str> for Source<'a> {
    fn from(model: &'a str) -> Self {
        Path::new(model).into()
    }
}

/// How to hold a model's file in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// Map the file, and copy a large model in the background if memory allows.
    Auto,
    /// Map the file.
    #[default]
    Map,
    /// Copy the file to large pages first.
    Copy,
}

impl Load {
    /// All ways by name.
    pub const ALL: [(&str, Self); 3] = [("auto", Self::Auto), ("map", Self::Map), ("copy", Self::Copy)];
}

/// Converts a file in memory.
pub type Convert = fn(&Path, &[u8], Option<&Path>) -> Option<Result<Vec<u8>>>;

/// Files other than GGUF that a program opens as models. A program registers these formats itself, because this crate
/// has no converter: a program that opens only GGUF then does not contain one.
#[derive(Clone, Copy, Debug)]
pub struct Formats {
    /// Explains, with advice, why there is no file at a path; returns `None` if there is a file.
    pub no_file: fn(&Path) -> Option<String>,
    /// Converts a file in memory, given its path, its bytes and a file with a vocabulary; `None` for a GGUF file.
    pub convert: Convert,
    /// Returns a copy of a model with the vocabulary of a file.
    pub with_vocabulary: fn(&Gguf<'_>, &Path) -> Result<Vec<u8>>,
}

/// The formats of this program.
static FORMATS: OnceLock<Formats> = OnceLock::new();

/// Sets the formats that [`ModelFile::open`] reads besides GGUF. All calls after the first have no effect.
pub fn register(formats: Formats) {
    let _ = FORMATS.set(formats);
}

impl ModelFile {
    /// Opens the file of `source`: GGUF, or a format that the program has [registered](register).
    pub fn open<'a>(source: impl Into<Source<'a>>) -> Result<Self> {
        let source = source.into();
        let projector = match source.projector {
            Projector::Beside => projector_beside(source.model).map(|path| (path, false)),
            Projector::File(path) => Some((path.to_path_buf(), true)),
            Projector::None => None,
        };
        Ok(Self { projector, ..Self::read(source)? })
    }

    fn read(source: Source<'_>) -> Result<Self> {
        let Source { model: path, tokenizer, check, load, .. } = source;
        let name = path.display().to_string();
        if let Some(why) = FORMATS.get().and_then(|formats| (formats.no_file)(path)) {
            bail!("{name}: {why}");
        }
        let map = map(path).with_context(|| format!("cannot read the model {name}"))?;
        if let Some(made) = FORMATS.get().and_then(|formats| (formats.convert)(path, &map, tokenizer)) {
            let made = made.with_context(|| name.clone())?;
            return Ok(Self::of(name, vec![Bytes::Made(made)], check));
        }
        let maps = split::files(path, map).with_context(|| name.clone())?;
        if let Some(tokenizer) = tokenizer {
            let formats = FORMATS.get().context("this program reads no vocabulary files: give only a model")?;
            let pieces: Vec<&[u8]> = maps.iter().map(|(_, map)| &map[..]).collect();
            let made = Gguf::parse_split(&pieces)
                .map_err(anyhow::Error::from)
                .and_then(|gguf| (formats.with_vocabulary)(&gguf, tokenizer));
            return Ok(Self::of(name.clone(), vec![Bytes::Made(made.context(name)?)], check));
        }
        let bytes = maps.iter().map(|(_, map)| map.len()).sum();
        let load = way_to_load(load, bytes)?;
        let planned = Arc::default();
        let held = maps.into_iter().map(|(path, map)| {
            let loaded = loaded(&path, map, load, &planned);
            loaded.with_context(|| format!("cannot copy the model {}", path.display()))
        });
        let held = held.collect::<Result<_>>()?;
        Ok(Self { planned, ..Self::of(name, held, check) })
    }

    /// Opens a model in the program's own memory. `name` is used in messages in place of a path.
    pub fn from_static(name: &str, bytes: &'static [u8], check: bool) -> Self {
        Self::of(name.to_owned(), vec![Bytes::Static(bytes)], check)
    }

    /// A file in memory that was made from the file at `path`.
    pub fn made(path: &Path, bytes: Vec<u8>) -> Self {
        Self::of(path.display().to_string(), vec![Bytes::Made(bytes)], false)
    }

    #[allow(unsafe_code)]
    fn of(name: String, held: Vec<Bytes>, check: bool) -> Self {
        let pieces = held.iter().map(|bytes| {
            // SAFETY: each variant of `Bytes` owns its memory, which is a mapping, a vector that is not changed, or a
            // static. The address of the memory stays the same when the variant is moved, until the variant is dropped
            // with `self`. No method returns these slices with a lifetime longer than the lifetime of `self`.
            unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
        });
        Self { name, pieces: pieces.collect(), held, projector: None, check, planned: Arc::default() }
    }

    /// The path as the user gave it, or `built-in`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the encoder of pictures, and true if the user named this file. A file that the user named must fit the
    /// model; a file that was found beside the model need not, because it may belong to another model.
    pub fn projector(&self) -> Option<(&Path, bool)> {
        self.projector.as_ref().map(|(path, is_given)| (path.as_path(), *is_given))
    }

    /// Total size of all files in bytes.
    #[allow(clippy::len_without_is_empty)] // a model file is never empty
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Returns the bytes of each file: one file, or all pieces of a split model.
    pub fn pieces(&self) -> &[&[u8]] {
        &self.pieces
    }

    /// Sets the number of bytes that the process will take in addition to the model, so that a copy in the background
    /// is made only if there is room for both.
    pub fn plans(&self, bytes: usize) {
        self.planned.store(bytes, Ordering::Relaxed);
    }

    /// Describes how the bytes are held, for the statistics.
    pub fn held(&self) -> &'static str {
        #[cfg(target_os = "linux")]
        {
            let pages = || {
                self.held.iter().filter_map(|bytes| if let Bytes::Large(pages) = bytes { Some(pages) } else { None })
            };
            if pages().any(LargePages::is_copying) {
                return "read in place, being copied to large pages";
            }
            match pages().map(LargePages::copied).sum() {
                0 => {}
                copied if copied < self.len() => return "partly copied to large pages, partly read in place",
                _ => return "copied to large pages",
            }
        }
        match self.held.first() {
            Some(Bytes::Made(_)) => "converted in memory",
            _ => "read in place",
        }
    }

    /// Drops the pages of `part` from memory. The next access reads these pages from the file again.
    pub fn release(&self, part: &[u8]) {
        for bytes in &self.held {
            if let Bytes::Mapped(map) = bytes {
                arenite_files::release(map, part);
            }
        }
    }

    /// Parses the file as GGUF. Errors name the file.
    pub fn gguf(&self) -> Result<Gguf<'_>> {
        Gguf::parse_split(self.pieces()).with_context(|| self.name.clone())
    }

    /// Parses the file as GGUF, and checks the weights if the user asked for that. Errors name the file.
    pub fn parse(&self) -> Result<Gguf<'_>> {
        let gguf = self.gguf()?;
        if self.check {
            check_tensors::check(&gguf).with_context(|| self.name.clone())?;
        }
        let others = gguf.tensors().filter(|tensor| is_other_modality(tensor.name)).count();
        if others > 0 {
            log::warn!("{}: {others} tensors of its vision or audio part are not used", self.name);
        }
        if let Some(name) = zero_norm(&gguf) {
            log::warn!(
                "warning: {}: the weights of {name} are all zeros: if the file was downloaded, its download is not complete",
                self.name
            );
        }
        Ok(gguf)
    }
}

/// Returns the name of the last norm tensor in a file if all of its values are zero. This happens if the end of a
/// download is missing.
fn zero_norm<'a>(gguf: &Gguf<'a>) -> Option<&'a str> {
    let norms = gguf.tensors().filter(|tensor| tensor.name.ends_with("norm.weight") && !tensor.data.is_empty());
    let last = norms.max_by_key(|norm| norm.offset)?;
    last.data.iter().all(|byte| *byte == 0).then_some(last.name)
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Static(bytes) => bytes,
            Bytes::Mapped(map) => map,
            #[cfg(target_os = "linux")]
            Bytes::Large(pages) => pages,
            Bytes::Made(bytes) => bytes,
        }
    }
}

/// With `auto`, a model with fewer bytes than this is only mapped, because small pages hardly slow it down.
#[cfg(target_os = "linux")]
const SMALL: usize = 64 << 20;

/// Replaces `auto` by `Map` if a model of `len` bytes is small or if there is little memory.
#[cfg(target_os = "linux")]
fn way_to_load(load: Load, len: usize) -> Result<Load> {
    Ok(if load == Load::Auto && (len < SMALL || available_memory() < 2 * len) { Load::Map } else { load })
}

/// Returns the mapping itself for `Map`, otherwise a copy in large pages. For `Auto`, the copy is made in the
/// background.
#[cfg(target_os = "linux")]
fn loaded(path: &Path, map: Mmap, load: Load, planned: &Arc<AtomicUsize>) -> Result<Bytes> {
    let len = map.len();
    let later = match load {
        Load::Map => return Ok(Bytes::Mapped(map)),
        Load::Auto => true,
        Load::Copy => false,
    };
    drop(map);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let pages = LargePages::open(File::open(path)?, len, later.then(|| planned.clone()), threads)?;
    faults::mapped(&pages, path);
    Ok(Bytes::Large(pages))
}

/// On systems other than Linux, files are always mapped. Returns `Map`, and refuses `Copy`.
#[cfg(not(target_os = "linux"))]
fn way_to_load(load: Load, _: usize) -> Result<Load> {
    ensure!(load != Load::Copy, "--load copy needs Linux; leave it out");
    Ok(Load::Map)
}

/// Returns the mapping itself.
#[cfg(not(target_os = "linux"))]
fn loaded(_: &Path, map: Mmap, _: Load, _: &Arc<AtomicUsize>) -> Result<Bytes> {
    Ok(Bytes::Mapped(map))
}
