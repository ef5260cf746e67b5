//! What the documents say must exist: every metric they name is one that the code registers.

use std::collections::BTreeSet;
use std::path::Path;

const DOCUMENTS: [&str; 4] = ["README.md", "README.zh-CN.md", "ARCHITECTURE.md", "dashboards/README.md"];

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Every `streamgauge_…` word, without what Prometheus adds to a histogram's name.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    text.match_indices("streamgauge_")
        .map(|(at, prefix)| {
            let rest = &text[at + prefix.len()..];
            let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
            ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
        })
        .collect()
}

#[test]
fn every_metric_that_a_document_names_is_registered() {
    let families = text("src/measure/metrics/families.rs");
    let mut named = 0;
    for document in DOCUMENTS {
        let text = text(document);
        for metric in metrics_in(&text) {
            assert!(families.contains(&format!("\"{metric}\"")), "{document} names streamgauge_{metric}");
            named += 1;
        }
    }
    assert!(named > 20, "only {named} names were found: the search is broken");
}

#[test]
fn a_metric_that_does_not_exist_is_found_out() {
    assert_eq!(metrics_in("rate(streamgauge_wishes_total[5m])"), BTreeSet::from(["wishes_total"]));
    assert_eq!(metrics_in("streamgauge_stall_seconds_bucket{le=\"1\"}"), BTreeSet::from(["stall_seconds"]));
    assert!(!text("src/measure/metrics/families.rs").contains("\"wishes_total\""));
}

/// A page's structure without its prose: headings' levels, commands and other fenced text without what is said beside
/// it, and of each table row how many cells it has and what stands in code.
fn skeleton(text: &str) -> Vec<String> {
    let mut fenced = false;
    text.lines()
        .filter_map(|line| {
            if line.starts_with("```") {
                fenced = !fenced;
                return Some(line.to_owned());
            }
            if fenced {
                // A remark stands after two spaces or a hash.
                let line = line.trim_start();
                let end = [" #", "  "].iter().filter_map(|mark| line.find(mark)).min().unwrap_or(line.len());
                return Some(line[..end].trim_end().to_owned()).filter(|line| !line.starts_with('#'));
            }
            if line.starts_with('#') {
                return Some("#".repeat(line.len() - line.trim_start_matches('#').len()));
            }
            line.starts_with('|').then(|| {
                let code: Vec<_> = line.split('`').skip(1).step_by(2).collect();
                format!("{} cells: {code:?}", line.replace("\\|", "").matches('|').count())
            })
        })
        .collect()
}

#[test]
fn the_chinese_readme_has_the_commands_and_tables_of_the_english_one() {
    let [english, chinese] = ["README.md", "README.zh-CN.md"].map(text);
    let [english_skeleton, chinese_skeleton] = [&english, &chinese].map(|text| skeleton(text));
    assert!(english_skeleton.len() > 100, "the structure was not found: {english_skeleton:?}");
    for (number, (english, chinese)) in english_skeleton.iter().zip(&chinese_skeleton).enumerate() {
        assert_eq!(english, chinese, "item {number} of the two pages differs");
    }
    assert_eq!(english_skeleton.len(), chinese_skeleton.len(), "one page goes on where the other ends");
    for (page, language) in [(&english, "README.zh-CN.md"), (&chinese, "README.md")] {
        assert!(page.contains(&format!("]({language})")), "the pages link to each other");
    }
    let is_chinese = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
    assert!(chinese.chars().filter(|c| is_chinese(*c)).count() > 2_000, "it is written in Chinese");
}

#[test]
fn a_missing_command_or_row_is_found_out() {
    let page = "# A\n```sh\ncargo run   # runs it\n# alone\n```\n| `a` | b |\n";
    assert_eq!(skeleton(page), ["#", "```sh", "cargo run", "```", "3 cells: [\"a\"]"]);
    for other in [
        page.replace("run ", "walk "),
        page.replace("`a`", "`c`"),
        page.replace("| b |", "|"),
        page.replace("# A", "## A"),
    ] {
        assert_ne!(skeleton(&other), skeleton(page), "{other}");
    }
    assert_eq!(skeleton(&page.replace("runs it", "tut es").replace("| b |", "| c |")), skeleton(page));
}

/// The fenced blocks of a page that are in `language`.
fn examples<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let blocks = page.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

#[test]
fn settings_that_the_readmes_show_are_well_formed() {
    for page in ["README.md", "README.zh-CN.md"].map(text) {
        let toml = examples(&page, "toml");
        assert!(toml.len() > 3, "only {} examples were found: the search is broken", toml.len());
        for example in toml {
            toml::from_str::<toml::Table>(example).unwrap_or_else(|error| panic!("{error}: {example}"));
        }
        let json = examples(&page, "json").into_iter().map(|example| serde_json::from_str(example).expect(example));
        let json: Vec<serde_json::Value> = json.collect();
        let launched = json.iter().find_map(|example| example["configurations"][0]["env"].as_object());
        let names: Vec<_> = launched.expect("a launch.json").keys().collect();
        assert_eq!(names, ["OPENAI_API_KEY", "OPENAI_BASE_URL"]);
    }
}
