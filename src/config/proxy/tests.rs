use super::*;

fn chosen(url: &str, variables: &[(&str, &str)]) -> Result<Option<Proxy>, ConfigError> {
    let env = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Proxy::for_upstream(&url.parse().unwrap(), &env)
}

/// The proxy's URL and variable.
fn named(url: &str, variables: &[(&str, &str)]) -> Option<(String, &'static str)> {
    chosen(url, variables).unwrap().map(|proxy| (proxy.to_string(), proxy.variable))
}

#[test]
fn each_scheme_has_its_variable_and_lower_case_comes_first() {
    let (s, c) = ("https://api.example", "http://api.example");
    let all = [("https_proxy", "a:1"), ("HTTPS_PROXY", "b:2"), ("http_proxy", "c:3"), ("HTTP_PROXY", "d:4")];
    assert_eq!(named(s, &all), Some(("http://a:1".to_owned(), "https_proxy")));
    assert_eq!(named(c, &all), Some(("http://c:3".to_owned(), "http_proxy")));
    assert_eq!(named(s, &all[1..]).unwrap().1, "HTTPS_PROXY");
    assert_eq!(named(c, &all[3..]).unwrap().1, "HTTP_PROXY");
    assert_eq!(named(s, &all[2..]), None, "http's variable is not for https");
    for (url, own) in [(s, "HTTPS_PROXY"), (c, "HTTP_PROXY")] {
        assert_eq!(named(url, &[("ALL_PROXY", "e:5")]).unwrap().1, "ALL_PROXY");
        assert_eq!(named(url, &[("ALL_PROXY", "e:5"), ("all_proxy", "f:6")]).unwrap().1, "all_proxy");
        assert_eq!(named(url, &[("ALL_PROXY", "e:5"), (own, "g:7")]).unwrap().1, own);
        assert_eq!(named(url, &[("ALL_PROXY", "e:5"), (own, " ")]).unwrap().1, "ALL_PROXY", "empty is unset");
        assert_eq!(named(url, &[]), None);
    }
}

#[test]
fn a_proxys_url_may_leave_out_its_scheme_and_port() {
    for (url, means) in [
        ("http://127.0.0.1:7890", "http://127.0.0.1:7890"),
        (" HTTP://Proxy.Example:8080/ ", "http://proxy.example:8080"),
        ("proxy.example", "http://proxy.example:1080"),
        ("[::1]:3128", "http://[::1]:3128"),
        ("http://u:p@[2001:db8::1]/", "http://[2001:db8::1]:1080"),
    ] {
        assert_eq!(named("https://api.example", &[("HTTPS_PROXY", url)]).unwrap().0, means, "{url}");
    }
}

#[test]
fn credentials_are_decoded_and_shown_to_nobody() {
    for (userinfo, pair) in [("u:p", "u:p"), ("us%65r:p%40s%3as", "user:p@s:s"), ("only", "only:"), ("%zz:%", "%zz:%")]
    {
        let url = format!("http://{userinfo}@proxy.example:1");
        let proxy = chosen("https://api.example", &[("HTTPS_PROXY", &url)]).unwrap().unwrap();
        let expected = format!("Basic {}", STANDARD.encode(pair));
        assert_eq!(proxy.authorization.as_ref().map(Secret::expose), Some(&*expected), "{userinfo}");
        assert!(!format!("{proxy:?} {proxy}").contains(&STANDARD.encode(pair)));
        assert_eq!(proxy.to_string(), "http://proxy.example:1");
    }
    for url in ["b:1", "http://@b:1"] {
        assert_eq!(chosen("https://a", &[("HTTPS_PROXY", url)]).unwrap().unwrap().authorization, None);
    }
}

#[test]
fn a_proxy_that_cannot_be_used_is_an_error_of_its_variable_without_its_value() {
    let tail = "; give http://host:port, http://user:password@host:port or host:port, or add api.example to NO_PROXY";
    for (url, problem) in [
        ("socks5h://u:hush@a:1", "a proxy that is spoken to by socks5h cannot be used"),
        ("https://u:hush@a:1", "a proxy that is spoken to by https cannot be used"),
        ("hush://a", "the proxy's URL has a scheme other than http"),
        ("http://u:hush@", "the proxy's URL names no usable host"),
        ("http://u:hush@a/path", "the proxy's URL names no usable host"),
        ("u:hush@a:0", "the proxy's port must be a number from 1 to 65535"),
    ] {
        let error = chosen("https://api.example", &[("all_proxy", url)]).unwrap_err();
        assert_eq!(error.to_string(), format!("all_proxy: {problem}{tail}"), "{url}");
    }
    // Nobody needs it.
    assert_eq!(chosen("https://api.example", &[("ALL_PROXY", "socks5://a"), ("NO_PROXY", "*")]), Ok(None));
    assert_eq!(chosen("https://api.example", &[("HTTP_PROXY", "socks5://a")]), Ok(None));
}

#[test]
fn no_proxy_lists_names_addresses_and_blocks() {
    let direct = [
        ("http://api.example", "*"),
        ("http://api.example", "other, *"),
        ("http://api.example", "api.example"),
        ("http://api.example", "API.Example."),
        ("http://api.example", "x,example"),
        ("http://api.example", "x .example"),
        ("http://api.example", "*.example"),
        ("http://api.example", ".api.example"),
        ("http://api.example", "api.example:80"),
        ("https://api.example:8443", ".example:8443"),
        ("http://127.0.0.1", "127.0.0.1"),
        ("http://127.0.0.1:9", "127.0.0.1:9"),
        ("http://127.0.0.1", "127.0.0.0/8"),
        ("http://10.1.2.3", "192.168.0.0/16,10.1.2.0/23"),
        ("http://10.1.2.3", "10.1.2.3/32"),
        ("http://10.1.2.3", "0.0.0.0/0"),
        ("http://[::1]", "::1"),
        ("http://[::1]", "[::1]"),
        ("http://[::1]:9", "[::1]:9"),
        ("http://[fd00::1]", "fd00::/8"),
        ("http://[fd00::1]", "::/0"),
    ];
    let proxied = [
        ("http://api.example", "pi.example"),
        ("http://api.example", "www.api.example"),
        ("http://api.example", "example.org"),
        ("http://api.example", "."),
        ("http://api.example", "*.*"),
        ("http://api.example", ",, ,"),
        ("http://api.example", "api.example:81"),
        ("http://api.example", "api.example:"),
        ("http://127.0.0.1", "localhost"),
        ("http://127.0.0.1", "0.0.1"),
        ("http://127.0.0.1", "127.0.0.1:81"),
        ("http://127.0.0.1", "127.0.0.0/33"),
        ("http://127.0.0.1", "127.0.0.0/"),
        ("http://10.1.2.3", "10.1.4.0/23"),
        ("http://10.1.2.3", "::/0"),
        ("http://[::1]", "127.0.0.1"),
        ("http://[::1]", "0.0.0.0/0"),
        ("http://[::1]", "[::1]:81"),
        ("http://[fe00::1]", "fd00::/8"),
        ("http://localhost", "127.0.0.1"),
    ];
    for (cases, expected) in [(&direct[..], false), (&proxied[..], true)] {
        for (url, list) in cases {
            for variable in ["no_proxy", "NO_PROXY"] {
                let found = chosen(url, &[("ALL_PROXY", "p:1"), (variable, list)]).unwrap();
                assert_eq!(found.is_some(), expected, "{url} with {variable}={list}");
            }
        }
    }
}
