//! What will be held in memory, decided before anything is read.

use std::collections::HashMap;

use super::parts::{Part, Role};
use super::shape::Shape;
use super::source::{Source, Stored};
use super::storage::{Held, Policy, name};
use crate::backend::llama::LoadError;
use crate::backend::llama::model::kernels::Kernels;
use crate::config::{Dtype, Quantize};

/// How every matrix is held, and what that takes.
pub(super) struct Plan {
    /// The rule.
    pub(super) policy: Policy,
    /// Every matrix but the embedding, which is held as activations are.
    pub(super) held: HashMap<Part, Held>,
    /// Bytes of all weights, with what kernels keep beside them.
    pub(super) weight_bytes: u64,
    /// How most of the matrices are held.
    pub(super) weights: String,
    /// What is done that the files do not show, each said once.
    pub(super) notes: Vec<String>,
}

impl Plan {
    /// For the weights of `source`. Errors where one is missing or has other dimensions.
    pub(super) fn new(
        source: &dyn Source,
        shape: &Shape,
        kernels: Option<Kernels>,
        dtype: Dtype,
        quantize: Option<Quantize>,
    ) -> Result<Self, LoadError> {
        let mut matrices = Vec::new();
        for layer in 0..shape.layers {
            source.need(Part::Layer(layer, Role::AttentionNorm), shape)?;
            source.need(Part::Layer(layer, Role::MlpNorm), shape)?;
            for role in Role::LINEAR {
                let part = Part::Layer(layer, role);
                matrices.push((part, source.need(part, shape)?, role.widths(shape)));
                if role.has_bias(shape) && !source.biases_are_optional() {
                    source.need(Part::Bias(layer, role), shape)?;
                }
            }
        }
        source.need(Part::FinalNorm, shape)?;
        let embedding = source.need(Part::Embedding, shape)?;
        let output = if shape.tied { embedding } else { source.need(Part::Output, shape)? };
        matrices.push((Part::Output, output, (shape.vocab_size, shape.hidden_size)));

        let stored: Vec<Stored> = matrices.iter().map(|&(_, stored, _)| stored).collect();
        let policy = Policy::new(kernels, dtype, quantize, &stored);
        let mut plan =
            Self { policy, held: HashMap::new(), weight_bytes: 0, weights: String::new(), notes: Vec::new() };
        let mut by_kind: HashMap<String, u64> = HashMap::new();
        for (part, stored, (outputs, inputs)) in matrices {
            let (held, note) = policy.hold(stored, inputs);
            plan.note(note);
            plan.held.insert(part, held);
            if part == Part::Output && shape.tied && held == Held::Dense(policy.compute()) {
                continue;
            }
            let bytes = policy.bytes(held, outputs, inputs);
            plan.weight_bytes += bytes;
            *by_kind.entry(name(held)).or_default() += bytes;
        }
        if quantize.is_some() && !matches!(dtype, Dtype::Auto | Dtype::F32) {
            plan.note(Some("quantised weights are multiplied in f32: dtype is not used".into()));
        }
        plan.weight_bytes += policy.bytes(Held::Dense(policy.compute()), small(shape), 1)
            + policy.bytes(Held::Dense(policy.compute()), shape.vocab_size, shape.hidden_size);
        let mut kinds: Vec<(String, u64)> = by_kind.into_iter().collect();
        kinds.sort_by(|(a, most), (b, least)| least.cmp(most).then_with(|| a.cmp(b)));
        plan.weights = kinds.into_iter().map(|(kind, _)| kind).collect::<Vec<_>>().join("+");
        Ok(plan)
    }

    fn note(&mut self, note: Option<String>) {
        if let Some(note) = note
            && !self.notes.contains(&note)
        {
            self.notes.push(note);
        }
    }
}

/// How many numbers norms and biases have together.
fn small(shape: &Shape) -> usize {
    let biases = Role::LINEAR.into_iter().filter(|role| role.has_bias(shape)).map(|role| role.widths(shape).0);
    shape.layers * (2 * shape.hidden_size + biases.sum::<usize>()) + shape.hidden_size
}
