//! The directories of the cache, as the Python package `huggingface_hub` lays them out:
//!
//! ```text
//! models--USER--REPO/blobs/HASH                  contents
//! models--USER--REPO/snapshots/COMMIT/FILE       links to the contents
//! models--USER--REPO/refs/main                   the commit that was fetched last
//! ```

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::new_file::write_file;

/// The directory of `huggingface_hub`'s files.
pub fn home() -> Option<PathBuf> {
    let given = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = || given("HOME").or_else(|| given("USERPROFILE")).map(|home| home.join(".cache"));
    given("HF_HOME").or_else(|| Some(given("XDG_CACHE_HOME").or_else(user)?.join("huggingface")))
}

/// The cache of downloaded models.
pub struct Cache {
    root: PathBuf,
}

/// A model in the cache.
pub struct Entry {
    pub repository: String,
    /// The file's path in its repository.
    pub file: String,
    pub path: PathBuf,
    pub bytes: u64,
}

impl Cache {
    pub fn open() -> Result<Self> {
        let given = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = given("HF_HUB_CACHE").or_else(|| given("HUGGINGFACE_HUB_CACHE"));
        let root = root.or_else(|| Some(home()?.join("hub")));
        Ok(Self { root: root.context("there is no home directory for the cache: set HF_HOME")? })
    }

    pub fn repository(&self, name: &str) -> Repository {
        Repository { directory: self.root.join(format!("models--{}", name.replace('/', "--"))) }
    }

    /// Returns all GGUF files in the cache.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for name in names(&self.root) {
            let Some(repository) = name.strip_prefix("models--") else { continue };
            let repository = repository.replacen("--", "/", 1);
            let cached = self.repository(&repository);
            for file in cached.files().into_iter().filter(|file| file.ends_with(".gguf")) {
                let path = cached.path(&file);
                let bytes = fs::metadata(&path).map_or(0, |found| found.len());
                entries.push(Entry { repository: repository.clone(), file, path, bytes });
            }
        }
        entries
    }
}

/// A repository in the cache.
pub struct Repository {
    directory: PathBuf,
}

impl Repository {
    pub fn blobs(&self) -> PathBuf {
        self.directory.join("blobs")
    }

    fn snapshot(&self) -> PathBuf {
        let commit = fs::read_to_string(self.directory.join("refs/main")).unwrap_or_default();
        self.directory.join("snapshots").join(commit.trim())
    }

    /// The path of a file in the current snapshot.
    pub fn path(&self, file: &str) -> PathBuf {
        self.snapshot().join(file)
    }

    /// Returns the files of the current snapshot whose contents are complete.
    pub fn files(&self) -> Vec<String> {
        let root = self.snapshot();
        let (mut files, mut folders) = (Vec::new(), vec![String::new()]);
        if !self.directory.join("refs/main").is_file() {
            return files;
        }
        while let Some(folder) = folders.pop() {
            for name in names(&root.join(&folder)) {
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                match fs::metadata(root.join(&path)) {
                    Ok(found) if found.is_dir() => folders.push(path),
                    Ok(_) => files.push(path),
                    Err(_) => {} // a dangling link
                }
            }
        }
        files.sort();
        files
    }

    /// Links `file` in the snapshot of `commit` to the contents `blob`, and makes `commit` the current commit.
    pub fn link(&self, commit: &str, file: &str, blob: &Path) -> Result<()> {
        let link = self.directory.join("snapshots").join(commit).join(file);
        let cannot = || format!("cannot write {}", link.display());
        fs::create_dir_all(link.parent().unwrap_or(&self.directory)).with_context(cannot)?;
        let name = blob.file_name().unwrap_or_default();
        let up = "../".repeat(file.split('/').count() + 1);
        let target = Path::new(&up).join("blobs").join(name);
        if fs::read_link(&link).ok().as_deref() != Some(&target) {
            let _ = fs::remove_file(&link);
            #[cfg(unix)]
            std::os::unix::fs::symlink(&target, &link).with_context(cannot)?;
            #[cfg(not(unix))]
            fs::hard_link(blob, &link).or_else(|_| fs::copy(blob, &link).map(|_| ())).with_context(cannot)?;
        }
        let refs = self.directory.join("refs");
        fs::create_dir_all(&refs).with_context(cannot)?;
        write_file(&refs.join("main"), |out| Ok(std::io::Write::write_all(out, commit.as_bytes())?))
    }

    /// Removes these files from all snapshots, and contents that no other file uses. Removes the whole repository if no
    /// model is left. Returns the number of freed bytes.
    pub fn remove(&self, files: &[String]) -> Result<u64> {
        let before = size(&self.directory);
        let snapshots: Vec<PathBuf> = names(&self.directory.join("snapshots"))
            .into_iter()
            .map(|name| self.directory.join("snapshots").join(name))
            .collect();
        for snapshot in &snapshots {
            for file in files {
                let _ = fs::remove_file(snapshot.join(file));
            }
        }
        if !self.files().iter().any(|file| file.ends_with(".gguf")) {
            fs::remove_dir_all(&self.directory)
                .with_context(|| format!("cannot remove {}", self.directory.display()))?;
            return Ok(before);
        }
        let mut used = BTreeSet::new();
        for snapshot in &snapshots {
            used_blobs(snapshot, &mut used);
        }
        for name in names(&self.blobs()).into_iter().filter(|name| !used.contains(name)) {
            let _ = fs::remove_file(self.blobs().join(name));
        }
        Ok(before.saturating_sub(size(&self.directory)))
    }
}

/// Adds to `used` the names of the contents that the links in a directory point to.
fn used_blobs(directory: &Path, used: &mut BTreeSet<String>) {
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for name in names(&folder) {
            let path = folder.join(name);
            match fs::read_link(&path) {
                Ok(target) => used.extend(target.file_name().map(|name| name.to_string_lossy().into_owned())),
                Err(_) if path.is_dir() => folders.push(path),
                Err(_) => {}
            }
        }
    }
}

/// Total size of a repository's contents in bytes.
fn size(directory: &Path) -> u64 {
    let blobs = directory.join("blobs");
    names(&blobs).iter().filter_map(|name| Some(fs::metadata(blobs.join(name)).ok()?.len())).sum()
}

/// The names in a directory, in order.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
