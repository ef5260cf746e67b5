//! Dates, for chat templates that tell the model what day it is.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::calendar::civil;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// `at` as `format` asks, in UTC and English: Python's `strftime`, without what depends on a locale. What is not known
/// stays as it is written.
pub(super) fn strftime(format: &str, at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (year, month, day) = civil(days);
    let weekday = DAYS[usize::try_from(days % 7).unwrap_or_default()];
    let month_name = MONTHS[usize::try_from(month - 1).unwrap_or_default()];
    let half = |hour: u64| if hour.is_multiple_of(12) { 12 } else { hour % 12 };

    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let part = match characters.next() {
            Some('Y') => year.to_string(),
            Some('y') => format!("{:02}", year % 100),
            Some('m') => format!("{month:02}"),
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => month_name[..3].to_owned(),
            Some('d') => format!("{day:02}"),
            Some('e') => format!("{day:2}"),
            Some('A') => weekday.to_owned(),
            Some('a') => weekday[..3].to_owned(),
            Some('H') => format!("{hour:02}"),
            Some('I') => format!("{:02}", half(hour)),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('M') => format!("{minute:02}"),
            Some('S') => format!("{second:02}"),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('Z') => "UTC".to_owned(),
            Some('z') => "+0000".to_owned(),
            Some('-') => match characters.next() {
                Some('d') => day.to_string(),
                Some('m') => month.to_string(),
                Some('H') => hour.to_string(),
                Some('I') => half(hour).to_string(),
                Some('M') => minute.to_string(),
                Some(other) => format!("%-{other}"),
                None => "%-".to_owned(),
            },
            Some('%') | None => "%".to_owned(),
            Some(other) => format!("%{other}"),
        };
        text.push_str(&part);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "01 Jan 1970 Thursday"),
            (951_782_400, "29 Feb 2000 Tuesday"),
            (1_709_164_800, "29 Feb 2024 Thursday"),
            (1_735_689_599, "31 Dec 2024 Tuesday"),
            (4_107_542_400, "01 Mar 2100 Monday"),
        ] {
            assert_eq!(strftime("%d %b %Y %A", UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
    }

    #[test]
    fn the_time_of_day_in_every_form() {
        let at = UNIX_EPOCH + Duration::from_secs(13 * 3600 + 5 * 60 + 9);
        assert_eq!(
            strftime("%F %T|%I:%M %p|%-I|%-d/%-m/%y|%%|%Q|%", at),
            "1970-01-01 13:05:09|01:05 PM|1|1/1/70|%|%Q|%"
        );
    }
}
