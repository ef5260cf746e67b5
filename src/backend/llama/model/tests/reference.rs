//! The same numbers as candle-transformers' Llama, in whatever pieces and company they are computed.

use candle_transformers::models::llama as reference;

use super::*;
use crate::backend::llama::model::attention::Manner;

/// What candle-transformers computes after `tokens`.
pub(super) fn expected(tiny: &Tiny, tokens: &[u32]) -> Vec<f32> {
    let config: reference::LlamaConfig = serde_json::from_value(tiny.config.clone()).expect("a configuration");
    let config = config.into_config(false);
    let vars = candle_nn::VarBuilder::from_tensors(tiny.tensors.clone(), DType::F32, &Device::Cpu);
    let model = reference::Llama::load(vars, &config).expect("a model");
    let mut cache = reference::Cache::new(true, DType::F32, &config, &Device::Cpu).expect("a cache");
    let input = Tensor::new(tokens, &Device::Cpu).and_then(|input| input.unsqueeze(0)).expect("tokens");
    let logits = model.forward(&input, 0, &mut cache).expect("logits");
    logits.squeeze(0).and_then(|logits| logits.to_vec1()).expect("numbers")
}

fn models() -> [(&'static str, Tiny); 3] {
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64});
    [
        ("multi-head", Tiny::new(4, 4, &json!({}))),
        ("grouped, tied", Tiny::new(6, 2, &json!({"tie_word_embeddings": true}))),
        ("llama3 scaling", Tiny::new(4, 2, &json!({"rope_theta": 500_000.0, "rope_scaling": llama3}))),
    ]
}

#[test]
fn logits_are_the_references() {
    for (name, tiny) in models() {
        let (mut model, _) = tiny.load();
        for len in [1, 5, 40, 200] {
            let tokens = prompt(len, 3);
            let apart = apart(&logits(&mut model, 1, 0, &tokens), &expected(&tiny, &tokens));
            assert!(apart <= 1e-4, "{name}, {len} tokens: {apart}");
        }
    }
}

#[test]
fn a_prompt_in_chunks_gives_what_it_gives_whole() {
    for (name, tiny) in models() {
        let (mut model, _) = tiny.load();
        let tokens = prompt(200, 5);
        let whole = expected(&tiny, &tokens);
        for chunk in [1, 7, 64, 150] {
            let mut last = Vec::new();
            for (index, piece) in tokens.chunks(chunk).enumerate() {
                last = logits(&mut model, 2, index * chunk, piece);
            }
            let apart = apart(&last, &whole);
            assert!(apart <= 1e-4, "{name}, chunks of {chunk}: {apart}");
        }
    }
}

#[test]
fn company_changes_nothing() {
    for (name, tiny) in models() {
        for manner in [Manner::CPU, Manner::CPU_HALVES, Manner::GPU] {
            let (mut model, _) = tiny.load();
            model.manner = manner;
            let prompts = [prompt(90, 1), prompt(3, 2), prompt(40, 3), prompt(2, 4)];
            // Staggered: slot n joins at step 2n with its prompt in two pieces, then goes on token by token.
            let mut done = [0; 4];
            for step in 0..60 {
                let mut work = Vec::new();
                for (slot, tokens) in prompts.iter().enumerate().rev() {
                    let half = tokens.len().div_ceil(2);
                    let take = if done[slot] == 0 { half } else { 1 };
                    if step >= 2 * slot && done[slot] < tokens.len() {
                        let tokens = &tokens[done[slot]..done[slot] + take];
                        work.push(Work { slot, position: done[slot], tokens, wants_logits: true });
                    }
                }
                let results = model.forward(&work).expect("a forward");
                assert_eq!(results.len(), work.len());
                for (work, logits) in work.iter().zip(&results) {
                    done[work.slot] += work.tokens.len();
                    let alone = expected(&tiny, &prompts[work.slot][..done[work.slot]]);
                    let apart = apart(logits, &alone);
                    assert!(apart <= 1e-4, "{name}, {manner:?}, step {step}, slot {}: {apart}", work.slot);
                }
            }
            assert_eq!(done.to_vec(), prompts.iter().map(Vec::len).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_row_of_a_batch_is_the_row_alone() {
    for (name, tiny) in models() {
        let (mut model, _) = tiny.load();
        let prompts = [prompt(50, 1), prompt(9, 2), prompt(50, 3), prompt(120, 4)];
        let alone: Vec<Vec<f32>> = prompts
            .iter()
            .enumerate()
            .map(|(slot, tokens)| {
                let (last, head) = tokens.split_last().expect("tokens");
                logits(&mut model, slot, 0, head);
                logits(&mut model, slot, head.len(), &[*last])
            })
            .collect();
        let work: Vec<Work<'_>> = prompts
            .iter()
            .enumerate()
            .map(|(slot, tokens)| {
                let position = tokens.len() - 1;
                Work { slot, position, tokens: &tokens[position..], wants_logits: true }
            })
            .collect();
        for (slot, together) in model.forward(&work).expect("a forward").iter().enumerate() {
            let apart = apart(together, &alone[slot]);
            assert!(apart <= 1e-5, "{name}, slot {slot}: {apart}");
        }
    }
}

#[test]
fn a_copied_slot_goes_on_as_the_first() {
    for (name, tiny) in models() {
        let (mut model, _) = tiny.load();
        let tokens = prompt(30, 6);
        logits(&mut model, 3, 0, &tokens[..29]);
        logits(&mut model, 0, 0, &prompt(200, 9));
        model.copy_slot(3, 0, 29).expect("a copy");
        let apart = apart(&logits(&mut model, 0, 29, &tokens[29..]), &expected(&tiny, &tokens));
        assert!(apart <= 1e-4, "{name}: {apart}");
    }
}

#[test]
fn logits_come_for_those_that_want_them_in_the_order_of_the_work() {
    let (_, tiny) = models().into_iter().next().expect("a model");
    let (mut model, _) = tiny.load();
    let prompts = [prompt(5, 1), prompt(1, 2), prompt(8, 3)];
    let work = [(2, false), (0, true), (1, true)].map(|(slot, wants_logits)| Work {
        slot,
        position: 0,
        tokens: &prompts[slot],
        wants_logits,
    });
    let results = model.forward(&work).expect("a forward");
    assert_eq!(results.len(), 2);
    for (slot, result) in results.iter().enumerate() {
        assert!(apart(result, &expected(&tiny, &prompts[slot])) <= 1e-4, "slot {slot}");
    }
    assert!(model.forward(&[]).expect("nothing").is_empty());
}

#[test]
fn work_that_would_touch_other_sequences_is_refused() {
    let (_, tiny) = models().into_iter().next().expect("a model");
    let (mut model, facts) = tiny.load();
    let work = |slot, position, tokens| Work { slot, position, tokens, wants_logits: true };
    for (bad, message) in [
        (vec![work(0, 0, &[])], "0 tokens at 0 of 256"),
        (vec![work(0, facts.max_context, &[1])], "1 tokens at 256 of 256"),
        (vec![work(4, 0, &[1])], "slot 4 of 4"),
        (vec![work(1, 0, &[1]), work(1, 1, &[1])], "slot 1 twice in one step"),
        (vec![work(0, 0, &[97])], "token 97 of a vocabulary of 97"),
    ] {
        let error = model.forward(&bad).expect_err("a refusal").to_string();
        assert!(error.contains(message), "{error}");
    }
    let error = model.copy_slot(0, 4, 1).expect_err("a refusal").to_string();
    assert!(error.contains("there are 4 slots"), "{error}");
}
