use super::*;

/// An environment without a single variable.
fn empty(_: &str) -> Option<String> {
    None
}

#[test]
fn smoke() {
    let config = Config::default_for_env(empty).unwrap();
    assert_eq!(config.warnings.len(), 1);
}
