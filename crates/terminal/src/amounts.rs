//! Numbers, shares and lengths of time, as people write them: `250ms`, `1..20ms`, `0.1`.

use std::time::Duration;

use primus_core::machine::Delay;
pub use primus_core::text::quoted;

use crate::failure::Failure;

/// No moment of a run lies later than this.
const MOMENT_MAX_US: u64 = 24 * 3_600_000_000;

/// A whole number within these bounds.
pub fn number(flag: &str, text: &str, min: u64, max: u64) -> Result<u64, Failure> {
    let value = text.trim().parse().ok().filter(|value| (min..=max).contains(value));
    value.ok_or_else(|| {
        let hint = format!("give a whole number from {min} to {max}");
        Failure::usage(format!("{flag} is {}", quoted(text)), hint)
    })
}

/// A share from 0 to 1, in parts per million.
pub fn share_ppm(flag: &str, text: &str) -> Result<u32, Failure> {
    let share = text.trim().parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.map(|share| (share * 1_000_000.0).round() as u32).ok_or_else(|| {
        Failure::usage(
            format!("{flag} is {}", quoted(text)),
            "give a share from 0 to 1, such as 0.1 for one in ten",
        )
    })
}

/// How long messages take: `5ms`, `1..20ms` or `1ms..2s`.
pub fn delay(text: &str, max_us: u64) -> Result<Delay, Failure> {
    let (least, most) = text.trim().split_once("..").unwrap_or((text.trim(), text.trim()));
    let range =
        length_us(most).and_then(|max_us| Some((length_us(least).or_else(|| borrow(least, most))?, max_us)));
    match range {
        None => {
            Err(Failure::usage(format!("--delay is {}", quoted(text)), "write it like 5ms, 1..20ms or 1ms..2s"))
        }
        Some((min, max)) if min > max => {
            let message = format!("--delay {} begins with the longer time", quoted(text));
            Err(Failure::usage(message, "put the shorter one first"))
        }
        Some((_, max)) if max > max_us => {
            let hint = format!("stay within {} s", max_us / 1_000_000);
            Err(Failure::usage(format!("--delay {} is too long", quoted(text)), hint))
        }
        Some((min_us, max_us)) => Ok(Delay { min_us, max_us }),
    }
}

/// In `1..20ms` the first number has the unit of the second.
fn borrow(number: &str, other: &str) -> Option<u64> {
    let unit = other.trim().trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    length_us(&format!("{}{unit}", number.trim()))
}

/// A moment of a run, counted from its beginning.
pub fn moment_us(text: &str) -> Result<u64, Failure> {
    let moment = length_us(text).filter(|moment| *moment <= MOMENT_MAX_US);
    moment.ok_or_else(|| {
        Failure::usage(format!("{} is not a moment of a run", quoted(text)), "write it like 250ms or 2s, up to 24h")
    })
}

/// A length of time of at most a day, such as `250ms` or `2s`.
pub fn length(flag: &str, text: &str) -> Result<Duration, Failure> {
    let length = length_us(text).filter(|length| *length <= MOMENT_MAX_US).map(Duration::from_micros);
    length.ok_or_else(|| {
        Failure::usage(format!("{flag} is {}", quoted(text)), "write it like 250ms or 2s, up to 24h")
    })
}

fn length_us(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(split);
    let unit_us = match unit {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" | "min" => 60e6,
        "h" => 3600e6,
        _ => return None,
    };
    let length_us = (number.parse::<f64>().ok()? * unit_us).round();
    // Beyond this, floats skip whole microseconds; no limit of ours is near.
    (length_us <= 1e15).then_some(length_us as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_as_people_write_them() {
        for (text, expected) in [
            ("250ms", Some(250_000)),
            ("2s", Some(2_000_000)),
            ("1h", Some(3_600_000_000)),
            ("1.5s", Some(1_500_000)),
            ("10us", Some(10)),
            (" 3min ", Some(180_000_000)),
            ("10m", Some(600_000_000)),
            ("0s", Some(0)),
            ("5", None),
            ("", None),
            ("ms", None),
            ("-5ms", None),
            ("1e9s", None),
            ("5 parsecs", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(length_us(text), expected, "{text}");
        }
    }

    #[test]
    fn delays_as_people_write_them() {
        let read = |text| delay(text, 60_000_000).ok().map(|delay| (delay.min_us, delay.max_us));
        for (text, expected) in [
            ("5ms", Some((5_000, 5_000))),
            ("1..20ms", Some((1_000, 20_000))),
            ("1ms..2s", Some((1_000, 2_000_000))),
            ("0.5..1s", Some((500_000, 1_000_000))),
            ("20..1ms", None),
            ("1..", None),
            ("..", None),
            ("1..2..3ms", None),
            ("1..2h", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn shares_lie_between_nothing_and_everything() {
        for (text, expected) in
            [("0", Some(0)), ("0.1", Some(100_000)), ("1", Some(1_000_000)), (".5", Some(500_000))]
        {
            assert_eq!(share_ppm("--loss", text).ok(), expected);
        }
        for text in ["7", "-0.1", "NaN", "inf", "10%", "", "1e99"] {
            assert!(share_ppm("--loss", text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_quoted_stays_short() {
        assert_eq!(quoted(&"ä".repeat(1000)).chars().count(), 63);
    }
}
