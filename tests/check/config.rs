//! What is read before anything is asked, the forms of the report, and the exit status.

use serde_json::Value;
use streamgauge::backend::sim::{Schedule, SimConfig};

use crate::support::process::ConfigFile;
use crate::support::stage::{TO_UP, spawn};
use crate::support::upstream::Upstream;
use crate::{Asked, KEY, STEPS, check, check_with, json, run, up, upstream, upstream_but};

#[test]
fn an_upstream_that_does_all_well_passes_every_step() {
    let sim = spawn(SimConfig { models: vec!["gauge".to_owned()], ..SimConfig::default() });
    let checked = check(&format!("http://{}/v1", sim.addr()), "include_usage = true");
    checked.is_well();
    assert_eq!(checked.statuses().iter().map(|(name, _)| *name).collect::<Vec<_>>(), STEPS);
    checked
        .says("key", "ok", &format!("from UP_KEY, {} characters", KEY.len()), "")
        .says("proxy", "ok", "none: no variable names one", "")
        .says("dns", "skipped", "127.0.0.1 is an address", "")
        .says("tcp", "ok", &format!("connected to {}", sim.addr()), "")
        .says("tls", "skipped", "base_url is http", "")
        .says("models", "ok", "1 model: gauge", "")
        .says("chat", "ok", "\"gauge\" answered (tokens: 1 in, 1 out)", "")
        .says("stream", "ok", "TPOT absent: one token has no gap (finish_reason \"length\": the cap", "")
        .says("stream_options", "ok", "accepted: usage came (1 out), and include_usage asks for it", "")
        .says("completions", "ok", "TTFT ", "")
        .says("responses", "ok", "TTFT ", "")
        .says("messages", "ok", "TTFT ", "");

    let received = sim.received();
    let bodies: Vec<Value> = received.iter().filter_map(|got| serde_json::from_slice(&got.request.body).ok()).collect();
    assert_eq!((received.len(), bodies.len()), (7, 6), "a list, three chat completions, and one of each other dialect");
    assert!(bodies[..3].iter().all(|body| body["max_tokens"] == 1 && body["model"] == "gauge"), "{bodies:?}");
    let bearer = format!("Bearer {KEY}");
    assert!(received.iter().all(|got| got.request.header("authorization") == Some(&bearer)));
}

#[test]
fn the_report_in_json_has_a_fixed_form() {
    let upstream = upstream_but(Asked::Chat, json(500, "{}"));
    let checked = check(&upstream.url(), "");
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&checked.report), ["backends", "ok", "schema", "warnings"]);
    assert_eq!((&checked.report["schema"], &checked.report["warnings"]), (&Value::from(1), &Value::Array(Vec::new())));
    let backend = &checked.report["backends"][0];
    assert_eq!(keys(backend), ["backend", "base_url", "ok", "steps"]);
    assert_eq!((&backend["backend"], &backend["base_url"]), (&Value::from("up"), &Value::from(upstream.url())));
    for step in backend["steps"].as_array().expect("steps") {
        assert_eq!(keys(step), ["advice", "detail", "ms", "status", "step"]);
        let timed = step["ms"].as_f64().is_some_and(|ms| ms > 0.0);
        assert_eq!(timed, ["tcp", "models", "chat"].contains(&step["step"].as_str().expect("a name")), "{step}");
    }
}

#[test]
fn the_report_in_text_says_the_same_line_by_line() {
    let upstream =
        upstream(|asked, _| (asked == Asked::Chat).then(|| json(403, r#"{"error":{"message":"no quota"}}"#)));
    let file = ConfigFile::new(&up(&upstream.url(), ""));
    let path = file.path.display().to_string();
    let (code, out, err) = run(&["--config", &path], &[("UP_KEY", &format!("{KEY} "))]);
    assert_eq!((code, &*err), (Some(1), "error: 1 of 1 backends failed: see the advice above\n"));
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..2], ["warning:", "UP_KEY:"]);
    assert!(lines[1].is_empty());
    assert_eq!(lines[2], ["up", &upstream.url()]);
    assert_eq!(lines[3], ["config", "ok", &path]);
    let told =
        |name: &str| lines.iter().position(|line| line.first() == Some(&name)).unwrap_or_else(|| panic!("{out}"));
    assert_eq!(lines[told("chat")][1], "failed");
    assert_eq!(lines[told("chat") + 1][..3], ["→", "the", "key"]);
    let at_column_39 = |line: usize| out.lines().nth(line).and_then(|line| line.chars().nth(39));
    let (detail, advice) = (at_column_39(told("chat")), at_column_39(told("chat") + 1));
    assert_eq!((detail, advice), (Some('h'), Some('→')), "the advice stands below: {out}");
    assert_eq!(lines[told("stream")][1], "skipped");
    assert!(out.contains("answered 403 Forbidden: \"no quota\"") && !out.contains("all is well"), "{out}");
    assert!(!out.contains(&KEY[3..]));
}

#[test]
fn a_configuration_that_cannot_be_read_ends_with_2() {
    let file = ConfigFile::new("[server]\nlisen = 1\n");
    let path = file.path.display().to_string();
    let (code, out, err) = run(&["--config", &path], &[]);
    assert_eq!((code, &*out), (Some(2), ""));
    assert!(err.contains("gauge.toml:2: server.lisen: no such key; did you mean listen?"), "{err}");

    let file = ConfigFile::new(&up("http://127.0.0.1:1", ""));
    let path = file.path.display().to_string();
    let (code, out, err) = run(&["--config", &path, "--backend", "upp"], &[]);
    assert_eq!((code, &*out), (Some(2), ""));
    assert_eq!(err, "error: --backend: no backend is called \"upp\"; configured: up\n");
    assert_eq!(run(&["--format", "yaml"], &[]).0, Some(2));
}

#[test]
fn a_certificate_file_without_certificates_is_told_before_anything_is_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, "nothing").expect("written");
    check("https://127.0.0.1:1", &format!("ca_file = '{}'", file.display())).failed_at(
        "config",
        &format!("ca_file: {}: it holds no certificate; give a PEM file", file.display()),
        "streamgauge serve would not start",
    );
}

#[test]
fn a_file_that_is_no_tokenizer_is_told_as_serve_would() {
    let upstream = upstream(|_, _| None);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tokenizer.json");
    std::fs::write(&file, "nonsense").expect("written");
    check(&upstream.url(), &format!("tokenizer = '{}'", file.display())).failed_at(
        "config",
        &format!("tokenizer: {}: not a tokenizer", file.display()),
        "streamgauge serve would not start",
    );
}

#[test]
fn without_a_file_the_built_in_backend_is_checked_and_flags_come_from_variables() {
    let upstream = upstream(|_, _| None);
    let environment = [
        ("TAOTOKEN_BASE_URL", &*upstream.url()),
        ("TAOTOKEN_API_KEY", KEY),
        ("STREAMGAUGE_CHECK_FORMAT", "json"),
        ("STREAMGAUGE_CHECK_BACKEND", "taotoken"),
        ("STREAMGAUGE_CHECK_MODEL", "gpt-4o-mini"),
    ];
    let (code, out, err) = run(&[], &environment);
    assert_eq!(code, Some(0), "{out}{err}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    let steps = &report["backends"][0]["steps"];
    assert_eq!(
        (&report["backends"][0]["backend"], &steps[0]["detail"]),
        (&"taotoken".into(), &"built-in configuration".into())
    );
    assert!(steps[7]["detail"].as_str().expect("chat").starts_with("\"gpt-4o-mini\" answered"), "{steps}");
}

#[test]
fn every_backend_is_walked_or_the_named_one_alone() {
    let gone = Upstream::bind().addr();
    let sim = spawn(SimConfig { schedule: Schedule { tokens: 1, ..Schedule::default() }, ..SimConfig::default() });
    let section = |name: &str, addr| format!("[backend.{name}]\nbase_url = \"http://{addr}\"\n");
    let config = section("down", gone) + &section("up", sim.addr()) + TO_UP;
    let both = check_with(&config, &[], &[]);
    let oks = |report: &Value| {
        let backends = report["backends"].as_array().expect("backends").iter();
        backends.map(|one| (one["backend"].as_str().expect("a name").to_owned(), one["ok"] == true)).collect::<Vec<_>>()
    };
    assert_eq!(oks(&both.report), [("down".to_owned(), false), ("up".to_owned(), true)]);
    assert_eq!((both.code, &*both.stderr), (Some(1), "error: 1 of 2 backends failed: see the advice above\n"));
    let one = check_with(&config, &["--backend", "up"], &[]);
    assert_eq!(oks(&one.report), [("up".to_owned(), true)]);
    one.is_well();
    let unrouted = config.replace("backend = \"up\"", "backend = \"down\"");
    let checked = check_with(&unrouted, &["--backend", "up"], &[]);
    checked.is_well().says("config", "note", "no route leads to this backend", "backend = \"up\"");
}

#[test]
fn a_model_in_this_process_is_looked_for_and_not_loaded() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let check = |model: &str, more: &str| {
        check_with(&format!("[backend.up]\nkind = \"llama\"\nmodel = \"{model}\"\n{more}\n{TO_UP}"), &[], &[])
    };
    check(&at("none.gguf"), "").failed_at("files", "none.gguf cannot be read: No such file", "set model to");
    std::fs::write(at("a.bin"), "x").expect("written");
    check(&at("a.bin"), "").failed_at("files", "a.bin is a file, but no .gguf", "one .gguf file");
    std::fs::write(at("a.gguf"), "x").expect("written");
    check(&at("a.gguf"), "").is_well().says("files", "ok", "a.gguf, 0.0 MiB; it is not loaded here", "");
    std::fs::write(at("config.json"), "{}").expect("written");
    check(&at(""), "").failed_at("files", "holds no tokenizer.json", "repository whole");
    std::fs::write(at("tokenizer.json"), "{}").expect("written");
    check(&at(""), "").failed_at("files", "holds no .safetensors", "load = \"dummy\"");
    check(&at(""), "load = \"dummy\"").is_well();
    std::fs::write(at("model.safetensors"), "x").expect("written");
    let checked = check(&at(""), "");
    checked.is_well().says("files", "ok", "1 files of weights", "");
    assert_eq!(checked.report["backends"][0]["base_url"], Value::Null);
}
