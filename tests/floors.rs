//! Modules point down: reads the floors that `src/lib.rs` draws and every import in `src/`, and fails on an arrow
//! that runs up, on one between `backend` and `measure`, and on a module with a name that means nothing.
//!
//! Test code is held to the same; words in comments and strings are not imports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Modules that would collect what belongs nowhere.
const NAMELESS: [&str; 3] = ["utils", "common", "types"];

/// Modules that meet one floor up, never each other.
const APART: [&str; 2] = ["backend", "measure"];

#[test]
fn no_import_runs_up() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = std::fs::read_to_string(root.join("lib.rs")).unwrap();
    let mut files = Vec::new();
    read_sources(&root, &root, &mut files);
    assert!(files.len() > 5, "found only {} source files", files.len());
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let violations = violations(&lib, &files);
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

/// Every source file below `folder` but `main.rs` and `lib.rs`, by its path below `root`.
fn read_sources(root: &Path, folder: &Path, files: &mut Vec<(String, String)>) {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            read_sources(root, &path, files);
        } else if path.extension().is_some_and(|end| end == "rs") && name != "main.rs" && name != "lib.rs" {
            files.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// What is wrong with these sources, given as (path below `src/`, text); empty when nothing is.
fn violations(lib: &str, files: &[(&str, &str)]) -> Vec<String> {
    let floors = floors(lib);
    let mut found = Vec::new();
    for &(path, text) in files {
        let home = path.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        if path.split('/').any(|part| NAMELESS.contains(&part.trim_end_matches(".rs"))) {
            found.push(format!("{path}: a module needs a name that says what it is for"));
        }
        let Some(&floor) = floors.get(home) else {
            found.push(format!("{path}: src/lib.rs declares `{home}` on no floor"));
            continue;
        };
        for import in imports(path, text) {
            let apart = import != home && APART.contains(&home) && APART.contains(&import.as_str());
            match floors.get(import.as_str()) {
                _ if apart => found.push(format!("{path}: `{home}` imports `{import}`; they meet in `proxy`")),
                Some(&above) if above > floor => {
                    found.push(format!("{path}: `{home}` (floor {floor}) imports `{import}` (floor {above})"));
                }
                _ => {}
            }
        }
    }
    found
}

/// Each module's floor, by the comments `── floor N: …` above its declaration.
fn floors(lib: &str) -> BTreeMap<&str, u32> {
    let mut floor = None;
    let mut floors = BTreeMap::new();
    for line in lib.lines() {
        if let Some(number) = line.strip_prefix("// ── floor ").and_then(|rest| rest.split(':').next()) {
            floor = Some(number.parse().expect("a floor has a number"));
        } else if let Some(name) = line.trim_start_matches("pub ").strip_prefix("mod ") {
            let name = name.trim_end_matches([';', ' ', '{']);
            floors.insert(name, floor.unwrap_or_else(|| panic!("`{name}` is declared above the first floor")));
        }
    }
    floors
}

/// The top-level modules a file names through `crate::…` or `super::…`, braces opened.
fn imports(path: &str, text: &str) -> Vec<String> {
    let tokens = tokens(text);
    // How many modules deep the file's own module is, `src/lib.rs` being 0.
    let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').filter(|&part| part != "mod").collect();
    let mut found = Vec::new();
    // A module written out in a file (`mod tests { … }`) is one deeper; its braces are counted to see where it ends.
    let (mut depth, mut inner) = (0, Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inner.retain(|&opened| opened <= depth);
            }
            "mod" if tokens.get(at + 2).is_some_and(|token| token == "{") => inner.push(depth + 1),
            "crate" | "super" if at == 0 || tokens[at - 1] != "::" => {
                let mut up = 0;
                let mut next = at;
                while tokens.get(next).is_some_and(|token| token == "super") {
                    up += 1;
                    next += if tokens.get(next + 1).is_some_and(|token| token == "::") { 2 } else { 1 };
                }
                let top = tokens[at] == "crate" || up == parts.len() + inner.len();
                if tokens[at] == "crate" {
                    next += if tokens.get(next + 1).is_some_and(|token| token == "::") { 2 } else { 1 };
                }
                if top && next > at && tokens[next - 1] == "::" {
                    heads(&tokens[next..], &mut found);
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The first names of a path: one, or those of each branch of a brace.
fn heads(tokens: &[String], found: &mut Vec<String>) {
    if tokens.first().is_none_or(|token| token != "{") {
        found.extend(tokens.first().cloned());
        return;
    }
    let (mut depth, mut first) = (0, true);
    for token in tokens {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 1 => first = true,
            name if depth == 1 && first => {
                found.push(name.to_owned());
                first = false;
            }
            _ => {}
        }
        if depth == 0 {
            return;
        }
    }
}

/// Names, `::` and single characters; comments, strings and character literals left out.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let is = |at: usize, wanted: &str| wanted.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens: Vec<String> = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if is(at, "//") {
            at += chars[at..].iter().take_while(|&&c| c != '\n').count();
        } else if is(at, "/*") {
            let mut depth = 0;
            while at < chars.len() {
                depth += i32::from(is(at, "/*")) - i32::from(is(at, "*/"));
                at += if is(at, "/*") || is(at, "*/") { 2 } else { 1 };
                if depth == 0 {
                    break;
                }
            }
        } else if let Some(hashes) = raw_string(&chars[at..], tokens.last()) {
            let end = format!("\"{}", "#".repeat(hashes));
            at += hashes + 1;
            while at < chars.len() && !is(at, &end) {
                at += 1;
            }
            at += end.len();
        } else if c == '"' {
            at += 1;
            while at < chars.len() && chars[at] != '"' {
                at += if chars[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if c == '\'' && (is(at + 1, "\\") || is(at + 2, "'")) {
            // A character literal; a lone quote starts a lifetime.
            at += if is(at + 1, "\\") { 3 } else { 2 };
            while at < chars.len() && chars[at] != '\'' {
                at += 1;
            }
            at += 1;
        } else if word(c) {
            let end = at + chars[at..].iter().take_while(|&&c| word(c)).count();
            tokens.push(chars[at..end].iter().collect());
            at = end;
        } else {
            let wide = is(at, "::");
            if !c.is_whitespace() {
                tokens.push(if wide { "::".to_owned() } else { c.to_string() });
            }
            at += if wide { 2 } else { 1 };
        }
    }
    tokens
}

/// The hashes of a raw string's opening, where its `r` or `br` was the last token. `None` where none opens here.
fn raw_string(chars: &[char], last: Option<&String>) -> Option<usize> {
    last.filter(|token| ["r", "br", "cr"].contains(&token.as_str()))?;
    let hashes = chars.iter().take_while(|&&c| c == '#').count();
    (chars.get(hashes) == Some(&'"')).then_some(hashes)
}

/// A house of three floors to plant violations in.
const LIB: &str = "//! A house.\n\
    // ── floor 3: the story\npub mod proxy;\n\
    // ── floor 2: the parts\npub mod backend;\npub mod measure;\nmod route;\n\
    // ── floor 1: knows nothing of ours\npub mod config;\npub mod wire;\n";

fn planted(path: &str, text: &str) -> Vec<String> {
    violations(LIB, &[(path, text)])
}

#[test]
fn floors_are_read_from_the_map() {
    let floors = floors(LIB);
    assert_eq!(floors["proxy"], 3);
    assert_eq!(floors["route"], 2);
    assert_eq!(floors["wire"], 1);
    assert_eq!(floors.len(), 6);
}

#[test]
fn arrows_down_and_sideways_are_fine() {
    let fine = [
        ("proxy/mod.rs", "use crate::{backend::sim, measure, config::{Config, Route}};"),
        ("route.rs", "use crate::config::Config;\nuse crate::backend::Backend;"),
        ("config/mod.rs", "mod read;\nuse self::read::x;\nuse crate::wire;\nuse crate::config::read;"),
        ("config/read.rs", "use super::proxy;"),
        ("backend/upstream/pool.rs", "use super::super::measure;"),
        ("wire/mod.rs", "//! [`crate::proxy`] reads this.\n/* use crate::proxy; /* crate::proxy */ crate::proxy */"),
        ("wire/mod.rs", "const A: &str = \"crate::proxy\\\"crate::proxy\";\nconst B: &str = r#\"\"crate::proxy\"#;"),
        ("wire/mod.rs", "fn a<'a>(c: char) -> bool { c == '\"' || c == '\\'' }\nuse crate::config;"),
        ("wire/sse.rs", "use std::proxy;\nuse other::crate_::proxy;\nuse crate::wire::proxy;"),
        ("wire.rs", "mod tests { use super::proxy; }"),
        ("wire.rs", "pub(crate) fn proxy() {}\npub(super) mod measure_ {}"),
    ];
    for (path, text) in fine {
        assert_eq!(planted(path, text), [""; 0], "{path}: {text}");
    }
}

#[test]
fn an_arrow_that_runs_up_is_found() {
    let wrong = [
        ("wire/sse.rs", "use crate::proxy::Exchange;"),
        ("wire/sse.rs", "use crate::{config, proxy};"),
        ("wire/sse.rs", "use crate::{\n    config::{self, Config},\n    proxy::{Exchange},\n};"),
        ("wire/sse.rs", "fn f() { crate::proxy::run() }"),
        ("wire/sse.rs", "use crate :: proxy as p;"),
        ("wire/sse.rs", "pub(in crate::proxy) fn f() {}"),
        ("wire/sse.rs", "use super::super::proxy;"),
        ("wire/mod.rs", "use super::proxy;"),
        ("wire/mod.rs", "use super::{config, proxy};"),
        ("wire.rs", "use super::proxy;"),
        ("wire/mod.rs", "#[cfg(test)]\nmod tests { use crate::proxy; }"),
        ("wire/mod.rs", "mod tests { use super::super::proxy; }"),
        ("wire/mod.rs", "mod tests { fn f() {} }\nuse super::proxy;"),
        ("wire/mod.rs", "// a comment's 'quote\nfn f<'a>() {}\nuse crate::proxy;"),
        ("wire/mod.rs", "const Q: char = '\"';\nuse crate::proxy;"),
        ("wire/mod.rs", "const Q: &str = r\"\\\";\nuse crate::proxy;"),
    ];
    for (path, text) in wrong {
        assert_eq!(planted(path, text), [format!("{path}: `wire` (floor 1) imports `proxy` (floor 3)")], "{text}");
    }
    assert_eq!(planted("route.rs", "use crate::proxy;"), ["route.rs: `route` (floor 2) imports `proxy` (floor 3)"]);
}

#[test]
fn backend_and_measure_stay_apart() {
    let found = planted("backend/sim.rs", "use crate::measure::Timeline;");
    assert_eq!(found, ["backend/sim.rs: `backend` imports `measure`; they meet in `proxy`"]);
    let found = planted("measure/mod.rs", "use crate::{wire, backend};");
    assert_eq!(found, ["measure/mod.rs: `measure` imports `backend`; they meet in `proxy`"]);
}

#[test]
fn a_module_says_what_it_is_for_and_stands_on_a_floor() {
    for path in ["wire/utils.rs", "proxy/common/mod.rs", "measure/types.rs"] {
        assert_eq!(planted(path, ""), [format!("{path}: a module needs a name that says what it is for")]);
    }
    assert_eq!(planted("attic.rs", ""), ["attic.rs: src/lib.rs declares `attic` on no floor"]);
}
