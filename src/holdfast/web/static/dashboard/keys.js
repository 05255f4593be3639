// j and k move through the rows of the page, Enter opens one, / goes to the filter, g and a letter to a page, ? helps.
const TYPING = "input, select, textarea, [contenteditable]";
const LATE = 1200; // ms after g within which the letter counts

export function keys() {
  let gone = -Infinity;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest(TYPING)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (performance.now() - gone < LATE && go(event.key)) return event.preventDefault();
    gone = -Infinity;
    const act = ACTS[event.key];
    if (event.key === "g") gone = performance.now();
    else if (act && act(event) !== false) event.preventDefault();
  });
}

const ACTS = {
  j: () => move(1),
  k: () => move(-1),
  "/": () => document.querySelector("[data-filter] input, [data-filter] select")?.focus() ?? false,
  "?": () => document.getElementById("keys").showModal(),
  Enter: (event) => open(event.target),
};

function go(letter) {
  const link = document.querySelector(`nav a[data-key="${CSS.escape(letter)}"]`);
  if (link) location.href = link.href;
  return Boolean(link);
}

function move(by) {
  const rows = [...document.querySelectorAll("tr[data-id]")];
  if (!rows.length) return false;
  const now = rows.indexOf(document.activeElement.closest("tr[data-id]"));
  const next = now < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, now + by));
  rows[next].tabIndex = -1;
  rows[next].focus();
  rows[next].scrollIntoView({ block: "nearest" });
}

function open(target) {
  const link = target.matches("tr[data-id]") && target.querySelector("a[href]");
  if (!link) return false;
  location.href = link.href;
}
