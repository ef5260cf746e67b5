//! The prompt's length by the tokenizer, and what becomes of the text.

use serde_json::{Value, json};
use streamgauge::measure::CAP;

use super::{STREAM, Stage, TokenizerFile, content, finish, output, post, prompt};
use crate::support::client::Client;
use crate::support::metrics::Scrape;
use crate::support::process::{ConfigFile, Serve};
use crate::support::stage::{Proxy, SERVER, TO_UP, one_backend};
use crate::support::upstream::Upstream;

fn asking(messages: &Value) -> String {
    json!({"model": "m", "stream": true, "messages": messages}).to_string()
}

#[test]
fn a_prompts_words_choose_its_length_group() {
    let mut stage = Stage::new();
    let long = asking(&json!([{"role": "system", "content": "be brief"},
                              {"role": "user", "content": [{"type": "text", "text": "word ".repeat(98)}]}]));
    let exchange = stage.stream(&long, &[content("a"), content(" b"), finish(0)]);
    assert_eq!(prompt(&exchange), Some((100, "tokenizer")));
    let scrape = stage.proxy.idle_scrape();
    assert_eq!(scrape.sum("time_to_first_token_by_prompt_seconds_count", &[("prompt", "<=128")]), 1.0);
    assert_eq!(scrape.sum("time_per_output_token_seconds_count", &[("prompt", "<=128"), ("source", "tokenizer")]), 1.0);
    assert_eq!(scrape.sum("prompt_tokens_sum", &[("source", "tokenizer")]), 100.0);
    assert_eq!(scrape.sum("tokens_total", &[("type", "input"), ("source", "tokenizer")]), 100.0);
}

#[test]
fn a_prompt_that_cannot_be_counted_is_unknown() {
    let mut stage = Stage::new();
    let image = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]);
    let large = json!([{"role": "user", "content": "x".repeat(CAP)}]);
    for request in [asking(&image), asking(&large), r#"{"model":"m","stream":true}"#.to_owned()] {
        let exchange = stage.stream(&request, &[content("a"), content(" b"), finish(0)]);
        assert_eq!((prompt(&exchange), output(&exchange)), (None, Some((2, "tokenizer"))));
    }
    let scrape = stage.proxy.idle_scrape();
    assert_eq!(scrape.sum("time_to_first_token_by_prompt_seconds_count", &[("prompt", "unknown")]), 3.0);
}

#[test]
fn a_reply_without_output_counts_no_prompt() {
    let mut stage = Stage::new();
    let exchange = stage.stream(STREAM, &[finish(0)]);
    assert_eq!((prompt(&exchange), output(&exchange)), (None, None));
}

#[test]
fn a_backend_without_a_tokenizer_counts_events() {
    let upstream = Upstream::bind();
    let proxy = Proxy::before(upstream.addr(), "");
    let client = proxy.client();
    let mut stage = Stage { proxy, upstream, client, conn: None, asked: 0 };
    let exchange = stage.stream(STREAM, &[content("one two three"), finish(0)]);
    assert_eq!((output(&exchange), prompt(&exchange)), (Some((1, "events")), None));
}

#[test]
fn neither_log_nor_metrics_hold_a_word_of_it() {
    let (upstream, file) = (Upstream::bind(), TokenizerFile::new());
    let config = one_backend(upstream.addr(), &file.key());
    let serve = Serve::start(&config, "json", &[("STREAMGAUGE_LOG", "trace")]);
    let mut client = serve.client();
    client.send(post(&asking(&json!([{"role": "user", "content": "sesame open"}]))));
    let mut conn = upstream.accept();
    conn.request();
    conn.begin_stream();
    for event in [content("sesame"), content(" street"), finish(0)] {
        conn.event(&event.to_string());
    }
    conn.end_stream();
    client.reply();
    let line = crate::support::eventually("it is logged", || serve.access_log().pop());
    assert_eq!(line["prompt_source"], "tokenizer");
    assert_eq!(
        (&line["source"], &line["output_tokens"], &line["prompt_tokens"]),
        (&json!("tokenizer"), &json!(2), &json!(2))
    );
    let row = Client::connect(serve.admin).get("/metrics");
    let seen = [String::from_utf8_lossy(&row.body).into_owned(), serve.output().join("\n")].concat();
    assert!(!seen.contains("sesame"), "{seen}");
    assert_eq!(Scrape::of(serve.admin).sum("tokens_total", &[("source", "tokenizer")]), 4.0);
}

#[test]
fn a_file_that_is_no_tokenizer_is_refused_by_its_key() {
    for text in ["", "{}", "not JSON", "version https://git-lfs.github.com/spec/v1\n"] {
        let file = TokenizerFile::holding(text);
        let up = "[backend.up]\nkind = \"openai\"\nbase_url = \"https://up.example\"\n";
        let config = ConfigFile::new(&format!("{SERVER}{up}{}\n{TO_UP}", file.key()));
        let output = config.refused();
        let told = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{told}");
        let place = format!("error: {}:8: backend.up.tokenizer: {}: ", config.path.display(), file.path.display());
        assert!(told.contains(&place) && told.contains("tokenizer.json"), "{told}\nshould say\n{place}");
    }
}
