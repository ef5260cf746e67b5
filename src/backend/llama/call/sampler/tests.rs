use proptest::prelude::*;

use super::*;

impl Sampler {
    /// [`Sampler::sample`] where a logit is finite.
    fn choose(&mut self, logits: &mut [f32], banned: &[u32]) -> Sampled {
        self.sample(logits, banned).expect("a finite logit")
    }
}

/// Logits whose softmax is `shares`.
fn logits(shares: &[f32]) -> Vec<f32> {
    shares.iter().map(|share| share.ln()).collect()
}

/// `count` tokens drawn from `shares`, one after the other, with one sampler.
fn draw(sampling: &Sampling, shares: &[f32], count: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(sampling, 7);
    (0..count).map(|_| sampler.choose(&mut logits(shares), &[]).token).collect()
}

/// Which tokens come up at all.
fn support(sampling: &Sampling, shares: &[f32]) -> Vec<u32> {
    let mut tokens = draw(sampling, shares, 500);
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

/// Pearson's chi-square of `tokens` against `expected` shares.
fn chi_square(tokens: &[u32], expected: &[f64]) -> f64 {
    let total: f64 = expected.iter().sum();
    (0..)
        .zip(expected)
        .filter(|(_, share)| **share > 0.0)
        .map(|(token, share)| {
            let expected = share / total * tokens.len() as f64;
            let seen = tokens.iter().filter(|&&seen| seen == token).count() as f64;
            (seen - expected).powi(2) / expected
        })
        .sum()
}

const SHARES: [f32; 5] = [0.4, 0.1, 0.3, 0.15, 0.05];

#[test]
fn tokens_come_as_often_as_they_are_likely() {
    // 4 degrees of freedom: 18.5 is passed once in a thousand; the seed is fixed, so this is no matter of luck.
    let tokens = draw(&Sampling::default(), &SHARES, 20_000);
    assert!(chi_square(&tokens, &SHARES.map(f64::from)) < 18.5);
    for temperature in [0.5, 2.0] {
        let tokens = draw(&Sampling { temperature, ..Sampling::default() }, &SHARES, 20_000);
        let expected = SHARES.map(|share| f64::from(share).powf(1.0 / f64::from(temperature)));
        assert!(chi_square(&tokens, &expected) < 18.5, "temperature {temperature}");
        assert!(chi_square(&tokens, &SHARES.map(f64::from)) > 100.0, "the test tells distributions apart");
    }
    let tokens = draw(&Sampling { top_p: 0.8, ..Sampling::default() }, &SHARES, 20_000);
    assert!(chi_square(&tokens, &[0.4, 0.0, 0.3, 0.15, 0.0]) < 13.8);
}

#[test]
fn top_p_keeps_the_fewest_that_suffice() {
    let with = |top_p| support(&Sampling { top_p, ..Sampling::default() }, &[0.5, 0.125, 0.25, 0.0625, 0.0625]);
    assert_eq!(with(0.0), [0]);
    assert_eq!(with(0.4), [0]);
    assert_eq!(with(0.51), [0, 2]);
    assert_eq!(with(0.74), [0, 2]);
    assert_eq!(with(0.76), [0, 1, 2]);
    assert_eq!(with(0.9), [0, 1, 2, 3], "of equals the lower id is kept");
    assert_eq!(with(1.0), [0, 1, 2, 3, 4]);
    for size in [3, 10, 999] {
        let flat = vec![0.1; size];
        assert_eq!(support(&Sampling { top_p: 0.0, ..Sampling::default() }, &flat), [0], "{size} equals");
    }
}

#[test]
fn top_k_and_min_p_keep_the_likeliest() {
    let with = |top_k| support(&Sampling { top_k: Some(top_k), ..Sampling::default() }, &[0.2, 0.3, 0.2, 0.2, 0.1]);
    assert_eq!(with(1), [1]);
    assert_eq!(with(3), [0, 1, 2], "of equals the lower ids are kept");
    assert_eq!(with(99), [0, 1, 2, 3, 4]);
    let with = |min_p| support(&Sampling { min_p, ..Sampling::default() }, &SHARES);
    assert_eq!(with(0.2), [0, 1, 2, 3]);
    assert_eq!(with(0.5), [0, 2]);
    assert_eq!(with(1.0), [0]);
}

#[test]
fn filters_come_one_after_the_other() {
    // Of the two likeliest the first has 4/7 = 0.57, so a nucleus of 0.5 is the first alone.
    let both = Sampling { top_k: Some(2), top_p: 0.5, ..Sampling::default() };
    assert_eq!(support(&both, &SHARES), [0]);
    assert_eq!(support(&Sampling { top_p: 0.5, ..Sampling::default() }, &SHARES), [0, 2]);
    // Temperature comes before the nucleus: heated, it takes more tokens to get there.
    let hot = Sampling { temperature: 2.0, top_p: 0.6, ..Sampling::default() };
    assert_eq!(support(&hot, &SHARES), [0, 2, 3]);
}

#[test]
fn greedy_takes_the_likeliest_and_the_lowest_id_of_equals() {
    let greedy = Sampling { temperature: 0.0, top_p: 0.01, top_k: Some(1), ..Sampling::default() };
    let mut sampler = Sampler::new(&greedy, 0);
    assert_eq!(sampler.choose(&mut [1.0, 3.0, 2.0, 3.0], &[]).token, 1);
    assert_eq!(sampler.choose(&mut [1.0, 3.0, 2.0, 3.0], &[1]).token, 3);
    assert_eq!(sampler.choose(&mut [-5.0, f32::NAN, -6.0], &[]).token, 0);
    assert_eq!(sampler.choose(&mut [f32::MAX, f32::INFINITY, 0.0], &[0]).token, 1);
}

#[test]
fn impossible_logits_panic_nowhere() {
    for temperature in [0.0, 0.01, 1.0, 2.0] {
        let sampling =
            Sampling { temperature, top_logprobs: Some(2), top_p: 0.5, top_k: Some(9), ..Sampling::default() };
        for (logits, banned, expected) in [
            (&[1.0, 1.0][..], &[0, 1][..], 0),
            (&[1.0, f32::NAN], &[0], 1),
            (&[f32::NEG_INFINITY, f32::INFINITY, 1.0], &[], 1),
            (&[f32::MIN, f32::MAX], &[], 1),
            (&[1.0], &[7], 0),
        ] {
            let sampled = Sampler::new(&sampling, 1).choose(&mut logits.to_vec(), banned);
            assert_eq!(sampled.token, expected, "{logits:?} at {temperature}");
            assert!(sampled.top.iter().all(|(_, logprob)| logprob.is_finite()), "{sampled:?}");
            assert!(sampled.logprob.is_none_or(f32::is_finite), "{sampled:?}");
        }
    }
}

#[test]
fn of_no_finite_logit_no_token_is_made() {
    for temperature in [0.0, 1.0] {
        let sampling = Sampling { temperature, logit_bias: vec![(0, 100.0)], ..Sampling::default() };
        for logits in [&[f32::NAN; 3][..], &[f32::NEG_INFINITY; 40], &[f32::INFINITY, f32::NAN], &[]] {
            let sampled = Sampler::new(&sampling, 1).sample(&mut logits.to_vec(), &[]);
            assert_eq!(sampled, None, "{logits:?} at {temperature}");
        }
    }
}

#[test]
fn penalties_count_the_output() {
    let greedy = |frequency_penalty, presence_penalty| {
        let sampling = Sampling { temperature: 0.0, frequency_penalty, presence_penalty, ..Sampling::default() };
        let mut sampler = Sampler::new(&sampling, 0);
        (0..6).map(|_| sampler.choose(&mut [2.0, 1.75, 0.0], &[]).token).collect::<Vec<_>>()
    };
    assert_eq!(greedy(0.0, 0.0), [0; 6]);
    // After one 0: 2.0 - 0.5 < 1.75. After one of each: 1.5 against 1.25, and so on.
    assert_eq!(greedy(0.5, 0.0), [0, 1, 0, 1, 0, 1]);
    assert_eq!(greedy(0.0, 0.5), [0, 1, 0, 0, 0, 0], "a presence counts once");
    assert_eq!(greedy(-1.0, 0.0), [0; 6]);
}

#[test]
fn bias_and_bans() {
    let sampling = Sampling { logit_bias: vec![(1, -100.0), (3, 100.0), (9, 100.0)], ..Sampling::default() };
    let mut sampler = Sampler::new(&sampling, 0);
    assert_eq!(sampler.choose(&mut [0.0, 50.0, 0.0, -50.0], &[]).token, 3);
    assert!((0..200).all(|_| matches!(sampler.choose(&mut [0.0, 50.0, 0.0, -50.0], &[3]).token, 0 | 2)));
}

#[test]
fn the_seed_decides_and_nothing_else() {
    let sampling = Sampling { top_p: 0.95, ..Sampling::default() };
    let run = |seed| {
        let mut sampler = Sampler::new(&sampling, seed);
        (0..50).map(|_| sampler.choose(&mut logits(&SHARES), &[]).token).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    // Asking for log probabilities or certain tokens in between changes nothing.
    let mut other = Sampler::new(&Sampling { top_logprobs: Some(3), ..sampling.clone() }, 1);
    let mut sampler = Sampler::new(&sampling, 1);
    for _ in 0..20 {
        sampler.choose(&mut logits(&SHARES), &[]);
        other.choose(&mut [0.0, 99.0], &[]);
        assert_eq!(sampler.choose(&mut logits(&SHARES), &[]).token, other.choose(&mut logits(&SHARES), &[]).token);
    }
}

#[test]
fn log_probabilities_are_those_of_the_model() {
    let sampling = Sampling {
        temperature: 0.0,
        logit_bias: vec![(4, 100.0)],
        frequency_penalty: 2.0,
        top_logprobs: Some(3),
        ..Sampling::default()
    };
    let mut sampler = Sampler::new(&sampling, 0);
    for _ in 0..2 {
        let chosen = sampler.choose(&mut logits(&SHARES), &[0]);
        assert_eq!(chosen.token, 4);
        let close = |logprob: f32, share: f32| (logprob - share.ln()).abs() < 1e-5;
        assert!(close(chosen.logprob.unwrap(), 0.05), "{chosen:?}");
        assert_eq!(chosen.top.iter().map(|top| top.0).collect::<Vec<_>>(), [0, 2, 3]);
        assert!(chosen.top.iter().zip([0.4, 0.3, 0.15]).all(|(top, share)| close(top.1, share)), "{chosen:?}");
    }
    let none = Sampler::new(&Sampling { top_logprobs: Some(0), ..sampling }, 0).choose(&mut logits(&SHARES), &[]);
    assert!(none.logprob.is_some() && none.top.is_empty());
    let unasked = Sampler::new(&Sampling::default(), 0).choose(&mut logits(&SHARES), &[]);
    assert_eq!((unasked.logprob, unasked.top), (None, Vec::new()));
}

proptest! {
    #[test]
    fn log_probabilities_sum_to_one(logits in proptest::collection::vec(-30.0_f32..30.0, 1..40), seed: u64) {
        let sampling = Sampling { top_logprobs: Some(40), ..Sampling::default() };
        let sampled = Sampler::new(&sampling, seed).choose(&mut logits.clone(), &[]);
        let sum: f64 = sampled.top.iter().map(|(_, logprob)| f64::from(*logprob).exp()).sum();
        prop_assert!((sum - 1.0).abs() < 1e-4, "{}", sum);
        prop_assert!(sampled.top.is_sorted_by(|a, b| a.1 > b.1 || (a.1 - b.1).abs() < 1e-6));
        prop_assert_eq!(sampled.logprob, sampled.top.iter().find(|top| top.0 == sampled.token).map(|top| top.1));
    }

    /// Against filters written without a thought to speed.
    #[test]
    fn a_token_is_one_that_the_filters_leave(
        logits in proptest::collection::vec(-5.0_f32..5.0, 1..60),
        top_p in 0.0_f32..1.0,
        top_k in 1_usize..70,
        seed: u64,
    ) {
        let sampling = Sampling { top_p, top_k: Some(top_k), ..Sampling::default() };
        let token = Sampler::new(&sampling, seed).choose(&mut logits.clone(), &[]).token;
        let mut ranked: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|&logit| f64::from(logit).exp())).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.truncate(top_k);
        let total: f64 = ranked.iter().map(|one| one.1).sum();
        let mut before = 0.0;
        // A little more than asked for, as the sampler adds in f32.
        ranked.retain(|one| { let kept = before <= (f64::from(top_p) + 1e-4) * total; before += one.1; kept });
        prop_assert!(ranked.iter().any(|one| one.0 == token));
    }
}
