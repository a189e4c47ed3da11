//! Caches the contexts of finished conversations, so that a prompt with the same beginning can continue one of them.

use arenite::{Context, TokenId};

use crate::session_file::Head;
use arenite_text::shared;

struct Kept {
    context: Context,
    /// The client that may use this context; `None` if all may.
    scope: Option<u64>,
    /// The adapters with which the tokens were read, and the scales of the adapters.
    lora: Vec<(usize, f32)>,
    ids: Vec<TokenId>,
    /// Time of the last use.
    used: u64,
    /// True if the cache on disk has it, too.
    is_stored: bool,
}

#[derive(Default)]
pub struct Cache {
    kept: Vec<Kept>,
}

impl Cache {
    /// Finds the context that shares the longest prefix with `prompt`, among the contexts of this scope with these
    /// adapters. Returns the index of the context and the length of the prefix.
    pub fn best(&self, prompt: &[TokenId], lora: &[(usize, f32)], scope: Option<u64>) -> Option<(usize, usize)> {
        let alike = self.kept.iter().enumerate().filter(|(_, kept)| kept.lora == lora && kept.scope == scope);
        let each = alike.map(|(at, kept)| (at, shared(&kept.ids, prompt)));
        each.max_by_key(|(_, shared)| *shared)
    }

    /// Returns the contexts of this scope with these adapters, and the tokens of each context.
    pub fn alike(&self, lora: &[(usize, f32)], scope: Option<u64>) -> impl Iterator<Item = (&Context, &[TokenId])> {
        let alike = self.kept.iter().filter(move |kept| kept.lora == lora && kept.scope == scope);
        alike.map(|kept| (&kept.context, &*kept.ids))
    }

    /// Number of conversations.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    pub fn touch(&mut self, at: usize, now: u64) -> &Context {
        let kept = &mut self.kept[at];
        kept.used = now;
        &kept.context
    }

    /// Caches a context, unless a cached context already contains its tokens. Returns a context that is no longer
    /// needed: the new context, or a cached context that the new context continues.
    pub fn keep(
        &mut self,
        context: Context,
        scope: Option<u64>,
        ids: Vec<TokenId>,
        lora: Vec<(usize, f32)>,
        now: u64,
    ) -> Option<Context> {
        if ids.is_empty() {
            return Some(context);
        }
        for kept in self.kept.iter_mut().filter(|kept| kept.lora == lora && kept.scope == scope) {
            let common = shared(&kept.ids, &ids);
            if common == ids.len() {
                kept.used = now;
                return Some(context);
            }
            if common == kept.ids.len() {
                let before = std::mem::replace(kept, Kept { context, scope, lora, ids, used: now, is_stored: false });
                return Some(before.context);
            }
        }
        self.kept.push(Kept { context, scope, lora, ids, used: now, is_stored: false });
        None
    }

    /// Takes from the cache the context that is worth keeping in the session file: among the contexts with these
    /// adapters, the one that shares the longest prefix with another. Returns the context, its tokens and the length of
    /// the prefix. If there is only one context, the prefix is all of its tokens.
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

    /// Removes the contexts of this scope with these adapters that belong to the conversation `ids`. These are contexts
    /// whose tokens are the beginning of `ids`, and contexts whose tokens begin with `ids`.
    pub fn remove(&mut self, scope: Option<u64>, ids: &[TokenId], lora: &[(usize, f32)]) -> Vec<Context> {
        let is_of = |kept: &mut Kept| {
            let common = shared(&kept.ids, ids);
            kept.lora == lora && kept.scope == scope && common > 0 && common == ids.len().min(kept.ids.len())
        };
        self.kept.extract_if(.., is_of).map(|kept| kept.context).collect()
    }

    /// Returns a context of at least `least` tokens that is not on disk, and describes it. The context counts as stored
    /// from now on.
    pub fn unstored(&mut self, least: usize) -> Option<(&Context, Head)> {
        let kept = self.kept.iter_mut().find(|kept| !kept.is_stored && kept.ids.len() >= least)?;
        kept.is_stored = true;
        let head = Head { tokens: kept.ids.clone(), lora: kept.lora.clone(), scope: kept.scope, ..Head::default() };
        Some((&kept.context, head))
    }

    /// Removes the least recently used context.
    pub fn oldest(&mut self) -> Option<Context> {
        let (at, _) = self.kept.iter().enumerate().min_by_key(|(_, kept)| kept.used)?;
        Some(self.kept.swap_remove(at).context)
    }
}

#[cfg(test)]
mod tests {
    use arenite_text::shared;

    #[test]
    fn beginnings() {
        assert_eq!(shared(&[1, 2, 3], &[1, 2, 4]), 2);
        assert_eq!(shared(&[1], &[1, 2]), 1);
        assert_eq!(shared(&[], &[1]), 0);
    }
}
