//! Maps files into memory. A model then starts without being read, and processes that run the same model share its pages.

use std::fs::File;
use std::path::Path;

use anyhow::{Result, bail};
use memmap2::Mmap;

use crate::{faults, keep};

/// Maps a file read-only. Pages are read on first use and stay in the page cache.
pub fn map(path: &Path) -> Result<Mmap> {
    // Check the kind of file before opening it, because opening a pipe waits for a writer.
    let kind = std::fs::metadata(path)?;
    if kind.is_dir() {
        bail!("this is a directory; give the .gguf file in it");
    }
    if !kind.is_file() {
        bail!("this is not a regular file and cannot be mapped; copy it to a file first");
    }
    if kind.len() == 0 {
        bail!("the file is empty; fetch it again");
    }
    let file = File::open(path)?;
    keep(path);
    let map = map_read_only(&file)?;
    faults::mapped(&map, path);
    // Ask for large pages in the page cache, which not every file system supports. Decoding reads every weight for
    // every token, and with small pages the walks of the page table cost a quarter of the speed.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage); // only a hint: failure is harmless
    Ok(map)
}

/// Removes the pages of `part` from memory, if `part` is inside `map`. They are read from the file again when they are
/// needed.
#[cfg_attr(not(unix), allow(unused_variables))]
#[allow(unsafe_code)]
pub fn release(map: &Mmap, part: &[u8]) {
    #[cfg(unix)]
    if let Some(at) = part.as_ptr().addr().checked_sub(map.as_ptr().addr())
        && at + part.len() <= map.len()
    {
        // SAFETY: the mapping is read-only and backed by a file, so dropped pages come back with the same bytes.
        let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, at, part.len()) };
    }
}

#[allow(unsafe_code)]
fn map_read_only(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the mapping is private to this process and read-only. Another process could still change the file while
    // it is mapped; no program that maps its models can exclude that. The core checks ranges once and then reads only
    // numbers, so changed bytes give wrong numbers. `faults` handles a file that is truncated while mapped.
    unsafe { Mmap::map(file) }
}
