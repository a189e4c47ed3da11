//! Transcribes a sound of any length, window by window.

use anyhow::{Result, ensure};
use arenite::model::{Front, SoundSizes};
use arenite::sound::{LogMel, RATE, Rules};
use arenite::tokenizer::{Encode, Tokenizer};
use arenite::{Encoding, Error, Gguf, Line, Model, Session, TokenId};

use super::decode::{Decoded, Decoder, STOPPED};
use super::language::AUTO;
use super::marks::Marks;
use super::segments::{Segment, divide};
use super::sound::Sound;
use super::voices::Voices;
use arenite_text as text;

/// Options of a transcription.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Code of the language; [`AUTO`] to detect the language; `None` for the model's default.
    pub language: Option<String>,
    /// True for a translation to English. A model whose default task is a translation always translates.
    pub translate: bool,
    /// Text that the sound continues.
    pub prompt: Option<String>,
    /// Temperature of the first attempt.
    pub temperature: f32,
    /// True if a window begins when a voice begins, and ends when the voice ends.
    pub voice: bool,
}

/// Facts about a transcribed sound.
pub struct Summary {
    /// Code of the language, if the model knows several.
    pub language: Option<String>,
    /// True if the text is a translation to English.
    pub is_translated: bool,
    /// Length of the sound in seconds.
    pub duration: f64,
}

/// A speech model that is ready to run.
pub struct Transcriber<'t, 's, 'm, 'w> {
    session: Session<'m, 'w>,
    tokenizer: &'t Tokenizer<'t, 's>,
    rules: Rules<'t>,
    marks: Marks,
    front: Front,
    /// Maximum number of samples of a window.
    window: usize,
    memory: Vec<Line>,
    features: Vec<f32>,
}

/// The state of a transcription between two windows.
pub struct Progress {
    /// The language, once it is known.
    language: Option<(String, TokenId)>,
    /// Tokens of the text so far.
    before: Vec<TokenId>,
    /// First sample of the next window.
    start: usize,
    /// Number of segments so far.
    id: usize,
    voices: Option<Voices>,
    translate: bool,
    temperature: f32,
}

impl Progress {
    /// Returns the facts about a sound that is transcribed.
    pub fn summary(self, sound: &Sound) -> Summary {
        Summary {
            language: self.language.map(|(name, _)| name),
            is_translated: self.translate,
            duration: sound.len() as f64 / RATE as f64,
        }
    }
}

/// Longest window for Moonshine, in samples: 30 seconds.
const LONGEST: usize = 30 * RATE;
/// If a sound is longer than a window for Moonshine, the window ends at a quiet position. It is searched for in this
/// many samples before the maximum length.
const CUT: usize = 5 * RATE;
/// Number of samples whose energy is summed to find the quietest position.
const PAUSE: usize = RATE / 10;
/// Maximum number of tokens that Moonshine generates per second of sound, as in transformers.
const TOKENS_PER_SECOND: f64 = 6.5;

impl<'t, 's, 'm, 'w> Transcriber<'t, 's, 'm, 'w> {
    pub fn new(
        gguf: &Gguf<'t>,
        model: &Model<'_>,
        tokenizer: &'t Tokenizer<'t, 's>,
        session: Session<'m, 'w>,
    ) -> Result<Self> {
        let sizes = model.spec().sound();
        let SoundSizes { front, positions, .. } = sizes.ok_or(Error::NoPart { part: "encoder of sounds" })?;
        let (window, features, memory) = match front {
            Front::LogMel { bins } => (positions * 320, positions * 2 * bins, LogMel::BYTES.div_ceil(64)),
            _ => (LONGEST, 0, 0),
        };
        Ok(Self {
            session,
            tokenizer,
            rules: Rules::new(gguf)?,
            marks: Marks::new(gguf, model.spec())?,
            front,
            window,
            memory: vec![Line::ZERO; memory],
            features: vec![0.0; features],
        })
    }

    /// Transcribes a sound, and calls `each` with every segment as soon as it is known. `goes_on` is called before each
    /// step; if it returns false, the transcription ends with an error.
    pub fn transcribe(
        &mut self,
        sound: &mut Sound,
        request: &Request,
        goes_on: &dyn Fn() -> bool,
        each: &mut dyn FnMut(&Segment) -> Result<()>,
    ) -> Result<Summary> {
        let mut progress = self.begin(request)?;
        while self.window(&mut progress, sound, goes_on, each)? {}
        Ok(progress.summary(sound))
    }

    /// Begins a transcription. Its windows may alternate with the windows of other transcriptions.
    pub fn begin(&self, request: &Request) -> Result<Progress> {
        let language = self.check(request)?;
        let before = match &request.prompt {
            Some(prompt) if self.marks.previous.is_some() => {
                let how = Encode { add_special: false, parse_special: false };
                text::encode(self.tokenizer, format!(" {}", prompt.trim()).as_bytes(), how)?
            }
            _ => Vec::new(),
        };
        let voices = request.voice.then(Voices::default);
        let Request { temperature, .. } = *request;
        let translate = request.translate || self.marks.translates;
        Ok(Progress { language, before, start: 0, id: 0, voices, translate, temperature })
    }

    /// Returns `Some` once the samples of the next window have arrived. [`window`](Self::window) then returns without
    /// waiting for them.
    pub fn is_ready(&self, progress: &Progress, sound: &mut Sound) -> Result<Option<()>> {
        Ok(sound.is_ready(progress.start, self.window + 1)?.then_some(()))
    }

    /// Transcribes the next window of a sound. Returns false at the end of the sound.
    pub fn window(
        &mut self,
        progress: &mut Progress,
        sound: &mut Sound,
        goes_on: &dyn Fn() -> bool,
        each: &mut dyn FnMut(&Segment) -> Result<()>,
    ) -> Result<bool> {
        ensure!(goes_on(), STOPPED);
        let mut most = self.window;
        if let Some(voices) = &mut progress.voices {
            let Some(voice) = voices.next(sound, progress.start, self.window)? else { return Ok(false) };
            (progress.start, most) = (voice.start, voice.len());
        }
        let piece = sound.samples(progress.start, most + 1)?;
        let is_last = piece.len() <= most;
        let piece = &piece[..piece.len().min(most)];
        let piece = if progress.voices.is_some() { piece } else { self.cut(piece, is_last) };
        if piece.len() < 160 {
            return Ok(false);
        }
        let length = piece.len();
        let mut next = length;
        if self.listen(piece, goes_on)? {
            next = self.decode(progress, length, goes_on, each)?.min(length);
        }
        if progress.voices.as_ref().is_some_and(|voices| !voices.is_within()) {
            next = length;
        }
        if is_last && next >= sound.len() - progress.start {
            return Ok(false);
        }
        progress.start += next.max(160);
        Ok(true)
    }

    /// Decodes the text of the current window, which has `length` samples and was already encoded. Returns the number
    /// of samples before the next window.
    fn decode(
        &mut self,
        progress: &mut Progress,
        length: usize,
        goes_on: &dyn Fn() -> bool,
        each: &mut dyn FnMut(&Segment) -> Result<()>,
    ) -> Result<usize> {
        let (seconds, offset) = (length as f64 / RATE as f64, progress.start as f64 / RATE as f64);
        let timestamps = self.marks.no_timestamps.is_some();
        let most = match self.front {
            Front::LogMel { .. } => self.session.context() / 2,
            _ => ((seconds * TOKENS_PER_SECOND) as usize).clamp(1, self.session.context() - 1),
        };
        let Self { session, rules, marks, tokenizer, .. } = self;
        let mut decoder = Decoder { session, rules, marks, tokenizer, timestamps, most, goes_on };
        if progress.language.is_none() {
            progress.language = decoder.language()?.map(|(name, id)| (name.to_owned(), id));
        }
        let head = head(marks, progress.language.as_ref().map(|(_, id)| *id), progress.translate);
        let decoded = decoder.decode(&progress.before, &head, progress.temperature)?;
        if decoded.is_silent() {
            return Ok(length);
        }
        let (slices, until) = divide(&decoded.tokens, rules, seconds);
        for slice in slices {
            let text = decoder.text(slice.tokens)?;
            if slice.start == slice.end || text.trim().is_empty() {
                continue;
            }
            progress.before.extend(slice.tokens);
            each(&segment(progress.id, offset, (slice.start, slice.end), text, slice.tokens, &decoded))?;
            progress.id += 1;
        }
        if decoded.temperature > 0.5 {
            progress.before.clear();
        }
        Ok((until * RATE as f64) as usize)
    }

    /// Checks a request; returns the language.
    fn check(&self, request: &Request) -> Result<Option<(String, TokenId)>> {
        ensure!(
            !request.translate || self.marks.translate.is_some() && !self.marks.languages.is_empty(),
            "the model cannot translate: use a model for several languages"
        );
        let Some(code) = request.language.as_ref().or(self.marks.default_language.as_ref()) else { return Ok(None) };
        if code == AUTO || self.marks.languages.is_empty() && code == "en" {
            return Ok(None);
        }
        Ok(Some((code.to_ascii_lowercase(), self.marks.language(code)?)))
    }

    /// Runs the encoder. Returns false for a sound that is too short for the model.
    fn listen(&mut self, piece: &[f32], goes_on: &dyn Fn() -> bool) -> Result<bool> {
        let Front::LogMel { bins } = self.front else {
            if self.front.positions(piece.len()) == 0 {
                return Ok(false);
            }
            run(self.session.begin_listen(piece)?, goes_on)?;
            return Ok(true);
        };
        let mut mel = LogMel::new(bins, self.window, Line::bytes_mut(&mut self.memory))?;
        mel.push(piece, &mut self.features)?;
        mel.finish(&mut self.features)?;
        run(self.session.begin_listen(&self.features)?, goes_on)?;
        Ok(true)
    }

    /// Cuts a window for Moonshine at the quietest position of the window's last seconds, because Moonshine's texts
    /// have no timestamps.
    fn cut<'p>(&self, piece: &'p [f32], is_last: bool) -> &'p [f32] {
        if is_last || matches!(self.front, Front::LogMel { .. }) || piece.len() < 2 * CUT {
            return piece;
        }
        let energy = |from: usize| piece[from..from + PAUSE].iter().map(|x| x * x).sum::<f32>();
        let places = (piece.len() - CUT..piece.len() - PAUSE).step_by(PAUSE / 2);
        let quietest = places.min_by(|a, b| energy(*a).total_cmp(&energy(*b)));
        &piece[..quietest.map_or(piece.len(), |place| place + PAUSE / 2)]
    }
}

/// Runs the encoder. Returns an error if `goes_on` returns false after a step.
fn run(mut encoding: Encoding<'_, '_, '_, '_>, goes_on: &dyn Fn() -> bool) -> Result<()> {
    while encoding.step() {
        ensure!(goes_on(), STOPPED);
    }
    Ok(())
}

/// Returns the tokens before the text of a window: start, language and task.
fn head(marks: &Marks, language: Option<TokenId>, translate: bool) -> Vec<TokenId> {
    let mut head = vec![marks.start];
    if let Some(language) = language {
        head.push(language);
        head.extend(if translate { marks.translate } else { marks.transcribe });
    }
    head
}

fn segment(
    id: usize,
    offset: f64,
    (start, end): (f64, f64),
    text: String,
    tokens: &[TokenId],
    from: &Decoded,
) -> Segment {
    let round = |seconds: f64| (seconds * 1000.0).round() / 1000.0;
    Segment {
        id,
        start: round(offset + start),
        end: round(offset + end),
        text,
        tokens: tokens.to_vec(),
        temperature: from.temperature,
        avg_logprob: from.avg_logprob,
        compression_ratio: from.compression_ratio,
        no_speech_prob: from.no_speech_prob,
    }
}
