// What every page must keep: a function for each rule, which returns what breaks it. Used by pages.py.
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const shown = (each) => each.checkVisibility({ visibilityProperty: true });
  const hidden = (each) => each.closest("[aria-hidden=true]") !== null;
  const name = (each) => `${each.localName}${each.id && `#${each.id}`}.${each.className} ${each.textContent.trim().slice(0, 40)}`;
  const text = (each) => each.textContent.trim() || each.getAttribute("aria-label") || each.title || "";
  const referred = (each, attribute) =>
    (each.getAttribute(attribute) ?? "").split(" ").filter(Boolean).map((id) => document.getElementById(id));

  function unlabelled(each) {
    const labels = [...(each.labels ?? []), ...referred(each, "aria-labelledby")];
    return !each.getAttribute("aria-label") && !labels.some((label) => label?.textContent.trim());
  }

  function jumps(levels) {
    return levels.filter((level, place) => level > (levels[place - 1] ?? 0) + 1);
  }

  // Colours: the text of an element over what is behind it.
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => {
    const mix = (key) => top[key] * top.a + below[key] * (1 - top.a);
    return { r: mix("r"), g: mix("g"), b: mix("b"), a: 1 };
  };
  const canvas = () =>
    getComputedStyle(document.documentElement).colorScheme.includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches
      ? { r: 18, g: 18, b: 18, a: 1 }
      : { r: 255, g: 255, b: 255, a: 1 };
  let known = new Map(); // element -> the colour behind it and its opacity, as the elements above make them
  function ground(each) {
    if (!each) return { colour: canvas(), opacity: 1 };
    if (!known.has(each)) {
      const above = ground(each.parentElement);
      const style = getComputedStyle(each);
      const colour = over(parse(style.backgroundColor), above.colour);
      known.set(each, { colour, opacity: above.opacity * Number(style.opacity) });
    }
    return known.get(each);
  }
  const luminance = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ratio = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };

  function contrast(each, pseudo) {
    const style = getComputedStyle(each, pseudo);
    const { colour: below, opacity } = ground(each);
    const colour = parse(style.color);
    colour.a *= opacity * (pseudo ? Number(style.opacity) : 1);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const found = ratio(over(colour, below), below);
    return found < least ? [`${found.toFixed(2)} ${name(each)}`] : [];
  }

  const written = () =>
    all("body *").filter(
      (each) => !each.closest("svg, .sr, option") && shown(each) && [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()),
    );

  const rules = {
    "an input without a label": () => all("input:not([type=hidden]), select, textarea").filter((each) => !hidden(each) && unlabelled(each)).map(name),
    "a button or link without a name": () => all("a[href], button").filter((each) => !text(each)).map(name),
    "not one h1": () => (all("h1").filter(shown).length === 1 ? [] : all("h1").map(name).concat("h1")),
    "a heading that skips a level": () => jumps(all("h1, h2, h3, h4").filter(shown).map((each) => Number(each.localName[1]))).map(String),
    "a table header without a scope": () => all("th:not([scope])").map(name),
    "a table header without a name": () => all("th").filter((each) => !text(each) && !each.querySelector("[aria-label]")).map(name),
    "a table without headers": () => all("table").filter((each) => !each.querySelector("th")).map(name),
    "not one main": () => (all("main").length === 1 ? [] : ["main"]),
    "a nav without a name": () => all("nav:not([aria-label])").map(name),
    "content outside of the landmarks": () => all("body > *:not(header, main, nav, dialog, script, .skip, :has(> main)), body > :has(> main) > *:not(main, nav)").map(name),
    "an id twice": () => all("[id]").map((each) => each.id).filter((id, place, ids) => ids.indexOf(id) !== place),
    "a reference to nothing": () =>
      ["for", "aria-labelledby", "popovertarget", "form", "data-copy"].flatMap((attribute) =>
        all(`[${attribute}]`).filter((each) => referred(each, attribute).includes(null)).map(name)),
    "a picture without a name": () => all("svg:not([aria-hidden]), img").filter((each) => !each.querySelector("title") && !each.alt).map(name),
    "no language": () => (document.documentElement.lang ? [] : ["html"]),
    "no title": () => (document.title.trim() ? [] : ["title"]),
    "a focus that cannot be seen": () =>
      all("a[href], button, input:not([type=hidden], [tabindex='-1']), select, textarea, [tabindex='0']").filter(shown).slice(0, 60).filter((each) => {
        each.focus({ focusVisible: true });
        const { outlineStyle, outlineWidth } = getComputedStyle(each);
        return document.activeElement !== each || outlineStyle === "none" || parseFloat(outlineWidth) < 2;
      }).map(name),
  };

  window.breaches = () => Object.entries(rules).flatMap(([rule, find]) => find().slice(0, 3).map((found) => `${rule}: ${found}`));
  window.faint = () => {
    known = new Map();
    const placeholders = all("[placeholder]").filter(shown);
    return [...written().flatMap((each) => contrast(each)), ...placeholders.flatMap((each) => contrast(each, "::placeholder"))].slice(0, 8);
  };
  window.overflow = () => document.documentElement.scrollWidth - innerWidth;
})();
