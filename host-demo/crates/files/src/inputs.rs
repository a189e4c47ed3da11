//! The files that this process has read, which its results must not replace.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Identifies a file independently of its name: device and inode on Unix, otherwise the canonical path.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Identity(u64, u64, PathBuf);

static INPUTS: Mutex<BTreeSet<Identity>> = Mutex::new(BTreeSet::new());

fn identity(path: &Path) -> Option<Identity> {
    let found = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Some(Identity(found.dev(), found.ino(), PathBuf::new()))
    }
    #[cfg(not(unix))]
    {
        let _ = found;
        Some(Identity(0, 0, path.canonicalize().ok()?))
    }
}

/// Remembers a file that this process reads. [`NewFile::create`](crate::NewFile::create) then refuses to replace it,
/// because its contents could not be recovered from a result. [`map`](crate::map) and [`read`](crate::read) do the same.
pub fn keep(path: &Path) {
    let identity = identity(path);
    INPUTS.lock().unwrap_or_else(PoisonError::into_inner).extend(identity);
}

/// Returns true if [`keep`] was called for this file.
#[must_use]
pub fn is_kept(path: &Path) -> bool {
    identity(path).is_some_and(|found| INPUTS.lock().unwrap_or_else(PoisonError::into_inner).contains(&found))
}
