//! Tokenization: text to token ids and back, with the vocabulary of a GGUF file and without a heap.
//!
//! Ids are the same as from the model's own tokenizer or, for bytes that are not UTF-8, as from llama.cpp. The file may
//! contain only a vocabulary. This module reads the vocabulary ([`Tokenizer`]), builds the index for searching it,
//! finds special tokens, and implements SentencePiece's BPE and unigram, byte-level BPE with its pre-tokenizers, BPE
//! over characters, WordPiece, the tokenizers of RWKV World and PLaMo 2, and decoding ([`Decoder`]). This module does
//! not depend on models.
//!
//! ```text
//! vocab         the file's metadata           scan, pretokenizer   words, for BPE
//! names         tokens with known spellings   spm, bpe, merge      merging pairs
//! index         the look-up index             unigram, charsmap    best segmentation
//! build, verify creating and checking it
//! special       special tokens in a text      wordpiece, world     longest tokens
//! dna           DNA letters in a text         plamo2               best segmentation from the end
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
//! decoder.finish(|text| again.push_str(text)); // bytes of an incomplete character
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
mod dna;
mod index;
mod merge;
mod names;
#[cfg(feature = "plamo2")]
mod plamo2;
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
#[cfg(feature = "rwkv-world")]
mod world;

pub use decode::{Decoder, Piece};
pub use names::is_taken_for_control;
pub use vocab::TokenType;

pub use crate::built::tokenizer_feature;
use crate::gguf::{Value, ValueType};
use crate::hash::Hash;
use crate::{Error, Gguf, Name, TokenId, built, tri};
use charsmap::{Normalized, Spaces};
use index::{Index, Layout};
use merge::{Word, words_for};
use special::{Specials, mark};
use verify::verified;
use vocab::{Model, Vocab};

/// Metadata key of a tokenizer index in the file: an array of `u32`, the words of the index. `arenite pack` adds this
/// key to a file; the tokenizer then needs no memory for an index.
///
/// `src/tokenizer/index.rs` describes the layout. The words are little-endian and may have any alignment, so one file
/// works on every target. Other programs ignore the key.
pub const INDEX_KEY: &str = "arenite.tokenizer.index";

/// Metadata key of a hash, a `u64`, of the vocabulary and its index: see [`Tokenizer::packed`].
pub const INDEX_HASH_KEY: &str = "arenite.tokenizer.index_hash";

/// The index stored in the file.
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

/// Maximum number of bytes of a text, because positions are 32 bits wide and an invalid UTF-8 byte becomes three bytes.
const LONGEST_TEXT: usize = (u32::MAX / 4) as usize;

/// Options of [`Tokenizer::encode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encode {
    /// Adds BOS and EOS if the file says so.
    pub add_special: bool,
    /// Parses control tokens in the text (`<|im_start|>`). Do not set this for untrusted text, because such a text
    /// could then imitate other roles.
    pub parse_special: bool,
}

impl Encode {
    /// Only the text.
    pub const TEXT: Self = Self { add_special: false, parse_special: false };
    /// The options for a prompt: adds BOS if the file says so, and parses control tokens.
    pub const PROMPT: Self = Self { add_special: true, parse_special: true };
}

/// A tokenizer for a file's vocabulary. See the [module](self) for an example.
#[derive(Clone, Copy)]
pub struct Tokenizer<'a, 'i> {
    vocab: Vocab<'a>,
    index: Index<'i>,
}

impl<'a: 'i, 'i> Tokenizer<'a, 'i> {
    /// Number of bytes of memory that [`new`](Self::new) needs for the index. The number is the same on every target,
    /// and 0 if the file contains the index ([`INDEX_KEY`]).
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new) for the vocabulary's metadata, except errors that only a check of every token
    /// finds.
    pub const fn index_bytes(gguf: &Gguf<'a>) -> Result<usize, Error> {
        match tri!(packed(gguf)) {
            Some(_) => Ok(0),
            None => Self::built_index_bytes(gguf),
        }
    }

    /// Number of bytes of an index that is built by [`build_index`](Self::build_index), even if the file contains an
    /// index.
    ///
    /// # Errors
    ///
    /// Same as [`index_bytes`](Self::index_bytes).
    pub const fn built_index_bytes(gguf: &Gguf<'a>) -> Result<usize, Error> {
        let vocab = tri!(Vocab::read(gguf));
        Ok(Layout::of(&vocab).words().saturating_mul(4))
    }

    /// Checks that this build has the file's kind of tokenizer, without reading the tokens.
    pub(crate) const fn check_kind(gguf: &Gguf<'_>) -> Result<(), Error> {
        Vocab::check_kind(gguf)
    }

    /// Reads the vocabulary. If the file has an index, checks and uses this index. Otherwise builds an index at the
    /// front of `index`, which may have any alignment and may be longer than needed.
    ///
    /// # Errors
    ///
    /// - [`Error::MissingKey`], [`Error::KeyType`], [`Error::KeyValue`]: metadata under `tokenizer.ggml` is missing,
    ///   has a wrong type or length, or has ids outside the vocabulary.
    /// - [`Error::Unsupported`]: an unsupported tokenizer or pre-tokenizer.
    /// - [`Error::VocabularyEntry`]: an invalid byte token or merge.
    /// - [`Error::BufferTooSmall`]: `index` is shorter than [`index_bytes`](Self::index_bytes).
    /// - [`Error::ForeignIndex`]: the index in the file differs from the index that would be built.
    pub fn new(gguf: &Gguf<'a>, index: &'i mut [u8]) -> Result<Self, Error> {
        match packed(gguf)? {
            Some(index) => Self::with_index(gguf, index),
            None => Self::build_index(gguf, index),
        }
    }

    /// Like [`new`](Self::new), but requires an index in the file, and compares one hash ([`INDEX_HASH_KEY`]) instead
    /// of checking every word of the index. This is faster. A program that calls only this function is also 11 KB
    /// smaller on a Cortex-M4, because it contains neither the code that builds an index nor the code that checks one.
    ///
    /// The hash finds accidental changes of the vocabulary or the index. A file that was made to deceive can have a
    /// wrong index with the right hash; such a file gives wrong ids or errors.
    ///
    /// # Errors
    ///
    /// Same as [`new`](Self::new) for metadata; [`Error::ForeignIndex`] if the file has no index or no hash, or if they
    /// do not match the vocabulary. `arenite pack` writes the index and the hash.
    #[inline(never)] // keeps its temporaries off the caller's stack
    pub fn packed(gguf: &Gguf<'a>) -> Result<Self, Error> {
        let vocab = Vocab::read(gguf)?;
        let (Some(index), Some(Value::U64(hash))) = (packed(gguf)?, gguf.get(INDEX_HASH_KEY)) else {
            return Err(Error::ForeignIndex);
        };
        let index = Index::new(&vocab, index).filter(|_| hash == Self::index_hash(gguf, index));
        Ok(Self { vocab, index: index.ok_or(Error::ForeignIndex)? })
    }

    /// Hash of the vocabulary's metadata and of the index's bytes. Programs store this hash under [`INDEX_HASH_KEY`].
    pub fn index_hash(gguf: &Gguf<'_>, index: &[u8]) -> u64 {
        let mut hash = Hash::new();
        gguf.hash_keys(&mut hash, |key| key.starts_with(b"tokenizer.") || key == b"general.name");
        hash.bytes(index);
        hash.finish()
    }

    /// Like [`new`](Self::new), but always builds the index, even if the file contains one. The first
    /// [`built_index_bytes`](Self::built_index_bytes) bytes of `index` can then be stored in the file under
    /// [`INDEX_KEY`].
    ///
    /// # Errors
    ///
    /// Same as [`new`](Self::new).
    #[inline(never)] // keeps its temporaries off the caller's stack
    pub fn build_index(gguf: &Gguf<'a>, index: &'i mut [u8]) -> Result<Self, Error> {
        let vocab = Vocab::read(gguf)?;
        let index = build::build(gguf, &vocab, index)?;
        Ok(Self { vocab, index })
    }

    /// Uses an index that was built earlier by [`build_index`](Self::build_index) and is not in the file. Checks the
    /// whole index, which takes less time than building it.
    ///
    /// # Errors
    ///
    /// Same as [`new`](Self::new) for metadata; [`Error::ForeignIndex`] if the index is damaged, or was built for a
    /// different vocabulary or by a different version of this crate.
    #[inline(never)] // keeps its temporaries off the caller's stack
    pub fn with_index(gguf: &Gguf<'a>, index: &'i [u8]) -> Result<Self, Error> {
        let vocab = Vocab::read(gguf)?;
        let index = Index::new(&vocab, index).and_then(|index| verified(gguf, &vocab, index));
        let index = index.ok_or(Error::ForeignIndex)?;
        Ok(Self { vocab, index })
    }

    /// Number of bytes of scratch memory that [`encode`](Self::encode) needs for any text of `text_len` bytes. (Most
    /// texts need far less: see [`scratch_bytes_for`](Self::scratch_bytes_for).)
    ///
    /// Unigram normalizes texts with a table in the file. This function assumes that texts become at most 11 times as
    /// long, which holds for all of Unicode's normal forms.
    pub const fn scratch_bytes(text_len: usize) -> usize {
        // Every invalid UTF-8 byte becomes three bytes.
        Self::scratch(text_len, 3)
    }

    /// Like [`scratch_bytes`](Self::scratch_bytes), for valid UTF-8.
    pub const fn scratch_bytes_utf8(text_len: usize) -> usize {
        Self::scratch(text_len, 1)
    }

    const fn scratch(text_len: usize, growth: usize) -> usize {
        let merged = words_for(text_len.saturating_mul(growth).saturating_add(1));
        let normalized = match built::UNIGRAM {
            // The additional 3 bytes are for the space before the text.
            true => unigram::words_for(text_len.saturating_mul(unigram::MOST_GROWTH).saturating_add(3)),
            false => 0,
        };
        let words = if merged > normalized { merged } else { normalized };
        words.saturating_mul(4).saturating_add(text_len)
    }

    /// Number of bytes of scratch memory that [`encode`](Self::encode) needs for this text. Byte-level BPE, and
    /// SentencePiece's BPE with most vocabularies, only need memory for the longest word.
    pub fn scratch_bytes_for(&self, text: &[u8]) -> usize {
        let words = match self.vocab.model {
            Model::Unigram if built::UNIGRAM => unigram::words_for_text(&self.vocab, text),
            // Room for a `▁` at the start of the text, and for the three bytes into which each invalid UTF-8 byte is
            // converted.
            Model::WordPiece(_) => text.len().saturating_mul(3).saturating_add(3).div_ceil(4),
            #[cfg(feature = "rwkv-world")]
            Model::World => 0,
            #[cfg(feature = "plamo2")]
            Model::Plamo2 => plamo2::words_for(text.len()),
            _ => words_for(text.len().saturating_mul(3).saturating_add(1)),
        };
        // Room for the marks of special tokens, and for words.
        text.len().saturating_add(words.saturating_mul(4))
    }

    /// Encodes a text to the front of `out` and returns the number of ids.
    ///
    /// The text may contain any bytes. Time is O(n log n) in the length of the text. If the model has a
    /// [`normalizer`](Self::normalizer), convert the text first.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] if `scratch` or `out` is too short. For `scratch`,
    /// [`scratch_bytes_for`](Self::scratch_bytes_for) this text is always enough; for `out`, the error has the exact
    /// number of ids. [`Error::TextTooLong`] for a text of 1 GiB or more.
    pub fn encode(
        &self,
        text: &[u8],
        options: Encode,
        scratch: &mut [u8],
        out: &mut [TokenId],
    ) -> Result<usize, Error> {
        self.encode_all(text, None, options, scratch, out)?.finish()
    }

    /// Encodes a text that the steps of the [`normalizer`](Self::normalizer) have converted. Like
    /// [`encode`](Self::encode), but control tokens are found only at `places`, which are positions in ascending order.
    ///
    /// As in Hugging Face's tokenizers, the control tokens are those of the text before the conversion. Without the
    /// places, a conversion of ordinary text could give a control token: `＜/s＞` becomes `</s>` by NFKC.
    ///
    /// # Errors
    ///
    /// Same as [`encode`](Self::encode).
    pub fn encode_converted(
        &self,
        text: &[u8],
        places: &[usize],
        options: Encode,
        scratch: &mut [u8],
        out: &mut [TokenId],
    ) -> Result<usize, Error> {
        self.encode_all(text, Some(places), options, scratch, out)?.finish()
    }

    /// Encodes the start of a text. Like [`encode`](Self::encode), but if there are more ids than `out` has room for,
    /// the text is cut. The id that the vocabulary adds after a text then still comes last.
    ///
    /// ```
    /// # use arenite::{Gguf, tokenizer::{Encode, Tokenizer}};
    /// # let file = std::fs::read("tests/fixtures/tokenizers/bert.gguf").unwrap();
    /// # let gguf = Gguf::parse(&file)?;
    /// # let mut memory = vec![0; Tokenizer::index_bytes(&gguf)?];
    /// # let tokenizer = Tokenizer::new(&gguf, &mut memory)?;
    /// let text = b"pump 3: pressure low, valve open, temperature high";
    /// let (mut scratch, mut whole, mut ids) = ([0; 512], [0; 64], [0; 8]); // a model that reads eight tokens
    /// let count = tokenizer.encode(text, Encode::PROMPT, &mut scratch, &mut whole)?;
    /// assert!(count > 8 && tokenizer.encode(text, Encode::PROMPT, &mut scratch, &mut ids).is_err());
    /// assert_eq!(tokenizer.encode_start(text, Encode::PROMPT, &mut scratch, &mut ids)?, 8);
    /// assert_eq!(ids[..7], whole[..7]);
    /// assert_eq!(ids[7], whole[count - 1]); // [SEP]
    /// # Ok::<(), arenite::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`encode`](Self::encode) for `scratch` and for the length of the text.
    pub fn encode_start(
        &self,
        text: &[u8],
        options: Encode,
        scratch: &mut [u8],
        out: &mut [TokenId],
    ) -> Result<usize, Error> {
        let output = self.encode_all(text, None, options, scratch, out)?;
        if output.len <= output.ids.len() {
            return Ok(output.len);
        }
        if let (true, true, Some(eos)) = (options.add_special, self.vocab.add_eos, self.vocab.eos) {
            let ends = [Some(eos), self.index.before_eos()].into_iter().flatten();
            output.ids.iter_mut().rev().zip(ends).for_each(|(to, id)| *to = id);
        }
        Ok(output.ids.len())
    }

    /// Encodes a text. Ids that do not fit in `out` are only counted.
    fn encode_all<'o>(
        &self,
        text: &[u8],
        places: Option<&[usize]>,
        options: Encode,
        scratch: &mut [u8],
        out: &'o mut [TokenId],
    ) -> Result<Output<'o>, Error> {
        if text.len() > LONGEST_TEXT {
            return Err(Error::TextTooLong { bytes: text.len(), limit: LONGEST_TEXT });
        }
        let given = scratch.len();
        let mut output = Output { ids: out, len: 0 };
        if let (true, true, Some(bos)) = (options.add_special, self.vocab.add_bos, self.vocab.bos) {
            output.push(bos);
            self.index.after_bos().into_iter().for_each(|id| output.push(id));
        }
        let parse_special = options.parse_special;
        let specials = Specials { vocab: &self.vocab, index: &self.index, parse_special, places };
        let done = self.encode_text(text, &specials, scratch, &mut output);
        done.ok_or_else(|| Error::BufferTooSmall {
            what: "bytes of scratch memory",
            needed: self.scratch_bytes_for(text),
            given,
        })?;
        if let (true, true, Some(eos)) = (options.add_special, self.vocab.add_eos, self.vocab.eos) {
            self.index.before_eos().into_iter().for_each(|id| output.push(id));
            output.push(eos);
        }
        Ok(output)
    }

    /// Like [`encode`](Self::encode), into a list of at most `N` ids.
    ///
    /// # Errors
    ///
    /// Same as [`encode`](Self::encode).
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

    /// Encodes a text without the BOS and EOS around it. `None` if `scratch` is too short.
    fn encode_text(
        &self,
        text: &[u8],
        specials: &Specials<'_, '_, '_>,
        scratch: &mut [u8],
        output: &mut Output<'_>,
    ) -> Option<()> {
        if !specials.mark(text, scratch).ok()? {
            let memory = scratch.as_chunks_mut::<4>().0;
            return self.encode_fragment(text, self.vocab.prefixes(text, true), memory, output);
        }
        let (marks, scratch) = scratch.split_at_mut_checked(text.len())?;
        let memory = scratch.as_chunks_mut::<4>().0;
        let (mut is_start, mut after_special) = (true, true);
        let (mut text, mut marks) = (text, &*marks);
        while let Some(first) = marks.first() {
            let len = match *first {
                mark::TEXT => {
                    let len = marks.iter().take_while(|mark| **mark == mark::TEXT).count();
                    let text = text.get(..len)?;
                    let prefix = after_special && self.vocab.prefixes(text, is_start);
                    self.encode_fragment(text, prefix, memory, output)?;
                    (is_start, after_special) = (false, false);
                    len
                }
                mark::START => {
                    let (id, len) = specials.at(text, marks)?;
                    output.push(id);
                    (is_start, after_special) = (false, true);
                    len
                }
                _ => 1,
            };
            text = text.get(len..)?;
            marks = marks.get(len..)?;
        }
        Some(())
    }

    /// Encodes a text that has no special tokens. If `prefix` is true, a space is added before the text.
    fn encode_fragment(&self, text: &[u8], prefix: bool, memory: &mut [Word], output: &mut Output<'_>) -> Option<()> {
        if text.is_empty() {
            return Some(());
        }
        let (vocab, index) = (&self.vocab, &self.index);
        match self.vocab.model {
            _ if vocab::ONLY_SPM => spm::Fragment { vocab, index, text, prefix }.encode(memory, output),
            Model::Spm => spm::Fragment { vocab, index, text, prefix }.encode(memory, output),
            Model::Bpe { pre, dna: true } if built::HYBRID_DNA => dna::encode(vocab, index, pre, text, memory, output),
            Model::Bpe { pre, .. } if built::BPE => bpe::encode_bytes(vocab, index, pre, text, memory, output),
            Model::Characters { lowercase } if built::BPE => {
                bpe::encode_characters(vocab, index, lowercase, text, memory, output)
            }
            Model::Lines { newlines, words } if built::BPE => {
                bpe::Lines { vocab, index, newlines, words }.encode(text, memory, output)
            }
            #[cfg(feature = "rwkv-world")]
            Model::World => world::encode(vocab, index, text, output),
            #[cfg(feature = "plamo2")]
            Model::Plamo2 => plamo2::encode(vocab, index, text, memory, output),
            Model::Unigram if built::UNIGRAM => unigram::encode(vocab, index, (text, prefix), memory, output),
            Model::WordPiece(rules) if built::WORDPIECE => wordpiece::encode(vocab, index, rules, text, memory, output),
            _ => None, // refused when the vocabulary was read
        }
    }

    /// The text of a token as bytes. They may be only part of a character: to print tokens, use a [`Decoder`]. For a
    /// control token, the text is its spelling.
    ///
    /// # Errors
    ///
    /// [`Error::TokenOutOfRange`].
    pub fn piece(&self, id: TokenId) -> Result<Piece<'a>, Error> {
        self.check(id)?;
        Ok(Piece::new(self, id))
    }

    /// A token's spelling in the vocabulary: `▁the`, `Ġthe`, `<0x0A>`; empty for ids outside the vocabulary.
    pub fn spelling(&self, id: TokenId) -> &'a [u8] {
        self.index.spelled(&self.vocab, id)
    }

    /// Creates a decoder for a complete text. The decoder removes a space that the encoder has put before the text.
    pub const fn decoder(&self) -> Decoder {
        Decoder::new(self.vocab.strips_first_space())
    }

    /// Creates a decoder for a continuation, such as an answer to a prompt. The decoder keeps a leading space.
    pub const fn decoder_after_prompt(&self) -> Decoder {
        Decoder::new(false)
    }

    /// Writes the text of `ids` to `out` and returns the text's length in bytes.
    ///
    /// This is the inverse of [`encode`](Self::encode), except that byte-level BPE gives U+FFFD for invalid UTF-8.
    /// Control tokens are omitted unless `show_special`.
    ///
    /// # Errors
    ///
    /// [`Error::TokenOutOfRange`]; [`Error::BufferTooSmall`], which has the exact length.
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
            return Err(Error::BufferTooSmall { what: "bytes of text", needed: len, given });
        }
        Ok(len)
    }

    /// Like [`detokenize`](Self::detokenize), but returns a string, in which U+FFFD replaces invalid UTF-8.
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

    /// Number of tokens. A model's embedding may have more rows; the additional rows have no ids.
    pub const fn vocab_len(&self) -> usize {
        self.vocab.len()
    }

    /// The beginning-of-sequence token: `bos_token_id`, or the family's default.
    pub const fn bos(&self) -> Option<TokenId> {
        self.vocab.bos
    }

    /// The end-of-sequence token: `eos_token_id`, or the family's default.
    pub const fn eos(&self) -> Option<TokenId> {
        self.vocab.eos
    }

    /// The end-of-turn token: `eot_token_id`, or else a special token with a known spelling (`<|im_end|>`,
    /// `<|eot_id|>`, ...), as in llama.cpp.
    pub fn eot(&self) -> Option<TokenId> {
        self.index.eot()
    }

    /// The end-of-message token: `eom_token_id`, or else the special token `<|eom_id|>`.
    pub fn eom(&self) -> Option<TokenId> {
        self.index.eom()
    }

    /// True if generation ends with this token: [`eos`](Self::eos), [`eot`](Self::eot), [`eom`](Self::eom), or any
    /// other special token with a known spelling, because many files name only one of several tokens that end
    /// generation. Ordinary text tokens never end generation.
    pub fn is_end(&self, id: TokenId) -> bool {
        self.index.ends().any(|end| end == id)
    }

    /// The type of a token; [`TokenType::Undefined`] outside the vocabulary.
    ///
    /// As in llama.cpp, a few tokens count as control tokens because of their spelling, whatever the file says.
    pub fn token_type(&self, id: TokenId) -> TokenType {
        match self.check(id) {
            Ok(()) => self.index.kind(&self.vocab, id),
            Err(_) => TokenType::Undefined,
        }
    }

    /// A token's score in the file; 0 if it has none.
    pub fn score(&self, id: TokenId) -> f32 {
        self.vocab.score(id)
    }

    /// True if `add_special` adds [`bos`](Self::bos). The key `add_bos_token` decides. If the file has no such key,
    /// this is true for SentencePiece's BPE, WordPiece, Gemma 4, and some pre-tokenizers such as Llama 3's.
    pub const fn add_bos(&self) -> bool {
        self.vocab.add_bos
    }

    /// True if `add_special` adds [`eos`](Self::eos). The key `add_eos_token` decides. If the file has no such key,
    /// this is true for unigram and WordPiece.
    pub const fn add_eos(&self) -> bool {
        self.vocab.add_eos
    }

    /// Returns the steps by which the model's own tokenizer converts a text before it searches for tokens, as names
    /// separated by commas: `NFC`, `NFD`, `NFKC`, `NFKD`, `Lowercase`, `StripAccents`, `Nmt` and `Precompiled`
    /// ([`replacement`](Self::replacement)) of Hugging Face's tokenizers; `WhitespaceSplit`, which converts white space to
    /// spaces; `Charsmap` ([`mapped`](Self::mapped)), `SingleSpaces` (merges spaces, and drops them at both ends) and
    /// `SpacePrefix` (adds a space before a text) of SentencePiece. Returns an empty string if there are no steps. `arenite
    /// convert` writes the names under the key `tokenizer.ggml.normalizer.steps`.
    ///
    /// The caller converts the text; [`encode`](Self::encode) does not, because the tables would not fit on small devices.
    /// After a step that applies the character map, encode with [`without_map`](Self::without_map).
    /// A build without the features `bpe`, `unigram` and `wordpiece` does not read the key.
    pub const fn normalizer(&self) -> &'a [u8] {
        self.vocab.normalizer
    }

    /// Returns a text converted by SentencePiece's character map in the file (`tokenizer.ggml.precompiled_charsmap`),
    /// with spaces for `▁`. For unigram vocabularies, [`encode`](Self::encode) applies the map. If the
    /// [`normalizer`](Self::normalizer) has the step `Charsmap`, the caller applies it. A build without the feature
    /// `unigram` does not read the map.
    pub fn mapped<'t>(&self, text: &'t [u8]) -> impl Iterator<Item = u8> + use<'a, 't> {
        Normalized::new(self.vocab.charsmap, Spaces::KEPT, text)
    }

    /// Returns the replacement for the shortest entry of the character map that `text` starts with, or `None` if there
    /// is no such entry. ([`mapped`](Self::mapped) uses the longest entry.)
    ///
    /// Hugging Face's step `Precompiled` replaces a grapheme of fewer than six bytes by the grapheme's replacement. If
    /// the grapheme has no replacement or is longer, the step replaces each of the grapheme's characters. The result
    /// differs from SentencePiece's in a few texts with combining marks.
    pub fn replacement(&self, text: &[u8]) -> Option<&'a [u8]> {
        self.vocab.charsmap.shortest(text)
    }

    /// Removes the character map, so that [`encode`](Self::encode) does not apply the map again. Call this for texts
    /// that the caller has converted by the step `Precompiled` or `Charsmap`.
    #[must_use]
    pub const fn without_map(mut self) -> Self {
        self.vocab.charsmap = charsmap::Charsmap::NONE;
        self
    }
}

impl core::fmt::Debug for Tokenizer<'_, '_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tokenizer").field("model", &self.vocab.model).field("tokens", &self.vocab.len()).finish()
    }
}

/// Collects ids in the caller's buffer; ids that do not fit are only counted.
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
            return Err(Error::BufferTooSmall { what: "token ids", needed, given });
        }
        Ok(self.len)
    }
}
