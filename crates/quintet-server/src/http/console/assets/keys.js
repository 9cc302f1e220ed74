// The key browser: pages of a scan.
"use strict";

const browser = { cursor: "0", page: 0, requests: 0 };

function showTtl(ttl) {
  if (ttl === null) return "\u2013";
  return ttl < 1000 ? `${ttl} ms` : showSeconds(ttl / 1000);
}

const keyTable = new SortedTable("key-table", [
  { title: "Key", kind: "code", value: (k) => k.key },
  { title: "Type", value: (k) => k.type, show: (type) => element("span", { class: "type" }, type) },
  { title: "Expires in", kind: "number", value: (k) => k.ttl_ms ?? Infinity, show: (_, k) => showTtl(k.ttl_ms) },
  { title: "Size", kind: "number", value: (k) => k.size,
    show: (size, k) => (k.unit === "bytes" ? showBytes(size) : `${showCount(size)} ${size === 1 ? "element" : "elements"}`) },
  { title: "Beginning of the value", kind: "code", value: (k) => k.preview },
], { empty: "No keys on this page" });

async function showKeys(cursor) {
  // The answer of an earlier request that comes later is not shown.
  browser.requests += 1;
  const own = browser.requests;
  const query = new URLSearchParams({
    namespace: byId("keys-namespace").value,
    database: byId("keys-database").value || "0",
    match: byId("keys-match").value,
    count: byId("keys-count").value,
    cursor,
  });
  try {
    const found = await load(`/api/keys?${query}`);
    if (own !== browser.requests) return;
    browser.page = cursor === "0" ? 1 : browser.page + 1;
    browser.cursor = found.cursor;
    keyTable.show(found.keys);
    showDatabases(found.databases);
    const more = found.cursor === "0" ? "the last page" : "there are more";
    setText("keys-note", `page ${browser.page}, ${showCount(found.keys.length)} of ${showCount(found.scanned)} keys read; ${more}`);
  } catch (error) {
    if (own !== browser.requests) return;
    browser.cursor = "0";
    setText("keys-note", error.message);
  }
  byId("keys-next").disabled = browser.cursor === "0";
}

/** Shows the databases of the namespace, and keeps the chosen one. */
function showDatabases(databases) {
  const select = byId("keys-database");
  const labels = new Map(databases.map(({ index, keys }) => [String(index), `${index} (${showCount(keys)} keys)`]));
  if (select.value && !labels.has(select.value)) labels.set(select.value, `${select.value} (0 keys)`);
  for (const option of [...select.options]) if (!labels.has(option.value)) option.remove();
  for (const [value, label] of labels) {
    const option = [...select.options].find((one) => one.value === value);
    if (option) option.textContent = label;
    else select.append(element("option", { value }, label));
  }
}

/** Asks for the namespaces, and shows a choice if there are several. */
async function showNamespaces() {
  const select = byId("keys-namespace");
  const found = await load("/api/namespaces").catch(() => null);
  if (!found) return;
  const chosen = select.value;
  select.replaceChildren(...found.namespaces.map((name) => element("option", { value: name }, name)));
  if (found.namespaces.includes(chosen)) select.value = chosen;
  byId("keys-namespace-label").hidden = found.namespaces.length < 2;
}

window.addEventListener("databases", async ({ detail }) => {
  const isFirst = byId("keys-database").options.length === 0;
  if (isFirst) await showNamespaces();
  // The overview has those of the namespace `default`.
  if (byId("keys-namespace").value === "default") showDatabases(detail);
  if (isFirst) showKeys("0");
});
byId("keys-namespace").addEventListener("change", () => {
  byId("keys-database").replaceChildren();
  showKeys("0");
});
byId("keys-namespace").addEventListener("pointerenter", showNamespaces);
byId("keys-form").addEventListener("submit", (event) => {
  event.preventDefault();
  showKeys("0");
});
byId("keys-database").addEventListener("change", () => showKeys("0"));
byId("keys-next").addEventListener("click", () => showKeys(browser.cursor));
