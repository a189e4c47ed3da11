//! Finds test files: a few small ones in the repository, more in `ARENITE_FIXTURES`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The fixtures in the repository.
pub fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The large set of fixtures; `None` with a message if it is missing.
pub fn external() -> Option<PathBuf> {
    let path = std::env::var_os("ARENITE_FIXTURES").map(PathBuf::from);
    if path.is_none() {
        eprintln!("SKIP: ARENITE_FIXTURES is not set");
    }
    path
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
