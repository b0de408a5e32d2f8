//! Comparisons: rules of assignment, and a day with lending and without.

use primus_core::loan::lending::Rules;
use primus_lab::assignment::RULES;
use primus_terminal::failure::Failure;
use primus_terminal::format::nothing_to_draw;
use primus_terminal::{Format, Verdict, screen};

use crate::args::{AssignmentArgs, DayArgs};
use crate::output::{assignment, day};
use crate::settings::{AssignmentSimulation, DaySimulation};

/// All rules by which tasks find workers.
pub(crate) fn run_assignment(args: &AssignmentArgs, format: Format) -> Result<Verdict, Failure> {
    let AssignmentSimulation { comparison, seed } = AssignmentSimulation::new(args)?;
    if format == Format::Mermaid {
        return Err(nothing_to_draw("a comparison"));
    }
    let rows = RULES.map(|(name, rule)| (name, comparison.run(rule, seed)));
    screen::print(&match format {
        Format::Json => assignment::json(&comparison, seed, &rows),
        Format::Text | Format::Mermaid => assignment::text(&comparison, seed, &rows),
    })?;
    Ok(Verdict::of(true))
}

/// A day of load, with lending by these rules and without.
pub(crate) fn run_day(args: &DayArgs, rules: Rules, format: Format) -> Result<Verdict, Failure> {
    let DaySimulation { day, seed } = DaySimulation::new(args, rules)?;
    if format == Format::Mermaid {
        return Err(nothing_to_draw("a comparison"));
    }
    let [without, with] = [false, true].map(|is_lending| day.run(is_lending, seed));
    screen::print(&match format {
        Format::Json => day::json(&day, seed, &without, &with),
        Format::Text | Format::Mermaid => day::text(&day, seed, &without, &with),
    })?;
    Ok(Verdict::of(with.thrash_max <= 1))
}
