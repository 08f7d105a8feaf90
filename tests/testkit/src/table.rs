//! Tables of test cases as text.

/// The cells of each line, separated by ` | `. Empty lines are skipped.
pub fn rows<const N: usize>(table: &str) -> Vec<[&str; N]> {
    let row = |line| {
        let line = str::trim_end(line);
        let empty = line.strip_suffix(" |").map(|_| "");
        let filled = line.strip_suffix(" |").unwrap_or(line);
        let cells = filled.split(" | ").chain(empty).map(str::trim);
        let cells = <[&str; N]>::try_from(cells.collect::<Vec<_>>());
        cells.unwrap_or_else(|cells| panic!("expected {N} cells: {cells:?}"))
    };
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::rows;

    #[test]
    fn cells_may_be_empty_at_both_ends() {
        let table = "
            a b | c
             | d
            e |
        ";
        assert_eq!(rows(table), [["a b", "c"], ["", "d"], ["e", ""]]);
        assert!(std::panic::catch_unwind(|| rows::<3>("a | b")).is_err());
    }
}
