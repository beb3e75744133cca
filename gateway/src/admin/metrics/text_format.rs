//! Converts OpenMetrics 1.0 to Prometheus' text format 0.0.4, and finds out which of the two a reader prefers.
//!
//! The formats differ in three ways that matter here: OpenMetrics names a counter without its suffix `_total` in HELP and TYPE,
//! escapes quotes in HELP, and ends with `# EOF`.

/// Content type of OpenMetrics.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of the text format.
pub(crate) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns whether a reader with this `Accept` header accepts OpenMetrics and does not prefer plain text.
pub(crate) fn asks_for_open_metrics(accept: &str) -> bool {
    let weight = |kind: &str| {
        let of = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            let is_it = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(kind));
            let q = parts
                .find_map(|part| part.strip_prefix("q="))
                .map_or(Some(1.0), |q| q.parse().ok());
            is_it.then_some(q.unwrap_or(0.0_f64))
        };
        accept
            .split(',')
            .filter_map(of)
            .fold(None, |most: Option<f64>, q| Some(most.map_or(q, |m| m.max(q))))
    };
    match (weight("application/openmetrics-text"), weight("text/plain")) {
        (Some(open), text) => open > 0.0 && open >= text.unwrap_or(0.0),
        (None, _) => false,
    }
}

/// Converts OpenMetrics to the text format.
pub(crate) fn of_open_metrics(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut help: Option<(&str, &str)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, words)) = help.take().filter(|(of, _)| *of == name) {
                out += &format!("# HELP {name}{suffix} {}\n", words.replace("\\\"", "\""));
            }
            out += &format!("# TYPE {name}{suffix} {kind}\n");
        } else if line != "# EOF" && !line.starts_with("# UNIT ") {
            out += line;
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod lint {
    //! The rules of `promtool check metrics`: a strict reader of the format, and checks of the names.

    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Family {
        help: bool,
        kind: String,
        samples: usize,
    }

    /// Label names and their values.
    type Labels = Vec<(String, String)>;

    fn is_name(name: &str) -> bool {
        let starts = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
        name.starts_with(starts) && name.chars().all(|c| starts(c) || c.is_ascii_digit())
    }

    /// Parses the name, labels and value of a sample.
    fn sample(line: &str) -> Option<(String, Labels, f64)> {
        let end = line.find(['{', ' '])?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            while !rest.starts_with('}') {
                let (key, after) = rest.split_once("=\"")?;
                let (mut value, mut chars) = (String::new(), after.char_indices());
                let close = loop {
                    match chars.next()? {
                        (at, '"') => break at,
                        (_, '\\') => match chars.next()?.1 {
                            'n' => value.push('\n'),
                            c @ ('\\' | '"') => value.push(c),
                            _ => return None,
                        },
                        (_, c) => value.push(c),
                    }
                };
                labels.push((key.to_owned(), value));
                rest = &after[close + 1..];
                rest = rest.strip_prefix(',').unwrap_or(rest);
            }
            rest = &rest[1..];
        }
        let value = rest.strip_prefix(' ')?;
        let value = match value {
            "+Inf" => f64::INFINITY,
            other => other.parse().ok()?,
        };
        Some((name.to_owned(), labels, value))
    }

    /// Returns the faults of a text.
    pub(crate) fn faults(text: &str) -> Vec<String> {
        let (mut families, mut faults) = (BTreeMap::<String, Family>::new(), Vec::new());
        let mut seen = std::collections::BTreeSet::new();
        if !text.ends_with('\n') {
            faults.push("the last line has no end".to_owned());
        }
        for line in text.lines() {
            if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|r| r.split_once(' '))
            {
                let family = families.entry(name.to_owned()).or_default();
                let escapes = help.replace("\\\\", "").replace("\\n", "");
                if family.help || help.trim().is_empty() || escapes.contains('\\') {
                    faults.push(format!("{name}: a second, an empty or a wrong help"));
                }
                family.help = true;
            } else if let Some((name, kind)) =
                line.strip_prefix("# TYPE ").and_then(|r| r.split_once(' '))
            {
                let family = families.entry(name.to_owned()).or_default();
                let known = ["counter", "gauge", "histogram", "summary", "untyped"];
                if !family.kind.is_empty() || !known.contains(&kind) || family.samples > 0 {
                    faults.push(format!("{name}: a second, a late or an unknown type {kind}"));
                }
                family.kind = kind.to_owned();
            } else if line.starts_with('#') {
                faults.push(format!("{line}: neither HELP nor TYPE"));
            } else if let Some((name, labels, value)) = sample(line) {
                let base = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|suffix| name.strip_suffix(suffix));
                let of =
                    base.filter(|base| families.get(*base).is_some_and(|f| f.kind == "histogram"));
                match families.get_mut(of.unwrap_or(&name)) {
                    None => faults.push(format!("{name}: no HELP and no TYPE before it")),
                    Some(family) => family.samples += 1,
                }
                if !is_name(&name)
                    || labels.iter().any(|(key, _)| !is_name(key) || key.contains(':'))
                {
                    faults.push(format!("{line}: not a name"));
                }
                if value.is_nan() || !seen.insert((name, labels)) {
                    faults.push(format!("{line}: no number, or there twice"));
                }
            } else {
                faults.push(format!("{line}: not a sample"));
            }
        }
        for (name, family) in &families {
            faults.extend(family_faults(name, family).map(|what| format!("{name}: {what}")));
        }
        faults
    }

    /// Returns the faults in the name, type and help text of a metric.
    fn family_faults(name: &str, family: &Family) -> impl Iterator<Item = &'static str> {
        let mut faults = Vec::new();
        let mut wrong = |what| faults.push(what);
        let is_counter = family.kind == "counter";
        if !family.help {
            wrong("no help text");
        }
        if family.kind.is_empty() {
            wrong("no type");
        }
        if is_counter != name.ends_with("_total") {
            wrong("counters, and they alone, end with _total");
        }
        if ["_bucket", "_sum", "_count"].iter().any(|suffix| name.ends_with(suffix)) {
            wrong("ends as a part of a histogram does");
        }
        if name.contains(':') || name.chars().any(|c| c.is_ascii_uppercase()) {
            wrong("a colon or a capital letter");
        }
        let units = [
            "milliseconds",
            "microseconds",
            "minutes",
            "hours",
            "days",
            "kilobytes",
            "megabytes",
            "bits",
        ];
        let words: Vec<&str> = name.split('_').collect();
        if units.iter().any(|unit| words.contains(unit)) {
            wrong("not a base unit");
        }
        let kinds = ["counter", "gauge", "histogram", "summary"];
        if kinds.iter().any(|kind| words.contains(kind)) {
            wrong("its name says its type");
        }
        let short = ["s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "m", "h", "d"];
        if short.iter().any(|unit| words.contains(unit)) {
            wrong("an abbreviated unit");
        }
        faults.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::metrics::encode;
    use crate::admin::testing::{full, snapshot};

    #[test]
    fn open_metrics_is_for_those_who_ask() {
        for (accept, open) in [
            ("", false),
            ("*/*", false),
            ("text/plain", false),
            ("text/plain;version=0.0.4;q=0.3,*/*;q=0.2", false),
            ("application/openmetrics-text", true),
            (
                "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.2",
                true,
            ),
            ("text/plain, application/openmetrics-text; q=0.5", false),
            ("application/openmetrics-text;q=0", false),
            ("application/openmetrics-text;q=x", false),
        ] {
            assert_eq!(asks_for_open_metrics(accept), open, "{accept}");
        }
    }

    #[test]
    fn the_text_is_what_promtool_accepts() {
        for snapshot in [snapshot(), full()] {
            let open = encode(snapshot).unwrap();
            let text = of_open_metrics(&open);
            assert_eq!(lint::faults(&text), [""; 0], "{text}");
            let samples = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
            assert_eq!(samples(&open), samples(&text));
        }
    }

    #[test]
    fn the_reader_of_the_format_finds_faults() {
        let good = "# HELP a_total Help.\n# TYPE a_total counter\na_total{x=\"1\"} 1\n";
        assert_eq!(lint::faults(good), [""; 0]);
        for bad in [
            "# HELP a Help.\n# TYPE a counter\na_total 1\n",
            "# TYPE a_total counter\na_total 1\n",
            "# HELP a_total Help.\n# TYPE a_total gauge\na_total 1\n",
            "# HELP a_ms Help.\n# TYPE a_ms gauge\na_ms 1\n",
            "a 1\n",
            "# HELP a Help.\n# TYPE a gauge\na 1\na 1\n",
            "# HELP a Help.\n# TYPE a gauge\na{x=\"\\q\"} 1\n",
            "# HELP a Help.\n# TYPE a gauge\na 1\n# EOF\n",
            "# HELP a Help.\n# TYPE a gauge\na x\n",
        ] {
            assert!(!lint::faults(bad).is_empty(), "{bad}");
        }
    }
}
