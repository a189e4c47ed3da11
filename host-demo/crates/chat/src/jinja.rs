//! Renders a model's own chat template (Jinja) as transformers renders it.

use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Result, anyhow};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, ErrorKind, Template, context};

use super::dialect::specifications;
use super::source::Named;
use super::{filters, source, values, words};

/// Maximum number of steps of a template; generated text counts by its length. A long conversation takes some hundred
/// thousand steps.
const FUEL: u64 = 4_000_000;
/// The number of steps for a probe is the usual one divided by this. A program probes a template with a dozen
/// conversations when it starts, and a hostile template must not delay the start.
const PROBE: u64 = 20;
/// Stack size in bytes, for macros that call each other and for nested values (see [`visits`](super::visits)).
const STACK: usize = 16 << 20;

/// The inputs of a template.
pub struct Inputs {
    /// A list of messages: `role`, `content` and other fields that the template reads.
    pub messages: Value,
    /// JSON schemas of functions; `None` without tools.
    pub tools: Value,
    pub bos: String,
    pub eos: String,
    /// Further variables by name (`chat_template_kwargs`), or `None`.
    pub kwargs: Value,
    /// True if the prompt ends with the start of an answer (`add_generation_prompt`).
    pub asks: bool,
    /// True if the conversation is a probe, which only shows how the template writes calls. A probe is short, so it is
    /// allowed few steps.
    pub is_probe: bool,
}

/// The reason why a template returned no prompt.
#[derive(Debug)]
pub enum Failure {
    /// The template is invalid Jinja, or runs for too long.
    Broken(anyhow::Error),
    /// The template itself has rejected the conversation, with this message.
    Refused(String),
}

/// A compiled template. It runs in a separate thread, because hostile templates need a larger stack. The thread ends
/// when this value is dropped.
pub struct Compiled {
    source: String,
    jobs: Sender<Job>,
}

/// Inputs, and the channel for the rendered prompt.
type Job = (Inputs, Sender<Result<String, Failure>>);

impl Compiled {
    /// Compiles a template. Errors of the template are reported when it is rendered.
    pub fn new(source: String) -> Self {
        Self::with_fuel(source, FUEL)
    }

    fn with_fuel(source: String, fuel: u64) -> Self {
        let (jobs, waiting) = channel();
        let translated = source::translate(&source);
        let builder = std::thread::Builder::new().name("template".into()).stack_size(STACK);
        // The error is ignored: if the thread does not start, its end of the channel is dropped, and every prompt
        // returns an error.
        _ = builder.spawn(move || run(fuel, translated.as_deref(), &waiting));
        Self { source, jobs }
    }

    /// The template as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a template whose input is not a conversation. The template's variables are the members of `variables`.
    ///
    /// # Errors
    ///
    /// The template is invalid, takes too many steps, or rejects the variables.
    pub fn fill(&self, variables: serde_json::Value) -> Result<String> {
        let (messages, tools) = (Value::from(()), Value::from(()));
        let (bos, eos, kwargs) = (String::new(), String::new(), serde_json::from_value(variables)?);
        let inputs = Inputs { messages, tools, bos, eos, kwargs, asks: false, is_probe: false };
        self.render(inputs).map_err(|failure| match failure {
            Failure::Broken(error) => error,
            Failure::Refused(why) => anyhow!("{why}"),
        })
    }

    /// Renders a prompt.
    pub fn render(&self, inputs: Inputs) -> Result<String, Failure> {
        let (answer, rendered) = channel();
        let sent = self.jobs.send((inputs, answer));
        sent.ok().and_then(|()| rendered.recv().ok()).unwrap_or_else(|| {
            Err(Failure::Broken(anyhow!("the thread that renders it failed: choose a format with --chat-template")))
        })
    }
}

/// Renders prompts until all senders of jobs are dropped.
fn run(fuel: u64, source: Result<&str, &String>, jobs: &Receiver<Job>) {
    let environments = [fuel, fuel / PROBE].map(|fuel| (fuel, environment(fuel)));
    let functions = source.map_or(Functions::Tools, Functions::of);
    let templates = environments.each_ref().map(|(fuel, environment)| {
        let template = environment.template_from_str(source.map_err(String::clone)?);
        let template = template.map_err(|error| said(&error).to_string());
        Ok::<_, String>((*fuel, template?))
    });
    for (inputs, answer) in jobs {
        let rendered = match &templates[usize::from(inputs.is_probe)] {
            // A panic in the template engine ends only this prompt.
            Ok((fuel, template)) => {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rendered(template, *fuel, &inputs, functions)))
                    .unwrap_or_else(|_| {
                        Err(Failure::Broken(anyhow!("rendering it fails because of a bug in the renderer")))
                    })
            }
            Err(why) => Err(Failure::Broken(anyhow!("{why}"))),
        };
        _ = answer.send(rendered); // the asker may have ended
    }
}

fn rendered(template: &Template<'_, '_>, fuel: u64, inputs: &Inputs, functions: Functions) -> Result<String, Failure> {
    let more = match functions {
        Functions::Tools => context! {},
        Functions::Text => firefunction(&inputs.tools),
        Functions::Xml => context! { xml_tools => bare(&inputs.tools) },
    };
    let documents = inputs.kwargs.get_attr("documents").ok().filter(|documents| !documents.is_undefined());
    let own = context! {
        messages => with_reasoning(&inputs.messages),
        tools => inputs.tools.clone(),
        documents => documents.unwrap_or_else(|| Value::from(())),
        add_generation_prompt => inputs.asks,
        bos_token => inputs.bos.as_str(),
        eos_token => inputs.eos.as_str(),
    };
    let rendered = match inputs.kwargs.kind() {
        ValueKind::Map => template.render(context! { ..own, ..inputs.kwargs.clone(), ..more }),
        _ => template.render(context! { ..own, ..more }),
    };
    rendered.map_err(|error| match error.kind() {
        ErrorKind::OutOfFuel => Failure::Broken(anyhow!(
            "rendering it takes more than {fuel} steps: shorten the conversation, or simplify the template"
        )),
        _ => Failure::Refused(said(&error).to_string()),
    })
}

/// How a template reads the declared functions from a variable.
#[derive(Clone, Copy)]
enum Functions {
    /// The list `tools`.
    Tools,
    /// The text `functions`, beside the time: FireFunction 2.
    Text,
    /// The list `xml_tools` of names, descriptions and parameters: SmolLM3's first template.
    Xml,
}

impl Functions {
    fn of(source: &str) -> Self {
        let Named { variables, .. } = Named::of(source);
        let has = |name: &&str| variables.contains(*name);
        match () {
            () if ["functions", "datetime"].iter().all(has) => Self::Text,
            () if has(&"xml_tools") && !has(&"tools") => Self::Xml,
            () => Self::Tools,
        }
    }
}

/// Returns the declared functions without the object around each of them (`{"type": "function", ...}`). Without
/// functions, returns none.
fn bare(tools: &Value) -> Value {
    let function = |tool: Value| tool.get_attr("function").ok().filter(|inner| !inner.is_undefined()).unwrap_or(tool);
    match tools.try_iter().ok().filter(|_| tools.is_true()) {
        Some(tools) => tools.map(function).collect(),
        None => Value::from(()),
    }
}

/// FireFunction 2's template reads these variables instead of `tools`: the functions as JSON text, which is empty if
/// there are no functions, and the time.
fn firefunction(tools: &Value) -> Value {
    let tools = serde_json::to_value(tools).ok();
    let tools = tools.as_ref().and_then(serde_json::Value::as_array).filter(|tools| !tools.is_empty());
    let functions = tools.map_or(String::new(), |tools| specifications(tools, Some(4)));
    let time = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    context! { functions, datetime => time }
}

/// Describes the innermost cause briefly, with the template's line.
fn said(error: &minijinja::Error) -> anyhow::Error {
    let mut inner = error;
    while let Some(source) = std::error::Error::source(inner).and_then(|source| source.downcast_ref()) {
        inner = source;
    }
    match (inner.detail(), inner.line().filter(|_| inner.name() != Some(RAISED))) {
        (Some(detail), Some(line)) if inner.kind() != ErrorKind::InvalidOperation => {
            anyhow!("{}: {detail} (line {line})", inner.kind())
        }
        (Some(detail), _) => anyhow!("{detail}"),
        (None, Some(line)) => anyhow!("{} (line {line})", inner.kind()),
        (None, None) => anyhow!("{}", inner.kind()),
    }
}

const RAISED: &str = "raise_exception";

fn environment(fuel: u64) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().unwrap_or_default());
    environment.set_fuel(Some(fuel));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    filters::add_to(&mut environment);
    environment.add_function(source::EACH, values::each);
    environment.add_function(source::ADD, values::add_markup);
    environment.add_filter(words::FLAT, values::flat);
    environment.add_filter(source::PERCENT, filters::percent);
    environment.add_function(RAISED, |message: &Value| -> Result<Value, minijinja::Error> {
        Err(values::invalid(values::string(message)))
    });
    environment.add_function("strftime_now", |format: &str| {
        jiff::fmt::strtime::format(format, &jiff::Zoned::now()).map_err(|error| values::invalid(error.to_string()))
    });
    environment
}

/// Copies a message's reasoning to every name that templates read, as transformers does.
fn with_reasoning(messages: &Value) -> Value {
    let Ok(list) = messages.try_iter() else { return messages.clone() };
    list.map(|message| {
        let names = ["reasoning_content", "thinking", "reasoning"];
        let given = |name: &&str| message.get_attr(name).ok().filter(|value| !value.is_none() && !value.is_undefined());
        let Some(reasoning) = names.iter().find_map(given) else { return message };
        let Ok(keys) = message.try_iter() else { return message };
        let mut pairs = vec![("thinking".to_string(), reasoning.clone())];
        for key in keys {
            let value = message.get_item(&key).unwrap_or_default();
            match key.to_string() {
                key if key == "thinking" => pairs[0].1 = value,
                key if key == "reasoning_content" => pairs.push((key, reasoning.clone())),
                key => pairs.push((key, value)),
            }
        }
        if !pairs.iter().any(|(key, _)| key == "reasoning_content") {
            pairs.push(("reasoning_content".to_string(), reasoning));
        }
        Value::from_pairs(pairs)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str) -> Result<String, Failure> {
        rendered_with(FUEL, template)
    }

    fn rendered_with(fuel: u64, template: &str) -> Result<String, Failure> {
        let none = || Value::from(());
        let (messages, tools, kwargs) = (none(), none(), none());
        let inputs =
            Inputs { messages, tools, bos: String::new(), eos: String::new(), kwargs, asks: true, is_probe: false };
        Compiled::with_fuel(template.into(), fuel).render(inputs)
    }

    /// The expected texts come from transformers 5.23 with Jinja2 3.1.6.
    #[test]
    fn templates_say_what_they_say_in_python() {
        for (template, wanted) in [
            ("{{ '%s-%d' % ('a', 3) }}{{ '%05.1f%%' % 3.14159 }}{{ '%(a)s' % {'a': [1]} }}", "a-3003.1%[1]"),
            ("{{ 'x' + '%s' % none|string ~ 'c' }}{{ 7 % 3 }}", "xNonec1"),
            ("{{ 'a b c'.split(' ', maxsplit=1) }}{{ 'a b c'.rsplit(maxsplit=1) }}", "['a', 'b c']['a b', 'c']"),
            ("{{ ''|default('x', boolean=true) }}{{ q|d('y') }}{{ 'z'|int(default=5) }}{{ 'z'|float }}", "xy50.0"),
            ("{{ 'abc'.find('c', 1) }}{{ 'abcb'.rindex('b') }}{{ '-7'.zfill(4) }}{{ [3, 1].index(1) }}", "23-0071"),
            (
                "{{ 'ab'|center(5) }}|{{ 'ab'.center(5, '*') }}|{{ 'abc def ghi jkl'|truncate(8) }}",
                "  ab |**ab*|abc...",
            ),
            (
                r#"{{ '\U0001F600|\U00000041\\U0001F600' }}{{ "\U00000022" ~ '\U0000005C' }}{{ '\U0001F600'|length }}"#,
                "\u{1f600}|A\\U0001F600\"\\1",
            ),
            ("{% block b %}x{% endblock %}{{ 'a b c'|wordwrap(3) }}", "xa b\nc"),
            (
                "{{ '0x1f'|int(base=16) }},{{ '-1F'|int(0, 16) }},{{ '0b11'|int(base=0) }},{{ 'z'|int(7, 8) }},{{ '9.7'|int(base=8) }}",
                "31,-31,3,7,9",
            ),
            (
                "{{ 'a b/ü&'|urlencode }} {{ {'a': 1, 'b': 'x y/'}|urlencode }} {{ [('q', 'ä+')]|urlencode }}",
                "a%20b/%C3%BC%26 a=1&b=x+y%2F q=%C3%A4%2B",
            ),
            ("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}", "aba"),
            ("{% set j = joiner(', ') %}{{ j() }}a{{ j() }}b", "a, b"),
            ("{{ [q] }}{{ [{'a': 1}, {}]|map(attribute='a')|list }}", "[Undefined][1, Undefined]"),
            // An empty generator is true, and can be iterated once.
            ("{% set g = [1, 3]|select('even') %}{{ 'y' if g else 'n' }}{{ g is iterable }}", "yTrue"),
            ("{% set g = [2, 4]|select('even') %}{{ g|join }}{{ g|join }}", "24"),
            (
                "{% for x in [2, 4]|select('even') %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}",
                "2False24True2",
            ),
        ] {
            assert_eq!(rendered(template).unwrap(), wanted, "{template}");
        }
        for template in ["{{ [1].append(2) }}", "{{ 'a'.index('b') }}", "{{ 'a'.split('') }}", "{{ 'a'|center(1, 2) }}"]
        {
            assert!(matches!(rendered(template), Err(Failure::Refused(_))), "{template}");
        }
    }

    /// A model file may contain a hostile template, which must not run without end. (This is row 21 of the list of
    /// hostile files.)
    #[test]
    fn row_21_templates_without_end_are_stopped() {
        let nested = |depth: usize, open: &str, inner: &str, close: &str| {
            [&open.repeat(depth), inner, &close.repeat(depth)].concat()
        };
        for template in [
            "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
            "{% for a in range(10 ** 15) %}{% endfor %}",
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
            "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
            "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
            "{{ 'x' * 10 ** 12 }}",
            "{{ [0] * 10 ** 12 }}",
            "{{ 'a'|center(10 ** 12) }}",
            "{{ 'a'.ljust(10 ** 12) }}",
            "{{ 'a'.zfill(10 ** 12) }}",
            "{{ '%999999999999d' % 1 }}",
            "{{ '%.999999999999f' % 1.5 }}",
            "{{ '%999999999999s' % 'a' }}",
            "{{ '{:>999999999999}'.format(1) }}",
            "{{ '{:.999999999999f}'.format(1.5) }}",
            "{{ '{:{}}'.format(1, 10 ** 12) }}",
            "{{ 'a'|indent(10 ** 12, true) }}",
            "{{ 'aaaaaaaaaaaaaaaa'.replace('a', 'aaaaaaaaaaaaaaaa' * 99999) * 99 }}",
            "{{ 10 ** 10 ** 10 }}",
            "{{ {'a': 1}.items() * 100000000 }}",
            "{{ 100000000 * {'a': 1}.items() }}",
            "{{ [{'a': 1}.items() * 100000000]|tojson }}",
            &nested(100_000, "(", "1", ")"),
            &nested(100_000, "[", "", "]"),
            &nested(100_000, "{% if 1 %}", "", "{% endif %}"),
            &nested(100_000, "{{ ", "", ""),
            &format!("{{{{ 1{} }}}}", " + 1".repeat(100_000)),
            &format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
            &format!("{{{{ {}1 }}}}", "-".repeat(100_000)),
            &format!("{{{{ x{} }}}}", ".x".repeat(100_000)),
            &format!("{{{{ 'x'{} }}}}", "|upper".repeat(100_000)),
        ] {
            let shown: String = template.chars().take(60).collect();
            match rendered(template) {
                Ok(text) => assert!(text.len() < 1 << 20, "{shown}: {} bytes", text.len()),
                Err(Failure::Broken(error)) => assert!(error.to_string().len() < 300, "{shown}"),
                Err(Failure::Refused(why)) => assert!(why.len() < 300, "{shown}"),
            }
        }
    }

    /// A value with sixty levels, in which each level contains the next level twice, takes 2^60 steps to visit, but has
    /// only 120 elements in memory.
    #[test]
    fn row_21_shared_values_cost_what_a_walk_over_them_costs() {
        let makes = [
            "[ns.x, ns.x]",
            "(ns.x, ns.x)",
            "{'a': ns.x, 'b': ns.x}",
            "dict(a=ns.x, b=ns.x)",
            "{'a': ns.x, 'b': ns.x}.items()",
            "(ns.x * 2)|batch(2)|list",
            "[ns.x]|list * 2",
        ];
        let uses = [
            "{{ ns.x == ns.y }}",
            "{{ ns.y != ns.x }}",
            "{{ ns.x < ns.y }}",
            "{{ ns.x in [ns.y] }}",
            "{{ 1 if [ns.x] is eq([ns.y]) }}",
            "{{ ns.x|unique|list|length }}",
            "{{ [ns.x, ns.y]|sort|length }}",
            "{{ ns.x|string|length }}",
            "{{ ns.x|tojson|length }}",
            "{{ (ns.x ~ '')|length }}",
            "{{ ('' ~ ns.x)|length }}",
            "{{ ('%s' % ns.x)|length }}",
            "{{ 'a'.replace(ns.x, 'b') }}",
            "{{ {}[ns.x] }}",
            "{{ [ns.y].index(ns.x) }}",
            "{{ [ns.x]|select('eq', ns.y)|list|length }}",
            "{{ [ns.x]|map('string')|list|length }}",
            "{{ ns.x|pprint|length }}",
            "{{ ns.x }}",
        ];
        let mut wrong = Vec::new();
        let mut stops = |make: &str, doublings: usize, used: &str| {
            let set = |name: &str| format!("{{% set ns.{name} = {} %}}", make.replace("ns.x", &format!("ns.{name}")));
            let template = format!(
                "{{% set ns = namespace(x=[1], y=[1]) %}}{{% for i in range({doublings}) %}}{}{}{{% endfor %}}{used}",
                set("x"),
                set("y")
            );
            if !matches!(rendered_with(200_000, &template), Err(Failure::Broken(_))) {
                wrong.push(template);
            }
        };
        for make in makes {
            stops(make, 60, "{{ ns.x == ns.y }}");
        }
        // Values of 4096 elements cost little fuel to make. In these templates, a loop that never ends uses such a
        // value in each round.
        for used in uses {
            stops(makes[0], 11, &format!("{{% for i in range(99999) %}}{used}{{% endfor %}}"));
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        // The steps are enough for visiting values of ordinary size many times.
        let template = "{% set x = [[1, 2], {'a': 'b'}] %}{% for i in range(9999) %}{% if x != x or 3 in x %}n{% endif %}{% endfor %}y";
        assert_eq!(rendered(template).unwrap(), "y");
    }

    #[test]
    fn row_21_templates_reach_nothing_but_what_they_are_given() {
        for template in [
            "{{ ''.__class__.__mro__[1].__subclasses__() }}",
            "{{ messages.__init__.__globals__ }}",
            "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
            "{{ self.__init__.__globals__['__builtins__']['open']('/etc/passwd').read() }}",
            "{% include '/etc/passwd' %}",
            "{% import '/etc/passwd' as x %}",
            "{% extends '/etc/passwd' %}",
            "{{ open('/etc/passwd') }}",
            "{% call undefined() %}{% endcall %}",
            "{% unknown_statement %}",
            "{{ 'a'|unknown_filter }}",
            "{{ 'a' is unknown_test }}",
            "{{ unknown_function() }}",
        ] {
            assert!(rendered(template).is_err(), "{template}");
        }
    }
}
