//! The chat template: a conversation → one prompt text.
//!
//! Templates are Jinja as Hugging Face runs it, Python's string methods included. A model without one is taken for
//! Llama 2.

use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};

use super::date::strftime;
use crate::backend::llama::call::{BadCall, Message, crop};

mod json;
mod llama2;

/// The most steps of a template.
const FUEL: u64 = 20_000_000;

const NAME: &str = "chat_template";
/// How much a template may say of messages that it refuses, in bytes: it could repeat them.
const LONGEST_REFUSAL: usize = 512;

/// How a model wants a conversation written.
pub(super) struct Template {
    kind: Kind,
    tokens: SpecialTokens,
}

enum Kind {
    Jinja(Box<Environment<'static>>),
    Llama2,
}

/// The texts of the special tokens that templates write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SpecialTokens {
    pub(super) bos: String,
    pub(super) eos: String,
    pub(super) unk: String,
    pub(super) pad: String,
}

/// What a template says of messages that it refuses, in its own words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl Template {
    /// Compiles `source`; Llama 2's own format without one. The error says where it is wrong.
    pub(super) fn new(source: Option<&str>, tokens: SpecialTokens) -> Result<Self, String> {
        let Some(source) = source else { return Ok(Self { kind: Kind::Llama2, tokens }) };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| error.to_string())?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        // A template that never ends is a damaged one; published ones take some hundred steps a message.
        environment.set_fuel(Some(FUEL));
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", |format: String| strftime(&format, SystemTime::now()));
        environment.add_filter("tojson", json::to_json);
        environment.add_template_owned(NAME, without_generation_tags(source)).map_err(|error| format!("{error:#}"))?;
        Ok(Self { kind: Kind::Jinja(Box::new(environment)), tokens })
    }

    /// The prompt that asks for the next answer in `messages`.
    pub(super) fn render(&self, messages: &[Message]) -> Result<String, BadCall> {
        let environment = match &self.kind {
            Kind::Jinja(environment) => environment,
            Kind::Llama2 => return llama2::render(messages, &self.tokens),
        };
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| context! { role => message.role.as_str(), content => message.content.as_str() })
            .collect();
        let context = context! {
            messages,
            add_generation_prompt => true,
            tools => (),
            documents => (),
            bos_token => self.tokens.bos.as_str(),
            eos_token => self.tokens.eos.as_str(),
            unk_token => self.tokens.unk.as_str(),
            pad_token => self.tokens.pad.as_str(),
        };
        let rendered = environment.get_template(NAME).and_then(|template| template.render(context));
        rendered.map_err(|error| BadCall { param: Some("messages".to_owned()), message: refusal(&error) })
    }
}

/// The template's own words where it has any.
fn refusal(error: &Error) -> String {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(Raised(words)) = error.downcast_ref() {
            return crop(words, LONGEST_REFUSAL).into_owned();
        }
        cause = error.source();
    }
    let problem = error.to_string();
    format!("the model's chat template cannot write these messages: {}", crop(&problem, LONGEST_REFUSAL))
}

fn raise_exception(words: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "refused by the template").with_source(Raised(words)))
}

/// `{% generation %}` marks what a model is trained on. It changes no text, and is no tag of Jinja's.
fn without_generation_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(len) = rest[start..].find("%}") else { break };
        let (before, tag) = rest[..start + len].split_at(start + 2);
        text.push_str(before);
        text.push_str(&match tag.trim_matches(|sign: char| sign == '-' || sign == '+' || sign.is_whitespace()) {
            "generation" => tag.replace("generation", "if true"),
            "endgeneration" => tag.replace("endgeneration", "endif"),
            _ => tag.to_owned(),
        });
        rest = &rest[start + len..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(conversation: &[(&str, &str)]) -> Vec<Message> {
        conversation
            .iter()
            .map(|&(role, content)| Message { role: role.to_owned(), content: content.to_owned() })
            .collect()
    }

    fn render(source: &str, conversation: &[(&str, &str)]) -> Result<String, BadCall> {
        let tokens = SpecialTokens { bos: "<s>".into(), eos: "</s>".into(), ..SpecialTokens::default() };
        Template::new(Some(source), tokens).expect("a template").render(&messages(conversation))
    }

    /// As `meta-llama/Llama-2-7b-chat-hf` publishes it.
    const LLAMA_2: &str = "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}\
        {% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}\
        {% set system_message = false %}{% endif %}{% for message in loop_messages %}\
        {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}\
        {% if loop.index0 == 0 and system_message != false %}\
        {% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}\
        {% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}\
        {{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}\
        {{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}";

    #[test]
    fn llama_2_as_published_and_as_the_fallback_are_the_same() {
        let fallback =
            Template::new(None, SpecialTokens { bos: "<s>".into(), eos: "</s>".into(), ..SpecialTokens::default() })
                .expect("no template");
        for conversation in [
            &[("user", " Hi ")][..],
            &[("system", "Be brief."), ("user", "Hi\n")],
            &[("system", ""), ("user", "Hi"), ("assistant", " Hello. "), ("user", "Bye")],
            &[("user", "1"), ("assistant", "2"), ("user", "3"), ("assistant", "4"), ("user", "5")],
            &[("user", "1"), ("assistant", "2")],
        ] {
            let published = render(LLAMA_2, conversation).expect("alternating");
            assert_eq!(fallback.render(&messages(conversation)).expect("alternating"), published);
        }
    }

    #[test]
    fn a_template_refuses_in_its_own_words() {
        let refused = render(LLAMA_2, &[("user", "1"), ("user", "2")]).expect_err("not alternating");
        assert_eq!(refused.message, "Conversation roles must alternate user/assistant/user/assistant/...");
        assert_eq!(refused.param.as_deref(), Some("messages"));
        let source = "{{ raise_exception('No role ' + messages[0].role) }}";
        let long = render(source, &[(&"x".repeat(9999), "")]).expect_err("refused");
        assert!(long.message.starts_with("No role xx") && long.message.len() < 600, "{long:?}");
    }

    #[test]
    fn a_failing_template_is_told_as_such() {
        let refused =
            render("{{ messages[0].content.no_such_method() }}", &[("user", "1")]).expect_err("no such method");
        assert!(refused.message.starts_with("the model's chat template cannot write these messages: "), "{refused:?}");
        assert!(Template::new(Some("{% if %}"), SpecialTokens::default()).is_err());
    }

    #[test]
    fn a_template_that_never_ends_is_ended() {
        let endless = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
        let refused = render(endless, &[("user", "1")]).expect_err("it takes too long");
        assert!(refused.message.contains("fuel"), "{refused:?}");
    }

    #[test]
    fn blocks_leave_no_blank_lines() {
        let source = "  {% for message in messages %}\n{{ message.role }}|\n  {% endfor %}\n{{ eos_token }}\n";
        assert_eq!(render(source, &[("user", ""), ("bot", "")]).unwrap(), "user|\nbot|\n</s>");
    }

    #[test]
    fn what_hugging_face_offers_is_there() {
        let source = "{%- generation -%}{{ [messages[0].content, {'b': 1}] | tojson }}{{ [1] | tojson(indent=2) }}{%- endgeneration -%}\
            {% for message in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ loop.nextitem.role }}{% endfor %}\
            {% if tools is none %}T{% endif %}{{ strftime_now('%%') }}{{ missing }}\
            {% set ns = namespace(x=1) %}{% set ns.x = 2 %}{{ ns.x }}{{ messages[0].content.split('<')[1] }}";
        assert_eq!(render(source, &[("user", "a<b"), ("x", "")]).unwrap(), "[\"a<b\", {\"b\": 1}][\n  1\n]xT%2b");
    }

    #[test]
    fn filters_bind_tighter_than_plus() {
        let source = "{%- for message in messages %}{{- '<|' + message['role'] + '|>\n\n' + message['content'] | trim + \
            '<|eot|>' }}{% endfor %}";
        assert_eq!(
            render(source, &[("user", " a "), ("bot", "b\n")]).unwrap(),
            "<|user|>\n\na<|eot|><|bot|>\n\nb<|eot|>"
        );
    }
}
