//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write;

/// A family of series of one name.
pub struct Family {
    /// Its name; counters end in `_total`.
    pub name: &'static str,
    /// What it counts, in one sentence.
    pub help: &'static str,
    /// Counters only grow.
    pub kind: Kind,
    /// Its series.
    pub series: Vec<Series>,
}

/// What kind of numbers a family has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// They only grow.
    Counter,
    /// They come and go.
    Gauge,
    /// Buckets, their sum and their count, which only grow.
    Histogram,
}

/// One number of a family.
pub struct Series {
    suffix: &'static str,
    labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: u64,
    /// It is in thousandths.
    thousandths: bool,
}

impl Family {
    /// A family of numbers that only grow.
    pub const fn counter(name: &'static str, help: &'static str, series: Vec<Series>) -> Self {
        Self {
            name,
            help,
            kind: Kind::Counter,
            series,
        }
    }

    /// A family of waits: how many lasted at most so many milliseconds, how many there were, and their sum.
    pub fn waits(
        name: &'static str,
        help: &'static str,
        buckets: &[(u64, u64)],
        count: u64,
        sum: u64,
    ) -> Self {
        let bucket = |end: String, count| Series {
            suffix: "_bucket",
            ..Series::new(vec![("le", end)], count)
        };
        let mut series: Vec<_> = buckets
            .iter()
            .map(|(end, count)| bucket(seconds(*end), *count))
            .collect();
        series.push(bucket("+Inf".to_owned(), count));
        series.push(Series {
            suffix: "_sum",
            ..Series::seconds(Vec::new(), sum)
        });
        series.push(Series {
            suffix: "_count",
            ..Series::new(Vec::new(), count)
        });
        Self {
            name,
            help,
            kind: Kind::Histogram,
            series,
        }
    }

    /// A family of numbers that come and go.
    pub const fn gauge(name: &'static str, help: &'static str, series: Vec<Series>) -> Self {
        Self {
            name,
            help,
            kind: Kind::Gauge,
            series,
        }
    }
}

impl Series {
    /// A whole number.
    pub const fn new(labels: Vec<(&'static str, String)>, value: u64) -> Self {
        Self {
            suffix: "",
            labels,
            value,
            thousandths: false,
        }
    }

    /// A number of seconds, given in milliseconds.
    pub const fn seconds(labels: Vec<(&'static str, String)>, millis: u64) -> Self {
        Self {
            suffix: "",
            labels,
            value: millis,
            thousandths: true,
        }
    }

    /// The series' name: the family's, with its labels.
    pub fn id(&self, family: &str) -> String {
        let name = format!("{family}{}", self.suffix);
        if self.labels.is_empty() {
            return name;
        }
        let pairs = self
            .labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        format!("{name}{{{}}}", pairs.collect::<Vec<_>>().join(","))
    }

    fn number(&self) -> String {
        if self.thousandths {
            return seconds(self.value);
        }
        self.value.to_string()
    }
}

fn seconds(millis: u64) -> String {
    format!("{}.{:03}", millis / 1_000, millis % 1_000)
}

/// All families as Prometheus reads them.
pub fn render(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string can't fail.
        let _ = writeln!(text, "# HELP {} {}", family.name, family.help);
        let _ = writeln!(text, "# TYPE {} {kind}", family.name);
        for series in &family.series {
            let _ = writeln!(text, "{} {}", series.id(family.name), series.number());
        }
    }
    text
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_reads_as_the_format_says() {
        let series = vec![Series::new(vec![("plan", "a\"b\\c\nd".to_owned())], 7)];
        let calls = Family::counter("x_total", "Calls.", series);
        let lag = Family::gauge(
            "y_seconds",
            "Lag.",
            vec![Series::seconds(Vec::new(), 1_205)],
        );
        let expected = concat!(
            "# HELP x_total Calls.\n# TYPE x_total counter\nx_total{plan=\"a\\\"b\\\\c\\nd\"} 7\n",
            "# HELP y_seconds Lag.\n# TYPE y_seconds gauge\ny_seconds 1.205\n"
        );
        assert_eq!(render(&[calls, lag]), expected);
    }

    #[test]
    fn waits_read_as_the_format_says() {
        let waits = Family::waits("z_seconds", "Waits.", &[(5, 2), (1_000, 3)], 4, 90_005);
        let expected = concat!(
            "# HELP z_seconds Waits.\n# TYPE z_seconds histogram\n",
            "z_seconds_bucket{le=\"0.005\"} 2\nz_seconds_bucket{le=\"1.000\"} 3\n",
            "z_seconds_bucket{le=\"+Inf\"} 4\nz_seconds_sum 90.005\nz_seconds_count 4\n"
        );
        assert_eq!(render(&[waits]), expected);
    }
}
