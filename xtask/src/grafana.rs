//! `cargo xtask dashboard`: checks the file of the dashboard by Grafana's own types, and draws it with Grafana's own components.
//!
//! *Operation.* Grafana itself is in no registry that this project uses; the types generated from its schema are:
//! `@grafana/schema`. The file becomes a value of those types, and the TypeScript compiler checks it: it refuses a key that Grafana
//! does not know, or a value that Grafana does not accept. Then the compiler must refuse a faulty dashboard, to prove that the
//! check can fail. `--write` makes the picture of the documentation: the panels of `@grafana/ui` in a browser, with the answers of
//! Prometheus to their queries while a gateway is under load. The command needs node and npm, so `cargo xtask test` does not
//! include it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::dashboard;
use crate::page;
use crate::sh::{Outcome, Result, Tally, output, target_dir};

const PACKAGES: [&str; 2] = ["@grafana/schema@11.6.16", "typescript@7.0.2"];
/// Packages that draw the picture.
const DRAWING: [&str; 5] = [
    "@grafana/ui@11.6.16",
    "@grafana/data@11.6.16",
    "react@18.2.0",
    "react-dom@18.2.0",
    "esbuild@0.28.2",
];
const BUNDLER: &str = "node_modules/.bin/esbuild";
const PAGE: &str = "<!doctype html><meta charset=utf-8><link rel=stylesheet href=dashboard.css><body style='margin:0'>\
                    <script src=data.js></script><script src=dashboard.js></script>";
const COMPILER: &str = "node_modules/.bin/tsc";

/// The type of the project's dashboard, by Grafana's types. A panel lists only values that differ from the defaults, and JSON has
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

/// Faults that the check must find: the place, and the wrong key or value there.
const FAULTS: [(&str, &str, &str); 4] = [
    ("", "titel", r#""Headgate""#),
    ("/panels/0", "type", r#""graph""#),
    ("/panels/0/fieldConfig/defaults/custom", "fillOpacty", "15"),
    ("/panels/0/options/legend", "displayMode", r#""tabel""#),
];

/// `cargo xtask dashboard`.
pub(crate) fn command(args: &[String]) -> Result<Outcome> {
    let dir = target_dir().join("grafana");
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    match args {
        [] => {}
        [write] if write == "--write" => return picture(&dir).map(|()| Outcome::Passed),
        _ => return Err("usage: cargo xtask dashboard [--write]".into()),
    }
    install(&dir, &PACKAGES)?;
    let dashboard = dashboard::dashboard()?;
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

fn install(dir: &Path, packages: &[&str]) -> Result<()> {
    let shown = dir.display().to_string();
    let how = ["npm", "install", "--no-audit", "--no-fund", "--prefix", &shown];
    output(&[&how[..], packages].concat()).map(drop)
}

/// Makes the picture of the documentation.
fn picture(dir: &Path) -> Result<()> {
    install(dir, &DRAWING)?;
    let write = |name: &str, text: &str| {
        fs::write(dir.join(name), text).map_err(|e| format!("{name}: {e}"))
    };
    write("dashboard.jsx", include_str!("dashboard.jsx"))?;
    let bundler = dir.join(BUNDLER).display().to_string();
    let (page, bundle) = (dir.join("dashboard.jsx"), dir.join("dashboard.js"));
    let (page, bundle) = (page.display().to_string(), format!("--outfile={}", bundle.display()));
    let how = ["--bundle", "--jsx=automatic", "--define:process.env.NODE_ENV=\"production\""];
    let loaders = ["--loader:.svg=text", "--loader:.ttf=dataurl", "--loader:.woff2=dataurl"];
    output(&[&[bundler.as_str(), &page, &bundle], &how[..], &loaders[..]].concat())?;
    write("data.js", &format!("window.drawing = {};", dashboard::series()?))?;
    write("dashboard.html", PAGE)?;
    let shown = format!("file://{}", dir.join("dashboard.html").display());
    let file = "--screenshot=docs/images/dashboard.png";
    page::browse(&["--window-size=1400,1830", "--hide-scrollbars", file, &shown]).map(drop)
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
