//! Pictures on the command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use arenite::TokenId;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite_chat::Prompt;
use arenite_pictures::Limits;
use arenite_request::{Content, Picture, PictureSource};
use arenite_run::eyes::{Eyes, Sights};
use arenite_run::model_file::ModelFile;
use arenite_run::open_model::OpenModel;
use clap::Args;

use super::{Text, TextArgs};

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

    /// Returns the tokens of a prompt with its pictures. If the prompt is given as token ids, each id of the model's
    /// token for pictures stands for the next row of a picture.
    pub fn tokens(&self, text: &Text, open: &OpenModel, how: Encode) -> Result<Sights> {
        if self.image.is_empty() {
            return Ok(text.tokens(open.tokenizer(), how)?.into());
        }
        let (eyes, tokenizer, machine) = (open.need_eyes()?, open.vocabulary()?, open.machine(Limits::DEFAULT));
        match text {
            Text::Ids(ids) => eyes.place(ids.clone(), &eyes.see(&self.read()?, machine)?),
            Text::Bytes(text) => {
                let prompt = Prompt::raw(&self.content(text)?, eyes.marker());
                eyes.read(&prompt, true, tokenizer, machine)
            }
        }
    }

    /// The tokens of a text, without running a model.
    pub fn ids(
        &self,
        file: &ModelFile,
        text: &[u8],
        is_first: bool,
        tokenizer: &Tokenizer<'_, '_>,
    ) -> Result<Vec<TokenId>> {
        let (path, _) = file.projector().context("give the file that lets the model see with --mmproj FILE")?;
        let eyes = Eyes::of_vocabulary(path, tokenizer)?;
        eyes.tokens(&Prompt::raw(&self.content(text)?, eyes.marker()), is_first, tokenizer, &Limits::DEFAULT)
    }

    /// A text, with the pictures before it.
    fn content(&self, text: &[u8]) -> Result<Content> {
        let pictures = self.read()?.into_iter().map(|source| Picture { at: 0, source }).collect();
        Ok(Content { pictures, ..String::from_utf8_lossy(text).into_owned().into() })
    }

    /// Returns the tokens of the only text of a command. Returns `None` for `--jsonl`, which reads many texts.
    pub fn only(&self, text: &TextArgs, open: &OpenModel, how: Encode) -> Result<Option<Sights>> {
        self.must_be_one(text)?;
        if text.jsonl { Ok(None) } else { self.tokens(&text.need()?, open, how).map(Some) }
    }

    /// Refuses pictures for many texts.
    pub fn must_be_one(&self, text: &TextArgs) -> Result<()> {
        ensure!(self.image.is_empty() || !text.jsonl, "--image goes with one text: leave out --jsonl");
        Ok(())
    }
}

/// Reads a picture file, without decoding it.
pub fn read(path: &Path) -> Result<PictureSource> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the picture {}", path.display()))?;
    Ok(PictureSource::File(bytes.into()))
}

/// Returns true for an existing file whose name has the extension of a picture.
pub fn is_picture(path: &Path) -> bool {
    const KINDS: [&str; 6] = ["png", "jpg", "jpeg", "webp", "gif", "bmp"];
    let kind = path.extension().and_then(|kind| kind.to_str());
    kind.is_some_and(|kind| KINDS.contains(&&*kind.to_ascii_lowercase())) && path.is_file()
}
