// Buttons that copy the text of an element, and forms that ask before they act.
export function copying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const text = document.getElementById(button.dataset.copy).textContent;
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy";
    }
    setTimeout(() => (button.textContent = label), 1500);
  });
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.ask;
    if (question && !confirm(question)) event.preventDefault();
  });
}
