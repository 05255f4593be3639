// Change an element into another one and keep what the viewer holds: focus, selection, checked boxes, open details.
const KEPT = new Set(["aria-selected", "open", "tabindex"]);

export function morph(old, made) {
  if (old.isEqualNode(made)) return;
  attributes(old, made);
  const keyed = new Map([...old.children].filter((each) => key(each)).map((each) => [key(each), each]));
  let place = old.firstChild;
  for (const child of [...made.childNodes]) {
    const match = key(child) ? keyed.get(key(child)) : alike(place, child) ? place : null;
    if (!match) {
      old.insertBefore(child, place);
      continue;
    }
    if (match === place) place = place.nextSibling;
    else old.insertBefore(match, place);
    if (match.nodeType === Node.ELEMENT_NODE) morph(match, child);
    else if (match.nodeValue !== child.nodeValue) match.nodeValue = child.nodeValue;
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function key(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.dataset?.id || node.id : "";
}

function alike(old, made) {
  return old && old.nodeType === made.nodeType && old.nodeName === made.nodeName && !key(old);
}

function attributes(old, made) {
  for (const { name } of [...old.attributes]) {
    if (!made.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) {
    if (old.getAttribute(name) !== value && !KEPT.has(name)) old.setAttribute(name, value);
  }
}
