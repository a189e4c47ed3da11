//! Pictures on the command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use arenite_request::PictureSource;
use clap::Args;

/// Options that name pictures.
#[derive(Clone, Debug, Default, Args)]
pub struct PictureArgs {
    /// Picture for a model that sees: PNG, JPEG, WebP, GIF or BMP. It takes the place of the image marker in the text, or
    /// stands before the text; may be repeated
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,
}

impl PictureArgs {
    /// Reads the files.
    pub fn read(&self) -> Result<Vec<PictureSource>> {
        self.image.iter().map(|path| read(path)).collect()
    }
}

/// Reads a picture file, without decoding it.
pub fn read(path: &Path) -> Result<PictureSource> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the picture {}", path.display()))?;
    Ok(PictureSource::File(bytes.into()))
}

/// True for an existing file whose name is that of a picture.
pub fn is_picture(path: &Path) -> bool {
    const KINDS: [&str; 6] = ["png", "jpg", "jpeg", "webp", "gif", "bmp"];
    let kind = path.extension().and_then(|kind| kind.to_str());
    kind.is_some_and(|kind| KINDS.contains(&&*kind.to_ascii_lowercase())) && path.is_file()
}
