// The theme is a cookie, so that the server sends the page in it; here it changes without a reload.
const NEXT = { auto: "dark", dark: "light", light: "auto" };

export function theme(form) {
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    const chosen = button.value;
    document.documentElement.dataset.theme = chosen;
    button.textContent = chosen[0].toUpperCase() + chosen.slice(1);
    button.title = `Theme: ${chosen}`;
    const body = new URLSearchParams(new FormData(form));
    body.set("theme", chosen);
    button.value = NEXT[chosen];
    await fetch(form.action, { method: "POST", body, redirect: "manual" });
  });
}
