// The console: polls the JSON of this port once a second and draws it.
//
// All values reach the page as text nodes, so a name with markup is shown, not run.
"use strict";

const POLL_MS = 1000;
const WINDOW_SECONDS = 300;
const COMMANDS_SHOWN = 4;

const byId = (id) => document.getElementById(id);

/** Makes an element. Children that are no nodes become text. */
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("aria-")) made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

function setText(id, text) {
  const target = byId(id);
  if (target.textContent !== text) target.textContent = text;
}

const integer = new Intl.NumberFormat("en-US");
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

const showCount = (count) => (count < 100000 ? integer.format(count) : compact.format(count));

function showBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let shown = bytes;
  while (shown >= 1024 && unit < units.length - 1) {
    shown /= 1024;
    unit += 1;
  }
  return `${unit === 0 || shown >= 100 ? Math.round(shown) : shown.toFixed(1)} ${units[unit]}`;
}

function showMicros(micros) {
  if (micros < 1000) return `${Math.round(micros)} \u00b5s`;
  if (micros < 1e6) return `${(micros / 1000).toFixed(micros < 1e4 ? 1 : 0)} ms`;
  return `${(micros / 1e6).toFixed(1)} s`;
}

function showSeconds(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

function showTime(seconds, parts) {
  const form = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...parts };
  return new Date(seconds * 1000).toLocaleTimeString([], form);
}

async function load(path) {
  const answer = await fetch(path, { cache: "no-store", credentials: "same-origin" });
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(value.error || `the server answered ${answer.status}`);
  return value;
}

/** A table that sorts by a click on a head. A column: title, kind, value, and how it is shown. */
class SortedTable {
  constructor(id, columns, { sort = null, descending = true, empty = "None" } = {}) {
    this.columns = columns;
    this.sort = sort;
    this.descending = descending;
    this.empty = empty;
    this.rows = [];
    this.head = element("tr");
    this.body = element("tbody");
    byId(id).append(element("thead", {}, this.head), this.body);
    this.heads = columns.map((column, index) => {
      const button = element("button", { type: "button" }, column.title);
      button.addEventListener("click", () => this.sortBy(index));
      const isNumber = column.kind === "number";
      const head = element("th", { class: isNumber ? "number" : "", scope: "col" });
      head.append(column.fixed ? column.title : button);
      this.head.append(head);
      return head;
    });
  }

  sortBy(index) {
    this.descending = this.sort === index ? !this.descending : this.columns[index].kind === "number";
    this.sort = index;
    this.draw();
  }

  show(rows) {
    this.rows = rows;
    this.draw();
  }

  draw() {
    this.heads.forEach((head, index) => {
      if (index !== this.sort) head.removeAttribute("aria-sort");
      else head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
    });
    const rows = [...this.rows];
    if (this.sort !== null) {
      const { value } = this.columns[this.sort];
      const sign = this.descending ? -1 : 1;
      rows.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        return sign * (typeof x === "number" ? x - y : String(x).localeCompare(String(y)));
      });
    }
    const drawn = rows.map((row) => element("tr", {}, ...this.columns.map((column) => {
      const shown = column.show ? column.show(column.value(row), row) : column.value(row);
      const cell = element("td", { class: column.kind || "" }, shown);
      if (column.kind === "code") cell.title = cell.textContent;
      if (column.isBad && column.isBad(row)) cell.classList.add("bad");
      return cell;
    })));
    if (drawn.length === 0) {
      drawn.push(element("tr", {},
        element("td", { class: "empty", colSpan: this.columns.length }, this.empty)));
    }
    this.body.replaceChildren(...drawn);
  }
}

const number = (title, value, show = showCount) => ({ title, kind: "number", value, show });

const tables = new SortedTable("tables", [
  { title: "Table", kind: "code", value: (t) => t.table, isBad: (t) => t.failure !== null },
  { title: "Engine", value: (t) => t.engine },
  number("Keys", (t) => t.keys),
  number("Live", (t) => t.live_bytes, showBytes),
  number("Dead", (t) => t.dead_bytes, showBytes),
  number("Files", (t) => t.file_bytes, showBytes),
  number("Memory", (t) => t.memory_bytes, showBytes),
  number("Written", (t) => t.written_bytes_total, showBytes),
  number("Checkpoints", (t) => t.checkpoints_total),
  number("Compactions", (t) => t.compactions_total),
  { title: "State", value: (t) => t.failure || "working", isBad: (t) => t.failure !== null },
], { sort: 5, empty: "No table is open" });

const commands = new SortedTable("command-table", [
  { title: "Command", kind: "code", value: (c) => c.command.toUpperCase().replace("|", " ") },
  number("Calls", (c) => c.summary[0]),
  number("Mean", (c) => c.summary[1], showMicros),
  number("Median \u2264", (c) => c.summary[2], showMicros),
  number("99 % \u2264", (c) => c.summary[3], showMicros),
  number("99.9 % \u2264", (c) => c.summary[4], showMicros),
  number("Failed", (c) => c.failed + c.rejected),
], { sort: 1, empty: "No command has run" });

const slow = new SortedTable("slow", [
  { title: "Time", value: (s) => s.time, show: (time) => showTime(time, { second: "2-digit" }) },
  number("Duration", (s) => s.micros, showMicros),
  { title: "Command", kind: "code", value: (s) => s.words.join(" ") },
  { title: "Client", value: (s) => s.client || s.address },
], { sort: 0, empty: "No command was slow" });

const clients = new SortedTable("client-table", [
  number("Id", (c) => c.id, String),
  { title: "Address", kind: "code", value: (c) => c.address },
  { title: "Name", value: (c) => c.name || "\u2013" },
  { title: "Library", value: (c) => c.library || "\u2013" },
  number("Database", (c) => c.database, String),
  { title: "Last command", kind: "code", value: (c) => (c.command || "\u2013").toUpperCase() },
  { title: "State", value: (c) => (c.is_blocked ? "waits" : "ready") },
  number("Connected", (c) => c.age_seconds, showSeconds),
  number("Idle", (c) => c.idle_seconds, showSeconds),
  number("Buffers", (c) => c.buffer_bytes, showBytes),
], { sort: 0, descending: false, empty: "No client is connected" });

function showList(id, rows) {
  byId(id).replaceChildren(...rows.flatMap(([name, value, isBad, swatch]) => {
    const term = element("dt");
    if (swatch !== undefined) term.append(element("i", { class: `swatch s${swatch}` }));
    term.append(name);
    return [term, element("dd", { class: isBad ? "bad" : "" }, value)];
  }));
}

const COMPONENTS = {
  table_index: "Indexes of tables",
  table_data: "Data of tables",
  snapshots: "Snapshots",
  other: "Other",
};

function showMemory(store, resident) {
  const budget = Math.max(store.memory_budget_bytes, 1);
  byId("memory-bar").replaceChildren(...store.memory.map((part, index) => {
    const piece = element("i", { class: `s${index}`, title: COMPONENTS[part.component] });
    piece.style.width = `${(100 * part.bytes) / budget}%`;
    return piece;
  }));
  const free = Math.max(budget - store.memory_used_bytes, 0);
  showList("memory", [
    ...store.memory.map((part, index) =>
      [COMPONENTS[part.component], showBytes(part.bytes), false, index]),
    ["Free", showBytes(free), false, 4],
    ["Budget", showBytes(store.memory_budget_bytes)],
    ["Buffers of clients",
      showBytes(store.query_bytes + store.reply_bytes + store.message_bytes)],
    ["Resident in the process", showBytes(resident)],
  ]);
}

function showStore(overview) {
  const { store } = overview;
  showMemory(store, overview.resident_bytes);
  showList("log", [
    ["Replayed at the next start", showBytes(store.replay_bytes)],
    ["Not durable yet", showBytes(store.log_unsynced_bytes)],
    ["Oldest of it", store.log_unsynced_bytes ? showMicros(store.log_unsynced_ms * 1000) : "\u2013",
      store.log_unsynced_ms > 60000],
    ["Last sync", `${showSeconds(store.last_sync_age_ms / 1000)} ago`],
    ["Syncs", showCount(store.log_syncs_total)],
    ["Commits", showCount(store.commits_total)],
    ["Log files", showBytes(store.log_file_bytes)],
    ["appendfsync", overview.appendfsync],
  ]);
  showList("background", [
    ["Checkpoint rounds", showCount(store.checkpoint_rounds_total)],
    ["Time in checkpoints", showMicros(store.checkpoint_ms_total * 1000)],
    ["Writes that waited", showCount(store.write_stalls_total)],
    ["Writes that were delayed", showCount(store.write_delays_total)],
    ["Keys that expired", showCount(overview.expired_total)],
    ["Open snapshots", showCount(store.open_snapshots)],
    ["Checksum failures", showCount(overview.checksum_failures_total),
      overview.checksum_failures_total > 0],
    ["Last failure", store.background_failure || "none", store.background_failure !== null],
  ]);
  setText("tile-memory", showBytes(store.memory_used_bytes));
  setText("tile-budget", `of ${showBytes(store.memory_budget_bytes)}`);
  setText("tile-replay", showBytes(store.replay_bytes));
  setText("tile-durable", store.log_unsynced_bytes
    ? `${showBytes(store.log_unsynced_bytes)} not durable` : "all durable");
  setText("tile-blocked", store.blocked_clients ? `${store.blocked_clients} wait` : "connected");
}

function showOverview(overview) {
  setText("version", overview.version);
  setText("uptime", `up ${showSeconds(overview.uptime_seconds)}`);
  const state = byId("state");
  state.className = overview.problem ? "pill bad" : "pill good";
  setText("state", overview.problem ? "Not ready" : "Ready");
  byId("problem").hidden = !overview.problem;
  setText("problem", overview.problem || "");
  setText("tile-clients", showCount(overview.connected_clients));
  const lookups = overview.hits_total + overview.misses_total;
  setText("tile-hits", lookups ? `${((100 * overview.hits_total) / lookups).toFixed(1)} %` : "\u2013");
  setText("tile-lookups", lookups ? `of ${showCount(lookups)}` : "no lookups yet");
  if (overview.store) showStore(overview);
  window.dispatchEvent(new CustomEvent("databases", { detail: overview.databases }));
}

/** The recent past, and the charts of it. */
const past = { intervals: [], charts: {}, key: "" };

function topCommands() {
  const counts = new Map();
  for (const interval of past.intervals) {
    for (const [name, summary] of Object.entries(interval.commands)) {
      counts.set(name, (counts.get(name) || 0) + summary[0]);
    }
  }
  return [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]))
    .slice(0, COMMANDS_SHOWN).map(([name]) => name);
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Whole decades, also without data. */
function logarithmicRange(_, low, high) {
  if (!(low > 0)) return [1, 1000];
  return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(Math.max(high, low * 1.01)))];
}

function makeChart(id, series, show, isLogarithmic) {
  const target = byId(id);
  const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 },
    ticks: { stroke: color("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
  const ofSeries = (index) => series[index - 1]?.stroke ?? "transparent";
  const options = {
    legend: { markers: { width: 0, fill: (_, index) => ofSeries(index) } },
    width: Math.max(target.clientWidth, 200),
    height: 230,
    cursor: { points: { size: 6 } },
    scales: {
      x: { range: (_, low, high) => [high - WINDOW_SECONDS, high] },
      y: isLogarithmic ? { distr: 3, range: logarithmicRange } : { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] },
    },
    axes: [{ ...axis, incrs: [30, 60, 120, 300], space: 70,
      values: (_, ticks) => ticks.map((time) => showTime(time, {})) }, { ...axis, size: 64, values: (_, ticks) => ticks.map((t) => (t === null ? "" : show(t))) }],
    series: [{ label: "Time",
      value: (_, time) => (time === null ? "\u2013" : showTime(time, { second: "2-digit" })) },
      ...series.map((one) => ({ width: 1.8, points: { show: isLogarithmic, size: 4 }, spanGaps: false,
        value: (_, v) => (v === null || v === undefined ? "\u2013" : show(v)), ...one }))],
  };
  target.replaceChildren();
  return new uPlot(options, [[], ...series.map(() => [])], target);
}

function drawCharts() {
  const names = topCommands();
  const key = names.join(" ");
  if (key !== past.key || !past.charts.rate) {
    past.key = key;
    const series = names.map((name, index) =>
      ({ label: name.toUpperCase().replace("|", " "), stroke: color(`--c${index}`) }));
    const all = { label: "All", stroke: color("--c5"), fill: `${color("--c5")}22` };
    past.charts.rate = makeChart("chart-rate", [all, ...series], (v) => showCount(Math.round(v)));
    const quantile = (label, dash) => ({ label, stroke: color("--c5"), dash });
    past.charts.latency = makeChart("chart-latency",
      [quantile("99 %", [6, 4]), quantile("99.9 %", [2, 3]), ...series], showMicros, true);
  }
  const times = past.intervals.map((one) => one.time / 1000);
  const rate = (one, count) => (1000 * count) / Math.max(one.length_ms, 1);
  const own = (one, name) => one.commands[name];
  past.charts.rate.setData([times, past.intervals.map((one) => rate(one, one.all[0])),
    ...names.map((name) => past.intervals.map((one) => rate(one, own(one, name)?.[0] || 0)))]);
  const positive = (value) => Math.max(value, 1);
  const ofAll = (index) => past.intervals.map((one) => (one.all[0] ? positive(one.all[index]) : null));
  past.charts.latency.setData([times, ofAll(3), ofAll(4),
    ...names.map((name) => past.intervals.map((one) => {
      const summary = own(one, name);
      return summary ? positive(summary[1]) : null;
    }))]);
  // Without a pointer on a chart, its legend has the newest values.
  for (const chart of Object.values(past.charts)) {
    if (typeof chart.cursor.idx !== "number") chart.setLegend({ idx: times.length - 1 });
  }
}

function showHistory(added) {
  past.intervals.push(...added);
  const last = past.intervals.at(-1);
  if (!last) return;
  const oldest = last.time - WINDOW_SECONDS * 1000;
  past.intervals = past.intervals.filter((one) => one.time >= oldest);
  setText("tile-rate", showCount(Math.round((1000 * last.all[0]) / Math.max(last.length_ms, 1))));
  setText("tile-p99", last.all[0] ? showMicros(last.all[3]) : "\u2013");
  setText("tile-median", last.all[0] ? `median ${showMicros(last.all[2])}` : "no commands now");
  drawCharts();
}

async function refresh() {
  const after = past.intervals.at(-1)?.time || 0;
  const [overview, history, tableList, commandList, slowList, clientList] = await Promise.all([
    load("/api/overview"), load(`/api/history?after=${after}`), load("/api/tables"),
    load("/api/commands"), load("/api/slow"), load("/api/clients"),
  ]);
  showOverview(overview);
  showHistory(history.intervals);
  tables.show(tableList.tables);
  const hidden = tableList.count - tableList.tables.length;
  setText("tables-note", hidden > 0
    ? `${showCount(tableList.tables.length)} of ${showCount(tableList.count)}; the others are closed, or beyond the ${tableList.shown_max} that are shown`
    : `${showCount(tableList.count)}`);
  commands.show(commandList.commands);
  slow.show(slowList.commands);
  clients.show(clientList.clients);
  setText("clients-note", clientList.count > clientList.clients.length
    ? `${clientList.clients.length} of ${showCount(clientList.count)}` : `${clientList.count}`);
}

async function poll() {
  if (!document.hidden) {
    try {
      await refresh();
      document.documentElement.dataset.polls = Number(document.documentElement.dataset.polls || 0) + 1;
    } catch (error) {
      byId("state").className = "pill bad";
      setText("state", "No answer");
      byId("problem").hidden = false;
      setText("problem", `The figures below are old: ${error.message}`);
    }
  }
  setTimeout(poll, POLL_MS);
}

function redrawCharts() {
  past.charts = {};
  if (past.intervals.length > 0) drawCharts();
}

new ResizeObserver(() => {
  for (const [name, chart] of Object.entries(past.charts)) {
    const width = byId(`chart-${name}`).clientWidth;
    if (width > 0 && width !== chart.width) chart.setSize({ width, height: 230 });
  }
}).observe(byId("overview"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
poll();
