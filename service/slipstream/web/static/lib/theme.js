// Light or dark: as the system has it, until the reader says otherwise.
import { useEffect, useState } from "./html.js";

const THEMES = ["auto", "light", "dark"];
const NAME = "slipstream-theme";

function kept() {
  try {
    const found = localStorage.getItem(NAME);
    return THEMES.includes(found) ? found : "auto";
  } catch {
    return "auto"; // a browser that keeps nothing
  }
}

function show(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  dispatchEvent(new Event("slipstream-theme"));
}

show(kept());

export const nextTheme = (theme) => THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];

export function useTheme() {
  const [theme, setTheme] = useState(kept);
  useEffect(() => {
    show(theme);
    try {
      localStorage.setItem(NAME, theme);
    } catch {
      // it holds until the tab is closed
    }
  }, [theme]);
  return [theme, setTheme];
}

/** Calls `draw` when the colours change: a canvas does not follow the style sheet. Returns what ends that. */
export function onTheme(draw) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  addEventListener("slipstream-theme", draw);
  system.addEventListener("change", draw);
  return () => {
    removeEventListener("slipstream-theme", draw);
    system.removeEventListener("change", draw);
  };
}
