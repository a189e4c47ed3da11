//! Constrained output: a grammar determines the allowed tokens.
//!
//! A host compiles a grammar from GBNF or a JSON schema to a table ([`Grammar`]), which a device borrows from flash.
//! The state of an answer is a small value ([`State`]), which advances by bytes. Copy the state to fork an answer, or
//! to rewind it. A [`Constraint`] combines grammar, state and vocabulary for a [`Sampler`](crate::sampler::Sampler);
//! [`Masks`] make a constraint fast for large vocabularies.
//!
//! No heap is used, and the time for a token is bounded by the number of its bytes. Every answer that follows the
//! grammar can be completed: a path that could not be completed is refused at its start.
//!
//! # Examples
//!
//! ```
//! use arenite::grammar::{Constraint, Grammar};
//! use arenite::sampler::{Params, Pcg32, Sampler};
//! use arenite::tokenizer::Tokenizer;
//!
//! # use arenite::{Gguf, Line, Model, Options, Plan, Session};
//! # let file = std::fs::read("tests/fixtures/stories.gguf").unwrap();
//! # let gguf = Gguf::parse(&file)?;
//! # let model = Model::new(&gguf)?;
//! # let plan = Plan::new(&gguf, Options::new().context(64))?;
//! # let mut workspace = vec![Line::ZERO; plan.workspace.div_ceil(64)];
//! # let mut kv = vec![Line::ZERO; plan.kv.div_ceil(64)];
//! # let mut session = Session::new(&model, plan, Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv))?;
//! # let mut index = vec![0; Tokenizer::index_bytes(&gguf)?];
//! # let tokenizer = Tokenizer::new(&gguf, &mut index)?;
//! # let vocab = model.spec().vocab;
//! # let mut scratch = vec![0; Sampler::scratch_bytes(&Params::DEFAULT, vocab)];
//! # let (mut sampler, mut rng) = (Sampler::new(Params::DEFAULT, &[], vocab, &mut scratch)?, Pcg32::new(1));
//! # let (mut decoder, mut answer) = (tokenizer.decoder(), String::new());
//! // `[a-z]+`: a header, a node for the first letter, and one for later letters.
//! let mut words = vec![u32::from_le_bytes(*b"arg\x01"), 10, 4, 0];
//! words.extend([0x8000_2000, u32::from(b'`') << 23, u32::from(b'z') << 23 | 7]);
//! words.extend([0xc000_2000, u32::from(b'`') << 23, u32::from(b'z') << 23 | 7]);
//! let table: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
//! let mut constraint = Constraint::new(Grammar::new(&table)?);
//!
//! session.prefill(&[1, 300, 301])?;
//! for _ in 0..8 {
//!     let allows = |token| constraint.allows(&tokenizer, token);
//!     let token = sampler.sample_where(session.logits_mut(), &mut rng, allows)?;
//!     constraint.accept(&tokenizer, token)?;
//!     if tokenizer.is_end(token) {
//!         break; // only allowed when the answer is complete
//!     }
//!     decoder.push(token, &tokenizer, |text| answer.push_str(text))?;
//!     session.decode(token)?;
//! }
//! assert!(constraint.is_complete() && answer.bytes().all(|byte| byte.is_ascii_lowercase()));
//! # assert!(!answer.is_empty());
//! # Ok::<(), arenite::Error>(())
//! ```

mod masks;
mod state;
mod table;
#[cfg(test)]
mod tests;

pub use masks::{Mask, Masks};
pub use state::State;
pub use table::Grammar;

use crate::tokenizer::{Piece, TokenType, Tokenizer};
use crate::{Error, TokenId};

/// A grammar, and the state of an answer in this grammar. The state advances by tokens of a vocabulary.
#[derive(Clone, Debug)]
pub struct Constraint<'g> {
    grammar: Grammar<'g>,
    state: State,
}

impl<'g> Constraint<'g> {
    /// Starts before the first token of an answer.
    pub fn new(grammar: Grammar<'g>) -> Self {
        Self { grammar, state: State::new(&grammar) }
    }

    /// Creates a constraint that continues in `state`, the state of another constraint with the same grammar.
    pub fn at(grammar: Grammar<'g>, state: State) -> Self {
        Self { grammar, state }
    }

    /// True if a token may come next: if the grammar allows its text, names its id, or allows the token as the end of a
    /// complete answer.
    pub fn allows(&self, tokenizer: &Tokenizer<'_, '_>, token: TokenId) -> bool {
        self.state.is_complete() && tokenizer.is_end(token)
            || self.state.allows_token(&self.grammar, token, text(tokenizer, token))
    }

    /// Advances the constraint by a token of the answer.
    ///
    /// # Errors
    ///
    /// [`Error::TokenNotAllowed`] if the token is not allowed; the state is then unchanged.
    pub fn accept(&mut self, tokenizer: &Tokenizer<'_, '_>, token: TokenId) -> Result<(), Error> {
        let ends = self.state.is_complete() && tokenizer.is_end(token);
        if self.state.accept_token(&self.grammar, token, text(tokenizer, token)) || ends {
            return Ok(());
        }
        Err(Error::TokenNotAllowed { token })
    }

    /// Returns the current state. A constraint created from a copy by [`at`](Self::at) continues from this point of the
    /// answer.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the state by value.
    pub fn into_state(self) -> State {
        self.state
    }

    /// True if the answer is complete and may end here.
    pub fn is_complete(&self) -> bool {
        self.state.is_complete()
    }

    /// True if the answer is complete and cannot continue.
    pub fn is_over(&self) -> bool {
        self.state.is_complete() && self.state.is_over()
    }
}

/// The text of a token, for tokens that stand for text.
fn text<'a>(tokenizer: &Tokenizer<'a, '_>, token: TokenId) -> Option<Piece<'a>> {
    if !matches!(tokenizer.token_type(token), TokenType::Normal | TokenType::Byte | TokenType::UserDefined) {
        return None;
    }
    // Tokens with empty text could repeat forever.
    tokenizer.piece(token).ok().filter(|piece| piece.clone().next().is_some())
}
