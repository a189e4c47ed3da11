//! Options for pictures.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use arenite::tokenizer::Encode;
use arenite::vision::Picture;
use clap::Args;

use super::Text;
use arenite_run::open_model::OpenModel;
use arenite_run::vision::{Eyes, Prompt, Seen, prompt};

/// Options that name pictures and the file of their encoder.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Pictures")]
pub struct PictureArgs {
    /// File of the encoder of pictures that belongs to the model (mmproj-*.gguf)
    #[arg(long, value_name = "FILE", requires = "image")]
    mmproj: Option<PathBuf>,

    /// Picture (PNG or JPEG; several times for several). Pictures take the places of the model's image markers in the
    /// text, in order, or stand before it
    #[arg(long, value_name = "FILE", requires = "mmproj")]
    image: Vec<PathBuf>,
}

/// The pictures of a command.
pub struct Pictures {
    eyes: Option<Eyes>,
    seen: Vec<Seen>,
}

impl PictureArgs {
    /// Computes the rows of all pictures.
    pub fn see(&self, open: &OpenModel) -> Result<Pictures> {
        let eyes = self.mmproj.as_deref().map(|path| Eyes::open(path, open.model())).transpose()?;
        let see = |eyes: &Eyes, path: &Path| {
            let (width, height, rgb) = decode(path)?;
            eyes.see(&Picture::new(&rgb, width, height)?, open)
        };
        let seen = eyes.iter().flat_map(|eyes| self.image.iter().map(move |path| (eyes, path)));
        let seen = seen.map(|(eyes, path)| see(eyes, path).with_context(|| path.display().to_string()));
        Ok(Pictures { seen: seen.collect::<Result<_>>()?, eyes })
    }
}

impl Pictures {
    /// True if no pictures were given.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// The tokens of a text with the pictures. Ids are used as given: their image tokens are the places of the rows.
    pub fn prompt(&self, text: &Text, open: &OpenModel, how: Encode) -> Result<Prompt<'_>> {
        let (Some(eyes), false) = (&self.eyes, self.is_empty()) else {
            return Ok(Prompt { ids: text.tokens(open.tokenizer(), how)?, spans: Vec::new() });
        };
        let tokenizer = open.vocabulary()?;
        match text {
            Text::Bytes(bytes) => {
                let text = std::str::from_utf8(bytes).context("a text with pictures must be UTF-8")?;
                prompt(eyes, tokenizer, text, &self.seen, how)
            }
            Text::Ids(ids) => {
                ensure!(!ids.is_empty(), "no tokens were given");
                let spans = eyes.place(ids, eyes.token(tokenizer)?, &self.seen)?;
                Ok(Prompt { ids: ids.clone(), spans })
            }
        }
    }

    /// The least number of tokens of a pass.
    pub fn batch(&self) -> usize {
        self.eyes.as_ref().map_or(0, |eyes| eyes.together(&self.seen))
    }
}

/// Decodes a picture: width, height and RGB bytes.
fn decode(path: &Path) -> Result<(usize, usize, Vec<u8>)> {
    let picture = image::open(path)?.into_rgb8();
    Ok((picture.width() as usize, picture.height() as usize, picture.into_raw()))
}
