//! Which model names may become labels.
//!
//! Invariant: no client can grow `/metrics`. A name is a label if the configuration gives it, or if the backend has
//! answered 2xx for it while there was room.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// The longest name that becomes a label, in bytes.
const LONGEST: usize = 128;

/// Labels that mean something else than a model of that name.
const RESERVED: [&str; 2] = [super::NONE, super::OTHER];

/// What a name became.
pub(super) enum Label {
    /// The name itself.
    Name(Arc<str>),
    /// `other`: not proven by a 2xx.
    Unproven,
    /// `other`: proven, but there is no room for it.
    Overflow,
}

/// The names one backend may use.
struct Names {
    most: usize,
    /// Keys are lower case: names match without regard to case.
    configured: HashMap<String, Arc<str>>,
    proven: Mutex<HashSet<Arc<str>>>,
}

/// The names of every backend.
pub(super) struct Models(HashMap<Arc<str>, Names>);

impl Models {
    /// `backends`: each one's name, the number of names it may prove, and the names the configuration gives it.
    pub(super) fn new(backends: impl IntoIterator<Item = (Arc<str>, usize, Vec<String>)>) -> Self {
        let names = |(backend, most, configured): (Arc<str>, usize, Vec<String>)| {
            let configured = configured.into_iter().map(|name| (name.to_lowercase(), Arc::from(name))).collect();
            (backend, Names { most, configured, proven: Mutex::default() })
        };
        Self(backends.into_iter().map(names).collect())
    }

    /// The label of `name` at `backend`, which has just answered 2xx for it if `succeeded`.
    pub(super) fn label(&self, backend: &str, name: &str, succeeded: bool) -> Label {
        let Some(names) = self.0.get(backend) else { return Label::Unproven };
        if RESERVED.contains(&name) {
            return Label::Unproven;
        }
        if !names.configured.is_empty()
            && let Some(configured) = names.configured.get(&name.to_lowercase())
        {
            return Label::Name(configured.clone());
        }
        let mut proven = names.proven.lock().unwrap_or_else(PoisonError::into_inner);
        match proven.get(name) {
            Some(known) => Label::Name(known.clone()),
            None if !succeeded => Label::Unproven,
            None if name.len() > LONGEST || proven.len() >= names.most => Label::Overflow,
            None => {
                let name: Arc<str> = name.into();
                proven.insert(name.clone());
                Label::Name(name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models(most: usize) -> Models {
        Models::new([(Arc::from("up"), most, vec!["Claude".to_owned()])])
    }

    fn said(models: &Models, name: &str, succeeded: bool) -> String {
        match models.label("up", name, succeeded) {
            Label::Name(name) => name.to_string(),
            Label::Unproven => "(unproven)".to_owned(),
            Label::Overflow => "(overflow)".to_owned(),
        }
    }

    #[test]
    fn configured_names_are_labels_in_their_own_spelling() {
        let models = models(0);
        assert_eq!(said(&models, "claude", false), "Claude");
        assert_eq!(said(&models, "CLAUDE", true), "Claude");
    }

    #[test]
    fn other_names_are_proven_by_success_while_there_is_room() {
        let models = models(2);
        assert_eq!(said(&models, "a", false), "(unproven)");
        assert_eq!(said(&models, "a", true), "a");
        assert_eq!(said(&models, "a", false), "a");
        assert_eq!(said(&models, "b", true), "b");
        assert_eq!(said(&models, "c", true), "(overflow)");
        assert_eq!(said(&models, "b", true), "b");
    }

    #[test]
    fn a_model_cannot_take_a_reserved_label() {
        let models = models(8);
        assert_eq!(said(&models, "other", true), "(unproven)");
        assert_eq!(said(&models, "none", true), "(unproven)");
    }

    #[test]
    fn a_name_too_long_is_never_a_label() {
        let models = models(8);
        assert_eq!(said(&models, &"x".repeat(128), true), "x".repeat(128));
        assert_eq!(said(&models, &"x".repeat(129), true), "(overflow)");
    }
}
