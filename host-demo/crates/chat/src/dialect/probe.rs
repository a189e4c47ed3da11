//! Finds the form of calls that a template writes: renders a call and tries to parse the result.

use serde_json::{Value, json};

use super::marks::has_token;
use super::place::Place;
use super::syntax::{self, End};
use super::tools::Tools;
use super::{CallForm, Dialect, Marks, Own, Syntax};

/// A chat template.
pub trait Template {
    /// Renders a prompt; `None` if the template rejects the conversation. `asks` adds the start of an answer
    /// (`add_generation_prompt`).
    fn render(&self, messages: &Value, tools: &Value, asks: bool) -> Option<String> {
        self.render_with(messages, tools, asks, &Value::Null)
    }
    /// Renders a prompt with further variables.
    fn render_with(&self, messages: &Value, tools: &Value, asks: bool, variables: &Value) -> Option<String>;
    /// The Jinja source, or an empty text.
    fn source(&self) -> &str;
}

/// A template, and the place where the template reads the declared functions.
struct Placed<'t>(&'t dyn Template, Place);

impl Template for Placed<'_> {
    fn render_with(&self, messages: &Value, tools: &Value, asks: bool, variables: &Value) -> Option<String> {
        let mut messages = messages.as_array()?.clone();
        self.1.put(tools.as_array().map_or(&[], Vec::as_slice), &mut messages);
        self.0.render_with(&messages.into(), tools, asks, variables)
    }

    fn source(&self) -> &str {
        self.0.source()
    }
}

/// Properties of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Where the template reads the declared functions.
    pub place: Place,
    /// True if the template shows the declared functions.
    pub shows_tools: bool,
    /// True if the template shows the text of a question.
    pub shows_texts: bool,
    /// True if the template shows calls of earlier answers.
    pub shows_calls: bool,
    /// True if the template writes a call's identifier, `functions.NAME:NUMBER`, instead of the function's name.
    pub numbers_calls: bool,
    /// True if the template expects arguments as JSON text.
    pub wants_text: bool,
    /// The content that the template accepts in a message that has only calls; `None` for `null`.
    pub blank: Option<&'static str>,
    /// True if the template writes the name of a called function as a message's `metadata`, and the arguments of the
    /// call as the content.
    pub has_metadata: bool,
    /// True if the template reads the text before calls from the field `tool_plan`.
    pub has_plan: bool,
    /// True if the template accepts the role `developer`.
    pub knows_developer: bool,
    /// True if the template rejects or drops a system message.
    pub refuses_system: bool,
    /// True if the template shows a picture among the parts of a message.
    pub shows_pictures: bool,
    /// True if the template accepts contents that are lists of parts, and joins the texts of the parts itself.
    pub knows_parts: bool,
    /// True if the template shows only contents that are lists of parts.
    pub needs_parts: bool,
}

const NAME: &str = "probe_function";
const KEY: &str = "probe_key";
const SAID: &str = "PROBE-QUESTION";

/// Two identifiers of the call in the probe, of which the templates are tried with both. Kimi K2's template writes the
/// identifier instead of the function's name, so the second one contains the name.
const IDS: [&str; 2] = ["probe0001", "functions.probe_function:0"];

/// The ways of passing a call to a template that are tried. The flag is true if the arguments are a text instead of an
/// object. The second value is the content of the message with the call: Command A Reasoning's template refuses null
/// and an empty text as content.
const GIVEN: [(bool, Option<&str>); 6] =
    [(false, None), (false, Some("")), (true, None), (true, Some("")), (false, Some(" ")), (true, Some(" "))];

fn tools() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": { KEY: { "type": "string", "description": "A key" } },
        "required": [KEY],
    });
    let function = json!({ "name": NAME, "description": "A function", "parameters": parameters });
    json!([{ "type": "function", "function": function }])
}

fn conversation(id: &str, as_text: bool, content: Option<&str>, has_result: bool) -> Value {
    let arguments = json!({ KEY: "value" });
    let arguments = if as_text { json!(arguments.to_string()) } else { arguments };
    let call = json!({ "id": id, "type": "function", "function": { "name": NAME, "arguments": arguments } });
    let mut messages = vec![
        json!({ "role": "user", "content": SAID }),
        json!({ "role": "assistant", "content": content, "tool_calls": [call] }),
    ];
    if has_result {
        messages.push(json!({ "role": "tool", "tool_call_id": id, "name": NAME, "content": "3" }));
    }
    messages.into()
}

/// Probes a template. Removes forms from `dialect` if the template shows that the model was not trained with them.
pub fn look(template: &dyn Template, dialect: &mut Dialect) -> Probe {
    let tools = tools();
    let question = json!([{ "role": "user", "content": SAID }]);
    let place = place(template, &question);
    let template: &dyn Template = &Placed(template, place);
    let with_tools = template.render(&question, &tools, true);
    let without_tools = template.render(&question, &Value::Null, true);
    let mut probe = Probe {
        place,
        // The template shows functions if the prompt differs with and without them, even if it does not contain a
        // function's name. For example, a template may only count the functions, for a model that knows them from
        // training.
        shows_tools: with_tools.is_some_and(|text| text.contains(NAME) || Some(&text) != without_tools.as_ref()),
        shows_texts: without_tools.as_ref().is_some_and(|text| text.contains(SAID)),
        shows_calls: false,
        numbers_calls: false,
        wants_text: false,
        blank: None,
        has_metadata: has_metadata(template, &question),
        has_plan: template.source().contains("tool_plan"),
        knows_developer: template.source().contains("developer"),
        refuses_system: refuses_system(template, &question),
        shows_pictures: false,
        knows_parts: false,
        needs_parts: false,
    };
    probe.look_at_parts(template, without_tools.as_deref());
    let own = probe.look_at_calls(template, dialect);
    keep(dialect, own, template.source());
    // The form of calls without a delimiter counts only if the template shows that the model writes calls in this form.
    let is_bare = |form: &CallForm<String>| form.trigger().is_empty() && matches!(form.syntax, Syntax::Named { .. });
    match dialect.calls.iter().position(is_bare) {
        Some(at) if probe.has_metadata && own.is_none() => dialect.own = Own::Form(at),
        Some(at) if !probe.has_metadata => _ = dialect.calls.remove(at),
        _ => {}
    }
    probe
}

/// Finds out where a template reads the declared functions.
fn place(template: &dyn Template, question: &Value) -> Place {
    let shows = |place: &Place| {
        let rendered = Placed(template, *place).render(question, &tools(), true);
        rendered.is_some_and(|text| text.contains(NAME))
    };
    let is_refused = template.render(question, &Value::Null, true).is_none();
    let places: &[Place] = match is_refused {
        true => &[Place::Variable, Place::Message],
        false => &[Place::Variable, Place::List, Place::Text],
    };
    places.iter().copied().find(shows).unwrap_or(Place::Variable)
}

/// Returns true if a template writes a message's `metadata` on the line before the content.
fn has_metadata(template: &dyn Template, question: &Value) -> bool {
    let call = json!({ "role": "assistant", "metadata": NAME, "content": SAID });
    let rendered = template.render(&json!([question[0], call]), &Value::Null, false);
    rendered.is_some_and(|text| text.contains(&format!("{NAME}\n{SAID}")))
}

impl Probe {
    /// Finds out how to pass calls to a template. Returns the form in which the template writes calls, if the form is
    /// known.
    fn look_at_calls(&mut self, template: &dyn Template, dialect: &mut Dialect) -> Option<Own> {
        // Looks for delimiters in their plain spelling, without the noncharacters that wrap delimiters elsewhere,
        // because templates write them as text.
        let written = Dialect::all(&Marks::default());
        for (id, (as_text, content)) in IDS.iter().flat_map(|id| GIVEN.map(|given| (*id, given))) {
            let render = |has_result| template.render(&conversation(id, as_text, content, has_result), &tools(), false);
            let [last, before_result] = [false, true].map(render);
            // If the template accepts null content in the last message but not in earlier ones, the next form of
            // content is tried.
            if content.is_none() && last.is_some() && before_result.is_none() {
                continue;
            }
            let rendered = last.or(before_result);
            let Some(text) = rendered.as_deref().and_then(|text| Some(text.rsplit_once(SAID)?.1)) else { continue };
            // If the template prints null as a word, it does not support null as content, and the next form of content
            // is tried.
            if content.is_none() && (text.contains("None") || text.contains("null")) {
                continue;
            }
            if let Some(found) = found(&written, text) {
                dialect.has_recipients =
                    found != Own::Channels && text.contains(&format!("to={NAME}{}", written.channels.message));
                (self.shows_calls, self.wants_text, self.blank) = (true, as_text, content);
                self.numbers_calls = id == IDS[1];
                return Some(found);
            }
            // Arguments in the prompt show that the template writes earlier calls itself, even if their form is not in
            // the table.
            if !self.shows_calls && has_arguments(text) {
                (self.shows_calls, self.wants_text, self.blank) = (true, as_text, content);
            }
        }
        None
    }

    /// Finds out whether the template accepts contents that are lists of parts. `question` is the prompt for the same
    /// question as one text.
    fn look_at_parts(&mut self, template: &dyn Template, question: Option<&str>) {
        let text = json!({ "type": "text", "text": SAID });
        // A template that does not know lists of parts writes the list itself, with its key `type`, or nothing. Looks
        // for both signs in the prompt.
        let shown = |parts: Value| {
            let rendered = template.render(&json!([{ "role": "user", "content": parts }]), &Value::Null, true);
            rendered.filter(|text| text.contains(SAID) && !text.contains("'type'") && !text.contains("\"type\""))
        };
        let Some(alone) = shown(json!([text])) else { return };
        (self.shows_texts, self.knows_parts) = (true, true);
        self.needs_parts = question.is_none_or(|text| !text.contains(SAID));
        // Compare the texts and not their lengths, because some templates leave out a space before a picture.
        self.shows_pictures = shown(json!([text, { "type": "image" }])).is_some_and(|text| text != alone);
    }
}

/// Returns true if a rendered text contains the probe's call: the name of the function and its argument. A call in the
/// notation of a Python dictionary does not count, because the template printed the object itself there.
fn has_arguments(text: &str) -> bool {
    let has_value = |(at, _): (usize, &str)| text[at + KEY.len()..].find("value").is_some_and(|after| after < 8);
    text.contains(NAME) && !text.contains(&format!("'{KEY}'")) && text.match_indices(KEY).any(has_value)
}

/// Returns true if a template refuses system messages: it renders a question alone, but not after a system message.
fn refuses_system(template: &dyn Template, question: &Value) -> bool {
    let none = json!([]);
    let with_system = json!([{ "role": "system", "content": NAME }, question[0]]);
    template.render(question, &none, true).is_some()
        && template.render(&with_system, &none, true).is_none_or(|text| !text.contains(NAME))
}

/// Returns the form of the call in a text.
fn found(dialect: &Dialect, text: &str) -> Option<Own> {
    if text.contains(&format!("to=functions.{NAME}")) && text.contains(&dialect.channels.message) {
        return Some(Own::Channels);
    }
    let tools = Tools::of(tools().as_array()?);
    let wanted = json!({ KEY: "value" });
    let reads = |form: &CallForm<String>| {
        let starts: Vec<usize> = match form.trigger() {
            "" => text.match_indices(['{', '[']).map(|(at, _)| at).collect(),
            trigger => text.match_indices(trigger).map(|(at, _)| at + form.open.len()).collect(),
        };
        starts.into_iter().any(|at| {
            let Ok((calls, _)) = syntax::read(form, &tools, &text[at..], End::Whole) else { return false };
            calls.first().is_some_and(|call| serde_json::from_str(&call.arguments).ok().as_ref() == Some(&wanted))
        })
    };
    dialect.calls.iter().position(reads).map(Own::Form)
}

/// Removes the forms of calls that the model cannot use. Keeps the form `found` in the template, the forms whose
/// delimiters are tokens of the vocabulary or occur in the template, and the forms without a delimiter. If no form
/// remains, all forms are kept.
fn keep(dialect: &mut Dialect, found: Option<Own>, source: &str) {
    let spelled = Dialect::all(&Marks::default());
    dialect.has_channels |= source.contains(&spelled.channels.message);
    let triggers: Vec<String> = spelled.calls.iter().map(|form| form.trigger().to_string()).collect();
    let is_token = |at: usize| has_token(dialect.calls[at].trigger());
    let stands = |at: usize| !triggers[at].is_empty() && source.contains(&triggers[at]);
    let all = || 0..dialect.calls.len();
    let own = match found {
        Some(own) => own,
        None if has_token(&dialect.channels.channel) => Own::Channels,
        None => Own::Form(all().find(|at| stands(*at)).or_else(|| all().find(|at| is_token(*at))).unwrap_or(0)),
    };
    dialect.own = own;
    let Own::Form(own) = own else { return };
    if found.is_none() && !stands(own) {
        return;
    }
    let is_kept = |at: usize| {
        triggers[at].is_empty()
            || !triggers[own].is_empty() && triggers[at].ends_with(&triggers[own])
            || is_token(at)
            || stands(at)
    };
    let kept: Vec<usize> = all().filter(|at| is_kept(*at)).collect();
    dialect.own = Own::Form(kept.iter().position(|at| *at == own).unwrap_or(0));
    dialect.calls = kept.into_iter().map(|at| dialect.calls[at].clone()).collect();
}
