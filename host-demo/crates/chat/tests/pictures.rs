//! Tests that pictures in conversations are placed where the model's template shows them.

use arenite::Gguf;
use arenite_chat::{Ending, Renderer, Style};
use arenite_request::{Content, Message};
use arenite_text as text;
use serde_json::{Map, Value, json};

/// The template of SmolVLM. If a message's content is one text instead of a list, the template does not show the text.
const PARTS_ONLY: &str = "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}\
    {% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}\
    {% if line['type'] == 'text' %}{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}\
    <end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";
const BOTH: &str = "{% for message in messages %}[{{ message['role'] }}]{% if message['content'] is string %}{{ message['content'] }}\
    {% else %}{% for part in message['content'] %}{% if part['type'] == 'image' or 'image_url' in part %}<|vision_start|>\
    <|image_pad|><|vision_end|>{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{% endfor %}";
const TEXT_ONLY: &str = "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}{% endfor %}";
/// Alternating authors, and no system message.
const STRICT: &str = "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
    {{ raise_exception('Roles must alternate') }}{% endif %}[{{ message['role'] }}]{% for part in message['content'] %}\
    {% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}";

fn message(role: &str, content: Value) -> Message {
    Message::with_content(role, Content::of(&content).unwrap())
}

/// Renders a conversation, and replaces its pictures by `<1>`, `<2>`, ...
fn rendered(template: &str, marker: &str, messages: &[Message]) -> Result<String, String> {
    let gguf = Gguf::parse(include_bytes!("../../../models/stories.gguf")).unwrap();
    let mut index = Vec::new();
    let tokenizer = text::tokenizer(&gguf, &mut index).unwrap();
    let renderer = Renderer::new(&gguf, &tokenizer, "auto", Some(template.to_string())).unwrap();
    let style = Style::of(&renderer, &tokenizer);
    let conversation = style.conversation(messages, &[]);
    let (prompt, _) = style.prompt(&renderer, conversation, &Map::new(), Ending::Answer)?;
    let count = prompt.pictures.len();
    let texts: Vec<String> = (1..=count).map(|number| format!("<{number}>")).collect();
    prompt.with_pictures(marker, &texts).map(|prompt| prompt.text)
}

#[test]
fn pictures_stand_where_the_template_shows_them() {
    let picture = |byte: &str| json!({ "type": "image", "base64": byte });
    let two = [
        message("user", json!([picture("AQID"), { "type": "text", "text": "One." }])),
        message("assistant", json!("Yes.")),
        message("user", json!(["And ", picture("AQIE"), picture("AQIF"), "?"])),
    ];
    let pad = "<|vision_start|><|image_pad|><|vision_end|>";
    for (template, marker, wanted) in [
        (
            PARTS_ONLY,
            "<image>",
            "<|im_start|>User:<1>One.<end_of_utterance>\nAssistant: Yes.<end_of_utterance>\nUser: And <2><3>?<end_of_utterance>\n\
             Assistant:",
        ),
        (BOTH, pad, "[user]<1>One.[assistant]Yes.[user]And <2><3>?"),
        (TEXT_ONLY, "<image>", "[user]<1>One.[assistant]Yes.[user]And <2><3>?"),
        (STRICT, "<image>", "[user]<1>One.[assistant]Yes.[user]And <2><3>?"),
    ] {
        assert_eq!(rendered(template, marker, &two).as_deref(), Ok(wanted));
    }
    // If there is no picture, content that is a text is given to the template as a text, unless the template would not
    // show it.
    let plain = [message("user", json!("Hello."))];
    assert_eq!(rendered(BOTH, pad, &plain).as_deref(), Ok("[user]Hello."));
    let kept = "<|im_start|>User: Hello.<end_of_utterance>\nAssistant:";
    assert_eq!(rendered(PARTS_ONLY, "<image>", &plain).as_deref(), Ok(kept));
    // If the template refuses system messages, their text is put before the first message's text, and their pictures
    // before its pictures.
    let system = [message("system", json!("Be kind.")), two[2].clone(), two[0].clone()];
    assert_eq!(rendered(STRICT, "<image>", &system).as_deref(), Ok("[user]Be kind.\n\nAnd <1><2>?\n\n<3>One."));
    // A request is refused if the template drops a picture.
    let dropped = "{% for message in messages %}{% if loop.last %}{{ message['content'] }}{% endif %}{% endfor %}";
    assert!(rendered(dropped, "<image>", &two).unwrap_err().contains("3 pictures"));
}
