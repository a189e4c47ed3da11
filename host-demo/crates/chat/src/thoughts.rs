//! The variables of a template that set how much a model thinks.

use std::cmp::Reverse;
use std::collections::HashSet;

use arenite_request::Thinking;
use serde_json::{Map, Value, json};

use super::dialect::Template;
use super::source::Named;

/// Names of template variables that turn thoughts on or off. If the values are words, the two words for off and on are
/// given.
const SWITCHES: [(&str, Option<[&str; 2]>); 4] =
    [("enable_thinking", None), ("thinking", None), ("think", None), ("thinking_mode", Some(["disabled", "enabled"]))];
/// Names of template variables that set the effort.
const EFFORTS: [&str; 2] = ["reasoning_effort", "thinking_effort"];
/// The template variable that sets the maximum number of tokens for a thought.
const BUDGET: &str = "thinking_budget";
/// The efforts of all interfaces, in order.
const LEVELS: [&str; 6] = ["minimal", "low", "medium", "high", "xhigh", "max"];
/// The efforts of a template that shows the model any word.
const COMMON: [&str; 3] = ["low", "medium", "high"];
/// Efforts without thoughts.
const OFF: [&str; 2] = ["none", "no_think"];

/// The settings of thoughts that a template has.
#[derive(Clone, Debug, Default)]
pub struct Thoughts {
    /// True if the template has marks of thoughts.
    is_known: bool,
    switches: Vec<(&'static str, Option<[&'static str; 2]>)>,
    efforts: Vec<&'static str>,
    /// The efforts of [`LEVELS`] that the template accepts.
    levels: Vec<&'static str>,
    /// The effort without thoughts.
    off: Option<&'static str>,
    /// True if only an effort turns thoughts on.
    starts_off: bool,
    has_budget: bool,
    /// The texts in a template that accepts any effort.
    words: Option<HashSet<String>>,
}

impl Thoughts {
    /// Probes a template.
    pub fn of(template: &dyn Template, is_known: bool) -> Self {
        let Named { variables, texts } = Named::of(template.source());
        let mut thoughts = Self {
            is_known,
            switches: SWITCHES.into_iter().filter(|(name, _)| variables.contains(name)).collect(),
            efforts: EFFORTS.into_iter().filter(|name| variables.contains(name)).collect(),
            has_budget: variables.contains(BUDGET),
            ..Self::default()
        };
        if !thoughts.efforts.is_empty() {
            thoughts.probe(template, &texts);
        }
        thoughts
    }

    /// Renders the template to find the efforts that it accepts. `texts` are the texts in the template's tags.
    fn probe(&mut self, template: &dyn Template, texts: &HashSet<&str>) {
        let question = json!([{ "role": "user", "content": "?" }]);
        let ask = |variables| template.render_with(&question, &Value::Null, true, &Value::Object(variables));
        let with = |word: &str| {
            let mut variables = self.switched(true);
            variables.extend(self.at(word));
            ask(variables)
        };
        let names = |word: &&str| texts.contains(word);
        let takes_any = with("probe").is_some();
        let accepts = |word: &&str| match takes_any {
            true => COMMON.contains(word) || names(word),
            false => with(word).is_some(),
        };
        let levels = LEVELS.into_iter().filter(accepts).collect();
        let off = OFF.into_iter().find(|word| names(word) && with(word).is_some());
        let starts_off = self.switches.is_empty() && off.is_some_and(|off| with(off) == ask(Map::new()));
        (self.levels, self.off, self.starts_off) = (levels, off, starts_off);
        self.words = takes_any.then(|| texts.iter().map(|word| word.to_string()).collect());
    }

    /// Returns true if the model's template shows that the model can think.
    pub fn are_possible(&self) -> bool {
        self.is_known || !self.switches.is_empty() || !self.efforts.is_empty()
    }

    /// Returns the variables of the template that turn thoughts on or off, or set their effort, as a request asks.
    ///
    /// # Errors
    ///
    /// The template does not accept the requested effort.
    pub fn variables(&self, asked: &Thinking) -> Result<Map<String, Value>, String> {
        if asked.is_off() {
            let mut variables = self.switched(false);
            if let Some(off) = self.off.filter(|_| self.switches.is_empty()) {
                variables.extend(self.at(off));
            }
            variables.extend(self.has_budget.then(|| (BUDGET.into(), json!(0))));
            return Ok(variables);
        }
        let mut variables = Map::new();
        if asked.is_on() {
            variables = self.switched(true);
            let usual = self.starts_off.then_some("high");
            if let Some(effort) = asked.effort.as_deref().filter(|effort| !is_usual(effort)).or(usual) {
                variables.extend(self.at(self.level(effort)?));
            }
        }
        let budget = asked.budget.filter(|budget| *budget > 0 && self.has_budget);
        variables.extend(budget.map(|budget| (BUDGET.into(), json!(budget))));
        Ok(variables)
    }

    /// Returns `effort`, or the nearest effort that the template accepts. Of two equally near efforts, the higher one
    /// is returned.
    fn level<'w>(&self, effort: &'w str) -> Result<&'w str, String> {
        if self.levels.contains(&effort) || self.efforts.is_empty() {
            return Ok(effort);
        }
        let rank = |word: &str| LEVELS.iter().position(|level| *level == word);
        if let Some(wanted) = rank(effort) {
            let nearest = self.levels.iter().copied().min_by_key(|level| {
                let rank = rank(level).unwrap_or_default();
                (rank.abs_diff(wanted), Reverse(rank))
            });
            return Ok(nearest.unwrap_or(effort));
        }
        // If the words that the template accepts are not known, `effort` is passed on: a template that does not accept
        // an unknown word refuses it itself.
        match &self.words {
            Some(words) if !words.contains(effort) => {
                Err(format!("there is no effort `{effort}` here: give none, {}", self.levels.join(", ")))
            }
            _ => Ok(effort),
        }
    }

    fn switched(&self, is_on: bool) -> Map<String, Value> {
        let value = |words: &Option<[&str; 2]>| words.map_or(json!(is_on), |words| json!(words[usize::from(is_on)]));
        self.switches.iter().map(|(name, words)| (name.to_string(), value(words))).collect()
    }

    /// Returns the variables that set an effort.
    fn at(&self, effort: &str) -> Map<String, Value> {
        self.efforts.iter().map(|name| (name.to_string(), json!(effort))).collect()
    }
}

/// True for words that leave the effort to the model.
fn is_usual(effort: &str) -> bool {
    matches!(effort, "auto" | "default")
}
