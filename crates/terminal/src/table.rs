//! Tables as people see them: columns that stand under each other, two spaces apart, no wider than the terminal.
//!
//! Where the terminal is too narrow, long cells are cut first and end in `…`. Only if that is not enough, columns are left out: those
//! that the table names as the least important, the last of them first. A pipe or a file gets everything.

use crate::screen;

/// No cell is cut to less than this.
const CELL_LEN_MIN: usize = 14;
const GAP: usize = 2;

/// A table with these heads, every column of the same importance.
pub fn table<const N: usize>(heads: &[&str; N], rows: &[[String; N]]) -> String {
    fitted(heads, rows, &[])
}

/// The same; the columns named in `spare` may be left out where the terminal is too narrow, the last of them first.
pub fn fitted<const N: usize>(heads: &[&str; N], rows: &[[String; N]], spare: &[&str]) -> String {
    lay_out(heads, rows, spare, screen::width())
}

fn lay_out<const N: usize>(
    heads: &[&str; N],
    rows: &[[String; N]],
    spare: &[&str],
    width_max: Option<usize>,
) -> String {
    let head = heads.map(str::to_string);
    let all: Vec<&[String; N]> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut columns: Vec<(usize, usize)> = (0..N).map(|column| (column, width(column))).collect();
    let mut missing = Vec::new();
    if let Some(width_max) = width_max {
        let mut spare = spare.iter().rev();
        while !shrink(&mut columns, heads, width_max) {
            let Some(name) = spare.next() else { break };
            columns.retain(|(column, _)| heads[*column] != *name);
            missing.push(*name);
        }
    }
    let line = |row: &&[String; N]| {
        let cells: Vec<String> = columns.iter().map(|(column, width)| cell(&row[*column], *width)).collect();
        format!("{}\n", cells.join(&" ".repeat(GAP)).trim_end())
    };
    let lines: String = all.iter().map(line).collect();
    missing.reverse();
    match missing.as_slice() {
        [] => lines,
        names => format!("{lines}(not shown here: {}; a wider terminal or -o json has all)\n", names.join(", ")),
    }
}

/// Cuts the widest columns until the table fits. False if it does not fit even so; then nothing is cut.
fn shrink(columns: &mut [(usize, usize)], heads: &[&str], width_max: usize) -> bool {
    let least = |(column, width): (usize, usize)| width.min(CELL_LEN_MIN.max(heads[column].chars().count()));
    let total = |columns: &[(usize, usize)]| {
        columns.iter().map(|(_, width)| width).sum::<usize>() + GAP * columns.len().saturating_sub(1)
    };
    let mut cut = columns.to_vec();
    while total(&cut) > width_max {
        let widest = cut.iter_mut().filter(|column| column.1 > least(**column)).max_by_key(|column| column.1);
        let Some(widest) = widest else { return false };
        widest.1 -= 1;
    }
    columns.copy_from_slice(&cut);
    true
}

fn cell(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return format!("{text:width$}");
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: [&str; 3] = ["ID", "WHAT", "ADDRESS"];

    fn rows() -> Vec<[String; 3]> {
        let row = |id: &str, what: &str| [id.to_string(), what.to_string(), "127.0.0.1:7460".to_string()];
        vec![row("1", "a command that goes on and on and on"), row("2", "short")]
    }

    #[test]
    fn a_pipe_gets_every_column_whole() {
        let expected = "\
ID  WHAT                                  ADDRESS
1   a command that goes on and on and on  127.0.0.1:7460
2   short                                 127.0.0.1:7460
";
        assert_eq!(lay_out(&HEADS, &rows(), &["ADDRESS"], None), expected);
    }

    #[test]
    fn the_widest_column_is_cut_first() {
        let text = lay_out(&HEADS, &rows()[..1], &["ADDRESS"], Some(40));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.contains("a command") && text.contains('…') && text.contains("127.0.0.1:7460"), "{text}");
    }

    #[test]
    fn a_column_that_is_left_out_is_named() {
        let text = lay_out(&HEADS, &rows(), &["ADDRESS"], Some(24));
        assert!(
            !text.contains("127.0.0.1")
                && text.ends_with("(not shown here: ADDRESS; a wider terminal or -o json has all)\n"),
            "{text}"
        );
    }

    #[test]
    fn a_terminal_that_is_too_narrow_for_anything_gets_the_table_as_it_is() {
        assert_eq!(lay_out(&HEADS, &rows(), &[], Some(10)), lay_out(&HEADS, &rows(), &[], None));
    }
}
