//! What the documents say must exist: every metric they name is one that the code registers.

use std::collections::BTreeSet;
use std::path::Path;

const DOCUMENTS: [&str; 3] = ["README.md", "ARCHITECTURE.md", "dashboards/README.md"];

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
