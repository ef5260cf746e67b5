use super::*;

const CHAT: &str = "/chat/completions";

#[test]
fn every_spelling_of_a_chat_completion_is_one() {
    let spellings = [
        "/v1/chat/completions",
        "/chat/completions",
        "/api/chat/completions",
        "/api/v1/chat/completions",
        "/v1/api/chat/completions",
        "/api/v1/v1/chat/completions",
        "/v1/v1/chat/completions",
        "//v1//chat//completions",
        "/v1/chat/completions/",
        "//api//v1/v1/chat/completions//",
    ];
    for path in spellings {
        let target = classify(path);
        assert_eq!((target.operation, target.rest), (Operation::Chat, CHAT), "{path}");
        assert_eq!(target.versioned, path.contains("v1"), "{path}");
        assert_eq!(target.api, path.contains("api"), "{path}");
    }
}

#[test]
fn every_operation_is_forgiven_alike() {
    for (operation, rest) in PATHS {
        for prefix in ["", "/v1", "/api", "/api/v1", "/api/v1/v1", "//v1/", "/v1/api"] {
            for suffix in ["", "/", "//"] {
                let path = format!("{prefix}{rest}{suffix}");
                let target = classify(&path);
                assert_eq!((target.operation, target.rest), (*operation, *rest), "{path}");
            }
        }
    }
}

#[test]
fn only_whole_exact_paths_are_operations() {
    let others = [
        ("/v1/chat/completions/abc", "/chat/completions/abc"),
        ("/v1/messages/count_tokens/x", "/messages/count_tokens/x"),
        ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"),
        ("/v1/models/gpt-4", "/models/gpt-4"),
        ("/v1/responses/resp_1", "/responses/resp_1"),
        ("/v1beta/chat/completions", "/v1beta/chat/completions"),
        ("/v1/v1beta/models", "/v1beta/models"),
        ("/v2/rerank", "/v2/rerank"),
        ("/apis/chat/completions", "/apis/chat/completions"),
        ("/API/chat/completions", "/API/chat/completions"),
        ("/v1/Chat/Completions", "/Chat/Completions"),
        ("/v1/chat%2Fcompletions", "/chat%2Fcompletions"),
        ("/v1/chat", "/chat"),
        ("/x/v1/chat/completions", "/x/v1/chat/completions"),
        ("/v1/files//a%20b/", "/files//a%20b/"),
        ("//files", "/files"),
        ("/health", "/health"),
        ("/", "/"),
        ("//", "/"),
        ("/v1", ""),
        ("/api", ""),
        ("/api/v1/", "/"),
        ("*", "*"),
        ("/*", "/*"),
        ("", ""),
    ];
    for (path, rest) in others {
        let target = classify(path);
        assert_eq!((target.operation, target.rest), (Operation::Other, rest), "{path}");
    }
}

#[test]
fn labels_are_the_published_ones() {
    let labels: Vec<_> = PATHS.iter().map(|(operation, _)| operation.label()).collect();
    let measured = ["chat", "completion", "responses", "messages", "embeddings", "rerank"];
    assert_eq!(labels, [&measured[..], &["other"; 3]].concat());
    assert_eq!(Operation::Other.label(), "other");
}

fn joined(base: &str, path: &str, query: Option<&str>) -> String {
    upstream_path(&base.parse().expect("a good URL"), &classify(path), query)
}

#[test]
fn an_operation_joins_the_base_without_doubling_the_version() {
    let bases = [
        ("https://taotoken.net/api", "/api/v1/chat/completions"),
        ("https://taotoken.net/api/", "/api/v1/chat/completions"),
        ("https://taotoken.net/api/v1", "/api/v1/chat/completions"),
        ("https://x", "/v1/chat/completions"),
        ("https://x/", "/v1/chat/completions"),
        ("https://x/v1", "/v1/chat/completions"),
        ("https://x/v1/", "/v1/chat/completions"),
        ("https://x/openai/v1", "/openai/v1/chat/completions"),
        ("https://x/api/paas/v4", "/api/paas/v4/chat/completions"),
        ("https://x/v1alpha2", "/v1alpha2/chat/completions"),
        ("https://x/v1beta/openai", "/v1beta/openai/chat/completions"),
        ("https://x/v1/openai", "/v1/openai/chat/completions"),
        ("https://x/vision", "/vision/v1/chat/completions"),
        ("https://x/v", "/v/v1/chat/completions"),
        ("https://x/v8engine", "/v8engine/v1/chat/completions"),
        ("https://x/a%20b", "/a%20b/v1/chat/completions"),
    ];
    for (base, path) in bases {
        for client in ["/v1/chat/completions", CHAT, "//api/v1/v1/chat/completions/"] {
            assert_eq!(joined(base, client, None), path, "{base} {client}");
        }
    }
}

#[test]
fn any_other_path_passes_as_it_was_written() {
    let cases = [
        ("https://taotoken.net/api", "/v1/files/a%2Fb//c/", "/api/v1/files/a%2Fb//c/"),
        ("https://taotoken.net/api", "/api/v1/files", "/api/v1/files"),
        ("https://taotoken.net/api", "/api/files", "/api/files"),
        ("https://taotoken.net/api", "/health", "/api/health"),
        ("https://taotoken.net/api", "/", "/api/"),
        ("https://taotoken.net/api", "/api", "/api"),
        ("https://taotoken.net/api", "/v1", "/api/v1"),
        ("http://ollama:11434", "/api/tags", "/api/tags"),
        ("http://ollama:11434", "/api/v1/files", "/api/v1/files"),
        ("http://ollama:11434", "/", "/"),
        ("http://ollama:11434", "", "/"),
        ("https://x/v1", "/", "/v1/"),
        ("https://x/v1", "/v1/models/gpt-4", "/v1/models/gpt-4"),
        ("https://x/v1", "/models/gpt-4", "/v1/models/gpt-4"),
        ("https://x", "/v1/v1beta/x", "/v1/v1beta/x"),
        ("https://x/api", "*", "*"),
        ("https://x", "/*", "/*"),
    ];
    for (base, client, path) in cases {
        assert_eq!(joined(base, client, None), path, "{base} {client}");
    }
}

#[test]
fn a_query_is_kept_byte_for_byte() {
    assert_eq!(joined("https://x", "/v1/messages", Some("beta=true")), "/v1/messages?beta=true");
    assert_eq!(joined("https://x", "/", Some("a=%2F&&b=?")), "/?a=%2F&&b=?");
    assert_eq!(joined("https://x", "/v1/models", Some("")), "/v1/models?");
}

fn router(routes: &str) -> Router {
    let backends = "[backend.a]\nbase_url = \"https://a\"\n[backend.b]\nbase_url = \"https://b\"\n";
    Router::new(&Config::parse("test.toml", &format!("{backends}{routes}"), |_| None).expect("a good configuration"))
}

fn router_of(models: &[&str]) -> Router {
    let route = |model: &&str| format!("[[route]]\nmodel = '{model}'\nbackend = \"a\"\n");
    router(&models.iter().map(route).collect::<String>())
}

#[test]
fn a_glob_matches_in_any_case_the_name_or_its_last_segment() {
    let cases = [
        ("llama-2-*", "llama-2-7b", true),
        ("llama-2-*", "meta-llama/Llama-2-7b-chat-hf", true),
        ("llama-2-*", "a/b/LLAMA-2-x", true),
        ("llama-2-*", "llama-2-a/b", true),
        ("llama-2-*", "my-llama-2-7b", false),
        ("llama-2-*", "llama-2-7b/other/x", true),
        ("Claude", "claude", true),
        ("claude", "claude-3", false),
        ("meta-llama/*", "Meta-Llama/a/b", true),
        ("meta-llama/*", "other/a", false),
        ("*", "", true),
        ("*", "a/b\n\"c\"", true),
        ("gpt-?", "gpt-4", true),
        ("gpt-?", "gpt-40", false),
        ("{a,b}-x", "b-x", true),
        ("modell-ü", "modell-ü", true),
    ];
    for (glob, model, matches) in cases {
        assert_eq!(router_of(&[glob]).route(model).is_some(), matches, "{glob} {model}");
    }
}

#[test]
fn the_first_match_wins_and_the_star_is_the_default() {
    let router = router_of(&["gpt-4", "gpt-*", "*", "never"]);
    for (model, route) in [("GPT-4", "gpt-4"), ("openai/gpt-4o", "gpt-*"), ("x", "*"), ("never", "*")] {
        assert_eq!(router.route(model).map(|route| &*route.model), Some(route), "{model}");
    }
    assert_eq!(router.default_route().map(|route| &*route.model), Some("*"));

    let router = router_of(&["gpt-*"]);
    assert_eq!(router.route("claude"), None);
    assert_eq!(router.default_route(), None);
}

#[test]
fn names_are_those_the_configuration_gives() {
    let router = router(
        "[[route]]\nmodel = \"claude\"\nbackend = \"b\"\nupstream_model = \"claude-3\"\n\
         [[route]]\nmodel = \"gpt-*\"\nbackend = \"a\"\nupstream_model = \"gpt-4o\"\n\
         [[route]]\nmodel = \"o3\"\nbackend = \"a\"\n\
         [[route]]\nmodel = \"*\"\nbackend = \"a\"\n",
    );
    assert_eq!(router.names(0).collect::<Vec<_>>(), ["o3", "gpt-4o"]);
    assert_eq!(router.names(1).collect::<Vec<_>>(), ["claude", "claude-3"]);
    assert_eq!(router.named().map(|route| &*route.model).collect::<Vec<_>>(), ["claude", "o3"]);
    assert_eq!(router.routes().count(), 4);
}

#[test]
fn names_of_several_backends_and_of_mirrors_are_kept_apart() {
    let router = router(
        "[[route]]\nmodel = \"claude\"\nupstream_model = \"claude-3\"\n\
         backend = [{ name = \"a\", weight = 0 }, { name = \"b\", upstream_model = \"claude-4\" }]\n\
         [[route]]\nmodel = \"gpt-*\"\nbackend = \"a\"\nmirror = { backend = \"b\", share = 1, upstream_model = \"x\" }\n\
         [[route]]\nmodel = \"o3\"\nbackend = \"a\"\nmirror = { backend = \"a\", share = 1 }\n\
         [[route]]\nmodel = \"*\"\nbackend = [{ name = \"a\", weight = 0 }, { name = \"b\" }]\n",
    );
    assert_eq!(router.names(0).collect::<Vec<_>>(), ["claude", "o3", "claude-3"]);
    assert_eq!(router.names(1).collect::<Vec<_>>(), ["claude", "claude-4"]);
    assert_eq!(router.mirrored_names(0).collect::<Vec<_>>(), ["o3"]);
    assert_eq!(router.mirrored_names(1).collect::<Vec<_>>(), ["x"]);
    assert_eq!(router.default_backend(), Some(1));
}
