//! Caches the contexts of finished conversations, so that a prompt with the same beginning can continue from there.

use arenite::{Context, TokenId};

/// Length of the common prefix.
pub fn shared(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Number of tokens at the end of a prompt that may become other tokens when the text is continued.
const SPLIT_AGAIN: usize = 4;

/// The client of a conversation, and the length of its last prompt.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner {
    pub client: u64,
    pub prompt: usize,
}

struct Kept {
    context: Context,
    owner: Owner,
    /// The adapters that the tokens were read with, and their scales.
    lora: Vec<(usize, f32)>,
    ids: Vec<TokenId>,
    /// Time of the last use.
    used: u64,
}

#[derive(Default)]
pub struct Cache {
    kept: Vec<Kept>,
}

impl Cache {
    /// Returns the index of the context that has these adapters and shares the longest prefix with `prompt`, and the
    /// length of the prefix.
    pub fn best(&self, prompt: &[TokenId], lora: &[(usize, f32)]) -> Option<(usize, usize)> {
        let alike = self.kept.iter().enumerate().filter(|(_, kept)| kept.lora == lora);
        let each = alike.map(|(at, kept)| (at, shared(&kept.ids, prompt)));
        each.max_by_key(|(_, shared)| *shared)
    }

    /// Returns how many tokens of `prompt` may be reported to its client as cached: the longest common prefix with a
    /// conversation of the same client that `prompt` continues. The prefix must contain all of that conversation's last
    /// prompt, except for `SPLIT_AGAIN` tokens at the end. People behind one address count as one client; because of
    /// this rule, one of them can confirm a prompt of another only by sending almost all of it.
    pub fn known_to(&self, client: u64, prompt: &[TokenId], lora: &[(usize, f32)]) -> usize {
        let own = self.kept.iter().filter(|kept| kept.owner.client == client && kept.lora == lora);
        let continued = own.filter_map(|kept| {
            let shared = shared(&kept.ids, prompt);
            (shared + SPLIT_AGAIN >= kept.owner.prompt).then_some(shared)
        });
        continued.max().unwrap_or(0)
    }

    pub fn touch(&mut self, at: usize, now: u64) -> &Context {
        let kept = &mut self.kept[at];
        kept.used = now;
        &kept.context
    }

    /// Caches a context, unless a cached one already contains its tokens. Returns a context that is no longer needed:
    /// the new one, or a cached one that the new one continues.
    pub fn keep(
        &mut self,
        context: Context,
        owner: Owner,
        ids: Vec<TokenId>,
        lora: Vec<(usize, f32)>,
        now: u64,
    ) -> Option<Context> {
        if ids.is_empty() {
            return Some(context);
        }
        for kept in self.kept.iter_mut().filter(|kept| kept.lora == lora) {
            let common = shared(&kept.ids, &ids);
            if common == ids.len() {
                kept.used = now;
                return Some(context);
            }
            if common == kept.ids.len() {
                let before = std::mem::replace(kept, Kept { context, owner, lora, ids, used: now });
                return Some(before.context);
            }
        }
        self.kept.push(Kept { context, owner, lora, ids, used: now });
        None
    }

    /// Removes the context with these adapters that shares the longest prefix with another one. Returns the context,
    /// its tokens and the length of the prefix. If there is only one context, the prefix is all of its tokens.
    pub fn take_most_shared(&mut self, lora: &[(usize, f32)]) -> Option<(Context, Vec<TokenId>, usize)> {
        let alike = || self.kept.iter().enumerate().filter(|(_, kept)| kept.lora == lora);
        let common = |at: usize, ids: &[TokenId]| {
            let others = alike().filter(|(other, _)| *other != at);
            others.map(|(_, other)| shared(&other.ids, ids)).max().unwrap_or(ids.len())
        };
        let (at, shared) = alike().map(|(at, kept)| (at, common(at, &kept.ids))).max_by_key(|(_, shared)| *shared)?;
        let Kept { context, ids, .. } = self.kept.swap_remove(at);
        Some((context, ids, shared))
    }

    /// Removes the least recently used context.
    pub fn oldest(&mut self) -> Option<Context> {
        let (at, _) = self.kept.iter().enumerate().min_by_key(|(_, kept)| kept.used)?;
        Some(self.kept.swap_remove(at).context)
    }
}

#[cfg(test)]
mod tests {
    use super::shared;

    #[test]
    fn beginnings() {
        assert_eq!(shared(&[1, 2, 3], &[1, 2, 4]), 2);
        assert_eq!(shared(&[1], &[1, 2]), 1);
        assert_eq!(shared(&[], &[1]), 0);
    }
}
