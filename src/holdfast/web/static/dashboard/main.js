// The dashboard works without scripts. These add live updates, keys, copying and the theme without a reload.
import { copying } from "./copy.js";
import { keys } from "./keys.js";
import { live } from "./live.js";
import { selecting } from "./select.js";
import { theme } from "./theme.js";

theme(document.querySelector("[data-theme-form]"));
keys();
copying();
selecting();
live(document.body.dataset.liveUrl);
