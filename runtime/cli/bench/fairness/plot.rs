//! Plot: dominant shares over time as a picture (SVG).
//!
//! Pure text. Of the frameworks that are there from the start, and of those that come late, the middle share and the band in which
//! nine of ten are; the exact share as a line.

use std::fmt::Write;

use modules::workload::turnover::Moment;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 360.0;
/// Room for the labels at the left and below.
const MARGIN: f64 = 50.0;
/// So many points of a line are enough.
const POINTS: usize = 300;

/// The picture; `first` frameworks are there from the start.
pub fn svg(moments: &[Moment], first: usize) -> String {
    let moments: Vec<&Moment> = moments
        .iter()
        .step_by(moments.len().div_ceil(POINTS).max(1))
        .collect();
    let end = moments.last().map_or(1.0, |moment| moment.at.as_secs_f64());
    let top = moments.iter().flat_map(|moment| &moment.shares);
    let top = top.copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let point = |moment: &Moment, share: f64| {
        let x = MARGIN + moment.at.as_secs_f64() / end * (WIDTH - MARGIN);
        let y = (HEIGHT - MARGIN) * (1.0 - share / top);
        format!("{x:.1},{y:.1}")
    };
    let line = |of: &dyn Fn(&Moment) -> Option<f64>| {
        let points = moments
            .iter()
            .filter_map(|moment| Some(point(moment, of(moment)?)));
        points.collect::<Vec<_>>().join(" ")
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut put = |text: String| {
        // A String takes whatever is written.
        let _ = writeln!(svg, "{text}");
    };
    for (colour, of) in [("#3b76b0", 0..first), ("#c8603c", first..usize::MAX)] {
        let share = |moment: &Moment, part: f64| quantile(moment, &of, part);
        let (low, high) = (
            line(&|moment| share(moment, 0.05)),
            line(&|moment| share(moment, 0.95)),
        );
        let back: Vec<&str> = low.split(' ').rev().collect();
        put(format!(
            "<polygon points=\"{high} {}\" fill=\"{colour}\" fill-opacity=\"0.25\"/>",
            back.join(" ")
        ));
        let middle = line(&|moment| share(moment, 0.5));
        put(format!(
            "<polyline points=\"{middle}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        ));
    }
    let exact = line(&|moment| Some(moment.exact));
    put(format!(
        "<polyline points=\"{exact}\" fill=\"none\" stroke=\"black\" stroke-dasharray=\"5 3\"/>"
    ));
    let floor = HEIGHT - MARGIN;
    put(format!(
        "<path d=\"M{MARGIN},0 V{floor} H{WIDTH}\" fill=\"none\" stroke=\"#666\"/>"
    ));
    for quarter in 0..=4u32 {
        let part = f64::from(quarter) / 4.0;
        let (x, y) = (MARGIN + part * (WIDTH - MARGIN), floor * (1.0 - part));
        let anchor = if quarter == 4 { "end" } else { "middle" };
        put(format!(
            "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{:.0} s</text>",
            floor + 16.0,
            part * end
        ));
        put(format!(
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{:.1} %</text>",
            MARGIN - 4.0,
            (y + 4.0).max(10.0),
            part * top * 100.0
        ));
    }
    put(format!(
        "<text x=\"{MARGIN}\" y=\"{:.0}\">Dominant shares: middle and nine of ten, of frameworks from the start (blue) and late ones (red); exact (dashed)</text>",
        HEIGHT - 12.0
    ));
    svg.push_str("</svg>\n");
    svg
}

/// The share below which this part of these frameworks' shares are; none if none of them is there.
fn quantile(moment: &Moment, of: &std::ops::Range<usize>, part: f64) -> Option<f64> {
    let mut shares: Vec<f64> = moment
        .shares
        .iter()
        .copied()
        .enumerate()
        .filter(|(number, _)| of.contains(number))
        .map(|(_, share)| share)
        .collect();
    shares.sort_by(f64::total_cmp);
    let last = shares.len().checked_sub(1)?;
    shares.get((part * last as f64).round() as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_picture_has_two_bands_two_middles_and_the_exact_share() {
        let moment = |second, shares: &[f64]| Moment {
            at: Duration::from_secs(second),
            shares: shares.to_vec(),
            exact: 0.5,
            grain: 0.1,
        };
        let moments = [
            moment(1, &[0.4, 0.6]),
            moment(2, &[0.3, 0.4, 0.3]),
            moment(3, &[0.3, 0.3, 0.4]),
        ];
        let drawn = svg(&moments, 2);
        assert_eq!(drawn.matches("<polygon").count(), 2);
        assert_eq!(drawn.matches("<polyline").count(), 3);
        assert!(drawn.ends_with("</svg>\n") && !drawn.contains("NaN"));
        assert_eq!(quantile(&moments[0], &(2..3), 0.5), None);
        assert_eq!(quantile(&moments[1], &(0..2), 1.0), Some(0.4));
    }
}
