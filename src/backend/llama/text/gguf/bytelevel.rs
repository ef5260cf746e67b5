//! Byte-level BPE, the kind of Llama 3 and SmolLM.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer};

use super::{Entry, Metadata};
use crate::backend::llama::LoadError;

/// How Llama 3 cuts text into words, from its `tokenizer.json`.
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How text is cut into words that are tokenized one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    Gpt2,
    SmolLm,
    Llama3,
}

/// Builds the tokenizer of `vocabulary`, and says whether BOS is added where the metadata leaves it open.
pub(super) fn build(metadata: &Metadata<'_>, vocabulary: &[Entry<'_>]) -> Result<(Tokenizer, bool), LoadError> {
    let words = match metadata.text("tokenizer.ggml.pre") {
        None | Some("default" | "gpt-2" | "gpt2") => Words::Gpt2,
        Some("smollm") => Words::SmolLm,
        Some("llama-bpe" | "llama3" | "llama-v3" | "smaug-bpe") => Words::Llama3,
        Some(other) => {
            let problem = format!(
                "its pre-tokenizer is `{other}`, which is not known here: use the model's Hugging Face directory, whose \
                 tokenizer.json says how it works"
            );
            return Err(metadata.error(problem));
        }
    };
    let key = "tokenizer.ggml.merges";
    let merges = metadata.texts(key)?.into_iter().map(|merge| {
        merge.split_once(' ').map(|(left, right)| (left.to_owned(), right.to_owned())).ok_or_else(|| {
            metadata.error(format!("`{key}` holds `{merge}`, which is no pair: convert the model again"))
        })
    });
    let merges = merges.collect::<Result<Vec<_>, _>>()?;
    let tokenizer = assemble(vocabulary, merges, words)
        .map_err(|error| metadata.error(format!("its tokenizer cannot be built: {error}")))?;
    Ok((tokenizer, words == Words::Llama3))
}

fn assemble(vocabulary: &[Entry<'_>], merges: Vec<(String, String)>, words: Words) -> tokenizers::Result<Tokenizer> {
    let ids: Vocab = (0..).zip(vocabulary).map(|(id, entry)| (entry.text.to_owned(), id)).collect();
    // Llama 3 takes a whole word that is a token before it tries to merge one.
    let bpe = BPE::builder().vocab_and_merges(ids, merges).ignore_merges(words == Words::Llama3).build()?;
    let mut tokenizer = Tokenizer::new(bpe);
    let bytes = ByteLevel::new(false, true, words != Words::Llama3);
    let pre_tokenizer: PreTokenizerWrapper = match words {
        Words::Gpt2 => bytes.into(),
        Words::SmolLm => Sequence::new(vec![Digits::new(true).into(), bytes.into()]).into(),
        Words::Llama3 => {
            let pattern = SplitPattern::Regex(LLAMA_3.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?;
            Sequence::new(vec![split.into(), bytes.into()]).into()
        }
    };
    tokenizer.with_pre_tokenizer(Some(pre_tokenizer));
    tokenizer.with_decoder(Some(ByteLevel::new(false, true, true)));
    Ok(tokenizer)
}
