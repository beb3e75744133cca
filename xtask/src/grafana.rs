//! `cargo xtask dashboard`: the file of the dashboard by Grafana's own types.
//!
//! *Operation.* Grafana itself is in no registry that this project uses; what generates its types from its schema is:
//! `@grafana/schema`. The file becomes a value of those types, and the TypeScript compiler judges it: a key that Grafana does not
//! know, a value that it does not take. Then a dashboard with a fault has to be refused, so that a check which sees nothing is no
//! check. It takes node and npm, so it is no part of `cargo xtask test`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::sh::{Outcome, Result, Tally, output, target_dir};

const PACKAGES: [&str; 2] = ["@grafana/schema@11.6.16", "typescript@7.0.2"];
const COMPILER: &str = "node_modules/.bin/tsc";

/// What a dashboard of this project is, by Grafana's types. A panel gives what it wants otherwise than by default, and JSON has
/// strings where TypeScript has enumerations.
const TYPES: &str = r#"
import type { Dashboard, Panel } from "./node_modules/@grafana/schema/dist/esm/raw/dashboard/x/dashboard_types.gen";
import type { Options, FieldConfig }
  from "./node_modules/@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";
type Json<T> = T extends string ? `${T}`
  : T extends (infer U)[] ? Json<U>[] : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
type Some<T> = { [K in keyof T]?: Partial<T[K]> };
type Defaults = NonNullable<Panel["fieldConfig"]>["defaults"];
type TimeSeries = Omit<Panel, "options" | "fieldConfig"> & {
  type: "timeseries";
  options: Some<Options>;
  fieldConfig: { defaults: Omit<Defaults, "custom"> & { custom?: Partial<FieldConfig> }; overrides: [] };
};
export const dashboard: Json<Omit<Dashboard, "panels"> & { panels: TimeSeries[] }> =
"#;

/// Faults that have to be seen: where, and what is there instead.
const FAULTS: [(&str, &str, &str); 4] = [
    ("", "titel", r#""Headgate""#),
    ("/panels/0", "type", r#""graph""#),
    ("/panels/0/fieldConfig/defaults/custom", "fillOpacty", "15"),
    ("/panels/0/options/legend", "displayMode", r#""tabel""#),
];

/// `cargo xtask dashboard`.
pub(crate) fn command(args: &[String]) -> Result<Outcome> {
    if !args.is_empty() {
        return Err("usage: cargo xtask dashboard".into());
    }
    let dir = target_dir().join("grafana");
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let shown = dir.display().to_string();
    let install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", &shown];
    output(&[&install[..], &PACKAGES].concat())?;
    let text = fs::read_to_string("deploy/grafana.json").map_err(|e| e.to_string())?;
    let dashboard: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    let mut tally = Tally::default();
    tally.count("dashboard/types", judge(&dir, &dashboard));
    for (at, key, value) in FAULTS {
        let mut broken = dashboard.clone();
        let place = broken.pointer_mut(at).ok_or_else(|| format!("nothing is at {at}"))?;
        place[key] = serde_json::from_str(value).map_err(|e| e.to_string())?;
        let seen = match judge(&dir, &broken) {
            Err(said) if said.contains("error TS") => Ok(()),
            Err(said) => Err(said),
            Ok(()) => Err("it was not seen".into()),
        };
        tally.count(&format!("dashboard/a fault, {at}/{key}"), seen);
    }
    Ok(tally.report(None))
}

/// Compiles the dashboard as a value of its type.
fn judge(dir: &Path, dashboard: &Value) -> Result<()> {
    let file = dir.join("dashboard.ts");
    fs::write(&file, format!("{}{dashboard:#};\n", TYPES.trim()))
        .map_err(|e| format!("{}: {e}", file.display()))?;
    let compiler = dir.join(COMPILER).display().to_string();
    let how = ["--noEmit", "--strict", "--skipLibCheck", "--module", "esnext"];
    let resolve = ["--moduleResolution", "bundler", &file.display().to_string()];
    output(&[&[compiler.as_str()], &how[..], &resolve[..]].concat()).map(drop)
}
