// Check boxes of a table: one for all, and the number that is selected.
export function selecting() {
  const boxes = () => [...document.querySelectorAll("[data-select]")];
  const all = () => document.querySelector("[data-select-all]");

  function show() {
    const count = boxes().filter((each) => each.checked).length;
    for (const each of document.querySelectorAll("[data-selected]")) each.textContent = count;
    const whole = all();
    if (!whole) return;
    whole.checked = count > 0 && count === boxes().length;
    whole.indeterminate = count > 0 && !whole.checked;
  }

  document.addEventListener("change", (event) => {
    if (event.target === all()) for (const each of boxes()) each.checked = event.target.checked;
    show();
  });
  document.addEventListener("swapped", show);
}
