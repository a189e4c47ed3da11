//! Speculative decoding: proposes tokens and verifies them in one pass, for `--lookup` and `--draft`.

use anyhow::Result;
use arenite::sampler::argmax;
use arenite::speculation::lookup;
use arenite::{Session, TokenId, Work};

/// A function that proposes tokens to follow a text, at most the given number.
pub type Guess<'g> = Box<dyn FnMut(&[TokenId], usize) -> Result<Vec<TokenId>> + 'g>;

/// Speculative decoding of one session.
pub struct Guesser<'g> {
    guess: Guess<'g>,
    /// Maximum number of proposed tokens.
    most: usize,
    /// The tokens of the last pass, which started at position `from`. The first `right` of them are accepted.
    run: Vec<TokenId>,
    from: usize,
    right: usize,
    /// Logits after the last accepted token.
    logits: Vec<f32>,
}

impl<'g> Guesser<'g> {
    pub fn new(guess: Guess<'g>, most: usize) -> Self {
        Self { guess, most, run: Vec::new(), from: 0, right: 0, logits: Vec::new() }
    }

    /// Creates a guesser that proposes the tokens that followed an earlier occurrence of the last few tokens in the
    /// text.
    pub fn lookup(most: usize) -> Self {
        Self::new(Box::new(|text, most| Ok(lookup(text, most).to_vec())), most)
    }

    /// The logits for the next token. Before the first call of `decode` they are those of the session.
    pub fn logits<'l>(&'l mut self, session: &'l mut Session<'_, '_>) -> &'l mut [f32] {
        if self.run.is_empty() { session.logits_mut() } else { &mut self.logits }
    }

    /// Computes the logits after the last token of `text`. Runs a pass only if that token was not proposed. Returns
    /// whether the token was proposed.
    pub fn decode(&mut self, session: &mut Session<'_, '_>, text: &[TokenId]) -> Result<bool> {
        let Some(&token) = text.last() else { return Ok(false) };
        let is_hit = self.run.get(self.right) == Some(&token);
        if is_hit {
            self.right += 1;
        } else {
            let certain = text.len() - 1;
            let (engine, context) = session.parts();
            // Recurrent layers can only go back to a checkpoint; the tokens after it are prefilled again.
            let back = engine.nearest(context, certain);
            session.rewind(back)?;
            if back < certain {
                session.prefill(&text[back..certain])?;
            }
            let room = session.context() - text.len();
            let guessed = (self.guess)(text, self.most.min(room))?;
            self.from = certain;
            self.run = vec![token];
            self.run.extend(guessed);
            self.right = 1;
            let (engine, context) = session.parts();
            engine.checkpoint(context)?;
            engine.run(&mut [Work::prefill(context, &self.run).all_logits()])?;
        }
        let (engine, context) = session.parts();
        self.logits.clear();
        self.logits.extend_from_slice(engine.logits_at(context, self.from + self.right - 1));
        Ok(is_hit)
    }
}

/// A smaller model that proposes tokens, and the tokens in its context.
pub struct Draft<'m, 'w> {
    session: Session<'m, 'w>,
    /// Number of ids that both models have. One of them may have more rows, which pad its vocabulary.
    shared: usize,
    read: Vec<TokenId>,
}

impl<'m, 'w> Draft<'m, 'w> {
    pub fn new(session: Session<'m, 'w>, shared: usize) -> Self {
        Self { session, shared, read: Vec::new() }
    }

    /// Returns the greedy continuation of a text, at most `most` tokens, or none if the smaller model lacks one of the
    /// text's tokens.
    pub fn guess(&mut self, text: &[TokenId], most: usize) -> Result<Vec<TokenId>> {
        let Self { session, shared, read } = self;
        let most = most.min((session.context() + 1).saturating_sub(text.len()));
        if most == 0 || text.iter().any(|token| *token as usize >= *shared) {
            return Ok(Vec::new());
        }
        let known = read.iter().zip(text).take_while(|(a, b)| a == b).count().min(text.len() - 1);
        session.rewind(known)?;
        read.truncate(known);
        session.prefill(&text[known..])?;
        read.extend(&text[known..]);
        let mut guessed = Vec::new();
        while let Some(token) = session.logits().get(..*shared).and_then(argmax) {
            guessed.push(token);
            if guessed.len() >= most {
                break;
            }
            session.decode(token)?;
            read.push(token);
        }
        Ok(guessed)
    }
}
