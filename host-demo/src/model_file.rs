//! Where the bytes of a model come from: a mapped file, or the binary itself.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use anyhow::{Context, Result, bail};
use arenite::gguf::Gguf;
use memmap2::Mmap;

use crate::faults;

/// The models that `arenite` has with it, trained by `models/`.
static STORIES: &[u8] = include_bytes!("../models/stories.gguf");
static TRANSLATOR: &[u8] = include_bytes!("../models/translator.gguf");

/// The bytes of a model, and what to call it.
pub struct ModelFile {
    name: String,
    bytes: Bytes,
}

enum Bytes {
    BuiltIn(&'static [u8]),
    Mapped(Mmap),
}

impl ModelFile {
    /// The file at `path`; without a path, the built-in model that tells stories.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        Self::open_or(path, STORIES)
    }

    /// The file at `path`; without a path, the built-in translator from English to Hindi.
    pub fn open_translator(path: Option<&Path>) -> Result<Self> {
        Self::open_or(path, TRANSLATOR)
    }

    fn open_or(path: Option<&Path>, built_in: &'static [u8]) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self { name: "built-in".to_string(), bytes: Bytes::BuiltIn(built_in) });
        };
        let name = path.display().to_string();
        let bytes = map(path).with_context(|| format!("cannot read the model {name}"))?;
        Ok(Self { name, bytes: Bytes::Mapped(bytes) })
    }

    /// The path as it was given, or `built-in`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file's structure. Every error that follows from the file's contents names it.
    pub fn parse(&self) -> Result<Gguf<'_>> {
        Gguf::parse(self).with_context(|| self.name.clone())
    }
}

impl Deref for ModelFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::BuiltIn(bytes) => bytes,
            Bytes::Mapped(map) => map,
        }
    }
}

/// Maps a file: nothing is read until it is used, and what is read stays in the page cache.
fn map(path: &Path) -> Result<Mmap> {
    let hint = |error: std::io::Error| -> anyhow::Error {
        let advice = match error.kind() {
            std::io::ErrorKind::NotFound => Cow::from("there is no such file; check the path"),
            std::io::ErrorKind::PermissionDenied => Cow::from("you may not read this file; check its permissions"),
            _ => Cow::from(error.to_string()),
        };
        anyhow::Error::msg(advice)
    };
    // Before it is opened: opening a pipe would wait for a writer.
    let kind = std::fs::metadata(path).map_err(hint)?;
    if kind.is_dir() {
        bail!("this is a directory; give the .gguf file in it");
    }
    if !kind.is_file() {
        bail!("this is not a regular file and cannot be mapped; copy it to a file first");
    }
    if kind.len() == 0 {
        bail!("the file is empty; fetch it again");
    }
    let file = File::open(path).map_err(hint)?;
    let map = map_read_only(&file).map_err(hint)?;
    faults::mapped(&map, path);
    // Where the file system can, the page cache then holds the file in large pages: decoding reads every weight
    // for every token, and walking tables of small pages costs a quarter of the speed.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage); // a hint: without it all works the same
    Ok(map)
}

#[allow(unsafe_code)]
fn map_read_only(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the mapping is private to this process and read-only. What remains is another
    // process that changes the file while it is mapped: nothing here can exclude that, and every
    // program that maps its models lives with it. The core checks ranges once and then only
    // reads numbers, so changed bytes give wrong numbers; for a file cut short under the mapping there
    // is `faults`.
    unsafe { Mmap::map(file) }
}
