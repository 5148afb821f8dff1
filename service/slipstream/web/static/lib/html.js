// Markup by templates: `html` makes what Preact draws. No template is ever made of text, so that text stays text.
import { h, render, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { render, Fragment };
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
