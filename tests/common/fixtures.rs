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

/// Reads a file, and unpacks it if its name ends in `.gz`.
pub fn read(path: &Path) -> Vec<u8> {
    if path.extension().is_some_and(|extension| extension == "gz") {
        let output = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip runs");
        assert!(output.status.success(), "gzip -dc {}", path.display());
        return output.stdout;
    }
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
