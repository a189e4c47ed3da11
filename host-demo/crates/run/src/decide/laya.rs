//! Prompts of the type laya: `[CLS] question [SEP] ([MASK] option)* [SEP] state [SEP]`, in which question and options are
//! cut to a number of tokens. Source: llama.cpp's `fill_task_laya`.

use anyhow::{Result, ensure};
use arenite::TokenId;

/// Maximum number of tokens of an option, without the `[MASK]` before it.
const OPTION: usize = 48;
/// Number of tokens that are reserved for the question when options are cut.
const RESERVED: usize = 16;
/// Minimum number of tokens that are left of an option, including the `[MASK]` before it, and minimum number that are
/// left of the question.
const LEAST_OPTION: usize = 4;
const LEAST_QUESTION: usize = 8;

/// The tokens that structure a prompt, and its limit.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub mark: TokenId,
    pub separator: TokenId,
    /// Most tokens of the question and its options.
    pub head: usize,
}

impl Layout {
    /// Shortens a prompt that has `count` options to the layout of these models. Returns the tokens, and the positions
    /// of the `[MASK]` tokens before the options.
    pub fn cut(self, ids: &[TokenId], count: usize) -> Result<(Vec<TokenId>, Vec<usize>)> {
        let Self { mark, separator, head } = self;
        let marks: Vec<usize> = (0..ids.len()).filter(|at| ids[*at] == mark).collect();
        let wrong = "the template gives no prompt of a decision: the options must follow the question";
        ensure!(count > 0 && marks.len() == count && marks[0] >= 2 && ids[marks[0] - 1] == separator, wrong);
        let last = marks[count - 1];
        let end = ids[last..].iter().position(|id| *id == separator).map_or(ids.len(), |len| last + len);
        ensure!(end + 1 < ids.len() && ids.last() == Some(&separator), wrong);

        let ends = marks[1..].iter().copied().chain([end]);
        let whole: Vec<&[TokenId]> = marks.iter().zip(ends).map(|(from, to)| &ids[*from..to]).collect();
        let cut_to = |most: usize| whole.iter().map(|option| &option[..option.len().min(most)]).collect::<Vec<_>>();
        let length = |options: &[&[TokenId]]| options.iter().map(|option| option.len()).sum::<usize>();
        let mut options = cut_to(OPTION + 1);
        if length(&options) + RESERVED > head {
            options = cut_to((OPTION + 1).min((head.saturating_sub(RESERVED) / count).max(LEAST_OPTION)));
        }
        let question = head.saturating_sub(length(&options)).max(LEAST_QUESTION);

        let mut out = ids[..(marks[0] - 1).min(1 + question)].to_vec();
        out.push(separator);
        let mut places = Vec::new();
        for option in options {
            places.push(out.len());
            out.extend(option);
        }
        out.extend(&ids[end..]);
        Ok((out, places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { mark: 1, separator: 2, head: 40 };

    /// Returns a prompt with a question and options of these lengths, and with a state of three tokens.
    fn prompt(question: usize, options: &[usize]) -> Vec<TokenId> {
        let mut ids = vec![0];
        ids.extend(vec![7; question]);
        ids.push(2);
        for len in options {
            ids.push(1);
            ids.extend(vec![8; *len]);
        }
        ids.extend([2, 9, 9, 9, 2]);
        ids
    }

    #[test]
    fn long_parts_are_cut_and_the_state_is_not() {
        let whole = prompt(5, &[3, 4]);
        assert_eq!(LAYOUT.cut(&whole, 2).unwrap(), (whole.clone(), vec![7, 11]));
        // Of the 40 tokens for question and options, 16 are reserved for the question. Each of the two options is cut
        // to (40 - 16) / 2 tokens, including its `[MASK]`, and the question gets what is left.
        assert_eq!(LAYOUT.cut(&prompt(50, &[20, 30]), 2).unwrap().0, prompt(16, &[11, 11]));
        // If there is too little room for long options, each option still keeps 4 tokens, including its `[MASK]`, and
        // the question keeps 8 tokens.
        assert_eq!(LAYOUT.cut(&prompt(50, &[9; 12]), 12).unwrap().0, prompt(8, &[3; 12]));
        assert!(LAYOUT.cut(&whole, 3).is_err() && LAYOUT.cut(&[0, 2, 2], 0).is_err());
    }
}
