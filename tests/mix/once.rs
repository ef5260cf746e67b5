//! Requests that are not mirrored: asked twice they would act twice, or rest on what the mirror does not have.

use crate::support::stage::{Proxy, backend, sim};
use crate::{AT_ONCE, post, two_threads};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";

/// What is asked once.
const ONCE: [(&str, &str); 15] = [
    (RESPONSES, r#"{"model":"m","input":"a","previous_response_id":"resp_1"}"#),
    (RESPONSES, r#"{"model":"m","input":"a","conversation":"conv_1"}"#),
    (RESPONSES, r#"{"model":"m","input":"a","conversation":{"id":"conv_1"}}"#),
    (RESPONSES, r#"{"model":"m","input":[{"type":"item_reference","id":"i"},{"role":"user","content":"a"}]}"#),
    (RESPONSES, r#"{"model":"m","input":[{"id":"msg_1"},{"role":"user","content":"a"}]}"#),
    (RESPONSES, r#"{"model":"m","input":"a","prompt":{"id":"pmpt_1"}}"#),
    (CHAT, r#"{"model":"m","messages":[{"role":"user","content":"a"}],"web_search_options":{}}"#),
    (CHAT, r#"{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"type":"web_search"}]}"#),
    (RESPONSES, r#"{"model":"m","input":"a","background":true}"#),
    (RESPONSES, r#"{"model":"m","input":"a","tools":[{"type":"function","name":"f"},{"type":"web_search"}]}"#),
    (RESPONSES, r#"{"model":"m","input":"a","tools":[{"type":"mcp","server_label":"s"}]}"#),
    (MESSAGES, r#"{"model":"m","messages":[{"role":"user","content":"a"}],"mcp_servers":[{"type":"url"}]}"#),
    (MESSAGES, r#"{"model":"m","messages":[{"role":"user","content":"a"}],"container":"c_1"}"#),
    (
        MESSAGES,
        r#"{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"type":"web_search_20250305","name":"w"}]}"#,
    ),
    (
        MESSAGES,
        r#"{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"type":"code_execution_20250825"}]}"#,
    ),
];

/// What says nothing of the kind, or that it does not want it.
const AGAIN: [(&str, &str); 5] = [
    (RESPONSES, r#"{"model":"m","input":"a"}"#),
    (
        RESPONSES,
        r#"{"model":"m","input":[{"role":"user","content":"a"}],"previous_response_id":null,"conversation":null,
            "background":false,"tools":[{"type":"function","name":"f"},{"type":"custom","name":"c"}]}"#,
    ),
    (MESSAGES, r#"{"model":"m","messages":[{"role":"user","content":"a"}],"mcp_servers":[],"container":null}"#),
    (
        MESSAGES,
        r#"{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"name":"f","input_schema":{}},
            {"type":"custom","name":"c","input_schema":{}},{"type":"bash_20250124","name":"bash"},
            {"type":"text_editor_20250728","name":"e"},{"type":"computer_20250124","name":"c"},
            {"type":"memory_20250818","name":"memory"}]}"#,
    ),
    (
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":"a"}],"background":true,"web_search_options":null,
            "tools":[{"type":"function","function":{"name":"f"}}]}"#,
    ),
];

#[test]
fn what_acts_or_rests_on_earlier_requests_is_not_mirrored() {
    let (a, b) = (sim(), sim());
    let route = "[[route]]\nmodel = \"*\"\nbackend = \"a\"\nmirror = { backend = \"b\", share = 1 }\n";
    let proxy = Proxy::start(&(two_threads("") + &backend("a", a.addr(), "") + &backend("b", b.addr(), "") + route));
    let mut client = proxy.client();
    for (path, body) in ONCE.into_iter().chain(AGAIN) {
        client.ask(post(path, &[("x-sim", AT_ONCE)], body));
    }
    let finished = proxy.finished(ONCE.len() + 2 * AGAIN.len());
    let mirrored = finished.iter().filter(|exchange| exchange.backend.as_deref() == Some("b+mirror")).count();
    assert_eq!((mirrored, a.received().len()), (AGAIN.len(), ONCE.len() + AGAIN.len()));
    // In any order: mirrored requests run beside each other.
    let mut bodies: Vec<_> = b.received().iter().map(|received| received.request.body.to_vec()).collect();
    let mut expected = AGAIN.map(|(_, body)| body.as_bytes().to_vec());
    bodies.sort();
    expected.sort();
    assert_eq!(bodies, expected);
    let scrape = proxy.idle_scrape();
    assert_eq!(scrape.sum("mirror_dropped_total", &[]), 0.0, "what is not to be mirrored is not dropped");
}
