//! What cannot be served: the process says where and why, and ends with status 2.

use std::net::TcpListener;

use crate::support::process::{ConfigFile, Serve};
use crate::support::stage::{SERVER, TO_UP, one_backend};
use crate::support::upstream::Upstream;

/// Serves `text`, which must be refused on this line (`None` for none), for this key, in these words.
fn refused(text: &str, line: Option<usize>, key: &str, says: &[&str]) {
    let file = ConfigFile::new(text);
    let output = file.refused();
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(output.stdout.is_empty());
    let told = told.lines().last().expect("a message");
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    let place = format!("error: {}{line}: {key}: ", file.path.display());
    assert!(told.starts_with(&place), "{told}\nshould start with\n{place}");
    for part in says {
        assert!(told.contains(part), "{part:?} is not in: {told}");
    }
}

const UP: &str = "[backend.up]\nkind = \"openai\"\nbase_url = \"https://up.example\"\n";

#[test]
fn what_a_file_cannot_mean_is_named_by_file_line_and_key() {
    refused(
        &format!("[server]\nlisen = \"127.0.0.1:0\"\n{UP}{TO_UP}"),
        Some(2),
        "server.lisen",
        &["did you mean listen?"],
    );
    refused(
        &format!("{UP}{TO_UP}").replace("backend = \"up\"", "backend = \"upp\""),
        Some(6),
        "route.backend",
        &["\"upp\"", "configured: up"],
    );
    refused(
        &format!("{UP}{TO_UP}").replace("https://", "htp://"),
        Some(3),
        "backend.up.base_url",
        &["http:// or https://"],
    );
    refused(
        &format!("{UP}api_key = {{ file = \"no/such/key\" }}\n{TO_UP}"),
        Some(4),
        "backend.up.api_key.file",
        &["no/such/key cannot be read"],
    );
    refused(&format!("{UP}{TO_UP}{TO_UP}"), Some(8), "route.model", &["has a route above"]);
    refused(&format!("route = []\n{UP}"), Some(1), "route", &["no route leads anywhere"]);
    refused(&format!("{UP}ca_file = \"no/such/ca.pem\"\n{TO_UP}"), Some(4), "backend.up.ca_file", &["cannot be read"]);
    let twice = "[[slo]]\nname = \"a\"\nttft_ms = 1\n";
    refused(&format!("{UP}{TO_UP}{twice}{twice}"), Some(11), "slo.name", &["\"a\" is the name of a target above"]);
}

#[test]
fn a_backend_named_twice_is_refused() {
    let file = ConfigFile::new(&format!("{UP}{UP}{TO_UP}"));
    let output = file.refused();
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.starts_with(&format!("error: {}:4: ", file.path.display())), "{told}");
    assert!(told.contains("already given above"), "{told}");
}

#[test]
fn a_ca_file_without_a_certificate_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ca.pem");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (content, says) in
        [("", "holds no certificate"), ("not PEM\n", "holds no certificate"), (broken, "certificate")]
    {
        std::fs::write(&path, content).expect("written");
        let text = format!("{SERVER}{UP}ca_file = {:?}\n{TO_UP}", path.display().to_string());
        refused(&text, Some(8), "backend.up.ca_file", &[says, "PEM"]);
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let mut file = ConfigFile::new("");
    file.path.set_file_name("missing.toml");
    let output = file.refused();
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.starts_with(&format!("error: {}: ", file.path.display())), "{told}");
}

#[test]
fn a_port_in_use_is_refused_whoever_uses_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = Serve::start(&one_backend(Upstream::bind().addr(), ""), "text", &[]);
    for (address, listener) in [
        (taken.local_addr().expect("an address"), "listen"),
        (taken.local_addr().expect("an address"), "admin"),
        (other.listen, "listen"),
        (other.listen, "admin"),
        (other.admin, "listen"),
    ] {
        let (line, text) = match listener {
            "listen" => (2, SERVER.replacen("127.0.0.1:0", &address.to_string(), 1)),
            _ => (3, SERVER.replace("admin = \"127.0.0.1:0", &format!("admin = \"{address}"))),
        };
        let says = [&*address.to_string(), "in use", "choose another"];
        refused(&format!("{text}{UP}{TO_UP}"), Some(line), &format!("server.{listener}"), &says);
    }
    assert_eq!(other.client().ask(crate::request("GET", "/", &[])).status, 502, "the other still serves its port");
}

#[test]
fn a_port_in_use_that_a_flag_names_is_blamed_on_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let file = ConfigFile::new(&format!("{SERVER}{UP}{TO_UP}"));
    let output = file.serve().args(["--listen", &address]).output().expect("run");
    let told = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{told}");
    let told = told.lines().last().expect("a message");
    assert!(told.starts_with(&format!("error: --listen: cannot listen on {address}: ")), "{told}");
}
