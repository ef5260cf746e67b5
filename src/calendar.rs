//! The Gregorian calendar: days and seconds since 1970 → dates, in UTC. Pure.

const DAY: u64 = 86_400;
/// The last second of the year 9999, beyond which RFC 3339 has no form.
const LAST: u64 = 253_402_300_799;

/// Days since 1970 → (year, month, day).
pub fn civil(days: u64) -> (u64, u64, u64) {
    // Years are counted from 1 March, so that the leap day is the last of its year; 719,468 days before 1970 is 0000-03-01.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// Seconds since 1970 as RFC 3339 writes them: `2024-02-29T00:00:00Z`. `None` beyond the year 9999.
pub fn rfc3339(seconds: u64) -> Option<String> {
    let (year, month, day) = civil(seconds.min(LAST) / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds / 60 % 60, seconds % 60);
    (seconds <= LAST).then(|| format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, Some("1970-01-01T00:00:00Z")),
            (951_782_399, Some("2000-02-28T23:59:59Z")),
            (951_782_400, Some("2000-02-29T00:00:00Z")),
            (1_735_689_599, Some("2024-12-31T23:59:59Z")),
            (1_747_872_000, Some("2025-05-22T00:00:00Z")),
            (4_107_542_400 + 3_661, Some("2100-03-01T01:01:01Z")),
            (LAST, Some("9999-12-31T23:59:59Z")),
            (LAST + 1, None),
            (u64::MAX, None),
        ] {
            assert_eq!(rfc3339(seconds).as_deref(), text);
        }
    }
}
