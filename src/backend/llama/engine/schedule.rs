//! Which prompts a step reads how much of: pure.

/// Splits `budget` prompt tokens among prompts with `remaining` tokens to read, oldest first. Each part is at most what
/// remains.
///
/// Half of the budget goes to the oldest, which keeps the order of arrival; the rest is split evenly, so that a short
/// prompt does not wait behind a long one. What one cannot use goes to the others.
pub(super) fn split(budget: usize, remaining: &[usize]) -> Vec<usize> {
    let mut parts = vec![0; remaining.len()];
    let Some(oldest) = remaining.first() else { return parts };
    let first = (*oldest).min(budget.div_ceil(2));
    parts[0] = first;
    let mut left = budget - first;
    // Every round but the last fills at least one prompt.
    while left > 0 {
        let open: Vec<usize> = (0..remaining.len()).filter(|&index| parts[index] < remaining[index]).collect();
        if open.is_empty() {
            break;
        }
        let share = left / open.len();
        if share == 0 {
            for &index in open.iter().take(left) {
                parts[index] += 1;
            }
            break;
        }
        for index in open {
            let part = share.min(remaining[index] - parts[index]);
            parts[index] += part;
            left -= part;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_oldest_gets_half_and_a_short_prompt_is_read_at_once() {
        assert_eq!(split(64, &[2000, 10]), [54, 10]);
        assert_eq!(split(64, &[2000, 2000]), [48, 16]);
        assert_eq!(split(64, &[2000, 2000, 8]), [44, 12, 8]);
    }

    #[test]
    fn what_one_cannot_use_goes_to_the_others() {
        assert_eq!(split(512, &[5, 5, 100]), [5, 5, 100]);
        assert_eq!(split(10, &[1, 100]), [1, 9]);
    }

    #[test]
    fn with_nothing_to_read_nothing_is_given() {
        assert_eq!(split(64, &[]), Vec::<usize>::new());
        assert_eq!(split(0, &[3]), [0]);
    }

    proptest! {
        #[test]
        fn the_budget_is_used_as_far_as_it_can_be(budget in 1_usize..1000, remaining in prop::collection::vec(1_usize..3000, 1..20)) {
            let parts = split(budget, &remaining);
            prop_assert!(parts.iter().zip(&remaining).all(|(part, most)| part <= most));
            prop_assert_eq!(parts.iter().sum::<usize>(), budget.min(remaining.iter().sum()));
            prop_assert!(parts[0] >= remaining[0].min(budget.div_ceil(2)));
        }
    }
}
