//! Embeddings and ranked documents: replies that are one list, of any size, and know only a prompt.

use std::fmt::Write as _;

use streamgauge::measure::{Anomaly, Content, Outcome};
use streamgauge::wire::Dialect;

use super::{OK, prompt};
use crate::replay::{Case, End, nothing, stream_in};

/// A reply in one document.
fn document(dialect: Dialect, json: &str, finishes: bool) -> Case {
    let piece = nothing(json);
    let piece = if finishes { piece.finishing() } else { piece };
    Case { stream: false, content: Content::Unlabelled, ..stream_in(dialect, [piece]) }
}

fn embeddings(data: &str) -> String {
    format!(
        r#"{{"object":"list","data":[{data}],"model":"made-up-model","usage":{{"prompt_tokens":8,"total_tokens":8}}}}"#
    )
}

const ONE: &str = r#"{"object":"embedding","index":0,"embedding":[0.0023,-9.1e-3]}"#;

#[test]
fn embeddings_have_a_prompt_and_no_output() {
    for data in [ONE, r#"{"index":0,"embedding":"}]\"AACA\\"}"#, ""] {
        document(Dialect::Embeddings, &embeddings(data), true).tells(OK, 0, 0, None).usage(prompt(8)).under_every_cut();
    }
    let total = embeddings(ONE).replace(r#""prompt_tokens":8,"#, "").replace(',', ",\r\n ");
    document(Dialect::Embeddings, &total, true).tells(OK, 0, 0, None).usage(prompt(8)).under_every_cut();
    let uncounted = format!(r#"{{"data":[{ONE}]}}"#);
    document(Dialect::Embeddings, &uncounted, true).tells(OK, 0, 0, None).under_every_cut();
}

#[test]
fn ranked_documents_are_counted_in_any_of_their_forms() {
    let ranked =
        r#"[{"index":1,"relevance_score":0.98,"document":{"text":"usage"}},{"index":0,"relevance_score":0.1}]"#;
    for reply in [
        format!(r#"{{"results":{ranked},"model":"m","usage":{{"total_tokens":15}}}}"#),
        format!(r#"{{"results":{ranked},"usage":{{"prompt_tokens":15,"total_tokens":16}}}}"#),
        format!(r#"{{"data":{ranked},"object":"list","usage":{{"total_tokens":15}}}}"#),
        format!(
            r#"{{"id":"x","results":{ranked},"meta":{{"billed_units":{{"search_units":1}},"tokens":{{"input_tokens":15}}}}}}"#
        ),
    ] {
        document(Dialect::Rerank, &reply, true).tells(OK, 0, 0, None).usage(prompt(15)).under_every_cut();
    }
    // The list itself, which counts nothing, and is whole only with its end.
    for list in [ranked, " [ {\"index\":0,\r\n\"text\":\"]\\\"}\",\"score\":0.9} ]", "[]"] {
        document(Dialect::Rerank, list, true).tells(OK, 0, 0, None).under_every_cut();
        for broken in [format!("{list}]"), list.strip_suffix(']').expect("a list").to_owned()] {
            let told = document(Dialect::Rerank, &broken, false).tells(Outcome::Unconfirmed, 0, 0, None);
            told.anomaly(Anomaly::MalformedEvent, 1).under_every_cut();
        }
    }
    let units = format!(r#"{{"results":{ranked},"meta":{{"billed_units":{{"search_units":1}}}}}}"#);
    document(Dialect::Rerank, &units, true).tells(OK, 0, 0, None).under_every_cut();
}

#[test]
fn errors_and_what_is_no_answer() {
    for dialect in [Dialect::Embeddings, Dialect::Rerank] {
        let error = r#"{"error":{"message":"no","code":400}}"#;
        document(dialect, error, false).tells(Outcome::InbandError, 0, 0, None).under_every_cut();
        document(dialect, r#"{"data":null}"#, false).tells(Outcome::Unconfirmed, 0, 0, None).under_every_cut();
        document(dialect, r#"{"data":[1}"#, false)
            .tells(Outcome::Unconfirmed, 0, 0, None)
            .anomaly(Anomaly::MalformedEvent, 1)
            .under_every_cut();
        let broken = r#"{"data":[{"index":0},"#;
        document(dialect, broken, false).ending(End::Truncated).tells(Outcome::Truncated, 0, 0, None).under_every_cut();
    }
}

#[test]
fn a_reply_of_three_megabytes_is_counted_like_a_small_one() {
    // In few lines: where a body is large, only their ends are cut.
    let mut vectors = String::new();
    for index in 0..150 {
        let numbers = "-0.012345678901,".repeat(1300);
        let _ = write!(vectors, r#"{{"index":{index},"embedding":[{numbers}1]}},"#);
    }
    let data = format!("\n{vectors}{ONE}\n");
    let reply = embeddings(&data);
    assert!(reply.len() > 3_000_000);
    document(Dialect::Embeddings, &reply, true).tells(OK, 0, 0, None).usage(prompt(8)).under_every_cut();
    let ranked = reply.replace(r#""data""#, r#""results""#);
    document(Dialect::Rerank, &ranked, true).tells(OK, 0, 0, None).usage(prompt(8)).under_every_cut();
}
