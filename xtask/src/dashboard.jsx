import { createRoot } from "react-dom/client";
import { FieldType, createTheme, dateTime, getDisplayProcessor, toDataFrame, ThemeContext } from "@grafana/data";
import "uplot/dist/uPlot.min.css";
import { GlobalStyles, PanelChrome, TimeSeries } from "@grafana/ui";

const COLUMN = 58, ROW = 38, GAP = 8;
const theme = createTheme();
const { panels, range, results } = window.drawing;

/** What the panel's type sets where a dashboard says nothing. */
const CUSTOM = {
  drawStyle: "line", lineInterpolation: "linear", lineWidth: 1, fillOpacity: 0, gradientMode: "none", showPoints: "auto", pointSize: 5,
  spanNulls: false, insertNulls: false, axisPlacement: "auto", axisColorMode: "text", axisBorderShow: false, axisCenteredZero: false,
  scaleDistribution: { type: "linear" }, hideFrom: { legend: false, tooltip: false, viz: false }, thresholdsStyle: { mode: "off" },
  stacking: { mode: "none", group: "A" },
};

const legend = (format, metric) => format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => metric[label] ?? "");

function frames(panel) {
  const { custom, ...defaults } = panel.fieldConfig.defaults;
  return panel.targets.flatMap((target, t) => results[panel.id][t].map(({ metric, values }, n) => {
    const stacking = { ...CUSTOM.stacking, ...custom?.stacking };
    const config = {
      ...defaults, color: { mode: "palette-classic" }, custom: { ...CUSTOM, ...custom, stacking },
      displayNameFromDS: legend(target.legendFormat, metric),
    };
    const frame = toDataFrame({
      refId: target.refId,
      fields: [
        { name: "Time", type: FieldType.time, values: values.map(([at]) => at * 1000) },
        { name: "Value", type: FieldType.number, values: values.map(([, v]) => Number(v)), config, labels: metric },
      ],
    });
    return frame;
  }));
}

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const [left, top] = [x * COLUMN, y * ROW];
  const [width, height] = [w * COLUMN - GAP, h * ROW - GAP];
  const all = frames(panel);
  all.forEach((frame, n) => frame.fields.forEach((field) => {
    field.state = { seriesIndex: n, displayName: field.config.displayNameFromDS };
    field.display = getDisplayProcessor({ field, theme });
  }));
  const time = { from: dateTime(range.from * 1000), to: dateTime(range.to * 1000) };
  return (
    <div style={{ position: "absolute", left, top, width, height }}>
      <PanelChrome title={panel.title} width={width} height={height}>
        {(w, h) => all.length === 0 ? <div style={{ textAlign: "center", paddingTop: h / 2 - 10 }}>No data</div> :
          <TimeSeries frames={all} width={w} height={h} timeRange={{ ...time, raw: time }} timeZone="utc"
            legend={{ showLegend: true, ...panel.options.legend }} options={panel.options} />}
      </PanelChrome>
    </div>
  );
}

createRoot(document.body).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    {panels.map((panel) => <Panel key={panel.id} panel={panel} />)}
  </ThemeContext.Provider>
);
