//! Parser for GBNF, llama.cpp's notation for grammars:
//! <https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md>.

use std::collections::HashMap;

use anyhow::{Result, anyhow, bail};

use super::expr::{Chars, Expr, Rules};
use super::short;

/// Maximum nesting of groups, which limits the stack.
const MAX_NESTING: usize = 100;
/// Maximum count of a repetition.
const MAX_REPEATED: u32 = 1_000_000;
/// Maximum number of repetition operators in a row.
const MAX_REPETITIONS: usize = 4;
/// Maximum size of a grammar in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Parses a grammar. Returns its rules and the number of `root`.
pub fn parse(text: &str, token: &dyn Fn(&str) -> Option<u32>) -> Result<(Rules, usize)> {
    if text.len() > MAX_BYTES {
        bail!("the grammar has more than {MAX_BYTES} bytes");
    }
    let mut parser = Parser {
        text,
        at: 0,
        named: (0, 1, 1),
        depth: 0,
        rules: Rules::default(),
        names: HashMap::new(),
        undefined: HashMap::new(),
        token,
    };
    parser.space(true);
    while parser.peek().is_some() {
        parser.rule()?;
    }
    if let Some((name, at)) = parser.undefined.iter().min_by_key(|(_, at)| **at) {
        return Err(parser.wrong_at(*at, format!("the rule `{}` is not defined", short(name))));
    }
    match parser.names.get("root") {
        Some(root) => Ok((parser.rules, *root)),
        None => bail!("the grammar has no rule `root`, where every text starts"),
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    /// Offset, line and column of the last rule name.
    named: (usize, usize, usize),
    depth: usize,
    rules: Rules,
    names: HashMap<&'t str, usize>,
    /// Names of rules that the grammar has used but not defined so far, each with the offset of its first use.
    undefined: HashMap<&'t str, usize>,
    token: &'t dyn Fn(&str) -> Option<u32>,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let char = self.peek()?;
        self.at += char.len_utf8();
        Some(char)
    }

    /// Consumes this text if it comes next.
    fn eat(&mut self, wanted: &str) -> bool {
        let is_there = self.rest().starts_with(wanted);
        if is_there {
            self.at += wanted.len();
        }
        is_there
    }

    fn wrong_at(&self, at: usize, what: impl std::fmt::Display) -> anyhow::Error {
        anyhow!("{}: {what}", self.place(at))
    }

    fn wrong(&self, what: impl std::fmt::Display) -> anyhow::Error {
        self.wrong_at(self.at, what)
    }

    /// Line and column of an offset, counted from 1.
    fn place(&self, at: usize) -> String {
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        format!("{line}:{column}")
    }

    /// Returns the place of the next name like [`Self::place`], but counts lines only from the previous name on.
    fn next_place(&mut self, at: usize) -> String {
        let (from, line, column) = self.named;
        let between = &self.text[from..at];
        let (line, column) = match between.rsplit_once('\n') {
            Some((before, last)) => (line + before.matches('\n').count() + 1, last.chars().count() + 1),
            None => (line, column + between.chars().count()),
        };
        self.named = (at, line, column);
        format!("{line}:{column}")
    }

    /// Skips spaces and comments, and line ends if `newlines` is true.
    fn space(&mut self, newlines: bool) {
        while let Some(char) = self.peek() {
            match char {
                ' ' | '\t' => {}
                '\r' | '\n' if newlines => {}
                '#' => {
                    self.at += self.rest().find(['\r', '\n']).unwrap_or(self.rest().len());
                    continue;
                }
                _ => break,
            }
            self.at += 1;
        }
    }

    fn name(&mut self) -> Result<&'t str> {
        let is_other = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_');
        let len = self.rest().find(is_other).unwrap_or(self.rest().len());
        if len == 0 {
            return Err(self.wrong("expected a rule: a name of letters, digits, `-` and `_`, then `::=`"));
        }
        let name = &self.rest()[..len];
        self.at += len;
        Ok(name)
    }

    /// The number of a rule, whether it is defined or not.
    fn number(&mut self, name: &'t str, at: usize) -> usize {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let place = self.next_place(at);
        let number = self.rules.add(place, Expr::never());
        self.names.insert(name, number);
        self.undefined.insert(name, at);
        number
    }

    /// Parses `name ::= alternatives`, to the end of the line.
    fn rule(&mut self) -> Result<()> {
        let start = self.at;
        let place = self.next_place(start);
        let name = self.name()?;
        self.space(false);
        if !self.eat("::=") {
            let name = short(name);
            return Err(self.wrong(format!("expected `::=` after the name `{name}` (GBNF; not Lark's notation)")));
        }
        self.space(true);
        let number = self.number(name, start);
        self.undefined.remove(name);
        // The last definition wins, as in llama.cpp.
        self.rules.0[number].expr = self.alternatives(false)?;
        self.rules.0[number].place = place;
        match self.peek() {
            None | Some('\r' | '\n') => self.space(true),
            Some(other) => return Err(self.wrong(format!("unexpected `{other}`: expected the end of the rule"))),
        }
        Ok(())
    }

    fn alternatives(&mut self, nested: bool) -> Result<Expr> {
        let mut parts = vec![self.sequence(nested)?];
        while self.eat("|") {
            self.space(true);
            parts.push(self.sequence(nested)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Alt(parts) })
    }

    fn sequence(&mut self, nested: bool) -> Result<Expr> {
        let mut parts = Vec::new();
        let mut repetitions = 0;
        while let Some(char) = self.peek() {
            let start = self.at;
            if matches!(char, '*' | '+' | '?' | '{') {
                repetitions += 1;
                if repetitions > MAX_REPETITIONS {
                    return Err(self.wrong(format!("more than {MAX_REPETITIONS} nested repetitions")));
                }
                let Some(last) = parts.pop() else {
                    return Err(self.wrong(format!("there is nothing before `{char}` to repeat")));
                };
                let (min, max) = self.repetition()?;
                parts.push(Expr::Repeat(Box::new(last), min, max));
                self.space(nested);
                continue;
            }
            repetitions = 0;
            let part = match char {
                '"' => self.literal()?,
                '[' => self.class()?,
                '.' => {
                    self.at += 1;
                    Expr::Chars(Chars::any())
                }
                '<' | '!' => self.special()?,
                '(' => {
                    self.at += 1;
                    self.depth += 1;
                    if self.depth > MAX_NESTING {
                        return Err(self.wrong(format!("more than {MAX_NESTING} nested groups")));
                    }
                    self.space(true);
                    let inner = self.alternatives(true)?;
                    if !self.eat(")") {
                        return Err(self.wrong(format!("the group of {} is not closed with `)`", self.place(start))));
                    }
                    self.depth -= 1;
                    inner
                }
                char if char.is_ascii_alphanumeric() || matches!(char, '-' | '_') => {
                    let name = self.name()?;
                    Expr::Rule(self.number(name, start))
                }
                _ => break,
            };
            parts.push(part);
            self.space(nested);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Seq(parts) })
    }

    /// Parses `*`, `+`, `?`, `{m}`, `{m,}` or `{m,n}`.
    fn repetition(&mut self) -> Result<(u32, Option<u32>)> {
        let start = self.at;
        match self.next() {
            Some('*') => return Ok((0, None)),
            Some('+') => return Ok((1, None)),
            Some('?') => return Ok((0, Some(1))),
            _ => {}
        }
        self.space(false);
        let min = if self.peek() == Some(',') { 0 } else { self.count()? };
        self.space(false);
        let mut max = Some(min);
        if self.eat(",") {
            self.space(false);
            max = if self.peek() == Some('}') { None } else { Some(self.count()?) };
            self.space(false);
        }
        if !self.eat("}") {
            return Err(self.wrong("the repetition is not closed with `}`"));
        }
        if max.is_some_and(|max| max < min) {
            return Err(self.wrong_at(start, "the repetition's minimum is larger than its maximum"));
        }
        Ok((min, max))
    }

    fn count(&mut self) -> Result<u32> {
        let len = self.rest().find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest().len());
        match self.rest()[..len].parse() {
            Ok(count) if count <= MAX_REPEATED => {
                self.at += len;
                Ok(count)
            }
            _ if len > 0 => Err(self.wrong(format!("more than {MAX_REPEATED} repetitions"))),
            _ => Err(self.wrong("expected a number of repetitions, as in `{2}`, `{2,}`, `{,3}` and `{2,3}`")),
        }
    }

    fn literal(&mut self) -> Result<Expr> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        while !self.eat("\"") {
            match self.char()? {
                Some(char) => text.push(char),
                None => return Err(self.wrong_at(start, "this text is not closed with `\"`")),
            }
        }
        Ok(Expr::Bytes(text.into_bytes()))
    }

    fn class(&mut self) -> Result<Expr> {
        let start = self.at;
        self.at += 1;
        let is_negated = self.eat("^");
        let mut ranges = Vec::new();
        while !self.eat("]") {
            let open = |parser: &Self| parser.wrong_at(start, "this class of characters is not closed with `]`");
            let Some(first) = self.char()? else { return Err(open(self)) };
            let mut last = first;
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                last = self.char()?.ok_or_else(|| open(self))?;
            }
            if last < first {
                return Err(self.wrong(format!("the range from `{first}` to `{last}` is empty")));
            }
            ranges.push((u32::from(first), u32::from(last)));
        }
        if ranges.is_empty() && !is_negated {
            return Err(self.wrong_at(start, "this class has no characters"));
        }
        let chars = Chars::of(ranges);
        Ok(Expr::Chars(if is_negated { chars.not() } else { chars }))
    }

    /// Parses a character, which may be escaped; `None` at the end of the grammar.
    fn char(&mut self) -> Result<Option<char>> {
        let start = self.at;
        let Some(char) = self.next() else { return Ok(None) };
        if char != '\\' {
            return Ok(Some(char));
        }
        let digits = match self.next() {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some('t') => return Ok(Some('\t')),
            Some('r') => return Ok(Some('\r')),
            Some('n') => return Ok(Some('\n')),
            Some(same @ ('\\' | '"' | '[' | ']' | '-')) => return Ok(Some(same)),
            _ => {
                return Err(self.wrong_at(
                    start,
                    "this escape is unknown: use one of \\\\ \\\" \\[ \\] \\- \\n \\r \\t \\x \\u \\U",
                ));
            }
        };
        let hex = self.rest().get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match hex.and_then(char::from_u32) {
            Some(char) => {
                self.at += digits;
                Ok(Some(char))
            }
            None => Err(self.wrong_at(start, format!("expected {digits} hexadecimal digits of a character"))),
        }
    }

    /// Parses `<think>` or `<[1000]>`. With a leading `!`, any token except this one matches.
    fn special(&mut self) -> Result<Expr> {
        let start = self.at;
        let is_negated = self.eat("!");
        if !self.eat("<") {
            return Err(self.wrong("expected a token after `!`: `!<text>` or `!<[1000]>`"));
        }
        let close = self.rest().find('>').ok_or_else(|| self.wrong_at(start, "this token is not closed with `>`"))?;
        let inner = &self.rest()[..close];
        let token = match inner.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(id) => id.parse().ok().filter(|id| *id < 1 << 23),
            None => (self.token)(&format!("<{inner}>")),
        };
        self.at += close + 1;
        match token {
            Some(token) if is_negated => Ok(Expr::NotToken(token)),
            Some(token) => Ok(Expr::Token(token)),
            None => Err(self.wrong_at(start, format!("`<{}>` is not one token of this vocabulary", short(inner)))),
        }
    }
}
