//! Finds test files: small ones in the repository, larger ones in the directory that `ARENITE_FIXTURES` names.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The fixtures in the repository.
pub fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Returns the directory of the larger set of fixtures, if `ARENITE_FIXTURES` names it. The tests then also run with
/// the larger models and published vocabularies of that set.
pub fn external() -> Option<PathBuf> {
    std::env::var_os("ARENITE_FIXTURES").map(PathBuf::from)
}

/// Like [`external`], for a test that has no cases outside the larger set. Prints SKIP if the set is missing.
pub fn needed(path: &str) -> Option<PathBuf> {
    let root = external();
    if root.is_none() {
        skip(path);
    }
    root
}

/// Prints that the cases of `path` are skipped. `.ci/run` counts these lines.
pub fn skip(path: &str) {
    println!("SKIP {path}: set ARENITE_FIXTURES to the directory of reference cases");
}

/// Reads a file, and unpacks it if its name ends in `.gz`.
pub fn read(path: &Path) -> Vec<u8> {
    if path.extension().is_some_and(|extension| extension == "gz") {
        let output = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip runs");
        assert!(output.status.success(), "gzip -dc {}", path.display());
        return output.stdout;
    }
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
