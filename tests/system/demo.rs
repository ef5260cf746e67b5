//! `streamgauge demo` as a process: what a newcomer reads.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::client::Client;
use crate::support::process::{Killed, binary};

fn demo(folder: &tempfile::TempDir, admin: &str) -> Command {
    let mut command = binary();
    // No local model, wherever this runs.
    command.env("STREAMGAUGE_MODELS", folder.path());
    command.args(["demo", "--listen", "127.0.0.1:0", "--admin", admin]).stdout(Stdio::piped());
    command
}

#[test]
fn the_demo_names_the_live_page_first_and_ends_with_a_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = Killed(demo(&folder, "127.0.0.1:0").arg("--exit").spawn().expect("started"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    let first = lines.next().expect("a line");
    let address = first.strip_prefix("live").expect(&first).trim_start().strip_prefix("http://").expect(&first);
    let admin = address.split('/').next().expect(address).parse().expect(address);
    assert_eq!(Client::connect(admin).get("/").status, 200, "it can be opened at once");

    let lines: Vec<String> = lines.collect();
    assert!(child.0.wait().expect("over").success());
    let rows: Vec<Vec<&str>> = lines
        .iter()
        .filter(|line| ["steady", "bursty"].iter().any(|model| line.starts_with(model)) && line.contains("tok/s"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 8, "{lines:#?}");
    let ms = |cell: &str| cell.parse::<f64>().expect(cell);
    for row in &rows {
        let &[model, prompt, at_once, ok, _, all, ttft, _, _, _, tpot, _, gap, ..] = &row[..] else {
            panic!("{row:?}")
        };
        assert!(ok == all && ms(all) >= 2.0 * ms(at_once), "{row:?}");
        // What the simulation is told to take; half of it, since a busy machine may stamp the beginning late.
        let (first, per_token) = if model == "steady" { (100.0, 0.5) } else { (40.0, 0.2) };
        assert!(ms(ttft) >= 0.5 * (first + per_token * ms(prompt)), "{row:?}");
        assert!(ms(gap) >= if model == "steady" { 6.0 } else { 150.0 }, "{row:?}");
        assert!(ms(tpot) >= 6.0, "{row:?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("TTFT ")), "the terms are explained: {lines:#?}");
}

#[test]
fn a_taken_port_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let output = demo(&folder, &address).arg("--exit").stderr(Stdio::piped()).output().expect("run");
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("--admin") && told.contains(&address) && told.contains("in use"), "{told}");
}
