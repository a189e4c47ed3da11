//! Opens models: a mapped file, a file converted in memory, or a model built into the binary.

use std::fs::File;
use std::io::Cursor;
use std::ops::Deref;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use arenite::gguf::Gguf;
use arenite::model::is_other_modality;
use clap::ValueEnum;
use memmap2::Mmap;

use crate::checkpoint::{self, whisper_cpp};
#[cfg(target_os = "linux")]
use crate::large_pages::LargePages;
use crate::mapped::map;
use crate::output::note;
use crate::tokenizer_file::with_tokenizer;
use crate::{check_tensors, faults, foreign, llama2c, split};

/// The built-in models, trained by the scripts in `models/`.
static STORIES: &[u8] = include_bytes!("../models/stories.gguf");
static TRANSLATOR: &[u8] = include_bytes!("../models/translator.gguf");

/// A model's bytes and its name in messages.
pub struct ModelFile {
    name: String,
    /// The bytes of each element of `held`. These slices borrow from `held`, so no method may return them with a longer
    /// lifetime than that of `self`.
    pieces: Vec<&'static [u8]>,
    /// The files; several for a split model.
    held: Vec<Bytes>,
    /// True if [`parse`](Self::parse) compares the tensors with their hashes and looks for NaN and infinity in all
    /// weights.
    check: bool,
}

enum Bytes {
    BuiltIn(&'static [u8]),
    Mapped(Mmap),
    #[cfg(target_os = "linux")]
    Large(LargePages),
    Made(Vec<u8>),
}

/// The model to open, and a tokenizer file that replaces or supplies its vocabulary.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// The model's file; `None` means the built-in story model.
    pub model: Option<&'a Path>,
    /// A file that replaces or supplies the vocabulary.
    pub tokenizer: Option<&'a Path>,
    /// Compare the tensors with the hashes in the file, if any, and look for NaN and infinity in all weights.
    pub check: bool,
    /// How to hold the file in memory.
    pub load: Load,
}

impl<'a> From<Option<&'a Path>> for Source<'a> {
    fn from(model: Option<&'a Path>) -> Self {
        Self { model, ..Self::default() }
    }
}

impl<'a> From<&'a Path> for Source<'a> {
    fn from(model: &'a Path) -> Self {
        Some(model).into()
    }
}

impl<'a> From<&'a str> for Source<'a> {
    fn from(model: &'a str) -> Self {
        Path::new(model).into()
    }
}

/// How to hold a model's file in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Map the file, and copy a large model in the background if memory allows.
    Auto,
    /// Map the file.
    #[default]
    Map,
    /// Copy the file to large pages first.
    Copy,
}

impl ModelFile {
    /// Opens the file of `source`, or the built-in story model if `source` names no file.
    pub fn open<'a>(source: impl Into<Source<'a>>) -> Result<Self> {
        Self::open_or(source.into(), STORIES)
    }

    /// Opens the file of `source`, or the built-in English to Hindi translator if `source` names no file.
    pub fn open_translator<'a>(source: impl Into<Source<'a>>) -> Result<Self> {
        Self::open_or(source.into(), TRANSLATOR)
    }

    fn open_or(source: Source<'_>, built_in: &'static [u8]) -> Result<Self> {
        let Source { model, tokenizer, check, load } = source;
        let Some(path) = model else {
            ensure!(
                tokenizer.is_none(),
                "the built-in model has its own vocabulary: give --tokenizer together with -m"
            );
            return Ok(Self::of("built-in".to_string(), vec![Bytes::BuiltIn(built_in)], check));
        };
        let name = path.display().to_string();
        if let Some(why) = foreign::path(path) {
            bail!("{name}: {why}");
        }
        let map = map(path).with_context(|| format!("cannot read the model {name}"))?;
        if whisper_cpp::is_model(&map) {
            let made = checkpoint::in_memory(path)?;
            return Ok(Self::of(name, vec![Bytes::Made(made)], check));
        }
        if foreign::is_foreign(&map) && !llama2c::is_checkpoint(&map) {
            bail!("{name}: {}", foreign::content(path, &map));
        }
        if llama2c::is_checkpoint(&map) {
            let made = converted(path, &map, tokenizer).with_context(|| name.clone())?;
            return Ok(Self::of(name, vec![Bytes::Made(made)], check));
        }
        let maps = split::files(path, map).with_context(|| name.clone())?;
        if let Some(tokenizer) = tokenizer {
            let pieces: Vec<&[u8]> = maps.iter().map(|(_, map)| &map[..]).collect();
            let made = Gguf::parse_split(&pieces)
                .map_err(anyhow::Error::from)
                .and_then(|gguf| with_tokenizer(&gguf, tokenizer));
            return Ok(Self::of(name.clone(), vec![Bytes::Made(made.context(name)?)], check));
        }
        let bytes = maps.iter().map(|(_, map)| map.len()).sum();
        let load = way_to_load(load, bytes)?;
        let held = maps.into_iter().map(|(path, map)| {
            let loaded = loaded(&path, map, load);
            loaded.with_context(|| format!("cannot copy the model {}", path.display()))
        });
        let held = held.collect::<Result<_>>()?;
        Ok(Self::of(name, held, check))
    }

    /// A file in memory that was made from the file at `path`.
    pub fn made(path: &Path, bytes: Vec<u8>) -> Self {
        Self::of(path.display().to_string(), vec![Bytes::Made(bytes)], false)
    }

    #[allow(unsafe_code)]
    fn of(name: String, held: Vec<Bytes>, check: bool) -> Self {
        let pieces = held.iter().map(|bytes| {
            // SAFETY: each variant of `Bytes` owns its memory (a mapping, a vector that is not changed, or a static) at
            // an address that stays the same when the variant is moved, until it is dropped with `self`. No method
            // returns these slices with a longer life than that of `self`.
            unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
        });
        Self { name, pieces: pieces.collect(), held, check }
    }

    /// The path as the user gave it, or `built-in`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Total size of all files in bytes.
    #[allow(clippy::len_without_is_empty)] // a model file is never empty
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// The bytes of each file: one, or the pieces of a split model.
    pub fn pieces(&self) -> &[&[u8]] {
        &self.pieces
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

    /// Drops the pages of `part` from memory. The next access reads them from the file again.
    #[allow(unsafe_code)]
    pub fn release(&self, part: &[u8]) {
        #[cfg(unix)]
        for bytes in &self.held {
            if let Bytes::Mapped(map) = bytes
                && let Some(at) = part.as_ptr().addr().checked_sub(map.as_ptr().addr())
                && at + part.len() <= map.len()
            {
                // SAFETY: the mapping is read-only and backed by a file, so dropped pages come back with the same bytes.
                let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, at, part.len()) };
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
            note(format_args!("{}: {others} tensors of its vision or audio part are not used", self.name));
        }
        Ok(gguf)
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::BuiltIn(bytes) => bytes,
            Bytes::Mapped(map) => map,
            #[cfg(target_os = "linux")]
            Bytes::Large(pages) => pages,
            Bytes::Made(bytes) => bytes,
        }
    }
}

/// Size in bytes below which `auto` only maps a model, because small pages hardly slow down a small model.
#[cfg(target_os = "linux")]
const SMALL: usize = 64 << 20;

/// Turns `auto` into `Map` if the model, of `len` bytes, is small or if memory is short.
#[cfg(target_os = "linux")]
fn way_to_load(load: Load, len: usize) -> Result<Load> {
    Ok(if load == Load::Auto && (len < SMALL || available_memory() < 2 * len) { Load::Map } else { load })
}

/// Returns the mapping itself for `Map`, otherwise a copy in large pages, which `Auto` makes in the background.
#[cfg(target_os = "linux")]
fn loaded(path: &Path, map: Mmap, load: Load) -> Result<Bytes> {
    let len = map.len();
    let later = match load {
        Load::Map => return Ok(Bytes::Mapped(map)),
        Load::Auto => true,
        Load::Copy => false,
    };
    drop(map);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let pages = LargePages::open(File::open(path)?, len, later, threads)?;
    faults::mapped(&pages, path);
    Ok(Bytes::Large(pages))
}

/// Returns `Map`, the only way on systems other than Linux. Refuses `Copy`.
#[cfg(not(target_os = "linux"))]
fn way_to_load(load: Load, _: usize) -> Result<Load> {
    ensure!(load != Load::Copy, "--load copy needs Linux; leave it out");
    Ok(Load::Map)
}

/// Returns the mapping itself.
#[cfg(not(target_os = "linux"))]
fn loaded(_: &Path, map: Mmap, _: Load) -> Result<Bytes> {
    Ok(Bytes::Mapped(map))
}

/// Converts a llama2.c checkpoint to GGUF in memory.
fn converted(path: &Path, checkpoint: &[u8], tokenizer: Option<&Path>) -> Result<Vec<u8>> {
    let tokenizer =
        tokenizer.context("this is a llama2.c checkpoint: give its vocabulary with --tokenizer tokenizer.bin")?;
    let vocabulary = map(tokenizer).with_context(|| format!("cannot read the tokenizer {}", tokenizer.display()))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let converted = llama2c::Converted::new(&name, checkpoint, &vocabulary, llama2c::Int8::Kept)?;
    converted.notes.iter().for_each(note);
    let mut bytes = Cursor::new(Vec::with_capacity(checkpoint.len() + vocabulary.len() + (1 << 16)));
    converted.write(&mut bytes)?;
    Ok(bytes.into_inner())
}
