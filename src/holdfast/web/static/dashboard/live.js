// Follow what changes by one stream, and fetch the parts of the page that show it. A hidden page follows nothing.
import { morph } from "./morph.js";

const LEAST = 2; // seconds between two fetches of a part, unless data-every says more
const ALL = ["figures", "job"];
const updated = new Map(); // part -> when it was fetched

export function live(url) {
  if (!url) return;
  let stream = null;
  let missed = false;
  let due = new Set();
  let timer = 0;
  let busy = false;

  const parts = () => [...document.querySelectorAll("[data-live]")];

  function changed(topics) {
    for (const part of parts()) {
      if (part.dataset.live.split(" ").some((topic) => topics.includes(topic))) due.add(part.id);
    }
    plan();
  }

  function plan() {
    clearTimeout(timer);
    if (!due.size || busy || document.hidden) return;
    const waits = [...due].map((id) => wait(id));
    const ready = [...due].filter((id, place) => waits[place] <= 0 && !held(id));
    if (ready.length) fetchParts(ready);
    else timer = setTimeout(plan, Math.max(300, Math.min(...waits)));
  }

  function wait(id) {
    const part = document.getElementById(id);
    const every = 1000 * Number(part?.dataset.every ?? LEAST);
    return (updated.get(id) ?? -Infinity) + every - performance.now();
  }

  // Rows do not move while the viewer points at them or has some selected.
  function held(id) {
    const part = document.getElementById(id);
    return Boolean(part?.dataset.still !== undefined && part.matches(":hover, :focus-within, :has([data-select]:checked)"));
  }

  async function fetchParts(ids) {
    busy = true;
    for (const id of ids) {
      due.delete(id);
      updated.set(id, performance.now());
    }
    try {
      const url = new URL(document.body.dataset.pageUrl || location.href, location.href); // the page may be a form's response
      url.searchParams.set("fragment", ids.join(","));
      const response = await fetch(url, { headers: { Accept: "text/html" } });
      if (response.status === 401) location.reload();
      else if (response.ok) swap(await response.text());
    } catch {
      // The service is away; the stream connects again, and asks again.
    }
    busy = false;
    plan();
  }

  function start() {
    if (stream || document.hidden) return;
    stream = new EventSource(url);
    stream.addEventListener("changed", (event) => changed(event.data.split(" ")));
    stream.addEventListener("open", () => {
      document.body.removeAttribute("data-offline");
      if (missed) changed(ALL);
      missed = false;
    });
    stream.addEventListener("error", () => {
      missed = true; // the next stream says only what changes from then on
      document.body.setAttribute("data-offline", "");
      if (stream.readyState === EventSource.CLOSED) {
        stream = null;
        setTimeout(start, 5000);
      }
    });
  }

  function stop() {
    stream?.close();
    stream = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return stop();
    changed(ALL); // what was missed
    start();
  });
  addEventListener("pagehide", stop);
  start();
  setInterval(() => document.hidden || tick(), 1000);
}

function swap(html) {
  const made = new DOMParser().parseFromString(html, "text/html");
  for (const part of [...made.body.children]) {
    const old = part.id && document.getElementById(part.id);
    if (old) morph(old, document.adoptNode(part));
  }
  document.dispatchEvent(new Event("swapped"));
}

const shown = new WeakMap(); // element -> [what the service said, when it was first seen]

function tick() {
  for (const each of document.querySelectorAll("[data-age]")) {
    const seconds = Number(each.dataset.age) + since(each, each.dataset.age);
    each.textContent = seconds < 99.5 ? `${seconds.toFixed(0)} s` : `${(seconds / 60).toFixed(0)} m`;
  }
  for (const each of document.querySelectorAll("time[data-ahead]:not(table *)")) { // rows of tables change as a whole
    const ahead = Number(each.dataset.ahead) - since(each, each.dataset.ahead);
    each.textContent = Math.abs(ahead) < 1 ? "now" : ahead > 0 ? `in ${duration(ahead)}` : `${duration(-ahead)} ago`;
  }
}

// The browser's clock may be wrong, so what the service said is counted on.
function since(element, said) {
  if (shown.get(element)?.[0] !== said) shown.set(element, [said, performance.now()]);
  return (performance.now() - shown.get(element)[1]) / 1000;
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

// As the filter `seconds` of the templates.
function duration(value) {
  if (value < 9.95) return `${value.toFixed(1)} s`;
  if (value < 119.5) return `${value.toFixed(0)} s`;
  const whole = Math.round(value);
  const place = UNITS.findIndex(([size]) => whole >= size);
  const [[size, unit], [smaller, name]] = UNITS.slice(place, place + 2);
  const more = Math.floor((whole % size) / smaller);
  return `${Math.floor(whole / size)} ${unit}` + (more ? ` ${more} ${name}` : "");
}
