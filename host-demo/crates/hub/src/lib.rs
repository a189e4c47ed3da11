//! Fetches models from the Hugging Face hub or from any address, into the cache that other tools share.
//!
//! | file | |
//! |---|---|
//! | `lib` | names of models, and the files that each name stands for |
//! | `client` | requests, with redirects and access tokens |
//! | `download` | downloads of files: resumed, checked, and moved into the cache when complete |
//! | `cache` | the directories of the cache |
//! | `public` | files at addresses in requests of strangers |
//!
//! ```no_run
//! use arenite_hub::{Access, Name};
//!
//! let name = Name::parse("ggml-org/Qwen3-0.6B-GGUF:Q8_0")?;
//! // From the cache if the file is there. `()` shows no progress.
//! let path = arenite_hub::model(&name, Access { token: None, progress: &() })?;
//! # drop(path);
//! # Ok::<(), anyhow::Error>(())
//! ```

#![deny(unsafe_code)]
#![allow(missing_docs, clippy::missing_errors_doc)]

mod cache;
mod client;
mod download;
mod public;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use arenite_files::{drafter_among, joining, projector_among, whole_of};
pub use arenite_files::{drafter_beside, is_gguf, quant_of};
use regex_lite::Regex;

use cache::PLAIN;
pub use cache::{Cache, Entry};
use client::Client;
use download::Remote;
pub use public::fetch_public;

/// Preferred quantizations for a name without a quantization, as in llama.cpp.
const DEFAULTS: [&str; 2] = ["Q4_K_M", "Q8_0"];

/// A model on the hub: `USER/REPO` or `USER/REPO:QUANT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub repository: String,
    pub quant: Option<String>,
    /// File of the repository to use, regardless of the quantization.
    pub file: Option<String>,
}

impl Name {
    pub fn parse(text: &str) -> Result<Self> {
        let hosts = ["https://huggingface.co/", "https://hf.co/", "hf.co/", "huggingface.co/"];
        let text = hosts.iter().find_map(|host| text.strip_prefix(host)).unwrap_or(text).trim_end_matches('/');
        ensure!(
            is_repository(text),
            "`{text}` is not a name of a model: give USER/REPO or USER/REPO:QUANT, such as ggml-org/Qwen3-0.6B-GGUF:Q8_0"
        );
        let (repository, quant) = match text.split_once(':') {
            // The quantization `latest` counts as none, because it stands for the default quantization in Ollama's
            // names.
            Some((repository, "latest")) => (repository, None),
            Some((repository, quant)) => (repository, Some(quant.to_owned())),
            None => (text, None),
        };
        Ok(Self { repository: repository.to_owned(), quant, file: None })
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.repository)?;
        match self.file.as_ref().or(self.quant.as_ref()) {
            Some(more) => write!(f, ":{more}"),
            None => Ok(()),
        }
    }
}

/// Returns true if a name has the form USER/REPO or USER/REPO:QUANT.
pub fn is_repository(name: &str) -> bool {
    let is_word = |text: &str| {
        let first = |c: char| c.is_ascii_alphanumeric();
        text.starts_with(first) && text.chars().all(|c| first(c) || "._-".contains(c))
    };
    let (repository, quant) = name.split_once(':').unwrap_or((name, "a"));
    let parts: Vec<_> = repository.split('/').collect();
    parts.len() == 2 && parts.iter().all(|part| is_word(part)) && is_word(quant)
}

/// The identity of the user, and the display of downloads.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    /// The access token for private models.
    pub token: Option<&'a str>,
    /// `&()` shows nothing.
    pub progress: &'a dyn Progress,
}

/// Shows the progress of downloads.
pub trait Progress {
    /// A download starts. `size` is the number of bytes, if the server states it.
    fn begin(&self, name: &str, size: Option<u64>);
    /// `bytes` of the file are here.
    fn position(&self, bytes: u64);
    /// The download ended or failed.
    fn end(&self);
}

/// Shows nothing.
impl Progress for () {
    fn begin(&self, _: &str, _: Option<u64>) {}
    fn position(&self, _: u64) {}
    fn end(&self) {}
}

/// Returns true if `model` is an address.
pub fn is_address(model: &Path) -> bool {
    model.to_str().is_some_and(|text| text.starts_with("https://") || text.starts_with("http://"))
}

/// Returns the path of a model's first file, and fetches the model if the cache does not have it. Further files of a
/// split model are in the same directory.
pub fn model(name: &Name, access: Access<'_>) -> Result<PathBuf> {
    let snapshots = Cache::open()?.repository(&name.repository).snapshots();
    let in_cache = |is_meant: &dyn Fn(&str) -> bool| {
        snapshots.iter().find_map(|snapshot| {
            let pieces = choose(&snapshot.files, name).and_then(|file| pieces(&snapshot.files, &file)).ok()?;
            is_meant(&pieces[0]).then(|| snapshot.directory.join(&pieces[0]))
        })
    };
    // A name without a quantization stands for the preferred quantization. If the cache has no file with this
    // quantization, the hub is asked, even if the cache has a file with another one, because the repository may have
    // the preferred one.
    let quant = name.quant.as_deref().unwrap_or(DEFAULTS[0]);
    if let Some(path) = in_cache(&|file| name.file.is_some() || has_quant(file, quant)) {
        return Ok(path);
    }
    pull(name, access).or_else(|error| match in_cache(&|_| true) {
        // The hub cannot be reached, but the cache has a different file of the repository, which is used instead.
        Some(path) if error.is::<client::Unreachable>() => {
            log::warn!("{error:#}: {} is taken from the cache", path.display());
            Ok(path)
        }
        _ => Err(error),
    })
}

/// Fetches the files of a model that are missing in the cache or have changed on the hub. Returns the path of the
/// model's first file.
pub fn pull(name: &Name, access: Access<'_>) -> Result<PathBuf> {
    let client = Client::new(access.token)?;
    let cache = Cache::open()?.repository(&name.repository);
    let listed = client.list(&name.repository)?;
    let file = choose(&listed.files, name).with_context(|| name.repository.clone())?;
    let pieces = pieces(&listed.files, &file).with_context(|| name.repository.clone())?;
    // Fetch the projector, too, because the model cannot read pictures without it.
    let projector = projector_among(listed.files.iter().map(String::as_str), &file).map(str::to_owned);
    let mut commit = listed.commit;
    let drafter = drafter_among(&listed.files, &file);
    for piece in pieces.iter().chain(&projector).chain(&drafter) {
        let url = client.address(&name.repository, commit.as_deref().unwrap_or("main"), piece);
        let remote = Remote { url: &url, repository: Some(&name.repository), name: piece };
        let fetched = download::fetch(&client, &remote, &cache, access.progress)?;
        // All pieces are fetched from the same commit, because pieces of different commits may not fit together.
        let commit = commit.get_or_insert(fetched.commit.unwrap_or_else(|| PLAIN.to_owned()));
        cache.link(commit, piece, &fetched.blob)?;
    }
    cache.set_current(commit.as_deref().unwrap_or(PLAIN))?;
    Ok(cache.path(&pieces[0]))
}

/// Fetches a file from any address, if the cache does not have it. Returns its path.
pub fn model_at(address: &str, access: Access<'_>) -> Result<PathBuf> {
    let (repository, file) = match place(address, &Client::new(access.token)?)? {
        Place::Hub(name) => return model(&name, access),
        Place::Plain(repository, file) => (repository, file),
    };
    let known = Cache::open()?.repository(&repository).path(&file);
    if known.exists() { Ok(known) } else { pull_from(address, access) }
}

/// Fetches a file from any address, if the cache does not have it or the file has changed. Returns its path.
pub fn pull_from(address: &str, access: Access<'_>) -> Result<PathBuf> {
    let client = Client::new(access.token)?;
    let (repository, file) = match place(address, &client)? {
        Place::Hub(name) => return pull(&name, access),
        Place::Plain(repository, file) => (repository, file),
    };
    let cache = Cache::open()?.repository(&repository);
    let url = address.split('#').next().unwrap_or(address);
    let fetched = download::fetch(&client, &Remote { url, repository: None, name: &file }, &cache, access.progress)?;
    cache.link(PLAIN, &file, &fetched.blob)?;
    cache.set_current(PLAIN)?;
    Ok(cache.path(&file))
}

/// The place to which an address leads.
enum Place {
    Hub(Name),
    /// The repository of the cache, and the file's name in it.
    Plain(String, String),
}

fn place(address: &str, client: &Client) -> Result<Place> {
    if let Some((repository, file)) = client.file_of(address) {
        return Ok(Place::Hub(Name { repository, quant: None, file }));
    }
    let address = address.split('#').next().unwrap_or(address);
    let (plain, query) = address.split_once('?').unwrap_or((address, ""));
    let parts = plain.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
    let (host, path) = parts.with_context(|| format!("the address {address} names no file"))?;
    let host = host.rsplit_once('@').map_or(host, |(_password, host)| host);
    let safe = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c), "-");
    let (folder, file) = path.rsplit_once('/').unwrap_or(("files", path));
    let is_exact = query.is_empty() && path.contains('/') && safe(path) == path.replacen('/', "-", 1);
    let (mut folder, file) = (safe(folder), safe(file));
    ensure!(!file.is_empty() && !file.starts_with('.'), "the address {address} names no file");
    if !is_exact {
        // Add a hash, because several addresses give these names.
        folder += &format!("-{}", &download::sha256(address)[..8]);
    }
    Ok(Place::Plain(format!("{}/{folder}", safe(host)), file))
}

/// Returns true if a file is a language model or the first piece of a split language model.
fn is_model(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    // Compares in lower case only: names of whole models may contain `MTP-` in upper case.
    const OTHERS: [&str; 6] = ["mmproj", "mtp-", "eagle3-", "dflash-", "dspark-", "-assistant"];
    // A file counts as an importance matrix only if its name has no quantization, because the name of a model that was
    // quantized with a matrix may contain "imatrix", too.
    let is_matrix = name.contains("imatrix") && quant_of(name).is_none();
    is_gguf(name)
        && !is_matrix
        && !OTHERS.iter().any(|other| name.contains(other))
        && split(file).is_none_or(|(_, piece, _)| piece == 1)
}

/// Splits the file name of one piece of a split model into the text before the numbers, the piece's number, and the
/// number of pieces.
fn split(file: &str) -> Option<(&str, usize, usize)> {
    let rest = file.strip_suffix(".gguf")?;
    let (rest, count) = rest.rsplit_once("-of-")?;
    let (start, piece) = rest.rsplit_once('-')?;
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|digit| digit.is_ascii_digit());
    (is_number(piece) && is_number(count)).then_some(())?;
    Some((start, piece.parse().ok()?, count.parse().ok()?))
}

/// Returns the files with the quantization `quant`. If there are none, returns the files whose names contain `quant`.
pub fn with_quant<'f>(files: &[&'f String], quant: &str) -> Vec<&'f String> {
    let pattern = |before: &str| Regex::new(&format!("(?i){before}{}[-./]", regex_lite::escape(quant)));
    let all = |is_meant: &dyn Fn(&str) -> bool| files.iter().copied().filter(|file| is_meant(file)).collect::<Vec<_>>();
    let named = |before: &str| pattern(before).map_or(Vec::new(), |pattern| all(&|file| pattern.is_match(file)));
    let exact = all(&|file| has_quant(file, quant));
    let found = if exact.is_empty() { named("(^|[^a-zA-Z0-9])") } else { exact };
    // The name of a float type must be a whole word, because `BF16` contains `F16`.
    if found.is_empty() && !quant.starts_with(['F', 'f']) { named("") } else { found }
}

/// Returns true if `quant` is the quantization in a file's name.
fn has_quant(file: &str, quant: &str) -> bool {
    quant_of(file).is_some_and(|own| own.eq_ignore_ascii_case(quant))
}

/// Chooses the file that a name stands for.
fn choose(files: &[String], name: &Name) -> Result<String> {
    if let Some(wanted) = &name.file {
        let found = files.iter().find(|file| file.eq_ignore_ascii_case(wanted));
        return found.cloned().with_context(|| format!("it has no file {wanted}: {}", list(files)));
    }
    let models: Vec<&String> = files.iter().filter(|file| is_model(file)).collect();
    let with = |quant: &str| with_quant(&models, quant).first().copied();
    let found = match &name.quant {
        Some(quant) => with(quant),
        None => DEFAULTS.iter().find_map(|quant| with(quant)).or(models.first().copied()),
    };
    // If the repository has no model in a whole file, it may have a model that was cut into byte parts. The error then
    // says how to join them.
    let wholes: Vec<String> = files.iter().filter_map(|file| whole_of(file)).map(str::to_owned).collect();
    let whole = match &name.quant {
        Some(quant) => with_quant(&wholes.iter().collect::<Vec<_>>(), quant).first().map(|whole| (*whole).clone()),
        None => wholes.first().cloned(),
    };
    if found.is_none()
        && let Some(whole) = whole
    {
        bail!(
            "{whole} is stored in byte parts: fetch them with `hf download {} --include '{whole}*' --local-dir .`, and join \
             them with `{}`",
            name.repository,
            joining(&whole, files.iter().map(String::as_str))
        );
    }
    match (found, &name.quant) {
        (Some(file), _) => Ok(file.clone()),
        (None, Some(quant)) if !models.is_empty() => bail!("it has no {quant}: {}", list(files)),
        _ if files.iter().any(|file| file.ends_with(".safetensors") || file.ends_with(".bin")) => bail!(
            "it has no GGUF file, but a checkpoint: look for a repository with GGUF in its name, or download the checkpoint \
             (`hf download {} --local-dir DIR`) and use `arenite convert hf DIR OUT.gguf`",
            name.repository
        ),
        _ => bail!("it has no GGUF file: look for a repository with GGUF in its name"),
    }
}

/// The models among files, as a clause of an error message.
fn list(files: &[String]) -> String {
    let models: Vec<&String> = files.iter().filter(|file| is_model(file)).collect();
    let quants: Option<Vec<String>> = models.iter().map(|file| quant_of(file)).collect();
    match quants {
        _ if models.is_empty() => "it has no GGUF file".to_owned(),
        Some(quants) => format!("give one of {}", quants.join(", ")),
        None => format!("it has {}", models.iter().map(|file| file.as_str()).collect::<Vec<_>>().join(", ")),
    }
}

/// Returns all pieces of the model whose first piece is `first`.
fn pieces(files: &[String], first: &str) -> Result<Vec<String>> {
    let Some((start, _, count)) = split(first) else { return Ok(vec![first.to_owned()]) };
    let piece = |number: usize| {
        let name = format!("{start}-{number:05}-of-{count:05}.gguf");
        ensure!(files.contains(&name), "the piece {name} of the model is missing");
        Ok(name)
    };
    (1..=count).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn chosen(names: &[&str], name: &str) -> Result<String> {
        choose(&files(names), &Name::parse(name)?)
    }

    #[test]
    fn names_have_parts() {
        let name = Name::parse("hf.co/a/b-GGUF:Q8_0").unwrap();
        assert_eq!((name.repository.as_str(), name.quant.as_deref()), ("a/b-GGUF", Some("Q8_0")));
        assert_eq!(Name::parse("a/b:latest").unwrap().quant, None);
        for wrong in ["a", "a/b/c", "../b", "a/..", "a/b:", "a b/c", ""] {
            assert!(Name::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_default_is_llama_cpps() {
        let all = ["README.md", "m-Q2_K.gguf", "mmproj-m-Q4_K_M.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf"];
        assert_eq!(chosen(&all, "a/b").unwrap(), "m-Q4_K_M.gguf");
        assert_eq!(chosen(&all, "a/b:q8_0").unwrap(), "m-Q8_0.gguf");
        assert_eq!(chosen(&all[..3], "a/b").unwrap(), "m-Q2_K.gguf");
        assert_eq!(chosen(&["m-Q2_K.gguf", "m-Q8_0.gguf"], "a/b").unwrap(), "m-Q8_0.gguf");
        assert_eq!(chosen(&["m-MTP-Q4_K_M.gguf", "mtp-m-Q8_0.gguf"], "a/b").unwrap(), "m-MTP-Q4_K_M.gguf");
        assert!(chosen(&["mtp-m-Q8_0.gguf"], "a/b").is_err());
        assert!(chosen(&all, "a/b:Q4_K").unwrap_err().to_string().contains("give one of Q2_K, Q4_K_M, Q8_0"));
        for name in ["a/b", "a/b:Q4_K_M"] {
            assert!(chosen(&["model.safetensors"], name).unwrap_err().to_string().contains("convert hf"));
        }
        let parts_of = ["Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"];
        let first = chosen(&parts_of, "a/b").unwrap();
        assert_eq!(pieces(&files(&parts_of), &first).unwrap(), parts_of);
        assert!(pieces(&files(&parts_of[..1]), &first).unwrap_err().to_string().contains("00002-of-00002.gguf"));
        for name in ["a/b:F16", "a/b:f16"] {
            assert_eq!(chosen(&["m.BF16.gguf", "m.F16.gguf"], name).unwrap(), "m.F16.gguf");
        }
        assert_eq!(quant_of("x/UD-Q4_K_XL/m-UD-Q4_K_XL-00001-of-00002.gguf").as_deref(), Some("UD-Q4_K_XL"));
        assert_eq!(quant_of("gemma-3-270m-it-q8_0.gguf").as_deref(), Some("Q8_0"));
        assert_eq!(quant_of("model.gguf"), None);
        // A file with a quantization in its name is a model, even if the name also says that an importance matrix was
        // used. The file of the matrix itself has no quantization in its name.
        let matrix = ["m-imatrix.gguf", "m-Q4_K_M-imatrix.gguf", "imatrix.gguf"];
        assert_eq!(chosen(&matrix, "a/b").unwrap(), "m-Q4_K_M-imatrix.gguf");
        assert!(chosen(&matrix[..1], "a/b").is_err());
        let bytes = ["m.Q2_K.gguf", "m.Q8_0.gguf.part1of2", "m.Q8_0.gguf.part2of2"];
        assert_eq!(chosen(&bytes, "a/b").unwrap(), "m.Q2_K.gguf");
        for (files, name) in [(&bytes[..], "a/b:Q8_0"), (&bytes[1..], "a/b")] {
            let message = chosen(files, name).unwrap_err().to_string();
            assert!(message.contains("cat m.Q8_0.gguf.part1of2 m.Q8_0.gguf.part2of2 > m.Q8_0.gguf"), "{message}");
        }
        assert!(chosen(&bytes, "a/b:Q4_0").unwrap_err().to_string().contains("give one of Q2_K"));
        let both = ["m-UD-Q4_K_M.gguf", "m-Q4_K_M.gguf", "m-UD-Q8_K_XL.gguf"];
        assert_eq!(chosen(&both, "a/b:Q4_K_M").unwrap(), "m-Q4_K_M.gguf");
        assert_eq!(chosen(&both, "a/b:Q8_K_XL").unwrap(), "m-UD-Q8_K_XL.gguf");
    }
}
