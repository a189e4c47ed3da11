//! Opens models that are split into several files, called pieces, by llama.cpp's `llama-gguf-split`:
//! `NAME-00001-of-00003.gguf` and so on. The first piece has the metadata, and the tensors are divided among all
//! pieces.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arenite::gguf::Gguf;
use memmap2::Mmap;

use arenite_files::map;
use arenite_gguf_writer::SPLIT;

/// Returns the files of a model in order. The first of them is `first`, which was mapped from `path`. If `first` is the
/// first of several pieces, the remaining pieces in the same directory follow.
///
/// # Errors
///
/// An error if `first` is not the first piece, or if a piece is missing, is not a GGUF file, or belongs to another
/// model.
pub fn files(path: &Path, first: Mmap) -> Result<Vec<(PathBuf, Mmap)>> {
    let [no, count, tensors] = SPLIT;
    let numbers = |gguf: &Gguf<'_>| -> Result<_, arenite::Error> {
        Ok((gguf.u32("", no)?.unwrap_or(0), gguf.u32("", count)?.unwrap_or(1).max(1), gguf.u32("", tensors)?))
    };
    // Errors in the first file are not reported here, because they are reported when the model is parsed.
    let (number, count, tensors) = match Gguf::parse(&first) {
        Ok(gguf) => numbers(&gguf)?,
        Err(_) => (0, 1, None),
    };
    if number > 0 {
        match sibling(path, number, count, 0) {
            Some(first) => bail!("this is piece {} of {count}: give {}", number + 1, first.display()),
            None => bail!("this is piece {} of {count}: give the first one", number + 1),
        }
    }
    let mut files = vec![(path.to_owned(), first)];
    for number in 1..count {
        let path = sibling(path, 0, count, number).with_context(|| {
            format!(
                "the model has {count} pieces; name them NAME-00001-of-{count:05}.gguf and so on, so that they are found"
            )
        })?;
        let which = || format!("{}, piece {} of {count}", path.display(), number + 1);
        let map = map(&path).with_context(|| format!("cannot read {}", which()))?;
        let found = Gguf::parse(&map).and_then(|gguf| numbers(&gguf)).with_context(which)?;
        ensure!(
            found.0 == number && found.1 == count && (found.2.is_none() || tensors.is_none() || found.2 == tensors),
            "{} belongs to another model: give the pieces of one model",
            which()
        );
        files.push((path, map));
    }
    Ok(files)
}

/// The path of piece `to`, given that of piece `from`.
fn sibling(path: &Path, from: u32, count: u32, to: u32) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let base = name.strip_suffix(&suffix(from, count))?;
    Some(path.with_file_name(format!("{base}{}", suffix(to, count))))
}

/// End of the file name of piece `number`, counted from 0.
fn suffix(number: u32, count: u32) -> String {
    format!("-{:05}-of-{count:05}.gguf", number + 1)
}

/// Returns true if the file has the name of a second or later piece.
pub fn is_later_piece(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parts = name.strip_suffix(".gguf").map(|base| base.rsplitn(4, '-').collect::<Vec<_>>());
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.len() == 5);
    match parts.as_deref() {
        Some([count, "of", piece, _]) => number(count).zip(number(piece)).is_some_and(|(_, piece)| piece > 1),
        _ => false,
    }
}

/// Returns the paths to write `count` pieces to: `path` itself if there is one piece. If there are several pieces, the
/// numbers of each piece replace `.gguf` and any existing piece numbers at the end of `path`.
pub fn outputs(path: &Path, count: usize) -> Vec<PathBuf> {
    if count == 1 {
        return vec![path.to_owned()];
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let base = name.strip_suffix(".gguf").unwrap_or(&name);
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let base = match base.rsplitn(4, '-').collect::<Vec<_>>()[..] {
        [of, "of", number, base] if is_number(of) && is_number(number) => base,
        _ => base,
    };
    (0..count as u32).map(|number| path.with_file_name(format!("{base}{}", suffix(number, count as u32)))).collect()
}

/// Formats the paths of the written files for a message.
pub fn listed(paths: &[PathBuf]) -> String {
    match paths {
        [path] => path.display().to_string(),
        [first, .., last] => format!("{} to {}", first.display(), last.display()),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use super::*;
    use crate::model_file::ModelFile;
    use arenite_gguf_writer::Header;

    const WHOLE: &[u8] = include_bytes!("../../../models/stories.gguf");

    /// Cuts the built-in model into pieces and writes them. `at` has the index of the first tensor of each piece.
    /// Returns the path of the first piece.
    fn cut(directory: &Path, at: &[usize]) -> PathBuf {
        let whole = Gguf::parse(WHOLE).unwrap();
        let mut header = Header::new();
        whole.keys().for_each(|(key, value)| header.set(key, value));
        for tensor in whole.tensors() {
            header.tensor(tensor.name, &tensor.dims[..tensor.dim_count as usize], tensor.kind).unwrap();
        }
        let ends: Vec<usize> = at.iter().copied().chain([whole.tensors().count()]).collect();
        let mut files = vec![Cursor::new(vec![]); ends.len()];
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let counts = ends.iter().zip(starts).map(|(end, start)| end - start);
        let mut data = header.write_split(files.iter_mut().zip(counts).collect()).unwrap();
        whole.tensors().for_each(|tensor| data.write_all(tensor.data).unwrap());
        data.finish().unwrap();
        let paths = outputs(&directory.join("m.gguf"), ends.len());
        paths.iter().zip(files).for_each(|(path, file)| std::fs::write(path, file.into_inner()).unwrap());
        paths[0].clone()
    }

    #[test]
    fn pieces_are_the_whole() {
        let whole = Gguf::parse(WHOLE).unwrap();
        let count = whole.tensor_count() as usize;
        for at in [&[1][..], &[count - 1], &[0, 3], &[1, 2, 3, 4, 5, 6], &[]] {
            let directory = tempfile::tempdir().unwrap();
            let file = ModelFile::open(cut(directory.path(), at).as_path()).unwrap();
            assert_eq!(file.pieces().len(), at.len() + 1);
            let gguf = file.parse().unwrap();
            for (ours, theirs) in gguf.tensors().zip(whole.tensors()) {
                assert_eq!(
                    (ours.name, ours.dims, ours.kind, ours.data),
                    (theirs.name, theirs.dims, theirs.kind, theirs.data)
                );
            }
            assert_eq!(gguf.tensor_count(), whole.tensor_count());
            let mut verify = gguf.verify().unwrap().unwrap();
            while verify.step(1 << 20).unwrap() {}
        }
    }

    #[test]
    fn pieces_that_are_missing_or_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let first = cut(directory.path(), &[2, 5]);
        let path = |piece: usize| directory.path().join(format!("m-{piece:05}-of-00003.gguf"));
        let says = |path: &Path, what: &str| {
            let error = format!("{:#}", ModelFile::open(path).err().unwrap());
            assert!(error.contains(what), "{error}");
        };
        says(&path(2), "this is piece 2 of 3: give ");
        let third = std::fs::read(path(3)).unwrap();
        std::fs::copy(path(2), path(3)).unwrap();
        says(&first, "m-00003-of-00003.gguf, piece 3 of 3 belongs to another model");
        std::fs::write(path(3), &third[..third.len() - 1000]).unwrap();
        says(&first, "m-00003-of-00003.gguf, piece 3 of 3: the tensor");
        std::fs::remove_file(path(3)).unwrap();
        says(&first, "m-00003-of-00003.gguf, piece 3 of 3");
        std::fs::write(path(3), third).unwrap();
        assert!(ModelFile::open(first.as_path()).is_ok());
        let other = directory.path().join("other.gguf");
        std::fs::copy(&first, &other).unwrap();
        says(&other, "name them NAME-00001-of-00003.gguf");
    }

    #[test]
    fn names_of_pieces() {
        let later = ["a/m-00002-of-00003.gguf", "m-00001-of-00003.gguf", "m-00002-of-3.gguf", "m.gguf", "2-of-3"];
        assert_eq!(later.map(|path| is_later_piece(Path::new(path))), [true, false, false, false, false]);
        let names = |path: &str, count| -> Vec<String> {
            outputs(Path::new(path), count).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(names("a/m-x.gguf", 1), ["a/m-x.gguf"]);
        assert_eq!(names("a/m-x.gguf", 2), ["a/m-x-00001-of-00002.gguf", "a/m-x-00002-of-00002.gguf"]);
        assert_eq!(names("m-00001-of-00003.gguf", 2), ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]);
        assert_eq!(names("m-1-of-3", 2)[1], "m-1-of-3-00002-of-00002.gguf");
    }
}
