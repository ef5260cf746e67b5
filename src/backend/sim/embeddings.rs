//! Embeddings, `OpenAI`'s: a vector of length 1 for each input, a fixed function of its text.
//!
//! Invariant: the same input has the same vector, wherever it stands; a shorter one begins in the same directions.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::{named, parse, prompts, words};

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    #[serde(default)]
    input: Value,
    dimensions: Option<usize>,
    encoding_format: Option<Encoding>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    Float,
    Base64,
}

/// Answers a request body, and says how many tokens it had. The error is a sentence for the client.
pub(super) fn answer(body: &[u8]) -> Result<(Value, u64), String> {
    const MOST_INPUTS: usize = 2048;
    const MOST_DIMENSIONS: usize = 8192;
    /// They are made on the thread that keeps every stream's deadlines.
    const MOST_NUMBERS: usize = 1 << 20;
    const DIMENSIONS: usize = 64;
    let body: Body = parse(body, "an embeddings request")?;
    let model = named(body.model)?;
    let inputs = prompts(&body.input);
    if !(1..=MOST_INPUTS).contains(&inputs.len()) {
        return Err(format!("input must be a text or a list of 1 to {MOST_INPUTS}"));
    }
    let dimensions = body.dimensions.unwrap_or(DIMENSIONS);
    if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
        return Err(format!("dimensions must be between 1 and {MOST_DIMENSIONS}"));
    }
    if inputs.len() * dimensions > MOST_NUMBERS {
        return Err(format!("inputs times dimensions must be at most {MOST_NUMBERS}"));
    }
    let encoding = body.encoding_format.unwrap_or(Encoding::Float);
    let embedding = |(index, input): (usize, &&Value)| {
        let vector = vector(&input.to_string(), dimensions);
        json!({"object": "embedding", "index": index, "embedding": encode(&vector, encoding)})
    };
    let data: Vec<Value> = inputs.iter().enumerate().map(embedding).collect();
    let tokens = words(&body.input);
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    Ok((json!({"object": "list", "data": data, "model": model, "usage": usage}), tokens))
}

fn encode(vector: &[f32], encoding: Encoding) -> Value {
    match encoding {
        Encoding::Float => vector.into(),
        Encoding::Base64 => {
            let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
            STANDARD.encode(bytes).into()
        }
    }
}

/// Numbers from a xorshift64 that the text seeds (FNV-1a, 64 bits), brought to length 1.
fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut state = text
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3))
        | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // 16 bits, as a number from -1 up to 1.
        f32::from(u16::try_from(state >> 48).unwrap_or(0)) / 32_768.0 - 1.0
    };
    let mut vector: Vec<f32> = (0..dimensions).map(|_| next()).collect();
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    if length > 0.0 {
        for number in &mut vector {
            *number /= length;
        }
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_to(body: &Value) -> Value {
        answer(body.to_string().as_bytes()).expect("an answer").0
    }

    #[test]
    fn the_same_text_has_the_same_unit_vector_in_either_encoding() {
        let many = answer_to(&json!({"model": "m", "input": ["one two", "three", "one two"]}));
        assert_eq!(many["data"][0]["embedding"], many["data"][2]["embedding"]);
        assert_ne!(many["data"][0]["embedding"], many["data"][1]["embedding"]);
        assert_eq!(
            (&many["data"][2]["index"], &many["usage"]),
            (&json!(2), &json!({"prompt_tokens": 5, "total_tokens": 5}))
        );
        let floats: Vec<f64> =
            many["data"][1]["embedding"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        assert_eq!(floats.len(), 64);
        assert!((floats.iter().map(|number| number * number).sum::<f64>() - 1.0).abs() < 1e-4);
        let packed = answer_to(&json!({"model": "m", "input": "three", "encoding_format": "base64"}));
        let bytes = STANDARD.decode(packed["data"][0]["embedding"].as_str().expect("text")).expect("base64");
        let unpacked: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        assert_eq!(unpacked.into_iter().map(f64::from).collect::<Vec<_>>(), floats);
    }

    #[test]
    fn tokens_are_one_input_and_lists_of_them_are_many() {
        let one = answer_to(&json!({"model": "m", "input": [1, 2, 3], "dimensions": 5}));
        assert_eq!(one["data"].as_array().map(Vec::len), Some(1));
        assert_eq!(one["data"][0]["embedding"].as_array().map(Vec::len), Some(5));
        assert_eq!(one["usage"]["total_tokens"], 3);
        let two = answer_to(&json!({"model": "m", "input": [[1, 2], [3]]}));
        assert_eq!(two["data"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn what_cannot_be_embedded_is_refused() {
        for body in [
            json!({"input": "a"}),
            json!({"model": "m"}),
            json!({"model": "m", "input": []}),
            json!({"model": "m", "input": "a", "dimensions": 0}),
            json!({"model": "m", "input": "a", "encoding_format": "int8"}),
            json!({"model": "m", "input": vec!["a"; 2048], "dimensions": 8192}),
        ] {
            assert!(answer(body.to_string().as_bytes()).is_err(), "{body}");
        }
    }
}
