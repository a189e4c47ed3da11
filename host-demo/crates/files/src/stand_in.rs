//! Recognizes files that were stored in place of the wanted file: pointers of git-lfs, and web pages or error messages
//! of a server.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{Bytes, keep};

/// Number of bytes that are examined. This is enough, because a pointer of git-lfs is shorter, and a web page begins
/// with its tag.
const HEAD: usize = 1 << 10;

/// Describes a pointer of git-lfs or a page of a server, and says how to get the file; `None` for other bytes.
#[must_use]
pub fn stand_in(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(HEAD)]);
    if head.starts_with("version https://git-lfs") {
        let size = head.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse().ok());
        let size = size.map_or(String::new(), |size| format!(" of {}", Bytes(size)));
        return Some(format!(
            "this is a git-lfs pointer to the file{size}, and not the file: fetch it with `git lfs pull` in its folder"
        ));
    }
    let lower = head.chars().take(64).collect::<String>().to_ascii_lowercase();
    ["<!doctype", "<html", "<head", "<?xml", "<error"].iter().any(|tag| lower.starts_with(tag)).then(|| {
        "this is a web page that was saved under the name of a file: fetch the file with the download link of its page \
         (with /resolve/ in place of /blob/)"
            .to_owned()
    })
}

/// Reads a whole file. Each error contains the file's name.
///
/// # Errors
///
/// The file cannot be read, or it is a [`stand_in`].
pub fn read(path: &Path) -> Result<Vec<u8>> {
    keep(path);
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    match stand_in(&bytes) {
        Some(why) => bail!("{}: {why}", path.display()),
        None => Ok(bytes),
    }
}
