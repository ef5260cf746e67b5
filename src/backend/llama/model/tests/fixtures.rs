//! The same tokens and logits as Hugging Face transformers, on the models in `tests/llama/fixtures`.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Case {
    prompt: Vec<u32>,
    greedy: Vec<u32>,
    logits: Vec<f32>,
}

#[test]
fn transformers_says_the_same() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/llama/fixtures");
    let models = fs::read_dir(&fixtures).expect("fixtures").map(|entry| entry.expect("an entry").path());
    let mut models: Vec<PathBuf> = models.filter(|path| path.is_dir()).collect();
    models.sort();
    assert!(models.len() >= 5, "fixtures are missing");
    for path in models {
        let cases = fs::read(path.join("expected.json")).expect("what is expected");
        let cases: Vec<Case> = serde_json::from_slice(&cases).expect("cases");
        let (mut model, _) = load(&settings(path.clone()));
        for (slot, case) in cases.iter().enumerate() {
            let name = format!("{}, a prompt of {}", path.display(), case.prompt.len());
            let mut last = logits(&mut model, slot % 4, 0, &case.prompt);
            let apart = apart(&last, &case.logits);
            assert!(apart <= 1e-4, "{name}: {apart}");
            let mut tokens = Vec::new();
            while tokens.len() < case.greedy.len() {
                let token = likeliest(&last);
                last = logits(&mut model, slot % 4, case.prompt.len() + tokens.len(), &[token]);
                tokens.push(token);
            }
            assert_eq!(tokens, case.greedy, "{name}");
        }
    }
}

fn likeliest(logits: &[f32]) -> u32 {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("a vocabulary");
    u32::try_from(best).expect("small")
}
