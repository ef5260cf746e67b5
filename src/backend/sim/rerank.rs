//! Reranking, as Cohere and Jina ask for it: a document's relevance is the share of the query's words that it has.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::asked::{named, parse, words};

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    query: String,
    documents: Vec<Value>,
    top_n: Option<usize>,
    #[serde(default)]
    return_documents: bool,
}

/// Answers a request body, and says how many tokens it had. The error is a sentence for the client.
pub(super) fn answer(id: &str, body: &[u8]) -> Result<(Value, u64), String> {
    let body: Body = parse(body, "a rerank request")?;
    let model = named(body.model)?;
    if body.documents.is_empty() {
        return Err("there are no documents to rank".into());
    }
    let query: BTreeSet<&str> = body.query.split_whitespace().collect();
    let relevance = |document: &Value| {
        let text = document.as_str().or(document["text"].as_str()).unwrap_or_default();
        let has: BTreeSet<&str> = text.split_whitespace().collect();
        query.intersection(&has).count() as f64 / query.len().max(1) as f64
    };
    let mut ranked: Vec<(usize, f64)> = body.documents.iter().map(relevance).enumerate().collect();
    // Stable: among equals the earlier document stays first.
    ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    ranked.truncate(body.top_n.unwrap_or(usize::MAX));
    let result = |(index, score): (usize, f64)| {
        let mut result = json!({"index": index, "relevance_score": score});
        if body.return_documents {
            let document = &body.documents[index];
            result["document"] = if document.is_string() { json!({ "text": document }) } else { document.clone() };
        }
        result
    };
    let results: Vec<Value> = ranked.into_iter().map(result).collect();
    let tokens = words(&body.query.as_str().into()) + body.documents.iter().map(words).sum::<u64>();
    let reply = json!({
        "id": id,
        "model": model,
        "results": results,
        "usage": {"total_tokens": tokens},
        "meta": {"tokens": {"input_tokens": tokens}},
    });
    Ok((reply, tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_relevant_come_first_and_ties_keep_their_order() {
        let body = json!({
            "model": "m", "query": "deep river", "top_n": 3, "return_documents": true,
            "documents": ["no", "a river", {"text": "the deep river"}, "river", "deep"],
        });
        let (reply, tokens) = answer("r", body.to_string().as_bytes()).expect("an answer");
        assert_eq!(
            reply["results"],
            json!([
                {"index": 2, "relevance_score": 1.0, "document": {"text": "the deep river"}},
                {"index": 1, "relevance_score": 0.5, "document": {"text": "a river"}},
                {"index": 3, "relevance_score": 0.5, "document": {"text": "river"}},
            ])
        );
        assert_eq!((tokens, &reply["usage"]["total_tokens"]), (10, &json!(10)));
        assert_eq!(reply["meta"]["tokens"]["input_tokens"], 10);
    }

    #[test]
    fn what_cannot_be_ranked_is_refused() {
        for body in [
            json!({"model": "m", "query": "q", "documents": []}),
            json!({"model": "m", "documents": ["a"]}),
            json!({"query": "q", "documents": ["a"]}),
        ] {
            assert!(answer("r", body.to_string().as_bytes()).is_err(), "{body}");
        }
    }
}
