//! Llama 2's conversation format, as Meta publishes it (`llama/generation.py`, `chat_completion`):
//! `<s>[INST] <<SYS>>\n…\n<</SYS>>\n\nquestion [/INST] answer </s><s>[INST] question [/INST]`.

use super::SpecialTokens;
use crate::backend::llama::call::{BadCall, Message, REPEATED, crop};

/// One side of the conversation speaking.
#[derive(PartialEq)]
enum Turn {
    User(String),
    Assistant(String),
}

/// Writes `messages`. Consecutive messages of one role are joined with a blank line.
pub(super) fn render(messages: &[Message], tokens: &SpecialTokens) -> Result<String, BadCall> {
    let mut text = String::new();
    for turn in turns(messages)? {
        match turn {
            Turn::User(question) => {
                text.extend([&tokens.bos, "[INST] ", question.trim(), " [/INST]"]);
            }
            Turn::Assistant(answer) => text.extend([" ", answer.trim(), " ", &tokens.eos]),
        }
    }
    Ok(text)
}

/// The turns, alternating, the user's first. System messages open the user's turn that follows them.
fn turns(messages: &[Message]) -> Result<Vec<Turn>, BadCall> {
    let mut turns = Vec::new();
    let mut system: Option<String> = None;
    let refuse = |at: usize, message: String| BadCall { param: Some(format!("messages[{at}].role")), message };
    for (at, Message { role, content }) in messages.iter().enumerate() {
        match role.as_str() {
            "system" => match &mut system {
                Some(before) => join(before, content),
                None => system = Some(content.clone()),
            },
            "user" => {
                let content = match system.take() {
                    Some(system) => format!("{}{content}", instructions(&system)),
                    None => content.clone(),
                };
                match turns.last_mut() {
                    Some(Turn::User(before)) => join(before, &content),
                    _ => turns.push(Turn::User(content)),
                }
            }
            "assistant" => match turns.last_mut() {
                Some(Turn::Assistant(before)) => join(before, content),
                Some(Turn::User(_)) => turns.push(Turn::Assistant(content.clone())),
                None => {
                    let problem = "a user message must come before the first assistant message in Llama 2's format";
                    return Err(refuse(at, problem.to_owned()));
                }
            },
            other => {
                let problem = format!(
                    "the role `{}` is unknown to Llama 2's format, which this model gets for want of a chat \
                     template: use system, user or assistant",
                    crop(other, REPEATED)
                );
                return Err(refuse(at, problem));
            }
        }
    }
    if let Some(system) = system {
        let content = instructions(&system);
        match turns.last_mut() {
            Some(Turn::User(before)) => join(before, &content),
            _ => turns.push(Turn::User(content)),
        }
    }
    Ok(turns)
}

fn instructions(system: &str) -> String {
    format!("<<SYS>>\n{system}\n<</SYS>>\n\n")
}

fn join(before: &mut String, content: &str) {
    before.push_str("\n\n");
    before.push_str(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(conversation: &[(&str, &str)]) -> Result<String, BadCall> {
        let messages: Vec<_> = conversation
            .iter()
            .map(|&(role, content)| Message { role: role.to_owned(), content: content.to_owned() })
            .collect();
        super::render(&messages, &SpecialTokens { bos: "<s>".into(), eos: "</s>".into(), ..SpecialTokens::default() })
    }

    #[test]
    fn a_conversation_as_meta_writes_it() {
        let text = render(&[("system", "Be brief."), ("user", " Hi "), ("assistant", " Hello. "), ("user", "Bye")]);
        let expected = "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello. </s><s>[INST] Bye [/INST]";
        // `strip` goes over the whole turn, so the space before "Hi" stays behind the system message.
        assert_eq!(text.unwrap(), expected.replace("Hi", " Hi"));
    }

    #[test]
    fn neighbours_of_one_role_are_joined() {
        let text = render(&[
            ("system", "a"),
            ("system", "b"),
            ("user", "c"),
            ("user", "d"),
            ("assistant", "e"),
            ("assistant", "f"),
            ("system", "g"),
        ]);
        assert_eq!(
            text.unwrap(),
            "<s>[INST] <<SYS>>\na\n\nb\n<</SYS>>\n\nc\n\nd [/INST] e\n\nf </s><s>[INST] <<SYS>>\ng\n<</SYS>> [/INST]"
        );
    }

    #[test]
    fn what_the_format_cannot_say_is_refused() {
        let long = render(&[(&"x".repeat(9999), "a")]).expect_err("no such role");
        assert!(long.message.len() < 300, "{long:?}");
        let unknown = render(&[("user", "a"), ("critic", "b")]).expect_err("no such role");
        assert_eq!(unknown.param.as_deref(), Some("messages[1].role"));
        assert!(unknown.message.contains("`critic`"), "{unknown:?}");
        let first = render(&[("assistant", "a")]).expect_err("nobody asked");
        assert_eq!(first.param.as_deref(), Some("messages[0].role"));
    }
}
