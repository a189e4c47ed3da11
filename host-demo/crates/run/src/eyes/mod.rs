//! Pictures: the encoder of pictures (projector), the text that replaces a picture's marker, and the rows that the
//! model reads in place of the picture's tokens.
//!
//! | file | |
//! |---|---|
//! | `mod` | the projector's file, and the rows of pictures |
//! | `words` | the text that replaces a picture's marker, as each model's processor writes it |
//! | `places` | the tokens of pictures in a prompt |

mod places;
mod words;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anyhow::{Context, Result, ensure};
use arenite::tokenizer::Tokenizer;
use arenite::vision::{Encoder, Options, Plan, Views, Vision};
use arenite::{Kernels, Model, TokenId};
use arenite_chat::Prompt;
use arenite_files::Bytes;
use arenite_pictures::{Limits, Picture, decode};
use arenite_request::{MOST_PICTURES, PictureSource};
use arenite_text as text;
use self_cell::self_cell;
use sha2::{Digest, Sha256};

use crate::model_file::{Load, ModelFile, Projector, Source};
use crate::runtime::pages;
use arenite::workers::Workers;
pub use places::{Piece, Place, Shown, Sights, is_row, prefill};
use words::Words;

/// The file that lets a model see, checked.
pub struct Eyes {
    cell: Cell,
    words: Words,
    /// The token that stands for a row of a picture.
    token: TokenId,
    /// Decoded files, and rows of pictures.
    known: Mutex<Known>,
    /// Locked while a picture is decoded and encoded, so that only one picture at a time takes memory.
    turn: Mutex<()>,
}

self_cell!(
    struct Cell {
        owner: ModelFile,
        #[covariant]
        dependent: Vision,
    }
);

/// A picture as a language model sees it.
pub struct Sight {
    /// The hash of its pixels.
    pub key: [u8; 32],
    /// The views of the encoder.
    pub views: Views,
    /// `[tokens][row_len]`: the rows of all views.
    pub rows: Vec<f32>,
    /// Number of values of a row.
    pub row_len: usize,
    /// True if the tokens of a view attend to each other.
    pub is_together: bool,
}

/// Sizes of pictures. One of these pictures has the largest possible number of views (if the processor cuts pictures
/// into tiles) or of patches (otherwise).
const LARGE: [(usize, usize); 4] = [(4096, 4096), (4096, 2048), (2048, 4096), (4096, 400)];
/// Lower and upper bound, in bytes, of [`Known::limit`]. Between the bounds, the limit is a multiple of the size of the
/// largest picture's rows.
const ROWS: (usize, usize) = (64 << 20, 1 << 30);

/// Patches that are computed together.
const BATCH: usize = 256;

const MOST_FILES: usize = 1024;

/// A picture file that was decoded before.
#[derive(Clone)]
struct KnownFile {
    /// The hash of the file.
    hash: [u8; 32],
    /// The hash of its pixels.
    key: [u8; 32],
    views: Views,
}

/// A cache of the rows of pictures. The most recent pictures are kept because a conversation sends its pictures again
/// with each turn.
struct Known {
    files: VecDeque<KnownFile>,
    /// The most recent pictures; the one that was used last is at the end. The rows of all pictures take at most half
    /// of `limit`.
    kept: Vec<Arc<Sight>>,
    /// All pictures that a request or `kept` uses.
    used: Vec<Weak<Sight>>,
    /// Upper bound in bytes for the rows of all pictures.
    limit: usize,
}

/// The threads and kernels that encode pictures, and the limits on the size of pictures.
#[derive(Clone, Copy)]
pub struct Machine<'m> {
    /// The limits of pictures.
    pub limits: Limits,
    /// The threads.
    pub workers: &'m dyn Workers,
    /// The kernels.
    pub kernels: &'static Kernels,
}

impl Eyes {
    /// Opens a projector's file for a model.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not a supported projector, or belongs to a different model.
    pub fn open(path: &Path, model: &Model<'_>, tokenizer: &Tokenizer<'_, '_>) -> Result<Self> {
        let eyes = Self::of_vocabulary(path, tokenizer)?;
        eyes.vision().fits(model).with_context(|| path.display().to_string())?;
        Ok(eyes)
    }

    /// Opens a projector's file without a model: only the model's vocabulary is needed. Whether the projector's size
    /// fits the model is not checked.
    ///
    /// # Errors
    ///
    /// Same as [`open`](Self::open).
    pub fn of_vocabulary(path: &Path, tokenizer: &Tokenizer<'_, '_>) -> Result<Self> {
        let name = || path.display().to_string();
        // The file is mapped and not copied, because the encoder runs only once for each picture, and copying would
        // take longer.
        let file = ModelFile::open(Source { load: Load::Map, projector: Projector::None, ..Source::from(path) })?;
        let cell = Cell::try_new(file, |file| -> Result<_> { Vision::new(&file.gguf()?).with_context(name) })?;
        let vision = cell.borrow_dependent();
        let words = Words::of(vision.projector()).with_context(name)?;
        let missing = || format!("{}: the model's vocabulary has no token {}", name(), words.row);
        let token = text::token(tokenizer, words.row).with_context(missing)?;
        let plans = LARGE.into_iter().filter_map(|(width, height)| plan(vision, width, height, 1).ok());
        let largest = plans.map(|plan| size_of::<f32>() * plan.rows).max().unwrap_or(0);
        let known = Known {
            files: VecDeque::new(),
            kept: Vec::new(),
            used: Vec::new(),
            limit: (16 * largest).clamp(ROWS.0, ROWS.1),
        };
        Ok(Self { words, token, known: known.into(), turn: Mutex::default(), cell })
    }

    fn vision(&self) -> &Vision<'_> {
        self.cell.borrow_dependent()
    }

    /// The path of the file.
    pub fn name(&self) -> &str {
        self.cell.borrow_owner().name()
    }

    /// Size of the file in bytes.
    pub fn bytes(&self) -> usize {
        self.cell.borrow_owner().len()
    }

    /// The text that the model's template writes for a picture.
    pub fn marker(&self) -> &'static str {
        self.words.marker
    }

    /// The token that stands for a row of a picture.
    pub fn token(&self) -> TokenId {
        self.token
    }

    /// The text that stands for a picture in a prompt.
    pub fn text(&self, views: &Views) -> String {
        self.words.text(views)
    }

    /// Adds what pictures need to the options of a plan.
    pub fn planned(&self, options: arenite::Options) -> arenite::Options {
        let options = options.pictures(MOST_PICTURES);
        // If the tokens of a picture attend to each other, they must be read in one pass, so the batch has room for a
        // whole picture.
        let most = self.vision().views(1024, 1024).map_or(0, |views| views.tokens());
        if self.vision().is_together() { options.batch(options.batch.max(most)) } else { options }
    }

    /// Returns an upper bound in bytes for the memory of the encoder, for the largest picture within `limits`.
    pub fn most_bytes(&self, workers: usize, limits: &Limits) -> usize {
        let plans = LARGE.into_iter().filter_map(|(width, height)| plan(self.vision(), width, height, workers).ok());
        let encoder = plans.map(|plan| plan.workspace).max().unwrap_or(0);
        encoder + limits.memory() as usize + self.known().limit
    }

    /// Encodes the pictures of a prompt, tokenizes the prompt, and puts the pictures in their places.
    ///
    /// # Errors
    ///
    /// The errors of [`tokens`](Self::tokens), [`see`](Self::see) and [`place`](Self::place).
    pub fn read(
        &self,
        prompt: &Prompt,
        is_first: bool,
        tokenizer: &Tokenizer<'_, '_>,
        machine: Machine<'_>,
    ) -> Result<Sights> {
        let ids = self.tokens(prompt, is_first, tokenizer, &machine.limits)?;
        self.place(ids, &self.see(&prompt.pictures, machine)?)
    }

    /// Returns the tokens of a prompt, without encoding its pictures. Only the first prompt in a context begins with BOS.
    ///
    /// # Errors
    ///
    /// A picture cannot be decoded, or the prompt does not have one place for each picture.
    pub fn tokens(
        &self,
        prompt: &Prompt,
        is_first: bool,
        tokenizer: &Tokenizer<'_, '_>,
        limits: &Limits,
    ) -> Result<Vec<TokenId>> {
        let text = |file: &Arc<[u8]>| Ok(self.text(&self.known_file(file, limits)?.views));
        let texts = each(&prompt.pictures, text)?;
        let prompt = prompt.with_pictures(self.marker(), &texts).map_err(anyhow::Error::msg)?;
        if is_first { prompt.encode(tokenizer) } else { prompt.encode_after(0, tokenizer) }
    }

    /// Finds the tokens of pictures among the tokens of a whole prompt.
    ///
    /// # Errors
    ///
    /// The number of these tokens differs from the number of rows of the pictures.
    pub fn place(&self, ids: Vec<TokenId>, sights: &[Arc<Sight>]) -> Result<Sights> {
        Sights::new(ids, sights, self.token)
    }

    /// Decodes and encodes pictures.
    ///
    /// # Errors
    ///
    /// A picture cannot be decoded, or the encoder does not accept pictures of its size.
    pub fn see(&self, pictures: &[PictureSource], machine: Machine<'_>) -> Result<Vec<Arc<Sight>>> {
        each(pictures, |file| self.see_one(file, machine))
    }

    fn see_one(&self, file: &[u8], machine: Machine<'_>) -> Result<Arc<Sight>> {
        let key = self.known_file(file, &machine.limits)?.key;
        let _turn = self.turn();
        if let Some(known) = self.known().find(&key) {
            return Ok(known);
        }
        let picture = decode(file, &machine.limits)?;
        let plan = plan(self.vision(), picture.width as usize, picture.height as usize, machine.workers.count())?;
        self.known().make_room(size_of::<f32>() * plan.rows)?;
        let sight = Arc::new(self.encode(&picture, key, plan, machine)?);
        self.known().keep(sight.clone());
        Ok(sight)
    }

    /// Returns the hash and the views of a picture file. Decodes the file if it is not in the cache.
    fn known_file(&self, file: &[u8], limits: &Limits) -> Result<KnownFile> {
        let hash = Sha256::digest(file).into();
        let known = || self.known().files.iter().find(|known| known.hash == hash).cloned();
        if let Some(known) = known() {
            return Ok(known);
        }
        let _turn = self.turn();
        // The file is looked up again, because another request may have decoded it while this one waited for its turn.
        if let Some(known) = known() {
            return Ok(known);
        }
        let picture = decode(file, limits)?;
        let views = self.vision().views(picture.width as usize, picture.height as usize)?;
        let known = KnownFile { hash, key: key(&picture), views };
        let files = &mut self.known().files;
        files.push_back(known.clone());
        if files.len() > MOST_FILES {
            files.pop_front();
        }
        Ok(known)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the encoder.
    fn encode(&self, picture: &Picture, key: [u8; 32], plan: Plan, machine: Machine<'_>) -> Result<Sight> {
        let (vision, width, height) = (self.vision(), picture.width as usize, picture.height as usize);
        let mut workspace = pages("encoder of pictures", plan.workspace)?;
        let encoder = Encoder::new(vision, plan, &mut workspace)?;
        let mut rows = vec![0.0; plan.rows];
        let picture = arenite::vision::Picture::new(&picture.rgb, width, height)?;
        encoder.with_workers(machine.workers).with_kernels(machine.kernels).see(&picture, &mut rows)?;
        ensure!(
            rows.iter().all(|value| value.is_finite()),
            "the encoder of pictures computes values that are not finite"
        );
        Ok(Sight { key, views: plan.views, rows, row_len: vision.row_len(), is_together: vision.is_together() })
    }
}

/// Calls `each` for the file of each picture. Errors contain the number of the picture.
fn each<T>(pictures: &[PictureSource], each: impl Fn(&Arc<[u8]>) -> Result<T>) -> Result<Vec<T>> {
    let one = |(index, picture): (usize, &PictureSource)| {
        picture.bytes().map_err(anyhow::Error::msg).and_then(&each).with_context(|| format!("picture {}", index + 1))
    };
    pictures.iter().enumerate().map(one).collect()
}

fn plan(vision: &Vision<'_>, width: usize, height: usize, workers: usize) -> Result<Plan> {
    Ok(Plan::new(vision.gguf(), width, height, Options::new().batch(BATCH).workers(workers))?)
}

/// The hash of a picture's size and pixels.
fn key(picture: &Picture) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(picture.width.to_le_bytes());
    hash.update(&picture.rgb);
    hash.finalize().into()
}

impl Sight {
    /// Size of the rows in bytes.
    fn bytes(&self) -> usize {
        size_of_val(&self.rows[..])
    }
}

impl Known {
    fn find(&mut self, key: &[u8; 32]) -> Option<Arc<Sight>> {
        if let Some(at) = self.kept.iter().position(|sight| sight.key == *key) {
            let found = self.kept.remove(at);
            self.kept.push(found);
        }
        self.used.iter().filter_map(Weak::upgrade).find(|sight| sight.key == *key)
    }

    /// Makes room for the rows of another picture.
    fn make_room(&mut self, bytes: usize) -> Result<()> {
        let limit = self.limit.saturating_sub(bytes);
        while self.bytes() > limit && !self.kept.is_empty() {
            self.kept.remove(0);
        }
        ensure!(
            self.bytes() <= limit,
            "the pictures of all requests would take more than {}: send fewer, or try again later",
            Bytes(self.limit)
        );
        Ok(())
    }

    /// Size in bytes of the rows in use.
    fn bytes(&mut self) -> usize {
        self.used.retain(|sight| sight.strong_count() > 0);
        self.used.iter().filter_map(Weak::upgrade).map(|sight| sight.bytes()).sum()
    }

    fn keep(&mut self, sight: Arc<Sight>) {
        self.used.push(Arc::downgrade(&sight));
        self.kept.push(sight);
        let mut sum: usize = self.kept.iter().map(|sight| sight.bytes()).sum();
        while sum > self.limit / 2 {
            sum -= self.kept.remove(0).bytes();
        }
    }
}

impl std::fmt::Debug for Sight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sight({} tokens)", self.views.tokens())
    }
}
