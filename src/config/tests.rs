use super::*;

/// An environment without a single variable.
fn empty(_: &str) -> Option<String> {
    None
}

/// An environment of these variables.
fn env<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
}

fn api(config: &Config) -> &OpenAi {
    match &config.backends[0].kind {
        BackendKind::OpenAi(api) => api,
        BackendKind::Llama(_) => panic!("not an API"),
    }
}

#[test]
fn without_a_file_the_built_in_backend_takes_everything() {
    let config = Config::default_for_env(empty).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8484");
    assert_eq!(config.server.admin.to_string(), "127.0.0.1:9464");
    assert_eq!(config.backend_names().map(|name| &**name).collect::<Vec<_>>(), ["taotoken"]);
    assert_eq!(&*config.backend_of(&config.routes[0]).name, "taotoken");
    assert_eq!(config.routes[0].model, "*");
    assert_eq!(api(&config).base_url.to_string(), "https://taotoken.net/api");
    assert!(api(&config).include_usage);
    assert_eq!(api(&config).api_key, None);
    assert_eq!(config.warnings, ["TAOTOKEN_API_KEY is not set: each client's own key passes through"]);
    let slo = |name: &str| config.slos.iter().find(|slo| slo.name == name).unwrap();
    assert_eq!(slo("interactive").ttft, Some(Duration::from_millis(450)));
    assert_eq!(slo("server").tpot, Some(Duration::from_millis(200)));
}

#[test]
fn the_environment_places_the_built_in_backend_and_gives_its_key() {
    let variables = [("TAOTOKEN_BASE_URL", "http://127.0.0.1:9100/v1/"), ("TAOTOKEN_API_KEY", "sk-1")];
    let config = Config::default_for_env(env(&variables)).unwrap();
    assert_eq!(api(&config).base_url.to_string(), "http://127.0.0.1:9100/v1");
    assert_eq!(api(&config).api_key.as_ref().map(Secret::expose), Some("sk-1"));
    assert!(config.warnings.is_empty());

    let error = Config::default_for_env(env(&[("TAOTOKEN_BASE_URL", "taotoken.net")])).unwrap_err();
    assert_eq!(error.to_string(), "TAOTOKEN_BASE_URL: the URL must start with http:// or https://");
    let error = Config::default_for_env(env(&[("TAOTOKEN_API_KEY", "sk-\u{e9}")])).unwrap_err();
    let expected = "TAOTOKEN_API_KEY: the key holds a character that no HTTP header can carry; copy it again";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let config = Config::default_for_env(env(&[("TAOTOKEN_BASE_URL", " "), ("TAOTOKEN_API_KEY", " \n")])).unwrap();
    assert_eq!(config, Config::default_for_env(empty).unwrap());
}

#[test]
fn whitespace_pasted_along_with_a_key_is_removed_and_told() {
    let config = Config::default_for_env(env(&[("TAOTOKEN_API_KEY", " sk-1\n")])).unwrap();
    assert_eq!(api(&config).api_key.as_ref().map(Secret::expose), Some("sk-1"));
    assert_eq!(config.warnings, ["TAOTOKEN_API_KEY: whitespace around the key was removed"]);
}

#[test]
fn a_key_file_may_end_its_line_but_stray_space_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let text = format!(
        "[backend.a]\nbase_url = \"https://a\"\napi_key = {{ file = '{}' }}\n[[route]]\nmodel = \"*\"\nbackend = \"a\"",
        path.display()
    );
    for (content, warnings) in [("sk-1", 0), ("sk-1\n", 0), ("sk-1\r\n", 0), ("sk-1 \n", 1), ("\nsk-1\n\n", 1)] {
        std::fs::write(&path, content).unwrap();
        let config = Config::parse("test.toml", &text, empty).unwrap();
        assert_eq!(api(&config).api_key.as_ref().map(Secret::expose), Some("sk-1"), "{content:?}");
        assert_eq!(config.warnings.len(), warnings, "{content:?}");
    }
}

#[test]
fn a_secret_is_mute() {
    let config = Config::default_for_env(env(&[("TAOTOKEN_API_KEY", "sk-hidden ")])).unwrap();
    assert_eq!(api(&config).api_key.as_ref().map(Secret::expose), Some("sk-hidden"));
    assert!(!format!("{config:?}{config:#?}").contains("hidden"));
    assert_eq!(Secret::new("sk-hidden").unwrap().to_string(), "(secret)");
}

#[test]
fn a_route_behind_the_star_is_told() {
    let text = "backend.a.base_url = \"https://a\"\n\
                [[route]]\nmodel = \"*\"\nbackend = \"a\"\n[[route]]\nmodel = \"gpt-4\"\nbackend = \"a\"\n";
    let config = Config::parse("test.toml", text, empty).unwrap();
    assert_eq!(config.warnings, ["the route for \"gpt-4\" is never used: \"*\" on line 2 wins"]);
}

#[test]
fn stickiness_without_a_choice_is_told() {
    let text = "backend.a.base_url = \"https://a\"\n[[route]]\nmodel = \"*\"\nbackend = \"a\"\nsticky = true\n";
    let config = Config::parse("test.toml", text, empty).unwrap();
    assert_eq!(config.warnings, ["sticky has no effect on the route for \"*\", which leads to one backend"]);
}

#[test]
fn records_go_to_the_users_data_directory() {
    let cases: [(&[_], _); 4] = [
        (&[("XDG_DATA_HOME", "/data"), ("HOME", "/home/a")], "/data/streamgauge/records.db"),
        (&[("HOME", "/home/a")], "/home/a/.local/share/streamgauge/records.db"),
        (&[("XDG_DATA_HOME", "relative"), ("HOME", "")], "streamgauge.db"),
        (&[], "streamgauge.db"),
    ];
    for (variables, path) in cases {
        let config = Config::parse("test.toml", "", env(variables)).unwrap();
        assert_eq!(config.records.path, Path::new(path));
    }
}

#[test]
fn base_urls_are_taken_apart_and_put_together() {
    let cases = [
        ("https://taotoken.net/api/", "taotoken.net", "https://taotoken.net/api"),
        ("HTTPS://Host.Example:443", "host.example", "https://host.example"),
        ("http://a:443/v1//", "a:443", "http://a:443/v1"),
        ("http://a:80", "a", "http://a"),
        ("http://a:", "a", "http://a"),
        ("http://127.0.0.1:9100", "127.0.0.1:9100", "http://127.0.0.1:9100"),
        ("http://[0:0::1]/x", "[::1]", "http://[::1]/x"),
        ("https://[::1]:8443", "[::1]:8443", "https://[::1]:8443"),
        (" https://a/b%20c \n", "a", "https://a/b%20c"),
        ("https://a/models", "a", "https://a/models"),
    ];
    for (text, authority, display) in cases {
        let url: BaseUrl = text.parse().unwrap();
        assert_eq!((url.authority().as_str(), url.to_string().as_str()), (authority, display), "{text}");
    }
}

#[test]
fn base_urls_that_cannot_be_used_say_why() {
    let cases = [
        ("", BadUrl::Scheme),
        ("a", BadUrl::Scheme),
        ("ws://a", BadUrl::Scheme),
        ("http://", BadUrl::NoHost),
        ("http://:80", BadUrl::NoHost),
        ("http://a:0", BadUrl::Port),
        ("http://a:+1", BadUrl::Port),
        ("http://a:65536", BadUrl::Port),
        ("http://::1", BadUrl::Host),
        ("http://[::1", BadUrl::Host),
        ("http://[::1]x", BadUrl::Host),
        ("http://[a]", BadUrl::Host),
        ("http://b\u{fc}cher", BadUrl::Host),
        ("http://u@a", BadUrl::Userinfo),
        ("http://a/?", BadUrl::Query),
        ("http://a/\"", BadUrl::Path),
        ("http://a/v1/messages/", BadUrl::Operation),
    ];
    for (text, why) in cases {
        assert_eq!(text.parse::<BaseUrl>(), Err(why), "{text}");
    }
}

/// The full example, with every key that stands commented out switched on, but for those that name files.
fn full_example() -> String {
    let mut text = String::new();
    for line in include_str!("../../config/streamgauge-full.toml").lines() {
        let key = line.strip_prefix("# ").filter(|line| {
            let name = line.split_once(" = ").map_or("", |(name, _)| name);
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        });
        let names_files = |key: &str| ["ca_file", "tokenizer", "tls"].iter().any(|name| key.starts_with(name));
        text.push_str(key.filter(|key| !names_files(key)).unwrap_or(line));
        text.push('\n');
    }
    text
}

#[test]
fn the_full_example_parses_with_every_key_switched_on() {
    let config = Config::parse("streamgauge-full.toml", &full_example(), empty).unwrap();
    assert_eq!(config.records.keep_days, Some(30));
    assert_eq!(config.backends.len(), 2);
}

#[test]
fn the_full_example_shows_every_key() {
    let example = full_example();
    let mut section = "";
    let mut shown = Vec::new();
    for line in example.lines() {
        if line.starts_with('[') {
            section = line.split(']').next().unwrap().trim_start_matches('[');
        } else if let Some((key, _)) = line.trim_start_matches("# ").split_once(" = ") {
            shown.push((section, key));
        }
    }
    let keys = [
        ("server", read::SERVER_KEYS),
        ("log", read::LOG_KEYS),
        ("records", read::RECORDS_KEYS),
        ("backend.taotoken", read_backend::OPENAI_KEYS),
        ("backend.llama2", read_backend::LLAMA_KEYS),
        ("route", read_route::ROUTE_KEYS),
        ("slo", read::SLO_KEYS),
    ];
    for (section, keys) in keys {
        for key in keys {
            assert!(shown.contains(&(section, key)), "[{section}] {key} is not shown");
        }
    }
}
