use super::*;

fn one(text: &str) -> Script {
    Scripts::parse(text).expect("valid script").default.expect("one script")
}

#[test]
fn everything_has_a_default() {
    assert_eq!(one(""), Script::default());
}

#[test]
fn every_key_is_read() {
    let script = one(concat!(
        "status = 429\nheaders = [[\"Retry-After\", \"2\"]]\nframing = \"length\"\nend = \"rst\"\nhead_ms = 5\n",
        "[[step]]\nsend = \"a\\u2028\\r\\n\"\n",
        "[[step]]\nsend_hex = \"EF bb\\nbf 00\"\nwait_ms = 2\nwait_us = 5\ntimes = 2\ncut = 3\ncut_wait_us = 9\nrepeat = 4\n",
    ));
    let expected = Script {
        status: 429,
        headers: vec![("Retry-After".into(), "2".into())],
        framing: Framing::Length,
        head: Duration::from_millis(5),
        steps: vec![
            Step::send("a\u{2028}\r\n"),
            Step {
                wait: Duration::from_micros(2_005),
                bytes: Bytes::from_static(b"\xef\xbb\xbf\0\xef\xbb\xbf\0"),
                cut: Some(3),
                cut_wait: Duration::from_micros(9),
                repeat: 4,
            },
        ],
        end: End::Rst,
    };
    assert_eq!(script, expected);
    assert_eq!(script.length(), script.bytes().len());
}

#[test]
fn pieces_are_the_bytes_in_order() {
    let wait = Duration::from_millis(3);
    let step = Step { wait, ..Step::send("abcdefg") }.cut_every(3, Duration::from_micros(1));
    let pieces: Vec<_> = step.pieces().collect();
    let micro = Duration::from_micros(1);
    assert_eq!(pieces, [(wait, "abc".into()), (micro, "def".into()), (micro, "g".into())]);
    assert_eq!(Step::wait(wait).pieces().collect::<Vec<_>>(), [(wait, Bytes::new())]);
}

#[test]
fn many_scripts_have_names() {
    let scripts = Scripts::parse("[script.a]\nend = \"fin\"\n[script.b]\n[[script.b.step]]\nsend = \"x\"\n");
    let scripts = scripts.expect("valid scripts");
    assert_eq!(scripts.default, None);
    assert_eq!(scripts.named["a"].end, End::Fin);
    assert_eq!(scripts.named["b"], Script::sending("x"));
}

#[test]
fn mistakes_are_named() {
    for (text, expected) in [
        ("stat = 1", "unknown field `stat`"),
        ("framing = \"gzip\"", "unknown variant `gzip`"),
        ("[[step]]\n", "step 1: it neither sends nor waits"),
        ("[[step]]\nsend = \"a\"\nsend_hex = \"00\"", "step 1: give send or send_hex, not both"),
        ("[[step]]\nsend_hex = \"0g\"", "`g` is not a hexadecimal digit"),
        ("[[step]]\nsend_hex = \"000\"", "the last byte has one digit"),
        ("[[step]]\nsend = \"a\"\ncut = 0", "cut must be at least 1"),
        ("[script.a]\n[[script.a.step]]\nwait_ms = 1\nwait = 2", "unknown field `wait`"),
        ("[script.a]\n[[script.a.step]]\n", "script `a`: step 1: it neither"),
        ("status = 200\n[script.a]", "unknown field `status`"),
    ] {
        let problem = Scripts::parse(text).expect_err(text);
        assert!(problem.contains(expected), "{text}: {problem}");
    }
}

#[test]
fn the_committed_examples_load_and_a_missing_one_is_named() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let scripts = Scripts::load(&folder).expect("valid folder");
    assert!(scripts.named.contains_key("tour"), "{:?}", scripts.named.keys());
    let missing = Scripts::load(Path::new("no/such.toml")).expect_err("missing").to_string();
    assert!(missing.starts_with("cannot read the script no/such.toml: "), "{missing}");
}
