//! Models that do not load: one clear error, at the key, with the file and what to do.

use crate::support::process::{ConfigFile, Serve};
use crate::support::{client::Client, eventually};
use crate::{chat, dummy, post, shape};

fn refused(config: &str) -> String {
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n";
    let output = ConfigFile::new(&format!("{server}{config}")).refused();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn backend(model: &str, more: &str) -> String {
    format!(
        "[backend.own]\nkind = \"llama\"\nmodel = {model:?}\ndevice = \"cpu\"\n{more}\n[[route]]\nmodel = \"*\"\nbackend = \"own\"\n"
    )
}

#[test]
fn what_does_not_load_ends_the_start_at_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(path("gpt")).unwrap();
    std::fs::write(path("gpt/config.json"), r#"{"model_type":"gpt2","architectures":["GPT2LMHeadModel"]}"#).unwrap();
    std::fs::write(path("page.gguf"), "<!doctype html><title>sign in</title>").unwrap();
    // More K/V than any machine has memory.
    std::fs::create_dir(path("wide")).unwrap();
    let config = std::fs::read_to_string(shape().join("config.json")).unwrap();
    let wide = config.replace("\"max_position_embeddings\": 512", "\"max_position_embeddings\": 1000000");
    assert_ne!(wide, config);
    std::fs::write(path("wide/config.json"), wide).unwrap();
    let cases = [
        (backend(&path("nowhere"), ""), "model", vec!["nowhere"]),
        (backend(&path("gpt"), ""), "model", vec!["config.json", "gpt2"]),
        (backend(&path("page.gguf"), ""), "model", vec!["page.gguf"]),
        (
            backend(shape().to_str().unwrap(), "load = \"dummy\"\nmax_context = 1_000_000"),
            "max_context",
            vec!["1000000", "512"],
        ),
        (
            backend(&path("wide"), "load = \"dummy\"\nmax_sequences = 65_536\nmax_context = 1_000_000"),
            "max_sequences",
            vec!["max_sequences"],
        ),
    ];
    for (config, key, words) in cases {
        let message = refused(&config);
        assert!(message.contains(&format!("backend.own.{key}")), "{message}");
        for word in words {
            assert!(message.contains(word), "{word} is not in: {message}");
        }
        assert!(message.contains("gauge.toml:"), "no line: {message}");
    }
}

#[test]
fn a_build_without_cuda_says_so() {
    if cfg!(feature = "cuda") {
        return;
    }
    let message = refused(&backend(shape().to_str().unwrap(), "load = \"dummy\"").replace("\"cpu\"", "\"cuda:0\""));
    assert!(message.contains("backend.own.device") && message.contains("--features cuda"), "{message}");
}

#[test]
fn serve_says_what_it_loaded() {
    let serve = Serve::start(
        &format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nthreads = 1\n{}",
            dummy("max_sequences = 2\nthreads = 1")
        ),
        "text",
        &[],
    );
    let said = eventually("it is loaded", || serve.output().into_iter().find(|line| line.contains("loaded")));
    assert!(said.contains("cpu") && said.contains("K/V") && said.contains("2 sequences of 512 tokens"), "{said}");
    eventually("it is ready", || (Client::connect(serve.admin).get("/readyz").status == 200).then_some(()));
    assert_eq!(serve.client().ask(post(&chat("llama-2-x", "hello", r#""max_tokens":2"#))).status, 200);
    serve.signal("TERM");
    assert!(serve.ended().0.success());
}
