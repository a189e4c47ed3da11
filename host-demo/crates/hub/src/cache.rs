//! The directories of the cache, as the Python package `huggingface_hub` lays them out:
//!
//! ```text
//! models--USER--REPO/blobs/HASH                  contents
//! models--USER--REPO/snapshots/COMMIT/FILE       links to the contents
//! models--USER--REPO/refs/main                   the commit that was fetched last
//! .locks/models--USER--REPO/HASH.lock            locked while the contents are fetched
//! ```

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use arenite_files::write_file;

/// Returns the path in an environment variable. As in `huggingface_hub`, `~` stands for the home directory.
pub fn given(name: &str) -> Option<PathBuf> {
    let value = env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)?;
    match (value.strip_prefix("~"), user()) {
        (Ok(rest), Some(user)) => Some(user.join(rest)),
        _ => Some(value),
    }
}

fn user() -> Option<PathBuf> {
    let value = |name: &&str| env::var_os(name).filter(|value| !value.is_empty());
    ["HOME", "USERPROFILE"].iter().find_map(value).map(PathBuf::from)
}

/// The directory of `huggingface_hub`'s files.
pub fn home() -> Option<PathBuf> {
    let caches = || given("XDG_CACHE_HOME").or_else(|| Some(user()?.join(".cache")));
    given("HF_HOME").or_else(|| Some(caches()?.join("huggingface")))
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
        let root = ["LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"].into_iter().find_map(given);
        let root = root.or_else(|| Some(home()?.join("hub")));
        Ok(Self { root: root.context("there is no home directory for the cache: set HF_HOME")? })
    }

    pub fn repository(&self, name: &str) -> Repository {
        Repository { root: self.root.clone(), name: format!("models--{}", name.replace('/', "--")) }
    }

    /// Returns all models in the cache: GGUF files, and files of plain addresses. A file in several snapshots is listed
    /// only once.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for name in names(&self.root) {
            let Some(repository) = name.strip_prefix("models--") else { continue };
            let repository = repository.replacen("--", "/", 1);
            let mut known = BTreeSet::new();
            for snapshot in self.repository(&repository).snapshots() {
                let is_plain = snapshot.directory.ends_with(Path::new("snapshots").join(PLAIN));
                let is_model = |file: &&String| is_plain || super::is_gguf(file) && !is_projector(file);
                for file in snapshot.files.iter().filter(is_model) {
                    if known.insert(file.clone()) {
                        let path = snapshot.directory.join(file);
                        let bytes = fs::metadata(&path).map_or(0, |found| found.len());
                        entries.push(Entry { repository: repository.clone(), file: file.clone(), path, bytes });
                    }
                }
            }
        }
        entries
    }
}

/// Returns true if the file is a projector, i.e. an encoder of pictures. It belongs to all models of its repository.
fn is_projector(file: &str) -> bool {
    arenite_files::is_projector(file)
}

/// The name of the snapshot of a repository without commits. Such a repository has only this snapshot.
pub const PLAIN: &str = "main";

/// A repository in the cache.
pub struct Repository {
    /// The directory of the cache.
    root: PathBuf,
    /// The name of the repository's directory.
    name: String,
}

/// The files of a commit.
pub struct Snapshot {
    pub directory: PathBuf,
    /// The files whose contents are complete.
    pub files: Vec<String>,
}

impl Repository {
    fn directory(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    pub fn blobs(&self) -> PathBuf {
        self.directory().join("blobs")
    }

    /// Locks the contents `blob` with the same lock as `huggingface_hub`. If another process is fetching these
    /// contents, calls `wait` once and then waits for that process.
    pub fn lock(&self, blob: &str, wait: impl FnOnce()) -> std::io::Result<File> {
        let locks = self.root.join(".locks").join(&self.name);
        fs::create_dir_all(&locks)?;
        let lock = File::options().write(true).create(true).truncate(false).open(locks.join(format!("{blob}.lock")))?;
        // Other errors are ignored, because some file systems have no locks: the file is then fetched without a lock.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            wait();
            lock.lock()?;
        }
        Ok(lock)
    }

    /// The path of a file in the current snapshot.
    pub fn path(&self, file: &str) -> PathBuf {
        let commit = fs::read_to_string(self.directory().join("refs/main")).unwrap_or_default();
        self.directory().join("snapshots").join(commit.trim()).join(file)
    }

    /// Returns the snapshots: first the current snapshot, then all others, the newest first.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let root = self.directory().join("snapshots");
        let current = self.path("");
        let mut directories: Vec<PathBuf> = names(&root).into_iter().map(|name| root.join(name)).collect();
        directories.sort_by_key(|path| {
            let time = fs::metadata(path).and_then(|found| found.modified()).ok();
            std::cmp::Reverse((*path == current, time))
        });
        directories.into_iter().map(Snapshot::read).collect()
    }

    /// Links `file` in the snapshot of `commit` to the contents in `blob`.
    pub fn link(&self, commit: &str, file: &str, blob: &Path) -> Result<()> {
        let link = self.directory().join("snapshots").join(commit).join(file);
        let cannot = || format!("cannot write {}", link.display());
        fs::create_dir_all(link.parent().unwrap_or(&link)).with_context(cannot)?;
        let name = blob.file_name().unwrap_or_default();
        let up = "../".repeat(file.split('/').count() + 1);
        let target = Path::new(&up).join("blobs").join(name);
        let is_linked = || fs::read_link(&link).ok().as_deref() == Some(&target);
        if !is_linked() {
            let _ = fs::remove_file(&link);
            #[cfg(unix)]
            std::os::unix::fs::symlink(&target, &link)
                // Another process, which waited for the same contents, may have made the link in the meantime. This is
                // not an error.
                .or_else(|error| if is_linked() { Ok(()) } else { Err(error) })
                .with_context(cannot)?;
            #[cfg(not(unix))]
            fs::hard_link(blob, &link).or_else(|_| fs::copy(blob, &link).map(|_| ())).with_context(cannot)?;
        }
        Ok(())
    }

    /// Makes `commit` the current commit.
    pub fn set_current(&self, commit: &str) -> Result<()> {
        let path = self.directory().join("refs/main");
        // Write the file only if it changes, because the cache may be read-only.
        if fs::read_to_string(&path).is_ok_and(|current| current == commit) {
            return Ok(());
        }
        fs::create_dir_all(self.directory().join("refs"))
            .with_context(|| format!("cannot write {}", path.display()))?;
        write_file(&path, |out| Ok(std::io::Write::write_all(out, commit.as_bytes())?))
    }

    /// Removes `files` from all snapshots, and removes contents that no remaining file uses. Removes the whole
    /// repository if neither a file nor an unfinished download is left. Returns the number of freed bytes.
    pub fn remove(&self, files: &[&String]) -> Result<u64> {
        let before = size(&self.blobs());
        for snapshot in self.snapshots() {
            for path in files.iter().map(|file| snapshot.directory.join(file)) {
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                    }
                    _ => {}
                }
            }
        }
        let left = self.snapshots();
        // Unfinished downloads stay, because another process may still be writing them.
        let is_unfinished = |name: &String| name.ends_with(".incomplete");
        if left.iter().all(|snapshot| snapshot.files.is_empty()) && !names(&self.blobs()).iter().any(is_unfinished) {
            return self.remove_all();
        }
        let mut used = BTreeSet::new();
        for snapshot in left {
            used_blobs(&snapshot.directory, &mut used);
        }
        let is_unused = |name: &String| !used.contains(name) && !is_unfinished(name);
        for name in names(&self.blobs()).into_iter().filter(is_unused) {
            let _ = fs::remove_file(self.blobs().join(name));
        }
        Ok(before.saturating_sub(size(&self.blobs())))
    }

    /// Removes the repository with all of its files. Returns the number of freed bytes.
    pub fn remove_all(&self) -> Result<u64> {
        let (directory, before) = (self.directory(), size(&self.blobs()));
        fs::remove_dir_all(&directory).with_context(|| format!("cannot remove {}", directory.display()))?;
        let _ = fs::remove_dir_all(self.root.join(".locks").join(&self.name));
        Ok(before)
    }

    /// Returns true if the cache has anything of the repository, such as an unfinished download.
    pub fn exists(&self) -> bool {
        self.directory().is_dir()
    }
}

impl Snapshot {
    fn read(directory: PathBuf) -> Self {
        let (mut files, mut folders) = (Vec::new(), vec![String::new()]);
        while let Some(folder) = folders.pop() {
            for name in names(&directory.join(&folder)) {
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                match fs::metadata(directory.join(&path)) {
                    Ok(found) if found.is_dir() => folders.push(path),
                    Ok(_) => files.push(path),
                    Err(_) => {} // a dangling link
                }
            }
        }
        files.sort();
        Self { directory, files }
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

/// Returns the total size in bytes of the contents that belong only to this repository. Links are not counted, because
/// several repositories share what they lead to.
fn size(blobs: &Path) -> u64 {
    let files = names(blobs).into_iter().filter_map(|name| fs::symlink_metadata(blobs.join(name)).ok());
    files.filter(|found| found.is_file()).map(|found| found.len()).sum()
}

/// The names in a directory, in order.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
