//! Models in several files, as llama.cpp's `llama-gguf-split` writes them: `NAME-00001-of-00003.gguf` and so on.
//!
//! The first file has the metadata, each file has a part of the tensors. They are joined in memory.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arenite::gguf::Gguf;
use memmap2::Mmap;

use crate::gguf_writer::Header;
use crate::model_file::map;

const COUNT: &str = "split.count";
const NUMBER: &str = "split.no";
const TENSORS: &str = "split.tensors.count";

/// The model that `first`, the file at `path`, is the first part of, as one file; `None` if it is a whole model.
///
/// # Errors
///
/// If it is another part, if a part is missing or belongs to another model.
pub fn joined(path: &Path, first: &[u8]) -> Result<Option<Vec<u8>>> {
    // Whatever is wrong with the file is reported where it is used.
    let Ok(gguf) = Gguf::parse(first) else { return Ok(None) };
    let count = gguf.u32("", COUNT)?.unwrap_or(1);
    if count <= 1 {
        return Ok(None);
    }
    let number = gguf.u32("", NUMBER)?.unwrap_or(0);
    if number > 0 {
        match sibling(path, number, count, 0) {
            Some(first) => bail!("this is part {} of {count}: give {}", number + 1, first.display()),
            None => bail!("this is part {} of {count}: give the first one", number + 1),
        }
    }
    let rest: Vec<Mmap> = (1..count).map(|part| open(path, part, count)).collect::<Result<_>>()?;
    let parts: Vec<Gguf<'_>> = rest.iter().map(|part| Gguf::parse(part)).collect::<Result<_, _>>()?;
    for (part, number) in parts.iter().zip(1..) {
        let is_it = part.u32("", NUMBER)? == Some(number) && part.u32("", COUNT)? == Some(count);
        ensure!(is_it, "part {} of {count} belongs to another model", number + 1);
    }
    let all = || gguf.tensors().chain(parts.iter().flat_map(|part| part.tensors()));
    if let Some(tensors) = gguf.u32("", TENSORS)? {
        let found = all().count();
        ensure!(
            found == tensors as usize,
            "the parts have {found} tensors and should have {tensors}: fetch them again"
        );
    }
    let mut header = Header::new();
    let is_own = |key: &str| [COUNT, NUMBER, TENSORS].contains(&key);
    gguf.keys().filter(|(key, _)| !is_own(key)).for_each(|(key, value)| header.set(key, value));
    for tensor in all() {
        header.tensor(tensor.name, &tensor.dims[..tensor.dim_count as usize], tensor.kind)?;
    }
    let bytes = first.len() + rest.iter().map(|part| part.len()).sum::<usize>();
    let mut data = header.write(Cursor::new(Vec::with_capacity(bytes)))?;
    all().try_for_each(|tensor| data.write_all(tensor.data))?;
    Ok(Some(data.finish()?.into_inner()))
}

fn open(path: &Path, part: u32, count: u32) -> Result<Mmap> {
    let named = sibling(path, 0, count, part);
    let path = named.with_context(|| {
        format!(
            "the model has {count} parts; name them NAME-00001-of-{count:05}.gguf and so on, so that they are found"
        )
    })?;
    map(&path).with_context(|| format!("cannot read {}, part {} of {count}", path.display(), part + 1))
}

/// The path of part `to`, given that of part `from`.
fn sibling(path: &Path, from: u32, count: u32, to: u32) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let end = |part: u32| format!("-{:05}-of-{count:05}.gguf", part + 1);
    let base = name.strip_suffix(&end(from))?;
    Some(path.with_file_name(format!("{base}{}", end(to))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The built-in model cut at the given tensors.
    fn cut(directory: &Path, at: &[usize]) -> PathBuf {
        let whole = Gguf::parse(include_bytes!("../models/stories.gguf")).unwrap();
        let tensors: Vec<_> = whole.tensors().collect();
        let ends: Vec<usize> = at.iter().copied().chain([tensors.len()]).collect();
        let path = |part: usize| directory.join(format!("m-{:05}-of-{:05}.gguf", part + 1, ends.len()));
        let mut start = 0;
        for (part, &end) in ends.iter().enumerate() {
            let mut header = Header::new();
            if part == 0 {
                whole.keys().for_each(|(key, value)| header.set(key, value));
            }
            header.set(NUMBER, part as u16);
            header.set(COUNT, ends.len() as u16);
            header.set(TENSORS, tensors.len() as i32);
            for tensor in &tensors[start..end] {
                header.tensor(tensor.name, &tensor.dims[..tensor.dim_count as usize], tensor.kind).unwrap();
            }
            let mut data = header.write(Cursor::new(Vec::new())).unwrap();
            tensors[start..end].iter().for_each(|tensor| data.write_all(tensor.data).unwrap());
            std::fs::write(path(part), data.finish().unwrap().into_inner()).unwrap();
            start = end;
        }
        path(0)
    }

    fn open(path: &Path) -> Result<Option<Vec<u8>>> {
        joined(path, &std::fs::read(path).unwrap())
    }

    #[test]
    fn parts_make_the_whole() {
        let whole = Gguf::parse(include_bytes!("../models/stories.gguf")).unwrap();
        let count = whole.tensor_count() as usize;
        for at in [&[1][..], &[count - 1], &[0, 3], &[1, 2, 3, 4, 5, 6]] {
            let directory = tempfile::tempdir().unwrap();
            let joined = open(&cut(directory.path(), at)).unwrap().unwrap();
            let joined = Gguf::parse(&joined).unwrap();
            assert_eq!(joined.key_count(), whole.key_count() + 1); // the hashes
            for (ours, theirs) in joined.tensors().zip(whole.tensors()) {
                assert_eq!(
                    (ours.name, ours.dims, ours.kind, ours.data),
                    (theirs.name, theirs.dims, theirs.kind, theirs.data)
                );
            }
            assert_eq!(joined.tensor_count(), whole.tensor_count());
        }
    }

    #[test]
    fn parts_that_are_missing_or_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let first = cut(directory.path(), &[2, 5]);
        let path = |part: usize| directory.path().join(format!("m-{part:05}-of-00003.gguf"));
        let says = |path: &Path, what: &str| {
            let error = format!("{:#}", open(path).unwrap_err());
            assert!(error.contains(what), "{error}");
        };
        says(&path(2), "this is part 2 of 3: give ");
        let third = std::fs::read(path(3)).unwrap();
        std::fs::copy(path(2), path(3)).unwrap();
        says(&first, "part 3 of 3 belongs to another model");
        std::fs::remove_file(path(3)).unwrap();
        says(&first, "m-00003-of-00003.gguf, part 3 of 3");
        std::fs::write(path(3), third).unwrap();
        assert!(open(&first).is_ok());
        let other = directory.path().join("other.gguf");
        std::fs::copy(&first, &other).unwrap();
        says(&other, "name them NAME-00001-of-00003.gguf");
        assert!(joined(&other, include_bytes!("../models/stories.gguf")).unwrap().is_none());
    }
}
