//! Files that are replaced whole, and files mapped into memory.
//!
//! - [`write_file`] and [`NewFile`] write a new file beside the old file and replace the old file at the end, so a path
//!   has either all of the new contents or all of the old contents.
//! - [`keep`] remembers an input, which [`NewFile::create`] then refuses to replace.
//! - [`map`] maps a file read-only. [`faults`] prints a message if a mapped file was truncated and a read fails.
//! - [`projector_beside`] finds a model's encoder of pictures, and [`drafter_beside`] the layers that draft for a
//!   model.
//! - [`whole_of`] recognizes byte parts of a model, and [`joining`] is the command that joins them.
//! - [`read`] reads a file, and [`stand_in`] recognizes a pointer of git-lfs or a web page in its place.
//! - [`keep_private`] hides a file from other users. [`Bytes`] prints sizes.
//!
//! ```
//! use std::io::Write;
//!
//! let directory = tempfile::tempdir()?;
//! let path = directory.path().join("greeting.txt");
//! arenite_files::write_file(&path, |file| Ok(file.write_all(b"hello")?))?;
//! assert_eq!(&arenite_files::map(&path)?[..], b"hello");
//! # Ok::<(), anyhow::Error>(())
//! ```
#![deny(unsafe_code)]
#![allow(clippy::missing_errors_doc)] // all errors are those of the file system

mod byte_part;
mod bytes;
mod drafter;
pub mod faults;
mod inputs;
mod mapped;
mod new_file;
mod projector;
mod stand_in;

use std::path::Path;

pub use byte_part::{joining, whole_of};
pub use bytes::Bytes;
pub use drafter::{drafter_among, drafter_beside, is_gguf, quant_of};
pub use inputs::{is_kept, keep};
pub use mapped::{map, release};
pub use new_file::{NewFile, clean_up_on_signals, write_checked, write_file, write_files};
pub use projector::{is_projector, projector_among, projector_beside};
pub use stand_in::{read, stand_in};

/// Sets the mode of a file or folder, such as 0o600 or 0o700, on systems that have modes.
pub fn keep_private(path: &Path, mode: u32) -> std::io::Result<()> {
    #[cfg(unix)]
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    let _ = (path, mode);
    Ok(())
}
