//! Configuration files: every shipped and every valid one parses, every invalid one fails as its first line says.

use std::path::{Path, PathBuf};
use std::time::Duration;

use streamgauge::config::{
    BackendKind, ClientLimits, Config, Destination, Device, LogFormat, MessagesAuth, Mirror, Secret,
};

/// The environment of every test here; the real one is never read.
fn env(name: &str) -> Option<String> {
    (name == "CONTROL_CHARACTER").then(|| "sk-secret\u{7}".to_owned())
}

/// The TOML files of a folder below the crate's root, never none.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn valid(name: &str) -> Config {
    Config::load(&Path::new("tests/config/valid").join(name), env).unwrap()
}

#[test]
fn shipped_and_valid_files_parse() {
    for path in files("config").into_iter().chain(files("tests/config/valid")) {
        if let Err(error) = Config::load(&path, env) {
            panic!("{error}");
        }
    }
}

#[test]
fn invalid_files_fail_with_the_message_they_expect() {
    let mut wrong = Vec::new();
    for path in files("tests/config/invalid") {
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = text.lines().next().and_then(|line| line.strip_prefix("# expect: ")).expect("a first line");
        let name = path.file_name().unwrap().to_str().unwrap();
        match Config::parse(name, &text, env) {
            Ok(_) => wrong.push(format!("{name}: parses")),
            Err(error) if error.to_string() != expected => wrong.push(error.to_string()),
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "these differ from what their files expect:\n{}", wrong.join("\n"));
}

#[test]
fn the_shipped_default_is_what_no_file_gives() {
    let shipped = Config::load(Path::new("config/streamgauge.toml"), env).unwrap();
    assert_eq!(shipped, Config::default_for_env(env).unwrap());
}

#[test]
fn a_file_that_is_not_there_or_not_text_is_named() {
    let error = Config::load(Path::new("no/such.toml"), env).unwrap_err();
    assert!(error.to_string().starts_with("no/such.toml: the configuration file cannot be read: "), "{error}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("latin1.toml");
    std::fs::write(&path, b"# fine\n# caf\xe9\n").unwrap();
    let error = Config::load(&path, env).unwrap_err();
    let expected = format!("{}:2: the file is not UTF-8 here; save it as UTF-8", path.display());
    assert_eq!(error.to_string(), expected);
}

#[test]
fn values_arrive_as_written() {
    let config = valid("server-only.toml");
    assert_eq!(config.server.listen, "[::1]:8484".parse().unwrap());
    assert_eq!(config.server.threads, 4);
    assert!(config.server.drain_timeout.is_zero());
    assert_eq!(config.server.cors, ["https://chat.example.org", "http://localhost:3000"]);
    assert_eq!(config.server.hosts, ["gauge.example.org", "::2"]);
    assert_eq!(config.backends, Config::default_for_env(env).unwrap().backends);
    assert!(config.slos.is_empty());

    let server = valid("client-side.toml").server;
    assert_eq!(server.unix.as_deref(), Some(Path::new("/run/streamgauge.sock")));
    assert_eq!(server.tls.map(|files| files.key), Some("tests/config/key.txt".into()));
    let expected = ClientLimits {
        max_header_bytes: 8_192,
        header_timeout: Duration::from_millis(1),
        write_timeout: Duration::from_millis(2),
        max_connections: 3,
        max_in_flight: 4,
    };
    assert_eq!(server.limits, expected);

    assert_eq!(valid("bom-and-crlf.toml").log.format, LogFormat::Json);

    let config = valid("kind-left-out.toml");
    let BackendKind::OpenAi(api) = &config.backends[0].kind else { panic!("not an API") };
    assert_eq!(api.base_url.to_string(), "http://[2001:db8::1]:8080");

    let config = valid("llama.toml");
    let BackendKind::Llama(llama) = &config.backends[0].kind else { panic!("not a model") };
    assert_eq!((llama.device, llama.max_queue, llama.threads), (Device::Cuda(1), Some(0), Some(3)));

    let config = valid("key-file.toml");
    let BackendKind::OpenAi(api) = &config.backends[0].kind else { panic!("not an API") };
    assert_eq!(api.api_key.as_ref().map(Secret::expose), Some("sk-test-not-a-key"));
    assert_eq!(api.messages_auth, MessagesAuth::XApiKey);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn weights_and_mirrors_arrive_as_written() {
    let config = valid("weights.toml");
    assert!(config.server.backend_header);
    let to = |backend, weight, upstream_model: Option<&str>| Destination {
        backend,
        weight,
        upstream_model: upstream_model.map(str::to_owned),
    };
    let [spread, mirrored, rest] = &config.routes[..] else { panic!("three routes") };
    assert_eq!(spread.destinations, [to(0, 0, Some("of-all")), to(1, 9, Some("of-b")), to(2, 1, None)]);
    assert!(spread.sticky && !mirrored.sticky);
    assert_eq!(spread.first().backend, 1, "weight 0 is never the first");
    assert_eq!(&*config.backend_of(spread).name, "b");
    assert_eq!(spread.mirror, Some(Mirror { backend: 2, share: 1.0, upstream_model: None }));
    assert_eq!(mirrored.destinations, [to(0, 1, Some("of-all"))]);
    assert_eq!(mirrored.mirror, Some(Mirror { backend: 1, share: 0.25, upstream_model: Some("of-all".to_owned()) }));
    assert_eq!(rest.destinations, [to(2, 1, None)]);
    let [only] = &config.warnings[..] else { panic!("one warning: {:?}", config.warnings) };
    assert!(only.contains("sends no key: backend \"b\" has none"), "{only}");
}
