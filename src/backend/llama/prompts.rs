//! What a request's prompts come to: tokens that fit into the context, and the text that the output goes on from.
//!
//! Invariant: a completion's prompt and its output together are the text of all their tokens together. What a tokenizer
//! puts in front of a text's first word is dropped there, and not in front of the output's.

use std::sync::Arc;

use super::Refused;
use super::call::{Call, Input, MAX_TOKENS, Prompt};
use super::desk::Desk;
use super::text::Decoder;

/// A prompt that fits.
pub(super) struct Prepared {
    /// Its tokens, at least one, fewer than the context holds.
    pub(super) tokens: Arc<[u32]>,
    /// At most so many may follow.
    pub(super) max_tokens: usize,
    /// Turns those that follow into text.
    pub(super) decoder: Decoder,
    /// What each choice begins with. `None` unless it was asked for.
    pub(super) echo: Option<Arc<str>>,
}

impl Desk {
    /// The prompts of `call`, in order: one of a chat.
    pub(super) fn prepare(&self, call: &Call) -> Result<Vec<Prepared>, Refused> {
        match &call.input {
            Input::Chat(messages) => {
                let bytes = messages.iter().map(|message| message.content.len()).sum();
                self.refuse_what_cannot_fit("messages", bytes)?;
                let tokens = self.fitting("messages", self.text.prompt(messages)?)?;
                let left = self.facts.max_context - tokens.len();
                let max_tokens = call.limits.max_tokens.map_or(left, |most| most.min(left));
                Ok(vec![Prepared { tokens, max_tokens, decoder: self.text.decoder(), echo: None }])
            }
            Input::Completion { prompts, echo } => {
                let name = |at| if prompts.len() == 1 { "prompt".to_owned() } else { format!("prompt[{at}]") };
                let max_tokens = call.limits.max_tokens.unwrap_or(MAX_TOKENS);
                let one = |(at, prompt)| self.completion(&name(at), prompt, max_tokens, *echo);
                prompts.iter().enumerate().map(one).collect()
            }
        }
    }

    fn completion(&self, param: &str, prompt: &Prompt, max_tokens: usize, echo: bool) -> Result<Prepared, Refused> {
        let tokens = match prompt {
            Prompt::Text(text) => {
                self.refuse_what_cannot_fit(param, text.len())?;
                let bad = |message| Refused::Bad { param: Some(param.to_owned()), message };
                self.text.raw(text).map_err(|problem| bad(format!("`{param}` {problem}")))?
            }
            Prompt::Tokens(tokens) => tokens.clone(),
        };
        let tokens = self.fitting(param, tokens)?;
        self.refuse_what_cannot_end(tokens.len(), max_tokens)?;
        let mut decoder = self.text.decoder();
        let said: String = tokens.iter().map(|&token| decoder.push(token)).collect();
        let echo = echo.then(|| match prompt {
            Prompt::Text(text) => text.as_str().into(),
            Prompt::Tokens(_) => said.into(),
        });
        Ok(Prepared { tokens, max_tokens, decoder, echo })
    }

    /// OpenAI's rule: "The token count of your prompt plus `max_tokens` cannot exceed the model's context length."
    fn refuse_what_cannot_end(&self, prompt: usize, max_tokens: usize) -> Result<(), Refused> {
        let context = self.facts.max_context;
        let left = context - prompt;
        if max_tokens <= left {
            return Ok(());
        }
        let message = format!(
            "`max_tokens` is {max_tokens} (left out, it is {MAX_TOKENS}), and behind the {prompt} tokens of the prompt the \
             context of {context} (max_context) has room for {left}: ask for at most {left}"
        );
        Err(Refused::Bad { param: Some("max_tokens".to_owned()), message })
    }

    /// Refuses text of more bytes than the context's tokens can stand for, before work is put into it.
    fn refuse_what_cannot_fit(&self, param: &str, bytes: usize) -> Result<(), Refused> {
        let context = self.facts.max_context;
        if bytes <= context.saturating_mul(self.text.longest_piece()) {
            return Ok(());
        }
        let message = format!(
            "`{param}` has {bytes} bytes, more than {context} tokens of this model can stand for (max_context); send less"
        );
        Err(Refused::Bad { param: Some(param.to_owned()), message })
    }

    fn fitting(&self, param: &str, tokens: Vec<u32>) -> Result<Arc<[u32]>, Refused> {
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= self.vocab_size) {
            // Caught here, it ends one request; in the engine, all.
            return Err(Refused::Broken(format!("token {token} is beyond the model's {} tokens", self.vocab_size)));
        }
        let context = self.facts.max_context;
        if tokens.len() >= context {
            let message = format!(
                "the prompt has {} tokens and the context holds {context}, output included (max_context); send less",
                tokens.len()
            );
            return Err(Refused::Bad { param: Some(param.to_owned()), message });
        }
        Ok(tokens.into())
    }
}
