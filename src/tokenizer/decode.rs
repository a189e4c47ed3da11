//! Decoding: the bytes of a token, and text from a stream of tokens.

use core::fmt::Write;

use super::Tokenizer;
use super::build::byte_token;
use super::byte_level;
use super::canonical::{DNA_MARK, SPACE, Spelling, unescaped};
use super::vocab::TokenType;
use crate::{Error, TokenId, built};

/// Iterator over the bytes of a token. The bytes of one token may be only a part of a character.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    form: Form,
    rest: &'a [u8],
    /// True if a space comes first.
    space: bool,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// The spelling itself.
    Raw,
    /// A single byte.
    Byte(u8),
    /// The spelling, in which `▁` is a space.
    Escaped,
    /// The text is the spelling in the alphabet of byte-level BPE. A character outside of this alphabet stands for
    /// itself.
    ByteLevel,
    /// The spelling with Python's escapes.
    Python,
}

impl<'a> Piece<'a> {
    pub(super) fn new(tokenizer: &Tokenizer<'a, '_>, id: TokenId) -> Self {
        let mut spelled = tokenizer.index.spelled(&tokenizer.vocab, id);
        // In these vocabularies, unused tokens also stand for text.
        let is_text = (built::PLAMO2 || built::RWKV_WORLD)
            && matches!(tokenizer.vocab.spelling(), Spelling::Plain | Spelling::Python);
        let form = match tokenizer.token_type(id) {
            TokenType::Control | TokenType::Unknown | TokenType::UserDefined => Form::Raw,
            TokenType::Byte => match byte_token(spelled) {
                Some(byte) => Form::Byte(byte),
                None => Form::Raw,
            },
            TokenType::Unused | TokenType::Undefined if !is_text => {
                return Self { form: Form::Raw, rest: &[], space: false };
            }
            TokenType::Normal | TokenType::Unused | TokenType::Undefined => match tokenizer.vocab.spelling() {
                Spelling::Escaped | Spelling::Raw => Form::Escaped,
                Spelling::ByteLevel => Form::ByteLevel,
                Spelling::Dna if built::HYBRID_DNA => {
                    spelled = spelled.strip_suffix(&DNA_MARK).unwrap_or(spelled);
                    Form::ByteLevel
                }
                Spelling::Python if built::RWKV_WORLD => Form::Python,
                Spelling::Plain | Spelling::Dna | Spelling::Python => Form::Raw,
            },
        };
        Self { form, rest: spelled, space: tokenizer.vocab.spaces_apart() }
    }
}

impl Iterator for Piece<'_> {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        if core::mem::take(&mut self.space) {
            return Some(b' ');
        }
        let first = *self.rest.first()?;
        let (byte, len) = match self.form {
            Form::Byte(byte) => (byte, self.rest.len()),
            Form::Escaped if self.rest.starts_with(&SPACE) => (b' ', SPACE.len()),
            Form::ByteLevel if built::BPE => byte_level::first_byte(self.rest).unwrap_or((first, 1)),
            Form::Python if built::RWKV_WORLD => unescaped(self.rest).unwrap_or((first, 1)),
            _ => (first, 1),
        };
        self.rest = self.rest.get(len..).unwrap_or(&[]);
        Some(byte)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.rest.len() + usize::from(self.space)))
    }
}

/// Decodes a stream of tokens to text. Created by [`Tokenizer::decoder`].
///
/// A character that is split between tokens is held back until it is complete. Invalid UTF-8 is output as U+FFFD
/// ([`push`](Self::push)) or unchanged ([`push_bytes`](Self::push_bytes)).
///
/// # Examples
///
/// ```
/// use arenite::tokenizer::{Encode, Tokenizer};
///
/// # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
/// # let gguf = arenite::Gguf::parse(&file)?;
/// # let mut index = vec![0; Tokenizer::index_bytes(&gguf)?];
/// let tokenizer = Tokenizer::new(&gguf, &mut index)?;
/// let ids = tokenizer.encode_list::<8>("€".as_bytes(), Encode::PROMPT, &mut [0; 256])?; // one token per byte
///
/// let (mut decoder, mut text) = (tokenizer.decoder(), String::new());
/// for id in &ids {
///     assert_eq!(text, ""); // nothing yet
///     decoder.push(*id, &tokenizer, |part| text.push_str(part))?;
/// }
/// assert_eq!(text, "€");
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decoder {
    /// Bytes of an incomplete character.
    held: [u8; 4],
    held_len: usize,
    /// True if a space at the start of the next token was added by the encoder, so that it is dropped.
    at_start: bool,
    show_special: bool,
}

impl Decoder {
    pub(super) const fn new(at_start: bool) -> Self {
        Self { held: [0; 4], held_len: 0, at_start, show_special: false }
    }

    /// Sets whether control tokens (`<|im_end|>`) are written; by default they are omitted.
    #[must_use]
    pub const fn show_special(mut self, show: bool) -> Self {
        self.show_special = show;
        self
    }

    /// Decodes the next token and passes completed text to `sink`, in one or several calls.
    ///
    /// # Errors
    ///
    /// [`Error::TokenOutOfRange`]; the decoder is then unchanged.
    pub fn push(
        &mut self,
        id: TokenId,
        tokenizer: &Tokenizer<'_, '_>,
        mut sink: impl FnMut(&str),
    ) -> Result<(), Error> {
        self.push_bytes(id, tokenizer, |bytes| to_text(bytes, &mut sink))
    }

    /// Like [`push`](Self::push), but invalid UTF-8 is output unchanged. No call ends inside a character.
    ///
    /// # Errors
    ///
    /// [`Error::TokenOutOfRange`]; the decoder is then unchanged.
    pub fn push_bytes(
        &mut self,
        id: TokenId,
        tokenizer: &Tokenizer<'_, '_>,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let mut piece = tokenizer.piece(id)?;
        let kind = tokenizer.token_type(id);
        let may_be_hidden = matches!(kind, TokenType::Control | TokenType::Unknown) && !tokenizer.vocab.is_all_text();
        if may_be_hidden && !self.show_special {
            return Ok(());
        }
        let is_text = !may_be_hidden && kind != TokenType::UserDefined;
        if self.at_start && is_text && piece.clone().next() == Some(b' ') {
            piece.next();
        }
        // If a token is not shown, a space after it is kept, because it separates the words before and after the token.
        self.at_start = !is_text && tokenizer.vocab.spaces_after_special();
        let mut part = Part { bytes: [0; 64], len: 0, sink: &mut sink };
        for byte in piece {
            self.take(byte, &mut part);
        }
        part.flush();
        Ok(())
    }

    /// Decodes the next token and writes completed text to `out`, for example a `heapless::String`.
    ///
    /// # Errors
    ///
    /// [`Error::TokenOutOfRange`]; the decoder is then unchanged. [`Error::TextRefused`] if `out` fails: the token is
    /// consumed, and the part of its text that was not written is lost.
    pub fn write(&mut self, id: TokenId, tokenizer: &Tokenizer<'_, '_>, out: &mut impl Write) -> Result<(), Error> {
        let mut written = Ok(());
        self.push(id, tokenizer, |text| written = written.and_then(|()| out.write_str(text)))?;
        written.map_err(|_| Error::TextRefused)
    }

    /// Like [`finish`](Self::finish), for an output that can fail.
    ///
    /// # Errors
    ///
    /// [`Error::TextRefused`] if `out` fails.
    pub fn write_rest(&mut self, out: &mut impl Write) -> Result<(), Error> {
        let mut written = Ok(());
        self.finish(|text| written = written.and_then(|()| out.write_str(text)));
        written.map_err(|_| Error::TextRefused)
    }

    /// Outputs the bytes held back, at the end of the text.
    pub fn finish(&mut self, mut sink: impl FnMut(&str)) {
        self.finish_bytes(|bytes| to_text(bytes, &mut sink));
    }

    /// Like [`finish`](Self::finish), but leaves invalid UTF-8 unchanged.
    pub fn finish_bytes(&mut self, mut sink: impl FnMut(&[u8])) {
        let held = self.held.get(..self.held_len).unwrap_or(&[]);
        if !held.is_empty() {
            sink(held);
        }
        self.held_len = 0;
    }

    /// Takes the next byte. Passes complete characters and invalid bytes to `part`.
    fn take(&mut self, byte: u8, part: &mut Part<'_, impl FnMut(&[u8])>) {
        if self.held_len == 0 && byte < 0x80 {
            part.push(&[byte]);
            return;
        }
        if let Some(place) = self.held.get_mut(self.held_len) {
            *place = byte;
            self.held_len += 1;
        }
        // At most four iterations: each removes bytes or stops.
        for _ in 0..self.held.len() {
            let held = self.held.get(..self.held_len).unwrap_or(&[]);
            let done = match core::str::from_utf8(held) {
                Ok(_) => held.len(),
                Err(error) => match (error.valid_up_to(), error.error_len()) {
                    (0, None) => return,
                    (0, Some(wrong)) => wrong,
                    (valid, _) => valid,
                },
            };
            if done == 0 {
                return;
            }
            part.push(held.get(..done).unwrap_or(&[]));
            let rest = u32::from_be_bytes(self.held).checked_shl(8 * done as u32).unwrap_or(0);
            self.held = rest.to_be_bytes();
            self.held_len = self.held_len.saturating_sub(done);
        }
    }
}

/// Buffers text so that the sink is not called for every character.
struct Part<'s, S: FnMut(&[u8])> {
    bytes: [u8; 64],
    len: usize,
    sink: &'s mut S,
}

impl<S: FnMut(&[u8])> Part<'_, S> {
    fn push(&mut self, bytes: &[u8]) {
        if self.len + bytes.len() > self.bytes.len() {
            self.flush();
        }
        if let Some(place) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            // This does not use `copy_from_slice`, because a program built for size could then contain a panic.
            place.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            self.len += bytes.len();
        }
    }

    fn flush(&mut self) {
        let bytes = self.bytes.get(..self.len).unwrap_or(&[]);
        if !bytes.is_empty() {
            (self.sink)(bytes);
        }
        self.len = 0;
    }
}

/// Passes bytes as text, with U+FFFD for invalid UTF-8.
fn to_text(bytes: &[u8], sink: &mut impl FnMut(&str)) {
    for chunk in bytes.utf8_chunks() {
        if !chunk.valid().is_empty() {
            sink(chunk.valid());
        }
        if !chunk.invalid().is_empty() {
            sink("\u{fffd}");
        }
    }
}
