//! Which seeds a test tries: `PRIMUS_RUNS` says how many, `PRIMUS_SEED_OFFSET` where they begin.

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

/// The seeds to try; this many if nothing is said.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = setting("PRIMUS_SEED_OFFSET", 0);
    first..first + setting("PRIMUS_RUNS", count)
}
