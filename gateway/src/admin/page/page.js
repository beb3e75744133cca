// The status page: asks its own server for /status and /history and shows them. No library; text only ever enters the page as text.
"use strict";

const EVERY_MS = 2000, HISTORY_MS = 5000, ROWS_MAX = 500, REFUSED_MAX = 20;
const $ = (id) => document.getElementById(id);
const view = { sort: "peer", up: true, open: new Set(), rows: ROWS_MAX };
let before = null, now = null;

function el(name, props, ...children) {
  const node = document.createElement(name);
  Object.assign(node, props);
  node.append(...children);
  return node;
}

function scaled(n, units, step) {
  let at = 0;
  while (n >= step && at < units.length - 1) { n /= step; at++; }
  return (n >= 100 || at === 0 ? Math.round(n) : n.toFixed(1)) + " " + units[at];
}
const bytes = (n) => scaled(n, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024);
const count = (n) => scaled(n, ["", "k", "M", "G"], 1000).trim();
const micros = (us) => (us === null ? "" : scaled(us, ["µs", "ms", "s"], 1000));
function span(s) {
  if (s < 120) return s + " s";
  if (s < 7200) return Math.floor(s / 60) + " min";
  return s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d";
}

// The same buckets as the daemon's: four for each power of two microseconds.
function quantile(buckets, share) {
  const all = buckets.reduce((sum, [, n]) => sum + n, 0);
  let seen = 0;
  for (const [at, n] of buckets) {
    seen += n;
    if (seen >= Math.max(1, Math.ceil(all * share))) {
      const octave = Math.floor(at / 4), end = 2 ** octave, start = octave ? end / 2 : 0;
      return start + (end - start) * (at % 4 + 1) / 4;
    }
  }
  return null;
}

// ---- plots

const SVG = "http://www.w3.org/2000/svg";
function svg(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  return node;
}

function plot(id, points, lines, show) {
  const box = $("plot-" + id), w = 400, h = 130, left = 52, bottom = 16;
  const end = points.length ? points[points.length - 1].at : Date.now();
  const x = (t) => left + (w - left) * (1 - (end - t) / 900000);
  const top = Math.max(1, ...points.flatMap((p) => lines.map((l) => l.of(p))));
  const y = (v) => 6 + (h - bottom - 6) * (1 - v / top);
  box.setAttribute("viewBox", `0 0 ${w} ${h}`);
  box.setAttribute("preserveAspectRatio", "none");
  const parts = [];
  for (const part of [0, 0.5, 1]) {
    parts.push(svg("line", { class: "grid", x1: left, x2: w, y1: y(top * part), y2: y(top * part) }));
    parts.push(svg("text", { x: left - 4, y: y(top * part) + 3, "text-anchor": "end" }, show(top * part)));
  }
  for (const minutes of [15, 10, 5]) {
    parts.push(svg("text", { x: x(end - minutes * 60000), y: h - 3 }, `-${minutes} min`));
  }
  lines.forEach((line, n) => {
    const d = points.map((p, i) => (i ? "L" : "M") + x(p.at).toFixed(1) + " " + y(line.of(p)).toFixed(1)).join("");
    parts.push(svg("path", { class: "s" + n, d: d || "M0 0" }));
  });
  box.replaceChildren(...parts);
  $("key-" + id).replaceChildren(...lines.map((line, n) => el("span", { className: "s" + n }, el("i"), line.name)));
  const last = points[points.length - 1];
  $("now-" + id).textContent = last ? lines.map((l) => show(l.of(last))).join(" · ") : "";
}

function plots(points) {
  const per = (of) => (p) => of(p) / Math.max(p.seconds, 0.001);
  plot("bytes", points, [
    { name: "RDMA Write", of: per((p) => p.moved.rdma_write) }, { name: "RDMA Read", of: per((p) => p.moved.rdma_read) },
    { name: "sent inline", of: per((p) => p.moved.inline_out) }, { name: "received inline", of: per((p) => p.moved.inline_in) },
  ], bytes);
  plot("operations", points, [{ name: "operations", of: per((p) => p.operations) }, { name: "with an error", of: per((p) => p.errors) }], count);
  plot("latency", points, ["median", "95 %", "99 %"].map((name, n) => ({ name, of: (p) => p.latency[n] })), micros);
  plot("connections", points, [{ name: "RDMA", of: (p) => p.rdma }, { name: "TCP", of: (p) => p.tcp }], count);
}

// ---- tables

function fact(c, name) {
  const found = c.facts.find(([known]) => known === name);
  return found ? found[1] : "";
}

function row(c, rate) {
  const m = c.moved;
  return {
    c, peer: c.peer, protocol: fact(c, "dialect") ? "smb " + fact(c, "dialect") : c.protocol + (fact(c, "NFS") ? " " + fact(c, "NFS") : ""),
    transport: c.transport, user: fact(c, "user"), age: c.age_seconds, rate,
    out: m.rdma_write + m.inline_out, in: m.rdma_read + m.inline_in,
    placed: m.rdma_write + m.rdma_read, why: c.why_not ? c.why_not.reason : "",
  };
}

function rows() {
  const old = new Map(before ? before.status.connections.map((c) => [c.id, c.moved.requests]) : []);
  const seconds = before ? (now.at - before.at) / 1000 : 1;
  const words = $("filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const all = now.status.connections
    .filter((c) => !$("lost").checked || c.why_not && c.why_not.reason !== "elsewhere-on-rdma")
    .filter((c) => {
      if (!words.length) return true;
      const text = JSON.stringify(c).toLowerCase();
      return words.every((w) => text.includes(w));
    })
    .map((c) => row(c, old.has(c.id) ? (c.moved.requests - old.get(c.id)) / seconds : 0));
  const sign = view.up ? 1 : -1, key = view.sort;
  const order = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  return all.sort((a, b) => sign * order(a[key], b[key]) || a.c.id - b.c.id);
}

function story(c) {
  const list = el("dl");
  const add = (name, value) => list.append(el("dt", {}, name), el("dd", {}, value));
  add("from, to", `${c.peer} → ${c.local}`);
  if (c.why_not) add("why not RDMA", c.why_not.text);
  if (c.placed) add("bulk data", ({ sign: "signed, ", seal: "encrypted, " }[c.protection] || "") + "placed directly");
  for (const [name, value] of c.facts) add(name, value);
  const m = c.moved;
  add("bytes", `RDMA Write ${bytes(m.rdma_write)}, RDMA Read ${bytes(m.rdma_read)}, sent inline ${bytes(m.inline_out)}, received inline ${bytes(m.inline_in)}`);
  add("requests", `${m.requests}; ${m.invalidations} invalidations; ${m.credit_waits} waits for credits, ${c.credits_waiting} now`);
  if (session()) add("", actButton("disconnect this client", "c" + c.id, () => disconnect(c.peer.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1"))));
  return el("tr", { className: "story" }, el("td", { colSpan: 10 }, list));
}

function line(r) {
  const n = (text) => el("td", { className: "n" }, text);
  const why = el("td", { className: "why" });
  if (r.c.why_not) {
    const fine = r.why === "elsewhere-on-rdma";
    why.append(el("span", { className: fine ? "tag ok" : "tag" }, r.why), r.c.why_not.text);
  }
  const tr = el("tr", { tabIndex: 0 },
    el("td", {}, r.peer), el("td", {}, r.protocol), el("td", {}, r.transport), el("td", {}, r.user), n(span(r.age)),
    n(count(r.rate)), n(bytes(r.out)), n(bytes(r.in)), n(bytes(r.placed)), why);
  tr.dataset.id = r.c.id;
  tr.setAttribute("aria-expanded", view.open.has(r.c.id));
  return tr;
}

// What has the focus keeps it while what is shown is replaced.
function withFocus(replace) {
  const { id, act } = document.activeElement?.dataset || {};
  replace();
  const same = act ? `[data-act="${CSS.escape(act)}"]` : id ? `#connections tr[data-id="${CSS.escape(id)}"]` : null;
  if (same) document.querySelector(same)?.focus({ preventScroll: true });
}

function connections() {
  const all = rows(), body = document.createDocumentFragment();
  for (const r of all.slice(0, view.rows)) {
    body.append(line(r));
    if (view.open.has(r.c.id)) body.append(story(r.c));
  }
  withFocus(() => $("connections").tBodies[0].replaceChildren(body));
  const total = now.status.connections.length;
  $("shown").textContent = all.length === total ? `${total}` : `${all.length} of ${total}`;
  const left = all.length - Math.min(all.length, view.rows);
  $("more").replaceChildren(...(left ? [el("button", { onclick: () => { view.rows += ROWS_MAX; connections(); } }, `show ${left} more`)] : []));
  for (const th of document.querySelectorAll("#connections th")) {
    th.className = (th.className.includes("n") ? "n" : "") + (th.dataset.key === view.sort ? " sorted" + (view.up ? " up" : "") : "");
  }
  const sums = new Map();
  for (const c of now.status.connections) if (c.why_not) sums.set(c.why_not.reason, (sums.get(c.why_not.reason) || 0) + 1);
  $("reasons").replaceChildren(...[...sums].sort().map(([reason, n]) =>
    el("button", { className: "tag", onclick: () => { $("filter").value = `"${reason}"`; connections(); } }, `${reason}: ${n}`)));
}

function fill(id, lines, empty) {
  const cells = (cols) => el("tr", {}, ...cols.map((text, i) => el("td", { className: typeof text === "number" || i > 0 && /^[\d.]/.test(text) ? "n" : "" }, String(text))));
  $(id).tBodies[0].replaceChildren(...(lines.length ? lines.map(cells) : [el("tr", {}, el("td", { colSpan: 9 }, empty))]));
}

function tables() {
  const s = now.status;
  $("version").textContent = s.version;
  $("state").textContent = `${s.ready ? "serving" : "stopping"} for ${span(s.uptime_seconds)}; ${s.connections.length} connections` +
    (s.service ? `; service ${s.service.name} on ${s.service.node} in epoch ${s.service.epoch}` : "") +
    (s.connections_refused ? `; ${s.connections_refused} refused: a limit was reached` : "") + (s.store ? `; not ready: ${s.store.what}` : "");
  $("state").className = s.ready && !s.store ? "" : "bad";
  fill("shares", s.shares.map((h) => [h.name, h.protocols === "both" ? "nfs, smb" : h.protocols,
    h.servers.length ? "at " + h.servers.join(", ") : (h.read_only ? "read only" : "write") + (h.hidden ? ", hidden" : ""),
    h.space ? bytes(h.space.free_bytes) : "-",
    h.space ? bytes(h.space.total_bytes) : "-", h.trees]), "none");
  fill("users", s.users.map((u) => [(u.name || "(without a name)") + (u.guest ? " (guest)" : ""), u.clients.join(" "),
    u.shares.join(" ") || "-", u.sessions]), "no user is logged on");
  fill("operations", s.operations.map((o) => [o.share, o.protocol, o.transport, o.operation, o.count, o.errors, bytes(o.bytes),
    micros(quantile(o.buckets, 0.5)), micros(quantile(o.buckets, 0.99))]), "none yet");
  fill("pool", s.pool.map((c) => [bytes(c.buffer_bytes), c.used, c.max, c.waiting]), "none");
  const h = s.state;
  fill("held", [["files held", h.nodes], ["files cached", h.grants], ["ranges locked", h.locks], ["recalls", h.recalls],
    ["revocations", h.revocations], ["waits", h.waits], ["delays told", h.delays], ["denials", h.denials]], "");
  fill("refused", s.refused.slice(0, REFUSED_MAX).map((r) => [r.client, r.rule, r.share || "-", r.user || "-", r.count,
    span(r.age_seconds) + " ago", r.remedy]), "none");
  fill("limits", Object.entries(s.limits), "none");
  fill("violations", Object.entries(s.violations), "none");
  fill("failures", Object.entries(s.rdma_failures), "none");
}

// ---- acting

const FILES_MAX = 200, SURE_MS = 5000, KEPT = "headgate-session";
let armed = { key: "", until: 0 }, seen = null;

// Of the two secrets of a session the cookie is the browser's; this one is for this address and port alone.
function session() {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) || "null");
  return kept && kept.until > Date.now() ? kept.session : null;
}

// The first press asks, a second one soon after it acts.
function actButton(label, key, run) {
  const is = () => armed.key === key && performance.now() < armed.until;
  const press = () => {
    if (is()) { armed = { key: "", until: 0 }; run(); } else armed = { key, until: performance.now() + SURE_MS };
    draw();
  };
  const button = el("button", { className: is() ? "act sure" : "act", type: "button", onclick: press }, is() ? `really ${label}?` : label);
  button.dataset.act = key;
  return button;
}

function draw() {
  if (now) connections();
  administer();
}

function say(text, isFine) {
  $("done").textContent = text;
  $("done").className = isFine ? "fine" : "bad";
}

async function order(path, body) {
  const headers = { "content-type": "application/json", "x-headgate-session": session() || "" };
  const answer = await fetch(path, { method: "POST", cache: "no-store", headers, body: JSON.stringify(body) });
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  const text = (await answer.text()).trim();
  if (answer.status === 403) forget();
  throw new Error(text);
}

function forget() {
  sessionStorage.removeItem(KEPT);
  seen = null;
  draw();
}

async function look() {
  if (session()) seen = await order("action/look", {});
  administer();
}

// Does it, says how it went, and shows what there is now.
async function act(work) {
  try { say(await work(), true); } catch (error) { say(error.message, false); return false; }
  await look().catch((error) => say(error.message, false));
  return true;
}

const disconnect = (what) => act(async () => {
  const gone = await order("action/disconnect", { what });
  return `disconnected ${what}: ` + Object.entries(gone).filter(([, n]) => n).map(([name, n]) => `${n} ${name.replaceAll("_", " ")}`).join(", ");
});
const closeFile = (file, name) => act(async () => {
  await order("action/close", { what: String(file.id) });
  return `closed ${name}`;
});

function administer() {
  const isIn = Boolean(session());
  $("login").hidden = isIn;
  $("acting").hidden = !isIn;
  const files = seen ? seen.files : [];
  $("files-shown").textContent = files.length ? `${files.length + seen.left_out}` : "";
  const line = (f) => {
    const name = `/${f.share}/${f.path === null ? "(removed)" : f.path}`;
    return el("tr", {}, el("td", { className: "why" }, name), el("td", {}, f.protocol), el("td", {}, f.client), el("td", {}, f.user || "-"),
      el("td", {}, f.how), el("td", {}, actButton("close", "f" + f.id, () => closeFile(f, name)), " ",
        f.address ? actButton("disconnect", "d" + f.id, () => disconnect(f.address)) : ""));
  };
  const more = files.length > FILES_MAX ? [el("tr", {}, el("td", { colSpan: 6 }, `and ${files.length - FILES_MAX} more: headgate files`))] : [];
  const none = [el("tr", {}, el("td", { colSpan: 6 }, "no client holds a file"))];
  withFocus(() => $("files").tBodies[0].replaceChildren(...(files.length ? files.slice(0, FILES_MAX).map(line) : none), ...more));
  $("accounts").textContent = seen ? seen.accounts.join(", ") || "none" : "";
}

// A form that is sent by this script alone.
function onSubmit(id, work) {
  $(id).addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = $(id);
    if (await act(() => work(new FormData(form)))) form.reset();
  });
}
onSubmit("login", async (data) => {
  const begun = await order("login", { token: data.get("token") });
  sessionStorage.setItem(KEPT, JSON.stringify({ session: begun.session, until: Date.now() + begun.seconds * 1000 }));
  draw();
  return `logged in for ${span(begun.seconds)}`;
});
onSubmit("add-share", async (data) => {
  const clients = data.get("clients").split(/[\s,]+/).filter(Boolean), name = data.get("name");
  await order("action/share", { name, path: data.get("path"), read_only: data.has("read_only"), clients });
  return `added the share ${name}; it is in the configuration file`;
});
onSubmit("add-user", async (data) => {
  const uid = data.get("uid") ? Number(data.get("uid")) : null;
  const done = await order("action/user", { name: data.get("name"), password: data.get("password"), uid });
  return done.what + (done.warning ? `; ${done.warning}` : "");
});
$("logout").addEventListener("click", () => act(async () => { await order("logout", {}); forget(); return "logged out"; }));
administer();

// ---- asking

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${answer.status}: ${(await answer.text()).trim()}`);
  return answer.json();
}

async function every(ms, work) {
  for (;;) {
    try { if (!document.hidden) await work(); } catch (error) {
      $("state").textContent = "the gateway does not answer: " + error.message;
      $("state").className = "bad";
    }
    await new Promise((done) => setTimeout(done, ms));
  }
}

function toggle(tr) {
  const id = Number(tr.dataset.id);
  view.open.delete(id) || view.open.add(id);
  connections();
}
document.querySelector("#connections thead").addEventListener("click", (event) => {
  const key = event.target.dataset.key;
  if (!key) return;
  view.up = view.sort === key ? !view.up : ["peer", "protocol", "transport", "user", "why"].includes(key);
  view.sort = key;
  if (now) connections();
});
const body = $("connections").tBodies[0];
body.addEventListener("click", (event) => { const tr = event.target.closest("tr[data-id]"); if (tr) toggle(tr); });
body.addEventListener("keydown", (event) => {
  if (event.target.dataset.id && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); toggle(event.target); }
});
for (const id of ["filter", "lost"]) $(id).addEventListener("input", () => now && connections());

every(EVERY_MS, async () => {
  const status = await ask("status");
  before = now;
  now = { at: performance.now(), status };
  tables();
  connections();
});
every(HISTORY_MS, async () => plots(await ask("history")));
every(HISTORY_MS, async () => { try { await look(); } catch (error) { say(error.message, false); } });
