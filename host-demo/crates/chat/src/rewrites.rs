//! Rewrites conversations for templates that refuse them or do not show all of their texts.

use std::collections::{HashMap, VecDeque};

use arenite_request::Message;
use serde_json::{Map, Value};

/// A conversation in the form that a template accepts.
#[derive(Clone)]
pub struct Conversation {
    pub messages: Vec<Message>,
    /// Functions that are passed to the template.
    pub tools: Vec<Value>,
    /// A warning to print if the conversation was rewritten for the template.
    pub warning: Option<&'static str>,
}

impl Conversation {
    /// Puts the text of system messages before the first user message, for templates without a system message. Later
    /// system messages become user messages.
    pub fn system_to_user(&mut self, lists_functions: bool) {
        let is_system = |message: &Message| message.role == "system";
        if !self.messages.iter().any(is_system) {
            return;
        }
        let count = self.messages.iter().take_while(|message| is_system(message)).count();
        let mut first = Message::new("user", "");
        self.messages.drain(..count).for_each(|system| join(&mut first, system));
        self.messages.iter_mut().filter(|message| is_system(message)).for_each(|message| message.role = "user".into());
        if count > 0 {
            match self.messages.first_mut().filter(|message| message.role == "user") {
                Some(user) => {
                    join(&mut first, std::mem::take(user));
                    *user = first;
                }
                None => self.messages.insert(0, first),
            }
        }
        self.warning = Some(match lists_functions {
            true => {
                "the chat template shows neither functions nor a system message: the first message lists the functions"
            }
            false => "the chat template has no system message: its text is before the first user message",
        });
    }

    /// Joins all system messages to the first message, for templates that accept only one system message.
    fn one_system(&mut self) {
        let (system, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.messages).into_iter().partition(|message| message.role == "system");
        let joined = system.into_iter().reduce(|mut first, next| {
            join(&mut first, next);
            first
        });
        self.messages = joined.into_iter().chain(others).collect();
        self.warning = Some("the chat template has one system message: all system messages are joined to it");
    }

    /// Joins neighbouring messages that have the same role into one message. Some templates require that roles
    /// alternate.
    fn joined(&mut self) {
        let mut messages: Vec<Message> = Vec::new();
        for message in std::mem::take(&mut self.messages) {
            let is_same = |last: &&mut Message| last.role == message.role && message.role != "tool";
            match messages.last_mut().filter(is_same) {
                Some(last) => join(last, message),
                None => messages.push(message),
            }
        }
        self.messages = messages;
        self.warning.get_or_insert("the chat template wants alternating authors: neighbouring messages are joined");
    }

    /// Puts each call and its results in separate messages, for templates that accept only one call in a message.
    /// Returns false if no message has more than one call.
    fn single_calls(&mut self) -> bool {
        let is_single = self.messages.iter().all(|message| message.calls.len() < 2);
        let mut rest = VecDeque::from(std::mem::take(&mut self.messages));
        while let Some(mut message) = rest.pop_front() {
            if message.calls.len() < 2 {
                self.messages.push(message);
                continue;
            }
            let count = rest.iter().take_while(|next| next.role == "tool").count();
            let mut results: Vec<Message> = rest.drain(..count).collect();
            for call in std::mem::take(&mut message.calls) {
                let answers = |result: &Message| result.call_id.is_some() && result.call_id == call.id;
                let at = results.iter().position(answers).or((!results.is_empty()).then_some(0));
                let result = at.map(|at| results.remove(at));
                self.messages.push(Message { calls: vec![call], ..std::mem::take(&mut message) });
                self.messages.extend(result);
                message.role = "assistant".into();
            }
            self.messages.append(&mut results);
        }
        self.warning = Some("the chat template has one call in a message: each call is in a message of its own");
        !is_single
    }

    /// If the conversation begins with an answer, puts an empty user message before this answer. Returns false if the
    /// conversation begins otherwise.
    fn user_first(&mut self) -> bool {
        let first = self.messages.iter().position(|message| message.role != "system");
        let Some(at) = first.filter(|at| self.messages[*at].role == "assistant") else { return false };
        self.messages.insert(at, Message::new("user", ""));
        self.warning = Some("the chat template wants a user message first: an empty one begins the conversation");
        true
    }

    /// Puts each call in a separate message with the name of the function as its `metadata`, as GLM-4-9B expects.
    /// Results become messages with the role `observation`.
    pub fn calls_as_metadata(&mut self) {
        for mut message in std::mem::take(&mut self.messages) {
            let calls = std::mem::take(&mut message.calls);
            if message.role == "tool" {
                message.role = "observation".into();
            }
            if calls.is_empty() || message.text.as_deref().is_some_and(|text| !text.is_empty()) {
                self.messages.push(message);
            }
            self.messages.extend(calls.into_iter().map(|call| {
                let others = Map::from_iter([("metadata".to_string(), call.name.clone().into())]);
                Message { others, ..Message::new("assistant", as_text(&call.arguments)) }
            }));
        }
    }

    /// Numbers the calls of the conversation, because Kimi K2 writes calls as `functions.NAME:NUMBER`. Kimi K2's
    /// template writes only the identifier of a call, so the number must be in the identifier.
    pub fn number_calls(&mut self) {
        let (mut count, mut ids) = (0, HashMap::new());
        for message in &mut self.messages {
            for call in &mut message.calls {
                let id = format!("functions.{}:{count}", call.name);
                ids.extend(call.id.replace(id.clone()).map(|given| (given, id)));
                count += 1;
            }
            if let Some(id) = &mut message.call_id {
                *id = ids.get(id).unwrap_or(id).clone();
            }
        }
    }

    /// Gives each result the name of the called function, which is found by the identifier of the call. Functionary's
    /// template needs the name.
    fn name_results(&mut self) {
        let calls = self.messages.iter().flat_map(|message| &message.calls);
        let names: HashMap<_, _> = calls.filter_map(|call| Some((call.id.clone()?, call.name.clone()))).collect();
        for message in self.messages.iter_mut().filter(|message| message.role == "tool" && message.name.is_none()) {
            message.name = message.call_id.as_ref().and_then(|id| names.get(id)).cloned();
        }
    }

    /// Gives the results of functions the role `role`. Returns false if the conversation has no results.
    fn results_as(&mut self, role: &str) -> bool {
        let mut has_results = false;
        for message in self.messages.iter_mut().filter(|message| message.role == "tool") {
            has_results = true;
            match role {
                "user" => *message = as_user(std::mem::take(message)),
                role => message.role = role.into(),
            }
        }
        self.warning = Some("the chat template shows no results of functions: they have another role");
        has_results
    }

    /// Returns other forms of a conversation that a template refuses or does not show completely, the most similar one
    /// first.
    pub fn rewritten(&self) -> Vec<Self> {
        let mut bases = vec![self.clone()];
        bases[0].name_results();
        let changes: [fn(&mut Self) -> bool; 4] = [
            Self::single_calls,
            Self::user_first,
            |form| form.results_as("tool_response"),
            |form| form.results_as("user"),
        ];
        for change in changes {
            let forms = bases.clone().into_iter().filter_map(|mut form| change(&mut form).then_some(form));
            bases.extend(forms.collect::<Vec<_>>());
        }
        let systems = [|_: &mut Self| {}, Self::one_system, |form: &mut Self| form.system_to_user(false)];
        let mut forms: Vec<Self> = Vec::new();
        for base in bases {
            let each = systems.map(|system| {
                let mut form = base.clone();
                system(&mut form);
                form
            });
            let mut joined = each.clone();
            joined.iter_mut().for_each(Self::joined);
            forms.extend(each.into_iter().chain(joined));
        }
        forms.retain(|form| form.messages != self.messages);
        forms
    }

    /// Returns true if each function's name occurs in the text of a message.
    pub fn names_all(&self, tools: &[Value]) -> bool {
        let name = |tool: &Value| Some(tool.get("function").unwrap_or(tool).get("name")?.as_str()?.to_string());
        let texts = self.messages.iter().filter_map(|message| message.text.as_deref());
        tools.iter().filter_map(name).all(|name| texts.clone().any(|text| text.contains(&name)))
    }

    /// The texts that every prompt must contain: those of the system messages, and the results of functions. The number
    /// is the index of the message.
    fn must_show(&self) -> impl Iterator<Item = (usize, &str)> {
        let has_text = |message: &Message| message.role != "user" && message.role != "assistant";
        let messages = self.messages.iter().enumerate().filter(move |(_, message)| has_text(message));
        let texts = messages.filter(|(_, message)| message.pictures.is_empty());
        texts
            .filter_map(|(at, message)| Some((at, message.text.as_deref()?.trim())))
            .filter(|(_, text)| !text.is_empty())
    }

    /// Returns true if a rendered prompt shows the system messages and the results of functions. A short text may occur
    /// in the prompt by chance, and the template may write a text differently. Such a text counts as shown if the
    /// prompt shows a word that is rendered in place of the text.
    pub fn is_shown(&self, prompt: &str, render: &dyn Fn(&Self) -> Option<String>) -> bool {
        /// A text of at most this length may occur in a prompt by chance.
        const SHORT: usize = 24;
        let (mut at, mut unclear) = (0, Vec::new());
        for (index, text) in self.must_show() {
            match prompt[at..].find(text).filter(|_| text.len() > SHORT) {
                Some(found) => at += found + text.len(),
                None => unclear.push(index),
            }
        }
        if unclear.is_empty() {
            return true;
        }
        let word = |index: usize| format!("text{index}shown");
        let mut words = self.clone();
        unclear.iter().for_each(|index| words.messages[*index].text = Some(word(*index)));
        render(&words).is_none_or(|prompt| unclear.iter().all(|index| prompt.contains(&word(*index))))
    }
}

/// Returns arguments as JSON text.
pub fn as_text(arguments: &Value) -> String {
    match arguments {
        Value::String(text) if text.trim().is_empty() => "{}".to_string(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Returns the result of a function as a message of the user.
pub fn as_user(result: Message) -> Message {
    const OPEN: &str = "<tool_response>\n";
    let text = format!("{OPEN}{}\n</tool_response>", result.text.unwrap_or_default());
    let pictures = result.pictures.into_iter().map(|picture| picture.after(OPEN.len())).collect();
    Message { pictures, ..Message::new("user", text) }
}

/// Adds the text, the thought and the calls of the next message to a message.
pub fn join(message: &mut Message, next: Message) {
    let len = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let before = len(&message.text) + if len(&message.text) > 0 && len(&next.text) > 0 { 2 } else { 0 };
    message.pictures.extend(next.pictures.into_iter().map(|picture| picture.after(before)));
    let both = |first: Option<String>, second: Option<String>| match (first, second) {
        (Some(first), Some(second)) if !first.is_empty() && !second.is_empty() => Some(format!("{first}\n\n{second}")),
        (first, second) => first.filter(|text| !text.is_empty()).or(second),
    };
    message.text = both(message.text.take(), next.text);
    message.thought = both(message.thought.take(), next.thought);
    message.calls.extend(next.calls);
    message.is_open = next.is_open;
}
