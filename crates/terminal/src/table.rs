//! Tables as people see them: columns that stand under each other, two spaces apart.

/// A table with these heads.
pub fn table<const N: usize>(heads: &[&str; N], rows: &[[String; N]]) -> String {
    let head = heads.map(str::to_string);
    let all: Vec<&[String; N]> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &&[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    all.iter().map(line).collect()
}
