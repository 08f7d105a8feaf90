//! Tables: columns as wide as their widest cell, separated by two spaces.

use crate::output::print::escaped;

/// The headings and rows as lines, without trailing spaces. Cells are escaped, so a row is one
/// line.
pub fn lines<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> Vec<String> {
    let headings = headings.map(str::to_owned);
    let rows: Vec<_> = rows
        .iter()
        .map(|row| row.each_ref().map(|cell| escaped(cell).into_owned()))
        .collect();
    let all = || std::iter::once(&headings).chain(&rows);
    let mut widths = [0; N];
    for row in all() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; N]| {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_their_widest_cell() {
        let rows = [
            ["a".to_owned(), "long".to_owned()],
            ["bbb".to_owned(), String::new()],
        ];
        assert_eq!(lines(["X", "Y"], &rows), ["X    Y", "a    long", "bbb"]);
    }

    #[test]
    fn multi_line_cell_stays_one_row() {
        let rows = [["a\nb\x1b[31m".to_owned(), "c".to_owned()]];
        assert_eq!(
            lines(["X", "Y"], &rows),
            ["X               Y", r"a\nb\u{1b}[31m  c"]
        );
    }
}
