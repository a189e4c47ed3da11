//! Text to token ids and back, from the vocabulary in a GGUF file, without a heap.
//!
//! The ids are llama.cpp's, for every input, UTF-8 or not. A file that holds only a vocabulary is
//! enough. This module owns: reading the vocabulary ([`Tokenizer`]), the index that makes it
//! searchable, cutting out special tokens, SentencePiece's BPE and unigram, byte-level BPE with its
//! pre-tokenizers, BPE over characters, WordPiece, and decoding a stream of ids ([`Decoder`]). It knows
//! nothing of models.
//!
//! ```text
//! vocab         what the file says            scan, pretokenizer   words, for BPE
//! names         tokens known by spelling      spm, bpe, merge      merging pairs
//! index         the look-up index             unigram, charsmap    the best cut
//! build, verify how it is made and checked
//! special       special tokens in a text      wordpiece            the longest tokens
//! canonical, byte_level, unicode              decode               ids to text
//! ```
//!
//! # Examples
//!
//! ```
//! # fn main() -> Result<(), arenite::Error> {
//! # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
//! use arenite::tokenizer::{Encode, Tokenizer};
//!
//! let gguf = arenite::Gguf::parse(&file)?;
//! let mut index = vec![0; Tokenizer::index_bytes(&gguf)?];
//! let tokenizer = Tokenizer::new(&gguf, &mut index)?;
//!
//! let text = b"Once upon a time";
//! let mut scratch = vec![0; Tokenizer::scratch_bytes(text.len())];
//! let ids = tokenizer.encode_list::<64>(text, Encode::PROMPT, &mut scratch)?;
//!
//! let (mut decoder, mut again) = (tokenizer.decoder(), String::new());
//! for id in &ids {
//!     decoder.push(*id, &tokenizer, |text| again.push_str(text))?;
//! }
//! decoder.finish(|text| again.push_str(text)); // what was waiting for the rest of a character
//! assert_eq!(again, "Once upon a time");
//! # Ok(())
//! # }
//! ```

mod bpe;
mod build;
mod byte_level;
mod canonical;
mod charsmap;
mod decode;
mod index;
mod merge;
mod names;
mod pretokenizer;
mod scan;
mod special;
mod spm;
#[cfg(test)]
mod steps;
mod unicode;
mod unicode_table;
mod unigram;
mod verify;
mod vocab;
mod wordpiece;

pub use decode::{Decoder, Piece};
pub use vocab::TokenType;

pub use crate::built::tokenizer_feature;
use crate::gguf::ValueType;
use crate::{Error, Gguf, Name, TokenId, built, tri};
use index::{Index, Layout};
use merge::{Word, words_for};
use special::{Specials, mark};
use verify::verified;
use vocab::{Model, Vocab};

/// Metadata key under which a file has its tokenizer's index: an array of `u32`, which are the words
/// of the index. `arenite pack` puts it there, and then no memory is needed for it.
///
/// What the words are is described in `src/tokenizer/index.rs`. Like everything in the file they are
/// little-endian and may have any alignment, so one file serves every target. Other programs ignore
/// the key.
pub const INDEX_KEY: &str = "arenite.tokenizer.index";

/// The index in the file.
const fn packed<'a>(gguf: &Gguf<'a>) -> Result<Option<&'a [u8]>, Error> {
    match tri!(gguf.array("", INDEX_KEY)) {
        None => Ok(None),
        Some(words) if matches!(words.element(), ValueType::U32) => Ok(Some(words.bytes())),
        Some(_) => Err(Error::KeyType {
            key: Name::new(INDEX_KEY.as_bytes()),
            expected: "an array of 32-bit unsigned integers",
        }),
    }
}

/// The longest text that one call takes: positions are 32 bits wide, and a byte that is not UTF-8
/// becomes three.
const LONGEST_TEXT: usize = (u32::MAX / 4) as usize;

/// What [`Tokenizer::encode`] does beyond plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encode {
    /// Adds the tokens that the model wants before and after a text, if the file says so: BOS, EOS.
    pub add_special: bool,
    /// Reads control tokens that are spelled out in the text (`<|im_start|>`) as these tokens, not
    /// as text. Not for text from outside: it could speak for somebody else.
    pub parse_special: bool,
}

impl Encode {
    /// Nothing but the text.
    pub const TEXT: Self = Self { add_special: false, parse_special: false };
    /// A prompt for a model: with BOS as the file says, control tokens read as such.
    pub const PROMPT: Self = Self { add_special: true, parse_special: true };
}

/// A vocabulary, ready to encode and decode. See the [module](self) for an example.
#[derive(Clone, Copy)]
pub struct Tokenizer<'a, 'i> {
    vocab: Vocab<'a>,
    index: Index<'i>,
}

impl<'a: 'i, 'i> Tokenizer<'a, 'i> {
    /// Bytes of memory that [`new`](Self::new) needs for the index: the same on every target, and 0 if
    /// the file has the index in it ([`INDEX_KEY`]).
    ///
    /// # Errors
    ///
    /// What is missing or wrong in the vocabulary's metadata, as for [`new`](Self::new), as far as
    /// it shows without looking at every token.
    pub const fn index_bytes(gguf: &Gguf<'a>) -> Result<usize, Error> {
        match tri!(packed(gguf)) {
            Some(_) => Ok(0),
            None => Self::built_index_bytes(gguf),
        }
    }

    /// Bytes of the index that [`build_index`](Self::build_index) makes, whether or not the file has one.
    ///
    /// # Errors
    ///
    /// As for [`index_bytes`](Self::index_bytes).
    pub const fn built_index_bytes(gguf: &Gguf<'a>) -> Result<usize, Error> {
        let vocab = tri!(Vocab::read(gguf));
        Ok(Layout::of(&vocab).words().saturating_mul(4))
    }

    /// Reads the vocabulary, and takes the index from the file if it has one, after checking it; else
    /// builds it at the front of `index`, which may have any alignment and may be longer.
    ///
    /// # Errors
    ///
    /// - [`Error::MissingKey`], [`Error::KeyType`], [`Error::KeyValue`]: the metadata under
    ///   `tokenizer.ggml` are incomplete, of a wrong type, too short, or name ids that do not exist.
    /// - [`Error::Unsupported`]: another kind of tokenizer or pre-tokenizer.
    /// - [`Error::VocabularyEntry`]: a byte token or a merge that makes no sense.
    /// - [`Error::BufferTooSmall`]: `index` has fewer than [`index_bytes`](Self::index_bytes).
    /// - [`Error::ForeignIndex`]: the index in the file is not the one that would be built.
    pub fn new(gguf: &Gguf<'a>, index: &'i mut [u8]) -> Result<Self, Error> {
        match packed(gguf)? {
            Some(index) => Self::with_index(gguf, index),
            None => Self::build_index(gguf, index),
        }
    }

    /// As [`new`](Self::new), but builds the index even if the file has one. The first
    /// [`built_index_bytes`](Self::built_index_bytes) of `index` are then what belongs under
    /// [`INDEX_KEY`].
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    #[inline(never)] // or its temporaries stay on the caller's stack
    pub fn build_index(gguf: &Gguf<'a>, index: &'i mut [u8]) -> Result<Self, Error> {
        let vocab = Vocab::read(gguf)?;
        let index = build::build(gguf, &vocab, index)?;
        Ok(Self { vocab, index })
    }

    /// Uses an index that [`build_index`](Self::build_index) made earlier and that does not lie in the
    /// file. All of it is checked, which takes somewhat less time than building.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new) where the metadata are concerned; [`Error::ForeignIndex`] if the
    /// index is for another vocabulary, damaged, or of another version of this crate.
    #[inline(never)] // or its temporaries stay on the caller's stack
    pub fn with_index(gguf: &Gguf<'a>, index: &'i [u8]) -> Result<Self, Error> {
        let vocab = Vocab::read(gguf)?;
        let index = Index::new(&vocab, index).and_then(|index| verified(gguf, &vocab, index));
        let index = index.ok_or(Error::ForeignIndex)?;
        Ok(Self { vocab, index })
    }

    /// Bytes of scratch memory with which [`encode`](Self::encode) takes any text of `text_len`
    /// bytes. ([`scratch_bytes_for`](Self::scratch_bytes_for) is what one text needs, far less as a rule.)
    ///
    /// With unigram the file says how its texts are normalised. This assumes that they become no more than 11
    /// times as long, as is so for each of Unicode's normal forms.
    pub const fn scratch_bytes(text_len: usize) -> usize {
        // Every byte that is not UTF-8 becomes three.
        Self::scratch(text_len, 3)
    }

    /// As [`scratch_bytes`](Self::scratch_bytes), for text that is known to be UTF-8.
    pub const fn scratch_bytes_utf8(text_len: usize) -> usize {
        Self::scratch(text_len, 1)
    }

    const fn scratch(text_len: usize, growth: usize) -> usize {
        let merged = words_for(text_len.saturating_mul(growth).saturating_add(1));
        let normalized = match built::UNIGRAM {
            // A space more, of three bytes.
            true => unigram::words_for(text_len.saturating_mul(unigram::MOST_GROWTH).saturating_add(3)),
            false => 0,
        };
        let words = if merged > normalized { merged } else { normalized };
        words.saturating_mul(4).saturating_add(text_len)
    }

    /// Bytes of scratch memory with which [`encode`](Self::encode) takes this text. Byte-level BPE works word by
    /// word, so it needs memory for the longest; so does SentencePiece's BPE with most vocabularies.
    pub fn scratch_bytes_for(&self, text: &[u8]) -> usize {
        let words = match self.vocab.model {
            Model::Unigram if built::UNIGRAM => unigram::words_for_text(&self.vocab, text),
            // A `▁` in front, and three bytes for one that is not UTF-8.
            Model::WordPiece { .. } => text.len().saturating_mul(3).saturating_add(3).div_ceil(4),
            _ => words_for(text.len().saturating_mul(3).saturating_add(1)),
        };
        // Marks and candidates of special tokens, and after the marks the words.
        text.len().saturating_add(words.saturating_mul(4).max(text.len().saturating_mul(8)))
    }

    /// Encodes a text and returns how many ids there are; they are at the front of `out`.
    ///
    /// The text may hold any bytes. The time is in proportion to `n log n` of its length at worst.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] if `scratch` has fewer than
    /// [`scratch_bytes_for`](Self::scratch_bytes_for) the text and that was too few, or if `out` is too small; for
    /// `out` it says exactly how many ids there are. [`Error::TextTooLong`] from 1 GiB on.
    pub fn encode(
        &self,
        text: &[u8],
        options: Encode,
        scratch: &mut [u8],
        out: &mut [TokenId],
    ) -> Result<usize, Error> {
        if text.len() > LONGEST_TEXT {
            return Err(Error::TextTooLong { bytes: text.len(), limit: LONGEST_TEXT });
        }
        let given = scratch.len();
        let mut output = Output { ids: out, len: 0 };
        if let (true, true, Some(bos)) = (options.add_special, self.vocab.add_bos, self.vocab.bos) {
            output.push(bos);
        }
        let done = self.encode_text(text, options.parse_special, scratch, &mut output);
        done.ok_or_else(|| Error::BufferTooSmall {
            what: "tokenizer's scratch memory",
            needed: self.scratch_bytes_for(text),
            given,
        })?;
        if let (true, true, Some(eos)) = (options.add_special, self.vocab.add_eos, self.vocab.eos) {
            output.push(eos);
        }
        output.finish()
    }

    /// As [`encode`](Self::encode), into a list of at most `N` ids.
    ///
    /// # Errors
    ///
    /// As for [`encode`](Self::encode).
    pub fn encode_list<const N: usize>(
        &self,
        text: &[u8],
        options: Encode,
        scratch: &mut [u8],
    ) -> Result<heapless::Vec<TokenId, N>, Error> {
        let mut ids = heapless::Vec::from_array([0; N]);
        let count = self.encode(text, options, scratch, &mut ids)?;
        ids.truncate(count);
        Ok(ids)
    }

    /// Everything between BOS and EOS; `None` if there is too little scratch memory.
    fn encode_text(&self, text: &[u8], parse_special: bool, scratch: &mut [u8], output: &mut Output<'_>) -> Option<()> {
        let specials = Specials { vocab: &self.vocab, index: &self.index, parse_special };
        if !specials.mark(text, scratch).ok()? {
            let memory = scratch.as_chunks_mut::<4>().0;
            return self.encode_fragment(text, self.vocab.add_space_prefix, memory, output);
        }
        let (marks, scratch) = scratch.split_at_mut_checked(text.len())?;
        let memory = scratch.as_chunks_mut::<4>().0;
        let mut after_special = true;
        let (mut text, mut marks) = (text, &*marks);
        while let Some(first) = marks.first() {
            let len = match *first {
                mark::TEXT => {
                    let len = marks.iter().take_while(|mark| **mark == mark::TEXT).count();
                    let prefix = self.vocab.add_space_prefix && after_special;
                    self.encode_fragment(text.get(..len)?, prefix, memory, output)?;
                    after_special = false;
                    len
                }
                mark::START => {
                    let (id, len) = specials.at(text, marks)?;
                    output.push(id);
                    after_special = true;
                    len
                }
                _ => 1,
            };
            text = text.get(len..)?;
            marks = marks.get(len..)?;
        }
        Some(())
    }

    /// A piece of text without special tokens; with `prefix` as if a space stood before it.
    fn encode_fragment(&self, text: &[u8], prefix: bool, memory: &mut [Word], output: &mut Output<'_>) -> Option<()> {
        if text.is_empty() {
            return Some(());
        }
        let (vocab, index) = (&self.vocab, &self.index);
        match self.vocab.model {
            Model::Spm => spm::Fragment { vocab, index, text, prefix }.encode(memory, output),
            Model::Bpe(pre) if built::BPE => bpe::encode_bytes(vocab, index, pre, text, memory, output),
            Model::Characters if built::BPE => bpe::encode_characters(vocab, index, text, memory, output),
            Model::Lines { newlines } if built::BPE => bpe::encode_lines(vocab, index, newlines, text, memory, output),
            Model::Unigram if built::UNIGRAM => unigram::encode(vocab, index, text, memory, output),
            Model::WordPiece { lowercase } if built::WORDPIECE => {
                wordpiece::encode(vocab, index, lowercase, text, memory, output)
            }
            _ => None, // refused when the vocabulary was read
        }
    }

    /// The bytes of text that a token stands for. It may be part of a character only: to print
    /// tokens, use a [`Decoder`]. Control tokens give their spelling.
    ///
    /// # Errors
    ///
    /// [`Error::TokenOutOfRange`].
    pub fn piece(&self, id: TokenId) -> Result<Piece<'a>, Error> {
        self.check(id)?;
        Ok(Piece::new(self, id))
    }

    /// A token as the vocabulary spells it: `▁the`, `Ġthe`, `<0x0A>`; empty for ids outside.
    pub fn spelling(&self, id: TokenId) -> &'a [u8] {
        self.index.spelled(&self.vocab, id)
    }

    /// A decoder for a text from its beginning. If encoding put a space before the text, it is
    /// taken away again.
    pub const fn decoder(&self) -> Decoder {
        Decoder::new(self.vocab.strips_first_space())
    }

    /// A decoder for what follows earlier tokens, such as an answer to a prompt: a space at its
    /// start is kept.
    pub const fn decoder_after_prompt(&self) -> Decoder {
        Decoder::new(false)
    }

    /// Writes the text of `ids` to `out`, byte for byte, and returns its length.
    ///
    /// Restores any text that [`encode`](Self::encode) took, except that byte-level BPE has U+FFFD
    /// for what was not UTF-8. Control tokens are left out unless `show_special`.
    ///
    /// # Errors
    ///
    /// [`Error::TokenOutOfRange`]; [`Error::BufferTooSmall`] with the exact length.
    pub fn detokenize(&self, ids: &[TokenId], show_special: bool, out: &mut [u8]) -> Result<usize, Error> {
        let mut decoder = self.decoder().show_special(show_special);
        let given = out.len();
        let mut len = 0;
        let mut write = |bytes: &[u8]| {
            if let Some(place) = out.get_mut(len..len + bytes.len()) {
                place.copy_from_slice(bytes);
            }
            len += bytes.len();
        };
        for id in ids {
            decoder.push_bytes(*id, self, &mut write)?;
        }
        decoder.finish_bytes(&mut write);
        if len > given {
            return Err(Error::BufferTooSmall { what: "buffer for the text", needed: len, given });
        }
        Ok(len)
    }

    /// As [`detokenize`](Self::detokenize), as text: U+FFFD stands for what is not UTF-8.
    ///
    /// # Errors
    ///
    /// [`Error::TokenOutOfRange`]; [`Error::TextRefused`] if the text has more than `N` bytes.
    pub fn decode_text<const N: usize>(
        &self,
        ids: &[TokenId],
        show_special: bool,
    ) -> Result<heapless::String<N>, Error> {
        let mut text = heapless::String::new();
        let mut decoder = self.decoder().show_special(show_special);
        for id in ids {
            decoder.write(*id, self, &mut text)?;
        }
        decoder.write_rest(&mut text)?;
        Ok(text)
    }

    fn check(&self, id: TokenId) -> Result<(), Error> {
        if (id as usize) < self.vocab.len() {
            Ok(())
        } else {
            Err(Error::TokenOutOfRange { token: id, vocab: self.vocab.len() as u32 })
        }
    }

    /// How many tokens there are. A model may have more rows than this, never ids for them.
    pub const fn vocab_len(&self) -> usize {
        self.vocab.len()
    }

    /// The token that begins a text: `bos_token_id`, or the family's default.
    pub const fn bos(&self) -> Option<TokenId> {
        self.vocab.bos
    }

    /// The token that ends a text: `eos_token_id`, or the family's default.
    pub const fn eos(&self) -> Option<TokenId> {
        self.vocab.eos
    }

    /// The token that ends a turn of a conversation: `eot_token_id`, else a special token that
    /// llama.cpp knows by its spelling (`<|im_end|>`, `<|eot_id|>`, ...).
    pub fn eot(&self) -> Option<TokenId> {
        self.index.eot()
    }

    /// The token that ends a message that goes on: `eom_token_id`, else the special token
    /// `<|eom_id|>`.
    pub fn eom(&self) -> Option<TokenId> {
        self.index.eom()
    }

    /// Whether generation ends with this token: it is [`eos`](Self::eos), [`eot`](Self::eot) or
    /// [`eom`](Self::eom), or a special token that llama.cpp takes as an end by its spelling, because
    /// many files name only one of several. Ordinary text ends nothing, however it is spelled.
    pub fn is_end(&self, id: TokenId) -> bool {
        self.index.ends().any(|end| end == id)
    }

    /// What kind of token it is; [`TokenType::Undefined`] outside the vocabulary.
    ///
    /// As in llama.cpp, a few tokens count as control tokens by their spelling, whatever the file
    /// says.
    pub fn token_type(&self, id: TokenId) -> TokenType {
        match self.check(id) {
            Ok(()) => self.index.kind(&self.vocab, id),
            Err(_) => TokenType::Undefined,
        }
    }

    /// A token's score, as the file has it; 0 if it has none.
    pub fn score(&self, id: TokenId) -> f32 {
        self.vocab.score(id)
    }

    /// Whether `add_special` puts [`bos`](Self::bos) before a text: `add_bos_token`, else yes for
    /// SPM and Llama 3, no for others.
    pub const fn add_bos(&self) -> bool {
        self.vocab.add_bos
    }

    /// Whether `add_special` puts [`eos`](Self::eos) after a text: `add_eos_token`, else no.
    pub const fn add_eos(&self) -> bool {
        self.vocab.add_eos
    }
}

impl core::fmt::Debug for Tokenizer<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tokenizer").field("model", &self.vocab.model).field("tokens", &self.vocab.len()).finish()
    }
}

/// Ids on their way to the caller; those that do not fit are counted.
struct Output<'o> {
    ids: &'o mut [TokenId],
    len: usize,
}

impl Output<'_> {
    #[inline]
    fn push(&mut self, id: TokenId) {
        if let Some(place) = self.ids.get_mut(self.len) {
            *place = id;
        }
        self.len += 1;
    }

    fn finish(self) -> Result<usize, Error> {
        if self.len > self.ids.len() {
            let (needed, given) = (self.len, self.ids.len());
            return Err(Error::BufferTooSmall { what: "buffer for the token ids", needed, given });
        }
        Ok(self.len)
    }
}
