//! The conversations of each client, from which the counts of cached tokens in its answers are computed.
//!
//! The contexts in the cache depend on the requests of all clients, so the real counts would tell a client about the
//! prompts of other clients. The counts in an answer are therefore computed only from the client's own earlier
//! conversations.

use std::collections::VecDeque;

use arenite::TokenId;

use crate::reuse::{blocks, sum};
use arenite_text::shared;

/// Maximum number of tokens in all conversations of a client; the oldest conversations are forgotten first.
const MOST_TOKENS: usize = 16 << 10;
/// Maximum number of clients. If there are more, the client that has been silent the longest is forgotten.
const MOST_CLIENTS: usize = 256;
/// Upper bound in bytes for all histories.
pub const HISTORIES: usize = MOST_CLIENTS * MOST_TOKENS * size_of::<TokenId>();
/// If a client continues a text, the last tokens of the old text may become other tokens. At most this many tokens are
/// expected to change.
const SPLIT_AGAIN: usize = 4;

/// A conversation of a client.
struct Conversation {
    /// The prompt, and the answer once it has ended.
    ids: Vec<TokenId>,
    /// Number of tokens of the prompt.
    prompt: usize,
    lora: Vec<(usize, f32)>,
}

/// The conversations of clients. The client that was active last is at the end.
#[derive(Default)]
pub struct History(VecDeque<(u64, VecDeque<Conversation>)>);

impl History {
    /// Returns the number of tokens of `prompt` that the client is told to be cached. This is the length of the longest
    /// common prefix with one of the client's own earlier conversations. Only conversations that the prompt continues
    /// count: the prefix must contain the whole prompt of the conversation, except for `SPLIT_AGAIN` tokens at the end.
    /// All people behind one address are the same client. Because of the rule, one of them can test a guess of
    /// another's prompt only by sending almost the whole prompt. If `reuse` is not 0, the rule does not apply, and
    /// reused blocks of at least `reuse` tokens count, too.
    pub fn known(&self, client: u64, prompt: &[TokenId], lora: &[(usize, f32)], reuse: usize) -> usize {
        let own = self.0.iter().filter(|(known, _)| *known == client).flat_map(|(_, own)| own);
        let continued = own.filter(|earlier| earlier.lora == lora).filter_map(|earlier| {
            let shared = shared(&earlier.ids, prompt);
            let blocks = blocks(prompt, &earlier.ids, shared, reuse);
            (reuse > 0 || shared + SPLIT_AGAIN >= earlier.prompt).then_some(shared + sum(&blocks))
        });
        continued.max().unwrap_or(0).min(prompt.len().saturating_sub(1))
    }

    /// Adds a prompt, or a finished conversation whose prompt was added before. The first `prompt` tokens of `ids` are
    /// the prompt; the tokens after them are the answer.
    pub fn add(&mut self, client: u64, ids: &[TokenId], prompt: usize, lora: &[(usize, f32)]) {
        let at = self.0.iter().position(|(known, _)| *known == client);
        let mut own = at.and_then(|at| self.0.remove(at)).map_or_else(VecDeque::new, |(_, own)| own);
        // Remove an earlier conversation that this one continues, because this one contains all of it.
        own.retain(|earlier| earlier.lora != lora || !ids.starts_with(&earlier.ids));
        let kept = ids.len().min(MOST_TOKENS);
        own.push_back(Conversation { ids: ids[..kept].to_vec(), prompt: prompt.min(kept), lora: lora.to_vec() });
        let mut sum: usize = own.iter().map(|earlier| earlier.ids.len()).sum();
        while sum > MOST_TOKENS {
            sum -= own.pop_front().map_or(sum, |oldest| oldest.ids.len());
        }
        self.0.push_back((client, own));
        if self.0.len() > MOST_CLIENTS {
            self.0.pop_front();
        }
    }
}

impl History {
    /// Forgets conversations of a client: those whose tokens are the beginning of `ids`, and those that begin with
    /// `ids`.
    pub fn forget(&mut self, client: Option<u64>, ids: &[TokenId], lora: &[(usize, f32)]) {
        for (_, own) in self.0.iter_mut().filter(|(known, _)| Some(*known) == client) {
            own.retain(|earlier| earlier.lora != lora || shared(&earlier.ids, ids) < ids.len().min(earlier.ids.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_about_its_own_conversations_only() {
        let mut history = History::default();
        let ids: Vec<TokenId> = (0..20).collect();
        history.add(1, &ids[..10], 10, &[]);
        assert_eq!((history.known(1, &ids, &[], 0), history.known(2, &ids, &[], 0)), (10, 0));
        assert_eq!((history.known(1, &ids, &[(0, 1.0)], 0), history.known(1, &ids[..10], &[], 0)), (0, 9));
        // If a prompt differs from an earlier one, and not only in its last tokens, its client is told that nothing of
        // it is cached.
        let other = |len: usize| [&ids[..len], &[99; 10]].concat();
        assert_eq!((history.known(1, &other(6), &[], 0), history.known(1, &other(5), &[], 0)), (6, 0));
        let changed = [&ids[..3], &[99], &ids[5..9]].concat();
        let own = |least| history.known(1, &changed, &[], least);
        assert_eq!([own(0), own(3), own(4), history.known(2, &changed, &[], 3)], [0, 6, 3, 0]);
        // The answer counts once it has ended.
        history.add(1, &ids[..15], 10, &[]);
        assert_eq!(history.known(1, &ids, &[], 0), 15);
        // However much others send, the client is told the same.
        (0..200).for_each(|_| history.add(2, &vec![7; MOST_TOKENS], MOST_TOKENS, &[]));
        assert_eq!(history.known(1, &ids, &[], 0), 15);
        history.add(1, &vec![7; 2 * MOST_TOKENS], 2 * MOST_TOKENS, &[]);
        assert_eq!(history.known(1, &ids, &[], 0), 0);
    }
}
